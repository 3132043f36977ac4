"""Known faults of a server, found in the end of its log and explained: tables of patterns, one table an engine.

The line that names the cause stands above the tracebacks of the processes that fell with it, so a table is tried in its order over
the whole tail: causes before what they lead to.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

__all__ = ["Fault", "explain", "fault"]

KILLED = -9
MAX_CHARACTERS = 500
_PLACEHOLDER = re.compile(r"\{(\w+)\}")


@dataclass(frozen=True, slots=True)
class Fault:
    """`explanation` says what it means and what to do; {name} stands for the pattern's group, {next} for the line below."""

    pattern: re.Pattern[str]
    explanation: str


def fault(pattern: str, *explanation: str) -> Fault:
    return Fault(re.compile(pattern), " ".join(explanation))


def explain(faults: Iterable[Fault], lines: Sequence[str], exit_code: int | None) -> str | None:
    """The first fault of the table that a line shows, as one or two sentences; None when none is known."""
    for known in faults:
        for index, line in enumerate(lines):
            match = known.pattern.search(line)
            if match is not None:
                named = {**match.groupdict(), "next": lines[index + 1].strip() if index + 1 < len(lines) else ""}
                # not str.format: what a log holds is put in as it is, braces included
                text = _PLACEHOLDER.sub(lambda place, named=named: named.get(place[1]) or "", known.explanation)  # type: ignore[misc]
                return text[:MAX_CHARACTERS].rstrip(" .") + "."
    if exit_code == KILLED:
        return "Nothing in the log says why; the system ends programs that way when memory runs out."
    return None
