"""What `breakeven doctor` says, as data: `--json` prints `DoctorResult`."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from breakeven.doctor.signs import Sign
from breakeven.findings import Finding

__all__ = ["Diagnosis", "DoctorResult", "OpenQuestion", "Unchecked"]

SCHEMA_VERSION = 1


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Diagnosis(Finding):
    family: str = Field(description="Directory of the rule: launch, auxiliary, tensors, vocabulary, rope, precision, data, ...")
    kind: Literal["cause", "sign"] = Field(description="Something wrong, or something seen whose cause is another finding")
    symptoms: dict[str, Sign] = Field(
        default_factory=dict, description="What each engine shows with this fault; of a sign: what is"
    )
    also: tuple[Sign, ...] = Field(default=(), description="Signs that this cause gives beside its symptoms")
    explains: tuple[str, ...] = Field(default=(), description="Codes of the signs that this cause explains")
    refutes: tuple[str, ...] = Field(default=(), description="Suspicions that this sign speaks against")
    repairable: bool = Field(default=False, description="breakeven doctor --fix OUT_DIR mends it")


class OpenQuestion(_Frozen):
    code: str
    question: str = Field(description="What cannot be decided")
    evidence: tuple[str, ...] = ()
    provide: str = Field(description="What would decide it")


class Unchecked(_Frozen):
    code: str
    needs: tuple[str, ...] = Field(description="Inputs that were not given")


class DoctorResult(_Frozen):
    schema_version: int = SCHEMA_VERSION
    examined: tuple[str, ...] = Field(description="What was looked at, in words")
    findings: tuple[Diagnosis, ...] = Field(description="The likeliest cause first")
    conclusion: str = Field(default="", description="What the findings say together")
    refuted: tuple[str, ...] = Field(default=(), description="Popular suspicions that the evidence speaks against")
    next_check: str = Field(default="", description="The one cheap check that separates the causes that remain")
    open_questions: tuple[OpenQuestion, ...] = ()
    unchecked: tuple[Unchecked, ...] = ()
    num_rules_checked: int = 0
    repaired: str = Field(default="", description="The folder that --fix wrote")
    not_repaired: str = Field(default="", description="Why --fix wrote nothing")
    repairs: tuple[str, ...] = Field(default=(), description="What --fix changed, then the difference of config.json")
    remaining: tuple[str, ...] = Field(default=(), description="Codes of errors and warnings that the repaired copy still has")

    @property
    def has_errors(self) -> bool:
        return any(finding.severity == "error" for finding in self.findings)
