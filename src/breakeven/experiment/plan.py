"""plan.yaml read: from a file to a `Plan` with every path resolved, or one message that names the file, the line and the key."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from breakeven.checkpoints.folder import open_folder
from breakeven.checkpoints.named_path import named_path, without_detours
from breakeven.checkpoints.random_head import ensure_random_head
from breakeven.checkpoints.resolve import resolve_model
from breakeven.errors import PlanError
from breakeven.experiment.plan_schema import Plan
from breakeven.inputs.checking import check_table, shown
from breakeven.inputs.flat import flat
from breakeven.inputs.text import read_text
from breakeven.inputs.yaml_table import parse_yaml_table

__all__ = ["Plan", "load_plan", "parse_plan", "plan_difference"]

# YAML in pure Python reads about 100 kB a second; the longest plan imaginable has 50 kB
MAX_BYTES = 200_000
EXPECTED = "a plan with keys such as target, load and arms, see examples/smollm2-laptop/plan.yaml"
RANDOM = "random"
# What may change between two starts of one run: budgets and patience, never what is measured.
CHANGEABLE = frozenset({"launches.max", "start_timeout_s"})


def load_plan(path: Path) -> Plan:
    """Read, check and resolve a plan: models become folders, `drafter: random` a written head, prompts an absolute path.

    Raises:
        PlanError: the file cannot be read, or a key or value in it makes no sense.
        CheckpointError: a model that it names is not on this machine.
    """
    if path.is_dir():
        inside = path / "plan.yaml"
        raise PlanError(f"{path}: a folder; {f'its plan is {inside}' if inside.is_file() else f'expected {EXPECTED}'}")
    text = read_text(path, max_bytes=MAX_BYTES, expected=EXPECTED, error=PlanError)
    folder = without_detours(path.absolute().parent)
    return _resolved(parse_plan(text, str(path), default_name=_run_name(folder.name)), folder)


def parse_plan(text: str, where: str, *, default_name: str = "run") -> Plan:
    """The plan as written, paths not resolved. `where` stands in front of messages.

    Raises:
        PlanError: not YAML, or a key or value that makes no sense.
    """
    content, lines = parse_yaml_table(text, where, expected=EXPECTED, error=PlanError)
    content.setdefault("name", default_name)
    return check_table(Plan, content, lines, where, whole="the plan", error=PlanError)


def plan_difference(stored: Plan, given: Plan) -> list[str]:
    """One line for each key that differs and may not, as `key: stored -> given`; empty when a run can go on with `given`."""
    before, now = (dict(flat(plan.model_dump(mode="json", by_alias=True))) for plan in (stored, given))
    keys = [*before, *(key for key in now if key not in before)]
    return [
        f"{key}: {shown(before.get(key))} -> {shown(now.get(key))}"
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
