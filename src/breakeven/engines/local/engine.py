"""The embedded engine as an adapter. The server itself is `breakeven.drafter.serving`, in a process of its own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from breakeven.acceptance import Acceptance
from breakeven.engines.base import Arm, Counters, LaunchCommand
from breakeven.engines.control import ServerRequest
from breakeven.engines.local import facts, launch, logs, metrics
from breakeven.errors import UsageError

__all__ = ["LocalEngine"]


class LocalEngine:
    """See `Engine` for what each method promises."""

    name = "local"
    health_path = "/health"
    info_paths: tuple[str, ...] = ()

    def check(self, arm: Arm) -> None:
        launch.check(arm)

    def refusal(self, arm: Arm) -> str | None:
        return None

    def launch_command(self, arm: Arm, port: int) -> LaunchCommand:
        return launch.launch_command(arm, port)

    def parse_metrics(self, exposition: str, time_s: float) -> Counters:
        return metrics.parse_metrics(exposition, time_s)

    def reset_request(self, arm: Arm) -> ServerRequest | None:
        return None  # every request computes its whole prompt

    def profile_requests(self, arm: Arm) -> tuple[ServerRequest, ServerRequest]:
        raise UsageError(f"arm {arm.name}: the embedded engine has no profiler; profile an arm on vllm or sglang")

    def request_fields(self, arm: Arm, facts: Mapping[str, object]) -> Mapping[str, object]:
        return {}

    def log_acceptance(self, arm: Arm, lines: Iterable[str]) -> Acceptance | None:
        return None  # its metrics count it

    def explain_failure(self, log_tail: Sequence[str], exit_code: int | None) -> str | None:
        return logs.explain_failure(log_tail, exit_code)

    def facts(self, arm: Arm, log_lines: Sequence[str], metrics: str, info: str = "") -> Mapping[str, object]:
        return facts.facts(arm, log_lines, metrics)
