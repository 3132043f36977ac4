"""An arm as a command line of SGLang's server, by release, and what can be known to fail before it is started."""

from __future__ import annotations

from pathlib import Path

from breakeven.checkpoints.folder import open_folder
from breakeven.engines.arm_models import check_models
from breakeven.engines.base import Arm, LaunchCommand, Speculation
from breakeven.engines.installation import Installation, find_installation
from breakeven.engines.launch_flags import ChosenFlag, checked_doubt, choose_flag
from breakeven.engines.own_command import own_command
from breakeven.engines.sglang import control
from breakeven.engines.sglang.schedule_file import SCHEDULE_FLAG, schedule_file
from breakeven.engines.version_facts import first_support
from breakeven.errors import CheckpointError, UsageError
from breakeven.versions import Version

__all__ = ["check", "installation_of", "launch_command", "refusal"]

PACKAGES = ("sglang",)
MODULE = "sglang.launch_server"


def installation_of(arm: Arm) -> Installation:
    """The SGLang that would serve `arm`. Raises UsageError where there is none."""
    return find_installation(
        arm.executable, command="sglang", packages=PACKAGES, declared=arm.engine_version, who=f"arm {arm.name}"
    )


def launch_command(arm: Arm, port: int) -> LaunchCommand:
    """See `Engine.launch_command`."""
    if arm.command:
        return own_command(arm, port, control.environment(arm))
    installation = installation_of(arm)
    chosen = _Chosen(installation.version)
    flags = ["--model-path", str(arm.target), "--host", "127.0.0.1", "--port", str(port), "--dtype", arm.dtype]
    flags += ["--random-seed", str(arm.seed), "--enable-metrics"]
    # unset, SGLang admits 48 requests with speculation and as many as memory holds without
    flags += ["--max-running-requests", str(arm.max_running_requests)]
    if arm.served_name is not None:
        flags += ["--served-model-name", arm.served_name]
    if arm.context_length is not None:
        flags += ["--context-length", str(arm.context_length)]
    for flag, size in (("--tp-size", arm.tensor_parallel), ("--pp-size", arm.pipeline_parallel), ("--dp-size", arm.data_parallel)):
        if size != 1:
            flags += [flag, str(size)]
    if arm.quantization is not None:
        flags += ["--quantization", arm.quantization]
    if arm.max_graph_batch is not None:
        flags += [str(chosen.flag("largest batch in a graph")), str(arm.max_graph_batch)]
    env = {"HF_HUB_OFFLINE": "1"}
    if arm.num_threads is not None:
        env["OMP_NUM_THREADS"] = str(arm.num_threads)
    if arm.speculation is not None:
        flags += _speculation_flags(arm, arm.speculation, chosen)
        if arm.speculation.schedule:
            flag = chosen.flag("drafts by batch size") or SCHEDULE_FLAG
            path = schedule_file(arm.speculation.schedule, arm.speculation.num_draft_tokens)
            flags += ["--speculative-adaptive", flag, str(path)]
        env |= _forcing(arm.speculation, chosen)
    program = (str(installation.python), "-m", MODULE) if installation.python is not None else (str(installation.script),)
    return LaunchCommand(
        argv=(*program, *flags, *arm.extra_flags),
        env={**env, **control.environment(arm), **arm.env},
        doubt=checked_doubt("sglang", installation.version, chosen.doubts),
    )


def check(arm: Arm) -> None:
    """See `Engine.check`. Reads configurations, headers and names of files: milliseconds."""
    if arm.target is None and not arm.command:
        raise UsageError(f"arm {arm.name}: no target; SGLang serves a model folder")
    speculation = arm.speculation
    if speculation is not None and speculation.schedule and (speculation.method != "eagle3" or speculation.topk != 1):
        raise UsageError(
            f"arm {arm.name}: a schedule; SGLang changes the number of drafts of EAGLE chains only (method eagle3, topk 1)"
        )
    if speculation is not None and speculation.schedule and arm.data_parallel > 1:
        raise UsageError(
            f"arm {arm.name}: a schedule with data_parallel {arm.data_parallel}: SGLang refuses it where copies share attention, "
            "as they would not agree on a number; give the copies servers of their own, or a fixed number"
        )
    launch_command(arm, 1)
    check_models(arm)


def refusal(arm: Arm) -> str | None:
    """See `Engine.refusal`."""
    if arm.command or arm.speculation is None:
        return None
    version, method = installation_of(arm).version, arm.speculation.method
    if version is None:
        return None
    if method == "ngram" and choose_flag("sglang", "n-gram drafting", version).name is None:
        return f"SGLang {version} does not draft from n-grams; 0.5.3 and later do."
    if arm.forced and choose_flag("sglang", "forced acceptance, method", version).name is None:
        return f"SGLang {version} accepts drafts to order only roughly and misses the mean asked for; 0.4.9 and later meet it."
    if arm.forced and method == "ngram":
        return "SGLang accepts to order with EAGLE drafters only: use method eagle3, for which drafter: random is enough."
    if arm.speculation.schedule and choose_flag("sglang", "drafts by batch size", version).name is None:
        return f"SGLang {version} has no number of drafts by batch size; 0.5.13 and later have (--speculative-adaptive-config)."
    if arm.target is not None:
        model_type = open_folder(arm.target).config.get("model_type")
        support = first_support("sglang", str(model_type), method)
        if support is not None and version < support.first:
            return (
                f"SGLang {version} does not speculate with {method} for {model_type}; "
                f"{support.first} and later do ({support.source})."
            )
    return None


class _Chosen:
    """Flags chosen for one release, and the doubts that came with them."""

    def __init__(self, version: Version | None) -> None:
        self._version = version
        self.doubts: list[str] = []

    def flag(self, purpose: str) -> str | None:
        found: ChosenFlag = choose_flag("sglang", purpose, self._version)
        self.doubts.append(found.doubt)
        return found.name


def _speculation_flags(arm: Arm, speculation: Speculation, chosen: _Chosen) -> list[str]:
    # SGLang's number of draft tokens counts the bonus position
    num_verified = speculation.num_draft_tokens + 1
    if speculation.method == "ngram":
        if speculation.drafter is not None:
            raise UsageError(f"arm {arm.name}: a drafter with method ngram; only eagle3 has one")
        algorithm = chosen.flag("n-gram drafting") or "NGRAM"
        flags = ["--speculative-algorithm", algorithm, "--speculative-num-draft-tokens", str(num_verified)]
        flags += ["--speculative-ngram-max-bfs-breadth", "1"]  # a chain, as the other engines look up
        for purpose, length in (("longest n-gram", speculation.ngram_max), ("shortest n-gram", speculation.ngram_min)):
            flag = chosen.flag(purpose)
            if flag is not None:
                flags += [flag, str(length)]
        return flags
    if speculation.drafter is None:
        raise UsageError(f"arm {arm.name}: method eagle3 without a drafter; name its folder, or random for one without training")
    # EAGLE would serve the same head without its auxiliary layers
    flags = ["--speculative-algorithm", "EAGLE3", "--speculative-draft-model-path", str(speculation.drafter)]
    flags += ["--speculative-num-steps", str(speculation.num_steps or speculation.num_draft_tokens)]
    flags += ["--speculative-eagle-topk", str(speculation.topk), "--speculative-num-draft-tokens", str(num_verified)]
    if (arm.quantization is not None or _is_quantized(arm.target)) and not _is_quantized(speculation.drafter):
        flag = chosen.flag("drafter's quantization")
        if flag is not None:
            flags += [flag, "unquant"]
        else:
            chosen.doubts.append(
                "this release quantizes the drafter as it does the target: acceptance may be low or loading may fail"
            )
    if speculation.forced_accept_length is not None and not 1.0 <= speculation.forced_accept_length <= num_verified:
        raise UsageError(
            f"arm {arm.name}: forced accept length {speculation.forced_accept_length:g}; "
            f"{speculation.num_draft_tokens} drafted tokens and the bonus token allow 1 to {num_verified}"
        )
    return flags


def _forcing(speculation: Speculation, chosen: _Chosen) -> dict[str, str]:
    if speculation.forced_accept_length is None:
        return {}
    env = {str(chosen.flag("forced acceptance")): f"{speculation.forced_accept_length:g}"}
    # the other method rounds a normal deviate, whose mean is not the one asked for
    for purpose, value in (("forced acceptance, method", "match-expected"), ("forced acceptance, tokens", "real-draft-token")):
        name = chosen.flag(purpose)
        if name is not None:
            env[name] = value
    return env


def _is_quantized(folder: Path | None) -> bool:
    if folder is None:
        return False
    try:
        return bool(open_folder(folder).config.get("quantization_config"))
    except CheckpointError:
        return False  # `check` says what is wrong with it
