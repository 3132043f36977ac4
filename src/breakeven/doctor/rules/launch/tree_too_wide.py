"""The draft tree is wider than it can pay for.

Detects: SGLang with a topk above 1 that verifies more than twice the tokens of its longest path, at more than a few running
requests; or SGLang's own choice of 5 steps, topk 4 and 8 tokens, taken because none of the three flags is given.

Why it hurts: every node of the tree is verified, one path can be accepted. At one request the extra tokens are nearly free; with
several the target's step grows with them. Widths are copied from examples for one request (reported: 60 tokens a round, accept
length 3.2, cost 4.0, speedup 0.8).

Evidence: the three flags and the running requests.

Remedy: --speculative-eagle-topk 1 with 3 to 5 steps, then measure.
"""

from __future__ import annotations

from collections.abc import Iterator

from breakeven.doctor.evidence import Evidence
from breakeven.doctor.signs import Symptoms
from breakeven.doctor.told import Fault, Told

_FLAGS = ("--speculative-num-steps", "--speculative-eagle-topk", "--speculative-num-draft-tokens")
FEW_REQUESTS = 4
# Nodes verified for each position of the longest path.
MOST_NODES_A_POSITION = 2


def check(evidence: Evidence) -> Iterator[Told]:
    launch = evidence.launch
    assert launch is not None
    if launch.engine != "sglang" or launch.method.value not in ("EAGLE", "EAGLE3"):
        return
    running = launch.max_running.value
    if isinstance(running, int) and running <= FEW_REQUESTS:
        return
    steps, topk, verified = (launch.number(name) for name in _FLAGS)
    if (steps, topk, verified) == (None, None, None) and launch.is_whole:
        yield _fault(
            "SGLang chooses the tree by itself: 5 steps, topk 4, 8 tokens for Llama targets",
            ("none of " + ", ".join(_FLAGS),),
            "low",
        )
    elif steps and topk and topk > 1 and verified and verified > MOST_NODES_A_POSITION * (steps + 1):
        yield _fault(
            f"The tree verifies {verified} tokens a round for a path of at most {steps + 1}",
            tuple(str(launch.flag(name)) for name in _FLAGS),
            "medium" if running else "low",
        )


def _fault(title: str, evidence: tuple[str, ...], confidence: str) -> Fault:
    return Fault(
        severity="warning" if confidence == "medium" else "info",
        confidence="medium" if confidence == "medium" else "low",
        title=title,
        evidence=evidence,
        remedy="Try 3 steps, topk 1 and 4 draft tokens, and measure at your load.",
        symptoms=Symptoms(vllm="nothing", sglang="cost"),
    )
