"""How often `breakeven equal` is right, on simulated answers whose truth is known.

    python benchmarks/equality.py              # 1000 checks a row, some minutes of processor time
    python benchmarks/equality.py --checks 100

Each check asks 64 prompts for 64 tokens: plain twice, speculation once. A pass leaves its text at near ties ("flips", a share of
tokens) and, with a fault, at tokens that plain clearly did not prefer ("wrong"). Exits with 1 where a sound arm is called faulty in
more than 1 check of 100 beyond chance, or a faulty one sound where the fault could be seen.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from dataclasses import dataclass, field

from scipy.stats import binom

from breakeven.engines.base import Arm
from breakeven.engines.fake.answers import simulate_answers
from breakeven.loadgen.prompts import builtin_prompts
from breakeven.verdict.equality.deciding import ALPHA
from breakeven.verdict.equality.judge import Passes, judge_arm

PROMPTS = builtin_prompts()[:64]
NUM_TOKENS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """Shares of tokens at which plain and speculation flip, and speculation is wrong; how much the server tells; its dtype."""

    told: str
    flips: float = 0.0
    flips_speculative: float | None = None
    wrong: float = 0.0
    logprobs: bool = True
    dtype: str = "bfloat16"
    outcomes: Counter[str] = field(default_factory=Counter)

    def passes(self, seed: int) -> Passes:
        plain = {"rounding_flips": self.flips, "tells_logprobs": self.logprobs}
        more = self.flips if self.flips_speculative is None else self.flips_speculative
        speculative = plain | {"rounding_flips": more, "wrong_tokens": self.wrong}
        answers = [
            simulate_answers(Arm(name="a", engine="fake", simulation=truth), PROMPTS, max_tokens=NUM_TOKENS, seed=3 * seed + number)
            for number, truth in enumerate((plain, plain, speculative))
        ]
        return Passes(plain=answers[0], again=answers[1], speculative=answers[2])


CASES = (
    Case(told="sound, nothing flips"),
    Case(told="sound, 0.3 % of tokens flip", flips=0.003),
    Case(told="sound, 2 % flip", flips=0.02),
    Case(told="sound, 0.3 % of plain's flip and 2 % of its own", flips=0.003, flips_speculative=0.02),
    Case(told="sound, 2 % flip, no log-probabilities, float32", flips=0.02, logprobs=False, dtype="float32"),
    Case(told="sound, 0.3 % flip, no log-probabilities, bfloat16", flips=0.003, logprobs=False),
    Case(told="wrong at 1 % of tokens, nothing flips", wrong=0.01),
    Case(told="wrong at 1 %, 0.3 % flip", flips=0.003, wrong=0.01),
    Case(told="wrong at 1 %, 2 % flip", flips=0.02, wrong=0.01),
    Case(told="wrong at 0.2 %, 0.3 % flip", flips=0.003, wrong=0.002),
    Case(told="wrong at 1 %, 0.3 % flip, no log-probabilities, float32", flips=0.003, wrong=0.01, logprobs=False, dtype="float32"),
    Case(told="wrong at 10 %, 0.3 % flip, no log-probabilities, bfloat16", flips=0.003, wrong=0.1, logprobs=False),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--checks", type=int, default=1000)
    checks = parser.parse_args().checks
    missed = False
    for case in CASES:
        for seed in range(checks):
            found = judge_arm("spec", "plain", case.passes(seed), dtype=case.dtype)
            case.outcomes[found.outcome] += 1
            missed |= case.wrong > 0 and found.speculative.num_far > 0 and found.outcome in ("equal", "numerics")
        shares = ", ".join(f"{outcome} {100 * count / checks:.1f} %" for outcome, count in case.outcomes.most_common())
        print(f"{case.told:<62} {shares}", flush=True)
        if not case.wrong:
            missed |= case.outcomes["fault"] > binom.ppf(0.999, checks, ALPHA)
    sys.exit(missed)


if __name__ == "__main__":
    main()
