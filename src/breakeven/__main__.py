"""`python -m breakeven` is the `breakeven` command; the runner starts its own children this way.

Signals that end programs are met here, before the imports of the command (they take a second) and wherever it measures nothing. A
run meets them itself (`experiment/signalled.py`), since it has servers to end.
"""

import os
import signal
import sys
from types import FrameType

INTERRUPTED = 130


class Ended(BaseException):
    """A signal came where there was nothing to put in order."""


class Signals:
    """What was sent. Ctrl-C stays an interrupt, which the command line turns into an exit without a word."""

    def __init__(self) -> None:
        self.name = ""

    def watch(self) -> None:
        """Where nobody has switched one off (nohup) or taken it."""
        for number, usual in (
            (signal.SIGINT, signal.default_int_handler),
            (signal.SIGTERM, signal.SIG_DFL),
            (signal.SIGHUP, signal.SIG_DFL),
        ):
            if signal.getsignal(number) is usual:
                signal.signal(number, self._came)

    def _came(self, number: int, _frame: FrameType | None) -> None:
        self.name = signal.Signals(number).name
        raise KeyboardInterrupt if number == signal.SIGINT else Ended


def main() -> None:
    """The command, with one message where a signal ended it."""
    signals = Signals()
    signals.watch()
    try:
        from breakeven.cli import main as command
        from breakeven.cli.standard_streams import guard_streams

        guard_streams()
        command()
    except (Ended, KeyboardInterrupt):
        leave(signals.name)
    except SystemExit as exit_:
        if exit_.code == INTERRUPTED and signals.name:
            leave(signals.name)
        raise


def leave(name: str) -> None:
    """Exit, saying why; of the processes that torchrun started, the first says it for all."""
    if "TORCHELASTIC_RUN_ID" not in os.environ or os.environ.get("RANK") == "0":
        sys.stderr.write(f"breakeven: ended by {name or 'an interrupt'}\n")
    sys.exit(INTERRUPTED)


if __name__ == "__main__":
    main()
