"""The prior on the real kernel tables: the worked example, its parts, calibration, and what it refuses."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from breakeven.costs.kernels.library import open_library
from breakeven.costs.kernels.times import KernelTime
from breakeven.costs.prior.architecture import Experts, target_shape
from breakeven.costs.prior.drafter import default_drafter
from breakeven.costs.prior.kernel_surface import KernelSurface
from breakeven.costs.prior.parts import Kernels, Part, routed_experts
from breakeven.costs.surface import UnknownCost

pytest.importorskip("aiconfigurator_core")
ROOT = Path(__file__).parents[4]


@pytest.fixture(scope="module")
def surface() -> KernelSurface:
    target = target_shape(ROOT / "examples" / "kimi-k2.5-blackwell" / "target")
    return KernelSurface(
        kernels=Kernels(open_library("rtx_pro_6000_server", "sglang")),
        target=target,
        drafter=default_drafter(target),
        parallel=8,
        context=1024,
    )


def test_a_single_stream_of_the_worked_example(surface: KernelSurface) -> None:
    # measured there: 63.6 tok/s plain, and a cost ratio of 1.56 with three drafts
    assert 1 / surface.plain_s(1) == pytest.approx(63.6, rel=0.35)
    cost = surface.cost(1, 3)
    assert cost.low < 1.56 < cost.high
    assert cost.value == pytest.approx(1.56, rel=0.1)


def test_small_to_middle_batches_are_dear_because_experts_are_read(surface: KernelSurface) -> None:
    costs = {batch: surface.cost(batch, 3).value for batch in (1, 8, 32)}
    assert costs[8] > costs[1]
    assert costs[8] > costs[32]
    parts = surface.breakdown(8, 3)
    grown = {part.group: 0.0 for part in parts.verify}
    for part in parts.verify:
        grown[part.group] += part.time.value
    for part in parts.plain:
        grown[part.group] -= part.time.value
    assert max(grown, key=lambda group: grown[group]) == "experts"


def test_parts_add_up_to_the_cost(surface: KernelSurface) -> None:
    parts = surface.breakdown(16, 2)
    assert parts.round_s / parts.plain_s == pytest.approx(parts.cost.value)


def test_more_drafts_cost_more_and_none_costs_nothing(surface: KernelSurface) -> None:
    costs = [surface.cost(4, drafts).value for drafts in range(8)]
    assert costs[0] == 1.0
    assert costs == sorted(costs)


def test_a_plain_measurement_sets_the_step(surface: KernelSurface) -> None:
    told = replace(surface, measured_plain={1: 1 / 63.6})
    assert told.plain_s(1) == pytest.approx(1 / 63.6)
    assert told.cost(1, 3).value == pytest.approx(1.56, rel=0.06)
    faster = replace(surface, measured_plain={1: 0.010})
    assert faster.plain_s(1) == pytest.approx(0.010)


def test_a_plain_measurement_of_something_else_is_doubted(surface: KernelSurface) -> None:
    (doubt,) = replace(surface, measured_plain={1: 0.2}).cost(1, 3).doubts
    assert "is it one step of the same model" in doubt


def test_routing_bounds(surface: KernelSurface) -> None:
    uniform, skewed = (replace(surface, routing=routing).plain_s(16) for routing in ("uniform", "skewed"))
    assert skewed < surface.plain_s(16) < uniform


def test_experts_are_never_read_faster_than_memory(surface: KernelSurface) -> None:
    target = surface.target
    assert isinstance(target.experts, Experts)
    time = routed_experts(surface.kernels, target, target.experts, 4, 8, "uniform")
    one_expert = 3 * 7168 * 2048 / 8 * 0.5625
    assert time.value >= 31 * one_expert / surface.kernels.library.hardware.memory_bytes_s


def test_a_kernel_that_no_table_has_is_named(surface: KernelSurface) -> None:
    odd = replace(surface, target=replace(surface.target, experts=replace(surface.target.experts, num=77)))
    with pytest.raises(UnknownCost, match="no measured kernel for 77 experts"):
        odd.cost(1, 3)


def test_a_model_too_small_for_kernels_to_matter_is_doubted(surface: KernelSurface) -> None:
    target = target_shape(ROOT / "benchmarks" / "data" / "shapes" / "llama-3.1-8b")
    tiny = replace(target, hidden=512, num_layers=8, dense_intermediate=1024, vocab=8192)
    small = replace(surface, target=tiny, drafter=default_drafter(tiny), parallel=1)
    assert any("host's time" in doubt for doubt in small.cost(1, 3).doubts)
    assert surface.cost(8, 3).doubts == ()


def test_a_round_cheaper_than_a_plain_step_is_not_predicted(surface: KernelSurface) -> None:
    class Upside(KernelSurface):
        def _forward(self, batch: int, queries: int) -> tuple[Part, ...]:
            return (Part(group="dense", name="x", time=KernelTime.exactly(0.1 if queries == 1 else 0.05, "made up")),)

    wrong = Upside(
        kernels=surface.kernels, target=surface.target, drafter=surface.drafter, parallel=surface.parallel, context=surface.context
    )
    with pytest.raises(UnknownCost, match=r"3 drafts faster than a plain step \(c = 0\.5\d\), which is impossible"):
        wrong.cost(1, 3)


def test_attention_of_the_drafter_grows_with_context_and_is_called_so(surface: KernelSurface) -> None:
    def seconds(context: int, group: str) -> float:
        parts = replace(surface, context=context).breakdown(8, 3).draft
        return sum(part.time.value for part in parts if part.group == group)

    assert seconds(65536, "attention") > 5 * seconds(1024, "attention")
    assert seconds(65536, "dense") == pytest.approx(seconds(1024, "dense"))


def test_where_attention_of_several_rows_decides_that_is_a_doubt() -> None:
    target = target_shape(ROOT / "benchmarks" / "data" / "shapes" / "llama-3.1-8b")
    kernels = Kernels(open_library("h200_sxm", "vllm"))

    def doubts(context: int) -> tuple[str, ...]:
        at = KernelSurface(kernels=kernels, target=target, drafter=default_drafter(target), parallel=1, context=context)
        return at.cost(32, 3).doubts

    assert any("attention over several rows" in doubt for doubt in doubts(32768))
    assert not any("attention over several rows" in doubt for doubt in doubts(1024))
