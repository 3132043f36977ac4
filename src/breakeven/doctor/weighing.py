"""Findings weighed together: which cause explains which signs, what speaks against a popular suspicion, what to check next."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from breakeven.doctor.evidence import Evidence
from breakeven.doctor.result import Diagnosis

__all__ = ["Weighed", "weigh"]

_SEVERITY = {"error": 0, "warning": 1, "info": 2}
_CONFIDENCE = {"high": 0, "medium": 1, "low": 2}


@dataclass(frozen=True, slots=True, kw_only=True)
class Weighed:
    findings: tuple[Diagnosis, ...]
    conclusion: str = ""
    refuted: tuple[str, ...] = ()
    next_check: str = ""


def weigh(diagnoses: Sequence[Diagnosis], evidence: Evidence) -> Weighed:  # noqa: ARG001  the dynamic rules will need it
    """Order: a cause that explains more of the signs seen, then severity, then confidence, then the table of rules."""
    signs = {diagnosis.code: set(diagnosis.symptoms.values()) for diagnosis in diagnoses if diagnosis.kind == "sign"}
    linked = [
        diagnosis.model_copy(
            update={"explains": tuple(code for code, seen in signs.items() if seen & set(diagnosis.symptoms.values()))}
        )
        if diagnosis.kind == "cause"
        else diagnosis
        for diagnosis in diagnoses
    ]
    return Weighed(
        findings=tuple(sorted(linked, key=lambda one: (_SEVERITY[one.severity], -len(one.explains), _CONFIDENCE[one.confidence])))
    )
