"""`breakeven data`: from nothing to a training file that is looked over; the page's commands run, and its files are read."""

from __future__ import annotations

import json
import re
import shlex
import sys
from pathlib import Path

import orjson
import pytest
from tests.unit.drafter.data.conftest import SlowGenerator, write_chat_target
from typer.main import get_command
from typer.testing import CliRunner

from breakeven.cli import app, main
from breakeven.drafter.data import generator
from breakeven.drafter.data.combinations import combined_prompts
from breakeven.drafter.data.inspection import Inspection
from breakeven.drafter.data.prompt_records import read_prompt_records
from breakeven.drafter.data.reading import read_samples
from breakeven.drafter.data.target_files import TargetFiles
from breakeven.errors import DataError, UsageError

PAGE = (Path(__file__).parents[3] / "docs" / "training-data.md").read_text(encoding="utf-8")


def says(index: int, prompt: str) -> str:
    # a user's turn where the prompt asks for one, else an answer
    return f"an answer to{prompt[-20:]}" if prompt.endswith("assistant\n") else f"What is thing number {index} made of, say?"


@pytest.fixture
def target(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TargetFiles:
    """The demo's model, as far as its folder goes; whoever answers in this process is scripted."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("BREAKEVEN_CACHE", str(tmp_path / "cache"))
    folder = write_chat_target(tmp_path / "cache" / "models" / "smollm2-135m-instruct", "chatml", context_length=2048)
    files = TargetFiles.from_folder(folder)
    monkeypatch.setattr(generator, "in_process", lambda: SlowGenerator(files, says))
    return files


def run(*arguments: str) -> str:
    done = CliRunner().invoke(app, ["data", *arguments], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout


def test_the_pages_commands_run(target: TargetFiles) -> None:
    commands = [shlex.split(line) for line in re.findall(r"^breakeven data .*$", PAGE, re.MULTILINE)]
    in_process = [words[2:] for words in commands if "http" not in " ".join(words) and words[2] != "import"]
    assert [words[0] for words in in_process] == ["prompts", "answers", "inspect"]
    told = [run(*words, *(["--sampled", "30"] if words[0] == "prompts" else [])) for words in in_process]
    assert "30 of 30 sampled user turns were finished" in told[0]
    num_prompts = len(read_prompt_records(Path("prompts.jsonl")))
    assert num_prompts > len(combined_prompts())
    assert f"train.jsonl: {num_prompts} answers" in told[1]
    assert f"{num_prompts} answers to {num_prompts} prompts" in told[2]
    assert "⟦an answer to" in told[2]
    samples = list(read_samples(Path("train.jsonl"), split="held_out", target=target))
    assert samples
    # again: nothing is asked twice
    assert "0 of them new" in run(*in_process[1])


@pytest.mark.parametrize(("place", "number"), [("cpu", 40), ("cuda", 90)])
def test_without_a_number_fewer_turns_are_sampled_on_a_cpu_and_that_is_said(
    target: TargetFiles, monkeypatch: pytest.MonkeyPatch, place: str, number: int
) -> None:
    monkeypatch.setattr(generator, "USUAL_TURNS", {"cpu": 40, "cuda": 90})
    monkeypatch.setattr("breakeven.drafter.devices.torch.cuda.is_available", lambda: place == "cuda")
    done = CliRunner().invoke(app, ["data", "prompts", "--target", str(target.folder), "--out", "p.jsonl", "--no-combinations"])
    assert done.exit_code == 0, done.output
    assert f"of {number} sampled user turns" in done.stdout
    assert ("Sampling 40 user turns, the default on a CPU (90 on a GPU)" in done.stderr) == (place == "cpu")


def test_the_pages_import_runs(target: TargetFiles) -> None:
    (command,) = (shlex.split(line) for line in re.findall(r"^breakeven data import .*$", PAGE, re.MULTILINE))
    messages = [{"role": "user", "content": "Who?"}, {"role": "assistant", "content": "You."}]
    Path("log.jsonl").write_bytes(orjson.dumps({"messages": messages}))
    assert "1 samples of 1 conversations" in run(*command[2:])
    assert json.loads(run(*command[2:], "--json", "--last-turn"))["samples"] == 1
    assert "1 answers to 1 prompts" in run("inspect", "train.jsonl", "--target", str(target.folder))


def test_figures_are_printed_as_json(target: TargetFiles) -> None:
    made = json.loads(run("prompts", "--out", "p.jsonl", "--json"))
    assert made["prompts"] == made["train"] + made["held_out"] == len(combined_prompts())
    answered = json.loads(run("answers", "p.jsonl", "--target", str(target.folder), "--out", "t.jsonl", "--json"))
    assert answered["answers"] == made["prompts"]
    looked = json.loads(run("inspect", "t.jsonl", "--target", str(target.folder), "--json", "--html", "page.html"))
    assert looked["num_answers"] == made["prompts"]
    page = Path("page.html").read_text()
    assert page.startswith("<!DOCTYPE html>")
    assert "⟦an answer" in page
    # a page that cannot be written leaves the one before, and says which file it is
    Path("full").mkdir()
    with pytest.raises(DataError, match="full: cannot be written"):
        run("inspect", "t.jsonl", "--target", str(target.folder), "--html", "full")


def test_the_pages_files_are_read(tmp_path: Path) -> None:
    prompts, training = re.findall(r"^```json\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    (tmp_path / "p.jsonl").write_text(prompts)
    (record,) = read_prompt_records(tmp_path / "p.jsonl")
    (tmp_path / "t.jsonl").write_text(training)
    (sample,) = read_samples(tmp_path / "t.jsonl", split="train")
    assert sample.sample_id == record.id
    assert sum(sample.loss_mask) == 3


def test_every_key_of_the_inspection_is_on_the_page() -> None:
    schema = Inspection.model_json_schema()
    keys = set(schema["properties"]) | {key for part in schema["$defs"].values() for key in part["properties"]}
    section = PAGE.partition("| key of `--json` |")[2].partition("\n\n")[0]
    assert keys <= set(re.findall(r"`(\w+)`", section)), keys - set(re.findall(r"`(\w+)`", section))


def test_the_page_says_how_many_combinations_there_are() -> None:
    combinations = combined_prompts()
    assert f"of {len({record.kind for record in combinations})} kinds" in PAGE
    assert f"{len(combinations)} prompts" in PAGE


def test_every_flag_is_on_the_page() -> None:
    group = get_command(app).commands["data"]  # type: ignore[attr-defined]
    flags = {
        flag
        for command in group.commands.values()
        for option in command.params
        for flag in [*option.opts, *option.secondary_opts]
        if flag.startswith("--")
    }
    assert flags - {"--help"} == set(re.findall(r"--[a-z][a-z-]*", PAGE))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["prompts", "--out", "p.jsonl", "--sampled", "5"], "give --target"),
        (["prompts", "--out", "p.jsonl", "--no-combinations"], "no source of prompts"),
        (["prompts", "--out", "p.jsonl", "--from", "nothing.jsonl"], "nothing.jsonl"),
        (["answers", "p.jsonl", "--target", "nothing", "--out", "t.jsonl"], "p.jsonl: cannot be read"),
        (["inspect", "t.jsonl", "--target", "demo:smollm2-135m-instruct"], "t.jsonl: cannot be read"),
        (["inspect", "\x1b[31mred", "--target", "demo:smollm2-135m-instruct"], "cannot be read"),
        (["inspect", "x" * 5000, "--target", "demo:smollm2-135m-instruct"], "cannot be read"),
    ],
)
def test_bad_input_is_one_clear_error(
    target: TargetFiles,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    message: str,
) -> None:
    monkeypatch.setattr(sys, "argv", ["breakeven", "data", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    told = capsys.readouterr().err
    assert ended.value.code == 2
    assert message in " ".join(told.split())
    assert "\x1b" not in told
    assert "Traceback" not in told


def test_flags_that_do_not_go_together(target: TargetFiles) -> None:
    run("prompts", "--out", "p.jsonl")
    folder = str(target.folder)
    for arguments, message in (
        (["--target", folder, "--model", "x"], "belong to a server"),
        (["--target", folder, "--template-variables", "{"], "not JSON"),
        (["--target", folder, "--template-variables", "[1]"], "should be a JSON object"),
        (["--target", folder, "--temperature", "0"], "above 0"),
        (["--target", folder, "--samples-per-prompt", "2", "--greedy-share", "1"], "all equal"),
    ):
        with pytest.raises(UsageError, match=message):
            run("answers", "p.jsonl", "--out", "t.jsonl", *arguments)
    assert not Path("t.jsonl").exists()


def test_answers_are_not_replaced_by_prompts_or_conversations(target: TargetFiles) -> None:
    run("prompts", "--out", "p.jsonl")
    Path("p.jsonl").write_bytes(Path("p.jsonl").read_bytes().splitlines(keepends=True)[0])
    run("answers", "p.jsonl", "--target", str(target.folder), "--out", "t.jsonl")
    before = Path("t.jsonl").read_bytes()
    with pytest.raises(DataError, match="holds answers of the target, which this would replace"):
        run("prompts", "--out", "t.jsonl")
    Path("log.jsonl").write_bytes(b'{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}')
    with pytest.raises(DataError, match="which this would replace"):
        run("import", "log.jsonl", "--target", str(target.folder), "--out", "t.jsonl")
    with pytest.raises(DataError, match="not the header of training data"):
        run("answers", "p.jsonl", "--target", str(target.folder), "--out", "p.jsonl")
    assert Path("t.jsonl").read_bytes() == before
    # what can be made again at no cost may be
    for _ in range(2):
        run("import", "log.jsonl", "--target", str(target.folder), "--out", "i.jsonl")


def test_answers_of_another_target_are_not_looked_over(target: TargetFiles, tmp_path: Path) -> None:
    run("prompts", "--out", "p.jsonl")
    few = Path("p.jsonl").read_bytes().splitlines(keepends=True)[:3]
    Path("p.jsonl").write_bytes(b"".join(few))
    run("answers", "p.jsonl", "--target", str(target.folder), "--out", "t.jsonl")
    other = write_chat_target(tmp_path / "other", "marked")
    with pytest.raises(DataError, match="made with the target smollm2-135m-instruct"):
        run("inspect", "t.jsonl", "--target", str(other))
    header = orjson.loads(Path("t.jsonl").read_bytes().splitlines()[0])
    assert header["target"]["name"] == "smollm2-135m-instruct"
