"""What all tests need of the machine they run on.

Tests that need a GPU say why they were skipped where there is none. On one, what compilers warn of depends on GPU and release, and
is shown instead of failing the test.

A shell's background jobs and `nohup` switch signals off, which every child inherits and Breakeven respects: so tests that send
signals switch them on again.

Examples that hypothesis makes up are the same in every run, so that a change is not blamed for what chance found elsewhere; for new
ones: pytest --hypothesis-profile default.
"""

from __future__ import annotations

import signal
from importlib.util import find_spec

import pytest
from hypothesis import settings

settings.register_profile("repeatable", derandomize=True)
settings.load_profile("repeatable")


def pytest_configure() -> None:
    for number, usual in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, usual)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    marked = [item for item in items if item.get_closest_marker("gpu") is not None]
    skipped = bool(marked) and not has_gpu()
    for item in marked:
        item.add_marker(pytest.mark.filterwarnings("default"))
        if skipped:
            item.add_marker(pytest.mark.skip(reason="needs a GPU that torch can use"))


def has_gpu() -> bool:
    if find_spec("torch") is None:
        return False
    import torch  # noqa: TID251 - only where a test is collected that is about it

    return torch.cuda.is_available()
