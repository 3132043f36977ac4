"""Figures that trainers print of a drafter while it learns: `name=value` or `name: value`, the last of each counts."""

from __future__ import annotations

import re
from collections.abc import Iterable

__all__ = ["training_figures"]

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
