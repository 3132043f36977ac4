"""train.yaml read: a `TrainPlan`, or one message that names the file, the line and the key."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel

from breakeven.drafter.training.plan_schema import TrainPlan
from breakeven.errors import PlanError
from breakeven.inputs.checking import check_table
from breakeven.inputs.text import read_text
from breakeven.inputs.yaml_table import parse_yaml_table

__all__ = ["described_keys", "load_train_plan", "parse_train_plan", "plan_changes"]

MAX_BYTES = 100_000
EXPECTED = "a training plan with target, data and out at least, see docs/training.md"
# What may change between two starts of one training: how it is told and kept, never what is learnt.
CHANGEABLE = frozenset({"out", "device", "compiled", "keep_states", "keep_checkpoints", "parallel", "checkpoint_every", "gates"})


def load_train_plan(path: Path) -> TrainPlan:
    """Read and check a plan; paths stay as written.

    Raises:
        PlanError: unreadable, not YAML, or a key or value that makes no sense.
    """
    return parse_train_plan(read_text(path, max_bytes=MAX_BYTES, expected=EXPECTED, error=PlanError), str(path))


def parse_train_plan(text: str, where: str) -> TrainPlan:
    """The plan in `text`; `where` stands in front of messages.

    Raises:
        PlanError: not YAML, or a key or value that makes no sense.
    """
    content, lines = parse_yaml_table(text, where, expected=EXPECTED, error=PlanError)
    return check_table(TrainPlan, content, lines, where, whole="the plan", error=PlanError)


def plan_changes(stored: dict[str, Any], given: TrainPlan) -> list[str]:
    """One line for each key that differs from the run's and may not: a training that goes on must learn the same thing."""
    before, now = dict(_flat(stored)), dict(_flat(given.model_dump(mode="json")))
    return [
        f"{key}: {before.get(key)!r} -> {now.get(key)!r}"
        for key in sorted(before.keys() | now.keys())
        if before.get(key) != now.get(key) and key.partition(".")[0] not in CHANGEABLE
    ]


def described_keys() -> Iterator[tuple[str, str, str]]:
    """Key, default and meaning of everything that train.yaml may hold, in the order of the schema."""
    yield from _described(TrainPlan, "")


def _described(section: type[BaseModel], prefix: str) -> Iterator[tuple[str, str, str]]:
    for name, field in section.model_fields.items():
        inner = _inner(field.annotation)
        if inner is not None:
            yield from _described(inner, f"{prefix}{name}.")
        else:
            default = "required" if field.is_required() else _shown(field.default)
            yield prefix + name, default, field.description or ""


def _shown(value: object) -> str:
    if value is None:
        return "none"
    if isinstance(value, bool):
        return str(value).lower()
    return str(list(value)) if isinstance(value, tuple) else str(value)


def _inner(annotation: Any) -> type[BaseModel] | None:
    for kind in (annotation, *get_args(annotation)):
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            return kind
    return None


def _flat(plan: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, object]]:
    for name, value in plan.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value
