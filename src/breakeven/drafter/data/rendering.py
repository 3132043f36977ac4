"""A conversation as the target saw it: rendered token ids, and the loss mask over what the target wrote.

The mask is not guessed from role markers. The template itself is asked: for every assistant turn it renders the prompt that asks
for that turn, and the conversation up to its end; both must be beginnings of the whole. What lies between is the turn, and the
target wrote it up to its end-of-turn token, that one included: line ends and headers that the template adds behind it are not the
target's. Templates that mark generated parts with `{% generation %}` are taken at their word.

Some templates edit history (reasoning of earlier turns is dropped). Then the beginning of a longer conversation is not what the
target saw when it wrote, no mask over it can be right, and it is refused with the turn. Such conversations are trained on turn by
turn, each as the last of its own (`turns="last"`).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Literal

from breakeven.drafter.data.target_files import TargetFiles
from breakeven.errors import DataError, UsageError

__all__ = ["Rendered", "RenderingError", "Span", "render_conversation"]

Span = tuple[int, int]  # tokens, begin and end


class RenderingError(DataError):
    """The template cannot say what the target wrote in this conversation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rendered:
    """`answers` are the spans of tokens that the target wrote, in order. Tokens end with the last of them."""

    token_ids: tuple[int, ...]
    answers: tuple[Span, ...]

    @property
    def loss_mask(self) -> tuple[bool, ...]:
        mask = [False] * len(self.token_ids)
        for begin, end in self.answers:
            mask[begin:end] = [True] * (end - begin)
        return tuple(mask)


def render_conversation(
    target: TargetFiles, messages: Sequence[Mapping[str, Any]], *, turns: Literal["all", "last"] = "all"
) -> Rendered:
    """Token ids of `messages`, whose last is the assistant's, and where the target's answers lie in them.

    turns: whether every assistant turn was written by the target, or the last one only.

    Raises:
        RenderingError: no assistant turn at the end, a template that edits history, or a mask of everything or nothing.
        UsageError: the template refuses the messages.
    """
    written = [turn for turn, message in enumerate(messages) if message.get("role") == "assistant"]
    if not written or written[-1] != len(messages) - 1:
        raise RenderingError("the conversation does not end with an assistant turn; expected the target's answer there")
    text, marks = target.template.render_marked(messages, variables=target.template_variables)
    if turns == "last":
        written = written[-1:]
    rendered = _from_marks(target, messages, text, marks, turns) if marks else _from_prefixes(target, messages, text, written)
    num_masked = sum(end - begin for begin, end in rendered.answers)
    if num_masked == 0:
        raise RenderingError("the loss mask covers nothing: the template shows no text of the assistant's turns")
    if num_masked == len(rendered.token_ids):
        raise RenderingError("the loss mask covers every token, prompt included: the template puts nothing in front of the answer")
    return rendered


def _from_prefixes(target: TargetFiles, messages: Sequence[Mapping[str, Any]], text: str, written: Sequence[int]) -> Rendered:
    cuts: list[int] = []
    for turn in written:
        number = f"turn {turn + 1} of {len(messages)}"
        try:
            before = target.template.render(messages[:turn], variables=target.template_variables)
        except UsageError as error:
            raise RenderingError(f"{number}: the template cannot ask for it: {error}") from error
        _require_prefix(text, before, f"{number} (assistant): the prompt that asks for it")
        cuts.append(len(before))
        if turn == len(messages) - 1:
            cuts.append(len(text))
            continue
        after = target.template.render(messages[: turn + 1], add_generation_prompt=False, variables=target.template_variables)
        _require_prefix(text, after, f"{number} (assistant): the conversation up to its end")
        cuts.append(len(after))
    token_ids, places = _encode_cut(target, text, cuts)
    answers = []
    for turn, begin, end in zip(written, places[0::2], places[1::2], strict=True):
        answers.append((begin, _written_end(target, messages[turn], token_ids, begin, end)))
    return Rendered(token_ids=token_ids[: answers[-1][1]], answers=tuple(span for span in answers if span[0] < span[1]))


def _require_prefix(text: str, beginning: str, what: str) -> None:
    if text.startswith(beginning):
        return
    same = next(
        (place for place, (a, b) in enumerate(zip(text, beginning, strict=False)) if a != b), min(len(text), len(beginning))
    )
    raise RenderingError(
        f"{what} is not how the whole conversation begins. They part at character {same}: {_shown(beginning, same)} became "
        f"{_shown(text, same)}. The template edits history; train on such conversations turn by turn, each ending with the answer"
    )


def _shown(text: str, place: int) -> str:
    return ascii(text[max(0, place - 12) : place + 28])


def _encode_cut(target: TargetFiles, text: str, cuts: Sequence[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Ids of `text`, and how many tokens lie before each of `cuts` (ascending characters).

    Encoded in one piece where the pieces are the same, as they are where special tokens stand at the cuts. Elsewhere a token may
    reach over a cut; the target did not see that one, because its prompt ended there: then the pieces are joined.

    Raises:
        RenderingError: a token reaches over a cut and pieces cannot be encoded alone (SentencePiece puts a space in front).
    """
    whole = target.encode(text)
    counts = []
    for cut in cuts:
        beginning = whole if cut == len(text) else target.encode(text[:cut])
        if whole[: len(beginning)] != beginning:
            break
        counts.append(len(beginning))
    else:
        return whole, tuple(counts)
    if not target.tokenizer.is_byte_level:
        raise RenderingError(
            f"a token reaches over the border of a turn at {_shown(text, cuts[len(counts)])}, and this tokenizer cannot encode the "
            "parts alone; use answers with exact token ids (breakeven data answers)"
        )
    pieces = [target.encode(text[begin:end]) for begin, end in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    joined = tuple(token for piece in pieces for token in piece)
    return joined, tuple(accumulate(len(piece) for piece in pieces[:-1]))


def _written_end(target: TargetFiles, message: Mapping[str, Any], token_ids: Sequence[int], begin: int, end: int) -> int:
    """Where the target stopped writing: behind the first stop token, or else at the end of the message's own text."""
    for place in range(begin, end):
        if token_ids[place] in target.stop_token_ids:
            return place + 1
    # A template without an end-of-turn token: what it adds behind the answer (line ends, say) is not the target's.
    content = str(message.get("content") or "").strip()
    for place in range(begin, end):
        if target.tokenizer.text_of(token_ids[begin : place + 1]).rstrip().endswith(content):
            return place + 1
    return end


def _from_marks(
    target: TargetFiles,
    messages: Sequence[Mapping[str, Any]],
    text: str,
    marks: Sequence[Span],
    turns: Literal["all", "last"],
) -> Rendered:
    if turns == "last":
        earlier = target.template.render(messages[:-1], add_generation_prompt=False, variables=target.template_variables)
        _require_prefix(text, earlier, f"turn {len(messages)} (assistant): what stands before it")
        marks = [mark for mark in marks if mark[0] >= len(earlier)]
    token_ids, bounds = _encode_marked(target, text, marks)
    answers = []
    for first, last in bounds:
        # the end-of-turn token belongs to the answer wherever the mark ends
        ends_here = last < len(token_ids) and token_ids[last] in target.stop_token_ids
        if ends_here and token_ids[last - 1] not in target.stop_token_ids:
            last += 1
        if first < last:
            answers.append((first, last))
    return Rendered(token_ids=token_ids[: answers[-1][1]] if answers else token_ids, answers=tuple(answers))


def _encode_marked(target: TargetFiles, text: str, marks: Sequence[Span]) -> tuple[tuple[int, ...], list[Span]]:
    """Ids of `text` and the tokens of each mark. A SentencePiece token that begins with the space before a mark belongs to it."""
    if target.tokenizer.is_byte_level:
        token_ids, places = _encode_cut(target, text, [place for mark in marks for place in mark])
        return token_ids, list(zip(places[0::2], places[1::2], strict=True))
    token_ids, offsets = target.tokenizer.encode_with_offsets(text)
    begins, ends = [begin for begin, _ in offsets], [end for _, end in offsets]
    return token_ids, [(bisect_right(ends, begin), bisect_left(begins, end)) for begin, end in marks]
