"""CUDA graphs are recorded for fewer tokens than a full batch of drafts has.

Detects: a largest graph below running requests x (drafts + 1) tokens (vLLM), or below the running requests (SGLang, whose graphs
count requests).

Why it hurts: above the largest graph a round runs eagerly, and the cost of a round jumps (measured: 1.6 steps at 64 requests
inside the graphs, about 4 at 256 outside).

Evidence: the flags for graph sizes and for running requests; vLLM's default is at most 512 tokens (1024 on Blackwell).

Remedy: raise the largest graph, draft fewer tokens at large batches, or admit fewer requests.
"""

from __future__ import annotations

from collections.abc import Iterator

from breakeven.doctor.evidence import Evidence
from breakeven.doctor.launch import Flag, Launch
from breakeven.doctor.signs import Symptoms
from breakeven.doctor.told import Fault, Told
from breakeven.engines.launch_flags import choose_flag

VLLM_DEFAULT_TOKENS = 512
_SIZES = {"vllm": ("--cudagraph-capture-sizes", "--cuda-graph-sizes"), "sglang": ("--cuda-graph-bs",)}
_LARGEST = {"vllm": ("--max-cudagraph-capture-size",), "sglang": ("--cuda-graph-max-bs",)}


def check(evidence: Evidence) -> Iterator[Told]:
    launch = evidence.launch
    assert launch is not None
    if not launch.speculates or not launch.max_running or launch.flag("--enforce-eager", "--disable-cuda-graph"):
        return
    running = int(launch.max_running.value)
    per_request = launch.num_verified if launch.engine == "vllm" else 1
    if per_request is None:
        return
    needed, (largest, given) = running * per_request, _largest(launch)
    if largest is None or largest >= needed or not (given or launch.is_whole):
        return
    unit = f"{running} requests of {per_request} tokens" if launch.engine == "vllm" else f"{running} requests"
    flag = choose_flag(launch.engine, "largest batch in a graph", evidence.version).name
    yield Fault(
        severity="warning",
        confidence="high" if given else "medium",
        title=f"The largest CUDA graph holds {largest}, a full batch needs {needed} ({unit})",
        evidence=(
            str(given) if given else f"no flag for graph sizes; vLLM's default is at most {largest} tokens",
            str(launch.max_running),
        ),
        remedy=f"Set {flag} {needed}, or lower {launch.max_running.name}, or draft fewer tokens at large batches.",
        symptoms=Symptoms(vllm="cost", sglang="cost"),
    )


def _largest(launch: Launch) -> tuple[int | None, Flag]:
    flag = launch.flag(*_LARGEST[launch.engine])
    if flag and (number := launch.number(flag.name)) is not None:
        return number, flag
    flag = launch.flag(*_SIZES[launch.engine])
    if flag:
        values = flag.value if isinstance(flag.value, tuple) else str(flag.value).strip("[]").replace(",", " ").split()
        sizes = [int(one) for one in values if str(one).isascii() and str(one).isdigit() and len(str(one)) < 9]
        return (max(sizes) if sizes else None), flag
    elsewhere = any(name.startswith(("--compilation-config", "-cc", "-O")) for name in launch.flags)
    return (VLLM_DEFAULT_TOKENS if launch.engine == "vllm" and not elsewhere else None), Flag()
