"""From drafts at every position to the rounds that decoding would really take, counted as vLLM counts them.

The first token of an answer comes from the prompt's own pass and is no round. A round that starts with m tokens emitted drafts from
row P + m - 2 and emits its accepted drafts and one more token; drafts accepted past the end of the answer count, though they are
not emitted. Shapes: P prompt tokens, S sequences, k drafts.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from breakeven.drafter.capture.states import PackedStates
from breakeven.drafter.evaluation.drafting import draft_everywhere
from breakeven.drafter.evaluation.held_out import GreedyAnswer, HeldOut
from breakeven.drafter.model.eagle3 import Eagle3Config, Eagle3Weights
from breakeven.errors import UsageError

__all__ = ["AnswerRounds", "batches_of", "draft_rounds"]

# Sequences are padded to the longest of a batch, so few long ones must not blow up many short ones.
BATCH_SEQUENCES = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerRounds:
    """One answer's rounds, in order.

    accepted: drafts that each round accepted. context: tokens that stood before it (prompt and answer so far).
    drafts: what each round proposed. unknown: whether the draft that was rejected had no chance, because the token that the target
    chose instead is outside the draft vocabulary. num_unknown_tokens: tokens of the answer outside it.
    """

    prompt_id: str
    kind: str
    looping: bool
    finished: bool
    num_prompt_tokens: int
    num_answer_tokens: int
    num_unknown_tokens: int
    accepted: tuple[int, ...]
    context: tuple[int, ...]
    drafts: tuple[tuple[int, ...], ...]
    unknown: tuple[bool, ...]


@torch.inference_mode()
def draft_rounds(
    held_out: HeldOut, config: Eagle3Config, weights: Eagle3Weights, target_embed: Tensor, num_draft_tokens: int
) -> tuple[AnswerRounds, ...]:
    """The rounds of every answer of `held_out`, greedy, in its order.

    Raises:
        UsageError: the answers were not continued far enough to judge that many drafts.
    """
    short = [answer.prompt_id for answer in held_out.answers if len(answer.beyond_ids) < num_draft_tokens - 1]
    if num_draft_tokens < 1 or short:
        raise UsageError(
            f"{num_draft_tokens} drafts a round cannot be judged on these answers: {len(short)} of {len(held_out.answers)} were "
            f"continued by fewer than {num_draft_tokens - 1} tokens past their end; make the held-out answers with a larger k"
        )
    known = torch.zeros(config.shape.vocab_size, dtype=torch.bool, device=weights.target_ids.device)
    known[weights.target_ids] = True
    known_ids = known.tolist()
    answers = iter(held_out.answers)
    results: list[AnswerRounds] = []
    for packed in held_out.states:
        for token_ids, auxiliary, batch in batches_of(packed, answers):
            first_row = min(len(answer.prompt_ids) for answer in batch) - 1
            drafts = draft_everywhere(token_ids, auxiliary[:, :-1], first_row, num_draft_tokens, config, weights, target_embed)
            for answer, rows in zip(batch, drafts.tolist(), strict=True):
                results.append(_walk(answer, rows, first_row, known_ids))
    return tuple(results)


def batches_of(packed: PackedStates, answers: Iterator[GreedyAnswer]) -> Iterator[tuple[Tensor, Tensor, list[GreedyAnswer]]]:
    """Padded token ids [S, L + 1] and states [S, L + 1, 3H] of a few sequences at a time."""
    starts = packed.starts.tolist()
    for first in range(0, len(starts) - 1, BATCH_SEQUENCES):
        spans = list(pairwise(starts))[first : first + BATCH_SEQUENCES]
        batch = [next(answers) for _ in spans]
        longest = max(end - begin for begin, end in spans)
        # padding repeats the last row of a sequence: any real token and state will do, nothing looks at them
        index = torch.stack([torch.arange(begin, begin + longest).clamp(max=end - 1) for begin, end in spans])
        index = index.to(packed.token_ids.device)
        yield packed.token_ids[index], packed.auxiliary[index], batch


def _walk(answer: GreedyAnswer, rows: list[list[int]], first_row: int, known: list[bool]) -> AnswerRounds:
    tokens, prompt, length = answer.token_ids, len(answer.prompt_ids), len(answer.answer_ids)
    accepted: list[int] = []
    context: list[int] = []
    drafts: list[tuple[int, ...]] = []
    unknown: list[bool] = []
    emitted = 1
    while emitted < length:
        newest = prompt + emitted - 1  # the token that the target has chosen and not yet run
        proposed = rows[newest - 1 - first_row]
        matched = 0
        while matched < len(proposed) and proposed[matched] == tokens[newest + 1 + matched]:
            matched += 1
        accepted.append(matched)
        context.append(newest + 1)
        drafts.append(tuple(proposed))
        unknown.append(matched < len(proposed) and not known[tokens[newest + 1 + matched]])
        emitted += matched + 1
    return AnswerRounds(
        prompt_id=answer.prompt_id,
        kind=answer.kind,
        looping=answer.looping,
        finished=answer.finished,
        num_prompt_tokens=prompt,
        num_answer_tokens=length,
        num_unknown_tokens=sum(not known[token] for token in answer.answer_ids),
        accepted=tuple(accepted),
        context=tuple(context),
        drafts=tuple(drafts),
        unknown=tuple(unknown),
    )
