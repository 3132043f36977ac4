"""Decode steps run without CUDA graphs.

Detects: decode lines that say so, from some batch on or throughout.

Why it hurts: each kernel of each draft step is launched by itself: the accept length is right, and the speed at these batches is
not speculation's fault.

Evidence: lines without graphs, by batch; the largest batch that graphs were recorded for.

Remedy: graphs up to batch x (drafts + 1) tokens (vLLM) or the largest batch (SGLang). On a CPU it is no fault.
"""

from __future__ import annotations

from collections.abc import Iterator

from breakeven.doctor.evidence import Evidence
from breakeven.doctor.reported import fault, reported
from breakeven.doctor.signs import both
from breakeven.doctor.told import Told


def check(evidence: Evidence) -> Iterator[Told]:
    launch = evidence.launch
    # what the command itself switches off has a rule that needs no log
    if launch is not None and (launch.flag("--device").value == "cpu" or launch.flag("--disable-cuda-graph", "--enforce-eager")):
        return
    for source, finding in reported(evidence, "cuda-graph-off"):
        yield fault(source, finding, both("cost"))
