"""`breakeven head`: a drafter of the right shape without training."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from breakeven.cli.escaping import print_result

__all__ = ["head"]


def head(
    target: Annotated[str, typer.Option(help="Model folder, hub id in the local cache, or demo:NAME.")],
    out: Annotated[Path, typer.Option(help="Folder to create; nothing may be there yet.")],
    seed: Annotated[int, typer.Option(min=0, max=2**31 - 1, help="Seed of the random weights.")] = 0,
    draft_vocab: Annotated[
        int | None,
        typer.Option(
            help="Size of the draft vocabulary (default: the largest power of two up to half the target's, at most 32768)."
        ),
    ] = None,
) -> None:
    """Write an EAGLE-3 head of the right shape with random weights: enough to measure what speculation costs."""
    from breakeven.checkpoints.folder import open_folder
    from breakeven.checkpoints.random_head import write_random_head
    from breakeven.checkpoints.resolve import resolve_model

    write_random_head(open_folder(resolve_model(target, Path.cwd())), out, seed=seed, draft_vocab_size=draft_vocab)
    print_result(f"{out}: random EAGLE-3 head for {target}; it drafts nothing useful, serve it with forced acceptance")
