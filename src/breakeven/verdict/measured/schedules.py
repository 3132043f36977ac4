"""Did the number of drafts follow the batch as an arm's schedule says? Engines drop a schedule with a line in their log."""

from __future__ import annotations

from collections.abc import Iterator

from breakeven.engines.base import Arm, Speculation
from breakeven.experiment.admission import mean_running
from breakeven.findings import Finding
from breakeven.units import plural
from breakeven.verdict.measured.case import Case
from breakeven.verdict.measured.wording import in_words, listed

__all__ = ["schedule_findings"]

# Drafts a step, beyond what the schedule says for batches near the load: those that come in between while requests change.
_TOLERANCE = 0.5
_NEAR = 0.8


def schedule_findings(case: Case) -> list[Finding]:
    found = []
    for arm in case.record.arms:
        if arm.speculation is None or not arm.speculation.schedule:
            continue
        odd = list(_odd(case, arm, arm.speculation))
        if odd:
            found.append(
                Finding(
                    code="schedule-not-followed",
                    severity="error",
                    confidence="high",
                    title=f"{arm.name} does not draft as its schedule says",
                    evidence=(*odd, f"its schedule by running requests: {in_words(arm.speculation.schedule)}"),
                    remedy=(
                        "Look in its log for a line that the schedule was disabled (data parallelism, another worker), and in"
                        " extra_flags for flags that replace it. What is measured here is not that schedule."
                    ),
                )
            )
        untold = [load for (name, load), length in case.lengths.items() if name == arm.name and not length.tells_drafts]
        if untold:
            found.append(
                Finding(
                    code="drafts-not-counted",
                    severity="info",
                    confidence="high",
                    title=f"{arm.engine} does not tell how many drafts each round of {arm.name} had, at {listed(untold)}",
                    evidence=("it counts steps without drafts as rounds, and all rounds as having had the most drafts",),
                    remedy="Its accept length is right. Acceptance by position is that of an arm with a fixed number of drafts.",
                )
            )
    return found


def _odd(case: Case, arm: Arm, speculation: Speculation) -> Iterator[str]:
    """Loads whose drafts a step are not those of any batch near the load, with their figures."""
    for load in case.record.loads:
        length = case.lengths.get((arm.name, load.label))
        running = mean_running(case.run.trials(arm.name, load.label))
        if length is None or not length.tells_drafts or load.concurrency is None or running is None:
            continue
        lowest = max(1, round(_NEAR * min(running, load.concurrency)))
        asked = [speculation.drafts_at(batch) for batch in range(lowest, load.concurrency + 1)]
        drafted = length.counts.num_drafted / length.counts.num_steps
        # a look-up drafts nothing where it finds nothing
        least = 0 if speculation.method == "ngram" else min(asked)
        if not least - _TOLERANCE <= drafted <= max(asked) + _TOLERANCE:
            yield (
                f"{load.label}: {drafted:.2f} drafts a step on average ({plural(length.counts.num_drafted, 'draft')} in "
                f"{length.counts.num_steps} steps); its schedule has {listed(sorted({str(number) for number in asked}))} there"
            )
