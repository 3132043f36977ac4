"""What every engine adapter speaks: an arm to launch, the command for it, and the counters read back.

An adapter is a package (`vllm/`, `sglang/`, `local/`, `fake/`) with the same file names in each: `launch.py` (arm -> command),
`metrics.py` (Prometheus text -> `Counters`), `logs.py` (start-up errors explained), `facts.py` (what the engine really does).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol

from breakeven.acceptance import Acceptance
from breakeven.engines.control import ServerRequest

__all__ = ["Arm", "Counters", "Engine", "LaunchCommand", "Speculation"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Speculation:
    """How an arm drafts. `forced_accept_length` makes the engine accept to order (mean, bonus included) whatever is drafted.

    A chain drafts one token a step. A tree (`topk` above 1, SGLang only) takes `num_steps` steps and verifies the best
    `num_draft_tokens` of what they grew.

    `schedule` chooses the number of drafts, `num_draft_tokens` at most, by how many requests run: (first, last, drafts), both ends
    included, from 1 on. Beyond the last range its number holds on. Empty: `num_draft_tokens` always.
    """

    method: Literal["ngram", "eagle3"]
    num_draft_tokens: int
    topk: int = 1
    num_steps: int | None = None
    drafter: Path | None = None
    forced_accept_length: float | None = None
    ngram_max: int = 3
    ngram_min: int = 1
    schedule: tuple[tuple[int, int, int], ...] = ()

    def drafts_at(self, batch: int) -> int:
        """Drafts a round while `batch` requests run."""
        begun = [drafts for first, _, drafts in self.schedule if first <= batch]
        return begun[-1] if begun else self.num_draft_tokens

    @property
    def is_idle(self) -> bool:
        """Loaded, but never drafts: shows what carrying a drafter costs."""
        return bool(self.schedule) and not any(drafts for _, _, drafts in self.schedule)


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """One serving configuration, every path resolved.

    Launched when `url` is None, attached otherwise. `max_running_requests` bounds admission and must be equal on arms that are
    compared. `extra_flags` go to the engine's command line untouched.

    executable: the engine's command, the Python it is installed in, or that environment's folder; None looks on the PATH.
    engine_version: the release, where it cannot be read from the installation.
    quantization: the target's; a drafter is never quantized along with it.
    max_graph_batch: largest batch, in requests, that is decoded from a recorded GPU graph.
    command: the user's own command in place of all this, with {port} where the port belongs.
    resets_cache: the server is told to empty its prefix cache before every trial, so it must be started so that it can.
    profile_to: folder for the traces of the server's profiler, which it must be started with; None: not profiled.
    """

    name: str
    engine: str
    target: Path | None = None
    served_name: str | None = None
    speculation: Speculation | None = None
    dtype: str = "auto"
    max_running_requests: int = 8
    context_length: int | None = None
    num_threads: int | None = None
    seed: int = 0
    executable: Path | None = None
    engine_version: str | None = None
    tensor_parallel: int = 1
    pipeline_parallel: int = 1
    data_parallel: int = 1
    quantization: str | None = None
    max_graph_batch: int | None = None
    command: tuple[str, ...] = ()
    extra_flags: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    url: str | None = None
    metrics_urls: tuple[str, ...] = ()
    api_key_env: str | None = None
    resets_cache: bool = False
    profile_to: Path | None = None
    simulation: Mapping[str, object] = field(default_factory=dict)  # declared truth of the fake engine, unused elsewhere

    @property
    def forced(self) -> bool:
        return self.speculation is not None and self.speculation.forced_accept_length is not None

    @property
    def idle(self) -> bool:
        """Speculation is loaded and never used, which measures what carrying it costs."""
        return self.speculation is not None and self.speculation.is_idle

    @property
    def probe(self) -> bool:
        """Measures what something costs, and is no arm to be run."""
        return self.forced or self.idle


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchCommand:
    """An exact command line and what it adds to the environment (secrets stay in the environment it inherits).

    `doubt` says which part of it rests on a release that nobody has checked; empty where none does.
    """

    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    doubt: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Counters:
    """One scrape. Counts are since the server's start; `acceptance` is None where the engine reports none (no speculation).

    at_finish: tokens and acceptance are counted when a request ends, not while it runs.
    gauge_accept_length: what a gauge showed of the engine's last interval, a fallback where acceptance is not counted.
    """

    time_s: float
    prompt_tokens: int
    generation_tokens: int
    num_running: int
    num_waiting: int
    num_preemptions: int = 0
    num_requests: int | None = None
    acceptance: Acceptance | None = None
    at_finish: bool = False
    gauge_accept_length: float | None = None


class Engine(Protocol):
    """Stateless: everything it knows is in the arm and in the text it is given."""

    name: str
    health_path: str

    @property
    def info_paths(self) -> tuple[str, ...]:
        """Pages that state the engine's settings; the first that answers goes to `facts`."""
        ...

    def check(self, arm: Arm) -> None:
        """Everything that can be known to fail before a server is started: missing folders, shapes that do not fit, flags.

        Raises:
            CheckpointError: the target or the drafter cannot be served.
            UsageError: the arm asks for something this engine cannot do.
        """
        ...

    def refusal(self, arm: Arm) -> str | None:
        """Why the release that is installed here cannot serve `arm`, although the plan makes sense; None when it can.

        Such an arm is given up before it starts, with this as the reason, and the others are measured.
        """
        ...

    def launch_command(self, arm: Arm, port: int) -> LaunchCommand:
        """The exact command that serves `arm` on 127.0.0.1:`port`.

        Raises:
            UsageError: the arm asks for something this engine cannot do.
        """
        ...

    def parse_metrics(self, exposition: str, time_s: float) -> Counters:
        """Counters from the text of /metrics; several engine labels are summed.

        Raises:
            EngineError: the text is not what this engine prints.
        """
        ...

    def reset_request(self, arm: Arm) -> ServerRequest | None:
        """What empties the prefix cache of a server started for an arm with `resets_cache`; None: this engine has no such cache."""
        ...

    def profile_requests(self, arm: Arm) -> tuple[ServerRequest, ServerRequest]:
        """What starts and what stops the profiler of a server started for an arm with `profile_to`.

        Raises:
            UsageError: this engine has none, or cannot be started with it for this arm.
        """
        ...

    def request_fields(self, arm: Arm, facts: Mapping[str, object]) -> Mapping[str, object]:
        """What every request must say for the engine to report more about its drafts, given what it says of itself."""
        ...

    def log_acceptance(self, arm: Arm, lines: Iterable[str]) -> Acceptance | None:
        """Acceptance from log lines of a window, where this engine's metrics count none; None where they do, or say nothing."""
        ...

    def explain_failure(self, log_tail: Sequence[str], exit_code: int | None) -> str | None:
        """One sentence on a known start-up fault and its remedy, or None when the log shows none that is known."""
        ...

    def facts(self, arm: Arm, log_lines: Sequence[str], metrics: str, info: str = "") -> Mapping[str, object]:
        """What the engine says it really does: dtype, threads, limits, drafter, version. Stored as provenance.

        info: the page of `info_paths`, empty where there is none.
        """
        ...
