"""plan.yaml read: from a file to a `Plan` with every path resolved, or one message that names the file, the line and the key."""

from __future__ import annotations

import difflib
import re
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, get_args

import yaml
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from breakeven.checkpoints.folder import open_folder
from breakeven.checkpoints.named_path import named_path
from breakeven.checkpoints.random_head import ensure_random_head
from breakeven.checkpoints.resolve import resolve_model
from breakeven.errors import PlanError
from breakeven.experiment.plan_schema import ArmPlan, Plan

__all__ = ["Plan", "load_plan", "parse_plan", "plan_difference"]

# YAML in pure Python reads about 100 kB a second; the longest plan imaginable has 50 kB
MAX_BYTES = 200_000
MAX_NODES = 20_000
MAX_SHOWN_ERRORS = 5
EXAMPLE = "examples/smollm2-laptop/plan.yaml"
RANDOM = "random"
# What may change between two starts of one run: budgets and patience, never what is measured.
CHANGEABLE = frozenset({"launches.max", "start_timeout_s"})

_EXPECTED = {
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "finite_number": "a finite number",
    "string_type": "text (put numbers, yes and no in quotes)",
    "bool_type": "true or false",
    "dict_type": "a table of keys",
    "model_type": "a table of keys",
    "tuple_type": "a list",
}

Location = tuple[str | int, ...]
Lines = Mapping[Location, int]


def load_plan(path: Path) -> Plan:
    """Read, check and resolve a plan: models become folders, `drafter: random` a written head, prompts an absolute path.

    Raises:
        PlanError: the file cannot be read, or a key or value in it makes no sense.
        CheckpointError: a model that it names is not on this machine.
    """
    try:
        with path.open("rb") as file:
            # a device or a pipe has no size to look at first, and no end
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise PlanError(f"{path}: cannot be read ({error.strerror}); expected a plan, see {EXAMPLE}") from error
    if len(data) > MAX_BYTES:
        raise PlanError(f"{path}: more than {MAX_BYTES} bytes; expected a plan, a text file of a few kB (see {EXAMPLE})")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise PlanError(f"{path}: byte {error.start} is not UTF-8; expected a YAML text file") from error
    folder = path.absolute().parent
    return _resolved(parse_plan(text, str(path), default_name=_run_name(folder.name)), folder)


def parse_plan(text: str, where: str, *, default_name: str = "run") -> Plan:
    """The plan as written, paths not resolved. `where` stands in front of messages.

    Raises:
        PlanError: not YAML, or a key or value that makes no sense.
    """
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
        lines = dict(_lines(root, where)) if root is not None else {}
        content = yaml.safe_load(text)
    # the reader of a tagged value (`!!bool x`) lets whatever it stumbles over through
    except (yaml.YAMLError, RecursionError, ValueError, LookupError, AttributeError, TypeError) as error:
        raise PlanError(_yaml_message(error, where)) from error
    if not isinstance(content, dict):
        raise PlanError(f"{where}: holds {_shown(content)}; expected keys such as target, load and arms")
    content.setdefault("name", default_name)
    try:
        return Plan.model_validate(content)
    except ValidationError as error:
        details = error.errors(include_url=False)
        messages = [_message(detail, lines, where) for detail in details[:MAX_SHOWN_ERRORS]]
        if len(details) > MAX_SHOWN_ERRORS:
            messages.append(f"and {len(details) - MAX_SHOWN_ERRORS} more")
        raise PlanError("\n".join(messages)) from error


def plan_difference(stored: Plan, given: Plan) -> list[str]:
    """One line for each key that differs and may not, as `key: stored -> given`; empty when a run can go on with `given`."""
    before, now = dict(_flat(stored)), dict(_flat(given))
    keys = [*before, *(key for key in now if key not in before)]
    return [
        f"{key}: {_shown(before.get(key))} -> {_shown(now.get(key))}"
        for key in keys
        if before.get(key) != now.get(key) and key not in CHANGEABLE
    ]


def _run_name(folder_name: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]+", "-", folder_name).strip("-._")[:64] or "run"


def _resolved(plan: Plan, base: Path) -> Plan:
    launched = any(arm.url is None and (arm.engine or plan.engine) != "fake" for arm in plan.arm_plans.values())
    target = resolve_model(plan.target, base) if plan.target is not None and launched else None
    arms = {}
    for name, arm in plan.arm_plans.items():
        speculation = arm.speculation
        if speculation is not None and speculation.drafter is not None and target is not None and arm.url is None:
            random = speculation.drafter == RANDOM
            drafter = (
                ensure_random_head(open_folder(target), seed=plan.seed) if random else resolve_model(speculation.drafter, base)
            )
            speculation = speculation.model_copy(update={"drafter": str(drafter)})
        arms[name] = arm.model_copy(update={"speculation": speculation, "executable": _program(arm.executable, base)})
    prompts = plan.workload.prompts
    if prompts != "builtin":
        prompts = str(named_path(prompts, base))
    return plan.model_copy(
        update={
            "target": str(target) if target is not None else plan.target,
            "executable": _program(plan.executable, base),
            "arm_plans": arms,
            "workload": plan.workload.model_copy(update={"prompts": prompts}),
        }
    )


def _program(executable: str | None, base: Path) -> str | None:
    """A path relative to the plan becomes absolute; a bare name is left for the PATH."""
    if executable is None:
        return None
    path = named_path(executable, base)
    if "/" not in executable and not path.exists():
        return shutil.which(executable) or executable
    # not resolved: an environment's Python is a link, and what it points to is another environment
    return str(path)


def _lines(root: yaml.Node, where: str) -> Iterator[tuple[Location, int]]:
    """The line of every key and list item, 1-based. Refuses doubled keys, which YAML readers silently drop."""
    waiting: list[tuple[Location, yaml.Node]] = [((), root)]
    for _ in range(MAX_NODES):
        if not waiting:
            return
        location, node = waiting.pop()
        if isinstance(node, yaml.MappingNode):
            seen: dict[str, int] = {}
            for key_node, value_node in node.value:
                key, line = str(key_node.value), key_node.start_mark.line + 1
                if key in seen and key != "<<":
                    raise PlanError(f"{where}:{line}: key {key!r} stands on line {seen[key]} too; expected it once")
                seen[key] = line
                yield (*location, key), line
                # a merged table's keys count as written where they stand
                waiting.append((location if key == "<<" else (*location, key), value_node))
        elif isinstance(node, yaml.SequenceNode):
            for index, item in enumerate(node.value):
                yield (*location, index), item.start_mark.line + 1
                waiting.append(((*location, index), item))
    raise PlanError(f"{where}: more than {MAX_NODES} entries (aliases that repeat each other?); expected a plan of a few dozen")


def _message(detail: ErrorDetails, lines: Lines, where: str) -> str:
    location, kind = tuple(detail["loc"]), detail["type"]
    # pydantic adds the name of a union's member, which stands in no file
    while location and location not in lines and kind != "missing":
        location = location[:-1]
    line = next((lines[location[:end]] for end in range(len(location), 0, -1) if location[:end] in lines), None)
    prefix = f"{where}:{line}" if line is not None else where
    key = ".".join(map(str, location))
    inside = ".".join(map(str, location[:-1])) or "the plan"
    if kind == "extra_forbidden":
        return f"{prefix}: unknown key {str(location[-1])[:80]!r} in {inside}; {_nearest(location)}"
    if kind == "missing":
        return f"{prefix}: key {str(location[-1])!r} is missing in {inside}; {_description(location)}"
    if kind == "value_error":
        return f"{prefix}: {key + ': ' if key else ''}{detail['ctx']['error']}"
    if detail["loc"] and detail["loc"][-1] == "[key]":
        return f"{prefix}: {key} has a key that is no text ({_shown(detail['input'])}); put yes, no, on, off and numbers in quotes"
    if kind == "too_short":
        return f"{prefix}: {key} is empty; expected at least one entry"
    expected = f"expected {_EXPECTED[kind]}" if kind in _EXPECTED else detail["msg"].replace("Input should be", "expected")
    return f"{prefix}: {key} is {_shown(detail['input'])}; {expected}"


def _nearest(location: Location) -> str:
    known = list(_fields(_section(location)))
    nearest = difflib.get_close_matches(str(location[-1]), known, n=1, cutoff=0.5)
    return f"did you mean {nearest[0]!r}?" if nearest else f"known keys: {', '.join(known)}"


def _description(location: Location) -> str:
    field = _fields(_section(location)).get(str(location[-1]))
    return f"expected: {field}" if field else f"see {EXAMPLE}"


def _section(location: Location) -> type[BaseModel]:
    """The model of the table that holds the key at `location`."""
    section: type[BaseModel] = Plan
    for part in location[:-1]:
        if section is Plan and part == "arms":
            section = ArmPlan
        for name, field in section.model_fields.items():
            if part == (field.alias or name):
                inner = [kind for kind in _types(field.annotation) if isinstance(kind, type) and issubclass(kind, BaseModel)]
                section = inner[0] if inner else section
                break
    return section


def _types(annotation: Any) -> Iterator[Any]:
    yield annotation
    for argument in get_args(annotation):
        yield from _types(argument)


def _fields(section: type[BaseModel]) -> dict[str, str]:
    return {field.alias or name: field.description or "" for name, field in section.model_fields.items()}


def _flat(plan: Plan) -> Iterator[tuple[str, object]]:
    waiting: list[tuple[str, object]] = [("", plan.model_dump(mode="json", by_alias=True))]
    while waiting:
        key, value = waiting.pop(0)
        if isinstance(value, dict) and value:
            waiting.extend((f"{key}.{name}" if key else name, inner) for name, inner in value.items())
        else:
            yield key, value


def _yaml_message(error: Exception, where: str) -> str:
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        mark = error.problem_mark
        return (
            f"{where}:{mark.line + 1}: not valid YAML at column {mark.column + 1} ({error.problem}); check indentation and quotes"
        )
    return f"{where}: not valid YAML ({type(error).__name__}: {str(error)[:200]}); check tags (!!) and quotes"


def _shown(value: object) -> str:
    if value is None:
        return "nothing"
    if isinstance(value, (dict, list)):
        return "a table" if isinstance(value, dict) else "a list"
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
