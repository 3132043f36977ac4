"""An arm of a reported table: one configuration, and what was reported of it at each load."""

from __future__ import annotations

from dataclasses import dataclass, replace

from breakeven.printed.definitions import Surface, draft_shape
from breakeven.printed.figures import PrintedFigure
from breakeven.printed.formulas import DraftShape
from breakeven.verdict.reported.cells import Cap
from breakeven.versions import Version

__all__ = ["LoadKey", "Point", "ReportedArm", "short_config"]


@dataclass(frozen=True, slots=True, order=True)
class LoadKey:
    """A load point: equal keys are compared. `concurrency` is None where it was not reported; `is_peak` marks a best figure."""

    concurrency: int | None
    workload: str = ""
    is_peak: bool = False

    @property
    def label(self) -> str:
        where = "peak (concurrency not reported)" if self.is_peak else "unreported concurrency"
        load = where if self.concurrency is None else f"c={self.concurrency}"
        return f"{load} ({self.workload})" if self.workload else load

    @property
    def order(self) -> tuple[str, bool, int]:
        return self.workload, self.concurrency is None, self.concurrency or 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """What was reported of one arm at one load; speeds in output tokens/s."""

    load: LoadKey
    throughput: PrintedFigure | None = None
    request_speed: PrintedFigure | None = None
    accept_length: PrintedFigure | None = None
    accept_rate: PrintedFigure | None = None
    by_position: tuple[PrintedFigure, ...] | None = None
    cost_ratio: PrintedFigure | None = None
    speedup: PrintedFigure | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    conditions: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportedArm:
    """One configuration. `accept_length` and `accept_rate` stand for all loads that have none of their own.

    is_idle: its drafter is loaded and drafts nothing (0 drafts), so it says what loading one costs and nothing of speculation.
    """

    name: str
    engine: str
    version: Version | None
    version_text: str | None
    is_speculative: bool
    method: str
    drafter: str | None
    steps: int | None
    topk: int | None
    draft_tokens: int | None
    surface: Surface
    surface_is_assumed: bool
    bonus: str | None
    drafted_share: float | None
    cap: Cap | None
    tensor_parallel: int | None
    hardware: str | None
    quantization: str | None
    notes: str
    accept_length: PrintedFigure | None
    accept_rate: PrintedFigure | None
    by_position: tuple[PrintedFigure, ...] | None
    points: tuple[Point, ...]
    is_idle: bool = False

    @property
    def shape(self) -> DraftShape:
        shape = draft_shape(self.engine, steps=self.steps, topk=self.topk, draft_tokens=self.draft_tokens)
        # Medusa's heads make a tree; vLLM alone verifies its best path
        return replace(shape, is_chain=False, num_steps=None) if self.method == "medusa" and self.engine != "vllm" else shape

    @property
    def config(self) -> str:
        """Steps, top-k and the draft tokens flag as SGLang's users write them, "3-1-4"; else drafts a round, "k=3"; or nothing."""
        is_bare_flag = self.steps is None and self.topk is None
        return short_config(self.steps, self.topk, self.shape.num_drafted if is_bare_flag else self.draft_tokens)

    def point(self, load: LoadKey) -> Point | None:
        return next((point for point in self.points if point.load == load), None)


def short_config(steps: int | None, topk: int | None, draft_tokens: int | None) -> str:
    """ "3-1-4", "k=3" or nothing, for the name of an arm."""
    if steps is None and topk is None:
        return "" if draft_tokens is None else f"k={draft_tokens}"
    return "-".join("?" if part is None else str(part) for part in (steps, topk, draft_tokens))
