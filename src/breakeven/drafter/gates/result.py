"""What a gate found. A gate that could not look says so: it never passes by default."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from breakeven.findings import Finding

__all__ = ["SCHEMA_VERSION", "GateResult", "GatesReport", "Outcome", "Stage"]

SCHEMA_VERSION = 1

# Where in the pipeline a fault sits, from the data to the engine.
Stage = Literal["data", "capture", "model", "objective", "saving", "training", "export", "serving"]
Outcome = Literal["passed", "failed", "undecided", "not run"]


class GateResult(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    gate: str = Field(description="data, capture, objective, saving, overfit, pilot, gap, export or served")
    outcome: Outcome
    stage: Stage | None = Field(default=None, description="Where the fault sits, for a gate that did not pass")
    summary: str = Field(description="What was found, in one or two sentences, with its figures")
    remedy: str = ""
    figures: dict[str, float | int | str | None] = {}
    findings: tuple[Finding, ...] = Field(default=(), description="What was noticed although the gate passed")

    @property
    def stops(self) -> bool:
        """Whether training or shipping must not go on."""
        return self.outcome in ("failed", "undecided")

    @property
    def line(self) -> str:
        """For people: the gate, its outcome, what was found."""
        at = f" (stage {self.stage})" if self.stops and self.stage is not None else ""
        noticed = "".join(f"; noticed: {finding.title} ({'; '.join(finding.evidence)})" for finding in self.findings)
        return f"gate {self.gate}: {self.outcome}{at}. {self.summary}{noticed}"


class GatesReport(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    schema_version: int = SCHEMA_VERSION
    gates: tuple[GateResult, ...]

    @property
    def passed(self) -> bool:
        return not any(gate.stops for gate in self.gates)

    @property
    def first_stop(self) -> GateResult | None:
        return next((gate for gate in self.gates if gate.stops), None)
