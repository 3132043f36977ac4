"""The flags for steps, width and draft tokens contradict each other.

Detects: topk 1 with another number of draft tokens than steps + 1; a tree with more tokens than its steps can grow; only some of
the three flags.

Why it hurts: with topk 1 SGLang sets the number to steps + 1 and says so in one log line, so rates are computed for another
number than the command shows. A tree that cannot be filled fails. One or two of the three flags alone are refused.

Evidence: --speculative-num-steps, --speculative-eagle-topk, --speculative-num-draft-tokens.

Remedy: draft tokens = steps + 1 for a chain; at most 1 + topk + (steps - 1) x topk^2 for a tree.
"""

from __future__ import annotations

from collections.abc import Iterator

from breakeven.doctor.evidence import Evidence
from breakeven.doctor.signs import Sign, Symptoms
from breakeven.doctor.told import Fault, Told

_FLAGS = ("--speculative-num-steps", "--speculative-eagle-topk", "--speculative-num-draft-tokens")


def check(evidence: Evidence) -> Iterator[Told]:
    launch = evidence.launch
    assert launch is not None
    if launch.engine != "sglang" or launch.method.value not in ("EAGLE", "EAGLE3"):
        return
    steps, topk, verified = (launch.number(name) for name in _FLAGS)
    told = tuple(str(launch.flag(name)) for name in _FLAGS if launch.flag(name))
    given = [one is not None for one in (steps, topk, verified)]
    if any(given) and not all(given):
        missing = ", ".join(name for name, there in zip(_FLAGS, given, strict=True) if not there)
        yield _fault(
            "error",
            "load-error",
            f"SGLang takes all three flags of the draft's shape or none; {missing} is missing",
            told,
            "Give all three.",
        )
    elif steps and topk == 1 and verified is not None and verified != steps + 1:
        yield _fault(
            "warning",
            "nothing",
            f"A chain of {steps} steps verifies {steps + 1} tokens; SGLang overrides the {verified} that are asked for",
            told,
            f"Set --speculative-num-draft-tokens {steps + 1}, so that the accept rate is read rightly.",
        )
    elif steps and topk and topk > 1 and verified and verified > (most := 1 + topk + (steps - 1) * topk * topk):
        yield _fault(
            "error",
            "crash",
            f"A tree of {steps} steps and topk {topk} grows at most {most} tokens, {verified} are asked for",
            told,
            f"Set --speculative-num-draft-tokens to at most {most}.",
        )


def _fault(severity: str, sign: Sign, title: str, told: tuple[str, ...], remedy: str) -> Fault:
    return Fault(
        severity="error" if severity == "error" else "warning",
        confidence="high",
        title=title,
        evidence=told,
        remedy=remedy,
        symptoms=Symptoms(vllm="nothing", sglang=sign),
    )
