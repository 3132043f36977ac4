"""SGLang's prefix cache and profiler: what a server is told. No release read needs to be started in a special way for it."""

from __future__ import annotations

from breakeven.engines.base import Arm
from breakeven.engines.control import ServerRequest

__all__ = ["RESET", "environment", "profile_requests"]

# Answers 400 while requests run or wait.
RESET = ServerRequest(path="/flush_cache", busy_s=30.0)
FOLDER = "SGLANG_TORCH_PROFILER_DIR"


def environment(arm: Arm) -> dict[str, str]:
    return {FOLDER: str(arm.profile_to)} if arm.profile_to is not None else {}


def profile_requests(arm: Arm) -> tuple[ServerRequest, ServerRequest]:
    """See `Engine.profile_requests`."""
    body: dict[str, object] = {"activities": ["CPU", "GPU"]}
    if arm.profile_to is not None:
        body["output_dir"] = str(arm.profile_to)
    # stopping writes the traces out, which takes minutes for seconds of traffic
    return ServerRequest(path="/start_profile", body=body), ServerRequest(path="/stop_profile", timeout_s=1800.0)
