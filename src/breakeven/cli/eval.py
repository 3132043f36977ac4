"""`breakeven eval`: the accept length of a drafter, measured without an engine."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from breakeven.cli.escaping import print_message

__all__ = ["evaluate"]


class EvalDtype(StrEnum):
    float32 = "float32"
    bfloat16 = "bfloat16"


def evaluate(
    target: Annotated[str, typer.Option(help="The model that is drafted for: folder, hub id in the local cache, or demo:NAME.")],
    draft: Annotated[str, typer.Option(help="EAGLE-3 head, of any trainer that breakeven export reads.")],
    prompts: Annotated[
        Path | None, typer.Option(help="Prompts as JSON Lines; lines marked for training are left out (default: 80 of our own).")
    ] = None,
    num_draft_tokens: Annotated[int, typer.Option(min=1, max=32, help="Drafts a round.")] = 3,
    max_tokens: Annotated[int, typer.Option(min=2, help="Longest answer, in tokens.")] = 128,
    dtype: Annotated[EvalDtype, typer.Option(help="Type that target and drafter compute in.")] = EvalDtype.float32,
    device: Annotated[str | None, typer.Option(help="cpu, cuda or cuda:N (default: cuda where there is one).")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON (docs/evaluation.md).")] = False,
) -> None:
    """Accept length of a drafter on the target's own greedy answers, free-running, with its interval over prompts."""
    from rich.console import Console

    from breakeven.checkpoints.resolve import resolve_model
    from breakeven.drafter.evaluation.evaluating import evaluate_folders
    from breakeven.drafter.evaluation.printing import print_evaluation
    from breakeven.drafter.evaluation.prompts import training_lines
    from breakeven.loadgen.prompts import builtin_prompts, read_prompts

    target_folder, draft_folder = (resolve_model(name, Path.cwd()) for name in (target, draft))
    for_training = training_lines(prompts) if prompts is not None else frozenset()
    chosen = [
        prompt
        for line, prompt in enumerate(read_prompts(prompts) if prompts is not None else builtin_prompts())
        if line not in for_training
    ]
    errors = Console(stderr=True)
    if for_training:
        errors.print(f"{len(for_training)} of the file's prompts are for training and are left out", markup=False)
    evaluation = evaluate_folders(
        target_folder,
        draft_folder,
        [(prompt.id, prompt.kind, [{"role": role, "content": content} for role, content in prompt.messages]) for prompt in chosen],
        num_draft_tokens=num_draft_tokens,
        max_tokens=max_tokens,
        dtype=dtype.value,
        device=device,
        told=lambda line: print_message(errors, line),
    )
    if as_json:
        typer.echo(evaluation.model_dump_json(indent=2))
    else:
        print_evaluation(evaluation, Console())
