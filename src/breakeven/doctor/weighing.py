"""Findings weighed together: which cause explains which signs, what speaks against a popular suspicion, what to check next.

A cause predicts a sign for each engine; a server shows signs. Order: causes that explain every sign seen, causes that explain some,
then by severity; findings that are only worth knowing come last.

Confidence is the rule's own (`told`), and moves by one step at most:

* down, for a cause that the server contradicts: nothing can be accepted with it, and a server accepts. Such a finding also stops
  being an error, because what was served is not what was examined;
* up from medium, for the only cause of a sign all of whose known suspects in files and flags were looked for.

What no cause explains is said, with the suspects that files and flags rule out, those that remain, and the one cheap check that
splits them (`suspects`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from breakeven.doctor.evidence import NEEDS, Evidence, Need
from breakeven.doctor.result import Diagnosis, OpenQuestion
from breakeven.doctor.signs import SIGNS, Sign
from breakeven.doctor.suspects import CHECKS, SUSPECTS, Suspect
from breakeven.doctor.told import Confidence
from breakeven.findings import SEVERITIES

__all__ = ["Weighed", "weigh"]

_CONFIDENCE = {"high": 0, "medium": 1, "low": 2}
# Signs that say nothing by themselves: a cause does not explain another finding by them.
_SILENT: frozenset[Sign] = frozenset({"nothing", "not known"})
_FATAL: frozenset[Sign] = frozenset({"floor", "load-error", "crash"})
# What leaves nothing accepted wherever it is not refused.
_BREAKS_WIRING = frozenset(code for suspect in SUSPECTS["floor"] for code in suspect.codes)
NEAR_FLOOR = "accept-length-near-floor"
# Accept lengths from here on are nobody's floor.
WORKS = 1.3
# What it takes to try a remedy, by the cause's family: a flag, a key of a JSON file, rewritten weights, another head.
_EFFORT = ("launch", "cost", "precision", "auxiliary", "rope", "vocabulary", "tensors", "capacity", "data", "acceptance")


@dataclass(frozen=True, slots=True, kw_only=True)
class Weighed:
    findings: tuple[Diagnosis, ...]
    questions: tuple[OpenQuestion, ...] = ()
    conclusion: str = ""
    refuted: tuple[str, ...] = ()
    next_check: str = ""


def weigh(diagnoses: Sequence[Diagnosis], evidence: Evidence, unchecked: Collection[str] = ()) -> Weighed:
    """Order, link, refute, and say what follows. unchecked: codes of rules that lacked an input, or could not decide."""
    signs = [one for one in diagnoses if one.kind == "sign" and one.severity != "info" and _shown(one) not in _SILENT]
    causes = [_linked(one, signs, evidence) for one in diagnoses if one.kind == "cause"]
    causes = [_only_cause(one, causes, signs, unchecked) for one in causes]
    by_code = {id(before): after for before, after in zip((one for one in diagnoses if one.kind == "cause"), causes, strict=True)}
    ordered = sorted((by_code.get(id(one), one) for one in diagnoses), key=lambda one: _rank(one, signs))
    explaining = [one for one in ordered if one.explains and one.severity != "info"]
    explained = {code for one in explaining for code in one.explains}
    left = sorted((one for one in signs if one.code not in explained), key=lambda one: _rank(one, signs))
    return Weighed(
        findings=tuple(ordered),
        questions=tuple(_missing(left[:1], evidence, unchecked)),
        conclusion=" ".join((*_conclusion(explaining, signs, left), *_ruled_out(left[:1], evidence, unchecked, ordered))),
        refuted=tuple(dict.fromkeys(text for one in diagnoses if one.kind == "sign" for text in one.refutes)),
        next_check=_next_check(explaining, left, evidence, unchecked),
    )


def _shown(sign: Diagnosis) -> Sign:
    return next(iter(sign.symptoms.values()), "nothing")


def _linked(one: Diagnosis, signs: Sequence[Diagnosis], evidence: Evidence) -> Diagnosis:
    """A cause with the signs it explains, or with what contradicts it."""
    predicted = {*one.symptoms.values(), *one.also} - _SILENT
    explains = tuple(dict.fromkeys(sign.code for sign in signs if _explains(one, predicted, _shown(sign))))
    loosely, told = ((), "") if explains else _loosely(one, predicted, signs)
    if loosely:
        return one.model_copy(update={"explains": loosely, "confidence": _less(one.confidence), "evidence": (*one.evidence, told)})
    against = "" if explains or one.severity == "info" else _contradiction(set(one.symptoms.values()), evidence)
    if not against:
        return one.model_copy(update={"explains": explains})
    return one.model_copy(update={"severity": "warning", "confidence": _less(one.confidence), "evidence": (*one.evidence, against)})


def _loosely(one: Diagnosis, predicted: set[Sign], signs: Sequence[Diagnosis]) -> tuple[tuple[str, ...], str]:
    """Signs near to what was predicted, which count a step less, and how."""
    at_floor = tuple(dict.fromkeys(sign.code for sign in signs if _shown(sign) == "floor"))
    lower = tuple(dict.fromkeys(sign.code for sign in signs if _shown(sign) == "all-positions-lower"))
    if predicted == {"load-error"} and one.code in _BREAKS_WIRING and at_floor:
        return at_floor, "this release was expected not to start with it; one that does start accepts nothing"
    if "floor" in predicted and _is_of_degree(one) and lower:
        return lower, "it would usually leave next to nothing accepted; what was seen is its milder form"
    with_time = tuple(dict.fromkeys(sign.code for sign in signs if _shown(sign) == "falls-with-time"))
    if "falls-with-context" in predicted and with_time:
        return with_time, "if contexts were long then: a log that does not print them shows it as a fall with time"
    if "all-positions-lower" in predicted and NEAR_FLOOR in at_floor:
        return (NEAR_FLOOR,), "it usually costs less than what was seen, which is its severe form if nothing else is wrong"
    return (), ""


def _less(confidence: Confidence) -> Confidence:
    return "medium" if confidence == "high" else "low"


def _is_of_degree(one: Diagnosis) -> bool:
    """Faults that feed the head something near to what it was trained on, how near nobody knows beforehand."""
    return one.family in ("auxiliary", "rope", "precision") or "norm" in one.code


def _explains(cause: Diagnosis, predicted: set[Sign], shown: Sign) -> bool:
    if shown == "engines-differ" and shown not in predicted:
        # two engines differ where the fault bites in one of them
        return len(cause.symptoms) > 1 and len(set(cause.symptoms.values())) > 1 and bool(predicted)
    return shown in predicted


def _contradiction(predicted: set[Sign], evidence: Evidence) -> str:
    """Drafts that are accepted where the fault would let none be."""
    if not predicted or not predicted <= _FATAL:
        return ""
    # a few rounds prove no floor, but drafts that were accepted in them were accepted
    seen = [one for one in evidence.observed if one.is_enough or one.accept_length - 2 * one.level.error >= WORKS]
    if predicted <= {"load-error"} and seen:
        return f"against it: {seen[0]}, so a server that drafts did start. Was it this folder, with these flags and this release?"
    working = [one for one in seen if one.accept_length >= WORKS]
    if not working or len(working) < len(seen):
        return ""
    return f"against it: {working[0]}, where next to nothing could be accepted. Was it this folder, with these flags?"


def _only_cause(one: Diagnosis, causes: Sequence[Diagnosis], signs: Sequence[Diagnosis], unchecked: Collection[str]) -> Diagnosis:
    """medium to high, where nothing else is left that could be behind what it explains."""
    if one.confidence != "medium" or not one.explains or one.severity == "info":
        return one
    for sign in signs:
        if sign.code not in one.explains or sign.confidence == "low":
            continue
        suspects = SUSPECTS.get(_shown(sign), ())
        others = any(sign.code in other.explains for other in causes if other is not one and other.severity != "info")
        # a suspect that no rule can see may always be behind it instead
        complete = bool(suspects) and all(suspect.codes and not set(suspect.codes) & set(unchecked) for suspect in suspects)
        if complete and not others:
            why = "the only cause of what was seen, among all that files and flags can show"
            return one.model_copy(update={"confidence": "high", "evidence": (*one.evidence, why)})
    return one


def _rank(one: Diagnosis, signs: Sequence[Diagnosis]) -> tuple[int, ...]:
    """Smaller is earlier."""
    codes = {sign.code for sign in signs}
    explained = len(set(one.explains) & codes)
    severity, confidence = SEVERITIES.index(one.severity), _CONFIDENCE[one.confidence]
    if one.kind == "cause" and explained and one.severity != "info":
        return (0, -explained, severity, confidence)
    return (1, severity, int(one.kind == "sign"), confidence)


def _conclusion(explaining: Sequence[Diagnosis], signs: Sequence[Diagnosis], left: Sequence[Diagnosis]) -> Iterator[str]:
    codes = list(dict.fromkeys(sign.code for sign in signs))
    if explaining:
        whole = list(dict.fromkeys(one.code for one in explaining if set(codes) <= set(one.explains)))
        what = "what was seen" if len(codes) == 1 else "all that was seen"
        if len(whole) == 1:
            yield f"{whole[0]} explains {what} ({', '.join(codes)})."
        elif whole:
            yield f"Each of {', '.join(whole)} explains {what} ({', '.join(codes)}) by itself."
        else:
            told = dict.fromkeys(f"{one.code} explains {', '.join(one.explains)}" for one in explaining)
            yield f"No single cause explains everything: {'; '.join(list(told)[:4])}."
    kinds = [kind for kind in dict.fromkeys(_shown(sign) for sign in left) if kind in SUSPECTS]
    for kind in kinds:
        if len(SUSPECTS[kind]) == 1:
            yield f"Only this is known to give that ({SIGNS[kind]}): {SUSPECTS[kind][0].name}."
    if open_kinds := [SIGNS[kind] for kind in kinds if len(SUSPECTS[kind]) > 1]:
        yield f"No cause was found here for this: {'; '.join(open_kinds)}."


def _suspects(kind: Sign, evidence: Evidence) -> Sequence[Suspect]:
    """On one engine and release a folder is read alike, so what it holds cannot be why two servers differ."""
    suspects = SUSPECTS.get(kind, ())
    if evidence.launch is not None and evidence.launch.drafts_with is not None:
        suspects = tuple(one for one in suspects if not one.of_heads)
    if kind == "engines-differ" and len({(one.engine, one.version) for one in evidence.observed}) == 1:
        return tuple(one for one in suspects if not one.codes)
    return suspects


def _ruled_out(
    left: Sequence[Diagnosis], evidence: Evidence, unchecked: Collection[str], found: Sequence[Diagnosis]
) -> Iterator[str]:
    """What files and flags say about the suspects of signs that nothing explains."""
    named = {one.code for one in found}
    for kind in dict.fromkeys(_shown(sign) for sign in left):
        suspects = _suspects(kind, evidence)
        if len(suspects) < 2:
            continue
        looked = [one for one in suspects if one.codes and not set(one.codes) & set(unchecked)]
        clean = [one for one in looked if not set(one.codes) & named]
        remaining = [one for one in suspects if one not in clean]
        if clean:
            yield f"Looked at and in order, as far as files and flags show: {_names(clean)}."
        if remaining:
            yield f"What can be behind it ({SIGNS[kind]}), likeliest first: {_names(remaining)}."


def _names(suspects: Sequence[Suspect]) -> str:
    return ", ".join(one.name for one in suspects)


def _missing(left: Sequence[Diagnosis], evidence: Evidence, unchecked: Collection[str]) -> Iterator[OpenQuestion]:
    """Signs whose suspects could be looked for in inputs that were not given. How vLLM or SGLang would read the folder says nothing
    of what another engine shows."""
    if evidence.has_other_engine:
        return
    for kind in dict.fromkeys(_shown(sign) for sign in left):
        blind = [one for one in _suspects(kind, evidence) if one.codes and set(one.codes) <= set(unchecked)]
        needs: list[Need] = [need for need in ("draft", "target", "launch", "engine") if not evidence.has(need)]
        if "launch" in needs and "engine" in needs:
            needs.remove("engine")
        if not blind or not needs:
            continue
        first = next(sign for sign in left if _shown(sign) == kind)
        yield OpenQuestion(
            code=first.code,
            question=f"What is behind it: {SIGNS[kind]}? Not looked at yet: {_names(blind)}",
            evidence=(first.title,),
            provide="; ".join(NEEDS[evidence.lacks(need)] for need in needs),
        )


def _next_check(explaining: Sequence[Diagnosis], left: Sequence[Diagnosis], evidence: Evidence, unchecked: Collection[str]) -> str:
    """The one cheapest check: among rivals the remedy that is cheapest to try, else what splits the suspects of the worst sign."""
    rivals = [one for one in explaining if set(one.explains) & set(explaining[0].explains)] if explaining else []
    by_code = {one.code: one for one in reversed(rivals)}
    if len(by_code) > 1:
        cheapest = min(by_code.values(), key=_effort)
        others = ", ".join(code for code in by_code if code != cheapest.code)
        return (
            f"Mend {cheapest.code} alone ({cheapest.remedy.rstrip('.')}) and read the same figures over a few hundred rounds: if "
            f"they are right then, that was it; if they stay, look at {others} next."
        )
    if explaining:
        if explaining[0].confidence == "high":
            return ""
        return f"Mend {explaining[0].code} alone and read the same figures again: if they stay, it was not the cause."
    if not left:
        return ""
    for question in _missing(left[:1], evidence, unchecked):
        return f"Cheapest first, without touching the server: breakeven doctor again with {question.provide}."
    return CHECKS.get(_shown(left[0]), "")


def _effort(one: Diagnosis) -> tuple[int, int]:
    return (_EFFORT.index(one.family) if one.family in _EFFORT else len(_EFFORT), _CONFIDENCE[one.confidence])
