"""The folders that an arm names, held against each other before anything is started."""

from __future__ import annotations

from breakeven.checkpoints.folder import open_folder
from breakeven.checkpoints.pairing import check_eagle3_pair
from breakeven.engines.base import Arm

__all__ = ["check_models"]


def check_models(arm: Arm) -> None:
    """Reads configurations, headers and names of files: milliseconds. An arm of its own command need not name a target.

    Raises:
        CheckpointError: a folder that cannot be read, or a head that does not fit its target.
    """
    if arm.target is None:
        return
    target = open_folder(arm.target)
    speculation = arm.speculation
    if speculation is not None and speculation.method == "eagle3" and speculation.drafter is not None:
        check_eagle3_pair(target, open_folder(speculation.drafter))
