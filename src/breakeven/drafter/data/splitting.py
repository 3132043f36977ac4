"""Training or held out, decided for whole groups of near-duplicates, so that no held-out prompt has a twin in training.

Combinations stand where their topic stands. Free prompts (sampled, or from a file) follow three rules: one that is nearly a
training combination goes to training with its whole group; one that is nearly a held-out combination, or speaks of a held-out
topic, is dropped; every other group falls by the hash of its texts, so that the same prompts fall the same way in every run.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from breakeven.drafter.data.combinations import held_out_topics
from breakeven.drafter.data.near_duplicates import group_near_duplicates, near_any, signatures
from breakeven.drafter.data.prompt_records import PromptRecord, normalised

__all__ = ["SplitPrompts", "split_prompts"]

# A group this large would be most of the held-out prompts, all alike: it is better learnt from.
MAX_HELD_OUT_GROUP_SHARE = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitPrompts:
    """`num_duplicates` were there already, `num_dropped` touched a held-out topic; `num_groups` hold more than one."""

    records: tuple[PromptRecord, ...]
    num_duplicates: int
    num_dropped: int
    num_groups: int


def split_prompts(combinations: Sequence[PromptRecord], free: Sequence[PromptRecord], *, held_out_share: float) -> SplitPrompts:
    """All prompts, each once, with their splits; the splits of `free` are set here.

    held_out_share: of the free prompts, near enough (groups fall as a whole).
    """
    known = {record.id for record in combinations}
    single: list[PromptRecord] = []
    for record in free:
        if record.id not in known:
            known.add(record.id)
            single.append(record)
    texts = [_text(record.messages) for record in single]
    groups: defaultdict[int, list[int]] = defaultdict(list)
    signed = signatures(texts)
    # conversations that begin alike and then part are of one group too
    openings = [_text(record.messages[:2]) for record in single]
    for index, group in enumerate(group_near_duplicates(signed, openings)):
        groups[group].append(index)
    trained, reserved = (
        near_any(signed, signatures([_text(record.messages) for record in combinations if record.split == side])).tolist()
        for side in ("train", "held_out")
    )
    if combinations:
        topics = [f" {_stemmed(topic.name)} " for topic in held_out_topics()]
        for index, text in enumerate(texts):
            stemmed = f" {_stemmed(text)} "
            reserved[index] = reserved[index] or any(topic in stemmed for topic in topics)
    most = max(1.0, MAX_HELD_OUT_GROUP_SHARE * held_out_share * len(single))
    split: list[PromptRecord] = []
    for members in groups.values():
        held_out = (
            len(members) <= most
            and not any(trained[index] for index in members)
            and _fraction(min(single[index].id for index in members)) < held_out_share
        )
        split += [replace(single[index], split="held_out" if held_out else "train") for index in members if not reserved[index]]
    return SplitPrompts(
        records=(*combinations, *split),
        num_duplicates=len(free) - len(single),
        num_dropped=sum(reserved),
        num_groups=sum(len(members) > 1 for members in groups.values()),
    )


def _text(messages: Sequence[Mapping[str, Any]]) -> str:
    """What a prompt asks: its user turns. A system prompt that all share would make all of them alike."""
    return "\n".join(str(message["content"]) for message in messages if message["role"] == "user")


def _stemmed(text: str) -> str:
    """Normalised words without a plural s, so that "a volcano" is found to speak of "volcanoes"."""
    return " ".join(word.removesuffix("s").removesuffix("e") if len(word) > 3 else word for word in normalised(text).split())


def _fraction(key: str) -> float:
    """A number in [0, 1) that depends on `key` only."""
    return int.from_bytes(hashlib.sha256(f"split {key}".encode()).digest()[:8]) / 2**64
