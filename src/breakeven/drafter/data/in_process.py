"""Answers of a model folder in this process, in large batches: exact ids, no server."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from breakeven.drafter.data.asks import Answer, Ask
from breakeven.drafter.data.generator import Generate
from breakeven.drafter.data.target_files import TargetFiles
from breakeven.errors import UsageError

__all__ = ["InProcess"]


class InProcess:
    """A `Source`. Greedy and sampled answers share the batches."""

    def __init__(self, target: TargetFiles, generate: Generate, *, max_tokens: int, seed: int) -> None:
        self._target = target
        self._generate = generate
        self._max_tokens = max_tokens
        self._seed = seed

    def fetch(self, asks: Sequence[Ask], take: Callable[[Answer], None]) -> None:
        prompts: list[tuple[int, ...]] = []
        asked: list[Ask] = []
        for ask, ids in self._rendered(asks, take):
            if len(ids) < self._target.context_length:
                prompts.append(ids)
                asked.append(ask)
            else:
                take(Answer(ask=ask, skipped=f"the prompt fills the context of {self._target.context_length} tokens"))
        top_ps = {ask.sampling.top_p for ask in asked if ask.sampling.temperature > 0}
        assert len(top_ps) <= 1, top_ps
        if not asked:
            return
        answers = self._generate(
            self._target.folder,
            prompts,
            max_new_tokens=self._max_tokens,
            temperature=[ask.sampling.temperature for ask in asked],
            top_p=top_ps.pop() if top_ps else 1.0,
            # what a prompt draws goes by its place in the call: a run that goes on must not draw the same numbers again
            seed=self._seed * 1_000_003 + len(asked),
            stop_ids=self._target.stop_token_ids,
        )
        for index, token_ids, reason in answers:
            text = self._target.tokenizer.text_of(token_ids)
            take(
                Answer(
                    ask=asked[index],
                    message={"content": text},
                    prompt_ids=prompts[index],
                    answer_ids=token_ids,
                    finish_reason=reason,
                )
            )

    def _rendered(self, asks: Sequence[Ask], take: Callable[[Answer], None]) -> Iterator[tuple[Ask, tuple[int, ...]]]:
        """Every ask that the template takes, with the ids of its prompt; the others are skipped."""
        texts: list[str] = []
        rendered: list[Ask] = []
        for ask in asks:
            try:
                texts.append(self._target.template.render(ask.prompt.messages, variables=self._target.template_variables))
            except UsageError as error:
                take(Answer(ask=ask, skipped=str(error)))
            else:
                rendered.append(ask)
        # forty thousand prompts, one by one, would let a GPU wait for seconds
        return zip(rendered, self._target.tokenizer.encode_many(texts), strict=True)
