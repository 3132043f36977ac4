"""From folders and prompts to a judgement: what `breakeven eval` does."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from breakeven.checkpoints.folder import open_folder
from breakeven.drafter.capture.capture import Capture
from breakeven.drafter.data.target_files import TargetFiles
from breakeven.drafter.evaluation.evaluate import evaluate
from breakeven.drafter.evaluation.preparing import greedy_answers, prepare
from breakeven.drafter.evaluation.prompts import render_prompts
from breakeven.drafter.evaluation.result import Evaluation
from breakeven.drafter.export.reading import read_head
from breakeven.drafter.model.llama import LlamaConfig
from breakeven.errors import UsageError

__all__ = ["DTYPES", "evaluate_folders"]

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


def evaluate_folders(
    target: Path,
    draft: Path,
    prompts: Iterable[tuple[str, str, Sequence[Mapping[str, Any]]]],
    *,
    num_draft_tokens: int,
    max_tokens: int,
    dtype: str = "float32",
    device: str | None = None,
    told: Callable[[str], None] = lambda _: None,
) -> Evaluation:
    """Judge the head in `draft` on the target's own greedy answers to `prompts` (id, kind, messages).

    device: None takes CUDA where there is one. told: is given a line at every stage.

    Raises:
        UsageError, PromptsError, CheckpointError: names what does not fit.
    """
    place = torch.device(device if device is not None else "cuda" if torch.cuda.is_available() else "cpu")
    if place.type == "cuda" and not torch.cuda.is_available():
        raise UsageError(f"device {place}: no CUDA device is available; leave --device out, or use cpu")
    files = TargetFiles.from_folder(target)
    opened = open_folder(target)
    config = LlamaConfig.from_folder(opened)
    # a wrong head is reported before anything is generated
    head = read_head(draft, opened, DTYPES[dtype])
    rendered = render_prompts(files, prompts)
    longest = max((len(prompt.token_ids) for prompt in rendered), default=0)
    needed = longest + max_tokens + num_draft_tokens
    if needed > config.max_positions:
        raise UsageError(
            f"the longest prompt has {longest} tokens, which with {max_tokens} of answer and {num_draft_tokens} drafts needs "
            f"{needed} positions; the target has {config.max_positions}: take fewer --max-tokens, or leave long prompts out"
        )
    told(f"answering {len(rendered)} prompts, greedy, on {place}")
    answers = greedy_answers(
        target,
        rendered,
        max_tokens=max_tokens,
        num_draft_tokens=num_draft_tokens,
        stop_ids=sorted(files.stop_token_ids),
        dtype=DTYPES[dtype],
        device=place,
        told=told,
    )
    told(f"the target's states at {sum(len(answer.token_ids) for answer in answers)} tokens")
    capture = Capture.from_folder(target, head.config.auxiliary_layers, device=place, dtype=DTYPES[dtype])
    held_out = prepare(answers, capture)
    capture.settle()
    told("drafting")
    evaluation = evaluate(held_out, head.config, head.weights.to(place), capture.embed_weight, num_draft_tokens=num_draft_tokens)
    doubts = [*head.notes, *evaluation.doubts]
    if dtype != "float32":
        doubts.append(f"{dtype}: rounding decides near-ties, so an engine's counts will differ a little; float32 is exact")
    return evaluation.model_copy(
        update={"target": files.identity.name, "drafter": draft.resolve().name, "dtype": dtype, "doubts": tuple(doubts)}
    )
