"""Every error a user can meet. The command line catches `BreakevenError` once and exits with its code.

BreakevenError                exit code 2: the user can mend the input
├── UsageError                a flag or argument that makes no sense
├── PlanError                 plan.yaml: unknown key, wrong type, impossible combination
├── PromptsError              prompts file: unreadable or broken lines
├── DataError                 training data: broken lines, another target's answers, nothing to learn from
├── CheckpointError           model or drafter folder: missing, truncated, wrong shape
├── ReportedError             a table of reported figures that cannot be read
├── GateFailed                a training that must not go on, or a head that must not be shipped; exit code 1
├── StoreError                run folder: newer schema, locked by another run, damaged, disk full
└── EngineError               exit code 3: a server did not start, died or misbehaved
    ├── LaunchError           it never became ready (carries the last lines of its log)
    └── EngineDied            it was ready and then went away

A message says what was found, what was expected and what to do next.
"""

from __future__ import annotations

__all__ = [
    "BreakevenError",
    "CheckpointError",
    "DataError",
    "EngineDied",
    "EngineError",
    "GateFailed",
    "LaunchError",
    "PlanError",
    "PromptsError",
    "ReportedError",
    "StoreError",
    "UsageError",
]


class BreakevenError(Exception):
    """Base of the tree. `exit_code` is what the command line exits with."""

    exit_code = 2


class UsageError(BreakevenError):
    pass


class PlanError(BreakevenError):
    pass


class PromptsError(BreakevenError):
    pass


class DataError(BreakevenError):
    pass


class CheckpointError(BreakevenError):
    pass


class ReportedError(BreakevenError):
    pass


class GateFailed(BreakevenError):
    exit_code = 1


class StoreError(BreakevenError):
    pass


class EngineError(BreakevenError):
    exit_code = 3


class LaunchError(EngineError):
    """A server that did not become ready. `log_tail` holds the last lines it wrote."""

    def __init__(self, message: str, *, log_tail: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.log_tail = log_tail


class EngineDied(EngineError):
    """A server that was ready and went away. `log_tail` holds the last lines it wrote."""

    def __init__(self, message: str, *, log_tail: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.log_tail = log_tail
