"""The draft vocabulary lacks tokens that your answers use.

Detects: the share of answer tokens that are in the draft vocabulary.

Why it hurts: a token outside can never be drafted, so no position is accepted more often than the coverage. A language or domain
that was not in the training data is where it shows.

Evidence: tokens of the answers, counted; the accept length that a perfect drafter could reach with this vocabulary.

Remedy: another map from your own answers (with retraining of the head), or a drafter of the whole vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from breakeven.doctor.evidence import Evidence
from breakeven.doctor.signs import both
from breakeven.doctor.told import Fault, Told
from breakeven.doctor.vocabulary import vocabulary_map

# Published 32k vocabularies cover 0.99 and more of their own domain.
GOOD, POOR = 0.97, 0.85
USUAL_DRAFTS = 3
SOME, MANY = 1_000, 10_000


def check(evidence: Evidence) -> Iterator[Told]:
    draft, answers = evidence.draft, evidence.answers
    assert draft is not None
    assert answers is not None
    found = vocabulary_map(draft)
    if found is None or found.is_absolute or not found.is_valid(found.as_offsets):
        return
    known = set(np.asarray(found.as_offsets).tolist())
    covered = sum(count for token, count in answers.counts.items() if token in known) / answers.num_tokens
    drafts = evidence.launch.num_drafted if evidence.launch is not None and evidence.launch.num_drafted else USUAL_DRAFTS
    drafts = min(drafts, 64)
    most = 1 + sum(covered**place for place in range(1, drafts + 1))
    # few answers are few draws: what they cannot exclude is not held against the vocabulary
    at_best = min(1.0, covered + 2 * math.sqrt(covered * (1 - covered) / answers.num_tokens))
    good = at_best >= GOOD
    yield Fault(
        severity="info" if good else "warning" if at_best >= POOR else "error",
        confidence="high" if answers.num_tokens >= MANY else "medium" if answers.num_tokens >= SOME else "low",
        title=f"The draft vocabulary covers {100 * covered:.1f} % of the tokens of your answers",
        evidence=(
            f"{answers.source}: {answers.num_tokens} tokens, {len(answers.counts)} kinds; draft vocabulary of {len(found.raw)}",
            f"with {drafts} drafts and misses spread evenly, a perfect drafter reaches an accept length of {most:.2f}",
        ),
        remedy="Nothing to do."
        if good
        else "Build the map from your own answers and retrain the head, or draft the whole vocabulary.",
        symptoms=both("nothing" if good else "all-positions-lower"),
    )
