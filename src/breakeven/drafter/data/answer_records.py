"""The line of a training file for one answer: its token ids as the target had them, or rendered here where they are not known."""

from __future__ import annotations

from breakeven.drafter.data.asks import Answer
from breakeven.drafter.data.looping import looping_reason
from breakeven.drafter.data.rendering import RenderingError, render_conversation
from breakeven.drafter.data.target_files import TargetFiles
from breakeven.drafter.data.training_records import AnswerRecord, TokenSource
from breakeven.errors import DataError, UsageError

__all__ = ["answer_record"]


def answer_record(answer: Answer, target: TargetFiles | None) -> AnswerRecord:
    """The line of one answer, rendered here where its ids are not known.

    Raises:
        DataError: nothing was written, or the template cannot render it.
    """
    assert answer.message is not None
    messages = (*answer.ask.prompt.messages, {"role": "assistant", **answer.message})
    text = str(answer.message.get("reasoning_content") or "") + str(answer.message.get("content") or "")
    tokens: TokenSource = "none"
    token_ids: tuple[int, ...] = ()
    num_prompt_tokens = 0
    if answer.answer_ids is not None and answer.prompt_ids is not None:
        if not answer.answer_ids:
            raise DataError("the answer has no tokens")
        tokens, token_ids = "exact", (*answer.prompt_ids, *answer.answer_ids)
        if target is not None and max(token_ids) >= target.identity.vocab_size:
            raise DataError(
                f"token id {max(token_ids)} lies outside the vocabulary of {target.identity.vocab_size}; another model answered"
            )
        num_prompt_tokens = len(answer.prompt_ids)
    elif not text.strip():
        raise DataError("the answer is empty")
    elif target is not None:
        try:
            rendered = render_conversation(target, messages, turns="last")
        except UsageError as error:
            raise RenderingError(str(error)) from error
        tokens, token_ids, num_prompt_tokens = "rendered", rendered.token_ids, rendered.answers[-1][0]
        if answer.finish_reason != "stop" and token_ids[-1] in target.stop_token_ids:
            # the template ends every turn, the target had not ended this one
            token_ids = token_ids[:-1]
    return AnswerRecord(
        id=answer.ask.id,
        prompt_id=answer.ask.prompt.id,
        kind=answer.ask.prompt.kind,
        topic=answer.ask.prompt.topic,
        split=answer.ask.prompt.split,
        messages=messages,
        tokens=tokens,
        token_ids=token_ids,
        num_prompt_tokens=num_prompt_tokens,
        sampling=answer.ask.sampling,
        finish_reason=answer.finish_reason,
        looping=looping_reason(text, finished=answer.finish_reason == "stop"),
    )
