"""What the embedded server says it really does, from its own log."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from breakeven import __version__
from breakeven.engines.base import Arm
from breakeven.engines.prometheus import read_samples

__all__ = ["facts"]

_SERVING = re.compile(
    r"Serving (?P<target>.+) as (?P<served_name>.+?): (?P<num_layers>\d+) layers, dtype (?P<dtype>\w+), "
    r"(?P<num_threads>\d+) threads, context (?P<context_length>\d+), "
    r"at most (?P<max_running_requests>\d+) requests at once, (?P<speculation>.+)"
)
_READY = re.compile(r"Ready on \S+ after (?P<ready_after_s>[\d.]+) s")


def facts(_arm: Arm, log_lines: Sequence[str], metrics: str) -> Mapping[str, object]:
    """See `Engine.facts`. Keys as in `Arm` where the two mean the same, so that asked and real can be held side by side."""
    found: dict[str, object] = {"engine": "local", "version": __version__}
    for line in log_lines:
        for pattern in (_SERVING, _READY):
            match = pattern.search(line)
            if match:
                found |= match.groupdict()
    for key in ("num_layers", "num_threads", "context_length", "max_running_requests"):
        if key in found:
            found[key] = int(str(found[key]))
    if "ready_after_s" in found:
        found["ready_after_s"] = float(str(found["ready_after_s"]))
    for sample in read_samples(metrics, ("process_resident_memory_bytes",)).get("process_resident_memory_bytes", []):
        found["resident_memory_bytes"] = int(sample.value)
    return found
