"""Degenerate output: answers that loop, or say nothing.

A model that repeats itself is easy to draft for, so its accept length is too good to be true; and NaN logits or a broken kernel
look just like it. The check reads text, which is what servers send, and only its end, because loops start late and never stop:

* *loop*: one phrase, word for word, again and again up to the end;
* *few distinct n-grams*: repetition with small changes, or with several phrases in turn.

What it lets pass: code, lists and tables, whose lines begin or end alike and differ within; loops that count up ("Step 41: go on.
Step 42: go on."), unless almost every other word repeats; loops whose phrase is longer than a third of the part looked at; an
answer that is fluent and wrong. What it may accuse wrongly: a long table of equal cells, a refrain that was asked for.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from breakeven.loadgen.samples import RequestSample, Void
from breakeven.loadgen.stream import printable

__all__ = ["MAX_DEGENERATE_SHARE", "degenerate_reason", "degenerate_share", "degenerate_voids", "distinct_share"]

# How much of the answer's end is looked at, and how much there must be before repetition is judged at all.
TAIL_WORDS = 256
MIN_WORDS = 40

# Distinct 4-grams over all 4-grams of that part. Of 3,512 pieces of real source code, Markdown, HTML and data files (500 to 1000
# characters) 0.8 % lie below, every one a table or a list written by a machine; answers that loop lie mostly below 0.3.
NGRAM = 4
MIN_DISTINCT_SHARE = 0.35

# Saying a phrase twice is style. Three times running to the very end, and over half of the part looked at: none of those pieces do.
MIN_REPEATS = 3
MIN_LOOP_SHARE = 0.5

# NaN logits print one character for ever ("!!!!!!!!"); a rule of dashes inside an answer is no such thing.
MIN_SAME_CHARS = 16

# Small models loop on a prompt or two in ten, on every arm of a comparison alike. Beyond this share the accept length is that of
# the loops.
MAX_DEGENERATE_SHARE = 0.25

# One unit is a word, a character of a script written without spaces, or a run of one punctuation mark (so that rules count once).
_NO_SPACES = "\u0e00-\u0eff\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff"
_UNIT = re.compile(rf"[{_NO_SPACES}]|[^\W{_NO_SPACES}]+|([^\w\s])\1*")


def degenerate_reason(text: str, *, finished: bool = True) -> str | None:
    """What is wrong with an answer, in a few words, or None. `finished` is False for one cut off, which may be empty."""
    bare = text.strip()
    if not bare:
        return "empty" if finished else None
    if len(bare) >= MIN_SAME_CHARS and len(set(bare) - set(" \n\t")) == 1:
        return f"one character, {len(bare)} times"
    # Words are short: this many characters hold the units wanted, and a hostile server's megabytes are not searched.
    units = [match.group() for match in _UNIT.finditer(bare[-TAIL_WORDS * 16 :])][-TAIL_WORDS:]
    if len(units) < MIN_WORDS:
        return None
    if (period := _loop(units)) is not None:
        return f"loop: {_short(units[-period:])}"
    distinct = distinct_share(units)
    return f"only {distinct:.0%} distinct {NGRAM}-grams" if distinct < MIN_DISTINCT_SHARE else None


def distinct_share(units: Sequence[str]) -> float:
    """Distinct NGRAM-grams over all of them, in (0, 1]."""
    ngrams = [tuple(units[start : start + NGRAM]) for start in range(len(units) - NGRAM + 1)]
    return len(set(ngrams)) / len(ngrams)


def degenerate_share(samples: Iterable[RequestSample]) -> tuple[float, int]:
    """Degenerate answers over answers that can be judged (some text arrived, or they ended), and the number of the latter."""
    judged = [
        sample
        for sample in samples
        if sample.error is None and (sample.first_token_s is not None or sample.finish_reason is not None)
    ]
    bad = sum(sample.degenerate is not None for sample in judged)
    return (bad / len(judged) if judged else 0.0), len(judged)


def degenerate_voids(samples: Sequence[RequestSample], *, limit: float = MAX_DEGENERATE_SHARE) -> list[Void]:
    """`degenerate_output` with its figures where more than `limit` of the answers are degenerate; empty otherwise.

    One bad answer never voids a trial, however few there are. Not for forced acceptance, whose answers are junk by design.
    """
    share, num_judged = degenerate_share(samples)
    bad = [sample for sample in samples if sample.error is None and sample.degenerate is not None]
    if share <= limit or len(bad) < 2:
        return []
    detail = f"{share:.0%} of {num_judged} answers are degenerate, limit {limit:.0%} (first: {bad[0].degenerate})"
    return [Void(code="degenerate_output", detail=detail)]


def _loop(units: Sequence[str]) -> int | None:
    """Length of the phrase that repeats up to the end, or None."""
    needed = MIN_LOOP_SHARE * len(units)
    for period in range(1, len(units) // MIN_REPEATS + 1):
        length = period
        while length < len(units) and units[-1 - length] == units[-1 - length + period]:
            length += 1
        if length >= max(needed, MIN_REPEATS * period):
            return period
    return None


def _short(phrase: Sequence[str]) -> str:
    return printable(" ".join(phrase), 40)
