"""Where torch is to compute, from what a user wrote."""

from __future__ import annotations

import torch

from breakeven.errors import UsageError

__all__ = ["chosen_device"]


def chosen_device(device: torch.device | str | None) -> torch.device:
    """`device` as torch knows it; None takes CUDA where there is one.

    Raises:
        UsageError: no such device, or none of its kind here.
    """
    if device is None:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        chosen = torch.device(device)
    except RuntimeError as error:
        raise UsageError(f"device is {device!r}; expected cpu, cuda or cuda:N") from error
    if chosen.type not in ("cpu", "cuda"):
        raise UsageError(f"device is {str(device)!r}; expected cpu, cuda or cuda:N")
    if chosen.type == "cuda" and (chosen.index or 0) >= torch.cuda.device_count():
        count = torch.cuda.device_count()
        raise UsageError(f"device is {str(device)!r}, and torch sees {count} CUDA devices here; take cpu, or leave it out")
    return chosen
