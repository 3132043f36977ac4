"""vLLM's prefix cache and profiler: what a server is started with, and told."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from breakeven.engines.base import Arm
from breakeven.engines.control import ServerRequest
from breakeven.engines.launch_flags import choose_flag
from breakeven.errors import UsageError
from breakeven.versions import Version

__all__ = ["RESET", "Profiling", "environment", "profile_requests", "profiling"]

# The page exists in every release read, for servers in development mode only. 0.8.5 answers nothing, 0.32 says whether it worked.
RESET = ServerRequest(path="/reset_prefix_cache", busy_s=30.0)
DEVELOPMENT = "VLLM_SERVER_DEV_MODE"
# Stopping writes the traces out, which takes minutes for seconds of traffic.
START = ServerRequest(path="/start_profile")
STOP = ServerRequest(path="/stop_profile", timeout_s=1800.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Profiling:
    """What a command line needs to be profiled; empty for an arm that is not."""

    flags: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    doubt: str = ""


def environment(arm: Arm) -> dict[str, str]:
    """Whatever the release. The server listens on loopback, where its further pages are open to this machine's users only."""
    return {DEVELOPMENT: "1"} if arm.resets_cache else {}


def profiling(arm: Arm, version: Version | None) -> Profiling:
    if arm.profile_to is None:
        return Profiling()
    chosen = choose_flag("vllm", "profiler", version)
    folder = str(arm.profile_to)
    if chosen.name is not None and chosen.name.startswith("--"):
        config = json.dumps({"profiler": "torch", "torch_profiler_dir": folder}, separators=(",", ":"))
        return Profiling(flags=(chosen.name, config), doubt=chosen.doubt)
    return Profiling(env={str(chosen.name): folder}, doubt=chosen.doubt)


def profile_requests(arm: Arm) -> tuple[ServerRequest, ServerRequest]:
    """See `Engine.profile_requests`."""
    if arm.command:
        raise UsageError(
            f"arm {arm.name}: has a command of its own, and vLLM profiles only when its command line says where to "
            "(--profiler-config); profile an arm whose command Breakeven writes"
        )
    return START, STOP
