"""Answers of `breakeven equal` kept as they come: kills, failed requests, more prompts, and what must not be mixed."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from breakeven.engines.base import Arm
from breakeven.errors import EngineDied, StoreError
from breakeven.experiment.answering import Answered, collect_answers, what_to_ask
from breakeven.experiment.events import Event, Launching, Note
from breakeven.experiment.kept_answers import KeptAnswers, set_answers_aside
from breakeven.experiment.live import SimulatedArm
from breakeven.experiment.plan import Plan, parse_plan
from breakeven.loadgen.answers import GreedyAnswer, OnAnswer
from breakeven.loadgen.samples import Prompt

PLAN = """
name: said
engine: fake
workload: {max_tokens: 24}
load: [{concurrency: 8}]
arms:
  plain: {simulation: {rounding_flips: 0.01}}
  eagle: {speculation: {method: eagle3, drafter: random}, simulation: {joint: [0.7, 0.5, 0.3], rounding_flips: 0.02}}
"""


class Server(SimulatedArm):
    """Says what the simulated arm says; `dies_after` so many answers, fails the requests of `failing`, and pauses before each."""

    def __init__(
        self, arm: Arm, *, dies_after: int = 10**9, failing: tuple[str, ...] = (), pause_s: float = 0.0, version: str = "1"
    ) -> None:
        super().__init__(arm, seed=0, window_s=10.0)
        self.name, self.version = arm.name, version
        self.dies_after, self.failing, self.pause_s = dies_after, failing, pause_s

    async def start(self, launch: str, on_wait: Callable[[float, str], None]) -> Mapping[str, object]:
        return {**await super().start(launch, on_wait), "version": self.version}

    async def answer(
        self, prompts: Sequence[Prompt], *, max_tokens: int, concurrency: int, seed: int, on_answer: OnAnswer
    ) -> list[GreedyAnswer]:
        num_answers = 0

        def take(prompt: Prompt, answer: GreedyAnswer) -> None:
            nonlocal num_answers
            if num_answers == self.dies_after:
                raise EngineDied(f"arm {self.name}: it died")
            num_answers += 1
            time.sleep(self.pause_s)
            on_answer(prompt, GreedyAnswer(prompt_id=prompt.id, error="HTTP 500") if prompt.id in self.failing else answer)

        return await super().answer(prompts, max_tokens=max_tokens, concurrency=concurrency, seed=seed, on_answer=take)


def collect(
    folder: Path, *, num_prompts: int = 12, text: str = PLAN, told: list[Event] | None = None, **server: object
) -> Answered:
    plan = parse_plan(text, "plan.yaml")
    asking = what_to_ask(plan, num_prompts=num_prompts)
    answered = collect_answers(
        plan, folder, asking, (told if told is not None else []).append, make_live=lambda arm: Server(arm, **server)
    )
    assert answered is not None
    return answered


def lines(folder: Path) -> list[bytes]:
    return (folder / "equality/answers.jsonl").read_bytes().splitlines(keepends=True)


def launches(told: list[Event]) -> list[str]:
    return [event.arm for event in told if isinstance(event, Launching) and event.elapsed_s == 0.0 and not event.line][::2]


def notes(told: list[Event]) -> str:
    return " ".join(event.text for event in told if isinstance(event, Note))


def test_what_a_dead_server_had_answered_is_not_asked_again(tmp_path: Path) -> None:
    whole = collect(tmp_path / "whole")
    first = collect(tmp_path / "cut", dies_after=5)
    assert first.passes == {}
    assert "it died" in first.failed["plain"]
    assert len(lines(tmp_path / "cut")) == 1 + 1 + 5
    told: list[Event] = []
    again = collect(tmp_path / "cut", told=told)
    assert "5 of 36 answers are kept" in notes(told)
    # in two parts, a pass says what it says in one
    assert again.passes == whole.passes
    assert len(lines(tmp_path / "cut")) == len(lines(tmp_path / "whole")) + 1


def test_a_finished_check_asks_nothing(tmp_path: Path) -> None:
    before = collect(tmp_path)
    content = lines(tmp_path)
    told: list[Event] = []
    after = collect(tmp_path, told=told)
    assert after == before
    assert launches(told) == []
    assert "nothing is asked again" in notes(told)
    assert lines(tmp_path) == content


def test_more_prompts_keep_the_answers_to_the_others(tmp_path: Path) -> None:
    collect(tmp_path, num_prompts=8)
    before = lines(tmp_path)
    more = collect(tmp_path, num_prompts=20)
    assert lines(tmp_path)[: len(before)] == before
    assert [len(answers) for answers in more.passes["plain"]] == [20, 20]
    fewer = collect(tmp_path, num_prompts=8)
    assert [len(answers) for answers in fewer.passes["plain"]] == [8, 8]


def test_failed_requests_are_asked_again_by_the_next_start(tmp_path: Path) -> None:
    prompt = what_to_ask(parse_plan(PLAN, "plan.yaml"), num_prompts=12).asked.prompts[3].id
    first = collect(tmp_path, failing=(prompt,))
    assert [answer.error for answer in first.passes["eagle"][0]].count("HTTP 500") == 1
    told: list[Event] = []
    again = collect(tmp_path, told=told)
    assert not [answer for passes in again.passes.values() for answers in passes for answer in answers if answer.error]
    assert launches(told) == ["plain", "eagle", "plain"]


def test_an_arm_that_is_added_is_asked_and_no_other(tmp_path: Path) -> None:
    collect(tmp_path)
    told: list[Event] = []
    more = collect(
        tmp_path, text=PLAN + "  ngram: {speculation: {method: ngram}, simulation: {joint: [0.3, 0.2, 0.1]}}\n", told=told
    )
    assert launches(told) == ["ngram"]
    assert set(more.passes) == {"plain", "eagle", "ngram"}


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (PLAN.replace("max_tokens: 24", "max_tokens: 32"), "max_tokens was 24 and is 32"),
        (PLAN.replace("concurrency: 8", "concurrency: 4"), "concurrency was 8 and is 4"),
        (PLAN + "dtype: float32\n", "arm plain's dtype was 'auto' and is 'float32'"),
        (PLAN.replace("0.02}", "0.02, wrong_tokens: 0.1}"), "arm eagle's simulation.wrong_tokens was nothing and is 0.1"),
        (PLAN.replace("0.02}", "0.02}, extra_flags: ['--x']"), r"""arm eagle's extra_flags was '\[\]' and is '\["--x"\]'"""),
    ],
)
def test_answers_asked_for_otherwise_are_not_mixed(tmp_path: Path, changed: str, message: str) -> None:
    collect(tmp_path)
    before = lines(tmp_path)
    with pytest.raises(StoreError, match=f"asked for otherwise: .*{message}.*ask everything again with breakeven equal --fresh"):
        collect(tmp_path, text=changed)
    assert lines(tmp_path) == before
    assert set_answers_aside(tmp_path) == tmp_path / "equality.old-1"
    collect(tmp_path, text=changed)


def test_a_model_that_has_changed_is_named(tmp_path: Path) -> None:
    with KeptAnswers(tmp_path, max_tokens=8, concurrency=2) as kept:
        kept.launched("a", 1, {"dtype": "auto", "target.fingerprint": "one"}, {})
    with (
        KeptAnswers(tmp_path, max_tokens=8, concurrency=2) as kept,
        pytest.raises(StoreError, match=r"arm a's target.fingerprint was 'one' and is 'other'"),
    ):
        kept.check("a", {"dtype": "auto", "target.fingerprint": "other", "a key of a later release": 1})


def test_an_edited_prompt_is_another_prompt(tmp_path: Path) -> None:
    prompt = Prompt(id="p", kind="chat", messages=(("user", "one"),))
    with KeptAnswers(tmp_path, max_tokens=8, concurrency=2) as kept:
        kept.add("a", 1, prompt, GreedyAnswer(prompt_id="p", text="yes"))
    with KeptAnswers(tmp_path, max_tokens=8, concurrency=2) as kept:
        assert kept.answer("a", 1, prompt) == GreedyAnswer(prompt_id="p", text="yes")
        assert kept.answer("a", 1, replace(prompt, messages=(("user", "other"),))) is None


def test_another_release_behind_the_same_arm_is_left_out(tmp_path: Path) -> None:
    collect(tmp_path, dies_after=5)
    found = collect(tmp_path, version="2")
    assert "version was '1' and is '2'" in found.failed["plain"]
    assert not found.passes
    assert collect(tmp_path).failed == {}


def test_everything_of_an_answer_is_read_back(tmp_path: Path) -> None:
    prompt = Prompt(id="p", kind="chat", messages=(("user", "one"),))
    answer = GreedyAnswer(
        prompt_id="p",
        text="\u2028 \x1b[31m",
        tokens=("6869",),
        token_ids=(7,),
        alternatives=((("6869", -0.5), ("00", -1e300)),),
        num_tokens=3,
        finish_reason="stop",
        degenerate="loop",
    )
    with KeptAnswers(tmp_path, max_tokens=8, concurrency=2) as kept:
        kept.add("a", 2, prompt, answer)
        kept.add("a", 1, prompt, replace(answer, alternatives=((("00", float("nan")),),)))
    with KeptAnswers(tmp_path, max_tokens=8, concurrency=2) as kept:
        assert kept.answer("a", 2, prompt) == answer
        odd = kept.answer("a", 1, prompt)
        assert odd is not None
        assert odd.alternatives[0][0][1] != odd.alternatives[0][0][1]


@pytest.mark.parametrize(
    "damage", [b"{oh no\n", b"[]\n", b'{"arm": "plain"}\n', b'{"launch": 3, "arm": []}\n', b"\xff\n", b"null\n"]
)
def test_a_broken_line_is_one_message(tmp_path: Path, damage: bytes) -> None:
    collect(tmp_path)
    file = tmp_path / "equality/answers.jsonl"
    content = lines(tmp_path)
    file.write_bytes(b"".join([*content[:4], damage, *content[4:]]))
    with pytest.raises(StoreError, match=r"answers.jsonl, line 5: none of breakeven equal \(.*\); remove the line"):
        collect(tmp_path)
    file.write_bytes(damage)
    with pytest.raises(StoreError, match=r"answers.jsonl, line 1: none of breakeven equal"):
        collect(tmp_path)
    assert file.read_bytes() == damage


def test_a_file_of_something_else_without_a_line_end_is_not_emptied(tmp_path: Path) -> None:
    (tmp_path / "equality").mkdir()
    file = tmp_path / "equality/answers.jsonl"
    file.write_bytes(b"my notes")
    with pytest.raises(StoreError, match=r"line 1: none of breakeven equal \(it is no header\)"):
        collect(tmp_path)
    assert file.read_bytes() == b"my notes"


def test_a_full_disk_keeps_what_was_written(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    # the system's own limit on a file's size: writing beyond it fails as a full disk does, in the middle of a line
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, hard))
    try:
        with pytest.raises(StoreError, match=r"answers.jsonl: cannot be written \(File too large\); what is in it is kept"):
            collect(tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    content = lines(tmp_path)
    assert all(line.endswith(b"\n") for line in content)
    assert collect(tmp_path).failed == {}
    assert lines(tmp_path)[: len(content)] == content


KILLED = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from tests.unit.experiment.test_answering import collect
collect(Path(sys.argv[1]), num_prompts=40, pause_s=0.02)
"""


def test_killed_at_any_moment_the_same_command_goes_on(tmp_path: Path) -> None:
    folder = tmp_path / "cut"
    root = Path(__file__).parents[3]
    process = subprocess.Popen([sys.executable, "-c", KILLED, str(folder), str(root)])
    file = folder / "equality/answers.jsonl"
    deadline = time.monotonic() + 60
    while process.poll() is None and time.monotonic() < deadline and not (file.exists() and file.read_bytes().count(b"\n") >= 50):
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    half = file.read_bytes()
    assert 50 <= half.count(b"\n") < 120
    # what a killed process may leave: a line without its end
    file.write_bytes(half + b'{"arm": "plain", "pass": 1, "pro')
    again = collect(folder, num_prompts=40)
    assert file.read_bytes().startswith(half)
    assert again.passes == collect(tmp_path / "whole", num_prompts=40).passes
    asked = [(row["arm"], row["pass"], row["prompt"]) for row in map(json.loads, lines(folder)) if "prompt" in row]
    assert len(asked) == len(set(asked)) == 3 * 40


def test_a_run_that_is_in_use_is_not_moved(tmp_path: Path, make_plan: Callable[..., Plan]) -> None:
    from breakeven.experiment.run_lock import RunLock

    assert set_answers_aside(tmp_path) is None
    collect(tmp_path)
    with RunLock(tmp_path), pytest.raises(StoreError, match="is measuring this run"):
        set_answers_aside(tmp_path)
    assert (tmp_path / "equality/answers.jsonl").exists()
