"""A finding: something noticed, with its evidence and what to do. Used by verdicts, readers and the doctor alike."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

__all__ = ["SEVERITIES", "Finding", "worst_first"]

SEVERITIES = ("error", "warning", "info")


class Finding(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    code: str = Field(description="Stable name of the fault, kebab-case, e.g. accept-length-at-floor")
    severity: Literal["info", "warning", "error"]
    confidence: Literal["low", "medium", "high"]
    title: str = Field(description="One sentence: what was found")
    evidence: tuple[str, ...] = Field(default=(), description="The figures or keys it rests on, each with its source")
    remedy: str = Field(default="", description="What to do, as exactly as it can be said")


def worst_first(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """By severity; those of one severity keep their order."""
    return tuple(sorted(findings, key=lambda finding: SEVERITIES.index(finding.severity)))
