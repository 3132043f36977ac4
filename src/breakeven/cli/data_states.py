"""`breakeven data states`: a target's hidden states at every token of a training file, stored for training without the target."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from breakeven.cli.data import TARGET_HELP, VARIABLES_HELP
from breakeven.cli.escaping import print_result

if TYPE_CHECKING:
    from collections.abc import Callable

    from breakeven.drafter.capture.store_format import Manifest
    from breakeven.drafter.capture.storing import Progress

__all__ = ["states"]

PROGRESS_S = 5.0


class Side(StrEnum):
    train = "train"
    held_out = "held_out"


class StatesDtype(StrEnum):
    bfloat16 = "bfloat16"
    float16 = "float16"
    float32 = "float32"


class RunBy(StrEnum):
    auto = "auto"
    own = "own"
    transformers = "transformers"


def states(
    train_file: Annotated[Path, typer.Argument(metavar="TRAIN", help="What `breakeven data answers` wrote.")],
    target: Annotated[str, typer.Option(help=TARGET_HELP)],
    out: Annotated[Path, typer.Option(help="Folder of shards to write, or to go on with after a stop.")],
    layers: Annotated[
        str | None, typer.Option(help="Three layer inputs, low to high: '2,15,27' (default: 2, the middle, the last but two).")
    ] = None,
    split: Annotated[Side, typer.Option(help="Side of the split.")] = Side.train,
    max_tokens: Annotated[int | None, typer.Option(min=2, help="Cut samples here (default: the target's context).")] = None,
    dtype: Annotated[
        StatesDtype, typer.Option(help="Type the target computes in and states are stored in.")
    ] = StatesDtype.bfloat16,
    device: Annotated[
        str | None, typer.Option(help="cpu, cuda, cuda:N, or auto for all GPUs (default: cuda where there is one).")
    ] = None,
    run_by: Annotated[
        RunBy, typer.Option(help="own: our forward for plain Llama; transformers: any architecture; auto: the first that can.")
    ] = RunBy.auto,
    audit_every: Annotated[
        int, typer.Option(min=0, help="In every so many shards, run one sample again alone and compare; 0 never.")
    ] = 1,
    trust_remote_code: Annotated[
        bool, typer.Option("--trust-remote-code", help="Run Python code that the target's folder brings.")
    ] = False,
    template_variables: Annotated[str | None, typer.Option(help=VARIABLES_HELP)] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would be stored and how large it is; store nothing.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print what the folder holds, or would hold, as JSON.")] = False,
) -> None:
    """Store a target's hidden states for training without it. Killed at any moment, the same command goes on."""
    from breakeven.cli.data import _target
    from breakeven.drafter.capture.capture import Capture
    from breakeven.drafter.capture.planning import plan_capture
    from breakeven.drafter.capture.store_format import DTYPES
    from breakeven.drafter.capture.storing import check_space, store_states
    from breakeven.drafter.devices import chosen_device

    files = _target(target, template_variables)
    planned = plan_capture(train_file, files, split=split.value, layers=_layers(layers), dtype=dtype.value, max_tokens=max_tokens)
    manifest = planned.manifest
    needed, free = check_space(out, manifest)
    _announce(manifest, needed, free)
    written = 0
    if not dry_run:
        # a wrong device is told apart from a wrong folder before anything is written
        chosen_device(None if device == "auto" else device)

        def open_capture() -> Capture:
            return Capture.from_folder(
                files.folder,
                manifest.layers,
                device=device,
                dtype=DTYPES[dtype.value],
                runner=run_by.value,
                trust_remote_code=trust_remote_code,
                audit_every=audit_every,
            )

        written = store_states(out, manifest, planned.samples, open_capture, tell=_progress(manifest))
    if as_json:
        _print_json(out, manifest, needed, written, dry_run)
    elif not dry_run:
        there = "all of them were there" if not written else f"{written} of them written now"
        print_result(f"{out}: states of {manifest.num_samples} samples in {len(manifest.shards)} shards, {there}")


def _layers(text: str | None) -> list[int] | None:
    from breakeven.errors import UsageError

    if text is None:
        return None
    try:
        return [int(part) for part in text.split(",")]
    except ValueError as error:
        raise UsageError(f"--layers is {text!r}; expected three numbers such as 2,15,27") from error


def _announce(manifest: Manifest, needed: int, free: int) -> None:
    from breakeven.units import format_bytes

    typer.echo(
        f"{manifest.num_samples} samples, {manifest.num_tokens} tokens x 4 x {manifest.hidden_size} x {manifest.dtype}: "
        f"{format_bytes(manifest.state_bytes)} of states entering layers {', '.join(map(str, manifest.layers))} and after "
        f"the final norm, in {len(manifest.shards)} shards; {format_bytes(needed)} to write, {format_bytes(free)} free",
        err=True,
    )


def _progress(manifest: Manifest) -> Callable[[Progress], None]:
    import time

    from breakeven.units import format_bytes, format_duration, format_rate

    start_s = said_s = time.monotonic()
    began_with: int | None = None

    def tell(progress: Progress) -> None:
        nonlocal said_s, began_with
        now_s = time.monotonic()
        if began_with is None:
            # the first shard includes loading the target, so the rate is counted from its end
            began_with = progress.num_tokens
            return
        if now_s - said_s >= PROGRESS_S or progress.num_shards == len(manifest.shards):
            said_s = now_s
            rate = (progress.num_tokens - began_with) / max(now_s - start_s, 1e-9)
            left = (manifest.num_tokens - progress.num_tokens) / max(rate, 1e-9)
            typer.echo(
                f"{progress.num_shards} of {len(manifest.shards)} shards, {format_bytes(progress.num_bytes)}, {format_rate(rate)}, "
                f"about {format_duration(left)} left",
                err=True,
            )

    return tell


def _print_json(out: Path, manifest: Manifest, needed: int, written: int, dry_run: bool) -> None:
    import json

    typer.echo(
        json.dumps(
            {
                "folder": str(out),
                "target": manifest.target,
                "target_fingerprint": manifest.fingerprint,
                "architecture": manifest.architecture,
                "layers": list(manifest.layers),
                "dtype": manifest.dtype,
                "hidden_size": manifest.hidden_size,
                "num_samples": manifest.num_samples,
                "num_tokens": manifest.num_tokens,
                "num_shards": len(manifest.shards),
                "state_bytes": manifest.state_bytes,
                "bytes_to_write": needed,
                "shards_written": written,
                "dry_run": dry_run,
            },
            indent=2,
        )
    )
