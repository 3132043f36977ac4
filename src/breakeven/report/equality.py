"""A check of equal output on a terminal. Texts are what models wrote: shown by their characters, never as markup."""

from __future__ import annotations

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from breakeven.report.text import percent, plain
from breakeven.units import plural
from breakeven.verdict.equality.result import ArmEquality, Equality, Example, Parting

__all__ = ["render_equality"]

STYLES = {"equal": "bold green", "numerics": "bold green", "fault": "bold red", "undecided": "bold yellow"}
# An outcome is never told by colour alone.
MARKS = {"equal": "=", "numerics": "=", "fault": "✗", "undecided": "?"}
EXCERPT = 100


def render_equality(equality: Equality, console: Console) -> None:
    """Print the outcome of every arm, what it rests on, and what was left out."""
    asked = f"{plural(equality.num_prompts, 'prompt')}, up to {equality.max_tokens} tokens, temperature 0"
    console.print(Text(f"Speculative against plain output: {asked}.", style="dim"))
    for arm in equality.arms:
        _arm(arm, console)
    for name, reason in equality.left_out.items():
        console.print()
        console.print(Text(f"{plain(name, 40)} was not compared: {plain(reason.splitlines()[0], 300)}"))


def _arm(arm: ArmEquality, console: Console) -> None:
    console.print()
    line = Text(f"{MARKS[arm.outcome]} ", style=STYLES[arm.outcome])
    line.append(plain(arm.sentence, 800), style="not dim")
    console.print(line)
    details = [plain(fact, 400) for fact in arm.evidence]
    for who, parting in ((arm.arm, arm.speculative), ("plain", arm.plain)):
        if parting.num_parted:
            details.append(f"{plain(who, 40)}: {_agreeing(parting)}")
    console.print(Padding(Text("\n".join(details), style="dim"), (0, 0, 0, 2)))
    # of a sound arm they would only tell where ties were
    for example in arm.examples if arm.outcome in ("fault", "undecided") else ():
        console.print(Padding(_example(arm, example), (0, 0, 0, 2)))
    if arm.remedy:
        console.print(Padding(Text(f"Do: {plain(arm.remedy, 800)}"), (0, 0, 0, 2)))


def _agreeing(parting: Parting) -> str:
    return "still the same after " + ", ".join(f"{position}: {percent(share)}" for position, share in parting.agreeing)


def _example(arm: ArmEquality, example: Example) -> Text:
    margin = ""
    if example.margin is not None:
        margin = f", where plain preferred its own by {'at least ' if example.at_least else ''}{example.margin:.2g} nats"
    where = f"{plain(example.prompt_id, 40)}, from {example.unit.removesuffix('s')} {example.position} on{margin}:"
    return Text(
        f"{where}\n  {plain(arm.reference, 40)}: {plain(example.plain, EXCERPT)}"
        f"\n  {plain(arm.arm, 40)}: {plain(example.speculative, EXCERPT)}",
        style="dim",
    )
