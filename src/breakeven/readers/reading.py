"""What `breakeven read` finds, as data: `--json` prints `ReadResult`. Lengths count the bonus token, rates are fractions."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from breakeven.findings import Finding

__all__ = [
    "AcceptanceFound",
    "Comparison",
    "Cut",
    "Difference",
    "FormulaReading",
    "FormulaStatus",
    "Phase",
    "Point",
    "ReadResult",
    "Reading",
]

READ_SCHEMA_VERSION = 1

# How it was found what the printed accept rate divides by; "not needed" where drafts were counted.
FormulaStatus = Literal["release", "inferred", "ambiguous", "contradictory", "not printed", "not needed"]


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class FormulaReading(_Frozen):
    """One meaning of the printed accept rate."""

    formula: str = Field(description="What is divided by what")
    releases: str = Field(description="Who prints that")
    num_drafted: int | None = Field(description="Drafts a round, the root left out")
    accept_length: float | None = None
    draft_acceptance: float | None = Field(default=None, description="accepted / drafted, the bonus in neither")
    decode_speedup: float | None = Field(default=None, description="accept_length over the break-even given, if one was")


class AcceptanceFound(_Frozen):
    """Acceptance over everything that counts in one section of a log, or over one window of a dump."""

    accept_length: float | None = Field(default=None, description="Tokens a decode step, bonus included, weighted by rounds")
    uncertainty: float | None = Field(default=None, description="Two standard errors of it")
    mean_of_lines: float | None = Field(default=None, description="The plain mean of the printed lengths")
    per_step: float | None = Field(
        default=None, description="Where the engine divides by drafted steps only: tokens per step over all steps, estimated"
    )
    draft_acceptance: float | None = Field(default=None, description="accepted / drafted; None where the formula is not settled")
    chain_acceptance: float | None = Field(default=None, description="Acceptance of each draft given those before, taken alike")
    num_drafted: int | None = Field(default=None, description="Drafts a round")
    joint: tuple[float, ...] = Field(default=(), description="P(first i drafts accepted), i = 1..k")
    conditional: tuple[float | None, ...] = ()
    drafted_share: float | None = Field(default=None, description="Steps that carried drafts / all steps")
    rounds: float | None = None
    drafted: float | None = None
    accepted: float | None = None
    basis: Literal[
        "counters",
        "counts of log lines",
        "averages of log lines",
        "gauges: the last interval only",
        "counts of replies",
        "an average of the server's own since its start or last flush",
    ]
    formula_status: FormulaStatus
    decode_speedup: float | None = Field(default=None, description="Over the break-even accept length given, if one was")
    as_printed: dict[str, float] = Field(
        default_factory=dict, description="The accept rate that other engines and releases would print for this"
    )
    formulas: tuple[FormulaReading, ...] = Field(default=(), description="Meanings of the printed rate that fit; one when settled")


class Cut(_Frozen):
    """Lines of one kind together: of one running batch, one stretch of time or one length of context."""

    by: Literal["running", "time", "context"]
    low: float
    high: float
    num_lines: int
    accept_length: float | None
    uncertainty: float | None
    throughput: float | None = Field(description="Output tokens/s of one engine or rank")
    throughput_per_request: float | None


class Point(_Frozen):
    """A few neighbouring lines of the time series. time_s counts from the first line; None without time stamps."""

    time_s: float | None
    num_lines: int
    accept_length: float | None
    draft_acceptance: float | None
    running: float | None
    queued: float | None
    throughput: float | None


class Phase(_Frozen):
    """A stretch of lines whose accept length differs for good from its neighbours'."""

    first_line: int
    num_lines: int
    start_s: float | None
    end_s: float | None
    accept_length: float
    uncertainty: float | None


class Reading(_Frozen):
    source: str
    kind: Literal["log", "scrape", "two scrapes", "replies"]
    part: int = Field(default=1, description="1 for the first start of the server in this file, and so on")
    engine: str
    version: str | None
    version_from: str = Field(default="", description="The line that names it")
    settings: dict[str, str] = Field(default_factory=dict, description="Launch settings found in the banner")
    num_lines: int = Field(description="Intervals printed")
    excluded: tuple[str, ...] = Field(default=(), description="What was left out of the figures, and why")
    duration_s: float | None = None
    num_engines: int = 1
    acceptance: AcceptanceFound | None = None
    throughput: float | None = None
    throughput_per_request: float | None = None
    running: float | None = None
    max_running: float | None = None
    queued: float | None = None
    cuts: tuple[Cut, ...] = ()
    phases: tuple[Phase, ...] = ()
    points: tuple[Point, ...] = ()
    findings: tuple[Finding, ...] = ()


class Difference(_Frozen):
    """Two readings at one running batch, or over all lines (running None)."""

    running: float | None
    accept_lengths: tuple[float, float] | None
    judgement: Literal["effect", "noise", "undecided"] | None
    throughputs: tuple[float, float] | None
    speedup: float | None = Field(default=None, description="Throughput of the second over that of the first")
    speedup_low: float | None = None
    speedup_high: float | None = None


class Comparison(_Frozen):
    first: str
    second: str
    settings: tuple[str, ...] = Field(default=(), description="Launch settings that differ")
    differences: tuple[Difference, ...]
    findings: tuple[Finding, ...] = ()


class ReadResult(_Frozen):
    schema_version: int = READ_SCHEMA_VERSION
    readings: tuple[Reading, ...]
    comparisons: tuple[Comparison, ...] = ()
    findings: tuple[Finding, ...] = Field(default=(), description="About the files as a whole")
