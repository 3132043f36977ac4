"""Training answers of the real model, by every way there is to get them: the same tokens, greedy and in float32."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import orjson
import pytest

from breakeven.checkpoints.resolve import resolve_model
from breakeven.drafter.data.prompt_records import read_prompt_records
from breakeven.drafter.data.reading import read_samples
from breakeven.drafter.data.samples import Sample
from breakeven.drafter.data.target_files import TargetFiles

pytestmark = [pytest.mark.integration, pytest.mark.slow]

TARGET = "demo:smollm2-135m-instruct"
QUESTIONS = ("What is the capital of France?", "Write a haiku about rain.", "def fibonacci(n):", "Name three colours, please.")
SGLANG_FLAGS = ("--device", "cpu", "--disable-overlap-schedule", "--skip-server-warmup", "--max-total-tokens", "8192")
SGLANG_ENVIRONMENT = {
    "SGLANG_USE_CPU_ENGINE": "1",
    "PYTHONPATH": str(Path(__file__).with_name("sglang_stand_ins")),
    "TORCHDYNAMO_DISABLE": "1",
}
GREEDY = ("--greedy-share", "1", "--max-tokens", "24", "--json")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With prompts.jsonl, and their answers in this process as in_process.jsonl."""
    folder = tmp_path_factory.mktemp("answers")
    (folder / "mine.txt").write_text("\n".join(QUESTIONS))
    breakeven(folder, "data", "prompts", "--from", "mine.txt", "--no-combinations", "--held-out", "0", "--out", "prompts.jsonl")
    breakeven(folder, "data", "answers", "prompts.jsonl", "--target", TARGET, "--out", "in_process.jsonl", *GREEDY)
    return folder


def breakeven(folder: Path, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "breakeven", *arguments], cwd=folder, capture_output=True, text=True, timeout=900, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def samples(folder: Path, name: str) -> dict[str, Sample]:
    target = TargetFiles.from_folder(resolve_model(TARGET, Path()))
    return {sample.sample_id: sample for sample in read_samples(folder / name, split="train", target=target)}


@contextmanager
def server(command: list[str], port: int, environment: Mapping[str, str] | None = None) -> Iterator[str]:
    process = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env={**os.environ, **(environment or {})}
    )
    try:
        url = f"http://127.0.0.1:{port}"
        deadline = time.monotonic() + 600
        while True:
            try:
                urllib.request.urlopen(url + "/health", timeout=5).close()
                break
            except (urllib.error.URLError, OSError):
                assert process.poll() is None, "the server ended before it was ready"
                assert time.monotonic() < deadline, "the server is not ready after ten minutes"
                time.sleep(0.5)
        yield url
    finally:
        process.terminate()
        process.wait(60)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return int(listening.getsockname()[1])


def test_in_process_answers_are_whole(folder: Path) -> None:
    found = samples(folder, "in_process.jsonl")
    assert set(found) == {record.id for record in read_prompt_records(folder / "prompts.jsonl")}
    target = TargetFiles.from_folder(resolve_model(TARGET, Path()))
    texts = [target.tokenizer.text_of(sample.token_ids) for sample in found.values()]
    assert any("Paris" in text for text in texts)


def test_the_model_asks_by_itself(folder: Path) -> None:
    breakeven(folder, "data", "prompts", "--target", TARGET, "--sampled", "12", "--no-combinations", "--out", "asked.jsonl")
    asked = [str(record.messages[0]["content"]) for record in read_prompt_records(folder / "asked.jsonl")]
    # most of what this model asks is a finished question or request of a sentence
    assert len(asked) >= 4
    assert sum(len(text.split()) >= 4 for text in asked) > len(asked) / 2


def test_the_embedded_engine_says_the_same(folder: Path) -> None:
    port = free_port()
    command = [sys.executable, "-m", "breakeven.drafter.serving", "--model", TARGET, "--port", str(port), "--dtype", "float32"]
    with server(command, port) as url:
        breakeven(
            folder, "data", "answers", "prompts.jsonl", "--target", url, "--tokenizer", TARGET, "--out", "local.jsonl", *GREEDY
        )
        breakeven(folder, "data", "answers", "prompts.jsonl", "--target", url, "--out", "no_folder.jsonl", *GREEDY)
    assert samples(folder, "local.jsonl") == samples(folder, "in_process.jsonl")
    assert samples(folder, "no_folder.jsonl") == samples(folder, "in_process.jsonl")
    assert b'"tokens":"exact"' in (folder / "no_folder.jsonl").read_bytes()


@pytest.mark.engine_vllm
def test_the_real_vllm_says_the_same(folder: Path, vllm_environment: Path) -> None:
    port = free_port()
    model = resolve_model(TARGET, Path())
    command = [str(vllm_environment / "bin/python"), "-m", "vllm.entrypoints.openai.api_server", "--model", str(model)]
    command += ["--port", str(port), "--host", "127.0.0.1", "--dtype", "float32", "--enforce-eager", "--max-model-len", "1024"]
    with server(command, port, {"VLLM_CPU_KVCACHE_SPACE": "1"}) as url:
        breakeven(
            folder, "data", "answers", "prompts.jsonl", "--target", url, "--tokenizer", TARGET, "--out", "vllm.jsonl", *GREEDY
        )
    assert samples(folder, "vllm.jsonl") == samples(folder, "in_process.jsonl")
    assert b'"tokens":"exact"' in (folder / "vllm.jsonl").read_bytes()


@pytest.mark.engine_sglang
def test_the_real_sglang_gives_exact_ids_and_the_stop_token(folder: Path, sglang_environment: Path) -> None:
    """Its kernels are stand-ins, so what it says is not compared: how it tells its tokens is its own."""
    port = free_port()
    command = [
        str(sglang_environment / "bin/python"),
        "-m",
        "sglang.launch_server",
        "--model-path",
        str(resolve_model(TARGET, Path())),
    ]
    command += ["--host", "127.0.0.1", "--port", str(port), "--dtype", "float32", *SGLANG_FLAGS]
    with server(command, port, SGLANG_ENVIRONMENT) as url:
        breakeven(
            folder, "data", "answers", "prompts.jsonl", "--target", url, "--tokenizer", TARGET, "--out", "sglang.jsonl", *GREEDY
        )
    target = TargetFiles.from_folder(resolve_model(TARGET, Path()))
    records = [orjson.loads(line) for line in (folder / "sglang.jsonl").read_bytes().splitlines()[1:]]
    assert {record["tokens"] for record in records} == {"exact"}
    assert set(samples(folder, "sglang.jsonl")) == {record["prompt_id"] for record in records}
    for record in records:
        answer = record["token_ids"][record["num_prompt_tokens"] :]
        assert target.tokenizer.text_of(answer) == record["messages"][-1]["content"]
        assert (answer[-1] in target.stop_token_ids) == (record["finish_reason"] == "stop")
        assert len(answer) == 24 or record["finish_reason"] == "stop"
    assert "stop" in {record["finish_reason"] for record in records}
