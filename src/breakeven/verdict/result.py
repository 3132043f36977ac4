"""The one result type: everything a report shows, computed. Renderers read it and compute nothing.

A result comes from a measured run (raw samples, so intervals) or from figures somebody reported (no samples, so no intervals:
`low` and `high` are None and the text says so). `docs/result-schema.md` is generated from this module.
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from breakeven.findings import Finding

__all__ = [
    "SCHEMA_VERSION",
    "AcceptanceSummary",
    "ArmInfo",
    "BestOfArm",
    "BreakEvenPoint",
    "ByObjective",
    "Cell",
    "Cliff",
    "Comparison",
    "Conclusion",
    "Interval",
    "Load",
    "Outcome",
    "Result",
    "Side",
    "Standing",
    "VoidedTrial",
]

SCHEMA_VERSION = 1

Side = Literal["above", "below", "cannot be told"]
Outcome = Literal["pays", "slower", "no useful difference", "undecided"]


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Interval(_Frozen):
    """An estimate with its interval; `low` and `high` are None where the data carry none."""

    estimate: float
    low: float | None = None
    high: float | None = None
    level: float = Field(default=0.95, description="Coverage the interval claims")


class ArmInfo(_Frozen):
    name: str
    engine: str
    version: str | None = None
    method: str = Field(description="plain, ngram, eagle3, ...")
    num_draft_tokens: int | None = Field(default=None, description="Drafts a round; the root or bonus slot is not one of them")
    forced_accept_length: float | None = None
    schedule: tuple[tuple[int, int, int], ...] = Field(
        default=(), description="Drafts a round by running requests: first, last, drafts; the last number holds on"
    )
    drafter: str | None = None
    max_running_requests: int | None = None
    is_baseline: bool = False
    notes: str = ""

    @property
    def is_probe(self) -> bool:
        """Measures what rounds cost (accepts to order) or what carrying a drafter costs (never drafts); no arm to be run."""
        never_drafts = bool(self.schedule) and not any(drafts for _, _, drafts in self.schedule)
        return self.forced_accept_length is not None or never_drafts

    def drafts_at(self, batch: int) -> int | None:
        """Drafts a round while `batch` requests run."""
        begun = [drafts for first, _, drafts in self.schedule if first <= batch]
        return begun[-1] if begun else self.num_draft_tokens


class Load(_Frozen):
    label: str = Field(description="c=4 (closed loop) or 2/s (open loop)")
    concurrency: int | None = None
    rate_per_s: float | None = None


class AcceptanceSummary(_Frozen):
    accept_length: Interval = Field(description="Tokens per decode step, bonus included")
    per_round_length: float | None = Field(default=None, description="Tokens per step that carried drafts (what vLLM prints)")
    draft_acceptance: float | None = Field(default=None, description="accepted / drafted")
    drafted_share: float | None = Field(default=None, description="Share of steps that carried drafts")
    joint: tuple[float, ...] = Field(default=(), description="P(first i drafts accepted), i = 1..k")
    conditional: tuple[float | None, ...] = Field(
        default=(), description="P(draft i accepted | those before it were); null where no round got so far"
    )
    source: str = Field(description="counters, per-request fields, log, reported, ...")
    exact: bool = True


class Cell(_Frozen):
    """One arm at one load point."""

    arm: str
    load: str
    num_launches: int = 0
    num_trials: int = 0
    num_voided: int = 0
    throughput: Interval | None = Field(default=None, description="Output tokens/s of the whole server, steady window")
    request_speed: Interval | None = Field(default=None, description="Output tokens/s of one request while it decodes")
    ttft_p50_s: float | None = None
    ttft_p95_s: float | None = None
    tpot_s: float | None = Field(default=None, description="Decode seconds per output token of one request")
    round_s: float | None = Field(default=None, description="Seconds per decode step of one request: tpot x accept length")
    num_running: float | None = Field(default=None, description="Mean admitted concurrency over the window")
    acceptance: AcceptanceSummary | None = None


class ByObjective(_Frozen):
    """The same comparison by what the plan did not choose."""

    objective: str
    ratio: Interval
    outcome: Outcome


class Comparison(_Frozen):
    """One arm against the baseline at one load point, at equal admitted concurrency."""

    arm: str
    baseline: str
    load: str
    ratio: Interval = Field(
        description="By the plan's objective over the baseline's, paired by launch block. Objective throughput in open loop: the"
        " speed of whole requests"
    )
    outcome: Outcome | None = Field(description="Null for an arm that is not to be run: it accepts to order, or its output differs")
    why: str = Field(description="One sentence: the rule that gave the outcome")
    num_blocks: int = 0
    launches_to_decide: int | None = Field(default=None, description="Further launches an arm that would probably decide")
    decode_ratio: Interval | None = Field(default=None, description="The same on decode time per token, prefill left out")
    prefill_share: float | None = Field(default=None, description="Prefill's share p of the baseline's request time")
    predicted: Interval | None = Field(default=None, description="What the design's identity predicts from AL and c, by throughput")
    basis: Literal["measured", "reported", "predicted"] = Field(
        default="measured", description="Where the ratio comes from; a predicted one is AL / c of an arm not measured at this load"
    )
    gap_explained: str = Field(default="", description="Why measured and predicted differ, or that they agree")
    by_objective: tuple[ByObjective, ...] = Field(default=(), description="Outcomes by the other objectives; goodput needs limits")


class BreakEvenPoint(_Frozen):
    """The accept length at which speculation with this many drafts pays for itself at this load: c = R(B,k) / R(B,0)."""

    load: str
    num_draft_tokens: int = Field(description="Drafts a round, as in the arm; 0 where it was not reported")
    method: str
    cost_ratio: Interval
    basis: str = Field(description="Arms (forced or not) or reported figures it comes from")


class Cliff(_Frozen):
    """A round gets dearer between two neighbouring measured numbers of drafts by more than further drafts explain."""

    load: str
    method: str
    drafts_before: int
    drafts_after: int
    cost_before: float
    cost_after: float
    text: str = Field(description="The same in a sentence, with the usual cause and what to do")


class Standing(_Frozen):
    """An accept length beside the break-even accept length of its own number of drafts at one load."""

    arm: str
    load: str
    method: str
    num_draft_tokens: int
    accept_length: Interval
    break_even: Interval | None = Field(default=None, description="Null where no measurement reaches this number of drafts")
    read_off: bool = Field(default=False, description="The break-even is read off the line between measured numbers of drafts")
    side: Side = Field(description="Told only where the two intervals do not touch; decoding alone, prefill left out")
    why: str


class BestOfArm(_Frozen):
    """The other view of fairness: each arm at its own best load."""

    arm: str
    load: str
    throughput: Interval
    num_running: float | None = None
    note: str = Field(default="", description="What this view hides, if anything")


class Conclusion(_Frozen):
    text: str
    evidence: tuple[str, ...] = ()


class VoidedTrial(_Frozen):
    arm: str
    load: str
    launch: str
    reasons: tuple[str, ...]


class Result(_Frozen):
    schema_version: int = SCHEMA_VERSION
    kind: Literal["measured", "reported"]
    name: str
    headline: str = Field(description="The verdict in one sentence")
    decision: str = Field(description="What to run, in plain words")
    what_would_change_it: tuple[str, ...] = ()
    baseline: str | None = None
    threshold: float = 0.03
    objective: str = Field(default="throughput", description="What arms were judged by, with its limits")
    arms: tuple[ArmInfo, ...]
    loads: tuple[Load, ...]
    cells: tuple[Cell, ...] = ()
    comparisons: tuple[Comparison, ...] = ()
    break_even: tuple[BreakEvenPoint, ...] = ()
    break_even_between: tuple[BreakEvenPoint, ...] = Field(
        default=(), description="Not measured: read off lines between measured numbers of drafts at the same load"
    )
    cliffs: tuple[Cliff, ...] = ()
    standings: tuple[Standing, ...] = Field(default=(), description="Every drafter of the run against the break-even of its shape")
    own_best: tuple[BestOfArm, ...] = ()
    conclusions: tuple[Conclusion, ...] = Field(default=(), description="Most general first")
    findings: tuple[Finding, ...] = ()
    next_measurements: tuple[str, ...] = Field(default=(), description="Cheapest first")
    voided: tuple[VoidedTrial, ...] = ()
    provenance: dict[str, str] = Field(default_factory=dict)
