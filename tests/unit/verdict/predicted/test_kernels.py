from __future__ import annotations

from pathlib import Path

import pytest

from breakeven.costs.acceptance_curve import AcceptanceCurve
from breakeven.errors import CheckpointError, UsageError
from breakeven.verdict.predicted.kernels import KernelQuestion, parse_plain, predict_from_kernels

pytest.importorskip("aiconfigurator_core")
TARGET = Path(__file__).parents[4] / "examples" / "kimi-k2.5-blackwell" / "target"


def question(**changes: object) -> KernelQuestion:
    given: dict[str, object] = {
        "named": "examples/kimi-k2.5-blackwell/target",
        "target": TARGET,
        "drafter": None,
        "system": "rtx_pro_6000_server",
        "engine": "sglang",
        "tensor_parallel": 8,
        "context": 1024,
    }
    return KernelQuestion(**(given | changes))  # type: ignore[arg-type]


def test_costs_with_their_error_bar_and_where_the_time_goes() -> None:
    result = predict_from_kernels(question(), None, (1, 48), (3,), threshold=0.03)
    first, second = result.batches
    assert result.error is not None
    assert first.points[0].cost.low >= 1.0
    assert second.points[0].cost.high / second.points[0].cost.value >= 1 + result.error.tenth - 1e-9
    assert {part.phase for part in first.parts} == {"plain", "verify", "draft"}
    assert sum(part.seconds for part in first.parts if part.phase == "plain") == pytest.approx(first.plain_s)
    assert any("2.69 to 3.34" in note for note in result.notes)


def test_a_public_quality_head_and_what_a_dead_one_needs() -> None:
    good = predict_from_kernels(question(), AcceptanceCurve((0.83, 0.60, 0.45)), (1,), (1, 2, 3), threshold=0.03)
    assert good.batches[0].best is not None
    assert any(point.outcome == "pays" for point in good.batches[0].points)
    weak = predict_from_kernels(question(), AcceptanceCurve((0.42, 0.18, 0.08)), (8,), (3,), threshold=0.03)
    needed = weak.batches[0].needed
    assert needed is not None
    assert needed.needed > needed.break_even > needed.accept_length
    assert weak.batches[0].best is None


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"tensor_parallel": 16}, UsageError, "8 GPUs in a node"),
        ({"tensor_parallel": 5}, UsageError, "do not split evenly"),
        ({"system": "abacus"}, UsageError, "there are tables for"),
        ({"target": TARGET.parent}, CheckpointError, "config.json"),
    ],
)
def test_what_cannot_be_asked(changes: dict[str, object], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        predict_from_kernels(question(**changes), None, (1,), (3,), threshold=0.03)


def test_a_missing_kernel_is_told_once_for_all_points() -> None:
    # no 4-bit floating-point products were ever timed on Hopper
    shape = Path(__file__).parents[4] / "benchmarks" / "data" / "shapes" / "kimi-k2.6-nvfp4"
    result = predict_from_kernels(question(target=shape, system="h100_sxm"), None, (1, 8), (1, 3), threshold=0.03)
    assert result.batches == ()
    (missing,) = result.unpredicted
    assert missing.label == "B=1, k=1 to B=8, k=3"
    assert "nvfp4 on h100_sxm" in missing.reason


def test_plain_figures() -> None:
    assert parse_plain(["B=8:320 tok/s", "1:15.7ms"]) == {8: pytest.approx(8 / 320), 1: pytest.approx(0.0157)}
    for text in ("63.6 tok/s", "B=1:63.6", "B=0:63.6 tok/s", "B=1:0 ms", "B=x:1 ms"):
        with pytest.raises(UsageError, match="as in"):
            parse_plain([text])


def test_what_does_not_fit_into_memory_is_not_predicted() -> None:
    result = predict_from_kernels(question(context=131072), None, (1, 64), (3,), threshold=0.03)
    assert [batch.batch for batch in result.batches] == [1]
    (refused,) = result.unpredicted
    assert refused.label == "B=64"
    assert "requests of 131072 tokens run at once" in refused.reason
    alone = predict_from_kernels(question(tensor_parallel=4), None, (1,), (3,), threshold=0.03)
    assert alone.batches == ()
    assert "of weights for each GPU at --tp 4" in alone.unpredicted[0].reason
    assert "Nothing could be predicted" in alone.headline


def test_a_context_beyond_the_targets_positions_is_doubted() -> None:
    def told(context: int) -> str:
        return " ".join(predict_from_kernels(question(context=context), None, (1,), (3,), threshold=0.03).notes)

    assert "beyond the 262144 positions" in told(300_000)
    assert "beyond" not in told(100_000)
