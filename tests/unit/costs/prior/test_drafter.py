from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from breakeven.costs.kernels.library import open_library
from breakeven.costs.prior.architecture import GroupedHeads, target_shape
from breakeven.costs.prior.drafter import default_drafter, described_drafter, draft_round, drafter_shape
from breakeven.costs.prior.parts import Kernels
from breakeven.errors import CheckpointError, UsageError

ROOT = Path(__file__).parents[4]
LLAMA = ROOT / "benchmarks" / "data" / "shapes" / "llama-3.1-8b"
KIMI = ROOT / "examples" / "kimi-k2.5-blackwell" / "target"
HEAD: dict[str, Any] = {
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "num_hidden_layers": 1,
    "vocab_size": 128256,
    "draft_vocab_size": 32000,
}


def head(tmp_path: Path, **changes: Any) -> Path:
    (tmp_path / "config.json").write_text(json.dumps({**HEAD, **changes}), encoding="utf-8")
    return tmp_path


def test_a_head_without_a_folder_is_as_wide_as_the_target() -> None:
    shape = default_drafter(target_shape(LLAMA))
    assert (shape.hidden, shape.draft_vocab, shape.num_layers) == (4096, 32768, 1)
    assert shape.attention == GroupedHeads(heads=32, kv_heads=8, head_dim=128)


def test_a_latent_target_gets_a_head_with_whole_heads() -> None:
    assert default_drafter(target_shape(KIMI)).attention == GroupedHeads(heads=64, kv_heads=64, head_dim=128)


def test_a_folder_is_read(tmp_path: Path) -> None:
    shape = drafter_shape(head(tmp_path), target_shape(LLAMA))
    assert (shape.draft_vocab, shape.intermediate) == (32000, 14336)


def test_a_head_in_the_nested_format_is_read(tmp_path: Path) -> None:
    nested = {key: value for key, value in HEAD.items() if key != "draft_vocab_size"}
    (tmp_path / "config.json").write_text(json.dumps({"transformer_layer_config": nested, "draft_vocab_size": 32000}))
    assert drafter_shape(tmp_path, target_shape(LLAMA)).draft_vocab == 32000


@pytest.mark.parametrize(
    ("changes", "message"),
    [({"hidden_size": 2048}, "made for a target of width 2048"), ({"intermediate_size": None}, "positive whole number")],
)
def test_a_head_that_does_not_fit_is_refused(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(CheckpointError, match=message):
        drafter_shape(head(tmp_path, **changes), target_shape(LLAMA))


def test_a_round_is_one_pass_that_joins_states_and_one_pass_a_further_draft() -> None:
    pytest.importorskip("aiconfigurator_core")
    kernels, shape = Kernels(open_library("h100_sxm", "vllm")), default_drafter(target_shape(LLAMA))

    def seconds(num_drafted: int) -> float:
        return sum(
            part.time.value for part in draft_round(kernels, shape, batch=1, num_drafted=num_drafted, context=512, parallel=1)
        )

    one, two, four = seconds(1), seconds(2), seconds(4)
    assert four - two == pytest.approx(2 * (two - one), rel=0.05)
    assert one > two - one
    joined = [
        part.name for part in draft_round(kernels, shape, batch=1, num_drafted=3, context=512, parallel=1) if "joining" in part.name
    ]
    assert joined == ["first draft: joining the target's states"]


def test_sizes_in_words_change_the_usual_shape() -> None:
    shape = described_drafter("intermediate=12288, vocab=163840,layers=2", target_shape(KIMI))
    assert (shape.intermediate, shape.draft_vocab, shape.num_layers, shape.hidden) == (12288, 163840, 2, 7168)


@pytest.mark.parametrize("text", ["", "layers", "layers=0", "layers=-1", "depth=2", "layers=2,,vocab=5", "vocab=99999999999"])
def test_words_that_are_no_sizes_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match=r"layers=2,vocab=163840; known: layers"):
        described_drafter(text, target_shape(KIMI))
