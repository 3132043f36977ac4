"""Gate: do the samples say what the target saw and wrote?

Two faults are silent for the whole of training. A template that is not the served one: the drafter learns to follow prompts that it
will never see. A loss mask that is not where the answer is: it learns to write questions.
"""

from __future__ import annotations

from collections.abc import Sequence

from breakeven.drafter.data.samples import Sample
from breakeven.drafter.gates.pipeline import Conversation
from breakeven.drafter.gates.result import GateResult
from breakeven.drafter.gates.truth import TargetTruth
from breakeven.errors import UsageError

__all__ = ["data_gate"]

GATE = "data"
# A target is as surprised by its own drawn words as its uncertainty says, and less by greedy ones; by somebody else's much more.
# In nats a token, over all samples: drawing leaves a few tenths to chance.
MAX_EXCESS_SURPRISE = 0.5


def data_gate(conversations: Sequence[Conversation], truth: TargetTruth) -> GateResult:
    """Prompts against the template as transformers renders it, masks against the answers, answers against the target."""
    if not conversations:
        return GateResult(
            gate=GATE,
            outcome="not run",
            summary="no conversations with their messages were given, so template and mask were not compared with transformers",
        )
    surprise = uncertainty = 0.0
    num_tokens = 0
    for conversation in conversations:
        sample = conversation.sample
        failure = _template(conversation, truth) or _mask(sample)
        if failure is not None:
            return failure
        chances = truth.states(sample.token_ids)[1].log_softmax(-1)
        places = [index for index, mark in enumerate(sample.loss_mask) if mark]
        before = chances[[place - 1 for place in places]]
        surprise -= float(before[range(len(places)), [sample.token_ids[place] for place in places]].sum())
        uncertainty -= float((before.exp() * before).sum())
        num_tokens += len(places)
    excess = (surprise - uncertainty) / num_tokens
    figures: dict[str, float | int | str | None] = {
        "num_samples": len(conversations),
        "num_tokens": num_tokens,
        "surprise": surprise / num_tokens,
        "uncertainty": uncertainty / num_tokens,
    }
    found = (
        f"the target's surprise at the tokens marked as its own is {surprise / num_tokens:.2f} nats a token, its uncertainty "
        f"{uncertainty / num_tokens:.2f}"
    )
    if excess > MAX_EXCESS_SURPRISE:
        return _failed(
            f"{found}; expected at most {MAX_EXCESS_SURPRISE} more: it did not write these answers after these prompts",
            "make the answers with the served target (breakeven data answers), with the template and quantization that is served",
            figures,
        )
    return GateResult(
        gate=GATE,
        outcome="passed",
        summary=f"{len(conversations)} prompts are token for token what transformers renders; {found}",
        figures=figures,
    )


def _template(conversation: Conversation, truth: TargetTruth) -> GateResult | None:
    sample = conversation.sample
    try:
        expected = truth.prompt_ids(conversation.messages[:-1])
    except UsageError as error:
        return _failed(str(error), "train on conversations that the served template takes", {})
    found = list(sample.token_ids[: sample.num_prompt_tokens])
    if found == expected:
        return None
    same = next(
        (place for place, (mine, theirs) in enumerate(zip(found, expected, strict=False)) if mine != theirs),
        min(len(found), len(expected)),
    )
    return _failed(
        f"template mismatch: sample {sample.sample_id} has a prompt of {len(found)} tokens, the target's template gives "
        f"{len(expected)}; they part at token {same} ({found[same : same + 4]} against {expected[same : same + 4]})",
        "render the samples with the chat template that the target is served with, system prompt and thinking tags included",
        {"first_difference": same},
    )


def _mask(sample: Sample) -> GateResult | None:
    begin = sample.num_prompt_tokens
    answer = sample.loss_mask[begin:]
    if answer and all(answer) and not sample.loss_mask[begin - 1]:
        return None
    marked = [index for index, mark in enumerate(sample.loss_mask) if mark]
    found = f"{marked[0]} to {marked[-1]}" if marked else "none"
    return _failed(
        f"sample {sample.sample_id}: tokens {found} are marked as the target's; its last answer is {begin} to "
        f"{len(sample.token_ids) - 1}",
        "mark the tokens that the target wrote and no others; the objective does the shifting",
        {},
    )


def _failed(summary: str, remedy: str, figures: dict[str, float | int | str | None]) -> GateResult:
    return GateResult(gate=GATE, outcome="failed", stage="data", summary=summary, remedy=remedy, figures=figures)
