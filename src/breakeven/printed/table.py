"""The definitions as a Markdown table, for docs/acceptance.md: `python -m breakeven.printed.table` prints it."""

from __future__ import annotations

import sys

from breakeven.printed.definitions import DEFINITIONS, Definition
from breakeven.printed.formulas import DraftShape

__all__ = ["definitions_table"]

# The configuration that most reports use; the last columns show what its rates mean.
_SHAPE = DraftShape(num_drafted=3, num_steps=3, is_chain=True)
_RATE = 0.42


def definitions_table() -> str:
    """One row for each row of `DEFINITIONS`, with what three drafts in a chain print at the floor and what a rate of 0.42 means."""
    header = (
        "| engine | where | releases | accept length | accept rate | divides by | floor, 3 drafts | 0.42 means | source, checked |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    )
    return "\n".join((*header, *(_line(row) for row in DEFINITIONS))) + "\n"


def _line(row: Definition) -> str:
    rate = row.rate.value if row.rate is not None else "not printed"
    floor = f"{row.rate.floor(_SHAPE):.2f}" if row.rate is not None else "-"
    means = f"{row.rate.accept_length(_RATE, _SHAPE):.2f}" if row.rate is not None else "-"
    checked = f"to {row.span.checked_to}, " if row.span.last is None and row.span.checked_to is not None else ""
    note = f" ({row.note})" if row.note else ""
    cells = (
        row.engine,
        row.surface,
        str(row.span).strip("()"),
        row.length.value,
        f"{rate}{note}",
        f"every {row.per}" if row.per == "step" else "steps that carried drafts",
        floor,
        means,
        f"{row.source}; {checked}{row.recorded}",
    )
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    sys.stdout.write(definitions_table())
