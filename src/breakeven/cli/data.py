"""`breakeven data prompts|answers|inspect`: training data for a drafter, made with its target."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from breakeven.cli.escaping import print_result

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from breakeven.drafter.data.answering import Progress
    from breakeven.drafter.data.target_files import TargetFiles

__all__ = ["data"]

data = typer.Typer(no_args_is_help=True, help="Training data for a drafter: prompts, the target's answers, and a look at both.")

PROGRESS_S = 5.0
TARGET_HELP = "Model folder, hub id in the local cache, or demo:NAME."
VARIABLES_HELP = "What the chat template may look at, as JSON: '{\"enable_thinking\": false}'."


@data.command()
def prompts(
    out: Annotated[Path, typer.Option(help="File of prompts to write, one JSON object a line.")],
    target: Annotated[str | None, typer.Option(help=f"Whose own user turns are sampled. {TARGET_HELP}")] = None,
    sampled: Annotated[
        int | None,
        typer.Option(
            min=0, max=10_000_000, help="User turns to sample (default with --target: 40000 on a GPU, 1000 on a CPU; else none)."
        ),
    ] = None,
    combinations: Annotated[bool, typer.Option(help="Add the built-in combinations of instructions and topics.")] = True,
    files: Annotated[
        list[Path] | None,
        typer.Option("--from", help="Add prompts of a file: JSON Lines (prompt, messages, conversations), or .txt, one a line."),
    ] = None,
    held_out: Annotated[float, typer.Option(min=0.0, max=0.5, help="Share of free prompts that training never touches.")] = 0.05,
    max_tokens: Annotated[int, typer.Option(min=1, help="Longest sampled user turn; longer ones are left out.")] = 64,
    temperature: Annotated[float, typer.Option(min=0.01, help="Of sampled user turns.")] = 1.0,
    top_p: Annotated[float, typer.Option(min=0.01, max=1.0, help="Of sampled user turns.")] = 0.95,
    seed: Annotated[int, typer.Option(min=0, max=2**31 - 1, help="Of sampled user turns.")] = 0,
    template_variables: Annotated[str | None, typer.Option(help=VARIABLES_HELP)] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print what was written as JSON.")] = False,
) -> None:
    """Write prompts of many kinds, each in training or held out."""
    from breakeven.drafter.data.generator import USUAL_TURNS, in_process, usual_turns
    from breakeven.drafter.data.making_prompts import PromptSettings, make_prompts

    if sampled is None:
        sampled, place = usual_turns() if target is not None else (0, "")
        if place == "cpu":
            typer.echo(
                f"Sampling {sampled} user turns, the default on a CPU ({USUAL_TURNS['cuda']} on a GPU); --sampled says otherwise. "
                "How long it takes is told once the first have ended.",
                err=True,
            )
    found = make_prompts(
        out,
        PromptSettings(
            num_sampled=sampled,
            combinations=combinations,
            files=tuple(files or ()),
            held_out_share=held_out,
            max_tokens=max_tokens,
            temperature=temperature,
            top_p=top_p,
            seed=seed,
        ),
        target=_target(target, template_variables) if target is not None else None,
        generate=in_process,
        tell=_counter("user turns"),
    )
    _show(found.as_json(), found.lines(), as_json)


@data.command()
def answers(
    prompt_file: Annotated[Path, typer.Argument(metavar="PROMPTS", help="What `breakeven data prompts` wrote.")],
    out: Annotated[Path, typer.Option(help="Training file to write, or to go on with after a stop.")],
    target: Annotated[str, typer.Option(help=f"URL of a server (http://HOST:PORT), or answered in this process: {TARGET_HELP}")],
    tokenizer: Annotated[
        str | None, typer.Option(help="With a URL: the served model's folder, for its template, tokenizer and identity.")
    ] = None,
    model: Annotated[str | None, typer.Option(help="With a URL: the served model's name (default: the only one there).")] = None,
    api_key_env: Annotated[str | None, typer.Option(help="Environment variable that holds the server's API key.")] = None,
    concurrency: Annotated[int, typer.Option(min=1, max=100_000, help="With a URL: requests under way at once.")] = 64,
    samples_per_prompt: Annotated[int, typer.Option(min=1, max=1000, help="Answers to each prompt.")] = 1,
    max_tokens: Annotated[int, typer.Option(min=1, help="Longest answer.")] = 384,
    greedy_share: Annotated[float, typer.Option(min=0.0, max=1.0, help="Share of greedy answers, at most one a prompt.")] = 0.5,
    temperature: Annotated[float, typer.Option(help="Of the other answers.")] = 0.7,
    top_p: Annotated[float, typer.Option(help="Of the other answers.")] = 0.95,
    seed: Annotated[int, typer.Option(min=0, max=2**31 - 1, help="Which prompts are answered greedily, and draws in process.")] = 0,
    template_variables: Annotated[str | None, typer.Option(help=VARIABLES_HELP)] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print what the file holds now as JSON.")] = False,
) -> None:
    """Let the target answer every prompt. Killed at any moment, the same command goes on."""
    from breakeven.drafter.data.answering import collect_answers
    from breakeven.drafter.data.asks import AnswerSettings, Source
    from breakeven.drafter.data.prompt_records import read_prompt_records
    from breakeven.errors import UsageError

    settings = AnswerSettings(
        samples_per_prompt=samples_per_prompt,
        max_tokens=max_tokens,
        greedy_share=greedy_share,
        temperature=temperature,
        top_p=top_p,
        seed=seed,
    )
    records = read_prompt_records(prompt_file)
    source: Source
    if target.startswith(("http://", "https://")):
        from breakeven.drafter.data.served import Served, served_model
        from breakeven.loadgen.client import Endpoint

        files = _target(tokenizer, template_variables) if tokenizer is not None else None
        if files is None:
            typer.echo(
                "No --tokenizer: the file will not name its target, and prompts are not held against the model's template", err=True
            )
        name = model if model is not None else served_model(target, api_key_env=api_key_env)
        source = Served(
            Endpoint(url=target, model=name, api_key_env=api_key_env),
            max_tokens=max_tokens,
            concurrency=concurrency,
            target=files,
            template_variables=_variables(template_variables),
        )
    else:
        if tokenizer is not None or model is not None or api_key_env is not None:
            raise UsageError("--tokenizer, --model and --api-key-env belong to a server; --target names a folder here")
        from breakeven.drafter.data.generator import in_process
        from breakeven.drafter.data.in_process import InProcess

        files = _target(target, template_variables)
        source = InProcess(files, in_process(), max_tokens=max_tokens, seed=seed)
    found = collect_answers(
        out,
        records,
        settings,
        source,
        target=files,
        template_variables=_variables(template_variables),
        tell=_answer_progress(),
    )
    _show(found.as_json(), found.lines(out), as_json)


@data.command("import")
def import_(
    files: Annotated[list[Path], typer.Argument(help="Conversations that this target has written: messages or conversations.")],
    target: Annotated[str, typer.Option(help=f"The model that wrote them. {TARGET_HELP}")],
    out: Annotated[Path, typer.Option(help="Training file to write.")],
    last_turn: Annotated[bool, typer.Option("--last-turn", help="Only the last answer of each is the target's.")] = False,
    held_out: Annotated[float, typer.Option(min=0.0, max=0.5, help="Share of conversations that training never touches.")] = 0.05,
    template_variables: Annotated[str | None, typer.Option(help=VARIABLES_HELP)] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print what was written as JSON.")] = False,
) -> None:
    """Turn conversations that the target has written already (a log of its traffic) into a training file."""
    from breakeven.drafter.data.importing import import_conversations

    found = import_conversations(
        out,
        files,
        _target(target, template_variables),
        turns="last" if last_turn else "all",
        held_out_share=held_out,
        tell=_counter("conversations"),
    )
    _show(found.as_json(), found.lines(), as_json)


@data.command()
def inspect(
    file: Annotated[Path, typer.Argument(help="What `breakeven data answers` wrote.")],
    target: Annotated[str, typer.Option(help=f"The model that answered. {TARGET_HELP}")],
    show: Annotated[int, typer.Option(min=0, max=100, help="Samples to show, spread over both sides of the split.")] = 3,
    only: Annotated[str | None, typer.Option("--id", help="Show the answers to this prompt instead.")] = None,
    html: Annotated[Path | None, typer.Option(help="Write the same as a page, colours included.")] = None,
    template_variables: Annotated[str | None, typer.Option(help=VARIABLES_HELP)] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the figures as JSON (docs/training-data.md).")] = False,
) -> None:
    """Look a training file over: what the target wrote, lengths, loops, duplicates, vocabulary coverage, doubts."""
    from rich.console import Console

    from breakeven.cli.data_shown import show_inspection, show_samples
    from breakeven.drafter.data.inspection import inspect_training_file

    found, samples = inspect_training_file(file, _target(target, template_variables), show=show, only=only)
    if html is not None:
        import io

        page = Console(record=True, file=io.StringIO(), width=132)
        show_inspection(found, page)
        show_samples(samples, page)
        _write_page(html, page.export_html())
    if as_json:
        typer.echo(found.model_dump_json(indent=2))
        return
    console = Console()
    show_inspection(found, console)
    show_samples(samples, console)


def _write_page(path: Path, content: str) -> None:
    from breakeven.errors import DataError
    from breakeven.whole import write_whole

    try:
        write_whole(path, content)
    except OSError as error:
        raise DataError(f"{path}: cannot be written ({error.strerror}); give another file with --html") from error


def _show(record: Mapping[str, Any], lines: Iterable[str], as_json: bool) -> None:
    import json

    if as_json:
        typer.echo(json.dumps(record, indent=2))
    else:
        for line in lines:
            print_result(line)


def _target(name: str, template_variables: str | None) -> TargetFiles:
    from breakeven.checkpoints.resolve import resolve_model
    from breakeven.drafter.data.target_files import TargetFiles

    return TargetFiles.from_folder(resolve_model(name, Path.cwd()), _variables(template_variables))


def _variables(text: str | None) -> dict[str, Any]:
    import orjson

    from breakeven.errors import UsageError

    if text is None:
        return {}
    try:
        found = orjson.loads(text.encode("utf-8", "surrogateescape"))
    except orjson.JSONDecodeError as error:
        raise UsageError(f"--template-variables is not JSON ({error}); expected an object") from error
    if not isinstance(found, dict):
        raise UsageError("--template-variables should be a JSON object, such as '{\"enable_thinking\": false}'")
    return found


def _counter(what: str) -> Callable[[int, int, int], None]:
    """A line on stderr every few seconds: done, total, tokens."""
    import time

    from breakeven.drafter.data.time_left import TimeLeft
    from breakeven.units import format_duration, format_rate

    start_s = said_s = time.monotonic()
    time_left = TimeLeft()

    def tell(done: int, total: int, num_tokens: int) -> None:
        nonlocal said_s
        now_s = time.monotonic()
        left_s = time_left(done, total - done, now_s)
        if now_s - said_s >= PROGRESS_S or done == total:
            said_s, elapsed_s = now_s, max(now_s - start_s, 1e-9)
            left = "" if left_s is None else f", about {format_duration(left_s)} left"
            typer.echo(f"{done} of {total} {what}, {format_rate(num_tokens / elapsed_s)}{left}", err=True)

    return tell


def _answer_progress() -> Callable[[Progress], None]:
    import time

    from breakeven.units import format_duration, format_rate

    said_s = time.monotonic()

    def tell(progress: Progress) -> None:
        nonlocal said_s
        now_s = time.monotonic()
        if now_s - said_s >= PROGRESS_S or progress.num_done == progress.num_wanted:
            said_s = now_s
            left = "" if progress.left_s is None else f", about {format_duration(progress.left_s)} left"
            typer.echo(
                f"{progress.num_done} of {progress.num_wanted} answers, {progress.num_tokens} tokens, "
                f"{format_rate(progress.tokens_per_s)}{left}",
                err=True,
            )

    return tell
