"""From collected answers to what is stored, and from what is stored to a run's verdict."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path

from pydantic import ValidationError

from breakeven.errors import StoreError
from breakeven.experiment.answering import Answered, Asking
from breakeven.experiment.kept_answers import FOLDER
from breakeven.experiment.record import RunRecord
from breakeven.findings import Finding, worst_first
from breakeven.units import plural
from breakeven.verdict.equality.deciding import ALPHA
from breakeven.verdict.equality.judge import Passes, judge_arm
from breakeven.verdict.equality.result import SCHEMA_VERSION, ArmEquality, Equality
from breakeven.verdict.judge import judge
from breakeven.verdict.result import Result
from breakeven.whole import write_whole

__all__ = ["FILE", "faulty_arms", "judge_equality", "read_equality", "with_equality", "without_arms", "write_equality"]

FILE = Path(FOLDER) / "result.json"
MAX_BYTES = 50_000_000


def judge_equality(name: str, asking: Asking, answered: Answered) -> Equality:
    """Every arm against its reference. Pure: the same answers give the same result."""
    arms = [
        _with_kernels(
            judge_arm(
                arm,
                reference,
                Passes(
                    plain=answered.passes[reference][0],
                    again=answered.passes[reference][1],
                    speculative=answered.passes[arm][0],
                ),
                dtype=answered.facts.get(reference, {}).get("dtype"),
            ),
            answered.facts.get(arm, {}),
        )
        for arm, reference in asking.references.items()
        if len(answered.passes.get(reference, ())) == 2 and answered.passes.get(arm)
    ]
    judged = {arm.arm for arm in arms}
    unserved = {
        arm: answered.failed.get(arm) or f"{reference} could not be asked: {answered.failed.get(reference, 'unknown')}"
        for arm, reference in asking.references.items()
        if arm not in judged
    }
    return Equality(
        name=name,
        num_prompts=len(asking.asked.prompts),
        max_tokens=asking.asked.max_tokens,
        concurrency=asking.asked.concurrency,
        alpha=ALPHA,
        arms=tuple(arms),
        left_out={**asking.left_out, **unserved},
        fingerprints=dict(answered.fingerprints),
    )


def _with_kernels(judged: ArmEquality, facts: Mapping[str, object]) -> ArmEquality:
    """Where an engine computed with kernels that are none of its releases, nothing here is said of the engine's own."""
    reason = facts.get("unreleased_kernels")
    if not reason:
        return judged
    sentence = f"{judged.sentence}. Its kernels were replaced, so this says nothing of {facts.get('engine', 'the engine')}'s"
    return judged.model_copy(update={"sentence": sentence, "evidence": (*judged.evidence, str(reason))})


def write_equality(folder: Path, equality: Equality) -> Path:
    """Keep the result in the run's folder; returns the file.

    Raises:
        OSError: it cannot be written.
    """
    file = folder / FILE
    write_whole(file, equality.model_dump_json(indent=2))
    return file


def read_equality(folder: Path) -> Equality | None:
    """The result of the last check of a run; None where there was none.

    Raises:
        StoreError: it is damaged, or of another version.
    """
    file = folder / FILE
    try:
        with file.open("rb") as opened:
            data = opened.read(MAX_BYTES + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StoreError(f"{file}: cannot be read ({error.strerror})") from error
    try:
        if len(data) > MAX_BYTES:
            raise ValueError(f"more than {MAX_BYTES} bytes")
        return Equality.model_validate_json(data)
    except (ValidationError, ValueError, RecursionError) as error:
        raise StoreError(
            f"{file}: no result of breakeven equal of schema {SCHEMA_VERSION} ({str(error).splitlines()[0][:120]}); "
            f"remove the folder {file.parent.name} and check again"
        ) from error


def with_equality(result: Result, record: RunRecord, equality: Equality | None) -> Result:
    """A run's verdict with what the check of its output says. A faulty arm is not recommended, however fast it is."""
    if equality is None:
        return result
    if stale := _stale(record, equality):
        found = [
            Finding(
                code="output-check-outdated",
                severity="warning",
                confidence="high",
                title="The check of equal output was made with other models than this run, so it does not count",
                evidence=tuple(f"{key.removesuffix('.fingerprint')} has changed" for key in stale),
                remedy="Run breakeven equal again.",
            )
        ]
        return result.model_copy(update={"findings": (*found, *result.findings)})
    mine = [arm for arm in equality.arms if arm.arm in {info.name for info in result.arms}]
    findings = [_finding(arm, equality) for arm in mine]
    faulty = faulty_arms(record, equality)
    merged = worst_first((*findings, *result.findings))
    if not faulty:
        return result.model_copy(update={"findings": merged})
    names, changes = " and ".join(faulty), "changes" if len(faulty) == 1 else "change"
    # the figures of all, the conclusions from the others alone
    others = judge(without_arms(record, faulty))
    return others.model_copy(
        update={
            "headline": f"{names} {changes} the output. Of the others: {others.headline}",
            "decision": f"Do not run {names}: the answers are not plain's (breakeven equal). {others.decision}",
            "arms": result.arms,
            "cells": result.cells,
            "findings": merged,
            "voided": result.voided,
            "comparisons": tuple(
                item.model_copy(update={"outcome": None, "why": f"not to be run: its output differs. {item.why}"})
                if item.arm in faulty
                else item
                for item in result.comparisons
            ),
        }
    )


def faulty_arms(record: RunRecord, equality: Equality | None) -> tuple[str, ...]:
    """Arms of the run whose output differs, as far as the check was made with the run's models."""
    if equality is None or _stale(record, equality):
        return ()
    names = {arm.name for arm in record.arms}
    return tuple(arm.arm for arm in equality.arms if arm.outcome == "fault" and arm.arm in names)


def without_arms(record: RunRecord, names: Collection[str]) -> RunRecord:
    """The run as if these arms had not been in it."""
    return replace(
        record,
        arms=[arm for arm in record.arms if arm.name not in names],
        trials=[trial for trial in record.trials if trial.arm not in names],
    )


def _stale(record: RunRecord, equality: Equality) -> list[str]:
    return [key for key, value in equality.fingerprints.items() if record.provenance.get(key, value) != value]


def _finding(arm: ArmEquality, equality: Equality) -> Finding:
    asked = f"breakeven equal: {plural(equality.num_prompts, 'prompt')}, up to {equality.max_tokens} tokens, temperature 0"
    code, severity = {
        "fault": ("output-differs", "error"),
        "undecided": ("output-equality-undecided", "warning"),
        "equal": ("output-equal", "info"),
        "numerics": ("output-equal-but-rounding", "info"),
    }[arm.outcome]
    return Finding.model_validate(
        {
            "code": code,
            "severity": severity,
            "confidence": "medium" if arm.outcome == "undecided" else "high",
            "title": arm.sentence,
            "evidence": (asked, *arm.evidence),
            "remedy": arm.remedy,
        }
    )
