"""An arm as a command line of the embedded server, and what can be known to fail before it is started."""

from __future__ import annotations

import sys

from breakeven.checkpoints.folder import open_folder
from breakeven.engines.arm_models import check_models
from breakeven.engines.base import Arm, LaunchCommand
from breakeven.errors import CheckpointError, UsageError

__all__ = ["check", "launch_command"]

ARCHITECTURES = ("LlamaForCausalLM",)
NOT_OURS = (
    "command", "executable", "tensor_parallel", "pipeline_parallel", "data_parallel", "quantization", "max_graph_batch",
)  # fmt: skip
_PLAIN = Arm(name="plain", engine="local")
DTYPES = ("auto", "float32", "bfloat16")


def launch_command(arm: Arm, port: int) -> LaunchCommand:
    """See `Engine.launch_command`."""
    if arm.target is None:
        raise UsageError(f"arm {arm.name}: no target; the embedded engine serves a model folder")
    # it would be measured without, and nobody would know
    if other := [key for key in NOT_OURS if getattr(arm, key) != getattr(_PLAIN, key)]:
        raise UsageError(f"arm {arm.name}: {other[0]} is for vLLM and SGLang, the embedded engine has no such thing; remove it")
    flags = ["--model", str(arm.target), "--port", str(port), "--dtype", arm.dtype]
    flags += ["--max-num-seqs", str(arm.max_running_requests), "--seed", str(arm.seed)]
    if arm.served_name is not None:
        flags += ["--served-model-name", arm.served_name]
    if arm.context_length is not None:
        flags += ["--context-length", str(arm.context_length)]
    if arm.num_threads is not None:
        flags += ["--num-threads", str(arm.num_threads)]
    flags += _speculation_flags(arm)
    # threads that spin while they wait take the core that another thread needs: 20 times slower on a shared machine
    env = {"OMP_WAIT_POLICY": "passive"}
    if arm.num_threads is not None:
        env["OMP_NUM_THREADS"] = str(arm.num_threads)
    return LaunchCommand(argv=(sys.executable, "-m", "breakeven.drafter.serving", *flags, *arm.extra_flags), env={**env, **arm.env})


def check(arm: Arm) -> None:
    """See `Engine.check`. Reads configurations and headers only: milliseconds."""
    launch_command(arm, 1)
    if arm.dtype not in DTYPES:
        raise UsageError(f"arm {arm.name}: dtype {arm.dtype!a}; the embedded engine computes in {', '.join(DTYPES)}")
    if arm.target is None:
        return
    target = open_folder(arm.target)
    architectures = target.config.get("architectures")
    if not isinstance(architectures, list) or not set(map(str, architectures)) & set(ARCHITECTURES):
        raise CheckpointError(
            f"{target.path}/config.json: architectures is {architectures!a}; the embedded engine serves {', '.join(ARCHITECTURES)} "
            "only: use vLLM or SGLang for other models"
        )
    check_models(arm)


def _speculation_flags(arm: Arm) -> list[str]:
    speculation = arm.speculation
    if speculation is None:
        return []
    flags = ["--method", speculation.method, "--num-draft-tokens", str(speculation.num_draft_tokens)]
    if speculation.method == "eagle3":
        if speculation.drafter is None:
            raise UsageError(
                f"arm {arm.name}: method eagle3 without a drafter; name its folder, or random for one without training"
            )
        flags += ["--draft-model", str(speculation.drafter)]
    else:
        if speculation.drafter is not None:
            raise UsageError(f"arm {arm.name}: a drafter with method {speculation.method}; only eagle3 has one")
        flags += ["--ngram-max", str(speculation.ngram_max), "--ngram-min", str(speculation.ngram_min)]
    if speculation.schedule:
        ranges = [f"{first}-{last}:{drafts}" for first, last, drafts in speculation.schedule]
        flags += ["--draft-schedule", ",".join(ranges)]
    if speculation.forced_accept_length is not None:
        most = speculation.num_draft_tokens + 1
        if not 1.0 <= speculation.forced_accept_length <= most:
            raise UsageError(
                f"arm {arm.name}: forced accept length {speculation.forced_accept_length:g}; "
                f"{speculation.num_draft_tokens} drafted tokens and the bonus token allow 1 to {most}"
            )
        flags += ["--forced-accept-length", str(speculation.forced_accept_length)]
    return flags
