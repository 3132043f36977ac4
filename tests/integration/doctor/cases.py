"""Ways to break the perfect pair, each with the rule that must see it. Run by the real engines, replayed in unit tests."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from tests.integration.doctor import perfect_pair
from tests.integration.doctor.perfect_pair import DRAFT_VOCAB, HIDDEN, VOCAB
from tests.unit.doctor.folders import LAYER_IDS, Folder


@dataclass
class Case:
    """What is served: `speculative` is vLLM's configuration without the drafter's path, `flags` change SGLang's."""

    draft: Folder = field(default_factory=perfect_pair.draft)
    target: Folder = field(default_factory=perfect_pair.target)
    speculative: dict[str, Any] = field(default_factory=lambda: {"method": "eagle3", "num_speculative_tokens": 3})
    algorithm: str = "EAGLE3"
    dtype: str = "float32"


Change = Callable[[Case], None]
CASES: dict[str, tuple[str | None, Change]] = {}


def case(code: str | None) -> Callable[[Change], Change]:
    def register(change: Change) -> Change:
        CASES[change.__name__.replace("_", " ")] = (code, change)
        return change

    return register


@case(None)
def healthy(it: Case) -> None:
    del it


@case("algorithm-mismatch")
def served_as_eagle(it: Case) -> None:
    it.speculative["method"], it.algorithm = "eagle", "EAGLE"


@case("method-guessed-from-path")
def method_by_a_path_with_eagle(it: Case) -> None:
    del it.speculative["method"]
    it.draft.name = "Some-EAGLE-3"


@case("layers-defaulted")
def ids_where_nobody_looks(it: Case) -> None:
    """vLLM finds the top level only from the nested key in runner V1; SGLang finds the nested one only."""
    del it.draft.config["eagle_config"]


@case("vocabulary-map-absolute")
def map_of_ids(it: Case) -> None:
    it.draft.tensors["d2t"] = it.draft.tensors["d2t"] + np.arange(DRAFT_VOCAB)


@case("vocabulary-map-absent")
def no_map(it: Case) -> None:
    del it.draft.tensors["d2t"], it.draft.tensors["t2d"]


@case("vocabulary-map-unordered")
def map_backwards(it: Case) -> None:
    ids = (it.draft.tensors["d2t"] + np.arange(DRAFT_VOCAB))[::-1]
    it.draft.tensors["d2t"] = ids - np.arange(DRAFT_VOCAB)


@case("vocabulary-map-unexpected")
def map_of_the_whole_vocabulary(it: Case) -> None:
    head = np.zeros((VOCAB, HIDDEN), np.float32)
    head[perfect_pair.draft_ids()] = it.draft.tensors["lm_head.weight"]
    it.draft.config["draft_vocab_size"] = VOCAB
    it.draft.tensors |= {"d2t": np.zeros(VOCAB, np.int64), "t2d": np.ones(VOCAB, np.bool_), "lm_head.weight": head}


@case("draft-vocabulary-unstated")
def no_size_of_the_draft_vocabulary(it: Case) -> None:
    del it.draft.config["draft_vocab_size"]


@case("lm-head-absent")
def no_head(it: Case) -> None:
    del it.draft.tensors["lm_head.weight"]


@case("lm-head-tied")
def tied(it: Case) -> None:
    it.draft.config["tie_word_embeddings"] = True


@case("tensors-misnamed")
def misspelt(it: Case) -> None:
    it.draft.rename("mlp.down_proj", "mlp.down_projection")


@case("tensors-missing")
def no_down_projection(it: Case) -> None:
    del it.draft.tensors["midlayer.mlp.down_proj.weight"]


@case("tensors-unknown")
def leftover(it: Case) -> None:
    it.draft.tensors["optimizer_state.step_count"] = np.ones(4, np.float32)


@case("name-prefix-refused")
def model_in_front(it: Case) -> None:
    own = ("d2t", "t2d", "lm_head.weight")
    it.draft.tensors = {name if name in own else f"model.{name}": values for name, values in it.draft.tensors.items()}


@case("norm-tensors-contradict")
def norms_without_their_flag(it: Case) -> None:
    """fc was made for a last state whose first half the norm takes away: without it, another token's code drowns the right one."""
    fc = it.draft.tensors["fc.weight"] / np.float32(np.sqrt(HIDDEN / 2))
    fc[np.roll(np.arange(VOCAB), -1), 2 * HIDDEN + np.arange(VOCAB)] = 5
    it.draft.tensors["fc.weight"] = fc
    norms = [np.ones(HIDDEN, np.float32), np.ones(HIDDEN, np.float32), np.repeat(np.array([0, 1], np.float32), HIDDEN // 2)]
    it.draft.tensors |= {f"fc_norm.{place}.weight": values for place, values in enumerate(norms)}


@case(None)
def norms_with_their_flag(it: Case) -> None:
    norms_without_their_flag(it)
    it.draft.config["fc_norm"] = True


@case("attention-bias-dropped")
def biases_not_announced(it: Case) -> None:
    for part, size in (("q", 256), ("k", 128), ("v", 128)):
        it.draft.tensors[f"midlayer.self_attn.{part}_proj.bias"] = np.zeros(size, np.float32)


@case("norms-zero-centred")
def norms_less_one(it: Case) -> None:
    for name, values in it.draft.tensors.items():
        if "norm" in name:
            it.draft.tensors[name] = np.where(np.arange(values.size) < values.size // 2, -0.05, 0.05).astype(np.float32)


@case("shapes-contradict")
def a_narrower_mlp(it: Case) -> None:
    it.draft.config["intermediate_size"] = 96


@case("draft-layers-unsupported")
def layers_of_the_target(it: Case) -> None:
    it.draft.config["num_hidden_layers"] = 3


@case("layer-count-differs")
def four_ids(it: Case) -> None:
    it.draft.config[LAYER_IDS] = [3, 7, 10, 11]
    it.draft.config["eagle_config"][LAYER_IDS] = [2, 6, 9, 10]


@case("layers-out-of-range")
def ids_of_a_deeper_target(it: Case) -> None:
    it.draft.config[LAYER_IDS] = [3, 7, 29]
    it.draft.config["eagle_config"][LAYER_IDS] = [2, 6, 28]


@case("quantization-announced")
def the_targets_quantization(it: Case) -> None:
    it.dtype = "bfloat16"  # SGLang refuses this format in float32, whatever the tensors
    weights = {"num_bits": 8, "type": "int", "symmetric": True, "strategy": "channel", "dynamic": False}
    inputs = {"num_bits": 8, "type": "int", "symmetric": True, "strategy": "token", "dynamic": True}
    it.draft.config["quantization_config"] = {
        "quant_method": "compressed-tensors",
        "format": "int-quantized",
        "config_groups": {"group_0": {"targets": ["Linear"], "weights": weights, "input_activations": inputs}},
        "ignore": ["lm_head"],
    }


@case("speculative-key-refused")
def a_tree(it: Case) -> None:
    it.speculative["speculative_token_tree"] = "[(0,), (0, 0)]"


@case("draft-parallel-size")
def split_in_two(it: Case) -> None:
    it.speculative["draft_tensor_parallel_size"] = 2


@case("position-limit")
def a_short_limit(it: Case) -> None:
    it.draft.config["max_position_embeddings"] = 64
