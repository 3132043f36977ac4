"""From answers to a run's verdict."""

from __future__ import annotations

from breakeven.engines.base import Arm
from breakeven.engines.fake.answers import simulate_answers
from breakeven.experiment.answering import Answered, Asked, Asking
from breakeven.loadgen.prompts import builtin_prompts
from breakeven.verdict.equality.check import judge_equality
from breakeven.verdict.equality.result import ArmEquality

PROMPTS = builtin_prompts()[:16]


def judged(facts: dict[str, object]) -> ArmEquality:
    answers = simulate_answers(Arm(name="a", engine="fake"), PROMPTS, max_tokens=16, seed=0)
    asking = Asking(asked=Asked(prompts=PROMPTS, max_tokens=16, concurrency=2, seed=0), references={"spec": "plain"}, left_out={})
    passes = {"plain": [answers, answers], "spec": [answers]}
    (arm,) = judge_equality("r", asking, Answered(passes=passes, failed={}, facts={"spec": facts})).arms
    return arm


def test_replaced_kernels_are_said_where_the_outcome_is() -> None:
    clean = judged({"engine": "sglang", "kernels": "sglang-kernel 0.4.10"})
    assert "kernels" not in clean.sentence
    replaced = judged({"engine": "sglang", "unreleased_kernels": "sgl_kernel is imported from /tmp"})
    assert replaced.outcome == clean.outcome == "equal"
    assert replaced.sentence == f"{clean.sentence}. Its kernels were replaced, so this says nothing of sglang's"
    assert replaced.evidence == (*clean.evidence, "sgl_kernel is imported from /tmp")
