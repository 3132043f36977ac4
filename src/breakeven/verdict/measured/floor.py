"""Drafters at the ends of the scale: nothing accepted, next to nothing, or everything; what it is a sign of, what to check."""

from __future__ import annotations

import math
from collections.abc import Sequence

from breakeven.checkpoints.random_head import is_random_head
from breakeven.doctor.checklist import static_checks
from breakeven.doctor.public_figures import QUANTIZATION_LOSSES
from breakeven.experiment.scheduled_acceptance import off_schedule
from breakeven.findings import Finding
from breakeven.verdict.measured.accept_length import AcceptLength
from breakeven.verdict.measured.case import Case
from breakeven.verdict.measured.wording import accepted_drafts, figure, figure_of_log, percent

__all__ = ["dead_drafters", "floor_findings", "has_random_weights", "is_lookup"]

# an accept length that prints as 1.00, over enough drafts for luck to have shown
_FLOOR = 1.005
# below this a trained head is broken more often than weak
_NEAR_FLOOR = 1.10
_MIN_DRAFTS = 100
# a drafter whose first draft is accepted in 5 % of rounds, weak as it is, shows none in so many once in 170 times
_MIN_ROUNDS = 100
# how near the most that k drafts allow counts as all of them accepted
_CEILING_GAP = 0.02


def floor_findings(case: Case) -> list[Finding]:
    return [*_at_floor(case), *_near_floor(case), *_at_ceiling(case)]


def dead_drafters(case: Case) -> list[str]:
    """Real arms that accepted nothing at any load point, in enough rounds to tell."""
    names = []
    for arm in case.candidates:
        lengths = [length for (name, _), length in case.lengths.items() if name == arm.name]
        if all(length.value < _FLOOR for length in lengths) and _num_rounds(lengths) >= _MIN_ROUNDS:
            names.append(arm.name)
    return names


def _num_rounds(lengths: Sequence[AcceptLength]) -> int:
    """Acceptance does not depend on the load, so rounds of all load points count. Of a round without an accepted draft only the
    first draft was put to the test."""
    return sum(length.counts.num_rounds for length in lengths)


def _num_judged(length: AcceptLength) -> int:
    """Drafts that were accepted or not; where the server counts no drafts, its rounds, each of which had one at least."""
    return length.counts.num_drafted or length.counts.num_rounds


def is_lookup(case: Case, arm: str) -> bool:
    """It drafts from the text so far, without a model of its own that could be wired wrongly."""
    speculation = case.run.arm(arm).speculation
    return speculation is not None and speculation.method == "ngram"


def has_random_weights(case: Case, arm: str) -> bool:
    """Its head is one that Breakeven wrote for `drafter: random`, which nobody has trained."""
    speculation = case.run.arm(arm).speculation
    return speculation is not None and speculation.drafter is not None and is_random_head(speculation.drafter)


def _at_floor(case: Case) -> list[Finding]:
    found = []
    for name in dead_drafters(case):
        speculation = case.run.arm(name).speculation
        assert speculation is not None
        evidence = [
            f"{load}: accept length {length.value:.2f}, {accepted_drafts(length.counts)} in {length.counts.num_steps} steps"
            for (arm, load), length in case.lengths.items()
            if arm == name
        ]
        mine = [length for (arm, _), length in case.lengths.items() if arm == name]
        if not any(length.counts.num_accepted for length in mine):
            rounds = _num_rounds(mine)
            evidence.append(f"none in {rounds} rounds: at most one first draft in {rounds // 3} is accepted (95 %)")
        has_model, untrained = not is_lookup(case, name), has_random_weights(case, name)
        if untrained:
            evidence.append("its head has random weights (drafter: random), so nothing else was to be expected")
        elif has_model:
            evidence += _not_quantization()
        if has_model:
            evidence += [
                f"{compared.load}: {percent(math.exp(compared.log_ratio.value))} of plain throughput, as a round costs"
                f" {figure_of_log(case.own_cost(name, compared.load))} plain steps and yields one token"
                for compared in case.of(name)
                if (name, compared.load) in case.costs.own
            ]
        found.append(
            Finding(
                code="accept-length-at-floor",
                severity="info" if untrained else "error" if has_model else "warning",
                confidence="high",
                title=f"No draft of {name} is accepted: accept length 1.00",
                evidence=tuple(evidence),
                remedy=(
                    f"{'Nothing here. With a trained head, check' if untrained else 'Check'} in this order"
                    f"{', before training again' * has_model}: {'; '.join(static_checks(speculation.method))}."
                ),
            )
        )
    return found


def _not_quantization() -> list[str]:
    weight_only = QUANTIZATION_LOSSES[-1]
    loss = f"{weight_only.low * 100:.0f} to {percent(weight_only.high)} of accepted tokens ({weight_only.source})"
    return [
        "a weak drafter still gets some drafts right; none at all is the sign of wrong wiring",
        f"quantization of the target does not explain it: {weight_only.kind} costs {loss}",
    ]


def _near_floor(case: Case) -> list[Finding]:
    dead = dead_drafters(case)
    found = []
    for arm in case.candidates:
        here = {load: length for (name, load), length in case.lengths.items() if name == arm.name}
        told = [(load, length) for load, length in here.items() if _num_judged(length) >= _MIN_DRAFTS]
        skipped = arm.name in dead or is_lookup(case, arm.name) or has_random_weights(case, arm.name)
        if skipped or not told or any(length.value >= _NEAR_FLOOR for _, length in told):
            continue
        assert arm.speculation is not None
        found.append(
            Finding(
                code="accept-length-near-floor",
                severity="warning",
                confidence="medium",
                title=f"Next to no draft of {arm.name} is accepted",
                evidence=tuple(f"{load}: accept length {figure(length.interval)}" for load, length in told),
                remedy=f"Check first, as if nothing were accepted: {'; '.join(static_checks(arm.speculation.method))}.",
            )
        )
    return found


def _at_ceiling(case: Case) -> list[Finding]:
    found = []
    for (name, load), length in case.lengths.items():
        speculation = case.run.arm(name).speculation
        if speculation is None or case.run.arm(name).forced or _num_judged(length) < _MIN_DRAFTS:
            continue
        most = 1 + speculation.num_draft_tokens
        if speculation.schedule:
            batch = case.run.load(load).concurrency
            if batch is None or off_schedule(length.counts, case.run.arm(name), case.run.load(load)):
                continue
            most = 1 + speculation.drafts_at(batch)
        if length.value > most - _CEILING_GAP:
            found.append(
                Finding(
                    code="accept-length-at-ceiling",
                    severity="warning",
                    confidence="medium",
                    title=f"{name} had every draft accepted at {load}",
                    evidence=(f"accept length {length.value:.2f} of at most {most}",),
                    remedy=(
                        "Read its output: repeated text, NaN logits or prompts that hold their answer look like this, and so does"
                        " acceptance forced by a flag or an environment variable."
                    ),
                )
            )
    return found
