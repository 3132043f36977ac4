"""From a plan to a drafter's folder: everything that training needs is opened, checked and put together here."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from breakeven.drafter.export.writing import write_head
from breakeven.drafter.folder_lock import LOCK, folder_lock
from breakeven.drafter.model.eagle3 import Eagle3Weights
from breakeven.drafter.training.checkpoint import newest_checkpoint, read_state
from breakeven.drafter.training.held_out import judged_on, prepare_judge
from breakeven.drafter.training.kept import refuse_other_plan
from breakeven.drafter.training.kernel_choice import choose_kernels
from breakeven.drafter.training.module import Eagle3Module
from breakeven.drafter.training.opening import DRAFTER, Parts, open_parts
from breakeven.drafter.training.plan_schema import TrainPlan
from breakeven.drafter.training.processes import Processes
from breakeven.drafter.training.progress import Progress
from breakeven.drafter.training.states_source import StatesSource
from breakeven.drafter.training.trainer import Trainer, refuse_uneven
from breakeven.errors import UsageError
from breakeven.whole import write_whole

__all__ = ["TrainingResult", "train"]

RESULT = "training.json"
BUSY = {"doing": "training", "advice": "name another folder in out"}


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingResult:
    """What was trained, and how far that is known to draft. Accept lengths are held-out and offline, over `num_held_out` prompts.

    without_loops: answers that repeat themselves are left out, as they are wherever others are left.
    """

    drafter: str
    num_steps: int
    best_step: int
    accept_length: float | None
    accept_length_low: float | None
    accept_length_high: float | None
    num_draft_tokens: int
    num_held_out: int
    without_loops: bool
    num_samples: int
    num_tokens: int
    num_answer_tokens: int
    num_cut: int
    draft_vocab_size: int
    coverage: float
    notes: tuple[str, ...]
    doubts: tuple[str, ...]

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def train(plan: TrainPlan, base: Path, tell: Callable[[Progress], None], say: Callable[[str], None]) -> TrainingResult:
    """Train as `plan` says, from where an earlier start of it stopped; `base` is the folder that its paths are relative to.

    `say` is told what is worth knowing before and after; both callbacks are called on the first process only.

    Raises:
        BreakevenError: something in the plan, the data or the target does not fit; see the modules that check it.
    """
    if plan.device == "cuda" and not torch.cuda.is_available():
        raise UsageError("device is cuda, and this machine has no GPU that torch can use; take device: auto or cpu")
    device_type = "cuda" if plan.device != "cpu" and torch.cuda.is_available() else "cpu"
    processes = Processes.start(device_type)
    try:
        first = processes.rank == 0
        return _train(plan, base, processes, tell if first else lambda progress: None, say if first else lambda line: None)
    finally:
        processes.stop()


def _train(
    plan: TrainPlan, base: Path, processes: Processes, tell: Callable[[Progress], None], say: Callable[[str], None]
) -> TrainingResult:
    _tell_earlier(plan, base / plan.out, say, is_first=processes.rank == 0)
    refuse_uneven(plan, processes)  # before the target is opened and answers
    parts = open_parts(plan, base, processes, say)
    lock = folder_lock(parts.out, **BUSY)
    with lock if processes.rank == 0 else nullcontext():
        return _trained(parts, processes, tell, say)


def _trained(parts: Parts, processes: Processes, tell: Callable[[Progress], None], say: Callable[[str], None]) -> TrainingResult:
    plan = parts.plan
    config, corpus, capture, dtype, out = parts.config, parts.corpus, parts.capture, parts.dtype, parts.out
    notes = list(parts.notes)
    objective = parts.fresh_objective(dtype)
    drafter = objective.drafter
    if processes.device.type == "cuda" and plan.compiled:
        say("Compiling, and comparing the compiled kernels with plain ones (a minute or two)")
        objective.kernels = choose_kernels(objective, plan.batches.tokens, round(float(corpus.lengths.mean())))
        notes += objective.kernels.notes
        if plan.states is None:
            notes += capture.compile_for(plan.batches.tokens)
    judge = None
    if parts.prompts and processes.rank == 0:
        say(f"The target answers {len(parts.prompts)} held-out prompts, on which checkpoints are judged")
        judge = prepare_judge(parts.target, parts.prompts, parts.samples, capture, config, plan.evaluation, say)
    elif not parts.prompts:
        notes.append("no held-out prompts in the data: the last weights are kept, and their accept length is not known")
    for note in notes:
        say(note)

    trainer = Trainer(
        plan=plan,
        corpus=corpus,
        # other processes meet other samples in the next epoch, so only one process alone can keep them all
        states=StatesSource(parts.source, corpus, plan.batches.tokens, keep=plan.keep_states == "auto" and processes.count == 1),
        objective=objective,
        folder=out,
        processes=processes,
        evaluate=None if judge is None else lambda weights: judge(_in(weights, dtype)),
        tell=tell,
        data_name=str(plan.data),
        data_sha256=parts.data_sha256(),
    )
    trained = trainer.run()
    capture.settle()
    accept = trained.accept_length
    weights, evaluation = None, None
    if processes.rank == 0:
        best = Eagle3Module(config, parts.target_ids, drafter.embed)
        best.restore(load_file(trained.best / "weights.safetensors"))
        weights = best.to_weights()
        evaluation = None if judge is None else judge.evaluation(_in(weights, dtype))
    result = TrainingResult(
        drafter=str(out / DRAFTER),
        num_steps=trained.num_steps,
        best_step=trained.best_step,
        accept_length=None if accept is None else accept.mean,
        accept_length_low=None if accept is None else accept.low,
        accept_length_high=None if accept is None else accept.high,
        num_draft_tokens=plan.evaluation.num_draft_tokens,
        num_held_out=0 if evaluation is None else judged_on(evaluation).num_prompts,
        without_loops=evaluation is not None and judged_on(evaluation) is evaluation.without_loops,
        num_samples=len(parts.samples),
        num_tokens=corpus.num_tokens,
        num_answer_tokens=corpus.num_answer_tokens,
        num_cut=parts.num_cut,
        draft_vocab_size=len(parts.target_ids),
        coverage=corpus.coverage,
        notes=tuple(notes),
        doubts=() if evaluation is None else evaluation.doubts,
    )
    if weights is not None:
        write_head(
            config,
            weights.to(torch.device("cpu")),
            parts.folder,
            out / DRAFTER,
            training={
                "data_sha256": parts.data_sha256(),
                "plan": plan.model_dump(mode="json"),
                "result": result.as_json(),
            },
            metrics=evaluation,
            replaces=True,
        )
        write_whole(out / RESULT, json.dumps(result.as_json(), indent=2) + "\n")
    return result


def _tell_earlier(plan: TrainPlan, out: Path, say: Callable[[str], None], *, is_first: bool) -> None:
    """Says where an earlier start stopped, and refuses another plan, before anything that takes long.

    Raises:
        PlanError, StoreError: the folder holds a training of another plan, or a damaged checkpoint, or somebody trains there.
    """
    if is_first and (out / LOCK).exists():
        with folder_lock(out, **BUSY):
            pass  # taken for good once everything is open; a target may take minutes to load
    if (newest := newest_checkpoint(out)) is not None:
        step, facts = read_state(newest)
        refuse_other_plan(out, step, facts, plan)
        say(f"{out}: going on from step {step}")


def _in(weights: Eagle3Weights, dtype: torch.dtype) -> Eagle3Weights:
    """Checkpoints are judged in the type they will be served in."""
    fields = {name: getattr(weights, name) for name in Eagle3Weights.__slots__}
    return Eagle3Weights(
        **{
            name: tensor.to(dtype) if tensor is not None and tensor.is_floating_point() else tensor
            for name, tensor in fields.items()
        }
    )
