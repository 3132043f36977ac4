"""What a training is made of, opened and checked from its plan: data, target, vocabulary, head and objective."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from breakeven.checkpoints.folder import ModelFolder, fingerprint, open_folder
from breakeven.checkpoints.resolve import resolve_model
from breakeven.drafter.capture.capture import Capture
from breakeven.drafter.capture.stored import StoredStates
from breakeven.drafter.data.reading import ReadReport, read_samples
from breakeven.drafter.data.samples import Sample
from breakeven.drafter.data.target_files import TargetFiles
from breakeven.drafter.data.vocabulary import choose_vocabulary, count_tokens, coverage, required_tokens
from breakeven.drafter.evaluation.prompts import RenderedPrompt
from breakeven.drafter.export.reading import read_head
from breakeven.drafter.model.eagle3 import Eagle3Config, Eagle3Weights
from breakeven.drafter.training.corpus import Corpus
from breakeven.drafter.training.head_shape import head_config
from breakeven.drafter.training.held_out import held_out_prompts
from breakeven.drafter.training.kernels import Kernels
from breakeven.drafter.training.module import Eagle3Module, power_of_two_scales
from breakeven.drafter.training.objective_fast import FastObjective
from breakeven.drafter.training.order import Order
from breakeven.drafter.training.plan_schema import HeadPlan, TrainPlan
from breakeven.drafter.training.processes import Processes
from breakeven.drafter.training.rows import known_tokens
from breakeven.drafter.training.states_source import CaptureStates
from breakeven.errors import DataError, PlanError

__all__ = ["DRAFTER", "Parts", "open_parts"]

DRAFTER = "drafter"


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """Everything but the loop. `target_ids` [W] is the draft vocabulary, `started` the head that training goes on from.

    prompts: the held-out ones, that nothing here trains on. source: where training's states come from: `capture`, or a store of
    states. scales: of the three auxiliary states. num_cut: samples cut to the
    batch.
    """

    plan: TrainPlan
    target: Path
    data: Path
    out: Path
    folder: ModelFolder
    files: TargetFiles
    samples: Sequence[Sample]
    prompts: Sequence[RenderedPrompt]
    config: Eagle3Config
    target_ids: Tensor
    started: Eagle3Weights | None
    corpus: Corpus
    capture: Capture
    source: CaptureStates
    scales: tuple[float, float, float]
    dtype: torch.dtype
    num_cut: int
    notes: tuple[str, ...]

    def data_sha256(self) -> str:
        """Of the training file, for the provenance of what was trained on it.

        Raises:
            DataError: it has gone since.
        """
        try:
            with self.data.open("rb") as file:
                return hashlib.file_digest(file, "sha256").hexdigest()
        except OSError as error:
            raise DataError(
                f"{self.data}: gone while it was trained on ({error.strerror}); keep training data where they are"
            ) from error

    def fresh_objective(self, dtype: torch.dtype) -> FastObjective:
        """A head as it is before the first step, with its objective computed in `dtype` by plain kernels."""
        drafter = Eagle3Module(self.config, self.target_ids, self.capture.embed_weight, self.scales)
        target_head = self.capture.head_weight(self.target_ids)
        if self.started is None:
            drafter.initialise(target_head.float(), self.plan.seed)
        else:
            drafter.start_from(self.started)
        return FastObjective(drafter, target_head, self.plan.objective.steps, dtype, Kernels())


def open_parts(plan: TrainPlan, base: Path, processes: Processes, say: Callable[[str], None]) -> Parts:
    """Read and check all that `plan` names; `base` is the folder that its paths are relative to.

    Raises:
        BreakevenError: something in the plan, the data or the target does not fit; see the modules that check it.
    """
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
    held_out = read_samples(data, split="held_out", target=files, max_tokens=longest, keep_looping=plan.keep_looping)
    covered = coverage(count_tokens(held_out, config.shape.vocab_size), target_ids.numpy())
    say(
        f"{len(samples)} samples, {corpus.num_tokens} tokens, {corpus.num_answer_tokens} of them answers; "
        f"{report.num_cut} cut to {longest} tokens; a draft vocabulary of {len(target_ids)} covers {corpus.coverage:.2%} of answers"
        + ("" if covered is None else f", and {covered:.2%} of held-out ones, from which it was not chosen")
    )
    capture = Capture.from_folder(target, config.auxiliary_layers, device=device, dtype=dtype, defer_checks=True)
    source: CaptureStates = capture if plan.states is None else _stored(base / plan.states, folder, config, capture)
    return Parts(
        plan=plan,
        target=target,
        data=data,
        out=out,
        folder=folder,
        files=files,
        samples=samples,
        prompts=prompts,
        config=config,
        target_ids=target_ids,
        started=started,
        corpus=corpus,
        capture=capture,
        source=source,
        scales=processes.tell_all(_scales(plan, corpus, config, source)),
        dtype=dtype,
        num_cut=report.num_cut,
        notes=tuple(notes),
    )


def _head(
    plan: TrainPlan, base: Path, target: ModelFolder, files: TargetFiles, samples: Sequence[Sample]
) -> tuple[Eagle3Config, Tensor, Eagle3Weights | None]:
    """The head's shape, the target ids of its draft vocabulary [W], and the weights it starts from, if it does."""
    if plan.start_from is not None:
        if plan.head != HeadPlan():
            raise PlanError("start_from brings its own head; remove the keys under head")
        given = read_head(resolve_model(plan.start_from, base), target)
        if given.config.norm_before_fc or given.config.norm_before_residual:
            raise PlanError(
                f"start_from {plan.start_from}: norm_before_fc is {given.config.norm_before_fc} and norm_before_residual "
                f"{given.config.norm_before_residual}; this trainer does not train such heads, start from another or from none"
            )
        return given.config, given.weights.target_ids, given.weights
    config = head_config(target, plan.head)
    counts = count_tokens(samples, config.shape.vocab_size)
    chosen = choose_vocabulary(counts, config.draft_vocab_size, required_tokens(files, counts))
    return config, torch.from_numpy(chosen), None


def _stored(path: Path, target: ModelFolder, config: Eagle3Config, capture: Capture) -> StoredStates:
    stored = StoredStates(path, device=capture.device)
    manifest = stored.manifest
    for what, found, expected in (
        ("of the target", manifest.fingerprint, fingerprint(target)),
        ("entering the layers", list(manifest.layers), list(config.auxiliary_layers)),
    ):
        if found != expected:
            raise DataError(f"{path}: holds states {what} {found}, and this training needs {expected}; capture them again")
    return stored


def _scales(plan: TrainPlan, corpus: Corpus, config: Eagle3Config, source: CaptureStates) -> tuple[float, float, float]:
    """Judged on the samples of the first batch, so the same whenever the same plan starts."""
    if config.fc_norm:
        return 1.0, 1.0, 1.0
    _, indices = next(Order(corpus.lengths, plan.batches.tokens, 1, plan.seed).from_batch(0))
    packed = source.capture([corpus.samples[index] for index in indices])
    return power_of_two_scales(packed.auxiliary, packed.loss_mask)
