"""A run's progress for people: one live line on a terminal, plain lines elsewhere. Goes to stderr, results to stdout."""

from __future__ import annotations

import time
from types import TracebackType

from rich.console import Console
from rich.markup import escape
from rich.status import Status

from breakeven.experiment.events import Answering, ArmFailed, Event, Launching, Measuring, Note, Ready, TrialEnded, TrialStarted
from breakeven.report.text import plain
from breakeven.units import format_duration, format_rate

__all__ = ["RunDisplay"]

# How often somebody who reads a log file hears of a server that is still starting.
PLAIN_INTERVAL_S = 15.0
MAX_LINE = 2000


class RunDisplay:
    """A context manager; `tell` takes the run's events."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._status: Status | None = None
        self._trial = ""
        self._said_s = 0.0

    def __enter__(self) -> RunDisplay:
        if self._console.is_terminal:
            self._status = self._console.status("Checking the plan", refresh_per_second=4)
            self._status.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._status is not None:
            self._status.stop()

    def tell(self, event: Event) -> None:
        """Show one event. Text from plans, logs and servers is data: never markup."""
        match event:
            case Launching():
                self._live(
                    f"Starting {escape(event.arm)}, {event.elapsed_s:.0f} s  [dim]{escape(plain(event.line, 80))}[/dim]",
                    # in a log file the same line again and again would say nothing
                    f"{event.arm}, {event.elapsed_s:.0f} s" if event.elapsed_s >= PLAIN_INTERVAL_S else event.arm,
                )
            case Ready():
                self._line(f"{event.arm} is ready after {format_duration(event.after_s)} (launch {event.block + 1})")
            case TrialStarted():
                again = " again" if event.step.attempt else ""
                self._trial = (
                    f"Trial {event.number} of {event.total}{again}: {event.step.arm} at {event.step.load.label}, "
                    f"about {format_duration(event.eta_s)} left"
                )
                self._live(escape(self._trial))
            case Measuring():
                left = "" if event.remaining_s is None else f" {event.remaining_s:.0f} s"
                self._live(f"{escape(self._trial)} [dim]({event.phase}{left}, {event.num_tokens} tokens)[/dim]")
            case TrialEnded():
                self._ended(event)
            case Answering():
                self._live(f"{escape(event.arm)}: {event.num_done} of {event.total} answers")
            case ArmFailed():
                self._line(f"{event.arm} is given up: {event.message}", style="bold red")
            case Note():
                self._line(event.text, style="yellow")

    def _ended(self, event: TrialEnded) -> None:
        trial = event.trial
        place = f"{trial.arm} at {trial.load.label}, launch {trial.block + 1}"
        if trial.valid:
            self._line(f"{place}: {format_rate(event.tokens_per_s)}")
        else:
            reasons = "; ".join(f"{void.code} ({void.detail.splitlines()[0]})" for void in trial.voids)
            self._line(f"{place}: void, {reasons}", style="yellow")

    def _live(self, markup: str, plain_subject: str = "") -> None:
        if self._status is not None:
            self._status.update(markup)
        elif plain_subject and time.monotonic() - self._said_s > PLAIN_INTERVAL_S:
            self._line(f"Starting {plain_subject}")

    def _line(self, text: str, style: str | None = None) -> None:
        self._said_s = time.monotonic()
        # models, servers and logs wrote parts of it
        safe = "\n".join(plain(part, MAX_LINE) for part in text.split("\n"))
        self._console.print(safe, style=style, markup=False, highlight=False, soft_wrap=True)
