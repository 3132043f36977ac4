"""The `breakeven` command: one file per subcommand, errors caught once.

A command parses its flags, calls one library function and renders. Exit codes: 0 done, 1 a finding or verdict asked for that
code, 2 bad input, 3 an engine failed or an arm has no trial that counts, 70 a fault of Breakeven itself, 130 interrupted (Ctrl-C,
SIGTERM, SIGHUP).
"""

from __future__ import annotations

import os
import sys
import time
import traceback
from pathlib import Path
from typing import NoReturn

import typer
from rich.console import Console

from breakeven import __version__
from breakeven.cli.escaping import escaped
from breakeven.errors import BreakevenError

__all__ = ["app", "main"]

MAX_LINE = 2000
# a mistake of our own must not look like the finding that exit code 1 is
INTERNAL_FAULT = 70
DEBUG_VARIABLE = "BREAKEVEN_DEBUG"
# torchrun looks ten times a second whether a process failed, and ends the others; on a busy machine they start seconds apart
OTHERS_SPEAK_AFTER_S = 10.0

app = typer.Typer(
    name="breakeven",
    help="Does speculative decoding pay on your deployment, and how good must a drafter be?",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"breakeven {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    _version: bool = typer.Option(False, "--version", callback=_print_version, is_eager=True, help="Print the version and exit."),
) -> None:
    return


def _register() -> None:
    """Imported late so that each command file can import `app`-free and stay testable alone."""
    from breakeven.cli import commands

    commands.register(app)


_register()


def main() -> None:
    """Run the command line and exit with its code; a user never sees a traceback for an error of ours."""
    try:
        app(standalone_mode=True)
    except BreakevenError as error:
        _complain(str(error))
        _leave(error.exit_code)
    except KeyboardInterrupt:
        sys.exit(130)
    except OSError as error:
        # a path that no file system takes, a full disk under our own output: the system's words are the message
        where = f"{error.filename}: " if error.filename is not None else ""
        _complain(f"{where}{error.strerror or error}; check the path, its permissions and the room on the disk")
        if error.filename is None:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        _leave(BreakevenError.exit_code)
    except Exception as error:
        if os.environ.get(DEBUG_VARIABLE):
            raise
        place = traceback.extract_tb(error.__traceback__)[-1]
        _complain(
            f"this is a fault of breakeven, not of your input: {type(error).__name__} in {Path(place.filename).name}, line "
            f"{place.lineno}: {error}\nPlease report it; {DEBUG_VARIABLE}=1 before the same command shows the whole traceback"
        )
        _leave(INTERNAL_FAULT)


def _under_torchrun() -> bool:
    return "TORCHELASTIC_RUN_ID" in os.environ


def _leave(code: int) -> NoReturn:
    """Exit; a process of torchrun's at once: threads of its group can abort an interpreter that is going (`processes.leave`)."""
    if not _under_torchrun():
        sys.exit(code)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _complain(message: str) -> None:
    """One line or more on stderr. All processes of torchrun meet the same bad plan, so the others only speak if the first does not
    fail: they are ended while they wait."""
    rank = os.environ.get("RANK", "0") if _under_torchrun() else "0"
    if rank != "0":
        time.sleep(OTHERS_SPEAK_AFTER_S)
        message = f"in process {rank}: {message}"
    lines = (
        line if len(line) <= MAX_LINE else f"{line[: MAX_LINE // 2]} ... {line[-MAX_LINE // 2 :]}"
        for line in escaped(message).split("\n")
    )
    # not folded at 80 columns: a path in a log must stay whole; a terminal folds by itself
    Console(stderr=True).print(f"breakeven: {chr(10).join(lines)}", style="bold red", markup=False, highlight=False, soft_wrap=True)
