"""The server died before it decoded anything.

Detects: a log of vLLM or SGLang without one interval of decoding, that ends in an error: any before the server was ready, the
engine's own end after that. What a server says once it was told to end is left out.

Why it hurts: nothing is served. The error that a user sees last is mostly that of a process that fell with the first one.

Evidence: the log's tail, held against the start-up faults that are known of each engine.

Remedy: what the fault says; a cause in folders or flags, where one that shows so was found too.
"""

from __future__ import annotations

from collections.abc import Iterator

from breakeven.doctor.evidence import Evidence
from breakeven.doctor.told import Seen, Told


def check(evidence: Evidence) -> Iterator[Told]:
    for start in evidence.starts:
        if not start.died:
            continue
        yield Seen(
            sign="crash" if start.was_ready else "load-error",
            severity="error",
            confidence="high" if start.why is not None else "medium",
            title=f"{start.source}: the server was ready and died before it printed one interval of decoding"
            if start.was_ready
            else f"{start.source}: the server died before it decoded anything",
            evidence=(start.why if start.why is not None else f"its last line: {start.last_line}",),
            remedy="Mend what it says there, then start again."
            if start.why is not None
            else "Read the first error above that line: what stands below it is mostly of processes that fell with it.",
        )
