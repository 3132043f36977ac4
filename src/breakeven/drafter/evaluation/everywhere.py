"""Acceptance from every position of an answer, not only from where rounds happen to begin.

A round begins where the one before ended, which is often just after a rejection: a hard place. So acceptance over rounds lies below
acceptance over all positions although both are the same function. Training measures the latter; this is its free-running twin.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from breakeven.drafter.evaluation.drafting import draft_everywhere
from breakeven.drafter.evaluation.held_out import HeldOut
from breakeven.drafter.evaluation.rounds import batches_of
from breakeven.drafter.model.eagle3 import Eagle3Config, Eagle3Weights

__all__ = ["Everywhere", "draft_from_everywhere"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Everywhere:
    """By number of drafts [k]: starts from which so many drafts fall inside the answer, and of which all are accepted."""

    num_starts: tuple[int, ...]
    num_accepted: tuple[int, ...]

    @property
    def joint(self) -> tuple[float, ...]:
        return tuple(good / starts if starts else 0.0 for good, starts in zip(self.num_accepted, self.num_starts, strict=True))


@torch.inference_mode()
def draft_from_everywhere(
    held_out: HeldOut, config: Eagle3Config, weights: Eagle3Weights, target_embed: torch.Tensor, num_draft_tokens: int
) -> Everywhere:
    """Starts are the rows whose drafts would be answer tokens, the row before the prompt's last included, as in training."""
    starts, accepted = [0] * num_draft_tokens, [0] * num_draft_tokens
    answers = iter(held_out.answers)
    for packed in held_out.states:
        for token_ids, auxiliary, batch in batches_of(packed, answers):
            first_row = max(0, min(len(answer.prompt_ids) for answer in batch) - 2)
            drafts = draft_everywhere(token_ids, auxiliary[:, :-1], first_row, num_draft_tokens, config, weights, target_embed)
            for index, answer in enumerate(batch):
                begin = max(0, len(answer.prompt_ids) - 2)
                end = len(answer.prompt_ids) + len(answer.answer_ids)
                right = torch.ones(end - begin - 2, dtype=torch.bool, device=token_ids.device) if end - begin > 2 else None
                for draft in range(num_draft_tokens):
                    count = end - begin - 2 - draft
                    if right is None or count <= 0:
                        break
                    guesses = drafts[index, begin - first_row : begin - first_row + count, draft]
                    right = right[:count] & (guesses == token_ids[index, begin + 2 + draft : end])
                    starts[draft] += count
                    accepted[draft] += int(right.sum())
    return Everywhere(num_starts=tuple(starts), num_accepted=tuple(accepted))
