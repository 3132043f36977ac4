"""From prompts to a training file: which answers, what a stopped run leaves, what is refused."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import orjson
import pytest
from tests.unit.drafter.data.conftest import SlowGenerator, prompts

from breakeven.drafter.data.answer_file import AnswerFile
from breakeven.drafter.data.answering import Collected, Progress, collect_answers
from breakeven.drafter.data.asks import Answer, AnswerSettings, Ask
from breakeven.drafter.data.in_process import InProcess
from breakeven.drafter.data.prompt_records import PromptRecord, prompt_id
from breakeven.drafter.data.reading import read_samples
from breakeven.drafter.data.target_files import TargetFiles
from breakeven.drafter.data.time_left import KNOWN_FROM_ENDS
from breakeven.drafter.data.training_records import Header
from breakeven.errors import DataError


def says(index: int, prompt: str) -> str:
    return f"answer {index} to{prompt[-15:]}"


def collect(
    path: Path,
    target: TargetFiles,
    generator: SlowGenerator | None = None,
    *,
    count: int = 20,
    told: list[Progress] | None = None,
    **settings: object,
) -> Collected:
    chosen = AnswerSettings(**settings)  # type: ignore[arg-type]
    source = InProcess(target, generator or SlowGenerator(target, says), max_tokens=chosen.max_tokens, seed=chosen.seed)
    return collect_answers(
        path, prompts(count), chosen, source, target=target, tell=told.append if told is not None else lambda _: None
    )


def test_every_prompt_is_answered_and_read_again(tmp_path: Path, make_chat_target: Callable[..., TargetFiles]) -> None:
    target = make_chat_target()
    told: list[Progress] = []
    found = collect(tmp_path / "train.jsonl", target, told=told)
    assert (found.num_answers, found.num_new, found.skipped) == (20, 20, {})
    assert told[-1].num_done == told[-1].num_wanted == 20
    assert told[-1].num_tokens == found.num_tokens
    train = list(read_samples(tmp_path / "train.jsonl", split="train", target=target))
    held_out = list(read_samples(tmp_path / "train.jsonl", split="held_out", target=target))
    assert (len(train), len(held_out)) == (16, 4)
    expected = {record.id: record for record in prompts(20)}
    for sample in train + held_out:
        prompt = target.prompt_ids(expected[sample.sample_id].messages)
        assert sample.token_ids[: sample.num_prompt_tokens] == prompt
        answer = sample.token_ids[sample.num_prompt_tokens :]
        assert target.tokenizer.text_of(answer).startswith("answer ")
        assert answer[-1] in target.stop_token_ids
        assert sample.loss_mask == (False,) * len(prompt) + (True,) * len(answer)


def test_time_left_is_by_answers_that_took_time_not_by_those_that_were_refused(
    tmp_path: Path, make_chat_target: Callable[..., TargetFiles], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])

    class Refusing:
        """100 refused in no time, then a model is loaded, then an answer every two seconds."""

        def fetch(self, asks: Sequence[Ask], take: Callable[[Answer], None]) -> None:
            for ask in asks[:100]:
                take(Answer(ask=ask, skipped="too long"))
            clock[0] += 300
            for ask in asks[100:]:
                clock[0] += 2
                take(Answer(ask=ask, message={"content": f"answer {ask.id}"}, finish_reason="stop"))

    told: list[Progress] = []
    chosen = AnswerSettings()
    collect_answers(tmp_path / "train.jsonl", prompts(200), chosen, Refusing(), target=make_chat_target(), tell=told.append)
    known = [progress for progress in told if progress.left_s is not None]
    assert known[0].num_done == 100 + 1 + KNOWN_FROM_ENDS
    assert [progress.left_s for progress in known] == [pytest.approx(2.0 * (200 - progress.num_done)) for progress in known]


def test_greedy_and_sampled_share_a_call(tmp_path: Path, make_chat_target: Callable[..., TargetFiles]) -> None:
    target = make_chat_target()
    generator = SlowGenerator(target, says)
    collect(tmp_path / "train.jsonl", target, generator, count=200, greedy_share=0.25)
    temperatures = generator.calls[0]["temperature"]
    assert isinstance(temperatures, list)
    assert set(temperatures) == {0.0, 0.7}
    assert 30 <= temperatures.count(0.0) <= 70
    assert len(generator.calls) == 1


def test_equal_answers_are_kept_once(tmp_path: Path, make_chat_target: Callable[..., TargetFiles]) -> None:
    target = make_chat_target()
    path = tmp_path / "train.jsonl"
    found = collect(path, target, SlowGenerator(target, lambda _index, _prompt: "always this"), count=6, samples_per_prompt=3)
    assert (found.num_answers, found.num_duplicates) == (6, 12)
    # nothing is asked twice for what was left out
    generator = SlowGenerator(target, says)
    again = collect(path, target, generator, count=6, samples_per_prompt=3)
    assert (again.num_new, generator.calls) == (0, [])


def test_looping_answers_are_marked_and_can_be_left_out(tmp_path: Path, make_chat_target: Callable[..., TargetFiles]) -> None:
    target = make_chat_target(context_length=2048)
    path = tmp_path / "train.jsonl"
    loop = "and so on and on " * 60
    generator = SlowGenerator(target, lambda index, prompt: loop if index % 4 == 0 else says(index, prompt))
    found = collect(path, target, generator, max_tokens=2000)
    assert found.num_looping == 5
    everything = list(read_samples(path, split="train", target=target))
    without = list(read_samples(path, split="train", target=target, keep_looping=False))
    assert (len(everything), len(without)) == (16, 12)
    assert not any("and so on" in target.tokenizer.text_of(sample.token_ids) for sample in without)


def test_prompts_that_fill_the_context_are_left_out_with_the_reason(
    tmp_path: Path, make_chat_target: Callable[..., TargetFiles]
) -> None:
    target = make_chat_target(context_length=20)
    found = collect(tmp_path / "train.jsonl", target, count=3)
    assert found.num_answers == 0
    assert list(found.skipped.values()) == [3]
    assert "fills the context of 20 tokens" in next(iter(found.skipped))


def test_prompts_that_the_template_refuses_are_left_out(tmp_path: Path, make_chat_target: Callable[..., TargetFiles]) -> None:
    target = make_chat_target("instruct")
    messages = ({"role": "system", "content": "x"}, {"role": "user", "content": "y"})
    odd = PromptRecord(id=prompt_id(messages), kind="custom", messages=messages, split="train", source="file")
    source = InProcess(target, SlowGenerator(target, says), max_tokens=40, seed=0)
    records = [*prompts(2), odd, *prompts(4)[2:]]
    found = collect_answers(tmp_path / "t.jsonl", records, AnswerSettings(max_tokens=40), source, target=target)
    assert found.num_answers == 4
    ((reason, count),) = found.skipped.items()
    assert count == 1
    assert "must alternate" in reason
    asked = {record.id: record for record in records}
    for sample in read_samples(tmp_path / "t.jsonl", split="train", target=target):
        assert sample.token_ids[: sample.num_prompt_tokens] == target.prompt_ids(asked[sample.sample_id].messages)


def test_a_stopped_run_goes_on(tmp_path: Path, make_chat_target: Callable[..., TargetFiles]) -> None:
    target = make_chat_target()
    path = tmp_path / "train.jsonl"
    with pytest.raises(KeyboardInterrupt):
        collect(path, target, SlowGenerator(target, says, stop_after=7))
    half = path.read_bytes()
    assert half.count(b"\n") == 8
    # what a killed process may leave: a line without its end
    path.write_bytes(half + b'{"id": "cut off in the mid')
    generator = SlowGenerator(target, says)
    found = collect(path, target, generator)
    assert (found.num_answers, found.num_new, found.num_removed_bytes) == (20, 13, 26)
    assert len(generator.calls[0]["prompts"]) == 13  # type: ignore[arg-type]
    assert path.read_bytes().startswith(half)
    assert len({orjson.loads(line)["id"] for line in path.read_bytes().splitlines()[1:]}) == 20


KILLED = """
import sys, time
from pathlib import Path
from breakeven.drafter.data.answering import collect_answers
from breakeven.drafter.data.asks import AnswerSettings
from breakeven.drafter.data.in_process import InProcess
from breakeven.drafter.data.target_files import TargetFiles
from breakeven.drafter.data.time_left import KNOWN_FROM_ENDS
sys.path.insert(0, sys.argv[3])
from tests.unit.drafter.data.conftest import SlowGenerator, prompts
from tests.unit.drafter.data.test_answering import says
import breakeven.drafter.data.answering as answering
answering.FLUSH_S = 0.0
target = TargetFiles.from_folder(Path(sys.argv[1]))
def slow(index, prompt):
    time.sleep(0.02)
    return says(index, prompt)
source = InProcess(target, SlowGenerator(target, slow), max_tokens=384, seed=0)
collect_answers(Path(sys.argv[2]), prompts(200), AnswerSettings(), source, target=target)
"""


def test_killed_at_any_moment_the_same_command_goes_on(tmp_path: Path, make_chat_target: Callable[..., TargetFiles]) -> None:
    target = make_chat_target()
    path = tmp_path / "train.jsonl"
    root = Path(__file__).parents[4]
    process = subprocess.Popen([sys.executable, "-c", KILLED, str(target.folder), str(path), str(root)])
    deadline = time.monotonic() + 60
    while (not path.exists() or path.read_bytes().count(b"\n") < 10) and time.monotonic() < deadline:
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    num_before = path.read_bytes().count(b"\n") - 1
    assert 9 <= num_before < 200
    found = collect(path, target, count=200)
    assert found.num_answers == 200
    assert found.num_new == 200 - num_before
    assert len(list(read_samples(path, split="train", target=target))) == 160


def test_other_settings_and_other_targets_do_not_go_on(tmp_path: Path, make_chat_target: Callable[..., TargetFiles]) -> None:
    target, other = make_chat_target(), make_chat_target("marked", "other")
    path = tmp_path / "train.jsonl"
    collect(path, target)
    before = path.read_bytes()
    with pytest.raises(DataError, match=r"other settings: temperature was 0.7 and is 0.8"):
        collect(path, target, temperature=0.8)
    with pytest.raises(DataError, match=r"other settings: prompts was '[0-9a-f]{16}' and is"):
        collect(path, target, count=21)
    with pytest.raises(DataError, match=r"answers of two targets do not go into one file"):
        collect(path, other)
    notes = tmp_path / "notes.txt"
    notes.write_text("do not touch me")
    with pytest.raises(DataError, match="not the header of training data"):
        collect(notes, target)
    assert path.read_bytes() == before
    assert notes.read_text() == "do not touch me"


def test_two_processes_do_not_write_one_file(tmp_path: Path, make_chat_target: Callable[..., TargetFiles]) -> None:
    target = make_chat_target()
    header = Header(target=target.identity, settings={})
    with (
        AnswerFile(tmp_path / "train.jsonl", header),
        pytest.raises(DataError, match="another process is writing it"),
        AnswerFile(tmp_path / "train.jsonl", header),
    ):
        pass


def test_a_broken_line_in_the_middle_is_named(tmp_path: Path, make_chat_target: Callable[..., TargetFiles]) -> None:
    target = make_chat_target()
    path = tmp_path / "train.jsonl"
    collect(path, target)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:4], b"{oh no\n", *lines[4:]]))
    with pytest.raises(DataError, match=r"train.jsonl, line 5: broken"):
        collect(path, target)


def test_a_full_disk_keeps_what_was_written(tmp_path: Path, make_chat_target: Callable[..., TargetFiles]) -> None:
    target = make_chat_target()
    path = tmp_path / "train.jsonl"
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    # the system's own limit on a file's size: writing beyond it fails as a full disk does, in the middle of a line
    resource.setrlimit(resource.RLIMIT_FSIZE, (6000, hard))
    try:
        with pytest.raises(DataError, match=r"train.jsonl: cannot be written \(File too large\); whole lines in it are kept"):
            collect(path, target)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert path.stat().st_size == 6000
    found = collect(path, target)
    assert (found.num_answers, found.num_removed_bytes > 0) == (20, True)
    assert 0 < found.num_new < 20


def test_a_disk_that_is_full_from_the_start_is_named(tmp_path: Path, make_chat_target: Callable[..., TargetFiles]) -> None:
    target = make_chat_target()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        with pytest.raises(DataError, match=r"train.jsonl: cannot be written \(File too large\)"):
            collect(tmp_path / "train.jsonl", target)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert collect(tmp_path / "train.jsonl", target).num_answers == 20


def test_a_template_that_renders_no_answer_is_noticed_early(tmp_path: Path, make_chat_target: Callable[..., TargetFiles]) -> None:
    template = (
        "{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>' }}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n<think>' }}{% endif %}"
    )
    target = make_chat_target(template=template)
    num_asked = 0

    class Texts:
        def fetch(self, asks: list[Ask], take: Callable[[Answer], None]) -> None:
            nonlocal num_asked
            for ask in asks:
                num_asked += 1
                take(Answer(ask=ask, message={"content": "yes"}))

    with pytest.raises(DataError, match="none of the first 8 answers can be used, the last because turn 2 of 2"):
        collect_answers(tmp_path / "t.jsonl", prompts(50), AnswerSettings(), Texts(), target=target)  # type: ignore[arg-type]
    assert num_asked == 8


def test_answers_without_ids_are_rendered_and_marked(tmp_path: Path, make_chat_target: Callable[..., TargetFiles]) -> None:
    target = make_chat_target()

    class Texts:
        def fetch(self, asks: list[Ask], take: Callable[[Answer], None]) -> None:
            for number, ask in enumerate(asks):
                reason = "length" if number == 1 else "stop"
                take(Answer(ask=ask, message={"content": "" if number == 0 else "yes"}, finish_reason=reason))

    path = tmp_path / "train.jsonl"
    found = collect_answers(path, prompts(3, held_out_every=9), AnswerSettings(), Texts(), target=target)  # type: ignore[arg-type]
    assert found.skipped == {"the answer is empty": 1}
    records = [orjson.loads(line) for line in path.read_bytes().splitlines()[1:]]
    assert [record.get("tokens") for record in records] == [None, "rendered", "rendered"]
    cut, whole = (record["token_ids"][record["num_prompt_tokens"] :] for record in records[1:])
    assert cut == list(target.encode("yes"))
    assert whole == [*target.encode("yes"), *target.stop_token_ids]
