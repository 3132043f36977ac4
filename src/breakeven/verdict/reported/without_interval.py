"""An outcome without an interval: beyond the drift that one configuration shows between launches, and what takes it away."""

from __future__ import annotations

from breakeven.doctor.public_figures import LAUNCH_DRIFT
from breakeven.printed.figures import PrintedFigure
from breakeven.verdict.reported.admission import Admission
from breakeven.verdict.reported.repeats import ratio_of_runs
from breakeven.verdict.result import Outcome

__all__ = ["outcome_if_admitted_alike", "outcome_without_interval", "why_runs_decide_nothing"]


def outcome_without_interval(ratio: float, threshold: float) -> tuple[Outcome, str]:
    """Pays or slower only beyond the usual drift between launches; never "no useful difference", which needs an interval."""
    usual, rare = LAUNCH_DRIFT
    margin = 1.0 + max(usual, threshold)
    if 1.0 / margin < ratio < margin:
        return "undecided", f"{ratio:.2f}x is within the {usual * 100:.0f} % that the same server drifts between launches"
    drift = f"beyond the usual {usual * 100:.0f} % drift between launches, within the {rare * 100:.0f} % that happens"
    if not 1.0 / (1.0 + rare) < ratio < 1.0 + rare:
        drift = f"beyond even the {rare * 100:.0f} % drift between launches"
    return ("pays" if ratio > 1.0 else "slower"), f"{ratio:.2f}x is {drift}"


def outcome_if_admitted_alike(ratio: float, admission: Admission, threshold: float) -> tuple[Outcome, str]:
    if admission.is_equal is False:
        return "undecided", f"measured at different admission ({admission.text}), so it does not show what speculation costs"
    if admission.is_equal is None:
        return "undecided", f"equal load cannot be shown: {admission.text}"
    outcome, why = outcome_without_interval(ratio, threshold)
    again = "" if outcome == "undecided" else "; a repeat on fresh launches would give it an interval"
    return outcome, f"as reported, no interval: {why}{again}"


def why_runs_decide_nothing(outcome: Outcome, ratio: float, mine: PrintedFigure, theirs: PrintedFigure, threshold: float) -> str:
    """Why several runs take an outcome away. They give none: they may all be of one server, and launches differ by more."""
    runs = ratio_of_runs(mine, theirs)
    if runs is None or not (
        (outcome == "pays" and runs[0] <= 1.0 + threshold) or (outcome == "slower" and runs[1] >= 1.0 - threshold)
    ):
        return ""
    counts = " and ".join(str(max(len(figure.runs), 1)) for figure in (mine, theirs))
    return f"{ratio:.2f}x, but {runs[0]:.2f} to {runs[1]:.2f} by the spread of its {counts} runs: not told from plain decoding"
