"""Whether the arms of a block can be alive at the same time, so that their trials interleave within seconds of each other."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import psutil

from breakeven.checkpoints.folder import open_folder
from breakeven.engines.base import Arm
from breakeven.experiment.plan_schema import Plan

__all__ = ["lives_side_by_side", "memory_bytes"]

# The embedded engine computes in float32, and holds weights twice while it packs them.
BYTES_PER_WEIGHT = 2 * 4
# Python, torch, the KV cache of a few short sequences.
BYTES_PER_SERVER = 500_000_000
MAX_MEMORY_SHARE = 0.75


def lives_side_by_side(plan: Plan, arms: Sequence[Arm]) -> bool:
    """As the plan says; where it says auto, yes if nothing is launched but embedded engines that fit into the memory free now.

    vLLM and SGLang reserve most of a GPU each, so the answer for them is no.
    """
    if plan.side_by_side != "auto":
        return plan.side_by_side
    launched = [arm for arm in arms if arm.url is None and arm.engine != "fake"]
    if any(arm.engine != "local" for arm in launched):
        return False
    return memory_bytes(launched) <= MAX_MEMORY_SHARE * psutil.virtual_memory().available


def memory_bytes(arms: Sequence[Arm]) -> int:
    """What embedded engines of these arms take together, estimated from their weights."""
    total = 0
    for arm in arms:
        folders = [arm.target, arm.speculation.drafter if arm.speculation is not None else None]
        total += BYTES_PER_SERVER + sum(_num_weights(folder) * BYTES_PER_WEIGHT for folder in folders if folder is not None)
    return total


def _num_weights(folder: Path) -> int:
    return sum(math.prod(info.shape) for info in open_folder(folder).tensors.values())
