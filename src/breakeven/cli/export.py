"""`breakeven export`: one folder of a drafter that the engines read rightly, from any trainer's."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from breakeven.cli.escaping import print_result

__all__ = ["export"]


class ForEngine(StrEnum):
    vllm = "vllm"
    sglang = "sglang"
    both = "both"


class HeadDtype(StrEnum):
    bfloat16 = "bfloat16"
    float16 = "float16"
    float32 = "float32"


def export(
    draft: Annotated[
        str, typer.Option(help="EAGLE-3 head: of this trainer, SpecForge, speculators, Model-Optimizer, TorchSpec, EAGLE.")
    ],
    target: Annotated[str, typer.Option(help="The model it drafts for: folder, hub id in the local cache, or demo:NAME.")],
    out: Annotated[Path, typer.Option(help="Folder to create; nothing may be there yet.")],
    engines: Annotated[ForEngine, typer.Option("--for", help="Engine that is to read it.")] = ForEngine.both,
    dtype: Annotated[HeadDtype, typer.Option(help="Type of the weights.")] = HeadDtype.bfloat16,
    as_json: Annotated[bool, typer.Option("--json", help="Print what was written as JSON.")] = False,
) -> None:
    """Write a drafter's folder so that vLLM and SGLang read the same function from it, or say what they cannot express."""
    import json

    from breakeven.checkpoints.resolve import resolve_model
    from breakeven.drafter.export.exporting import export_folder
    from breakeven.units import format_bytes

    draft_folder, target_folder = (resolve_model(name, Path.cwd()) for name in (draft, target))
    head, exported = export_folder(draft_folder, target_folder, out, engines=engines.value, dtype=dtype.value)
    notes = [*head.notes, *exported.provenance.doubts]
    if as_json:
        written = {
            "folder": str(out),
            "bytes": exported.num_bytes,
            "source_format": head.source_format,
            "engines": engines.value,
            "auxiliary_layers": list(head.config.auxiliary_layers),
            "notes": notes,
            "config": exported.config,
            "provenance": exported.provenance.model_dump(mode="json"),
        }
        typer.echo(json.dumps(written, indent=2))
        return
    layers = ", ".join(map(str, head.config.auxiliary_layers))
    print_result(
        f"{out}: head in the layout of {head.source_format}, written for {engines.value} in {dtype.value}, "
        f"{format_bytes(exported.num_bytes)}; it reads the inputs of layers {layers}"
    )
    for note in notes:
        print_result(f"note: {note}")
