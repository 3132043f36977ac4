"""Greedy answers of an engine that does not exist, with ties and wrong tokens at the declared rates."""

from __future__ import annotations

import math
import zlib
from collections.abc import Sequence

import numpy as np

from breakeven.engines.base import Arm
from breakeven.engines.fake.truth import truth_of
from breakeven.loadgen.answers import GreedyAnswer
from breakeven.loadgen.samples import Prompt

__all__ = ["simulate_answers"]

# What plain prefers its token by: at a tie less than any dtype resolves, elsewhere more than any rounding.
TIE_NATS, CLEAR_NATS = 0.001, 5.0
VOCABULARY = 32_000
# The token that an arm with `wrong_tokens` says, as plain ranks it.
WRONG = (f"w{VOCABULARY}", -0.1 - CLEAR_NATS)


def simulate_answers(arm: Arm, prompts: Sequence[Prompt], *, max_tokens: int, seed: int) -> list[GreedyAnswer]:
    """One pass. Every pass of a prompt says the same, up to its first token that fell otherwise, and goes on from there.

    Raises:
        PlanError: the arm's simulation is impossible.
    """
    truth = truth_of(arm)
    answers = []
    for prompt in prompts:
        # by prompt, so that a pass in two parts says what it says in one
        rng = np.random.default_rng([seed, zlib.crc32(prompt.id.encode())])
        own = np.random.default_rng(zlib.crc32(prompt.id.encode())).integers(0, VOCABULARY, 2 * max_tokens)
        tied, wrong = (_first(rate, rng) for rate in (truth.rounding_flips, truth.wrong_tokens))
        parted = int(min(tied, wrong, max_tokens))
        numbers = own[:max_tokens].copy()
        if parted < max_tokens:
            # the runner-up at a tie is the same in every pass
            numbers[parted] = own[max_tokens + parted] if tied <= wrong else VOCABULARY
            on = np.random.default_rng([zlib.crc32(prompt.id.encode()), parted, int(numbers[parted])])
            numbers[parted + 1 :] = on.integers(0, VOCABULARY, max_tokens - parted - 1)
        looping = truth.degenerate_probability > 0 and rng.random() < truth.degenerate_probability
        token_ids = tuple(numbers.tolist())
        tokens = tuple(f"w{number}" for number in token_ids)
        alternatives: tuple[tuple[tuple[str, float], ...], ...] = ()
        if truth.tells_logprobs:
            runners_up = own[max_tokens:].tolist()
            if parted < max_tokens:
                runners_up[parted] = int(own[parted])
            alternatives = tuple(
                ((token, -0.1), (f"w{other}", -0.1 - TIE_NATS), WRONG) for token, other in zip(tokens, runners_up, strict=True)
            )
        answers.append(
            GreedyAnswer(
                prompt_id=prompt.id,
                text=" ".join(tokens),
                tokens=tokens if truth.tells_logprobs else (),
                token_ids=token_ids,
                alternatives=alternatives,
                num_tokens=max_tokens,
                finish_reason="length",
                degenerate="loop: simulated" if looping else None,
                error="simulated" if truth.error_probability > 0 and rng.random() < truth.error_probability else None,
            )
        )
    return answers


def _first(rate: float, rng: np.random.Generator) -> float:
    """The position of the first event of a chance `rate` a token."""
    return float(rng.geometric(rate)) - 1 if rate > 0 else math.inf
