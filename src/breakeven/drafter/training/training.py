"""From a plan to a drafter's folder: everything that training needs is opened, checked and put together here."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor

from breakeven.checkpoints.folder import ModelFolder, open_folder
from breakeven.checkpoints.resolve import resolve_model
from breakeven.drafter.capture.capture import Capture
from breakeven.drafter.data.reading import ReadReport, read_samples
from breakeven.drafter.data.samples import Sample
from breakeven.drafter.data.target_files import TargetFiles
from breakeven.drafter.data.vocabulary import choose_vocabulary, count_tokens, required_tokens
from breakeven.drafter.export.reading import read_head
from breakeven.drafter.export.writing import write_head
from breakeven.drafter.model.eagle3 import Eagle3Config, Eagle3Weights
from breakeven.drafter.training.corpus import Corpus
from breakeven.drafter.training.head_shape import head_config
from breakeven.drafter.training.held_out import held_out_prompts, prepare_judge
from breakeven.drafter.training.kernel_choice import choose_kernels
from breakeven.drafter.training.kernels import Kernels
from breakeven.drafter.training.module import Eagle3Module, power_of_two_scales
from breakeven.drafter.training.objective_fast import FastObjective
from breakeven.drafter.training.order import Order
from breakeven.drafter.training.plan_schema import HeadPlan, TrainPlan
from breakeven.drafter.training.processes import Processes
from breakeven.drafter.training.rows import known_tokens
from breakeven.drafter.training.states_source import StatesSource
from breakeven.drafter.training.trainer import Progress, Trainer
from breakeven.errors import PlanError, UsageError

__all__ = ["TrainingResult", "train"]

DRAFTER, RESULT = "drafter", "training.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingResult:
    """What was trained, and how far that is known to draft. Accept lengths are held-out, offline and without looping answers."""

    drafter: str
    num_steps: int
    best_step: int
    accept_length: float | None
    accept_length_low: float | None
    accept_length_high: float | None
    num_draft_tokens: int
    num_samples: int
    num_tokens: int
    num_answer_tokens: int
    num_cut: int
    draft_vocab_size: int
    coverage: float
    notes: tuple[str, ...]

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
    device = processes.device
    half = plan.precision == "bfloat16" or (plan.precision == "auto" and device.type == "cuda")
    dtype = torch.bfloat16 if half else torch.float32
    target, data, out = resolve_model(plan.target, base), base / plan.data, base / plan.out
    folder, files = open_folder(target), TargetFiles.from_folder(target)
    report = ReadReport()
    longest = min(plan.max_sample_tokens or plan.batches.tokens, plan.batches.tokens, files.context_length)
    samples = list(
        read_samples(data, split="train", target=files, max_tokens=longest, keep_looping=plan.keep_looping, report=report)
    )
    prompts = held_out_prompts(data, files, plan.evaluation, plan.seed)
    notes = [f"{count} samples left out: {reason}" for reason, count in report.left_out.items() if "other side" not in reason]

    config, target_ids, started = _head(plan, base, folder, files, samples)
    known = known_tokens(target_ids.numpy(), config.shape.vocab_size)
    corpus = Corpus(samples, known, plan.objective.steps, plan.batches.tokens)
    say(
        f"{len(samples)} samples, {corpus.num_tokens} tokens, {corpus.num_answer_tokens} of them answers; "
        f"{report.num_cut} cut to {longest} tokens; a draft vocabulary of {len(target_ids)} covers {corpus.coverage:.2%} of answers"
    )

    capture = Capture.from_folder(target, config.auxiliary_layers, device=device, dtype=dtype)
    scales = processes.tell_all(_scales(plan, corpus, config, capture))
    drafter = Eagle3Module(config, target_ids, capture.embed_weight, scales)
    target_head = capture.head_weight(target_ids)
    if started is None:
        drafter.initialise(target_head.float(), plan.seed)
    else:
        drafter.start_from(started)
    objective = FastObjective(drafter, target_head, plan.objective.steps, dtype, Kernels())
    if device.type == "cuda" and plan.compiled:
        say("Compiling, and comparing the compiled kernels with plain ones (a minute or two)")
        objective.kernels = choose_kernels(objective, plan.batches.tokens, round(float(corpus.lengths.mean())))
        notes += objective.kernels.notes
    judge = None
    if prompts and processes.rank == 0:
        say(f"The target answers {len(prompts)} held-out prompts, on which checkpoints are judged")
        judge = prepare_judge(target, prompts, samples, capture, config, plan.evaluation)
    elif not prompts:
        notes.append("no held-out prompts in the data: the last weights are kept, and their accept length is not known")
    for note in notes:
        say(note)

    trainer = Trainer(
        plan=plan,
        corpus=corpus,
        # other processes meet other samples in the next epoch, so only one process alone can keep them all
        states=StatesSource(capture, corpus, plan.batches.tokens, keep=plan.keep_states == "auto" and processes.count == 1),
        objective=objective,
        folder=out,
        processes=processes,
        evaluate=None if judge is None else lambda weights: judge(_in(weights, dtype)),
        tell=tell,
        data_name=str(plan.data),
    )
    trained = trainer.run()
    accept = trained.accept_length
    result = TrainingResult(
        drafter=str(out / DRAFTER),
        num_steps=trained.num_steps,
        best_step=trained.best_step,
        accept_length=None if accept is None else accept.mean,
        accept_length_low=None if accept is None else accept.low,
        accept_length_high=None if accept is None else accept.high,
        num_draft_tokens=plan.evaluation.num_draft_tokens,
        num_samples=len(samples),
        num_tokens=corpus.num_tokens,
        num_answer_tokens=corpus.num_answer_tokens,
        num_cut=report.num_cut,
        draft_vocab_size=len(target_ids),
        coverage=corpus.coverage,
        notes=tuple(notes),
    )
    if processes.rank == 0:
        best = Eagle3Module(config, target_ids, drafter.embed)
        best.restore(load_file(trained.best / "weights.safetensors"))
        weights = best.to_weights()
        shutil.rmtree(out / DRAFTER, ignore_errors=True)
        write_head(
            config,
            weights.to(torch.device("cpu")),
            folder,
            out / DRAFTER,
            training={"plan": plan.model_dump(mode="json"), "result": result.as_json()},
            metrics=None if judge is None else judge.evaluation(_in(weights, dtype)),
        )
        (out / RESULT).write_text(json.dumps(result.as_json(), indent=2) + "\n", encoding="utf-8")
    return result


def _head(
    plan: TrainPlan, base: Path, target: ModelFolder, files: TargetFiles, samples: Sequence[Sample]
) -> tuple[Eagle3Config, Tensor, Eagle3Weights | None]:
    """The head's shape, the target ids of its draft vocabulary [W], and the weights it starts from, if it does."""
    if plan.start_from is not None:
        if plan.head != HeadPlan():
            raise PlanError("start_from brings its own head; remove the keys under head")
        given = read_head(resolve_model(plan.start_from, base), target)
        return given.config, given.weights.target_ids, given.weights
    config = head_config(target, plan.head)
    counts = count_tokens(samples, config.shape.vocab_size)
    chosen = choose_vocabulary(counts, config.draft_vocab_size, required_tokens(files, counts))
    return config, torch.from_numpy(chosen), None


def _scales(plan: TrainPlan, corpus: Corpus, config: Eagle3Config, capture: Capture) -> tuple[float, float, float]:
    """Judged on the samples of the first batch, so the same whenever the same plan starts."""
    if config.fc_norm:
        return 1.0, 1.0, 1.0
    _, indices = next(Order(corpus.lengths, plan.batches.tokens, 1, plan.seed).from_batch(0))
    packed = capture.capture([corpus.samples[index] for index in indices])
    return power_of_two_scales(packed.auxiliary, packed.loss_mask)


def _in(weights: Eagle3Weights, dtype: torch.dtype) -> Eagle3Weights:
    """Checkpoints are judged in the type they will be served in."""
    fields = {name: getattr(weights, name) for name in Eagle3Weights.__slots__}
    return Eagle3Weights(
        **{
            name: tensor.to(dtype) if tensor is not None and tensor.is_floating_point() else tensor
            for name, tensor in fields.items()
        }
    )
