"""Acceptance of single requests, from the `meta_info` of SGLang's native answers: the exact counts that its metrics lack.

The names of the fields differ by release; each release carries one complete set, so the fields that are there tell which.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from breakeven.acceptance import Acceptance
from breakeven.errors import EngineError
from breakeven.versions import Span, Version

__all__ = ["META_INFO_FIELDS", "ROUNDS", "TOKENS", "MetaInfoFields", "meta_info_acceptance", "request_fields"]

ROUNDS = "spec_verify_ct"  # in every release
TOKENS = "completion_tokens"


@dataclass(frozen=True, slots=True, kw_only=True)
class MetaInfoFields:
    """Names of the counts; None where the release does not give one. The histogram counts rounds by accepted drafts, from 0."""

    span: Span
    accepted: str | None
    drafted: str | None
    histogram: str | None
    recorded: str = "2026-11"


# Newest first: 0.5.12 to 0.5.20 carry two sets, of which the newer one stayed.
META_INFO_FIELDS: tuple[MetaInfoFields, ...] = (
    MetaInfoFields(
        span=Span.of("0.5.12", None, "0.5.23"),
        accepted="spec_num_correct_drafts",
        drafted="spec_num_proposed_drafts",
        histogram="spec_correct_drafts_histogram",
    ),
    MetaInfoFields(
        span=Span.of("0.5.11", "0.5.11"),
        accepted="spec_accepted_drafts",
        drafted="spec_proposed_drafts",
        histogram="spec_accept_histogram",
    ),
    MetaInfoFields(
        span=Span.of("0.5.6", "0.5.10.post1"),
        accepted="spec_accept_token_num",
        drafted="spec_draft_token_num",
        histogram="spec_accept_histogram",  # from 0.5.9
    ),
    MetaInfoFields(span=Span.of(None, "0.5.5"), accepted=None, drafted=None, histogram=None),
)


# The OpenAI-compatible endpoints report the same counts with a streamed answer, where the request asks for them (sglang PR 33518).
FIRST_ASKED = Version.parse("0.5.19")


def request_fields(version: object) -> Mapping[str, object]:
    """What a request says to have its counts reported; nothing for a release that would not know it, or is not known itself."""
    try:
        known = Version.parse(version) if isinstance(version, str) else None
    except ValueError:
        known = None
    return {"return_spec_tokens_details": True} if known is not None and known >= FIRST_ASKED else {}


def meta_info_acceptance(answers: Iterable[Mapping[str, object]]) -> Acceptance | None:
    """The acceptance of requests together; None where none of them was speculated.

    answers: the `meta_info` of each. Where a release gives no accepted count it is what is left of the tokens: the first comes from
    prefill and each round adds one.

    Raises:
        EngineError: a count is not a whole number of at least 0.
    """
    counted = [found for answer in answers if (found := _of(answer)) is not None]
    return sum(counted[1:], start=counted[0]) if counted else None


def _of(answer: Mapping[str, object]) -> Acceptance | None:
    num_rounds = _count(answer, ROUNDS)
    if not num_rounds:
        return None
    fields = next(row for row in META_INFO_FIELDS if row.accepted is None or row.accepted in answer)
    if fields.accepted is not None:
        num_accepted = _count(answer, fields.accepted)
    else:
        num_accepted = max(0, _count(answer, TOKENS) - 1 - num_rounds)
    return Acceptance(
        num_steps=num_rounds,
        num_rounds=num_rounds,
        num_drafted=max(num_accepted, _count(answer, fields.drafted)),
        num_accepted=num_accepted,
        accepted_per_position=_per_position(answer, fields.histogram),
        exact_steps=fields.accepted is not None,
        source="requests",
    )


def _per_position(answer: Mapping[str, object], name: str | None) -> tuple[int, ...]:
    histogram = answer.get(name) if name is not None else None
    if not isinstance(histogram, list):
        return ()
    counts = [_whole(name or "", count) for count in histogram]
    # a round that accepted j drafts accepted those at the positions 0 to j - 1
    return tuple(sum(counts[accepted:]) for accepted in range(1, len(counts)))


def _count(answer: Mapping[str, object], name: str | None) -> int:
    return _whole(name, answer.get(name, 0)) if name is not None else 0


def _whole(name: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise EngineError(f"meta_info.{name} is {value!a}; expected a whole number of at least 0: is this an answer of SGLang?")
    return value
