"""What vLLM says it really does, from its start-up log and metrics.

Keys as in `Arm` where the two mean the same, so that asked and real can be held side by side (`engines/resolved.py`). A fact that a
release does not print is left out, never guessed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from breakeven.engines.base import Arm
from breakeven.engines.prometheus import read_samples
from breakeven.engines.vllm.launch import launch_command
from breakeven.errors import UsageError

__all__ = ["facts"]

# (pattern, whether the last match counts and not the first); group names are the facts' names. Oldest wording last.
_PATTERNS: tuple[re.Pattern[str], ...] = (
    re.compile(r"Initializing an? (?:V\d )?LLM engine \(v(?P<version>[^)\s]+)\)"),
    re.compile(r"vLLM API server version (?P<version>\d\S*)"),
    re.compile(r"Initializing an? .*\bdtype=torch\.(?P<dtype>\w+), max_seq_len=(?P<context_length>\d+)"),
    re.compile(
        r"Initializing an? .*\btensor_parallel_size=(?P<tensor_parallel>\d+), pipeline_parallel_size=(?P<pipeline_parallel>\d+)"
    ),
    re.compile(r"Initializing an? .*\bquantization=(?P<quantization>\w+)"),
    re.compile(r"Initializing an? .*\bkv_cache_dtype=(?P<kv_cache_dtype>\w+)"),
    re.compile(r"Initializing an? .*\benforce_eager=(?P<enforce_eager>True|False)"),
    re.compile(r"Initializing an? .*\benable_prefix_caching=(?P<prefix_caching>True|False)"),
    re.compile(r"Initializing an? .*\bcudagraph_mode'?[:=] ?<?(?P<graph_mode>[\w.]+)"),
    re.compile(r"Initializing an? .*\bmax_(?:cudagraph_)?capture_size'?[:=] ?(?P<max_graph_tokens>\d+)"),
    re.compile(
        r"speculative_config=SpeculativeConfig\(method='(?P<method>\w+)', model=(?P<drafter>'[^']*'|None), "
        r"num_spec_tokens=(?P<num_draft_tokens>\d+)"
    ),
    re.compile(r"'max_num_seqs': (?P<max_running_requests>\d+)"),
    re.compile(r"Using auxiliary layers from speculative config: \((?P<auxiliary_layers>[\d, ]+)\)"),
    re.compile(r"Using Eagle3 auxiliary layers from (?P<auxiliary_layers_source>config|model): \((?P<auxiliary_layers>[\d, ]+)\)"),
    re.compile(r"KV cache size: (?P<kv_cache_tokens>[\d,]+) tokens"),
    re.compile(r"Using (?:AttentionBackendEnum\.)?(?P<attention_backend>\w+) (?:attention )?backend(?: out of|\.| on V1)"),
    re.compile(r"Using (?P<attention_backend>Flash Attention|FlashInfer|Triton) backend on V1 engine"),
    re.compile(r"using the (?P<runner>V[12]) model runner"),
    re.compile(r"Using (?P<runner>V[12]) [Mm]odel [Rr]unner"),
    re.compile(r"max_num_scheduled_tokens is set to (?P<max_scheduled_tokens>\d+) based on the speculative"),
)
_ARCHITECTURE = re.compile(r"Resolved architecture: (\w+)")
_NUMBERS = frozenset(
    {
        "context_length",
        "tensor_parallel",
        "pipeline_parallel",
        "max_graph_tokens",
        "num_draft_tokens",
        "max_running_requests",
        "max_scheduled_tokens",
    }
)


def facts(arm: Arm, log_lines: Sequence[str], metrics: str) -> Mapping[str, object]:
    """See `Engine.facts`."""
    found: dict[str, object] = {"engine": "vllm"}
    architectures: list[str] = []
    for line in log_lines:
        if match := _ARCHITECTURE.search(line):
            architectures.append(match[1])
        for pattern in _PATTERNS:
            if match := pattern.search(line):
                for name, text in match.groupdict().items():
                    found.setdefault(name, _value(name, text))
    if architectures:
        found["architecture"] = architectures[0]
    if arm.speculation is not None and arm.speculation.method == "eagle3" and len(architectures) > 1:
        found["drafter_class"] = architectures[-1]
    found |= _cache(metrics)
    if arm.url is None and (doubt := _doubt(arm)):
        found["unverified"] = doubt
    return found


def _value(name: str, text: str) -> object:
    if name in _NUMBERS:
        return int(text)
    if name == "kv_cache_tokens":
        return int(text.replace(",", ""))
    if name == "auxiliary_layers":
        return [int(layer) for layer in text.split(",") if layer.strip()]
    if name in ("enforce_eager", "prefix_caching"):
        return text == "True"
    return None if text == "None" else text.strip("'")


def _cache(metrics: str) -> dict[str, object]:
    """The KV cache's capacity in tokens; releases that do not print it give blocks."""
    for sample in read_samples(metrics, ("vllm:cache_config_info",)).get("vllm:cache_config_info", []):
        labels = sample.labels
        size = labels.get("kv_cache_size_tokens", "")
        if size.isdigit():
            return {"kv_cache_tokens": int(size)}
        blocks, block = labels.get("num_gpu_blocks", ""), labels.get("block_size", "")
        if blocks.isdigit() and block.isdigit():
            return {"kv_cache_tokens": int(blocks) * int(block)}
    return {}


def _doubt(arm: Arm) -> str:
    try:
        return launch_command(arm, 1).doubt
    except UsageError:
        return ""
