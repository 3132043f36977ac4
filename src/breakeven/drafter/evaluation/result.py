"""What an evaluation found, as figures with their doubts: the one type that is printed, stored as JSON and compared."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from pydantic import BaseModel, ConfigDict, Field

from breakeven.acceptance import Acceptance
from breakeven.drafter.evaluation.rounds import AnswerRounds
from breakeven.stats.intervals import Estimate
from breakeven.stats.ratios import clustered_ratio, clustered_ratio_difference

__all__ = ["SCHEMA_VERSION", "Evaluation", "Figures", "accept_length_gain", "accept_length_interval", "acceptance_of", "summarise"]

SCHEMA_VERSION = 1
# Upper ends of context buckets, in tokens before the round.
CONTEXT_EDGES = (128, 256, 512, 1024, 2048, 4096, 8192, 16_384, 32_768, 65_536, 131_072)
# An interval over fewer prompts is printed with a warning beside it.
FEW_PROMPTS = 10


class Figures(BaseModel):
    """Acceptance over the rounds of some prompts. Lengths count the bonus token; the interval is over prompts."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    num_prompts: int = Field(description="Prompts that had at least one round")
    num_rounds: int
    num_drafted: int
    num_accepted: int
    accept_length: float | None = Field(description="Tokens per round, bonus included; none without a round")
    accept_length_low: float | None = Field(description="95 % interval over prompts; none where they show no spread")
    accept_length_high: float | None
    joint: tuple[float, ...] = Field(description="P(first i drafts accepted), i = 1..k")
    conditional: tuple[float | None, ...] = Field(description="P(draft i accepted | those before it were)")


class Evaluation(BaseModel):
    """Free-running greedy chain drafting against the target's own greedy answers."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    schema_version: int = SCHEMA_VERSION
    target: str = ""
    drafter: str = ""
    dtype: str = ""
    num_draft_tokens: int
    draft_vocab_size: int
    auxiliary_layers: tuple[int, ...] = Field(description="Layer inputs")
    overall: Figures
    without_loops: Figures = Field(description="Without answers that repeat themselves, which flatter")
    num_answers: int
    num_looping: int
    num_unfinished: int = Field(description="Answers cut off by the token limit")
    num_answer_tokens: int
    unknown_token_share: float | None = Field(description="Answer tokens outside the draft vocabulary: always rejections")
    unknown_rejection_share: float | None = Field(description="Rejections whose wanted token is outside the draft vocabulary")
    by_kind: dict[str, Figures]
    by_context: dict[str, Figures] = Field(description="By tokens before the round")
    doubts: tuple[str, ...] = ()


def acceptance_of(answers: Iterable[AnswerRounds], num_draft_tokens: int, within: range | None = None) -> Acceptance:
    """Counts over the rounds of `answers`, of those only that began with as many tokens of context as `within` holds."""
    accepted = [
        count
        for answer in answers
        for count, context in zip(answer.accepted, answer.context, strict=True)
        if within is None or context in within
    ]
    return Acceptance(
        num_steps=len(accepted),
        num_rounds=len(accepted),
        num_drafted=len(accepted) * num_draft_tokens,
        num_accepted=sum(accepted),
        accepted_per_position=tuple(sum(count > position for count in accepted) for position in range(num_draft_tokens)),
    )


def accept_length_interval(per_prompt: Sequence[Acceptance]) -> Estimate:
    """Accept length over all prompts, with its interval over prompts."""
    return clustered_ratio(*_sums(per_prompt))


def accept_length_gain(mine: Sequence[AnswerRounds], other: Sequence[AnswerRounds], num_draft_tokens: int) -> Estimate:
    """Accept length of one drafter minus another's on the same answers, paired by prompt."""
    assert [answer.prompt_id for answer in mine] == [answer.prompt_id for answer in other], "not the same prompts"
    first, second = (_sums([acceptance_of([answer], num_draft_tokens) for answer in answers]) for answers in (mine, other))
    return clustered_ratio_difference(*first, *second)


def summarise(
    answers: Sequence[AnswerRounds], *, num_draft_tokens: int, draft_vocab_size: int, auxiliary_layers: Sequence[int]
) -> Evaluation:
    """Every figure of the result from the rounds of all answers."""

    def figures(wanted: Callable[[AnswerRounds], bool] = lambda _: True, within: range | None = None) -> Figures:
        return _figures([acceptance_of([answer], num_draft_tokens, within) for answer in answers if wanted(answer)])

    overall = figures()
    without_loops = figures(lambda answer: not answer.looping)
    num_tokens = sum(answer.num_answer_tokens for answer in answers)
    unknown = [missing for answer in answers for missing in answer.unknown]
    rejected = sum(count < num_draft_tokens for answer in answers for count in answer.accepted)
    buckets = {
        f"{low + 1}-{high}": figures(within=range(low + 1, high + 1))
        for low, high in zip((0, *CONTEXT_EDGES), CONTEXT_EDGES, strict=False)
    }
    kinds = sorted({answer.kind for answer in answers})
    return Evaluation(
        num_draft_tokens=num_draft_tokens,
        draft_vocab_size=draft_vocab_size,
        auxiliary_layers=tuple(auxiliary_layers),
        overall=overall,
        without_loops=without_loops,
        num_answers=len(answers),
        num_looping=sum(answer.looping for answer in answers),
        num_unfinished=sum(not answer.finished for answer in answers),
        num_answer_tokens=num_tokens,
        unknown_token_share=sum(answer.num_unknown_tokens for answer in answers) / num_tokens if num_tokens else None,
        unknown_rejection_share=sum(unknown) / rejected if rejected else None,
        by_kind={kind: figures(lambda answer, kind=kind: answer.kind == kind) for kind in kinds},  # type: ignore[misc]
        by_context={name: bucket for name, bucket in buckets.items() if bucket.num_rounds},
        doubts=_doubts(answers, overall, without_loops),
    )


def _sums(per_prompt: Sequence[Acceptance]) -> tuple[list[int], list[int]]:
    return [counts.num_steps + counts.num_accepted for counts in per_prompt], [counts.num_steps for counts in per_prompt]


def _figures(per_prompt: Sequence[Acceptance]) -> Figures:
    total = sum(per_prompt, Acceptance(num_steps=0, num_rounds=0, num_drafted=0, num_accepted=0))
    interval = accept_length_interval(per_prompt)
    most = 1.0 + (total.num_drafted / total.num_rounds if total.num_rounds else 0.0)
    return Figures(
        num_prompts=sum(counts.num_rounds > 0 for counts in per_prompt),
        num_rounds=total.num_rounds,
        num_drafted=total.num_drafted,
        num_accepted=total.num_accepted,
        accept_length=total.accept_length if total.num_rounds else None,
        # a t interval knows nothing of the bounds that an accept length has
        accept_length_low=max(1.0, interval.low) if interval.usable else None,
        accept_length_high=min(most, interval.high) if interval.usable else None,
        joint=total.joint,
        conditional=tuple(chance if chance == chance else None for chance in total.conditional),
    )


def _doubts(answers: Sequence[AnswerRounds], overall: Figures, without_loops: Figures) -> tuple[str, ...]:
    doubts = []
    if not overall.num_rounds:
        doubts.append("no answer took a round: every one ended with its first token; use other prompts")
    elif overall.accept_length_low is None:
        doubts.append("the prompts show no spread, so there is no interval; use more and longer prompts")
    elif overall.num_prompts < FEW_PROMPTS:
        doubts.append(f"the interval rests on {overall.num_prompts} prompts; use at least {FEW_PROMPTS}")
    looping = sum(answer.looping for answer in answers)
    if looping and overall.num_rounds:
        length = "unknown" if without_loops.accept_length is None else f"{without_loops.accept_length:.2f}"
        doubts.append(f"{looping} of {len(answers)} answers repeat themselves, which flatters: without them {length}")
    if overall.num_rounds:
        doubts.append("greedy: traffic that samples accepts less")
    return tuple(doubts)
