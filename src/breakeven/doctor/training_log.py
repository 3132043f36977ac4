"""Figures that trainers print of a drafter while it learns: `name=value` or `name: value`, the last of each counts."""

from __future__ import annotations

import itertools
import operator
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

__all__ = ["Promised", "promised_length", "training_figures"]

# tau_sim: accept length as the trainer simulates it; acc: accuracy of single drafts.
_FIGURE = re.compile(
    r"""(?<![\w/])["']?(?P<name>(?:train|val|valid|eval|test)?[/_]?(?:tau_sim|tau|simulated_acc_len|acc_len|acc(?:uracy)?(?:_\d+)?))["']?"""
    r"""\s*[=:]\s*(?P<value>\d+(?:\.\d+)?(?:[eE][-+]?\d+)?)(?![\w.])"""
)
_TRAINING = re.compile(r"\b(?:train|val|valid|eval)[/_](?:tau|acc|loss|simulated)|\btau_sim\b")
# A log of a server holds prompts and answers, in which such a line may stand; a trainer's holds many.
MAX_LINE_CHARACTERS = 4_000


def training_figures(lines: Iterable[str]) -> dict[str, float]:
    """Empty for the log of a server: one line of an engine's own settles that."""
    found: dict[str, float] = {}
    for line in lines:
        if "Decode batch" in line or "SpecDecoding metrics" in line or "Avg generation throughput" in line:
            return {}
        if len(line) > MAX_LINE_CHARACTERS or not _TRAINING.search(line):
            continue
        for match in _FIGURE.finditer(line):
            found[match["name"]] = float(match["value"])
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Promised:
    """length: tokens a round, bonus included. is_stated: the log names it; else it follows from accuracies by draft step."""

    length: float
    names: tuple[str, ...]
    text: str
    is_stated: bool


def promised_length(figures: Mapping[str, float]) -> Promised | None:
    """The accept length that a training log promises; held-out figures before those of the training itself.

    tau = 1 + a_1 + a_1 a_2 + ... with a_i the accuracy of draft step i, given that those before were right.
    """
    for held_out in (True, False):
        stated = [name for name in figures if _STATED.search(name) and bool(_HELD_OUT.match(name)) == held_out]
        for name in stated:
            if 1.0 <= figures[name] < 100:
                return Promised(
                    length=figures[name],
                    names=(name,),
                    text=f"{name} = {figures[name]:g}, tokens a round with the bonus token",
                    is_stated=True,
                )
        steps = sorted(
            (int(match[1]), name)
            for name in figures
            if (match := _STEP.search(name)) and len(match[1]) < 3 and bool(_HELD_OUT.match(name)) == held_out
        )
        accuracies = [figures[name] for _, name in steps]
        first = steps[0][0] if steps else 0
        is_row = len(steps) > 1 and first in (0, 1) and [number for number, _ in steps] == list(range(first, first + len(steps)))
        if is_row and all(0 <= accuracy <= 1 for accuracy in accuracies):
            length = 1.0 + sum(itertools.accumulate(accuracies, operator.mul))
            return Promised(
                length=length,
                names=tuple(name for _, name in steps),
                text=f"accuracies {', '.join(f'{one:g}' for one in accuracies)}: 1 + their products summed is {length:.2f}",
                is_stated=False,
            )
    return None


_STATED = re.compile(r"(?:tau_sim|tau|simulated_acc_len|acc_len)$")
_HELD_OUT = re.compile(r"(?:val|valid|eval|test)[/_]?")
_STEP = re.compile(r"acc(?:uracy)?_(\d+)$")
