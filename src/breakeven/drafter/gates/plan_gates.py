"""The gates of a training plan: those before it is run, on the parts it would use, and those after, on the folder it wrote."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file

from breakeven.drafter.data.prompt_records import checked_messages
from breakeven.drafter.data.reading import read_records
from breakeven.drafter.data.samples import Sample
from breakeven.drafter.evaluation.held_out import GreedyAnswer, HeldOut
from breakeven.drafter.evaluation.preparing import greedy_answers, prepare
from breakeven.drafter.evaluation.prompts import RenderedPrompt
from breakeven.drafter.evaluation.rounds import draft_rounds
from breakeven.drafter.export.reading import read_head
from breakeven.drafter.gates.export_gate import export_gate
from breakeven.drafter.gates.gap_gate import gap_gate
from breakeven.drafter.gates.overfit_gate import NUM_ANSWERS, NUM_DRAFT_TOKENS, overfit_gate
from breakeven.drafter.gates.pilot_gate import pilot_gate
from breakeven.drafter.gates.pipeline import Conversation
from breakeven.drafter.gates.result import GateResult
from breakeven.drafter.gates.running import Gate, agreement_gates
from breakeven.drafter.gates.served_gate import ServedCounts, served_gate
from breakeven.drafter.gates.trainer_pipeline import trainer_pipeline
from breakeven.drafter.gates.truth import TargetTruth
from breakeven.drafter.training.kept import BEST, WEIGHTS
from breakeven.drafter.training.module import Eagle3Module
from breakeven.drafter.training.opening import DRAFTER, Parts, open_parts
from breakeven.drafter.training.order import Order
from breakeven.drafter.training.plan_schema import GatesPlan, TrainPlan
from breakeven.drafter.training.processes import Processes
from breakeven.drafter.training.training import RESULT
from breakeven.errors import UsageError

__all__ = ["CountServed", "gates_after", "gates_before", "open_for_gates"]

# Prompts as token ids, the longest answer and the stop tokens in; what the engine counted out.
CountServed = Callable[[Sequence[Sequence[int]], int, Sequence[int]], Sequence[ServedCounts]]
NUM_CONVERSATIONS = 16
OVERFIT_TOKENS = 64
SERVED_TOKENS = 64
# Long samples take the plain oracle minutes and show no more.
MAX_CONVERSATION_TOKENS = 512


def open_for_gates(plan: TrainPlan, base: Path, say: Callable[[str], None]) -> Parts:
    """The parts that a training of `plan` would use, in this one process.

    Raises:
        BreakevenError: see `open_parts`.
    """
    if plan.device == "cuda" and not torch.cuda.is_available():
        raise UsageError("device is cuda, and this machine has no GPU that torch can use; take device: auto or cpu")
    processes = Processes.start("cuda" if plan.device != "cpu" and torch.cuda.is_available() else "cpu")
    try:
        return open_parts(plan, base, processes, say)
    finally:
        processes.stop()


def gates_before(parts: Parts, gates: GatesPlan, tell: Callable[[str], None] = lambda _: None) -> Iterator[Gate]:
    """Agreement, overfit, pilot and gap, in this order; each is made when the one before has passed."""
    if gates.agreement:
        truth = TargetTruth(parts.target)
        # where the training's states come from a store, that is what is judged
        exact = trainer_pipeline(parts.fresh_objective(torch.float32), parts.source, parts.plan)
        yield from agreement_gates(_conversations(parts), exact, truth)
    if gates.overfit:
        yield lambda: _overfit(parts, tell)
    if gates.pilot_samples:
        pipeline = trainer_pipeline(parts.fresh_objective(parts.dtype), parts.source, parts.plan)
        held_out = _held_out(parts, parts.prompts, parts.plan.evaluation.max_answer_tokens)
        if held_out is None:
            yield lambda: GateResult(
                gate="pilot", outcome="not run", summary="the data have no held-out prompts, so nothing can be shown on unseen ones"
            )
            return
        samples = parts.samples[: gates.pilot_samples]
        num_steps = gates.pilot_steps or max(4, 2 * _steps(parts, samples))
        yield lambda: pilot_gate(
            samples,
            held_out,
            pipeline,
            num_steps=num_steps,
            full_steps=_steps(parts, parts.samples) * parts.plan.epochs,
            num_draft_tokens=parts.plan.evaluation.num_draft_tokens,
            tell=tell,
        )
        yield lambda: gap_gate(held_out, pipeline, num_draft_tokens=parts.plan.evaluation.num_draft_tokens, trained_on=samples)


def gates_after(parts: Parts, gates: GatesPlan, count_served: CountServed | None) -> Iterator[Gate]:
    """The exported folder against the tensors of the best checkpoint, and against an engine where one is named.

    Raises:
        UsageError: nothing was trained yet.
    """
    exported = parts.out / DRAFTER
    try:
        best_step = int(json.loads((parts.out / RESULT).read_text(encoding="utf-8"))["best_step"])
        trained = load_file(parts.out / BEST / f"step-{best_step:08d}" / WEIGHTS)
    except (OSError, ValueError, LookupError, TypeError, SafetensorError) as error:
        raise UsageError(f"{parts.out}: holds no finished training ({error}); run breakeven train first") from error
    module = Eagle3Module(parts.config, parts.target_ids, parts.capture.embed_weight)
    module.restore(trained)
    weights = module.to_weights()
    held_out = _held_out(parts, parts.prompts[: gates.served_prompts], SERVED_TOKENS, torch.float32)
    if held_out is None:
        yield lambda: GateResult(gate="export", outcome="not run", summary="the data have no held-out prompts to draft on")
        return
    embed = parts.capture.embed_weight.float()
    num_drafts = parts.plan.evaluation.num_draft_tokens
    yield lambda: export_gate(exported, parts.config, weights, parts.folder, held_out, embed, num_draft_tokens=num_drafts)
    if count_served is None:
        yield lambda: GateResult(
            gate="served",
            outcome="not run",
            summary="no engine is named (gates.served_by), so what one makes of the exported folder was not seen",
        )
        return

    def served() -> GateResult:
        head = read_head(exported, parts.folder)
        offline = draft_rounds(held_out, head.config, head.weights.to(embed.device), embed, num_drafts)
        prompts = [answer.prompt_ids for answer in held_out.answers]
        found = count_served(prompts, SERVED_TOKENS, sorted(parts.files.stop_token_ids))
        return served_gate({"vllm": "vLLM", "sglang": "SGLang"}[gates.served_engine], held_out.answers, offline, found)

    yield served


def _overfit(parts: Parts, tell: Callable[[str], None]) -> GateResult:
    pipeline = trainer_pipeline(parts.fresh_objective(parts.dtype), parts.capture, parts.plan)
    prompts: dict[str, RenderedPrompt] = {}
    for sample in parts.samples:
        if len(prompts) < NUM_ANSWERS and sample.num_prompt_tokens + OVERFIT_TOKENS < parts.files.context_length:
            prompt = RenderedPrompt(
                prompt_id=sample.sample_id, kind=sample.kind, token_ids=sample.token_ids[: sample.num_prompt_tokens]
            )
            prompts.setdefault(sample.sample_id, prompt)
    answers = _answers(parts, list(prompts.values()), OVERFIT_TOKENS, NUM_DRAFT_TOKENS, parts.dtype)
    return overfit_gate(answers, pipeline, tell=tell)


def _held_out(parts: Parts, prompts: Sequence[RenderedPrompt], max_tokens: int, dtype: torch.dtype | None = None) -> HeldOut | None:
    if not prompts:
        return None
    kind = dtype or parts.dtype
    capture = parts.capture
    if capture.dtype != kind:
        capture = type(capture).from_folder(parts.target, capture.layers, device=capture.device, dtype=kind)
    return prepare(_answers(parts, prompts, max_tokens, parts.plan.evaluation.num_draft_tokens, kind), capture)


def _answers(
    parts: Parts, prompts: Sequence[RenderedPrompt], max_tokens: int, num_draft_tokens: int, dtype: torch.dtype
) -> tuple[GreedyAnswer, ...]:
    return greedy_answers(
        parts.target,
        prompts,
        max_tokens=max_tokens,
        num_draft_tokens=num_draft_tokens,
        stop_ids=sorted(parts.files.stop_token_ids),
        dtype=dtype,
        device=parts.capture.device,
    )


def _conversations(parts: Parts) -> list[Conversation]:
    """The first training samples of the file that are not too long, beside their messages."""
    wanted: dict[tuple[str, int], Sample] = {}
    for sample in parts.samples:
        if len(sample.token_ids) <= MAX_CONVERSATION_TOKENS and len(wanted) < NUM_CONVERSATIONS:
            wanted[sample.sample_id, len(sample.token_ids)] = sample
    found: list[Conversation] = []
    for _, record in read_records(parts.data):
        if len(found) == NUM_CONVERSATIONS or not wanted:
            break
        if "skipped" in record or not record.get("token_ids"):
            continue
        kept = wanted.get((str(record.get("prompt_id")), len(record["token_ids"])))
        if kept is not None and list(kept.token_ids) == record["token_ids"]:
            found.append(Conversation(messages=checked_messages(record["messages"]), sample=kept))
    return found


def _steps(parts: Parts, samples: Sequence[Sample]) -> int:
    """Optimiser steps that one pass over `samples` takes."""
    lengths = np.array([len(sample.token_ids) for sample in samples], dtype=np.int64).clip(max=parts.plan.batches.tokens)
    return max(1, Order(lengths, parts.plan.batches.tokens, 1, parts.plan.seed).num_batches // parts.plan.batches.per_step)
