"""The doctor on a real target and a head for it: healthy, nothing above info; broken in one way, that fault first."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from breakeven.checkpoints.folder import ModelFolder, open_folder
from breakeven.checkpoints.random_head import write_random_head
from breakeven.checkpoints.resolve import resolve_model
from breakeven.checkpoints.rows import read_whole
from breakeven.checkpoints.writing import NewTensor, copy_of, of_array, rows_of, write_safetensors
from breakeven.doctor.examine import examine
from breakeven.doctor.gather import Inputs, gather
from breakeven.doctor.repair.writing import repaired
from breakeven.doctor.weights import target_head

pytestmark = pytest.mark.integration

TRAINED = Path(__file__).parents[3] / "models" / "smollm2-135m-eagle3"
IDS = "eagle_aux_hidden_state_layer_ids"
Config, Tensors = dict[str, Any], dict[str, NewTensor]
Change = Callable[[Config, Tensors, ModelFolder, ModelFolder], None]


@pytest.fixture(scope="module")
def target() -> ModelFolder:
    return open_folder(resolve_model("demo:smollm2-135m-instruct", Path()))


@pytest.fixture(scope="module", params=["random", "trained"])
def head(request: pytest.FixtureRequest, target: ModelFolder, tmp_path_factory: pytest.TempPathFactory) -> ModelFolder:
    if request.param == "trained":
        return open_folder(TRAINED)
    out = tmp_path_factory.mktemp("heads") / "head"
    write_random_head(target, out)
    return open_folder(out)


def offsets(head: ModelFolder) -> Any:
    values = read_whole(head.tensors["d2t"])
    assert values is not None
    return values.astype(np.int64)


def map_of_ids(_config: Config, tensors: Tensors, head: ModelFolder, _target: ModelFolder) -> None:
    tensors["d2t"] = of_array(offsets(head) + np.arange(len(offsets(head))))


def no_map(_config: Config, tensors: Tensors, _head: ModelFolder, _target: ModelFolder) -> None:
    del tensors["d2t"], tensors["t2d"]


def no_head(_config: Config, tensors: Tensors, _head: ModelFolder, _target: ModelFolder) -> None:
    del tensors["lm_head.weight"]


def rows_at_the_offsets(_config: Config, tensors: Tensors, head: ModelFolder, target: ModelFolder) -> None:
    theirs = target_head(target)
    assert theirs is not None
    tensors["lm_head.weight"] = rows_of(theirs, offsets(head).tolist())


def misspelt(_config: Config, tensors: Tensors, _head: ModelFolder, _target: ModelFolder) -> None:
    tensors["midlayer.self_attn.query_proj.weight"] = tensors.pop("midlayer.self_attn.q_proj.weight")


def no_norm(_config: Config, tensors: Tensors, _head: ModelFolder, _target: ModelFolder) -> None:
    del tensors["midlayer.hidden_norm.weight"]


def tied(config: Config, *_: object) -> None:
    config["tie_word_embeddings"] = True


def short(config: Config, *_: object) -> None:
    config["max_position_embeddings"] = 2048


def nested_ids_only(config: Config, *_: object) -> None:
    del config[IDS]
    config["eagle_config"][IDS] = [1, 9, 20]


def deeper(config: Config, *_: object) -> None:
    config[IDS], config["eagle_config"][IDS] = [2, 31, 58], [1, 30, 57]


def theta_lost(config: Config, *_: object) -> None:
    del config["rope_theta"], config["rope_parameters"]


def fresh_rows(_config: Config, tensors: Tensors, head: ModelFolder, _target: ModelFolder) -> None:
    shape = head.tensors["lm_head.weight"].shape
    tensors["lm_head.weight"] = of_array(
        (0.02 * np.random.default_rng(0).standard_normal(shape)).astype(np.float32), as_dtype="BF16"
    )


def served_norms_less_one(_config: Config, tensors: Tensors, head: ModelFolder, _target: ModelFolder) -> None:
    for name in tensors:
        values = read_whole(head.tensors[name]) if "norm" in name else None
        if values is not None:
            tensors[name] = of_array(values.astype(np.float32) - 1, as_dtype=head.tensors[name].dtype)


def wider(config: Config, *_: object) -> None:
    config["intermediate_size"] = 2048


def another_vocabulary(config: Config, *_: object) -> None:
    config["vocab_size"] = 50_257


def quantized(config: Config, *_: object) -> None:
    config["quantization_config"] = {"quant_method": "awq", "bits": 4, "group_size": 128, "modules_to_not_convert": ["lm_head"]}


BROKEN: tuple[tuple[Change, str, str | None, str | None], ...] = (
    (map_of_ids, "vocabulary-map-absolute", None, None),
    (no_map, "vocabulary-map-absent", None, None),
    (no_head, "lm-head-absent", "sglang", "0.5.23"),
    (rows_at_the_offsets, "lm-head-wrong-rows", None, None),
    (misspelt, "tensors-misnamed", None, None),
    (no_norm, "tensors-missing", None, None),
    (tied, "lm-head-tied", "sglang", "0.5.9"),
    (short, "position-limit", "sglang", "0.5.23"),
    (nested_ids_only, "layers-defaulted", "vllm", "0.33.0"),
    (deeper, "layers-out-of-range", None, None),
    (theta_lost, "rope-theta-differs", None, None),
    (wider, "shapes-contradict", None, None),
    (another_vocabulary, "vocabulary-size-differs", None, None),
    (quantized, "quantization-announced", None, None),
    (served_norms_less_one, "norms-zero-centred", None, None),
)


@pytest.mark.parametrize(
    "engine", [(None, None), ("vllm", "0.32.0"), ("vllm", "0.26.0"), ("sglang", "0.5.23"), ("sglang", "0.5.9")]
)
def test_the_healthy_head_raises_nothing(engine: tuple[str | None, str | None], head: ModelFolder, target: ModelFolder) -> None:
    began_s = time.process_time()
    inputs = Inputs(draft=str(head.path), target=str(target.path), engine=engine[0], engine_version=engine[1])
    result = examine(gather(inputs))
    assert [finding.code for finding in result.findings if finding.severity != "info"] == []
    assert result.open_questions == ()
    assert time.process_time() - began_s < 2


def test_a_head_that_lost_its_rows_is_told_from_one_that_was_never_trained(target: ModelFolder, tmp_path: Path) -> None:
    head = open_folder(TRAINED)
    tensors = {name: copy_of(info) for name, info in head.tensors.items()}
    fresh_rows({}, tensors, head, target)
    (tmp_path / "config.json").write_text(json.dumps(head.config))
    write_safetensors(tmp_path / "model.safetensors", tensors)
    first = examine(gather(Inputs(draft=str(tmp_path), target=str(target.path)))).findings[0]
    assert (first.code, first.severity, first.confidence) == ("lm-head-random", "error", "high")


@pytest.mark.parametrize(("change", "code", "engine", "version"), BROKEN, ids=[change.__name__ for change, *_ in BROKEN])
def test_broken_in_one_way(
    change: Change,
    code: str,
    engine: str | None,
    version: str | None,
    head: ModelFolder,
    target: ModelFolder,
    tmp_path: Path,
) -> None:
    config: Config = json.loads(json.dumps(head.config))
    tensors: Tensors = {name: copy_of(info) for name, info in head.tensors.items()}
    change(config, tensors, head, target)
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "config.json").write_text(json.dumps(config))
    write_safetensors(tmp_path / "broken" / "model.safetensors", tensors)
    inputs = Inputs(draft=str(tmp_path / "broken"), target=str(target.path), engine=engine, engine_version=version)
    evidence = gather(inputs)
    result = examine(evidence)
    assert result.findings[0].code == code, [(finding.code, finding.title) for finding in result.findings]
    mended = repaired(evidence, result, tmp_path / "repaired")
    assert mended.remaining == () if mended.repairs else code not in mended.remaining or not result.findings[0].repairable
