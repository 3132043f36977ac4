"""Lines that do not show the server at work: its first ones, and those that span an idle time."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from breakeven.readers.series import Floats, Mask

__all__ = ["Exclusions", "exclusions"]

# At the start of a server or a benchmark: below half of what later lines at such a batch reach.
WARM_UP_SHARE = 0.5
MAX_WARM_UP_LINES = 5
# Later: an engine that divides by the time since its last line counts the idle time before a request.
IDLE_SHARE = 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class Exclusions:
    """kept: lines that count for acceptance. steady: those of them whose throughput counts too."""

    kept: Mask
    steady: Mask
    reasons: tuple[str, ...]


def exclusions(table: Mapping[str, Floats], engine: str) -> Exclusions:
    throughput, running = table["throughput"], table["running"]
    num_lines = len(throughput)
    with np.errstate(invalid="ignore", divide="ignore"):
        usual = _usual_throughput(throughput, running)
        share = throughput / usual
        busy = ~(running == 0) & ~(throughput == 0)
    kept = np.ones(num_lines, dtype=bool)
    reasons = []
    limit = min(MAX_WARM_UP_LINES, max(1, num_lines // 5)) if num_lines > 1 else 0
    for place in range(limit):
        if busy[place] and not share[place] < WARM_UP_SHARE:
            break
        kept[place] = not busy[place]
    warm_up = throughput[~kept]
    if len(warm_up):
        shown = ", ".join(f"{value:.4g}" for value in warm_up)
        lines = "the first line" if len(warm_up) == 1 else f"{len(warm_up)} of the first lines"
        reasons.append(f"warm-up: {lines} at {shown} tok/s, later ones at that batch reach {np.nanmedian(usual[~kept]):.4g}")
    steady = kept & busy
    if engine == "vllm":
        # its intervals are of fixed length: the first and last ones of a busy time are partly idle
        edge = np.zeros(num_lines, dtype=bool)
        for source in np.unique(table["source"]):
            (places,) = np.nonzero(table["source"] == source)
            edge[places[1:]] |= ~busy[places[:-1]]
            edge[places[:-1]] |= ~busy[places[1:]]
        idle = steady & edge & (share < 1.0)
        why = "partly idle intervals beside idle ones"
    else:
        with np.errstate(invalid="ignore"):
            idle = steady & (share < IDLE_SHARE)
        why = "lines that span an idle time"
    if idle.any() and idle.sum() != steady.sum():
        steady &= ~idle
        reasons.append(f"{int(idle.sum())} {why} do not count for throughput")
    return Exclusions(kept=kept, steady=steady, reasons=tuple(reasons))


def _usual_throughput(throughput: Floats, running: Floats) -> Floats:
    """For each line the median over lines of about its batch (in powers of two); where it has no company, the least
    that all lines together lead one to expect."""
    with warnings.catch_warnings(), np.errstate(invalid="ignore", divide="ignore"):
        warnings.simplefilter("ignore", RuntimeWarning)
        classes = np.floor(np.log2(np.maximum(np.nan_to_num(running, nan=1.0), 1.0)))
        usual = np.minimum(np.nanmedian(throughput), np.nanmedian(throughput / running) * running)
        usual = np.where(np.isfinite(usual), usual, np.nanmedian(throughput))
        for one in np.unique(classes):
            members = classes == one
            if members.sum() >= 3:
                usual[members] = np.nanmedian(throughput[members])
    return usual
