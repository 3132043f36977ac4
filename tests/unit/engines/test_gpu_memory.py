from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

import pytest

from breakeven.engines import gpu_memory
from breakeven.engines.gpu_memory import GpuMemory

GB = 10**9
Driver = Callable[..., None]


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Driver:
    """A driver whose GPUs show these bytes in use, one tuple a reading, the last one for ever."""

    def install(*readings: tuple[int, ...]) -> None:
        left = list(readings)
        now: list[int] = []

        def count() -> int:
            now[:] = left.pop(0) if len(left) > 1 else left[0]
            return len(now)

        fakes = {
            "nvmlInit": lambda: None,
            "nvmlShutdown": lambda: None,
            "nvmlDeviceGetCount": count,
            "nvmlDeviceGetHandleByIndex": lambda index: index,
            "nvmlDeviceGetMemoryInfo": lambda handle: SimpleNamespace(used=now[handle]),
        }
        for name, fake in fakes.items():
            monkeypatch.setattr(gpu_memory.pynvml, name, fake)
        monkeypatch.setattr(gpu_memory, "POLL_S", 0.001)

    return install


def test_memory_that_comes_back_late_is_fine(driver: Driver) -> None:
    driver((GB, 0), (9 * GB, 0), (2 * GB, 0), (GB + 1, 0))
    before = GpuMemory.read()
    assert before.used_bytes == (GB, 0)
    assert before.wait_until_returned() == ""


def test_memory_that_stays_is_said_with_gpu_and_bytes(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_memory, "RETURN_S", 0.02)
    driver((GB, GB), (GB, 9 * GB))
    assert GpuMemory.read().wait_until_returned().endswith("beyond what was before it: GPU 1 8 GB")


def test_without_a_driver_nothing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_driver() -> None:
        raise gpu_memory.pynvml.NVMLError(gpu_memory.pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)

    monkeypatch.setattr(gpu_memory.pynvml, "nvmlInit", no_driver)
    assert GpuMemory.read() == GpuMemory(used_bytes=())
    assert GpuMemory.read().wait_until_returned() == ""
