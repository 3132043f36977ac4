"""The drafter in `models/`: every figure on its card is in its files, and its files are what they say they are."""

from __future__ import annotations

import json
import re
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from breakeven.checkpoints.cache import demo_model_path, is_complete
from breakeven.checkpoints.folder import fingerprint, open_folder
from breakeven.doctor.examine import examine
from breakeven.doctor.gather import Inputs, gather
from breakeven.drafter.export.provenance import Provenance, read_provenance, target_provenance, tensor_hashes
from breakeven.drafter.export.reading import read_head
from breakeven.drafter.training.plan import load_train_plan, plan_changes

ROOT = Path(__file__).parents[4]
DRAFTER = ROOT / "models" / "smollm2-135m-eagle3"
PLAN = ROOT / "examples" / "smollm2-135m-eagle3" / "train.yaml"
TARGET = demo_model_path("smollm2-135m-instruct")
IDS = "eagle_aux_hidden_state_layer_ids"
H, V, W, Q, KV, INNER = 576, 49_152, 16_384, 9 * 64, 3 * 64, 1536
needs_target = pytest.mark.skipif(not is_complete(TARGET), reason="breakeven fetch smollm2-135m-instruct has not been run")


@pytest.fixture(scope="module")
def tensors() -> dict[str, torch.Tensor]:
    return load_file(DRAFTER / "model.safetensors")


@pytest.fixture(scope="module")
def provenance() -> Provenance:
    found = read_provenance(DRAFTER)
    assert found is not None
    return found


def test_the_folder_is_small_and_holds_nothing_that_runs():
    files = [file for file in DRAFTER.rglob("*") if file.is_file()]
    assert {file.name for file in files} == {"README.md", "config.json", "model.safetensors", "provenance.json"}
    assert sum(file.stat().st_size for file in files) < 32_000_000


def test_every_tensor_is_the_one_that_was_written(tensors, provenance):
    assert tensor_hashes(tensors) == provenance.tensor_sha256


def test_shapes_and_types(tensors):
    shapes = {name: tuple(tensor.shape) for name, tensor in tensors.items() if tensor.is_floating_point()}
    layer = "midlayer."
    assert shapes == {
        "fc.weight": (H, 3 * H),
        layer + "input_layernorm.weight": (H,),
        layer + "hidden_norm.weight": (H,),
        layer + "post_attention_layernorm.weight": (H,),
        layer + "self_attn.q_proj.weight": (Q, 2 * H),
        layer + "self_attn.k_proj.weight": (KV, 2 * H),
        layer + "self_attn.v_proj.weight": (KV, 2 * H),
        layer + "self_attn.o_proj.weight": (H, Q),
        layer + "mlp.gate_proj.weight": (INNER, H),
        layer + "mlp.up_proj.weight": (INNER, H),
        layer + "mlp.down_proj.weight": (H, INNER),
        "norm.weight": (H,),
        "lm_head.weight": (W, H),
    }
    assert {tensor.dtype for tensor in tensors.values() if tensor.is_floating_point()} == {torch.bfloat16}
    assert all(bool(tensor.isfinite().all()) for tensor in tensors.values() if tensor.is_floating_point())


def test_the_vocabulary_map_holds_offsets_and_agrees_with_the_mask(tensors):
    offsets, mask = tensors["d2t"], tensors["t2d"]
    assert (offsets.dtype, tuple(offsets.shape), mask.dtype, tuple(mask.shape)) == (torch.int64, (W,), torch.bool, (V,))
    target_ids = torch.arange(W) + offsets
    assert all(first < second for first, second in pairwise(target_ids.tolist()))
    assert mask.nonzero().flatten().tolist() == target_ids.tolist()


def test_both_engines_find_the_layers_it_was_trained_on(provenance):
    """vLLM reads the top level as layer inputs, SGLang `eagle_config` as layer outputs, which are one lower."""
    config = json.loads((DRAFTER / "config.json").read_text())
    assert provenance.metrics is not None
    assert config[IDS] == list(provenance.metrics.auxiliary_layers) == [2, 15, 27]
    assert config["eagle_config"][IDS] == [layer - 1 for layer in config[IDS]]
    assert config["draft_vocab_size"] == provenance.metrics.draft_vocab_size == W


def test_the_example_is_the_plan_it_was_trained_with(provenance):
    assert provenance.training is not None
    given = load_train_plan(PLAN)
    assert plan_changes(provenance.training["plan"], given) == []
    # which of the keys that may differ do: where it was written
    mine = given.model_dump(mode="json")
    assert {key for key, value in provenance.training["plan"].items() if mine[key] != value} <= {"out"}


def test_the_card_says_what_was_found(provenance):
    card = (DRAFTER / "README.md").read_text(encoding="utf-8")
    metrics, training = provenance.metrics, provenance.training
    assert metrics is not None
    assert training is not None
    plain = metrics.without_loops
    rows = dict(re.findall(r"^\| ([^|]+) \| ([^|]+) \|$", card, re.MULTILINE))

    def interval(figures) -> tuple[str, str, str]:
        return tuple(f"{value:.2f}" for value in (figures.accept_length, figures.accept_length_low, figures.accept_length_high))

    length, low, high = interval(plain)
    assert rows["Held-out accept length, k = 3"].startswith(
        f"**{length}** (95 %: {low} to {high}), {plain.num_prompts} answers of up to "
        f"{training['plan']['evaluation']['max_answer_tokens']} tokens"
    )
    assert rows["Joint acceptance by position"] == ", ".join(f"{joint:.3f}" for joint in plain.joint)
    length, low, high = interval(metrics.overall)
    assert rows[f"With looping outputs ({metrics.num_looping} of {metrics.num_answers})"] == f"{length} ({low} to {high})"
    result = training["result"]
    looping = next(note for note in result["notes"] if note.endswith("looping"))
    assert rows["Training data"].startswith(
        f"{result['num_samples']:,} answers, {result['num_answer_tokens'] / 1e6:.1f} M answer tokens".replace(",", " ", 1)
    )
    assert rows["Training data"].endswith(f"{int(looping.split()[0]):,} looping answers left out".replace(",", " "))
    assert rows["Draft vocabulary"] == f"{W // 1000} {W % 1000} of 49 152 tokens, {100 * result['coverage']:.1f} % of answer tokens"
    assert rows["Training"].startswith(f"{result['num_steps']} steps of 16k tokens")
    assert f"({metrics.by_context['1-128'].accept_length:.2f} up to 128 tokens" in card.replace("\n", " ")


@needs_target
def test_it_was_made_for_the_target_that_fetch_brings(provenance):
    target = open_folder(TARGET)
    assert fingerprint(target) == provenance.target.fingerprint
    assert target_provenance(target) == provenance.target
    head = read_head(DRAFTER, target)
    assert (head.config.auxiliary_layers, head.notes) == ((2, 15, 27), ())


@needs_target
@pytest.mark.parametrize(("engine", "release"), [("vllm", "0.32.0"), ("sglang", "0.5.23")])
def test_the_doctor_finds_nothing(engine, release):
    result = examine(gather(Inputs(draft=str(DRAFTER), target=str(TARGET), engine=engine, engine_version=release), None))
    assert [finding.code for finding in result.findings if finding.severity != "info"] == []
    assert result.num_rules_checked > 40
