"""Whether a run needs another block of launches. A pure function of the stored trials, so that a resumed run decides the same."""

from __future__ import annotations

from dataclasses import replace

from breakeven.experiment.comparing import compare
from breakeven.experiment.curve_plan import CurvePlan, is_curve_arm
from breakeven.experiment.curving import curve_points
from breakeven.experiment.record import RunRecord
from breakeven.experiment.summary import RunSummary

__all__ = ["open_comparisons", "still_wanted"]


def still_wanted(record: RunRecord, curve: CurvePlan | None) -> list[tuple[str, str]]:
    """(arm, load label) of everything that another block should measure: open comparisons, and points of the plan's curve."""
    if curve is None:
        return open_comparisons(record)
    others = replace(record, arms=[arm for arm in record.arms if not is_curve_arm(arm.name)])
    return open_comparisons(others) + curve_points(record, curve)


def open_comparisons(record: RunRecord) -> list[tuple[str, str]]:
    """(arm, load label) of every comparison with the baseline that another block could still settle.

    A comparison is open below `min_launches` blocks, and from then on while it is undecided. It is closed once its arm has had
    `max_launches` launches (voided ones too: they cost as much), when `min_launches` launches gave nothing that counts, or when the
    two are not comparable, which launches do not mend. Probes measure what rounds cost and stop at `min_launches`. Servers
    that are only attached to cannot be launched again, so there is nothing to add either.
    """
    run = RunSummary(record)
    attached = {arm.name for arm in record.arms if arm.url is not None}
    still_open = []
    for arm in record.arms:
        launches = run.num_launches(arm.name)
        if arm.name == record.baseline or launches >= record.max_launches or attached & {arm.name, record.baseline}:
            continue
        for load in record.loads:
            compared = compare(run, arm.name, load.label)
            if compared.log_ratio.num_blocks < record.min_launches:
                needed = compared.log_ratio.num_blocks > 0 or launches < record.min_launches
            elif arm.probe or compared.not_comparable:
                needed = False
            else:
                needed = compared.outcome == "undecided"
            if needed:
                still_open.append((arm.name, load.label))
    return still_open
