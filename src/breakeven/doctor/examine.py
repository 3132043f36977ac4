"""All rules over one evidence, and their results weighed: the doctor's one entry."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from breakeven.doctor.evidence import Evidence
from breakeven.doctor.registry import RULES, Rule
from breakeven.doctor.result import Diagnosis, DoctorResult, OpenQuestion, Unchecked
from breakeven.doctor.told import CannotDecide, Fault, Told
from breakeven.doctor.weighing import weigh

__all__ = ["examine"]


def examine(evidence: Evidence, rules: Iterable[Rule] = RULES) -> DoctorResult:
    """Findings, the likeliest cause first; what could not be decided; what was not checked for want of input."""
    diagnoses: list[Diagnosis] = []
    questions: list[OpenQuestion] = []
    unchecked: list[Unchecked] = []
    num_checked = 0
    for rule in rules:
        missing = tuple(dict.fromkeys(evidence.lacks(need) for need in rule.needs if not evidence.has(need)))
        if missing:
            unchecked.append(Unchecked(code=rule.code, needs=missing))
            continue
        num_checked += 1
        for told in rule.check(evidence):
            if isinstance(told, CannotDecide):
                questions.append(_question(rule, told))
            else:
                diagnoses.append(_diagnosis(rule, told, evidence))
    weighed = weigh(diagnoses, evidence, {*(one.code for one in unchecked), *(one.code for one in questions)})
    return DoctorResult(
        examined=tuple(_examined(evidence)),
        findings=weighed.findings,
        conclusion=weighed.conclusion,
        refuted=weighed.refuted,
        next_check=weighed.next_check,
        open_questions=(*questions, *weighed.questions),
        unchecked=tuple(unchecked),
        num_rules_checked=num_checked,
    )


def _diagnosis(rule: Rule, told: Told, evidence: Evidence) -> Diagnosis:
    assert not isinstance(told, CannotDecide)
    common = {
        "code": rule.code,
        "family": rule.family,
        "severity": told.severity,
        "confidence": told.confidence,
        "title": told.title,
        "evidence": told.evidence,
        "remedy": told.remedy,
    }
    if isinstance(told, Fault):
        symptoms = {engine: getattr(told.symptoms, engine) for engine in evidence.engines if engine in ("vllm", "sglang")}
        return Diagnosis.model_validate(
            {**common, "kind": "cause", "symptoms": symptoms, "also": told.also, "repairable": told.repairable}
        )
    seen = dict.fromkeys(evidence.engines, told.sign)
    return Diagnosis.model_validate({**common, "kind": "sign", "symptoms": seen, "refutes": told.refutes})


def _question(rule: Rule, told: CannotDecide) -> OpenQuestion:
    return OpenQuestion(code=rule.code, question=told.question, evidence=told.evidence, provide=told.provide)


def _examined(evidence: Evidence) -> Iterator[str]:
    if evidence.draft is not None:
        yield f"drafter {evidence.draft.folder.path} ({len(evidence.draft.tensors)} tensors)"
    if evidence.target is not None:
        yield f"target {evidence.target.path} ({len(evidence.target.tensors)} tensors)"
    if evidence.parent is not None:
        yield f"parent drafter {evidence.parent.folder.path}"
    if evidence.engine is not None:
        yield f"engine {evidence.engine_text}" + (f" ({evidence.version_source})" if evidence.version_source else "")
    elif evidence.has_other_engine:
        yield f"an arm of engine {evidence.arm_engine}, which has none of vLLM's and SGLang's flags"
    if evidence.launch is not None:
        yield f"launch command ({len(evidence.launch.flags)} flags)"
    if evidence.baseline is not None:
        yield "launch of the baseline"
    if evidence.readings is not None:
        yield f"{len(evidence.readings.readings)} readings of logs and metrics"
    for start in evidence.starts:
        yield f"{start.source}, a log of {start.engine} that printed no interval of decoding"
    if evidence.run is not None:
        yield "a run"
    if evidence.answers is not None:
        yield f"answers {evidence.answers.source} ({evidence.answers.num_tokens} tokens)"
    if evidence.training:
        yield "a training log"
