"""Start-up faults of vLLM, and deaths under load, explained from the end of its log."""

from __future__ import annotations

import re
from collections.abc import Sequence

from breakeven.engines.faults import explain, fault

__all__ = ["FAULTS", "explain_failure"]

FAULTS = (
    fault(
        r"Synthetic acceptance not supported with CPU sampling",
        "vLLM cannot accept drafts to order where it samples on the CPU: measure the forced arm on a GPU,",
        "or with the embedded engine (engine: local).",
    ),
    fault(
        r"max seq len \((?P<asked>\d+)\), \(?(?P<needed>[\d.]+) GiB KV cache is needed.*\((?P<there>[\d.]+) GiB\)",
        "The KV cache is too small for one request of {asked} tokens: it takes {needed} GiB and {there} GiB are left.",
        "Lower context_length, or give the cache more memory (--gpu-memory-utilization; on a CPU VLLM_CPU_KVCACHE_SPACE).",
    ),
    fault(
        r"No available memory for the cache blocks",
        "The weights leave no memory for the KV cache: raise --gpu-memory-utilization, use more GPUs (tensor_parallel),",
        "or quantize.",
    ),
    fault(
        r"Free memory on device \S* ?\((?P<free>[\d.]+)/(?P<all>[\d.]+) GiB\).*less than desired",
        "Only {free} of {all} GiB of the GPU's memory are free: another program holds the rest.",
        "End it, or lower --gpu-memory-utilization on every arm.",
    ),
    fault(
        r"Available memory on node \d+ \(+(?P<free>[\d.]+)/(?P<all>[\d.]+)\)? GiB\).* on kv cache",
        "Only {free} of {all} GiB of memory are free, less than the KV cache asks for:",
        "end other programs, or set VLLM_CPU_KVCACHE_SPACE to fewer GiB.",
    ),
    fault(
        r"CUDA out of memory|OutOfMemoryError|DefaultCPUAllocator|Cannot allocate memory|MemoryError",
        "Memory ran out: lower max_running_requests or context_length, use more GPUs (tensor_parallel),",
        "or leave more room beside the KV cache (--gpu-memory-utilization).",
    ),
    fault(
        r"There is no module or parameter named '?(?P<tensor>[^' ]+)'? in (?P<model>\w+)",
        "A checkpoint has a tensor {tensor} that {model} does not know: it was made for another architecture or a newer release.",
        "A drafter folder that holds no head for this target looks like this too.",
    ),
    fault(
        r"KeyError: '(?P<tensor>[\w.]+\.(?:weight|bias|weight_scale|qweight)|[td]2[td])'",
        "The checkpoint has a tensor {tensor} that this release does not know:",
        "it was made for another architecture or a newer release.",
    ),
    fault(
        r"Following weights were not initialized from checkpoint: (?P<tensors>.{1,200})",
        "The checkpoint lacks tensors that the model needs: {tensors}",
    ),
    fault(
        r"Model does not support EAGLE3 interface|Eagle3 is only supported for",
        "This release of vLLM does not speculate with EAGLE-3 heads for this target: a newer one may, or choose another method.",
    ),
    fault(
        r"does not support \S+ with pipeline parallelism",
        "This release of vLLM does not speculate with this target over several pipeline stages: set pipeline_parallel to 1.",
    ),
    fault(
        r"Invalid repository ID or local directory specified|Can't load the configuration of|Repo id must be in the form"
        r"|Cannot find the requested files in the disk cache|outgoing traffic has been disabled",
        "A model or drafter folder is not there, or holds no model that vLLM can read: check the paths on the command line.",
    ),
    fault(
        r"error: unrecognized arguments: (?P<flags>.{1,200})",
        "This release of vLLM does not know {flags}: check extra_flags, and engine_version where the plan gives one.",
    ),
    fault(r"error: argument (?P<flag>\S+): (?P<reason>.{1,200})", "vLLM refuses {flag}: {reason}"),
    fault(
        r"[Aa]ddress already in use|error while attempting to bind", "Another program took the port in the meantime: start again."
    ),
    fault(r"No module named '?(?P<module>[\w.]+)", "vLLM's environment lacks the Python package {module}: install it there."),
    fault(
        r"(?P<library>lib[\w.+-]+): cannot open shared object file",
        "vLLM's environment lacks the library {library}: its torch or CUDA packages do not fit together. Install vLLM anew there.",
    ),
    fault(
        r"Failed to infer device type|No CUDA GPUs are available|no NVIDIA driver",
        "vLLM finds no GPU: is the driver there, and CUDA_VISIBLE_DEVICES right? On a machine without one, install a CPU build.",
    ),
    fault(r"[Vv]alidation error for (?P<config>\w+)", "vLLM refuses the {config} it was given: {next}"),
    fault(r"Worker failed with error '(?P<said>.{3,300}?)', please check", "It said: {said}"),
    # the first error of the tail: those of the processes above it only repeat that one below died
    fault(r"^(?P<said>(?:\w+\.)*\w*(?:Error|Exception): (?!Engine ?[Cc]ore).{3,300})", "It said: {said}"),
)
# "(EngineCore pid=7790) ERROR 11-30 09:30:47 [core.py:133] " in front of every line of a process, tracebacks included.
_PREFIX = re.compile(r"^\(\w+(?: pid=\d+)?\) (?:[A-Z]+ \d\d-\d\d [\d:]+ \[[^\]]*\] ?)?")


def explain_failure(log_tail: Sequence[str], exit_code: int | None) -> str | None:
    """See `Engine.explain_failure`."""
    return explain(FAULTS, [_PREFIX.sub("", line) for line in log_tail], exit_code)
