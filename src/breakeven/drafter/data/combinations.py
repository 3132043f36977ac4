"""Prompts made of an instruction and a topic, of many kinds: explanations, lists, stories, code, maths, summaries, translations.

Held-out topics are marked in the file, so they are the same in every data set: figures on them are figures on topics that no
drafter trained on these combinations has ever met, which is what to trust most.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib import resources

import orjson

from breakeven.drafter.data.prompt_records import PromptRecord, prompt_id

__all__ = ["Topic", "combined_prompts", "held_out_topics"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    """`about` is what instructions fit it: subject, program, quantity or passage."""

    about: str
    name: str
    held_out: bool


@cache
def _builtin() -> tuple[tuple[tuple[str, str, str], ...], tuple[Topic, ...]]:
    """((kind, about, text with {topic}), ...) and the topics."""
    file = resources.files("breakeven.drafter.data") / "builtin" / "combinations.json"
    found = orjson.loads(file.read_bytes())
    instructions = tuple((entry["kind"], entry["about"], entry["text"]) for entry in found["instructions"])
    return instructions, tuple(Topic(**entry) for entry in found["topics"])


def held_out_topics() -> tuple[Topic, ...]:
    return tuple(topic for topic in _builtin()[1] if topic.held_out)


def combined_prompts() -> tuple[PromptRecord, ...]:
    """Every instruction with every topic that it fits, in the order of the file."""
    instructions, topics = _builtin()
    records = []
    for kind, about, text in instructions:
        for topic in topics:
            if topic.about == about:
                messages = ({"role": "user", "content": text.replace("{topic}", topic.name)},)
                records.append(
                    PromptRecord(
                        id=prompt_id(messages),
                        kind=kind,
                        topic=topic.name if len(topic.name) <= 80 else topic.name[:77] + "...",
                        source="combination",
                        split="held_out" if topic.held_out else "train",
                        messages=messages,
                    )
                )
    return tuple(records)
