"""Progress on a terminal and in a log file; text from plans and servers stays text."""

from __future__ import annotations

from io import StringIO

import pytest
from rich.console import Console
from typer.main import get_command

from breakeven.cli import app
from breakeven.cli.progress import RunDisplay
from breakeven.experiment.events import ArmFailed, Event, Launching, Measuring, Note, Ready, TrialEnded, TrialStarted
from breakeven.experiment.schedule import Step
from breakeven.experiment.trial import Trial
from breakeven.loadgen.samples import ClientHealth, LoadPoint, Void

ARM = "[red]evil[/red]"
LOAD = LoadPoint(concurrency=4)
HEALTH = ClientHealth(loop_lag_p99_s=0.0, dispatch_delay_p99_s=0.0, cpu_share=0.0)


def trial(*voids: Void) -> Trial:
    return Trial(
        arm=ARM, load=LOAD, block=1, launch="x", order=0, repeat=0, started_at_unix_s=0.0, window_s=1.0,
        samples=(), health=HEALTH, counters=None, voids=voids,
    )  # fmt: skip


EVENTS: list[Event] = [
    Launching(arm=ARM, block=0, elapsed_s=3.2, line="loading [/dim][bold]weights"),
    Ready(arm=ARM, block=0, after_s=4.0),
    TrialStarted(step=Step(arm=ARM, load=LOAD, block=0, repeat=0, order=0, attempt=1), number=2, total=9, eta_s=75.0),
    Measuring(arm=ARM, phase="window", remaining_s=5.0, num_tokens=77),
    TrialEnded(trial=trial(), tokens_per_s=43.21),
    TrialEnded(trial=trial(Void(code="errors", detail="3 of 4 requests failed\nsecond line")), tokens_per_s=0.0),
    ArmFailed(arm=ARM, message="it died"),
    Note(text="stopping"),
]


def shown(*, terminal: bool) -> str:
    out = StringIO()
    with RunDisplay(Console(file=out, force_terminal=terminal, width=200, color_system=None)) as display:
        for event in EVENTS:
            display.tell(event)
            if display._status is not None:
                out.write(str(display._status.renderable.render(0)))  # what a refresh would draw
    return out.getvalue()


def test_plain_lines() -> None:
    assert shown(terminal=False).splitlines() == [
        "Starting [red]evil[/red]",
        "[red]evil[/red] is ready after 4 s (launch 1)",
        "[red]evil[/red] at c=4, launch 2: 43.2 tok/s",
        "[red]evil[/red] at c=4, launch 2: void, errors (3 of 4 requests failed)",
        "[red]evil[/red] is given up: it died",
        "stopping",
    ]


@pytest.mark.parametrize(
    "expected",
    [
        "Starting [red]evil[/red], 3 s  loading [/dim][bold]weights",
        "Trial 2 of 9 again: [red]evil[/red] at c=4, about 1 min 15 s left (window 5 s, 77 tokens)",
        "[red]evil[/red] is given up: it died",
    ],
)
def test_one_live_line_on_a_terminal(expected: str) -> None:
    assert expected in shown(terminal=True)


def test_flags_stay_few() -> None:
    command = get_command(app).commands["bench"]  # type: ignore[attr-defined]
    assert sorted(parameter.name for parameter in command.params) == [
        "as_json", "dry_run", "fresh", "name", "plan", "prompts", "runs_dir",
    ]  # fmt: skip


@pytest.mark.parametrize("terminal", [True, False])
def test_no_text_steers_the_terminal(terminal: bool) -> None:
    hostile = "\x1b]0;title\x07\x1b[31m\u202e"
    output = StringIO()
    with RunDisplay(Console(file=output, width=100, force_terminal=terminal, color_system=None)) as display:
        display.tell(Launching(arm=ARM, block=0, elapsed_s=1.0, line=hostile))
        display.tell(TrialEnded(trial=trial(Void(code="errors", detail=hostile)), tokens_per_s=0.0))
        display.tell(ArmFailed(arm=ARM, message=f"it died\n{hostile}"))
        display.tell(Note(text=hostile))
    shown = output.getvalue()
    assert "it died\n" in shown
    for part in ("\x1b]0;title", "\x07", "\x1b[31m", "\u202e"):
        assert part not in shown


def test_somebody_who_reads_a_log_file_hears_how_long_a_server_has_been_starting(monkeypatch: pytest.MonkeyPatch) -> None:
    out = StringIO()
    now_s = 100.0
    monkeypatch.setattr("breakeven.cli.progress.time.monotonic", lambda: now_s)
    display = RunDisplay(Console(file=out, width=200, color_system=None))
    for elapsed_s in (0.0, 8.0, 16.0, 24.0, 33.0):
        now_s = 100.0 + elapsed_s
        display.tell(Launching(arm="plain", block=0, elapsed_s=elapsed_s))
    assert out.getvalue().splitlines() == ["Starting plain", "Starting plain, 16 s", "Starting plain, 33 s"]
