"""The draft vocabulary: the target's most frequent answer tokens, and what share of answers they cover.

A drafter with a quarter of the target's vocabulary has a quarter of its head to read at every draft. What it cannot say is
rejected, so coverage bounds acceptance from above; it is given on held-out answers too, since rare tokens of training are no help
elsewhere.

Shapes: V target vocabulary.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from breakeven.drafter.data.samples import Sample
from breakeven.drafter.data.target_files import TargetFiles
from breakeven.errors import DataError, UsageError

__all__ = ["Coverage", "TokenCounts", "choose_vocabulary", "count_tokens", "coverage", "coverage_curve", "required_tokens"]

Ids = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenCounts:
    """How often each token stands in answers and in prompts, [V] each."""

    answers: Ids
    prompts: Ids


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """Shares of answer tokens that the `size` tokens chosen from training cover; None where there are no such answers."""

    size: int
    train: float | None
    held_out: float | None


def count_tokens(samples: Iterable[Sample], vocab_size: int) -> TokenCounts:
    """Token counts of all samples.

    Raises:
        DataError: a token id outside the vocabulary.
    """
    answers, prompts = np.zeros(vocab_size, dtype=np.int64), np.zeros(vocab_size, dtype=np.int64)
    held: list[Sample] = []

    def count() -> None:
        token_ids = np.concatenate([np.array(sample.token_ids, dtype=np.int64) for sample in held])
        mask = np.concatenate([np.array(sample.loss_mask, dtype=np.bool_) for sample in held])
        highest, lowest = int(token_ids.max(initial=0)), int(token_ids.min(initial=0))
        if highest >= vocab_size or lowest < 0:
            wrong = highest if highest >= vocab_size else lowest
            raise DataError(
                f"token id {wrong} lies outside the vocabulary of {vocab_size} tokens; was this made with another model?"
            )
        np.add(answers, np.bincount(token_ids[mask], minlength=vocab_size), out=answers)
        np.add(prompts, np.bincount(token_ids[~mask], minlength=vocab_size), out=prompts)
        held.clear()

    for sample in samples:
        held.append(sample)
        if len(held) >= 1000:
            count()
    if held:
        count()
    return TokenCounts(answers=answers, prompts=prompts)


def required_tokens(target: TargetFiles, counts: TokenCounts) -> frozenset[int]:
    """What a draft vocabulary should always hold: the stop tokens, and the special tokens that occur at all."""
    seen = counts.answers + counts.prompts > 0
    special = {token for token in target.tokenizer.special_token_ids if token < len(seen) and seen[token]}
    return target.stop_token_ids | special


def choose_vocabulary(counts: TokenCounts, size: int, always: Collection[int] = ()) -> Ids:
    """The `size` target ids of a draft vocabulary, ascending: `always`, then the most frequent in answers.

    always: the target's stop tokens at least. A drafter that cannot say them is rejected at the end of every answer.

    Raises:
        UsageError: a size that cannot be, or that leaves no room beside `always`.
        DataError: no answers to choose from.
    """
    vocab_size = len(counts.answers)
    if not 1 <= size <= vocab_size:
        raise UsageError(f"a draft vocabulary of {size} tokens was asked for; expected 1 to {vocab_size}, which is the target's")
    kept = sorted(set(always))
    if kept and not 0 <= kept[0] <= kept[-1] < vocab_size:
        raise UsageError(f"tokens {kept[0]} to {kept[-1]} should always be in it; the target has 0 to {vocab_size - 1}")
    if len(kept) > size:
        raise UsageError(
            f"a draft vocabulary of {size} tokens has no room for the {len(kept)} that it must hold; take a larger one"
        )
    if not counts.answers.any():
        raise DataError("no answer tokens to choose a draft vocabulary from; expected training answers")
    rank = counts.answers.copy()
    rank[kept] = np.iinfo(np.int64).max
    # most frequent first, and of equally frequent ones the lower id: tokenizers number frequent tokens first
    chosen: Ids = np.lexsort((np.arange(vocab_size), -rank))[:size]
    return np.sort(chosen)


def coverage(counts: TokenCounts, ids: Ids) -> float | None:
    """Share of answer tokens that are in `ids`; None without answers."""
    total = int(counts.answers.sum())
    return int(counts.answers[ids].sum()) / total if total else None


def coverage_curve(
    train: TokenCounts, held_out: TokenCounts, sizes: Sequence[int], always: Collection[int] = ()
) -> tuple[Coverage, ...]:
    """Coverage by size, each chosen from training answers alone; sizes beyond the target's vocabulary are left out."""
    curve = []
    for size in sizes:
        if size <= len(train.answers):
            ids = choose_vocabulary(train, size, always)
            curve.append(Coverage(size=size, train=coverage(train, ids), held_out=coverage(held_out, ids)))
    return tuple(curve)
