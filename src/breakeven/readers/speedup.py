"""What an accept length means for speed where the cost of a round is known: decode speedup = accept length / break-even."""

from __future__ import annotations

from collections.abc import Sequence

from breakeven.findings import Finding
from breakeven.readers.reading import AcceptanceFound
from breakeven.units import format_ratio

__all__ = ["SHARE_CALLED_FLATTERED", "with_speedup"]

THRESHOLD = 0.03
# First tokens of prefill are among the steps, so a little below 1 means nothing.
SHARE_CALLED_FLATTERED = 0.95


def with_speedup(found: AcceptanceFound | None, break_even: float | None) -> tuple[AcceptanceFound | None, Sequence[Finding]]:
    """The speedup for the accept length, or for each meaning where the printed figures leave several."""
    if found is None or break_even is None:
        return found, ()
    formulas = tuple(
        formula.model_copy(update={"decode_speedup": formula.accept_length / break_even}) if formula.accept_length else formula
        for formula in found.formulas
    )
    # where drafts are often missing, the length over drafted steps alone would flatter
    is_flattered = found.drafted_share is not None and found.drafted_share < SHARE_CALLED_FLATTERED
    length = found.per_step if is_flattered else found.accept_length
    if length is None:
        told = tuple(
            f"{formula.formula} ({formula.releases}): accept length {formula.accept_length:.2f}, "
            f"{format_ratio(formula.accept_length / break_even)}, {_outcome(formula.accept_length / break_even)}"
            for formula in formulas
            if formula.accept_length
        )
        finding = Finding(
            code="decode-speedup",
            severity="info",
            confidence="low",
            title="What the rate means for speed depends on what it divides: nothing is decided until that is known.",
            evidence=told,
            remedy="Give the release (--engine-version), or the accept length beside the rate.",
        )
        return found.model_copy(update={"formulas": formulas}), (finding,)
    ratio = length / break_even
    error = (found.uncertainty or 0.0) / break_even
    decided = _outcome(ratio - error) == _outcome(ratio + error)
    outcome = _outcome(ratio) if decided else "undecided by these lines"
    spread = f"± {found.uncertainty:.2f}" if found.uncertainty is not None else "(how sure is not known)"
    finding = Finding(
        code="decode-speedup",
        severity="info",
        confidence="low" if found.uncertainty is None else "medium",
        title=f"With a round that costs {break_even:.2f} plain steps, decode speedup is {format_ratio(ratio)}: {outcome}.",
        evidence=(f"accept length {length:.2f} {spread} over the break-even {break_even:.2f}, threshold 3 %",),
        remedy="The break-even was given; breakeven bench measures it, at each load.",
    )
    return found.model_copy(update={"formulas": formulas, "decode_speedup": ratio}), (finding,)


def _outcome(ratio: float) -> str:
    return "pays" if ratio > 1 + THRESHOLD else "slower" if ratio < 1 - THRESHOLD else "no useful difference"
