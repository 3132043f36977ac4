"""Start-up faults of SGLang, and deaths under load, explained from the end of its log."""

from __future__ import annotations

import re
from collections.abc import Sequence

from breakeven.engines.faults import explain, fault

__all__ = ["FAULTS", "explain_failure"]

FAULTS = (
    fault(
        r"Not enough memory[.;,]? ?[Pp]lease try (?:to increase )?--mem-fraction-static",
        "The weights leave no memory for the KV cache: raise --mem-fraction-static, use more GPUs (tensor_parallel), or quantize.",
    ),
    fault(
        r"CUDA out of memory|OutOfMemoryError|DefaultCPUAllocator|Cannot allocate memory|MemoryError",
        "Memory ran out: lower max_running_requests or context_length, lower --mem-fraction-static,",
        "or use more GPUs (tensor_parallel).",
    ),
    # the base class, which can only refuse
    fault(
        r"base_attn_backend\.py\", line \d+, in init_cuda_graph_state",
        "SGLang records graphs for every number of drafts of a schedule, which the attention backend in use cannot (none can on a",
        "CPU): add --disable-cuda-graph to extra_flags.",
    ),
    fault(
        r"memory capacity is unbalanced",
        "Another program holds memory on one of the GPUs: end it, or choose GPUs with CUDA_VISIBLE_DEVICES.",
    ),
    fault(
        r"User-specified context_length \((?P<asked>\d+)\) is greater than the derived context_length \((?P<limit>\d+)\)",
        "A model serves at most {limit} tokens of context and {asked} were asked for: lower context_length. If it is the drafter's",
        "limit, SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN=1 in env lets it go beyond.",
    ),
    fault(
        r"has no attribute '(?:set_eagle3_layers_to_capture|capture_aux_hidden_states)'",
        "This release of SGLang does not speculate with EAGLE-3 heads for this target: a newer one may, or choose another method.",
    ),
    fault(
        r"'(?P<model>\w+)' object has no attribute '(?:hot_token_id|set_embed|set_embed_and_head)'",
        "What was loaded as the drafter is a {model}, which is no head: name the folder of a head, or another method.",
        "Without --speculative-draft-model-path SGLang takes the target itself.",
    ),
    fault(
        r"[Ii]nvalid SGLANG_SIMULATE_ACC|[Ii]nvalid simulate_acc_method",
        "This release of SGLang does not know the way of forcing acceptance that was asked for: set engine_version right.",
    ),
    fault(
        r"KeyError: '(?P<tensor>[\w.]+\.(?:weight|bias|weight_scale|qweight)|[td]2[td])'",
        "A checkpoint has a tensor {tensor} that this release does not know:",
        "it was made for another architecture or a newer release.",
    ),
    fault(
        r"size of tensor a \(\d+\) must match|shape mismatch|loaded_weight\.shape|param\.(?:data\.)?shape",
        "A checkpoint's tensor has another shape than its configuration says.",
        "A drafter that is quantized along with the target, or made for another target, looks like this.",
    ),
    fault(
        r"No safetensors|Cannot find any model weights|is not a local folder and is not a valid model identifier|Repo id must"
        r"|outgoing traffic has been disabled|does not appear to have a file named config\.json",
        "A model or drafter folder is not there, or holds no model that SGLang can read: check the paths on the command line.",
    ),
    fault(
        r"error: unrecognized arguments: (?P<flags>.{1,200})",
        "This release of SGLang does not know {flags}: check extra_flags, and engine_version where the plan gives one.",
    ),
    fault(r"error: argument (?P<flag>\S+): (?P<reason>.{1,200})", "SGLang refuses {flag}: {reason}"),
    fault(
        r"[Aa]ddress already in use|error while attempting to bind", "Another program took the port in the meantime: start again."
    ),
    # it says so of every model that it does not need
    fault(
        r"^(?!Ignore import error).*No module named '?(?P<module>[\w.]+)",
        "SGLang's environment lacks the Python package {module}: install it there.",
    ),
    fault(
        r"(?P<library>lib[\w.+-]+): cannot open shared object file",
        "SGLang's environment lacks the library {library}: its torch or CUDA packages do not fit together. Install it anew there.",
    ),
    fault(
        r"No accelerator|No CUDA GPUs are available|no NVIDIA driver|Torch not compiled with CUDA",
        "SGLang finds no GPU: is the driver there, and CUDA_VISIBLE_DEVICES right?",
    ),
    # the first error of the tail; its processes repeat it, or only that another one died
    fault(r"^(?P<said>(?:\w+\.)*\w*(?:Error|Exception): (?!Rank \d+ scheduler).{3,300})", "It said: {said}"),
)
# "[2026-11-30 09:30:47 TP0] " in front of every record, and of nothing of a traceback.
_PREFIX = re.compile(r"^\[\d{4}-\d\d-\d\d [\d:]+[^\]]*\] ")


def explain_failure(log_tail: Sequence[str], exit_code: int | None) -> str | None:
    """See `Engine.explain_failure`."""
    return explain(FAULTS, [_PREFIX.sub("", line) for line in log_tail], exit_code)
