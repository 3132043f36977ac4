"""One training sample: the tokens of a rendered conversation and which of them the target wrote."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Sample"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """`loss_mask[i]` is true where token i was written by the target, so where a drafter is to be judged on predicting it.

    The mask is not shifted: it marks tokens, and the objective shifts it together with the tokens.
    `sample_id` is the hash of the prompt, by which training and held-out samples are told apart. `num_prompt_tokens` are those
    before the last answer: earlier turns that the target wrote too lie within.
    """

    sample_id: str
    kind: str
    token_ids: tuple[int, ...]
    loss_mask: tuple[bool, ...]
    num_prompt_tokens: int

    def __post_init__(self) -> None:
        assert len(self.token_ids) == len(self.loss_mask), (len(self.token_ids), len(self.loss_mask))
