"""What SGLang says it really does: `/server_info`, the log lines that tell what it does not, and whose kernels it computes with."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence

from breakeven.engines.base import Arm
from breakeven.engines.sglang.kernels import find_kernels
from breakeven.engines.sglang.launch import installation_of, launch_command
from breakeven.errors import UsageError

__all__ = ["facts"]

# (field of /server_info, fact). Fields are named as the server's arguments, which kept these names in every release read.
_FIELDS = (
    ("version", "version"),
    ("dtype", "dtype"),
    ("context_length", "context_length"),
    ("max_running_requests", "max_running_requests"),
    ("tp_size", "tensor_parallel"),
    ("pp_size", "pipeline_parallel"),
    ("quantization", "quantization"),
    ("attention_backend", "attention_backend"),
    ("speculative_draft_attention_backend", "drafter_attention_backend"),
    ("speculative_algorithm", "algorithm"),
    ("speculative_draft_model_path", "drafter"),
    ("speculative_draft_model_quantization", "drafter_quantization"),
    ("speculative_num_steps", "num_steps"),
    ("speculative_eagle_topk", "topk"),
    ("speculative_adaptive", "drafts_follow_batch"),
    ("disable_cuda_graph", "graphs_disabled"),
    ("cuda_graph_max_bs", "max_graph_batch"),
    ("cuda_graph_max_bs_decode", "max_graph_batch"),
    ("max_total_num_tokens", "kv_cache_tokens"),
)
_LOG = (
    re.compile(r"max_total_num_tokens=(?P<kv_cache_tokens>\d+)"),
    re.compile(r"Max running requests is reset to (?P<max_running_requests_reset_to>\d+)"),
    re.compile(r"Load weight end\..*\btype=(?P<drafter_class>\w*Eagle3\w*)"),
)


def facts(arm: Arm, log_lines: Sequence[str], _metrics: str, info: str) -> Mapping[str, object]:
    """See `Engine.facts`."""
    found: dict[str, object] = {"engine": "sglang"}
    stated = _stated(info)
    for field, fact in _FIELDS:
        if stated.get(field) is not None:
            found[fact] = stated[field]
    # a count of verified positions there, bonus included
    if isinstance(verified := stated.get("speculative_num_draft_tokens"), int) and found.get("algorithm"):
        found["num_draft_tokens"] = verified - 1
    for line in log_lines:
        for pattern in _LOG:
            if match := pattern.search(line):
                for name, text in match.groupdict().items():
                    found.setdefault(name, int(text) if text.isdigit() else text)
    if arm.url is None and (doubt := _doubt(arm)):
        found["unverified"] = doubt
    if arm.url is None and not arm.command:
        found |= _kernels(arm)
    return found


def _kernels(arm: Arm) -> dict[str, object]:
    try:
        kernels = find_kernels(arm, installation_of(arm))
    except UsageError:
        return {}
    if kernels is None:
        return {}
    if kernels.release is not None:
        return {"kernels": kernels.release}
    if kernels.place is None:
        return {"unreleased_kernels": "no sgl-kernel or sglang-kernel is installed beside SGLang"}
    return {"unreleased_kernels": f"sgl_kernel is imported from {kernels.place} and belongs to no installed distribution"}


def _stated(info: str) -> dict[str, object]:
    """Arguments at the top level, with the scheduler's own figures beneath; `auto` says nothing of what was chosen."""
    try:
        page = json.loads(info) if info else {}
    except ValueError:
        return {}
    if not isinstance(page, dict):
        return {}
    states = page.get("internal_states")
    first = states[0] if isinstance(states, list) and states and isinstance(states[0], dict) else {}
    merged = {**page, **{key: value for key, value in first.items() if key not in page or page[key] is None}}
    # divided among data-parallel ranks by the scheduler: the arguments hold what was asked for, the state what is done
    if isinstance(limit := first.get("effective_max_running_requests_per_dp"), int):
        dp_size = page.get("dp_size")
        merged["max_running_requests"] = limit * (dp_size if isinstance(dp_size, int) else 1)
    return {key: value for key, value in merged.items() if value != "auto"}


def _doubt(arm: Arm) -> str:
    try:
        return launch_command(arm, 1).doubt
    except UsageError:
        return ""
