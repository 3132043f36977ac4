"""Judge one drafter on held-out answers."""

from __future__ import annotations

from torch import Tensor

from breakeven.drafter.evaluation.held_out import HeldOut
from breakeven.drafter.evaluation.result import Evaluation, summarise
from breakeven.drafter.evaluation.rounds import draft_rounds
from breakeven.drafter.model.eagle3 import Eagle3Config, Eagle3Weights

__all__ = ["evaluate"]


def evaluate(
    held_out: HeldOut, config: Eagle3Config, weights: Eagle3Weights, target_embed: Tensor, *, num_draft_tokens: int = 3
) -> Evaluation:
    """Accept length and all that goes with it, free-running and greedy.

    Computed in the type and on the device of `weights`; the states of `held_out` and `target_embed` [V, H] lie there too. In
    float32 the counts equal those of `drafter/reference` and of a float32 engine.

    Raises:
        UsageError: the held-out answers do not reach far enough past their ends for so many drafts.
    """
    answers = draft_rounds(held_out, config, weights, target_embed, num_draft_tokens)
    return summarise(
        answers,
        num_draft_tokens=num_draft_tokens,
        draft_vocab_size=config.draft_vocab_size,
        auxiliary_layers=config.auxiliary_layers,
    )
