"""--name: a run folder's name in place of the plan's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from breakeven.errors import UsageError

if TYPE_CHECKING:
    from breakeven.experiment.plan import Plan

__all__ = ["renamed"]


def renamed(plan: Plan, name: str | None) -> Plan:
    """The plan under `name`, unchanged where that is None.

    Raises:
        UsageError: it could not be a folder.
    """
    from breakeven.experiment.plan_schema import RUN_NAME

    if name is None:
        return plan
    if not RUN_NAME.fullmatch(name):
        raise UsageError(f"--name {name!r}: expected letters, digits, dot, dash and underscore (64 at most)")
    return plan.model_copy(update={"name": name})
