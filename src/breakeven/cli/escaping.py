"""Names of files, keys, servers and commands are other people's text: shown by their characters, they cannot steer a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["escaped", "print_message", "print_result"]


def print_result(text: str) -> None:
    """A result for people, on standard output."""
    typer.echo(escaped(text))


def print_message(messages: Console, text: str, style: str | None = None) -> None:
    """A message about the work, as it is: no markup, folded by the terminal alone."""
    messages.print(escaped(text), style=style, markup=False, highlight=False, soft_wrap=True)


def escaped(text: str) -> str:
    """`text` with everything but its line ends that is not printable as its code point."""
    return "".join(char if char.isprintable() or char == "\n" else ascii(char)[1:-1] for char in text)
