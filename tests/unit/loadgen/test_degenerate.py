from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from breakeven.loadgen.degenerate import degenerate_reason, degenerate_share, degenerate_voids
from breakeven.loadgen.prompts import builtin_prompts
from breakeven.loadgen.samples import RequestSample

FUNCTION = '''def add(items, name, price):
    """Add one item to the basket."""
    if price < 0:
        raise ValueError("price")
    items.append((name, price))
    return items

def remove(items, name):
    """Remove every item with this name."""
    if not items:
        raise ValueError("empty")
    items[:] = [item for item in items if item[0] != name]
    return items

def total(items):
    """Sum of all prices."""
    return sum(price for _, price in items)
'''
TABLE = "| n | n squared | n cubed |\n|---|---|---|\n" + "\n".join(f"| {n} | {n * n} | {n**3} |" for n in range(1, 25))
NUMBERED = "\n".join(
    f"{number}. **{name}**: You can use {name.lower()} to {verb}."
    for number, (name, verb) in enumerate(
        [("Salt", "season soup"), ("Sugar", "bake"), ("Flour", "bake bread"), ("Oil", "fry eggs"), ("Yeast", "raise dough")],
        1,
    )
)

UNDERLINED = "\n\n".join(f"{title}\n{'=' * 70}" for title in ("First part", "Other things", "More of it", "And the end"))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("We start with the first. " + "I'm just a little guy, and I'm happy to help. " * 6 + "I'm just", "loop: "),
        ("Subject: " + "Re: " * 45, "loop: "),
        ("Dear all,\n" + "192.0.2.10 [12:02:31] POST /order 201\n" * 6, "loop: "),
        ("the " * 60, "loop: the"),
        ("我喜欢喝茶。" * 12, "loop: "),
        ("!" * 40, "one character, 40 times"),
        ("0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0", "one character, 35 times"),
        ("", "empty"),
        (" \n\n", "empty"),
    ],
)
def test_degenerate(text: str, reason: str) -> None:
    found = degenerate_reason(text)
    assert found is not None
    assert found.startswith(reason)


def test_repetition_with_small_changes() -> None:
    rng = random.Random(2)
    phrases = [
        "You can find a few different types of gear, like a tent",
        "You can also find a few different types of gear",
        "like a tent",
    ]
    found = degenerate_reason(", ".join(rng.choice(phrases) for _ in range(40)))
    assert found is not None
    assert found.startswith("only ")


@pytest.mark.parametrize(
    "text", [FUNCTION, TABLE, NUMBERED, UNDERLINED * 2, "Yes.", "-" * 12, "ha ha ha ha ha ha", "No, no, no! I will not go. " * 2]
)
def test_ordinary(text: str) -> None:
    assert degenerate_reason(text) is None


def test_our_own_prompts_are_ordinary_text() -> None:
    assert [prompt.id for prompt in builtin_prompts() if degenerate_reason(prompt.messages[-1][1])] == []


def test_a_loop_is_found_wherever_it_began_and_however_long_it_ran() -> None:
    assert degenerate_reason(FUNCTION + "and so on and on " * 40)
    assert degenerate_reason(FUNCTION + "and so on and on " * 200_000)


def test_an_answer_cut_off_may_be_empty() -> None:
    assert degenerate_reason("", finished=False) is None


def test_shares_and_voids(sample: Callable[..., RequestSample]) -> None:
    good, bad = sample(), sample(degenerate="loop: a a")
    failed, silent = sample(error="HTTP 500", degenerate="empty"), sample(arrivals=(), finish_reason=None)
    assert degenerate_share([good, good, bad, failed, silent]) == (pytest.approx(1 / 3), 3)
    assert degenerate_share([]) == (0.0, 0)
    assert degenerate_voids([bad]) == []
    assert degenerate_voids([good] * 9 + [bad] * 3) == []
    (void,) = degenerate_voids([good] * 5 + [bad] * 3)
    assert void.code == "degenerate_output"
    assert void.detail == "38% of 8 answers are degenerate, limit 25% (first: loop: a a)"
    assert degenerate_voids([good] * 5 + [bad] * 3, limit=0.4) == []
