"""How `data inspect` shows a training file on a terminal. Text of models and files is data: it cannot steer the terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from breakeven.drafter.data.inspection import Inspection, Lengths
from breakeven.drafter.data.marked_samples import MarkedSample
from breakeven.report.text import plain

__all__ = ["show_inspection", "show_samples"]

MAX_LINES = 60
MAX_LINE = 400
BAR = 30
# What the target wrote stands between these too: nobody should need the colour.
WRITTEN = ("⟦", "⟧")


def show_inspection(found: Inspection, console: Console) -> None:
    """Every figure of the inspection."""
    _line(
        console,
        f"{found.file}: {found.num_answers} answers to {found.num_prompts} prompts, {found.num_answer_tokens} answer tokens",
    )
    _line(console, f"target {found.target or 'not named in the file'}")
    _line(
        console,
        f"token ids: {_counts(found.token_sources)}; answers: {_counts(found.sampling)}; ended by: {_counts(found.finish_reasons)}",
    )
    loops = ", ".join(f"{name} {share:.1%}" for name, share in found.looping_share.items())
    _line(console, f"looping: {loops or 'no answers'}; {found.num_equal_answers} answers are equal to another prompt's")
    for reason, count in found.skipped.items():
        _line(console, f"left out, {count}: {reason}")
    _kinds(found, console)
    for name, lengths in (("prompt", found.prompt_lengths), ("answer", found.answer_lengths)):
        if lengths is not None:
            _histogram(name, lengths, console)
    if found.coverage:
        table = Table("draft vocabulary", "training", "held out", title="Share of answer tokens covered", title_justify="left")
        for point in found.coverage:
            table.add_row(f"{point.size}", _percent(point.train), _percent(point.held_out))
        console.print(table)
    for doubt in found.doubts:
        _line(console, f"! {doubt.what}", style="yellow")
        _line(console, f"  {doubt.remedy}")


def show_samples(samples: Sequence[MarkedSample], console: Console) -> None:
    """Rendered conversations; what the target wrote, and a drafter is trained on, in green between brackets."""
    for sample in samples:
        console.print()
        _line(
            console,
            f"{sample.sample_id} ({plain(sample.kind, 40)}, {sample.split.replace('_', ' ')}): {sample.num_prompt_tokens} tokens "
            f"of prompt, {sample.num_answer_tokens} written by the target",
            style="bold",
        )
        text = Text()
        for piece in sample.pieces:
            shown = _safe(piece.text)
            text.append(f"{WRITTEN[0]}{shown}{WRITTEN[1]}" if piece.written else shown, style="green" if piece.written else "dim")
        lines = text.split("\n", allow_blank=True)
        for line in lines[:MAX_LINES]:
            console.print(line, soft_wrap=True)
        if len(lines) > MAX_LINES:
            _line(console, f"... {len(lines) - MAX_LINES} more lines", style="dim")


def _safe(text: str) -> str:
    return "\n".join(plain(line, MAX_LINE) for line in text.split("\n"))


def _kinds(found: Inspection, console: Console) -> None:
    table = Table("kind", "training", "held out", "looping")
    for kind, counts in found.kinds.items():
        table.add_row(Text(plain(kind, 60)), f"{counts.train}", f"{counts.held_out}", f"{counts.looping}")
    table.add_section()
    sides = list(found.kinds.values())
    table.add_row("all", f"{sum(c.train for c in sides)}", f"{sum(c.held_out for c in sides)}", f"{sum(c.looping for c in sides)}")
    console.print(table)


def _histogram(name: str, lengths: Lengths, console: Console) -> None:
    _line(
        console,
        f"{name} lengths in tokens: mean {lengths.mean:.0f}, median {lengths.median}, 95 % up to {lengths.p95}, "
        f"longest {lengths.longest}",
    )
    most = max(lengths.bin_counts)
    for start, count in zip(lengths.bin_starts, lengths.bin_counts, strict=True):
        _line(console, f"{start:>8} {'█' * round(BAR * count / most) if most else ''} {count}")


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {plain(name, 40)}" for name, count in counts.items()) or "none"


def _percent(share: float | None) -> str:
    return "no answers" if share is None else f"{share:.2%}"


def _line(console: Console, text: str, style: str | None = None) -> None:
    console.print(plain(text, 2000), style=style, markup=False, highlight=False, soft_wrap=True)
