"""Which rows of a packed batch are judged, worked out on the host before the device sees anything.

The objective's rows are counted by the **teacher's** row u, the token after which the target speaks: the guess for x_(u+1). At step
k it belongs to the drafting that started at row u - 1 - k, so one row of teacher logits serves all steps, and u is judged at
`depth` steps: as many as there are starts before it in its own sample.

Shapes: N tokens laid end to end, S samples, U teacher rows, K steps.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["JudgedRows", "judged_rows", "known_tokens"]

Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedRows:
    """Counts are by step [K]: `num_trained` have a loss, `num_counted` are what accuracy divides by (also unknown tokens)."""

    rows: Ints  # [U] teacher rows with a loss
    depth: Ints  # [U] at how many steps, 1 to K
    num_trained: Ints  # [K]
    num_counted: Ints  # [K]
    num_chains: Ints  # [K] starts whose first k + 1 guesses are all counted: what joint accuracy divides by


def judged_rows(token_ids: Ints, loss_mask: Flags, starts: Ints, known: Flags, num_steps: int) -> JudgedRows:
    """token_ids, loss_mask: [N]; starts: [S + 1]; known: [V], the tokens of the target that the draft vocabulary holds."""
    num_tokens = int(starts[-1])
    own_start = np.repeat(starts[:-1], np.diff(starts))
    rows = np.arange(num_tokens)
    # the guess after the last token of a sample would be the next sample's first token
    guesses = np.append(loss_mask[1:num_tokens], False)
    guesses[starts[1:] - 1] = False
    depth = np.minimum(rows - own_start, num_steps)
    counted = guesses & (depth > 0)
    trained = counted & known[np.append(token_ids[1:num_tokens], 0)]
    steps = np.arange(num_steps)[:, None]
    chain = np.ones(num_tokens, dtype=bool)
    num_chains = np.zeros(num_steps, dtype=np.int64)
    for step in range(num_steps):
        teacher_row = rows + 1 + step
        inside = teacher_row < num_tokens
        teacher_row = np.minimum(teacher_row, num_tokens - 1)
        chain &= inside & counted[teacher_row] & (own_start[teacher_row] == own_start)
        num_chains[step] = chain.sum()
    return JudgedRows(
        rows=np.flatnonzero(trained),
        depth=depth[trained],
        num_trained=(depth[trained] > steps).sum(axis=1),
        num_counted=(depth[counted] > steps).sum(axis=1),
        num_chains=num_chains,
    )


def known_tokens(target_ids: Ints, vocab_size: int) -> Flags:
    """[V] bool: which of the target's tokens the draft vocabulary holds."""
    known = np.zeros(vocab_size, dtype=bool)
    known[target_ids] = True
    return known
