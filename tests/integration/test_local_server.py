"""The embedded engine's server as a process, on the real model."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
from prometheus_client.parser import text_string_to_metric_families

from breakeven.checkpoints.cache import demo_model_path, is_complete

pytestmark = pytest.mark.integration

MODEL = demo_model_path("smollm2-135m-instruct")
DOCUMENT = Path(__file__).parents[2] / "docs" / "local-engine.md"
PARIS = {"messages": [{"role": "user", "content": "What is the capital of France?"}], "temperature": 0, "max_tokens": 40}


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return int(listening.getsockname()[1])


def command(*flags: str) -> list[str]:
    return [sys.executable, "-m", "breakeven.drafter.serving", *flags]


class Server:
    def __init__(self, process: subprocess.Popen[str], port: int) -> None:
        self.process = process
        self.url = f"http://127.0.0.1:{port}"

    def get(self, path: str) -> tuple[int, str]:
        try:
            with urllib.request.urlopen(self.url + path, timeout=10) as response:
                return response.status, response.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        with self.open(path, body) as response:
            return json.loads(response.read())

    def open(self, path: str, body: dict[str, Any]) -> Any:
        request = urllib.request.Request(self.url + path, json.dumps(body).encode(), {"Content-Type": "application/json"})
        return urllib.request.urlopen(request, timeout=60)

    def wait_until_ready(self) -> None:
        for _ in range(600):
            if self.process.poll() is not None:
                raise AssertionError(f"the server ended with {self.process.returncode}")
            try:
                if self.get("/health")[0] == 200:
                    return
            except urllib.error.URLError:
                pass
            time.sleep(0.1)
        raise AssertionError("not ready after a minute")

    def counters(self) -> dict[str, float]:
        families = text_string_to_metric_families(self.get("/metrics")[1])
        return {sample.name: sample.value for family in families for sample in family.samples if "position" not in sample.labels}

    def stop(self) -> tuple[int, float]:
        """Exit code and seconds that SIGTERM took."""
        started_s = time.monotonic()
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=10), time.monotonic() - started_s


@contextmanager
def running(*flags: str, ready: bool = True) -> Iterator[Server]:
    port = free_port()
    process = subprocess.Popen(command("--port", str(port), *flags), stderr=subprocess.PIPE, text=True)
    try:
        server = Server(process, port)
        if ready:
            server.wait_until_ready()
        yield server
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def fails(*flags: str) -> tuple[int, str]:
    """Exit code and standard error of a server that must not start."""
    done = subprocess.run(command(*flags), capture_output=True, text=True, timeout=60, check=False)
    return done.returncode, done.stderr


@pytest.fixture(scope="module", autouse=True)
def _model() -> None:
    if not is_complete(MODEL):
        pytest.skip("the model is not here: run breakeven fetch smollm2-135m-instruct")


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    flags = ("--model", str(MODEL), "--served-model-name", "smollm2", "--method", "ngram", "--max-num-seqs", "4")
    with running(*flags, "--num-threads", "2", "--context-length", "512") as started:
        yield started


def test_chat_answer_is_sensible(server: Server) -> None:
    answer = server.post("/v1/chat/completions", PARIS)
    [choice] = answer["choices"]
    assert choice["message"]["content"] == "The capital of France is Paris."
    assert choice["finish_reason"] == "stop"
    # system prompt of the model's own template included; the end token counts
    assert answer["usage"] == {"prompt_tokens": 37, "completion_tokens": 8, "total_tokens": 45}


def test_more_requests_than_slots_get_their_own_answers(server: Server) -> None:
    prompts = [f"Count from {start} to twenty:" for start in ("one", "two", "three", "four", "five", "six")]
    bodies = [{"prompt": prompt, "temperature": 0, "max_tokens": 12, "ignore_eos": True} for prompt in prompts]
    alone = [server.post("/v1/completions", body)["choices"][0]["text"] for body in bodies]
    with ThreadPoolExecutor(len(bodies)) as pool:
        together = list(pool.map(lambda body: server.post("/v1/completions", body), bodies))
    assert [answer["choices"][0]["text"] for answer in together] == alone
    assert {answer["usage"]["completion_tokens"] for answer in together} == {12}


def test_ngram_drafts_are_counted_and_add_up(server: Server) -> None:
    before = server.counters()
    body = {"prompt": "red green blue red green blue red green blue red", "temperature": 0, "max_tokens": 30, "ignore_eos": True}
    assert server.post("/v1/completions", body)["usage"]["completion_tokens"] == 30
    after = server.counters()
    grown = {name: after[name] - before[name] for name in after}
    accepted, steps = grown["vllm:spec_decode_num_accepted_tokens_total"], grown["breakeven:decode_steps_total"]
    assert accepted > 10
    # one token from the prompt's pass, then one a step plus what was accepted, of which the last round may have had too much
    assert 0 <= 1 + steps + accepted - 30 <= 3
    assert grown["vllm:generation_tokens_total"] == 30
    assert grown["vllm:spec_decode_num_drafts_total"] <= steps


def test_seeded_sampling_repeats(server: Server) -> None:
    body = {"prompt": "Once upon a time", "temperature": 1.0, "top_p": 0.9, "max_tokens": 20, "seed": 5}
    first, second = (server.post("/v1/completions", body)["choices"][0]["text"] for _ in range(2))
    assert first == second
    assert server.post("/v1/completions", {**body, "seed": 6})["choices"][0]["text"] != first


def test_a_token_id_outside_the_vocabulary_is_refused(server: Server) -> None:
    for stream in (True, False):
        with pytest.raises(urllib.error.HTTPError) as refused:
            server.open("/v1/completions", {"prompt": [1, 49152], "stream": stream})
        with refused.value as error:
            assert error.code == 400
            assert "outside the vocabulary of 49152" in json.loads(error.read())["error"]["message"]


def test_sigterm_in_the_middle_of_an_answer_leaves_nothing_behind(tmp_path: Path) -> None:
    # the same folder with a second end token, to see that the generation config is honoured
    folder = tmp_path / "model"
    shutil.copytree(MODEL, folder)
    tokenizer = json.loads((MODEL / "tokenizer.json").read_text())
    full_stop = tokenizer["model"]["vocab"]["."]
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [2, full_stop]}))
    with running("--model", str(folder), "--num-threads", "2") as server:
        choice = server.post("/v1/chat/completions", PARIS)["choices"][0]
        assert (choice["message"]["content"], choice["finish_reason"]) == ("The capital of France is Paris", "stop")
        processes = [psutil.Process(server.process.pid), *psutil.Process(server.process.pid).children(recursive=True)]
        long = {"prompt": "Once upon a time", "max_tokens": 1500, "ignore_eos": True, "stream": True}
        with server.open("/v1/completions", long) as response:
            assert response.readline().startswith(b"data: ")
            exit_code, took_s = server.stop()
            rest = response.read().decode()
    assert exit_code == 0
    assert took_s < 2.0
    assert "the server is shutting down" in rest
    assert not any(process.is_running() for process in processes)


def test_sigterm_while_loading() -> None:
    with running("--model", str(MODEL), ready=False) as server:
        for _ in range(200):
            try:
                status, body = server.get("/health")
                break
            except urllib.error.URLError:
                time.sleep(0.05)
        assert (status, json.loads(body)["error"]["code"]) == (503, 503)
        exit_code, took_s = server.stop()
    assert exit_code == 0
    assert took_s < 2.0


def test_port_taken() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        exit_code, output = fails("--model", str(MODEL), "--port", str(port))
    assert exit_code == 3
    assert output.splitlines() == [
        f"breakeven: cannot listen on 127.0.0.1:{port} (Address already in use): choose another --port or end what uses it"
    ]


def complaint(output: str) -> str:
    """The only line after the one that names the engine."""
    name, *rest = output.splitlines()
    assert "embedded engine" in name
    assert len(rest) == 1, output
    return rest[0]


def test_missing_and_truncated_models(tmp_path: Path) -> None:
    exit_code, output = fails("--model", str(tmp_path / "nowhere"), "--port", str(free_port()))
    assert exit_code == 2
    assert "nowhere" in complaint(output)

    folder = tmp_path / "model"
    shutil.copytree(MODEL, folder)
    os.truncate(folder / "model.safetensors", 1_000_000)
    exit_code, output = fails("--model", str(folder), "--port", str(free_port()))
    assert exit_code == 2
    assert "model.safetensors" in complaint(output)
    assert "Traceback" not in output


def test_a_drafter_that_is_no_drafter() -> None:
    exit_code, output = fails("--model", str(MODEL), "--method", "eagle3", "--draft-model", str(MODEL), "--port", str(free_port()))
    assert exit_code == 2
    assert "Traceback" not in output


def test_the_documents_example_runs(server: Server) -> None:
    blocks = re.findall(r"```sh\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
    _fetch, serve = blocks[0].splitlines()
    port = str(free_port())
    argv = shlex.split(serve.replace("8090", port))
    assert argv[:3] == ["python", "-m", "breakeven.drafter.serving"]
    # its flags start a server; the question is put to the one that is already there
    with running(*[flag for flag in argv[3:] if flag not in ("--port", port)], ready=False) as started:
        assert started.process.poll() is None
    asked = blocks[1].replace("http://127.0.0.1:8090", server.url)
    answer = subprocess.run(["sh", "-c", asked], capture_output=True, text=True, timeout=60, check=True)
    assert "Paris" in json.loads(answer.stdout)["choices"][0]["message"]["content"]
