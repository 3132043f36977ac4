"""train.yaml read: a `TrainPlan`, or one message that names the file and the key."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import yaml
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from breakeven.drafter.training.plan_schema import TrainPlan
from breakeven.errors import PlanError

__all__ = ["described_keys", "load_train_plan", "parse_train_plan", "plan_changes"]

MAX_BYTES = 100_000
MAX_SHOWN_ERRORS = 5
EXAMPLE = "docs/training.md"
# What may change between two starts of one training: how it is told and kept, never what is learnt.
CHANGEABLE = frozenset({"out", "device", "compiled", "keep_states", "keep_checkpoints", "parallel", "checkpoint_every", "gates"})


def load_train_plan(path: Path) -> TrainPlan:
    """Read and check a plan; paths stay as written.

    Raises:
        PlanError: unreadable, not YAML, or a key or value that makes no sense.
    """
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise PlanError(f"{path}: cannot be read ({error.strerror}); expected a training plan, see {EXAMPLE}") from error
    if len(data) > MAX_BYTES:
        raise PlanError(f"{path}: more than {MAX_BYTES} bytes; expected a training plan of a few dozen lines, see {EXAMPLE}")
    try:
        return parse_train_plan(data.decode("utf-8"), str(path))
    except UnicodeDecodeError as error:
        raise PlanError(f"{path}: byte {error.start} is not UTF-8; expected a YAML text file") from error


def parse_train_plan(text: str, where: str) -> TrainPlan:
    """The plan in `text`; `where` stands in front of messages.

    Raises:
        PlanError: not YAML, or a key or value that makes no sense.
    """
    try:
        content = yaml.safe_load(text)
    # the reader of a tagged value (`!!bool x`) lets whatever it stumbles over through
    except (yaml.YAMLError, RecursionError, ValueError, LookupError, AttributeError, TypeError) as error:
        mark = getattr(error, "problem_mark", None)
        line = f":{mark.line + 1}" if mark is not None else ""
        raise PlanError(f"{where}{line}: not valid YAML; check indentation and quotes") from error
    if not isinstance(content, dict):
        raise PlanError(f"{where}: holds no table of keys; expected target, data and out at least, see {EXAMPLE}")
    try:
        return TrainPlan.model_validate(content)
    except ValidationError as error:
        details = error.errors(include_url=False)
        messages = [f"{where}: {_message(detail)}" for detail in details[:MAX_SHOWN_ERRORS]]
        if len(details) > MAX_SHOWN_ERRORS:
            messages.append(f"and {len(details) - MAX_SHOWN_ERRORS} more")
        raise PlanError("\n".join(messages)) from error


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


def _message(detail: ErrorDetails) -> str:
    location = [str(part)[:80] for part in detail["loc"]]
    key = ".".join(location)
    section: type[BaseModel] = TrainPlan
    for part in location[:-1]:
        field = section.model_fields.get(part)
        section = (_inner(field.annotation) if field is not None else None) or section
    if detail["type"] == "extra_forbidden":
        known = list(section.model_fields)
        nearest = difflib.get_close_matches(location[-1], known, n=1, cutoff=0.5)
        return f"unknown key {key!r}; " + (f"did you mean {nearest[0]!r}?" if nearest else f"known keys: {', '.join(known)}")
    if detail["type"] == "missing":
        description = section.model_fields[location[-1]].description if location[-1] in section.model_fields else ""
        return f"key {key!r} is missing; expected: {description}"
    if detail["type"] == "value_error":
        return f"{key + ': ' if key else ''}{detail['ctx']['error']}"
    shown = repr(detail["input"])
    return f"{key} is {shown if len(shown) <= 80 else shown[:77] + '...'}; {detail['msg'].replace('Input should be', 'expected')}"


def _flat(plan: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, object]]:
    for name, value in plan.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value
