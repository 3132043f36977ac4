"""Whether a stopped server gave its GPU memory back, as far as the driver tells. Silent without a GPU."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Self

import pynvml

from breakeven.units import format_bytes, format_duration

__all__ = ["GpuMemory"]

# The driver keeps small allocations of its own for a while, and displays and other programs move by less than this.
SLACK_BYTES = 512_000_000
RETURN_S = 15.0
POLL_S = 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuMemory:
    """Bytes in use on each GPU; empty where there is none or the driver does not answer."""

    used_bytes: tuple[int, ...]

    @classmethod
    def read(cls) -> Self:
        """What is in use now, by whatever program."""
        try:
            pynvml.nvmlInit()
        except pynvml.NVMLError:
            return cls(used_bytes=())
        try:
            handles = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())]
            return cls(used_bytes=tuple(int(pynvml.nvmlDeviceGetMemoryInfo(handle).used) for handle in handles))
        except pynvml.NVMLError:  # a MIG slice, a driver being restarted
            return cls(used_bytes=())
        finally:
            pynvml.nvmlShutdown()

    def wait_until_returned(self) -> str:
        """Wait until every GPU is back to what it was when `self` was read; otherwise one sentence on what is still held."""
        if not self.used_bytes:
            return ""
        deadline_s = time.monotonic() + RETURN_S
        while True:
            held = [
                (gpu, now - before)
                for gpu, (before, now) in enumerate(zip(self.used_bytes, self.read().used_bytes, strict=False))
                if now - before > SLACK_BYTES
            ]
            if not held:
                return ""
            if time.monotonic() > deadline_s:
                shown = ", ".join(f"GPU {gpu} {format_bytes(num_bytes)}" for gpu, num_bytes in held)
                return f"memory still in use {format_duration(RETURN_S)} after the server ended, beyond what was before it: {shown}"
            time.sleep(POLL_S)
