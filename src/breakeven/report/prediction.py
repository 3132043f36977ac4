"""A prediction on a terminal: the sentence, c and speedup by batch and drafts, where the time goes, what a better drafter needs."""

from __future__ import annotations

import math
import shlex
from collections import defaultdict

from rich.console import Console
from rich.table import Table
from rich.text import Text

from breakeven.report.text import MISSING, OUTCOME_MARKS, plain, quantity
from breakeven.units import plural
from breakeven.verdict.predicted.result import (
    AcceptanceNeeded,
    BatchPrediction,
    ErrorBar,
    PredictedSchedule,
    Prediction,
    Range,
    Row,
)

__all__ = ["render_prediction"]

MAX_ROWS = 60
MAX_EVIDENCE = 3
# an accept length known to less than this share of it is shown with its interval
OPEN = 0.02


def render_prediction(result: Prediction, console: Console) -> None:
    """Print `result`. Strings from files are shown as text without control characters."""
    console.print(Text(plain(result.title), style="bold"))
    console.print(Text(plain(result.headline), style="bold underline"))
    if result.error is not None:
        console.print(Text(_error(result.error)))
    if result.batches:
        _batches(result, console)
        _where_time_goes(result, console)
    if result.schedule is not None:
        _schedule(result.schedule, console)
    if result.rows:
        _rows(result.rows, console)
    for batch in result.batches:
        if batch.needed is not None:
            console.print(Text(_needed(batch.batch, batch.needed)))
    _listed("Doubts", _doubts(result), console)
    _listed("Left out", [f"{entry.label}: {entry.reason}" for entry in result.left_out], console)
    _listed("Not predicted", [f"{entry.label}: {entry.reason}" for entry in result.unpredicted], console)
    _listed("Rests on", result.notes, console)
    _listed("Next, cheapest first", result.next_measurements, console)


def _doubts(result: Prediction) -> list[str]:
    """One line a doubt, with the points it is about."""
    points: dict[str, list[str]] = defaultdict(list)
    for batch in result.batches:
        for point in batch.points:
            for doubt in point.doubts:
                points[doubt].append(f"B={batch.batch}, k={point.num_draft_tokens}")
    return [_told_once(where, doubt) for doubt, where in points.items()]


def _error(error: ErrorBar) -> str:
    return (
        f"Error bar: such predictions ({error.what}) were off by up to {error.half * 100:.0f} % half of the time and by more than "
        f"{error.tenth * 100:.0f} % once in ten ({error.num} predictions, {error.num_targets} targets)."
    )


def _batches(result: Prediction, console: Console) -> None:
    judged = any(point.speedup is not None for batch in result.batches for point in batch.points)
    table = Table(pad_edge=False, box=None, padding=(0, 1, 0, 0))
    for name in ("B", "plain ms", "k", "round ms", "break-even AL", *(("AL", "speedup", "outcome") if judged else ())):
        table.add_column(
            name,
            justify="left" if name == "outcome" else "right",
            no_wrap=name != "outcome",
            min_width=11 if name == "outcome" else None,
        )
    for batch in result.batches:
        for index, point in enumerate(batch.points):
            first = index == 0
            step = _ms(batch.plain_s) if batch.plain_s else MISSING
            best = "*" if point.num_draft_tokens == batch.best else ""
            cells = [str(batch.batch) if first else "", step if first else "", f"{best}{point.num_draft_tokens}"]
            cells += [_ms(point.round_s) if point.round_s else MISSING, _range(point.cost)]
            if judged:
                mark = f"{OUTCOME_MARKS[point.outcome]} {point.outcome}" if point.outcome else MISSING
                length = f"{point.accept_length.value:.2f}" if point.accept_length else MISSING
                cells += [length, _range(point.speedup) if point.speedup else MISSING, mark]
            table.add_row(*cells)
    console.print(table)
    if any(batch.best is not None for batch in result.batches):
        console.print(Text("* the best number of drafts by value; others may not differ from it"))
    # the same at every batch, so told once and not in the table
    lengths = {point.num_draft_tokens: point.accept_length for batch in result.batches for point in batch.points}
    told = [f"k={k} {_range(length)}" for k, length in sorted(lengths.items()) if length is not None and _is_open(length)]
    if told:
        console.print(Text(f"Accept length, as far as it is known: {', '.join(told)}"))


def _is_open(value: Range) -> bool:
    return value.high - value.low > OPEN * value.value


def _range(value: Range) -> str:
    return f"{value.value:.2f} [{value.low:.2f}, {value.high:.2f}]"


def _where_time_goes(result: Prediction, console: Console) -> None:
    """Groups of parts by batch: plain step, verification, drafting; and what makes the difference."""
    for batch in result.batches:
        if not batch.parts:
            continue
        times: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
        for part in batch.parts:
            times[part.group][part.phase] += part.seconds
        table = Table(title=f"Where the time goes at B={batch.batch}, k={batch.parts_for} (ms)", title_justify="left", box=None)
        for name in ("part", "plain", "verify", "draft", "added"):
            table.add_column(name, justify="left" if name == "part" else "right", no_wrap=True)
        added = {group: phases["verify"] + phases["draft"] - phases["plain"] for group, phases in times.items()}
        for group in sorted(times, key=lambda name: -added[name]):
            phases = times[group]
            cells = [_ms(phases[phase]) for phase in ("plain", "verify", "draft")]
            table.add_row(group, *cells, _ms(added[group]))
        total = {phase: sum(phases[phase] for phases in times.values()) for phase in ("plain", "verify", "draft")}
        table.add_row("all", *(_ms(total[phase]) for phase in total), _ms(total["verify"] + total["draft"] - total["plain"]))
        console.print(table)
        console.print(Text(_why(batch, added)))


def _schedule(schedule: PredictedSchedule, console: Console) -> None:
    """Drafts by batch, what one fixed number loses, and the engine's own words, which are there to be copied."""
    console.print(Text("Schedule by batch size"))
    for part in schedule.by_batch:
        batches = (
            f"{part.first}+" if part.last is None else f"{part.first}-{part.last}" if part.last > part.first else f"{part.first}"
        )
        drafts = plural(part.num_draft_tokens, "draft") if part.num_draft_tokens else "plain"
        console.print(Text(f"  {batches:>9}  {drafts:<9} {part.why}"))
    fixed = schedule.fixed
    choice = plural(fixed.num_draft_tokens, "draft") if fixed.num_draft_tokens else "plain decoding"
    if all(part.num_draft_tokens == fixed.num_draft_tokens for part in schedule.by_batch):
        told = f"{choice}, as the schedule has it everywhere"
    else:
        worst = plural(fixed.worst_batch, "running request")
        told = f"{choice}, which loses {fixed.worst_loss * 100:.0f} % against it at worst by value, at {worst}"
    if fixed.undecided:
        told += f"; whether it pays is undecided at {', '.join(map(str, fixed.undecided))}"
    console.print(Text(f"One fixed choice: {told}."))
    if schedule.spelled is None:
        return
    spelled = schedule.spelled
    console.print(Text(plain(f"For {spelled.engine} {spelled.version or '(release not known)'}:")))
    # to be pasted: not wrapped, not styled
    console.print(Text(plain("  " + shlex.join(spelled.flags))), soft_wrap=True)
    if spelled.file_content is not None:
        console.print(Text(f"with this in {spelled.file_name}:"))
        console.print(Text(spelled.file_content.rstrip()), soft_wrap=True)
    for remark in spelled.remarks:
        console.print(Text(plain(f"  {remark}")))


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.2f}"


def _why(batch: BatchPrediction, added: dict[str, float]) -> str:
    total = sum(added.values())
    largest = sorted(added.items(), key=lambda entry: -entry[1])[:2]
    shares = " and ".join(f"{group} {seconds / total * 100:.0f} %" for group, seconds in largest if total > 0 and seconds > 0)
    experts = next(
        (part.name for part in batch.parts if part.phase == "verify" and "of" in part.name and part.group == "experts"), ""
    )
    named = f"; {experts} to verify" if experts and largest[0][0] == "experts" else ""
    return f"Of what a round adds at B={batch.batch}: {shares}{named}."


def _rows(rows: tuple[Row, ...], console: Console) -> None:
    table = Table(box=None, pad_edge=False)
    for name in ("predicted", "AL", "c", "speedup", "tok/s", "outcome"):
        table.add_column(name, justify="left" if name in {"predicted", "outcome"} else "right", overflow="fold")
    for row in rows[:MAX_ROWS]:
        mark = f"{OUTCOME_MARKS[row.outcome]} {row.outcome}"
        speed = quantity(row.speed.value) if row.speed is not None else MISSING
        length = _range(row.accept_length) if _is_open(row.accept_length) else f"{row.accept_length.value:.2f}"
        table.add_row(Text(plain(row.label)), length, _range(row.cost), _range(row.speedup), speed, mark)
    console.print(table)
    if len(rows) > MAX_ROWS:
        console.print(Text(f"and {len(rows) - MAX_ROWS} more; --json has all"))
    for error in dict.fromkeys(row.error for row in rows):
        console.print(Text(_error(error)))
    doubted: dict[str, list[str]] = defaultdict(list)
    for row in rows[:MAX_ROWS]:
        for doubt in row.doubts:
            doubted[doubt].append(row.label)
    _listed("Doubts", [_told_once(labels, doubt) for doubt, labels in doubted.items()], console)
    first = rows[0]
    shown = "; ".join(first.evidence[:MAX_EVIDENCE]) + (
        f" and {len(first.evidence) - MAX_EVIDENCE} more" if len(first.evidence) > MAX_EVIDENCE else ""
    )
    console.print(Text(plain(f"First of them from: {shown}")))


def _told_once(labels: list[str], doubt: str) -> str:
    more = f" and {len(labels) - 1} more" if len(labels) > 1 else ""
    return f"{labels[0]}{more}: {doubt}"


def _needed(batch: int, needed: AcceptanceNeeded) -> str:
    most = needed.num_draft_tokens + 1
    if needed.needed > most:
        found = f"break-even {needed.break_even:.2f}, accept length now {needed.accept_length:.2f}, at most {most}"
        if needed.break_even < most:
            return (
                f"B={batch}: no accept length with k={needed.num_draft_tokens} surely pays, as c may be too high for any ({found}):"
                " measure c more closely there."
            )
        return f"B={batch}: no drafter pays with k={needed.num_draft_tokens} ({found}): only a cheaper round would."
    text = (
        f"B={batch}: surely pays at accept length {_up(needed.needed)} with k={needed.num_draft_tokens} (now "
        f"{needed.accept_length:.2f}, break-even {needed.break_even:.2f})."
    )
    if needed.needed <= needed.accept_length:
        return f"{text} By value it does; what is not known of the accept length leaves it open."
    reached = [position for position in needed.positions if position.needed is not None]
    if reached:
        best = reached[0]
        text += (
            f" Position {best.position} alone would do: conditional acceptance from {best.now:.2f} to {_up(best.needed)} (each "
            f"0.01 there is worth {best.gain_per_point:.3f} tokens a round)."
        )
    elif needed.positions:
        best = needed.positions[0]
        text += f" No single position reaches it; position {best.position} is worth most ({best.gain_per_point:.3f} for each 0.01)."
    if needed.everywhere is not None:
        text += f" Or {_up(needed.everywhere)} more at every position."
    else:
        text += " Not even 0.95 at every position reaches it: fewer drafts, or a cheaper round, not a better drafter."
    return text


def _up(value: float | None) -> str:
    """To two digits, upwards: what is needed is not reached by what rounds down to it."""
    return MISSING if value is None else f"{math.ceil(value * 100.0 - 1e-6) / 100.0:.2f}"


def _listed(title: str, entries: object, console: Console) -> None:
    found = list(entries)  # type: ignore[call-overload]
    if not found:
        return
    console.print(Text(f"{title}:", style="bold"))
    for entry in found[:MAX_ROWS]:
        console.print(Text(f"  - {plain(str(entry))}"))
