"""`breakeven gates PLAN`: what must hold before and after a training."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from breakeven.cli.escaping import print_message

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from breakeven.drafter.gates.plan_gates import CountServed
    from breakeven.drafter.gates.result import GatesReport
    from breakeven.drafter.training.plan_schema import GatesPlan, TrainPlan

__all__ = ["gates", "raise_if_stopped", "run_after", "run_before"]

FOLDER = "gates"


def gates(
    plan: Annotated[Path, typer.Argument(help="The training plan, train.yaml; its key gates says which.")],
    after: Annotated[bool, typer.Option("--after", help="Judge the drafter that the plan has trained, not its training.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print what every gate found as JSON (docs/training-gates.md).")] = False,
) -> None:
    """Find what is broken in a training before it costs anything, or in its drafter before it is shipped: stops at the first
    fault."""
    from rich.console import Console

    from breakeven.checkpoints.named_path import without_detours
    from breakeven.drafter.training.plan import load_train_plan

    messages = Console(stderr=True)
    chosen, base = load_train_plan(plan), without_detours(plan.absolute().parent)
    run = run_after if after else run_before
    report = run(chosen, base, lambda line: print_message(messages, line))
    if as_json:
        typer.echo(report.model_dump_json(indent=2))
    raise_if_stopped(report)
    if not as_json:
        typer.echo("every gate that was run has passed")


def run_before(plan: TrainPlan, base: Path, say: Callable[[str], None]) -> GatesReport:
    """The gates before a training."""
    from breakeven.drafter.gates.plan_gates import gates_before, open_for_gates
    from breakeven.drafter.gates.running import run_gates

    parts = open_for_gates(plan, base, say)
    return _kept(
        run_gates(gates_before(parts, _chosen(plan), say), tell=lambda result: say(result.line)), parts.out / FOLDER / "before.json"
    )


def run_after(plan: TrainPlan, base: Path, say: Callable[[str], None]) -> GatesReport:
    """The gates on the folder that a training wrote."""
    from breakeven.drafter.gates.plan_gates import gates_after, open_for_gates
    from breakeven.drafter.gates.running import run_gates

    parts = open_for_gates(plan, base, say)
    served = _served(plan, _chosen(plan), base, say)
    return _kept(
        run_gates(gates_after(parts, _chosen(plan), served), tell=lambda result: say(result.line)),
        parts.out / FOLDER / "after.json",
    )


def _kept(report: GatesReport, file: Path) -> GatesReport:
    from breakeven.whole import write_whole

    file.parent.mkdir(parents=True, exist_ok=True)
    write_whole(file, report.model_dump_json(indent=2) + "\n")
    return report


def raise_if_stopped(report: GatesReport) -> None:
    """
    Raises:
        GateFailed: a gate did not pass; names the stage at fault and what to do.
    """
    from breakeven.errors import GateFailed

    stop = report.first_stop
    if stop is not None:
        raise GateFailed(f"gate {stop.gate}, stage {stop.stage}: {stop.summary}. To mend it: {stop.remedy}")


def _chosen(plan: TrainPlan) -> GatesPlan:
    from breakeven.drafter.training.plan_schema import GatesPlan

    return plan.gates if plan.gates is not None else GatesPlan()


def _served(plan: TrainPlan, chosen: GatesPlan, base: Path, say: Callable[[str], None]) -> CountServed | None:
    """How the engine that the plan names counts prompts; None where it names none."""
    if chosen.served_by is None:
        return None
    from breakeven.checkpoints.resolve import resolve_model
    from breakeven.drafter.gates.served_gate import ServedCounts
    from breakeven.drafter.training.opening import DRAFTER
    from breakeven.engines.base import Arm, Speculation
    from breakeven.experiment.counted import count_answers

    out = base / plan.out
    arm = Arm(
        name="gate",
        engine=chosen.served_engine,
        target=resolve_model(plan.target, base),
        executable=(base / chosen.served_by),
        # only in float32 must an engine's counts equal those made here
        dtype="float32",
        speculation=Speculation(
            method="eagle3", num_draft_tokens=plan.evaluation.num_draft_tokens, drafter=(out / DRAFTER).absolute()
        ),
        max_running_requests=1,
        extra_flags=chosen.served_flags,
        env=chosen.served_env,
    )

    def count(prompts: Sequence[Sequence[int]], max_tokens: int, stop_ids: Sequence[int]) -> Sequence[ServedCounts]:
        counted = count_answers(arm, prompts, max_tokens=max_tokens, stop_ids=stop_ids, folder=out / "served", told=say)
        return [
            ServedCounts(
                token_ids=each.token_ids,
                num_rounds=each.num_rounds,
                num_accepted=each.num_accepted,
                accepted_per_position=each.accepted_per_position,
            )
            for each in counted
        ]

    return count
