from __future__ import annotations

import json
from collections import Counter
from itertools import islice
from pathlib import Path

import pytest

from breakeven.errors import PromptsError
from breakeven.loadgen import prompts
from breakeven.loadgen.prompts import KINDS, builtin_prompts, prompt_sequence, read_prompts


def write(folder: Path, *lines: object) -> Path:
    file = folder / "prompts.jsonl"
    file.write_bytes(b"".join((line if isinstance(line, bytes) else json.dumps(line).encode()) + b"\n" for line in lines))
    return file


def test_ten_builtin_prompts_of_each_kind() -> None:
    every = builtin_prompts()
    assert Counter(prompt.kind for prompt in every) == dict.fromkeys(KINDS, 10)
    assert len({prompt.id for prompt in every}) == len({prompt.messages for prompt in every}) == 80
    assert all(prompt.messages[-1][0] == "user" for prompt in every)
    # Some models' templates refuse a system message
    assert {role for prompt in every for role, _ in prompt.messages} == {"user", "assistant"}
    lengths = [sum(len(text.split()) for _, text in prompt.messages) for prompt in every]
    assert min(lengths) >= 10
    assert max(lengths) <= 200


def test_some_kinds_only() -> None:
    assert [prompt.kind for prompt in builtin_prompts(["code", "maths"])] == ["maths"] * 10 + ["code"] * 10
    with pytest.raises(PromptsError, match="unknown kind of prompt: cod; there are chat, reasoning"):
        builtin_prompts({"code", "cod"})


def test_every_accepted_form(tmp_path: Path) -> None:
    file = write(
        tmp_path,
        "plain",
        {"prompt": "from a key", "id": "q7", "kind": "code", "answer": "ignored"},
        b"",
        {"messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}, {"role": "assistant", "content": "a"}]},
        {"messages": [{"role": "user", "content": [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]}]},
        {
            "id": 12,
            "conversations": [
                {"from": "system", "value": "s"},
                {"from": "human", "value": "h1"},
                {"from": "gpt", "value": "g1"},
                {"from": "human", "value": "h2"},
                {"from": "gpt", "value": "g2"},
                {"from": "gpt", "value": "g3"},
            ],
        },
        "plain",
    )
    read = read_prompts(file)
    assert [prompt.messages for prompt in read] == [
        (("user", "plain"),),
        (("user", "from a key"),),
        (("system", "s"), ("user", "u")),
        (("user", "one\ntwo"),),
        (("system", "s"), ("user", "h1"), ("assistant", "g1"), ("user", "h2")),
        (("user", "plain"),),
    ]
    assert [prompt.id for prompt in read] == ["line 1", "q7", "line 4", "line 5", "12", "line 7"]
    assert [prompt.kind for prompt in read] == ["custom", "code", "custom", "custom", "custom", "custom"]


def test_windows_files(tmp_path: Path) -> None:
    file = tmp_path / "prompts.jsonl"
    file.write_bytes('\ufeff"one"\r\n\r\n{"prompt": "zwei ä"}'.encode())
    assert [prompt.messages for prompt in read_prompts(file)] == [(("user", "one"),), (("user", "zwei ä"),)]


@pytest.mark.parametrize(
    ("line", "found"),
    [
        (b"Tell me a joke", "not JSON"),
        (b'{"prompt": "cut off', "not JSON"),
        (b'{"prompt": "\xe9"}', "byte 0xe9 at place 13 is not UTF-8"),
        (b"17", "a JSON number: 17"),
        (b"null", "a JSON null: null"),
        (b"true", "a JSON boolean: true"),
        (b'{"question": "why"}', 'no prompt, messages or conversations in {"question": "why"}'),
        (b'{"prompt": ["a"]}', '"prompt" is a JSON array; expected text'),
        (b'{"prompt": " "}', '"prompt" is empty'),
        (b'""', '"prompt" is empty'),
        (b'{"messages": "hi"}', '"messages" should be a list of objects with "role" and "content"'),
        (b'{"messages": ["hi"]}', '"messages" should be a list of objects with "role" and "content"'),
        (b'{"messages": []}', "no user turn in it"),
        (b'{"messages": [{"role": "assistant", "content": "a"}]}', "no user turn in it"),
        (b'{"messages": [{"role": "user"}]}', 'turn 1 of "messages" is a JSON null; expected text'),
        (
            b'{"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}',
            'turn 1 of "messages" is a JSON array; expected text',
        ),
        (
            b'{"messages": [{"role": "tool", "content": "a"}]}',
            'turn 1 of "messages" has "role" "tool"; expected one of system, user',
        ),
        (b'{"conversations": [{"from": ["x"], "value": "a"}]}', 'turn 1 of "conversations" has "from" ["x"]; expected one of'),
    ],
)
def test_broken_lines_say_what_was_found(tmp_path: Path, line: bytes, found: str) -> None:
    file = write(tmp_path, "fine", line)
    with pytest.raises(PromptsError) as caught:
        read_prompts(file)
    first, second = str(caught.value).splitlines()
    assert first.startswith(f"{file}: 1 broken line; each should be a JSON string, ")
    assert second.startswith("  line 2: ")
    assert found in second


def test_at_most_five_broken_lines_are_shown(tmp_path: Path) -> None:
    with pytest.raises(PromptsError) as caught:
        read_prompts(write(tmp_path, *([b"broken\x1b[2J"] * 8)))
    lines = str(caught.value).splitlines()
    assert "8 broken lines" in lines[0]
    assert [line.split(":")[0] for line in lines[1:]] == [f"  line {number}" for number in range(1, 6)] + ["  and 3 more"]
    assert "\x1b" not in str(caught.value)


def test_files_that_hold_no_prompts(tmp_path: Path) -> None:
    with pytest.raises(PromptsError, match="no prompts in it"):
        read_prompts(write(tmp_path))
    with pytest.raises(PromptsError, match="no prompts in it"):
        read_prompts(write(tmp_path, b"  ", b""))
    with pytest.raises(PromptsError, match=r"cannot be read \(No such file or directory\)"):
        read_prompts(tmp_path / "missing.jsonl")
    with pytest.raises(PromptsError, match=r"cannot be read \(Is a directory\)"):
        read_prompts(tmp_path)
    with pytest.raises(PromptsError, match=r"a JSON array; .* jq -c '\.\[\]' prompts\.jsonl"):
        read_prompts(write(tmp_path, [{"prompt": "a"}]))


def test_a_line_without_end_is_not_read_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prompts, "MAX_LINE_BYTES", 1000)
    with pytest.raises(PromptsError, match="line 2: longer than 1,000 bytes"):
        read_prompts(write(tmp_path, "fine", "x" * 2000, "fine"))


def test_same_seed_same_sequence() -> None:
    every = builtin_prompts()
    first, again, other = (list(islice(prompt_sequence(every, seed), 240)) for seed in (7, 7, 8))
    assert first == again
    assert first != other
    passes = [first[start : start + 80] for start in (0, 80, 160)]
    assert all(sorted(prompt.id for prompt in one) == sorted(prompt.id for prompt in every) for one in passes)
    assert passes[0] != passes[1] != passes[2]


def test_no_prompts_no_sequence() -> None:
    with pytest.raises(PromptsError, match="no prompts to send"):
        prompt_sequence((), 0)
