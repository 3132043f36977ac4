"""What checkpoints are judged on while they are made: held-out prompts of the training file, answered by the target itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from breakeven.drafter.capture.capture import Capture
from breakeven.drafter.data.reading import read_samples
from breakeven.drafter.data.samples import Sample
from breakeven.drafter.data.target_files import TargetFiles
from breakeven.drafter.evaluation.evaluate import evaluate
from breakeven.drafter.evaluation.held_out import HeldOut
from breakeven.drafter.evaluation.preparing import greedy_answers, prepare
from breakeven.drafter.evaluation.prompts import RenderedPrompt
from breakeven.drafter.evaluation.result import Evaluation, Figures
from breakeven.drafter.model.eagle3 import Eagle3Config, Eagle3Weights
from breakeven.drafter.training.plan_schema import EvaluationPlan
from breakeven.drafter.training.progress import AcceptLength
from breakeven.errors import DataError

__all__ = ["Judge", "held_out_prompts", "judged_on", "prepare_judge"]


class Judge:
    """Accept length of weights on the same held-out answers each time.

    Answers that loop flatter every drafter, so the checkpoint is chosen without them, as long as others are left.
    """

    def __init__(self, held_out: HeldOut, config: Eagle3Config, target_embed: Tensor, num_draft_tokens: int) -> None:
        self._held_out = held_out
        self._config = config
        self._embed = target_embed
        self._num_draft_tokens = num_draft_tokens

    def evaluation(self, weights: Eagle3Weights) -> Evaluation:
        return evaluate(self._held_out, self._config, weights, self._embed, num_draft_tokens=self._num_draft_tokens)

    def __call__(self, weights: Eagle3Weights) -> AcceptLength:
        found = self.evaluation(weights)
        figures = judged_on(found)
        if figures.accept_length is None:
            raise DataError("the held-out answers hold no round of drafting; expected answers of a few tokens at least")
        return AcceptLength(mean=figures.accept_length, low=figures.accept_length_low, high=figures.accept_length_high)


def judged_on(found: Evaluation) -> Figures:
    """The figures that a checkpoint is chosen by: without answers that loop, where others are left."""
    return found.without_loops if found.without_loops.accept_length is not None else found.overall


def held_out_prompts(data: Path, files: TargetFiles, plan: EvaluationPlan, seed: int) -> list[RenderedPrompt]:
    """At most `plan.num_prompts` prompts of the held-out side, each once, drawn evenly; none where the file has none."""
    room = files.context_length - plan.max_answer_tokens - plan.num_draft_tokens
    prompts: dict[str, RenderedPrompt] = {}
    for sample in read_samples(data, split="held_out", target=files):
        token_ids = sample.token_ids[: sample.num_prompt_tokens]
        if len(token_ids) <= room:
            prompts.setdefault(
                sample.sample_id, RenderedPrompt(prompt_id=sample.sample_id, kind=sample.kind, token_ids=tuple(token_ids))
            )
    found = list(prompts.values())
    chosen = np.random.default_rng(seed).permutation(len(found))[: plan.num_prompts]
    return [found[index] for index in sorted(chosen.tolist())]


def prepare_judge(
    target: Path,
    prompts: Sequence[RenderedPrompt],
    training: Sequence[Sample],
    capture: Capture,
    config: Eagle3Config,
    plan: EvaluationPlan,
    say: Callable[[str], None] = lambda line: None,
) -> Judge:
    """Let the target answer the prompts, greedily, and keep its states there; `say` is told how far it is.

    Raises:
        DataError: a prompt is among the training samples.
    """
    trained = {sample.sample_id for sample in training}
    leaked = [prompt.prompt_id for prompt in prompts if prompt.prompt_id in trained]
    if leaked:
        raise DataError(f"{len(leaked)} held-out prompts are trained on, the first {leaked[0]}; their accept length would flatter")
    answers = greedy_answers(
        target,
        prompts,
        max_tokens=plan.max_answer_tokens,
        num_draft_tokens=plan.num_draft_tokens,
        dtype=capture.dtype,
        device=capture.device,
        told=say,
    )
    with torch.no_grad():
        held_out = prepare(answers, capture)
    return Judge(held_out, config, capture.embed_weight, plan.num_draft_tokens)
