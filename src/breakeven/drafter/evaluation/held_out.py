"""What drafters are judged on: the target's own greedy answers and its states at every token of them, computed once.

Under greedy decoding speculation changes nothing, so the answer and the states are the same whatever is drafted; only how many
rounds it takes differs. So any number of drafters, or of checkpoints of one, are judged on the same states.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from breakeven.drafter.capture.states import PackedStates
from breakeven.drafter.data.samples import Sample
from breakeven.drafter.evaluation.looping import is_looping

__all__ = ["GreedyAnswer", "HeldOut"]


@dataclass(frozen=True, slots=True, kw_only=True)
class GreedyAnswer:
    """`answer_ids` holds the token that ended it, if one did; `beyond_ids` what the target would say after that.

    The engines count drafts that the last round accepts past the answer's end, so judging k drafts takes k - 1 tokens beyond.
    """

    prompt_id: str
    kind: str
    prompt_ids: tuple[int, ...]
    answer_ids: tuple[int, ...]
    beyond_ids: tuple[int, ...]
    finished: bool

    @property
    def token_ids(self) -> tuple[int, ...]:
        return self.prompt_ids + self.answer_ids + self.beyond_ids

    @property
    def looping(self) -> bool:
        return is_looping(self.answer_ids)

    def as_sample(self) -> Sample:
        """The whole sequence for capture; what lies beyond the answer is no token of it, so it is not marked."""
        prompt, answer, beyond = len(self.prompt_ids), len(self.answer_ids), len(self.beyond_ids)
        return Sample(
            sample_id=self.prompt_id,
            kind=self.kind,
            token_ids=self.token_ids,
            loss_mask=(False,) * prompt + (True,) * answer + (False,) * beyond,
            num_prompt_tokens=prompt,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldOut:
    """`states` are packed batches that hold the answers' sequences in the order of `answers`, on any device."""

    answers: Sequence[GreedyAnswer]
    states: Sequence[PackedStates]

    def __post_init__(self) -> None:
        lengths = [len(answer.token_ids) for answer in self.answers]
        captured = [int(length) for packed in self.states for length in packed.starts.diff()]
        assert lengths == captured, "states and answers differ in number or length"
