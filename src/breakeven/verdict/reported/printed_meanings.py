"""What the printed accept lengths and rates mean: releases they imply, true acceptance, one drafter on two engines."""

from __future__ import annotations

from collections import defaultdict

from breakeven.engines.version_facts import first_support
from breakeven.printed.definitions import definitions_for, rate_has_changed
from breakeven.printed.formulas import LengthFormula, RateFormula
from breakeven.printed.result import Reading
from breakeven.units import plural
from breakeven.verdict.reported.arms import LoadKey
from breakeven.verdict.reported.case import Case
from breakeven.verdict.reported.readings import ArmReading, lies_at_floor
from breakeven.verdict.reported.wording import engine_name, printed, releases, share, spoken_formula
from breakeven.verdict.result import Conclusion

__all__ = ["printed_meanings"]

ROWS_TOLD = 8
LOADS_TOLD = 3


def printed_meanings(case: Case) -> list[Conclusion]:
    return [*_releases(case), *_accept_lengths(case), *_like_for_like(case)]


def _releases(case: Case) -> list[Conclusion]:
    """Releases that the printed figures imply, an arm for each engine."""
    found = []
    for release in case.implied:
        reading = next(reading for reading in case.readings if reading.arm.name == release.arm)
        if reading.arm.version is not None or not rate_has_changed(release.engine):
            continue
        fitting = reading.overall.candidates[0]
        formula = spoken_formula(fitting.definition)
        granted = f", and that only {fitting.allowance}" if fitting.allowance else ""
        shape = reading.overall.shape
        drafts = f" with {plural(shape.num_drafted, 'draft')} a round" if shape is not None and shape.num_drafted else ""
        text = (
            f"What {release.arm} printed{drafts} fits only {formula}{granted}, so this {engine_name(release.engine)} is "
            f"{releases(release.spans)}."
        )
        support = first_support(release.engine, case.table.target.model_type, reading.arm.method)
        evidence = [f"{release.arm}: {printed(reading)}"]
        if support is not None:
            later = [kept for span in release.spans if (kept := span.from_release(support.first)) is not None]
            if later:
                narrowed = releases(tuple(later))
                text += f" {support.method} for this target exists only from {support.first} on, so {narrowed} unless patched."
                evidence.append(f"{support.model_type}: {support.source}")
        floors = [r for r in case.floored if r.arm.engine == release.engine and r.rate is not None]
        if floors and formula_counts_bonus(floors[0]):
            text += f" Its rate counts the bonus token, so {floors[0].rate} is the floor of the scale: no draft accepted."
        found.append(Conclusion(text=text, evidence=tuple(evidence)))
    return found


def formula_counts_bonus(reading: ArmReading) -> bool:
    return any(formula.counts_bonus for formula in reading.overall.formulas)


def _accept_lengths(case: Case) -> list[Conclusion]:
    """What each printed figure means, arms that printed a rate first: lengths explain themselves."""
    told = [reading for reading in case.readings if reading.overall.is_trusted and _needs_telling(reading)]
    if not told:
        return []
    lines = [line for reading in told[:ROWS_TOLD] for line in _meanings(reading)]
    more = f" {len(told) - ROWS_TOLD} more arms are in the table." if len(told) > ROWS_TOLD else ""
    return [
        Conclusion(
            text=f"What the printed figures mean: {'; '.join(lines)}.{more}",
            evidence=tuple(_basis(reading) for reading in told[:ROWS_TOLD]),
        )
    ]


def _needs_telling(reading: ArmReading) -> bool:
    return reading.rate is not None or _counts_rounds(reading) or _leaves_bonus_out(reading)


def _leaves_bonus_out(reading: ArmReading) -> bool:
    """Printed without the bonus token, so that the true length is one more."""
    candidates = reading.overall.candidates
    return (
        reading.length is not None
        and bool(candidates)
        and all(c.definition.length is LengthFormula.BONUS_EXCLUDED for c in candidates)
    )


def _counts_rounds(reading: ArmReading) -> bool:
    """Printed over the steps that carried drafts, so that the length of a step is another one."""
    return reading.arm.drafted_share is not None and any(c.definition.per == "round" for c in reading.overall.candidates)


def _meanings(reading: ArmReading) -> list[str]:
    """One line for the arm, or one for each load where their rates differ."""
    name = reading.arm.name
    by_rate: dict[str, tuple[LoadKey, Reading]] = {}
    for load, own in reading.by_load.items():
        point = reading.arm.point(load)
        if own.is_trusted and point is not None and point.accept_rate is not None:
            by_rate.setdefault(str(point.accept_rate), (load, own))
    if len(by_rate) > 1:
        shown = [_meaning(reading, f"{name} at {load.label}, rate {rate},", own) for rate, (load, own) in by_rate.items()]
        return shown[:LOADS_TOLD] + ([f"and {len(shown) - LOADS_TOLD} more loads of {name}"] if len(shown) > LOADS_TOLD else [])
    printed_as = f"rate {reading.rate}" if reading.rate is not None else f"length {reading.length}"
    if _leaves_bonus_out(reading):
        printed_as = f"length {reading.length} without the bonus token" + (f" and {printed_as}" if reading.rate is not None else "")
    if _counts_rounds(reading):
        printed_as += f" over the {share(reading.arm.drafted_share or 0.0)} of steps that carried drafts"
    return [_meaning(reading, f"{name}, {printed_as},", reading.overall)]


def _meaning(reading: ArmReading, who: str, meant: Reading) -> str:
    length = meant.accept_length
    assert length is not None
    at_most = "at most " if meant.is_upper_bound else ""
    parts = [f"{who} is accept length {at_most}{length.estimate:.2f}"]
    if lies_at_floor(length):
        parts.append("the floor: no draft was ever accepted")
    elif not meant.is_upper_bound:
        if meant.draft_acceptance is not None:
            parts.append(f"{share(meant.draft_acceptance)} of {_what_was_drafted(reading)}")
        if meant.chain_alpha is not None:
            parts.append(f"about {meant.chain_alpha:.2f} per position in a chain")
    return ", ".join(parts)


def _what_was_drafted(reading: ArmReading) -> str:
    """A tree proposes alternatives of which at most one in each depth can be right, so its share is no acceptance per position."""
    return "the tree's nodes (not an acceptance per position)" if reading.arm.shape.is_chain is False else "drafted tokens"


def _basis(reading: ArmReading) -> str:
    definition = reading.overall.candidates[0].definition
    if len(reading.overall.formulas) > 1 and reading.arm.version is None:
        fitting = " and ".join(formula.value for formula in reading.overall.formulas)
        return f"{reading.arm.name}: the length as printed; its rate fits both {fitting}"
    how = f"{reading.arm.name}: {spoken_formula(definition)}"
    if reading.arm.bonus is not None and reading.length is not None and reading.rate is None:
        return f"{reading.arm.name}: as the table says (bonus: {reading.arm.bonus})"
    if _leaves_bonus_out(reading) and reading.rate is None and reading.arm.version is None:
        return f"{reading.arm.name}: no accept length that counts the bonus is below 1, so {definition.releases} printed it"
    if reading.borrowed_from:
        return f"{how}, taken to be the same release as {reading.borrowed_from}"
    if reading.arm.version is not None:
        return f"{how}, printed by {definition.releases}"
    return f"{how}, the only definition that fits" if reading.overall.from_pair else how


def _like_for_like(case: Case) -> list[Conclusion]:
    """The same drafter on two engines: rates only compare as accepted over drafted, at the same number of drafts."""
    by_drafter: dict[str, list[ArmReading]] = defaultdict(list)
    for reading in case.readings:
        if reading.arm.drafter:
            by_drafter[reading.arm.drafter.lower()].append(reading)
    found = []
    for readings in by_drafter.values():
        first, second = readings[0], next((r for r in readings if r.arm.engine != readings[0].arm.engine), None)
        if second is not None:
            conclusion = _two_engines(first, second)
            if conclusion is not None:
                found.append(conclusion)
    return found


def _two_engines(one: ArmReading, other: ArmReading) -> Conclusion | None:
    drafts = {r.arm.shape.num_drafted for r in (one, other)} - {None}
    if len(drafts) != 1 or any(r.arm.shape.is_chain is False for r in (one, other)):
        return None
    (num_drafted,) = drafts
    assert num_drafted is not None
    shares, assumed = [], ""
    for reading in (one, other):
        accepted = reading.overall.draft_acceptance
        if accepted is None and reading.rate is not None and _is_strict_everywhere(reading):
            accepted = reading.rate.value
            assumed = f" (if {reading.arm.name} drafted {num_drafted} too)"
        if accepted is None:
            return None
        shares.append(accepted)
    lengths = [1.0 + share * num_drafted for share in shares]
    differ = ""
    if one.rate is not None and other.rate is not None and _is_strict_everywhere(one) != _is_strict_everywhere(other):
        differ = f" The printed {one.rate} and {other.rate} do not mean the same."
    engines = f"{engine_name(one.arm.engine)} and {engine_name(other.arm.engine)}"
    return Conclusion(
        text=(
            f"{one.arm.drafter} on {engines}, like for like at {plural(num_drafted, 'draft')}{assumed}: {share(shares[0])} against "
            f"{share(shares[1])} of drafted tokens accepted, accept length {lengths[0]:.2f} against {lengths[1]:.2f}.{differ}"
        ),
        evidence=tuple(f"{r.arm.name}: {printed(r)}" for r in (one, other)),
    )


def _is_strict_everywhere(reading: ArmReading) -> bool:
    """Whether this engine's rate is accepted over drafted in every release that may have printed it."""
    rows = definitions_for(reading.arm.engine, reading.arm.surface, reading.arm.version).rows
    return all(row.rate in {None, RateFormula.ACCEPTED_OVER_DRAFTED} for row in rows)
