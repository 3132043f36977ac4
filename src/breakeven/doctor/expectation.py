"""What accept length this drafter ought to reach: told by the user, measured when it was exported, or published for such heads."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from breakeven.doctor.beside import PROVENANCE, side_json
from breakeven.doctor.evidence import Evidence
from breakeven.doctor.observed import ENOUGH_ROUNDS, Observation
from breakeven.doctor.public_figures import public_accept_length
from breakeven.doctor.told import Confidence

__all__ = ["Expectation", "expectation"]

# Accepted drafts of published EAGLE-3 heads, each given those before it: 0.47 and more (accept length 1.8 at three drafts). Heads
# from a tutorial's 5000 samples reach 1.5.
LEAST_USUAL_CHAIN = 0.45


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectation:
    """length: the lowest that is right for such a head at so many drafts a round."""

    length: float
    source: str
    confidence: Confidence


def expectation(evidence: Evidence, one: Observation) -> Expectation | None:
    """The best known source; None where the number of drafts is not known and nobody says."""
    if evidence.expected_length is not None:
        return Expectation(length=evidence.expected_length, source="--expect", confidence="high")
    if one.num_drafted is None:
        return None
    measured = _measured(evidence, one.num_drafted)
    if measured is not None:
        return measured
    for name in _target_names(evidence, one):
        published = public_accept_length(name, one.num_drafted)
        if published is not None:
            return Expectation(
                length=published.low,
                source=f"{published.source}: {published.low:g} to {published.high:g}",
                confidence="medium",
            )
    if evidence.draft is not None and evidence.draft.method not in ("eagle3", None):
        return None
    usual = sum(LEAST_USUAL_CHAIN**position for position in range(one.num_drafted + 1))
    return Expectation(length=usual, source="the weakest published EAGLE-3 heads", confidence="low")


def _measured(evidence: Evidence, num_drafted: int) -> Expectation | None:
    """Held-out accept length that Breakeven recorded with the head, for as many drafts: of the kind of prompt, or the range of
    context, that it drafts for worst, because what is served need not be like the mean of what it was judged on."""
    if evidence.draft is None:
        return None
    metrics = side_json(evidence.draft.folder.path, PROVENANCE).get("metrics")
    if not isinstance(metrics, dict) or metrics.get("num_draft_tokens") != num_drafted:
        return None
    overall = next(filter(None, (_length(metrics.get(key), num_drafted) for key in ("without_loops", "overall"))), None)
    if overall is None:
        return None
    parts = [part for key in ("by_kind", "by_context") if isinstance(table := metrics.get(key), dict) for part in table.values()]
    lengths = [length for part in parts if _holds_enough(part) and (length := _length(part, num_drafted)) is not None]
    least, most = min([overall, *lengths]), max([overall, *lengths])
    source = f"{PROVENANCE}: accept length {overall:.2f} at export"
    if lengths:
        source += f", {least:.2f} to {most:.2f} by kind of prompt and context"
    # what was asked then is not what is asked now
    return Expectation(length=least, source=source, confidence="medium")


def _length(found: object, num_drafted: int) -> float | None:
    value = found.get("accept_length") if isinstance(found, dict) else None
    if isinstance(value, float | int) and not isinstance(value, bool) and 1.0 <= value <= num_drafted + 1:
        return float(value)
    return None


def _holds_enough(part: object) -> bool:
    """A single prompt is no kind: those without an interval, or of few rounds, say little."""
    if not isinstance(part, dict) or part.get("accept_length_low") is None:
        return False
    rounds = part.get("num_rounds")
    return isinstance(rounds, int) and rounds >= ENOUGH_ROUNDS


def _target_names(evidence: Evidence, one: Observation) -> Iterator[str]:
    if evidence.target is not None:
        yield str(evidence.target.path)
    if evidence.launch is not None and evidence.launch.target:
        yield evidence.launch.target
    if one.settings.get("model_path"):
        yield one.settings["model_path"]
