"""`python -m breakeven` is the `breakeven` command; the runner starts its own children this way."""

import sys


def main() -> None:
    """The command, its imports included: they take a second, and Ctrl-C then is no fault to show a traceback for."""
    try:
        from breakeven.cli import main as command

        command()
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
