"""An evaluation on a terminal: the accept length with its interval first, then where it comes from, then its doubts."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table
from rich.text import Text

from breakeven.drafter.evaluation.result import Evaluation, Figures

__all__ = ["print_evaluation"]


def print_evaluation(evaluation: Evaluation, console: Console) -> None:
    """Print every figure of `evaluation`. Names from files are shown as text, never as markup."""
    overall, k = evaluation.overall, evaluation.num_draft_tokens
    console.print(Text(f"Accept length {_length(overall)} with {k} draft tokens, free-running, greedy", style="bold"))
    console.print(
        Text(
            f"{overall.num_rounds} rounds over {overall.num_prompts} prompts, {evaluation.num_answer_tokens} answer tokens; "
            f"draft vocabulary {evaluation.draft_vocab_size}, layers {', '.join(map(str, evaluation.auxiliary_layers))}"
        )
    )
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("")
    for heading in ("prompts", "rounds", "accept length", "first drafts accepted" if k > 1 else "draft accepted"):
        table.add_column(heading, justify="right")
    _row(table, "all", overall)
    if evaluation.num_looping:
        _row(table, "without loops", evaluation.without_loops)
    for name, figures in evaluation.by_kind.items():
        _row(table, f"kind {ascii(name)[1:-1]}", figures)
    for name, figures in evaluation.by_context.items():
        _row(table, f"context {name}", figures)
    console.print(table)
    if overall.joint:
        reached = ["-" if chance is None else f"{chance:.3f}" for chance in overall.conditional]
        console.print(f"each draft accepted, given those before it: {', '.join(reached)}", highlight=False)
    if evaluation.unknown_token_share is not None:
        rejections = evaluation.unknown_rejection_share
        share = f", which makes {rejections:.1%} of the rejections" if rejections is not None else ""
        console.print(f"{evaluation.unknown_token_share:.2%} of the answers' tokens are outside the draft vocabulary{share}")
    for doubt in evaluation.doubts:
        console.print(Text(f"note: {doubt}", style="yellow"))


def _row(table: Table, name: str, figures: Figures) -> None:
    joint = " ".join(f"{chance:.3f}" for chance in figures.joint) or "-"
    table.add_row(Text(name), str(figures.num_prompts), str(figures.num_rounds), _length(figures), joint)


def _length(figures: Figures) -> str:
    if figures.accept_length is None:
        return "unknown"
    if figures.accept_length_low is None or figures.accept_length_high is None:
        return f"{figures.accept_length:.2f}"
    return f"{figures.accept_length:.2f} ({figures.accept_length_low:.2f} to {figures.accept_length_high:.2f})"
