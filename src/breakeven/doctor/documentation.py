"""docs/rules.md, written from the rules themselves; a test compares the two.

python -m breakeven.doctor.documentation docs/rules.md
"""

from __future__ import annotations

import sys
from itertools import groupby
from pathlib import Path

from breakeven.doctor.evidence import NEEDS
from breakeven.doctor.registry import RULES, Rule

__all__ = ["FAMILIES", "rules_page"]

FAMILIES = {
    "launch": "How the server is started",
    "auxiliary": "Layers that the drafter's states are taken from",
    "tensors": "Tensors, shapes and norms",
    "vocabulary": "Vocabulary and its map",
    "rope": "Positions",
    "precision": "Precision and quantization",
    "data": "What the drafter was trained on",
    "capacity": "Memory",
    "acceptance": "Acceptance as logs, metrics and runs show it",
    "cost": "Cost of a round",
    "counters": "Figures that cannot be trusted",
}
_HEAD = """# Rules of `breakeven doctor`

Written by `python -m breakeven.doctor.documentation docs/rules.md` from the rules; do not edit. How findings are weighed and
what the severities mean: [doctor.md](doctor.md).
"""


def rules_page() -> str:
    """The whole page, families in the order above, rules in the order of the table."""
    order = list(FAMILIES)
    ordered = sorted(RULES, key=lambda rule: order.index(rule.family))
    parts = [_HEAD]
    for family, rules in groupby(ordered, key=lambda rule: rule.family):
        parts.append(f"## {FAMILIES[family]}\n")
        parts += [_section(rule) for rule in rules]
    return "\n".join(parts)


def _section(rule: Rule) -> str:
    needs = "; ".join(NEEDS[need] for need in rule.needs)
    return f"### {rule.code}\n\n{rule.explanation}\n\nNeeds: {needs}. Since {rule.since}.\n"


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(rules_page(), encoding="utf-8")
