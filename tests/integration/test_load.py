"""The load generator against the embedded engine with a real model: what the client counts is what the server counts."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from itertools import pairwise

import pytest
from prometheus_client.parser import text_string_to_metric_families

from breakeven.checkpoints.cache import demo_model_path, is_complete
from breakeven.engines.ports import choose_port
from breakeven.loadgen.client import Endpoint
from breakeven.loadgen.measures import mean_under_way, tokens_in_window
from breakeven.loadgen.prompts import builtin_prompts
from breakeven.loadgen.run import run_load
from breakeven.loadgen.samples import LoadPoint

pytestmark = pytest.mark.integration

MODEL = demo_model_path("smollm2-135m-instruct")


def counters(url: str) -> dict[str, float]:
    with urllib.request.urlopen(url + "/metrics", timeout=10) as response:
        families = text_string_to_metric_families(response.read().decode())
    return {sample.name: sample.value for family in families for sample in family.samples}


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    if not is_complete(MODEL):
        pytest.skip("breakeven fetch smollm2-135m-instruct first")
    port = choose_port()
    flags = ["--model", str(MODEL), "--port", str(port), "--served-model-name", "smol", "--method", "ngram", "--max-num-seqs", "4"]
    process = subprocess.Popen(
        [sys.executable, "-m", "breakeven.drafter.serving", *flags], env=os.environ | {"OMP_WAIT_POLICY": "passive"}
    )
    try:
        for _ in range(600):
            assert process.poll() is None, "the server ended"
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=10).close()
                break
            except urllib.error.URLError:
                time.sleep(0.1)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(timeout=30)


async def test_client_and_server_count_alike(server: str) -> None:
    scrapes: list[dict[str, float]] = []

    async def scrape() -> None:
        scrapes.append(counters(server))

    result = await run_load(
        Endpoint(url=server, model="smol"),
        LoadPoint(concurrency=3, max_tokens=16, fixed_length=True),
        builtin_prompts(["extraction", "rewriting"]),
        seed=1,
        warmup_s=2.0,
        window_s=10.0,
        on_window_start=scrape,
        on_window_end=scrape,
    )
    assert result.steady
    assert [sample.error for sample in result.samples if sample.error is not None] == []
    whole = [sample for sample in result.samples if sample.finish_reason is not None and not sample.staggered]
    assert {(sample.output_tokens, sample.finish_reason) for sample in whole} == {(16, "length")}
    assert mean_under_way(result) > 2.9
    counted = tokens_in_window(result)
    by_server = scrapes[1]["vllm:generation_tokens_total"] - scrapes[0]["vllm:generation_tokens_total"]
    # A scrape is a step or two away from the edge, and a step emits up to four tokens for each of three requests
    assert abs(counted - by_server) <= 36
    assert counted > 50
    gains = [later - earlier for sample in result.samples for (_, earlier), (_, later) in pairwise(sample.arrivals)]
    assert max(gains) > 1  # n-gram drafts were accepted: some chunks hold several tokens


async def test_the_server_aborts_what_the_window_cut(server: str) -> None:
    await run_load(
        Endpoint(url=server, model="smol"),
        LoadPoint(concurrency=4, max_tokens=1500, fixed_length=True),
        builtin_prompts(["chat"]),
        seed=1,
        warmup_s=1.0,
        window_s=1.0,
    )
    for _ in range(100):
        if counters(server)["vllm:num_requests_running"] == 0:
            return
        time.sleep(0.1)
    raise AssertionError(f"still running: {counters(server)}")
