"""Start-up faults of the embedded server, explained."""

from __future__ import annotations

import re
from collections.abc import Sequence

__all__ = ["explain_failure"]

_REFUSAL = "breakeven: "
_FAULTS = (
    (
        re.compile(r"No module named '?breakeven"),
        "The server's Python has no breakeven package: launch from the environment it is in.",
    ),
    (
        re.compile(r"DefaultCPUAllocator|MemoryError|Cannot allocate memory|bad allocation", re.IGNORECASE),
        "Memory ran out: lower max_running_requests or context_length, take dtype bfloat16, or run fewer servers at once.",
    ),
    (re.compile(r"Address already in use"), "Another program took the port in the meantime: start again."),
)
_KILLED = -9


def explain_failure(log_tail: Sequence[str], exit_code: int | None) -> str | None:
    """See `Engine.explain_failure`. The server states what it refuses in one line of its own, which is passed on."""
    for line in reversed(log_tail):
        if line.startswith(_REFUSAL):
            reason = line.removeprefix(_REFUSAL).rstrip(".")
            return f"It said: {reason}."
    for pattern, explanation in _FAULTS:
        if any(pattern.search(line) for line in log_tail):
            return explanation
    if exit_code == _KILLED:
        return "Nothing in the log says why; the system ends programs that way when memory runs out."
    return None
