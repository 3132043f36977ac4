"""Accept length from SGLang's log, for releases whose metrics count none (before 0.5.15): averages over intervals of steps."""

from __future__ import annotations

import re
from collections.abc import Iterable

from breakeven.acceptance import Acceptance
from breakeven.engines.base import Speculation

__all__ = ["log_acceptance"]

# Every release prints these two, with other things before, between and behind them.
_DECODE = re.compile(r"Decode batch.*?#running-req: (\d{1,7}),.*?\baccept len: (\d{1,4}\.\d{1,4})")
# Decode steps between two lines (--decode-log-interval). Only weighs lines against each other, where it cancels out.
STEPS_PER_LINE = 40


def log_acceptance(lines: Iterable[str], speculation: Speculation) -> Acceptance | None:
    """What lines of a window say together, weighted by the requests that ran; None where none says anything.

    The counts stand for the mean only: the log prints it with two digits, for all requests of the interval at its end.
    """
    num_steps, num_accepted = 0, 0.0
    for line in lines:
        match = _DECODE.search(line)
        if match is None or float(match[2]) < 1.0:
            continue
        steps = STEPS_PER_LINE * int(match[1])
        num_steps += steps
        num_accepted += steps * min(float(match[2]) - 1.0, speculation.num_draft_tokens)
    if not num_steps:
        return None
    return Acceptance(
        num_steps=num_steps,
        num_rounds=num_steps,
        # n-grams draft as many as were found, which nothing tells
        num_drafted=num_steps * speculation.num_draft_tokens if speculation.method == "eagle3" else 0,
        num_accepted=round(num_accepted),
        exact_steps=False,
        source="log",
    )
