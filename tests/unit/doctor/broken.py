"""Ways to break a healthy deployment, one or more a static rule: the rule's fixture. A rule without one fails the tests."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from tests.unit.doctor.folders import LAYER_IDS, Folder, copied, make_target, packed, portable, trained

from breakeven.doctor.evidence import Evidence
from breakeven.doctor.examine import examine
from breakeven.doctor.gather import Inputs, gather
from breakeven.doctor.launch import parse_launch
from breakeven.doctor.result import DoctorResult


@dataclass
class Deployment:
    """A drafter, its target and how they are served. Healthy as made; breakers change it."""

    draft: Folder = field(default_factory=portable)
    target: Folder = field(default_factory=make_target)
    parent: Folder | None = None
    engine: str | None = None
    engine_version: str | None = None
    launch: str | None = None
    answers: str | None = None
    gpu_memory_gib: float | None = None
    baseline: str | None = None
    options: dict[str, Any] = field(default_factory=dict)
    has_folder: bool = True

    def inputs(self, root: Path) -> Inputs:
        draft, target = self.draft.write(root), self.target.write(root)
        answers = root / "answers.jsonl"
        if self.answers is not None:
            answers.write_text(self.answers)
        return Inputs(
            draft=str(draft) if self.has_folder else None,
            target=str(target),
            parent=str(self.parent.write(root / "parent")) if self.parent is not None else None,
            engine=self.engine,
            engine_version=self.engine_version,
            launch=self.launch.replace("DRAFT", str(draft)).replace("TARGET", str(target)) if self.launch is not None else None,
            answers=answers if self.answers is not None else None,
            gpu_memory_gib=self.gpu_memory_gib,
            **self.options,
        )

    def evidence(self, root: Path) -> Evidence:
        found = gather(self.inputs(root))
        return replace(found, baseline=parse_launch(self.baseline)) if self.baseline is not None else found

    def examine(self, root: Path) -> DoctorResult:
        return examine(self.evidence(root))


Breaker = Callable[[Deployment], None]
BREAKERS: dict[str, list[Breaker]] = {}
# What leaves a question open, with no fault to state.
QUESTIONS: dict[str, list[Breaker]] = {}

CHAIN = "--speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4"
SGLANG = (
    "python -m sglang.launch_server --model-path TARGET --speculative-algorithm EAGLE3 --speculative-draft-model-path DRAFT "
    f"{CHAIN} --max-running-requests 16"
)
VLLM = (
    "vllm serve TARGET --max-num-seqs 16 "
    '--speculative-config \'{"method": "eagle3", "model": "DRAFT", "num_speculative_tokens": 3}\''
)


def breaks(code: str) -> Callable[[Breaker], Breaker]:
    def register(breaker: Breaker) -> Breaker:
        BREAKERS.setdefault(code, []).append(breaker)
        return breaker

    return register


def leaves_open(code: str) -> Callable[[Breaker], Breaker]:
    def register(breaker: Breaker) -> Breaker:
        QUESTIONS.setdefault(code, []).append(breaker)
        return breaker

    return register


@breaks("algorithm-mismatch")
def eagle_for_eagle3(it: Deployment) -> None:
    it.engine_version, it.launch = "0.5.23", SGLANG.replace("EAGLE3", "EAGLE")


@breaks("algorithm-against-name")
def eagle_for_a_name_of_eagle3(it: Deployment) -> None:
    it.has_folder = False
    it.launch = SGLANG.replace("EAGLE3", "EAGLE").replace("DRAFT", "someone/model-eagle3")


@breaks("algorithm-against-name")
def eagle_method_for_a_name_of_eagle3(it: Deployment) -> None:
    it.has_folder = False
    it.launch = VLLM.replace('"eagle3"', '"eagle"').replace("DRAFT", "someone/Model_EAGLE-3")


@breaks("algorithm-mismatch")
def eagle_method_for_eagle3(it: Deployment) -> None:
    it.engine_version, it.launch = "0.33.0", VLLM.replace('"eagle3"', '"eagle"')


def as_dflash(it: Deployment) -> None:
    it.draft.config |= {"architectures": ["DFlashDraftModel"], "block_size": 4, "dflash_config": {"target_layer_ids": [1, 5, 8]}}


@breaks("algorithm-mismatch")
def eagle3_for_dflash(it: Deployment) -> None:
    as_dflash(it)
    it.engine_version, it.launch = "0.32.0", VLLM


@breaks("algorithm-mismatch")
def eagle3_for_a_whole_model(it: Deployment) -> None:
    it.draft = make_target("small", num_hidden_layers=2)
    it.engine_version, it.launch = "0.5.23", SGLANG


@breaks("algorithm-mismatch")
def eagle3_for_medusa(it: Deployment) -> None:
    it.draft = make_target("heads", architectures=["MedusaModel"], num_hidden_layers=1)
    it.draft.tensors = {"blocks.0.layers.0.weight": it.draft.tensors["lm_head.weight"]}
    it.engine_version, it.launch = "0.5.23", SGLANG


@breaks("target-size-differs")
def a_dflash_head_of_a_narrower_target(it: Deployment) -> None:
    as_dflash(it)
    it.target.config["hidden_size"] = 80


@breaks("target-size-differs")
def a_dflash_head_of_a_deeper_target(it: Deployment) -> None:
    as_dflash(it)
    it.draft.config["num_target_layers"] = 36


@breaks("layers-defaulted")
def nested_ids_only_for_runner_v2(it: Deployment) -> None:
    it.engine, it.engine_version = "vllm", "0.33.0"
    del it.draft.config[LAYER_IDS]
    it.draft.config["eagle_config"][LAYER_IDS] = [1, 4, 9]


@breaks("layers-defaulted")
def nested_ids_only_for_old_vllm(it: Deployment) -> None:
    it.engine, it.engine_version = "vllm", "0.18.1"
    del it.draft.config[LAYER_IDS]
    it.draft.config["eagle_config"][LAYER_IDS] = [1, 3, 7]


@breaks("layers-defaulted")
def outer_ids_only_for_sglang(it: Deployment) -> None:
    it.engine, it.engine_version = "sglang", "0.5.23"
    del it.draft.config["eagle_config"]
    it.draft.config[LAYER_IDS] = [2, 5, 10]


@breaks("vocabulary-map-absolute")
def ids_in_place_of_offsets(it: Deployment) -> None:
    it.draft.tensors["d2t"] = it.draft.tensors["d2t"] + np.arange(len(it.draft.tensors["d2t"]))


@breaks("vocabulary-map-absolute")
def ids_without_a_witness(it: Deployment) -> None:
    ids_in_place_of_offsets(it)
    del it.draft.tensors["t2d"]


@breaks("layers-defaulted")
def ids_of_either_convention_that_nobody_reads(it: Deployment) -> None:
    it.engine, it.engine_version = "vllm", "0.33.0"
    del it.draft.config[LAYER_IDS]
    it.draft.config["eagle_config"][LAYER_IDS] = [3, 5, 8]


@breaks("layers-off-by-one")
def outputs_at_the_top_level(it: Deployment) -> None:
    it.engine, it.engine_version = "vllm", "0.33.0"
    it.draft.config[LAYER_IDS] = [1, 5, 8]
    del it.draft.config["eagle_config"]


@breaks("layers-off-by-one")
def outputs_read_verbatim_by_runner_v1(it: Deployment) -> None:
    it.engine_version, it.launch = "0.33.0", f"VLLM_USE_V2_MODEL_RUNNER=0 {VLLM}"
    del it.draft.config[LAYER_IDS]


@breaks("layers-off-by-one")
def inputs_under_the_nested_key(it: Deployment) -> None:
    it.engine, it.engine_version = "sglang", "0.5.23"
    del it.draft.config[LAYER_IDS]
    it.draft.config["eagle_config"][LAYER_IDS] = [2, 6, 9]


@breaks("layers-off-by-one")
def inputs_under_both_keys(it: Deployment) -> None:
    it.engine, it.engine_version = "sglang", "0.5.23"
    it.draft.config["eagle_config"][LAYER_IDS] = [2, 6, 9]


@breaks("layer-keys-contradict")
def keys_two_apart(it: Deployment) -> None:
    it.draft.config["eagle_config"][LAYER_IDS] = [1, 4, 7]


@breaks("layers-out-of-range")
def ids_of_a_deeper_target(it: Deployment) -> None:
    it.draft.config[LAYER_IDS], it.draft.config["eagle_config"][LAYER_IDS] = [2, 16, 29], [1, 15, 28]


@breaks("layers-unordered")
def ids_backwards(it: Deployment) -> None:
    it.draft.config[LAYER_IDS], it.draft.config["eagle_config"][LAYER_IDS] = [9, 6, 2], [8, 5, 1]


@breaks("layer-count-differs")
def four_ids_for_three_states(it: Deployment) -> None:
    it.draft.config[LAYER_IDS], it.draft.config["eagle_config"][LAYER_IDS] = [2, 6, 9, 12], [1, 5, 8, 11]


@breaks("layer-count-differs")
def a_wrong_number_of_states(it: Deployment) -> None:
    it.draft.config["num_aux_hidden_states"] = 4


@breaks("layer-count-differs")
def four_states_in_a_release_that_takes_three(it: Deployment) -> None:
    it.engine, it.engine_version = "sglang", "0.5.9"
    it.draft.config[LAYER_IDS], it.draft.config["eagle_config"][LAYER_IDS] = [2, 5, 8, 11], [1, 4, 7, 10]
    it.draft.config["num_aux_hidden_states"] = 4
    it.draft.tensors["fc.weight"] = np.concatenate([it.draft.tensors["fc.weight"], it.draft.tensors["fc.weight"][:, :64]], axis=1)


# --- launch --------------------------------------------------------------------------------------------------------------------


def rename_folder(it: Deployment, name: str) -> None:
    it.draft.name = name
    assert it.launch is not None
    it.launch = it.launch.replace('"method": "eagle3", ', "")


@breaks("drafter-not-given")
def eagle3_alone(it: Deployment) -> None:
    it.has_folder, it.launch = False, SGLANG.replace("--speculative-draft-model-path DRAFT ", "")


@breaks("drafter-not-given")
def eagle_for_a_target_without_draft_layers(it: Deployment) -> None:
    it.has_folder, it.launch = False, SGLANG.replace("--speculative-draft-model-path DRAFT ", "").replace("EAGLE3", "EAGLE")


@breaks("drafter-not-given")
def a_method_without_a_model(it: Deployment) -> None:
    it.has_folder, it.launch = False, VLLM.replace('"model": "DRAFT", ', "")


@breaks("drafter-not-given")
def neither_method_nor_model(it: Deployment) -> None:
    it.has_folder, it.launch = False, VLLM.replace('"method": "eagle3", "model": "DRAFT", ', "")


@breaks("combination-refused")
def matches_of_text_with_parallel_attention(it: Deployment) -> None:
    it.has_folder, it.engine_version = False, "0.5.23"
    it.launch = (
        "python -m sglang.launch_server --model-path TARGET --max-running-requests 16 --speculative-algorithm NGRAM --dp-size 4 "
        "--enable-dp-attention"
    )


@breaks("combination-refused")
def a_tree_over_pages(it: Deployment) -> None:
    it.engine_version = "0.5.23"
    it.launch = SGLANG.replace("topk 1", "topk 2") + " --page-size 64 --attention-backend trtllm_mla"


@breaks("combination-refused")
def a_tree_for_chains(it: Deployment) -> None:
    it.engine_version, it.launch = "0.5.9", "SGLANG_ENABLE_SPEC_V2=1 " + SGLANG.replace("topk 1", "topk 2")


@breaks("combination-refused")
def forced_beyond_the_drafts(it: Deployment) -> None:
    it.engine_version = "0.32.0"
    forced = '"rejection_sample_method": "synthetic", "synthetic_acceptance_length": 4.5, "num_speculative_tokens": 3'
    it.launch = VLLM.replace('"num_speculative_tokens": 3', forced)


@breaks("combination-refused")
def a_method_that_is_gone(it: Deployment) -> None:
    it.has_folder, it.engine_version, it.launch = False, "0.33.0", VLLM.replace("eagle3", "medusa").replace("DRAFT", "org/medusa")


@breaks("mtp-layers-reused")
def three_drafts_of_one_layer(it: Deployment) -> None:
    it.has_folder, it.launch = False, 'vllm serve TARGET --max-num-seqs 16 -sc \'{"method": "mtp", "num_speculative_tokens": 3}\''
    it.target.config["num_nextn_predict_layers"] = 1


@breaks("mtp-layers-reused")
def no_multiple_of_the_layers(it: Deployment) -> None:
    it.has_folder, it.launch = False, 'vllm serve TARGET --max-num-seqs 16 -sc \'{"method": "mtp", "num_speculative_tokens": 5}\''
    it.target.config["num_nextn_predict_layers"] = 3


READ_LOGS = Path(__file__).parents[1] / "readers" / "recorded"


@breaks("launch-not-of-log")
def a_log_of_fewer_drafts(it: Deployment) -> None:
    it.launch = VLLM.replace('"num_speculative_tokens": 3', '"num_speculative_tokens": 5')
    it.options["logs"] = (READ_LOGS / "vllm-0.33.0.log",)


@breaks("launch-not-of-log")
def a_log_of_another_engine(it: Deployment) -> None:
    it.launch = SGLANG
    it.options["logs"] = (READ_LOGS / "vllm-0.33.0.log",)


@breaks("server-did-not-start")
def out_of_memory_at_start(it: Deployment) -> None:
    it.options["logs"] = (Path(__file__).parent / "recorded" / "sglang-out-of-memory.log",)


@breaks("method-guessed-from-path")
def a_path_that_means_the_first_eagle(it: Deployment) -> None:
    it.engine_version, it.launch = "0.33.0", VLLM
    rename_folder(it, "Some-EAGLE-3")


@breaks("method-guessed-from-path")
def a_path_that_means_nothing(it: Deployment) -> None:
    it.engine_version, it.launch = "0.33.0", VLLM
    rename_folder(it, "head")


@breaks("architecture-unsupported")
def a_class_that_sglang_has_not(it: Deployment) -> None:
    it.engine, it.engine_version = "sglang", "0.5.23"
    it.draft.config["architectures"] = ["LlamaForCausalLM"]


@breaks("architecture-unsupported")
def a_class_that_vllm_has_not(it: Deployment) -> None:
    it.engine, it.engine_version = "vllm", "0.33.0"
    it.draft.config["architectures"] = ["Eagle3GemmaForCausalLM"]


@breaks("target-unsupported")
def a_target_newer_than_the_release(it: Deployment) -> None:
    it.engine, it.engine_version = "sglang", "0.5.9"
    it.target.config["model_type"] = "kimi_k25"


@breaks("speculative-key-refused")
def a_tree_for_a_release_without(it: Deployment) -> None:
    it.engine_version, it.launch = "0.33.0", VLLM.replace('"method"', '"speculative_token_tree": "[(0,)]", "method"')


@breaks("speculative-key-refused")
def a_switch_that_is_gone(it: Deployment) -> None:
    it.engine_version, it.launch = "0.26.0", VLLM.replace('"method"', '"disable_by_batch_size": 32, "method"')


@breaks("speculative-key-refused")
def flags_of_the_first_engine(it: Deployment) -> None:
    it.engine_version, it.launch = "0.33.0", f"{VLLM} --speculative-model x --num-speculative-tokens 3"


@breaks("speculative-key-refused")
def parallel_size_inside_the_json(it: Deployment) -> None:
    it.engine_version, it.launch = "0.26.0", VLLM.replace('"method"', '"tensor_parallel_size": 1, "method"')


@breaks("running-requests-capped")
def no_limit_given(it: Deployment) -> None:
    it.engine_version, it.launch = "0.5.23", SGLANG.replace(" --max-running-requests 16", "")


@breaks("graphs-off")
def eager(it: Deployment) -> None:
    it.engine_version, it.launch = "0.33.0", f"{VLLM} --enforce-eager"


@breaks("graphs-off")
def graphs_disabled(it: Deployment) -> None:
    it.engine_version, it.launch = "0.5.12.post1", f"{SGLANG} --disable-cuda-graph"


@breaks("graphs-too-small")
def a_batch_beyond_the_default_graphs(it: Deployment) -> None:
    it.engine_version, it.launch = "0.26.0", VLLM.replace("--max-num-seqs 16", "--max-num-seqs 256")


@breaks("graphs-too-small")
def a_batch_beyond_the_graphs_asked_for(it: Deployment) -> None:
    it.engine_version, it.launch = "0.26.0", f"{VLLM} --cudagraph-capture-sizes 1 2 4 8 16 32"


@breaks("graphs-too-small")
def more_requests_than_graphs(it: Deployment) -> None:
    it.engine_version, it.launch = "0.5.23", f"{SGLANG} --cuda-graph-max-bs-decode 8"


@breaks("tree-too-wide")
def a_tree_from_an_example(it: Deployment) -> None:
    shape = "--speculative-num-steps 8 --speculative-eagle-topk 8 --speculative-num-draft-tokens 60"
    it.engine_version, it.launch = "0.5.23", SGLANG.replace(CHAIN, shape)


@breaks("draft-tokens-contradict")
def a_chain_of_24_tokens(it: Deployment) -> None:
    it.engine_version, it.launch = "0.5.23", SGLANG.replace("draft-tokens 4", "draft-tokens 24")


@breaks("draft-tokens-contradict")
def two_flags_of_three(it: Deployment) -> None:
    it.engine_version, it.launch = "0.5.23", SGLANG.replace("--speculative-eagle-topk 1 ", "")


@breaks("draft-tokens-contradict")
def a_tree_that_cannot_grow(it: Deployment) -> None:
    shape = "--speculative-num-steps 2 --speculative-eagle-topk 2 --speculative-num-draft-tokens 9"
    it.engine_version, it.launch = "0.5.23", SGLANG.replace(CHAIN, shape)


@breaks("draft-parallel-size")
def a_third_of_the_targets_size(it: Deployment) -> None:
    json_part = '"draft_tensor_parallel_size": 2, "method"'
    it.engine_version, it.launch = "0.26.0", f"{VLLM} --tensor-parallel-size 4".replace('"method"', json_part)


@breaks("draft-parallel-size")
def heads_that_do_not_divide(it: Deployment) -> None:
    it.engine_version, it.launch = "0.5.23", f"{SGLANG} --tp 8"


@breaks("token-map-ignored")
def a_token_map(it: Deployment) -> None:
    it.engine_version, it.launch = "0.5.23", f"{SGLANG} --speculative-token-map map.pt"


# --- tensors -------------------------------------------------------------------------------------------------------------------


@breaks("shapes-contradict")
def a_narrower_mlp(it: Deployment) -> None:
    it.draft.config["intermediate_size"] = 80


@breaks("shapes-contradict")
def a_width_that_fc_has_not(it: Deployment) -> None:
    it.draft.config["target_hidden_size"] = 80
    it.target.config["hidden_size"] = 80


@breaks("target-size-differs")
def a_target_of_another_width(it: Deployment) -> None:
    it.target.config["hidden_size"] = 80


@breaks("target-size-differs")
def layers_of_a_shallower_target(it: Deployment) -> None:
    it.target.config["num_hidden_layers"] = 20


@breaks("target-size-differs")
def inputs_of_a_shallower_target(it: Deployment) -> None:
    it.draft.config |= {LAYER_IDS: [2, 6, 9], "eagle_config": {LAYER_IDS: [1, 5, 8]}}
    it.target.config["num_hidden_layers"] = 24


@breaks("shapes-contradict")
def a_head_of_other_size(it: Deployment) -> None:
    it.draft.tensors["lm_head.weight"] = it.draft.tensors["lm_head.weight"][:100]


@breaks("tensors-misnamed")
def a_misspelt_projection(it: Deployment) -> None:
    it.draft.rename("q_proj", "query_proj")


@breaks("tensors-misnamed")
def a_module_in_front(it: Deployment) -> None:
    it.draft.rename("fc.weight", "draft_model.fc.weight")


@breaks("tensors-misnamed")
def another_name_for_the_layer(it: Deployment) -> None:
    it.draft.rename("midlayer.", "decoder.")


@breaks("tensors-missing")
def no_projection(it: Deployment) -> None:
    del it.draft.tensors["midlayer.self_attn.o_proj.weight"]


@breaks("tensors-missing")
def no_final_norm(it: Deployment) -> None:
    del it.draft.tensors["norm.weight"]


@breaks("tensors-unknown")
def a_leftover_of_training(it: Deployment) -> None:
    it.draft.tensors["optimizer_state.step_count"] = np.ones(4, np.float32)


@breaks("layer-names-dropped")
def names_that_came_later(it: Deployment) -> None:
    it.engine, it.engine_version = "sglang", "0.5.9"
    it.draft.rename("midlayer.", "layers.0.")


@breaks("name-prefix-refused")
def model_in_front(it: Deployment) -> None:
    it.engine, it.engine_version = "vllm", "0.33.0"
    it.draft.tensors = {
        (name if name in ("d2t", "t2d", "lm_head.weight") else f"model.{name}"): values for name, values in it.draft.tensors.items()
    }


@breaks("draft-layers-unsupported")
def two_layers_on_sglang(it: Deployment) -> None:
    it.engine, it.engine_version = "sglang", "0.5.23"
    it.draft.config["num_hidden_layers"] = 2
    it.draft.rename("midlayer.", "layers.0.")
    second = {name.replace("layers.0.", "layers.1."): values for name, values in it.draft.tensors.items() if "layers.0." in name}
    it.draft.tensors |= {
        name: values[:, :64] if any(f"{one}_proj" in name for one in "qkv") else values for name, values in second.items()
    }


@breaks("draft-layers-unsupported")
def a_number_of_layers_of_the_target(it: Deployment) -> None:
    it.draft.config["num_hidden_layers"] = 12


@breaks("attention-bias-dropped")
def biases_on_sglang(it: Deployment) -> None:
    it.engine, it.engine_version = "sglang", "0.5.23"
    it.draft.config["attention_bias"] = True
    for part, size in (("q", 64), ("k", 32), ("v", 32)):
        it.draft.tensors[f"midlayer.self_attn.{part}_proj.bias"] = np.full(size, 0.1, np.float32)


@breaks("attention-bias-dropped")
def biases_that_are_not_announced(it: Deployment) -> None:
    it.engine, it.engine_version = "vllm", "0.33.0"
    for part, size in (("q", 64), ("k", 32), ("v", 32)):
        it.draft.tensors[f"midlayer.self_attn.{part}_proj.bias"] = np.full(size, 0.1, np.float32)


@breaks("norm-before-residual-dropped")
def normed_residual_on_sglang(it: Deployment) -> None:
    it.engine, it.engine_version = "sglang", "0.5.23"
    it.draft.config["norm_before_residual"] = True


@breaks("norm-before-residual-unstated")
def converted_without_the_flag(it: Deployment) -> None:
    it.draft.config["speculators_config"] = {"algorithm": "eagle3"}


def with_fc_norms(it: Deployment) -> None:
    it.draft.config["fc_norm"] = True
    it.draft.tensors |= {f"fc_norm.{place}.weight": np.linspace(0.5, 1.5, 64, dtype=np.float32) for place in range(3)}


@breaks("fc-norm-unsupported")
def fc_norms_on_an_old_sglang(it: Deployment) -> None:
    it.engine, it.engine_version = "sglang", "0.5.9"
    with_fc_norms(it)


@breaks("fc-norm-unsupported")
def fc_norms_on_an_old_vllm(it: Deployment) -> None:
    it.engine, it.engine_version = "vllm", "0.20.2"
    with_fc_norms(it)


@breaks("norm-before-fc-unsupported")
def an_input_norm_on_an_old_sglang(it: Deployment) -> None:
    it.engine, it.engine_version = "sglang", "0.5.15"
    it.draft.config["norm_before_fc"] = True
    it.draft.tensors["input_norm.weight"] = np.linspace(0.5, 1.5, 192, dtype=np.float32)


@breaks("norm-output-unsupported")
def a_normed_output_on_an_old_vllm(it: Deployment) -> None:
    it.engine, it.engine_version = "vllm", "0.20.2"
    it.draft.config["norm_output"] = True


@breaks("norm-tensors-contradict")
def fc_norms_without_their_flag(it: Deployment) -> None:
    with_fc_norms(it)
    it.draft.config["fc_norm"] = False


@breaks("norm-tensors-contradict")
def a_flag_without_its_norm(it: Deployment) -> None:
    it.draft.config["eagle_config"]["norm_before_fc"] = True


@breaks("norms-zero-centred")
def norms_less_one(it: Deployment) -> None:
    for name, values in it.draft.tensors.items():
        if "norm" in name:
            it.draft.tensors[name] = values - 1


@breaks("weights-not-finite")
def a_diverged_training(it: Deployment) -> None:
    it.draft.tensors["fc.weight"][:] = np.nan


@breaks("untrained-head")
def as_initialised(it: Deployment) -> None:
    generator = np.random.default_rng(5)
    for name, values in it.draft.tensors.items():
        if values.ndim == 2:
            it.draft.tensors[name] = (0.02 * generator.standard_normal(values.shape)).astype(np.float32)
        elif "norm" in name:
            it.draft.tensors[name] = np.ones_like(values)


@breaks("lm-head-absent")
def no_head(it: Deployment) -> None:
    del it.draft.tensors["lm_head.weight"]


@breaks("lm-head-tied")
def tied(it: Deployment) -> None:
    it.draft.config["tie_word_embeddings"] = True


@breaks("lm-head-wrong-rows")
def rows_at_the_offsets(it: Deployment) -> None:
    it.draft.tensors["lm_head.weight"] = it.target.tensors["lm_head.weight"][it.draft.tensors["d2t"]]


@breaks("lm-head-wrong-rows")
def the_first_rows(it: Deployment) -> None:
    it.draft.tensors["lm_head.weight"] = it.target.tensors["lm_head.weight"][: len(it.draft.tensors["d2t"])]


@breaks("lm-head-random")
def a_fresh_head(it: Deployment) -> None:
    shape = it.draft.tensors["lm_head.weight"].shape
    it.draft.tensors["lm_head.weight"] = (0.02 * np.random.default_rng(9).standard_normal(shape)).astype(np.float32)


@breaks("lm-head-frozen")
def the_targets_own_rows(it: Deployment) -> None:
    ids = it.draft.tensors["d2t"] + np.arange(len(it.draft.tensors["d2t"]))
    it.draft.tensors["lm_head.weight"] = it.target.tensors["lm_head.weight"][ids]


@breaks("embedding-unrelated")
def random_embeddings(it: Deployment) -> None:
    it.engine, it.engine_version = "vllm", "0.33.0"
    shape = it.target.tensors["model.embed_tokens.weight"].shape
    it.draft.tensors["embed_tokens.weight"] = (0.02 * np.random.default_rng(4).standard_normal(shape)).astype(np.float32)


@breaks("embedding-trained")
def embeddings_of_its_own(it: Deployment) -> None:
    it.engine, it.engine_version = "sglang", "0.5.23"
    theirs = it.target.tensors["model.embed_tokens.weight"]
    noise = theirs.std() * np.random.default_rng(4).standard_normal(theirs.shape)
    it.draft.tensors["embed_tokens.weight"] = (theirs + 0.5 * noise).astype(np.float32)


# --- vocabulary ----------------------------------------------------------------------------------------------------------------


@breaks("vocabulary-map-absent")
def no_map(it: Deployment) -> None:
    del it.draft.tensors["d2t"], it.draft.tensors["t2d"]


@breaks("vocabulary-map-absent")
def no_offsets(it: Deployment) -> None:
    del it.draft.tensors["d2t"]


@breaks("vocabulary-map-out-of-range")
def an_id_beyond(it: Deployment) -> None:
    it.draft.tensors["d2t"][-1] += 600


@breaks("vocabulary-map-unordered")
def two_tokens_exchanged(it: Deployment) -> None:
    ids = it.draft.tensors["d2t"] + np.arange(len(it.draft.tensors["d2t"]))
    ids[[50, 90]] = ids[[90, 50]]
    it.draft.tensors["d2t"] = ids - np.arange(len(ids))


@breaks("vocabulary-map-unordered")
def a_token_twice(it: Deployment) -> None:
    it.draft.tensors["d2t"][60] = it.draft.tensors["d2t"][59] - 1


@breaks("vocabulary-map-at-odds")
def marks_of_another_map(it: Deployment) -> None:
    it.draft.tensors["t2d"] = np.roll(it.draft.tensors["t2d"], 3)


@breaks("vocabulary-map-rebuilt")
def a_map_from_other_data(it: Deployment) -> None:
    it.parent = copied(it.draft)
    ids = np.sort(np.random.default_rng(8).choice(512, 128, replace=False)).astype(np.int64)
    marks = np.zeros(512, np.bool_)
    marks[ids] = True
    it.draft.tensors |= {"d2t": ids - np.arange(128), "t2d": marks}


@breaks("vocabulary-map-unexpected")
def a_map_of_the_whole_vocabulary(it: Deployment) -> None:
    it.engine, it.engine_version = "vllm", "0.33.0"
    it.draft.config["draft_vocab_size"] = 512
    it.draft.tensors |= {
        "d2t": np.zeros(512, np.int64),
        "t2d": np.ones(512, np.bool_),
        "lm_head.weight": trained(np.random.default_rng(2), 512, 64),
    }


@breaks("draft-vocabulary-unstated")
def no_size_of_the_draft_vocabulary(it: Deployment) -> None:
    del it.draft.config["draft_vocab_size"]


@breaks("vocabulary-size-differs")
def another_vocabulary(it: Deployment) -> None:
    it.target.config["vocab_size"] = 1900


@breaks("vocabulary-coverage")
def answers_in_another_language(it: Deployment) -> None:
    it.answers = json.dumps({"output_ids": [token for token in range(512) for _ in range(4)]}) + "\n"


# --- positions -----------------------------------------------------------------------------------------------------------------


@breaks("rope-contradictory")
def two_bases(it: Deployment) -> None:
    it.draft.config["rope_parameters"] = {"rope_type": "default", "rope_theta": 10000.0}


@breaks("rope-theta-differs")
def the_base_is_lost(it: Deployment) -> None:
    del it.draft.config["rope_theta"]


@breaks("rope-theta-differs")
def another_base(it: Deployment) -> None:
    it.draft.config["rope_theta"] = 10000.0


@breaks("rope-scaling-differs")
def the_scaling_is_lost(it: Deployment) -> None:
    it.target.config["rope_scaling"] = {"rope_type": "llama3", "factor": 8.0, "original_max_position_embeddings": 8192}


@breaks("rope-scaling-differs")
def another_factor(it: Deployment) -> None:
    for folder, factor in ((it.target, 32.0), (it.draft, 4.0)):
        folder.config["rope_scaling"] = {"type": "yarn", "factor": factor, "original_max_position_embeddings": 4096}


@breaks("rope-layout-differs")
def half_of_the_head_is_rotated(it: Deployment) -> None:
    it.draft.config["partial_rotary_factor"] = 0.5


@breaks("position-limit")
def trained_short(it: Deployment) -> None:
    it.draft.config["max_position_embeddings"] = 2048


@breaks("position-limit")
def served_longer_on_sglang(it: Deployment) -> None:
    it.engine_version, it.launch = "0.5.23", f"{SGLANG} --context-length 16384"


# --- precision -----------------------------------------------------------------------------------------------------------------


@breaks("quantization-inherited")
def the_targets_quantization(it: Deployment) -> None:
    it.engine_version, it.launch = "0.5.23", f"{SGLANG} --quantization awq"


@breaks("quantization-inherited")
def a_quantization_for_the_drafter(it: Deployment) -> None:
    it.engine_version, it.launch = "0.33.0", VLLM.replace('"method"', '"quantization": "gptq", "method"')


COMPRESSED = {
    "quant_method": "compressed-tensors",
    "config_groups": {"group_0": {"targets": ["Linear"], "weights": {"num_bits": 4}}},
}


@breaks("quantization-announced")
def the_targets_configuration(it: Deployment) -> None:
    it.draft.config["quantization_config"] = {**COMPRESSED, "ignore": ["lm_head"]}


@breaks("quantization-parts-ignored")
def exceptions_by_parts(it: Deployment) -> None:
    parts = [f"midlayer.self_attn.{one}_proj" for one in "qkvo"] + [f"midlayer.mlp.{one}_proj" for one in ("gate", "up", "down")]
    it.draft.config["quantization_config"] = {**COMPRESSED, "ignore": ["lm_head", "fc", *parts]}


@breaks("quantization-parts-ignored")
def half_of_a_fused_layer(it: Deployment) -> None:
    it.draft.config["quantization_config"] = {**COMPRESSED, "ignore": ["re:.*"]}
    quantize(it, "midlayer.mlp.gate_proj")


def quantize(it: Deployment, module: str, *, scale: bool = True) -> None:
    shape = it.draft.tensors.pop(f"{module}.weight").shape
    it.draft.tensors[f"{module}.weight"] = packed("F8_E4M3", shape, 8)
    if scale:
        it.draft.tensors[f"{module}.weight_scale"] = np.ones((shape[0], 1), np.float32)


@breaks("quantization-scales-missing")
def no_scales(it: Deployment) -> None:
    it.draft.config["quantization_config"] = {"quant_method": "fp8", "ignored_layers": ["re:.*(attn|mlp|lm_head|fc).*"]}
    quantize(it, "fc", scale=False)


@breaks("quantization-unannounced")
def no_configuration_for_it(it: Deployment) -> None:
    quantize(it, "midlayer.mlp.down_proj")


@breaks("target-rotated")
def rotated_embeddings(it: Deployment) -> None:
    rotation, _ = np.linalg.qr(np.random.default_rng(1).standard_normal((64, 64)))
    it.draft.tensors["embed_tokens.weight"] = it.target.tensors["model.embed_tokens.weight"].copy()
    table = it.target.tensors["model.embed_tokens.weight"] @ rotation.astype(np.float32)
    it.target.tensors["model.embed_tokens.weight"] = table.astype(np.float32)


@breaks("target-rotated")
def a_rotation_in_the_configuration(it: Deployment) -> None:
    it.target.config["quantization_config"] = {"quant_method": "ascend", "is_rot_used": True, "name": "QuaRot"}


@breaks("kv-cache-unscaled")
def an_8_bit_cache(it: Deployment) -> None:
    it.engine_version, it.launch = "0.5.23", f"{SGLANG} --kv-cache-dtype fp8_e4m3"


# --- data, capacity ------------------------------------------------------------------------------------------------------------


@breaks("base-model-mismatch")
def the_generation_before(it: Deployment) -> None:
    it.draft.name, it.target.name = "Kimi-K2-Instruct-eagle3", "Kimi-K2.5"


@breaks("base-model-mismatch")
def another_verifier(it: Deployment) -> None:
    it.target.name = "Qwen3-8B"
    it.draft.config["speculators_config"] = {"verifier": {"name_or_path": "meta-llama/Llama-3.1-8B-Instruct"}}
    it.draft.config["norm_before_residual"] = False


@breaks("base-model-mismatch")
def another_size_by_the_model_card(it: Deployment) -> None:
    it.target.name = "Qwen3-30B-A3B"
    it.draft.files["README.md"] = "---\ntags: [eagle3]\nbase_model:\n- Qwen/Qwen3-1.7B\n---\n# A head\n"


@breaks("base-model-mismatch")
def another_size_by_the_configuration(it: Deployment) -> None:
    it.target.name = "Llama-3.1-70B-Instruct"
    it.draft.config["base_model"] = "meta-llama/Llama-3.1-8B-Instruct"


@breaks("target-changed")
def another_fingerprint(it: Deployment) -> None:
    it.draft.files["provenance.json"] = json.dumps({"target": {"name": "target", "fingerprint": "0123456789abcdef"}})


@breaks("chat-template-differs")
def another_template(it: Deployment) -> None:
    it.target.files["chat_template.jinja"] = "{{ messages[0].content }}<think>"
    it.draft.files["tokenizer_config.json"] = json.dumps({"chat_template": "{{ messages[0].content }}"})


@breaks("chat-template-differs")
def another_hash(it: Deployment) -> None:
    it.target.files["chat_template.jinja"] = "{{ messages[0].content }}<think>"
    it.draft.files["provenance.json"] = json.dumps({"target": {"name": "target", "template_sha256": "0" * 64}})


@breaks("memory-does-not-fit")
def a_small_device(it: Deployment) -> None:
    it.gpu_memory_gib = 0.0003


@breaks("running-requests-unequal")
def a_baseline_with_more_requests(it: Deployment) -> None:
    it.engine_version, it.launch = "0.5.23", SGLANG
    it.baseline = "python -m sglang.launch_server --model-path TARGET --max-running-requests 256"


# --- questions -----------------------------------------------------------------------------------------------------------------


@leaves_open("another-drafter-launched")
def a_command_for_another_folder(it: Deployment) -> None:
    it.engine_version, it.launch = "0.5.23", SGLANG.replace("DRAFT", "/models/other-head")


@leaves_open("layer-convention-unclear")
def ids_of_either_convention(it: Deployment) -> None:
    it.engine, it.engine_version = "sglang", "0.5.23"
    del it.draft.config[LAYER_IDS]
    it.draft.config["eagle_config"][LAYER_IDS] = [3, 5, 9]


@leaves_open("norm-output-ambiguous")
def a_flag_of_two_meanings(it: Deployment) -> None:
    it.draft.config["norm_output"] = True


@leaves_open("vocabulary-map-absolute")
def a_map_of_either_kind(it: Deployment) -> None:
    it.draft.tensors["d2t"] = np.arange(128, dtype=np.int64) * 2 + 1
    del it.draft.tensors["t2d"]


@breaks("auxiliary-states-off")
def states_switched_off(it: Deployment) -> None:
    it.draft.config["eagle_config"]["use_aux_hidden_state"] = False


@breaks("vocabulary-map-absent")
def a_map_never_filled(it: Deployment) -> None:
    it.draft.tensors["d2t"] = np.zeros_like(it.draft.tensors["d2t"])
    del it.draft.tensors["t2d"]


@breaks("norms-zero-centred")
def norms_of_ones_less_one(it: Deployment) -> None:
    """As a head that starts from ones looks in a family that stores deviations."""
    for name, values in it.draft.tensors.items():
        if "norm" in name:
            it.draft.tensors[name] = np.zeros_like(values)
