"""Did two arms run the same number of requests at once? From the caps reported, or the engine's defaults for that release."""

from __future__ import annotations

from dataclasses import dataclass

from breakeven.engines.version_facts import AdmissionDefault, admission_defaults
from breakeven.verdict.reported.arms import LoadKey, ReportedArm

__all__ = ["Admission", "ArmCap", "admission_of", "cap_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmCap:
    """The most requests an arm runs at once. `number` None: no limit but memory. `is_assumed`: nothing was reported about it."""

    number: int | None
    is_assumed: bool
    text: str

    def admitted(self, concurrency: int | None) -> int | None:
        """Requests that run when the client keeps up `concurrency` of them; None where neither bounds it."""
        bounds = [bound for bound in (self.number, concurrency) if bound is not None]
        return min(bounds) if bounds else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Admission:
    """is_equal None: cannot be said from what was reported. `text` says which figures it rests on."""

    is_equal: bool | None
    text: str


def cap_of(arm: ReportedArm) -> ArmCap:
    cap = arm.cap
    if cap is not None and cap.number is not None:
        how = "set by the engine, the flag not being given" if cap.is_default else "given"
        return ArmCap(number=cap.number, is_assumed=False, text=f"{cap.number} ({how})")
    if cap is not None and not cap.is_default:
        return ArmCap(number=None, is_assumed=False, text="no limit")
    rows = admission_defaults(arm.engine, arm.version)
    default, doubt = _default(arm, rows)
    if cap is not None:
        return ArmCap(number=default, is_assumed=False, text=f"{_words(default)}, the default of {arm.engine}{doubt}")
    assumed = f"not reported; {_words(default)} if the flag was not given{doubt}" if rows else "not reported"
    return ArmCap(number=default, is_assumed=True, text=assumed)


def admission_of(arm: ReportedArm, baseline: ReportedArm, load: LoadKey) -> Admission:
    """Equal where both arms admit the same number at this load, by reported caps or by caps too high to matter."""
    mine, theirs = cap_of(arm), cap_of(baseline)
    caps = f"{arm.name}: {mine.text}; {baseline.name}: {theirs.text}"
    if not arm.engine:
        return Admission(is_equal=None, text="the engine was not reported, so neither the same engine nor equal admission is shown")
    is_assumed = mine.is_assumed or theirs.is_assumed
    if load.concurrency is None:
        if mine.number == theirs.number:
            return Admission(is_equal=None, text=f"the concurrency was not reported (running requests: {caps})")
        return Admission(is_equal=None if is_assumed else False, text=f"running requests: {caps}")
    if is_assumed and load.concurrency > 1 and not admission_defaults(arm.engine, arm.version):
        # an engine without a row may stop anywhere above one request
        text = f"how many requests each arm ran at once was not reported ({caps}), and the default of {arm.engine} is not on record"
        return Admission(is_equal=None, text=text)
    if mine.admitted(load.concurrency) == theirs.admitted(load.concurrency):
        return Admission(is_equal=True, text=f"both admit {mine.admitted(load.concurrency)} at {load.label}")
    return Admission(is_equal=None if is_assumed else False, text=f"running requests: {caps}")


def _default(arm: ReportedArm, rows: tuple[AdmissionDefault, ...]) -> tuple[int | None, str]:
    if not rows or not arm.is_speculative:
        return None, ""
    newest = rows[-1]
    checked = newest.span.checked_to
    if arm.version is not None and checked is not None and arm.version > checked:
        return newest.speculative_cap, f" up to {checked} (unverified in {arm.version})"
    return newest.speculative_cap, ""


def _words(number: int | None) -> str:
    return "no limit" if number is None else f"{number} while speculating"
