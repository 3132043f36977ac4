"""Simulated passes with known truth: how often each outcome comes out."""

from __future__ import annotations

from collections import Counter

import pytest

from breakeven.engines.base import Arm
from breakeven.engines.fake.answers import simulate_answers
from breakeven.loadgen.answers import GreedyAnswer
from breakeven.loadgen.prompts import builtin_prompts
from breakeven.verdict.equality.judge import Passes, judge_arm, near_tie_nats
from breakeven.verdict.equality.result import ArmEquality

PROMPTS = builtin_prompts()[:64]


def judged(seed: int, plain: dict[str, object], speculative: dict[str, object], *, dtype: str = "bfloat16") -> ArmEquality:
    def ask(simulation: dict[str, object], number: int) -> list[GreedyAnswer]:
        arm = Arm(name="a", engine="fake", simulation=simulation)
        return simulate_answers(arm, PROMPTS, max_tokens=48, seed=1000 * seed + number)

    return judge_arm(
        "spec", "plain", Passes(plain=ask(plain, 0), again=ask(plain, 1), speculative=ask(speculative, 2)), dtype=dtype
    )


def outcomes(plain: dict[str, object], speculative: dict[str, object], times: int = 30, dtype: str = "bfloat16") -> Counter[str]:
    return Counter(judged(seed, plain, speculative, dtype=dtype).outcome for seed in range(times))


def test_exact_arithmetic_is_equal() -> None:
    assert outcomes({}, {}, 3) == {"equal": 3}


def test_a_sound_arm_is_seldom_called_faulty() -> None:
    """At most one in a hundred: with ties only there is nothing far, so never; without log-probabilities the sign test decides."""
    assert outcomes({"rounding_flips": 0.01}, {"rounding_flips": 0.01}) == {"numerics": 30}
    blind = {"rounding_flips": 0.01, "tells_logprobs": False}
    assert outcomes(blind, blind, 100, "float32")["fault"] <= 4  # 99.6 % of binomial(100, 0.01)


def test_more_ties_than_plain_has_are_still_no_fault() -> None:
    assert outcomes({}, {"rounding_flips": 0.02}) == {"numerics": 30}
    blind = outcomes({"tells_logprobs": False}, {"rounding_flips": 0.004, "tells_logprobs": False})
    assert set(blind) == {"undecided"}


@pytest.mark.parametrize("flips", [0.0, 0.01])
def test_a_fault_is_found_amid_rounding(flips: float) -> None:
    found = outcomes({"rounding_flips": flips}, {"rounding_flips": flips, "wrong_tokens": 0.01})
    assert found["fault"] >= 27
    assert not found["numerics"]
    assert not found["equal"]


def test_a_rare_fault_is_never_called_rounding() -> None:
    checks = [judged(seed, {"rounding_flips": 0.01}, {"rounding_flips": 0.01, "wrong_tokens": 0.002}) for seed in range(30)]
    # where a tie came before every wrong token, nothing could be seen
    seen = [check for check in checks if check.speculative.num_far]
    assert len(seen) >= 25
    assert {check.outcome for check in seen} <= {"fault", "undecided"}


def test_loops_and_failures_are_named() -> None:
    arm = judged(1, {"degenerate_probability": 0.2}, {"degenerate_probability": 0.2, "error_probability": 0.05})
    assert any("answers are degenerate (loop: simulated)" in fact for fact in arm.evidence)
    assert any("were left out because a request failed" in fact for fact in arm.evidence)
    assert arm.num_failed + arm.num_prompts == 64


def test_what_it_rests_on_is_told() -> None:
    arm = judged(0, {"rounding_flips": 0.01}, {"rounding_flips": 0.01, "wrong_tokens": 0.03})
    assert arm.outcome == "fault"
    assert arm.sentence.startswith("spec does not say what plain says")
    assert arm.speculative.num_near + arm.speculative.num_far + arm.speculative.num_unknown == arm.speculative.num_parted
    assert [position for position, _ in arm.speculative.agreeing] == [12, 24, 36, 48]
    assert sorted((share for _, share in arm.speculative.agreeing), reverse=True) == [
        share for _, share in arm.speculative.agreeing
    ]
    assert arm.examples[0].margin == pytest.approx(5.0)
    assert arm.examples[0].plain != arm.examples[0].speculative


def test_ties_by_dtype() -> None:
    assert near_tie_nats("float32") == near_tie_nats("torch.float32") < near_tie_nats("bfloat16") == near_tie_nats(None)
