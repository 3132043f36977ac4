"""Prompts that the target makes itself: asked to go on where a user's turn begins, an instruction-tuned model writes one.

The chat template is rendered up to the start of the user's turn; what the model adds until its end-of-turn token is a prompt of the
kind it was trained on (Xu et al. 2024, "Magpie"). No data set is needed, and the prompts are the target's own idea of its traffic.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from breakeven.drafter.data.generator import Generate
from breakeven.drafter.data.prompt_records import PromptRecord, normalised, prompt_id
from breakeven.drafter.data.target_files import TargetFiles
from breakeven.errors import DataError, UsageError

__all__ = ["UserTurn", "sampled_prompts", "user_turn"]

MIN_WORDS = 3
# A word that no template treats in any way of its own.
STAND_IN = "Platzhalter"


@dataclass(frozen=True, slots=True, kw_only=True)
class UserTurn:
    """`beginning` are the ids up to where the user's first turn starts, `stop_ids` what ends that turn."""

    beginning: tuple[int, ...]
    stop_ids: frozenset[int]


def user_turn(target: TargetFiles) -> UserTurn:
    """Where the template puts the user's first turn.

    Raises:
        DataError: the template shows no place for it, or no special token ends it.
    """
    try:
        text = target.template.render(
            [{"role": "user", "content": STAND_IN}], add_generation_prompt=True, variables=target.template_variables
        )
    except UsageError as error:
        raise DataError(f"{target.folder}: {error}; a single user turn cannot be rendered, so none can be sampled") from error
    before, found, after = text.partition(STAND_IN)
    if not found:
        raise DataError(f"{target.folder}: the chat template shows no user turn; give prompts of your own with --from")
    # Whatever special token the template puts behind the user's words, a space between or not: <|im_end|>, <|eot_id|>, [/INST]
    rest = target.encode(after.lstrip())
    if not rest or rest[0] not in target.tokenizer.special_token_ids:
        raise DataError(
            f"{target.folder}: the chat template ends a user turn with {after[:20]!a}, which is no special token, so the "
            "target cannot say where a prompt of its own ends; give prompts with --from, or leave sampling out with --sampled 0"
        )
    # a space in front of the first word belongs to that word's token, which the target is to write
    return UserTurn(beginning=target.encode(before.rstrip(" ")), stop_ids=target.stop_token_ids | {rest[0]})


def sampled_prompts(
    target: TargetFiles,
    generate: Generate,
    *,
    count: int,
    seed: int,
    max_tokens: int = 64,
    temperature: float = 1.0,
    top_p: float = 0.95,
    tell: Callable[[int, int], None] = lambda _done, _tokens: None,
) -> tuple[PromptRecord, ...]:
    """User turns that were finished and say something, of `count` tries; equal ones are not sorted out here.

    The split is set later (`splitting`).
    tell: (tries done, tokens written) after each.

    Raises:
        DataError: no place for a user turn in this template.
    """
    turn = user_turn(target)
    special = target.tokenizer.special_token_ids
    num_tokens = 0
    written: dict[int, PromptRecord] = {}
    for done, (index, token_ids, reason) in enumerate(
        generate(
            target.folder,
            [turn.beginning] * count,
            max_new_tokens=max_tokens,
            temperature=temperature,
            top_p=top_p,
            seed=seed,
            stop_ids=turn.stop_ids,
        ),
        start=1,
    ):
        num_tokens += len(token_ids)
        tell(done, num_tokens)
        if reason != "stop" or not special.isdisjoint(token_ids[:-1]):
            continue
        text = target.tokenizer.text_of(token_ids[:-1]).strip()
        if "\ufffd" in text or not _says_something(text):
            continue
        messages = ({"role": "user", "content": text},)
        written[index] = PromptRecord(
            id=prompt_id(messages), kind="self-sampled", messages=messages, split="train", source="sampled"
        )
    return tuple(record for _, record in sorted(written.items()))


def _says_something(text: str) -> bool:
    words = normalised(text)
    # scripts without spaces say in six characters what takes others three words
    return len(words.split()) >= MIN_WORDS or (not words.isascii() and len(words) >= 2 * MIN_WORDS)
