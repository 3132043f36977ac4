"""What a server shows when something is wrong: the words that causes predict and that logs and metrics show.

A static rule says for each engine which sign its fault would give (`Symptoms`); a dynamic rule says which sign was seen. Where the
two meet, a cause explains a sign.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

__all__ = ["NOT_KNOWN", "SIGNS", "Sign", "Symptoms", "both"]

Sign = Literal[
    "load-error",
    "crash",
    "floor",
    "first-position-only",
    "steep-decay",
    "all-positions-lower",
    "falls-with-batch",
    "falls-with-context",
    "falls-with-time",
    "falls-after-cache-reuse",
    "ceiling",
    "engines-differ",
    "degenerate-output",
    "figures-contradict",
    "impossible-baseline",
    "cost",
    "queueing",
    "shorter-context",
    "nothing",
    "not known",
]
SIGNS: dict[Sign, str] = {
    "load-error": "the server does not start",
    "crash": "the server dies while it serves",
    "floor": "accept length 1.00 or a little above",
    "first-position-only": "only the first drafted position is ever accepted",
    "steep-decay": "the first position is normal, those after it fall steeply",
    "all-positions-lower": "every position is accepted less often",
    "falls-with-batch": "the accept length falls with the number of running requests",
    "falls-with-context": "the accept length falls with the length of the context",
    "falls-with-time": "the accept length falls with time",
    "falls-after-cache-reuse": "the accept length falls when cached prefixes are used again",
    "ceiling": "every draft is accepted",
    "engines-differ": "engines, releases or backends differ in accept length",
    "degenerate-output": "the answers are repetition or junk",
    "figures-contradict": "printed figures contradict each other",
    "impossible-baseline": "a round would cost less than a plain step",
    "cost": "the accept length is fine, the speedup is not",
    "queueing": "requests wait although there is room for them",
    "shorter-context": "the server admits shorter contexts than the target can",
    "nothing": "nothing is seen",
    "not known": "not known",
}
assert set(SIGNS) == set(get_args(Sign))


@dataclass(frozen=True, slots=True, kw_only=True)
class Symptoms:
    """What a fault leads to under each engine; "nothing" where the engine does not mind."""

    vllm: Sign = "not known"
    sglang: Sign = "not known"

    def of(self, engine: str | None) -> tuple[Sign, ...]:
        """The one under `engine`; both where the engine is not known."""
        if engine == "vllm":
            return (self.vllm,)
        if engine == "sglang":
            return (self.sglang,)
        return tuple(dict.fromkeys((self.vllm, self.sglang)))


NOT_KNOWN = Symptoms()


def both(sign: Sign) -> Symptoms:
    return Symptoms(vllm=sign, sglang=sign)
