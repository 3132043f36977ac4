"""The learning rate over a training: a linear rise, then half a cosine."""

from __future__ import annotations

import math

__all__ = ["rate_share"]


def rate_share(step: int, num_steps: int, warmup_share: float, final_share: float) -> float:
    """Share of the peak rate at `step` (0 is the first): rising to 1, then falling to `final_share` at the last step."""
    num_rising = math.ceil(warmup_share * num_steps)
    if step < num_rising:
        return (step + 1) / num_rising
    progress = (step - num_rising) / max(1, num_steps - 1 - num_rising)
    return final_share + (1.0 - final_share) * 0.5 * (1.0 + math.cos(math.pi * min(1.0, progress)))
