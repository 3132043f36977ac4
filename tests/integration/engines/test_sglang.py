"""The real SGLang on a CPU behind the adapter, with stand-ins for its compiled kernels (see `sglang_stand_ins/README.md`).

What depends on the kernels (accept lengths, speeds) is checked against what must come out, never taken for SGLang's. Every launch
takes half a minute, so few launches show much.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
import yaml

from breakeven.checkpoints.resolve import resolve_model
from breakeven.engines.base import Arm, Speculation
from breakeven.engines.ledger import LaunchLedger
from breakeven.engines.ports import choose_port
from breakeven.engines.process import ServerProcess
from breakeven.engines.registry import get_engine
from breakeven.errors import CheckpointError, LaunchError
from breakeven.experiment.record import RunRecord
from breakeven.experiment.stored_run import read_run

pytestmark = [pytest.mark.integration, pytest.mark.engine_sglang, pytest.mark.slow]

SGLANG = get_engine("sglang")
STAND_INS = Path(__file__).with_name("sglang_stand_ins")
# One thread, as two servers' worth of tests share few cores; compiling would take longer than all that is measured here.
ENV = {"SGLANG_USE_CPU_ENGINE": "1", "PYTHONPATH": str(STAND_INS), "OMP_NUM_THREADS": "1", "TORCHDYNAMO_DISABLE": "1"}
# The backend that can verify drafts on a CPU has to be named twice: named once, SGLang falls back to one that cannot.
FLAGS = ["--device", "cpu", "--disable-overlap-schedule", "--skip-server-warmup", "--max-total-tokens", "8192"]
FLAGS += ["--prefill-attention-backend", "intel_amx", "--decode-attention-backend", "intel_amx"]
LAUNCHED = {"extra_flags": FLAGS, "env": ENV}
SHIPPED = Path(__file__).parents[3] / "models" / "smollm2-135m-eagle3"
START_TIMEOUT_S = 600.0
DEAD_WITHIN_S = 10.0
NUM_DRAFTS = 3
ORDERED_LENGTH = 2.5


def plan(environment: Path, arms: dict[str, object]) -> dict[str, object]:
    return {
        "name": "sglang",
        "target": "demo:smollm2-135m-instruct",
        "engine": "sglang",
        "executable": str(environment),
        "dtype": "float32",
        "context_length": 1024,
        "max_running_requests": 2,
        "start_timeout_s": START_TIMEOUT_S,
        "launches": {"min": 1, "max": 1},
        "workload": {"max_tokens": 16, "fixed_length": True},
        "load": [{"concurrency": 2}],
        "trial": {"warmup_s": 3, "window_s": 15},
        "arms": arms,
    }


def bench_command(folder: Path, content: dict[str, object]) -> list[str]:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "plan.yaml").write_text(yaml.safe_dump(content))
    return [sys.executable, "-m", "breakeven", "bench", str(folder / "plan.yaml"), "--runs-dir", str(folder / "runs"), "--json"]


@dataclass
class Measured:
    """One run of every arm: what the command printed, what it stored and where."""

    result: dict[str, list[dict[str, object]]]
    record: RunRecord
    folder: Path

    def acceptance(self, arm: str) -> dict[str, object]:
        (cell,) = (cell for cell in self.result["cells"] if cell["arm"] == arm)
        assert isinstance(cell["acceptance"], dict), f"{arm}: no acceptance, {self.record.trials}"
        return cell["acceptance"]

    def accept_length(self, arm: str) -> float:
        length = self.acceptance(arm)["accept_length"]
        assert isinstance(length, dict)
        return float(length["estimate"])


@pytest.fixture(scope="module")
def measured(sglang_environment: Path, tmp_path_factory: pytest.TempPathFactory) -> Measured:
    """Every arm launched once and measured for a few seconds, the other two engines with the same head among them."""
    folder = tmp_path_factory.mktemp("sglang")
    eagle3 = {"method": "eagle3", "num_draft_tokens": NUM_DRAFTS, "drafter": "random"}
    arms: dict[str, object] = {
        "plain": LAUNCHED,
        "eagle3": {**LAUNCHED, "speculation": eagle3},
        "forced": {**LAUNCHED, "speculation": {**eagle3, "forced_accept_length": ORDERED_LENGTH}},
        "eagle3-local": {"engine": "local", "speculation": eagle3},
        "scheduled": {
            # with a schedule SGLang records graphs even on a CPU, unless it is told not to
            "extra_flags": [*FLAGS, "--disable-cuda-graph"],
            "env": ENV,
            "speculation": {**eagle3, "drafter": str(SHIPPED), "schedule": [[1, 1, NUM_DRAFTS], [2, 64, 1]]},
        },
    }
    if shutil.which("c++"):  # SGLang compiles its n-gram tables when it starts, with the ninja of its environment
        tools = {"PATH": f"{sglang_environment / 'bin'}{os.pathsep}{os.environ['PATH']}"}
        ngram = {"method": "ngram", "num_draft_tokens": NUM_DRAFTS}
        arms["ngram"] = {**LAUNCHED, "env": ENV | tools, "speculation": ngram}
    vllm = Path(os.environ.get("BREAKEVEN_TEST_VLLM", sglang_environment.with_name(".venv-vllm")))
    if (vllm / ".ready").is_file():
        own = {"executable": str(vllm), "extra_flags": ["--enforce-eager"], "env": {"VLLM_CPU_KVCACHE_SPACE": "1"}}
        arms["eagle3-vllm"] = {"engine": "vllm", **own, "speculation": eagle3}
    command = bench_command(folder, plan(sglang_environment, arms))
    done = subprocess.run(command, capture_output=True, text=True, timeout=2400, check=False)
    assert done.returncode == 0, done.stderr
    record = read_run(folder / "runs/sglang")
    assert {trial.arm for trial in record.trials if trial.valid} == set(arms), [(t.arm, t.voids) for t in record.trials]
    return Measured(json.loads(done.stdout), record, folder / "runs/sglang")


def test_from_bench_to_report(measured: Measured) -> None:
    assert (measured.folder / "report.html").stat().st_size > 100_000
    for trial in measured.record.trials:
        assert trial.counters is not None
        before, after = trial.counters
        assert after.generation_tokens > before.generation_tokens
        assert (after.acceptance is None) == (trial.arm == "plain")
    codes = {finding["code"] for finding in measured.result["findings"]}
    assert not codes & {"engine-settings-differ", "auxiliary-layers-differ", "release-unverified", "undeclared-speculation"}


def test_nothing_of_a_head_without_training_is_accepted(measured: Measured) -> None:
    assert measured.accept_length("eagle3") == 1.0
    assert measured.acceptance("eagle3")["draft_acceptance"] in (0.0, None)
    log = next(path.read_text() for path in (measured.folder / "logs").glob("eagle3*.log") if "vllm" not in path.name)
    assert "speculative_algorithm='EAGLE3'" in log or "'speculative_algorithm': 'EAGLE3'" in log


def test_all_engines_agree_that_nothing_of_this_head_is_accepted(measured: Measured, vllm_environment: Path) -> None:
    for arm in ("eagle3", "eagle3-local", "eagle3-vllm"):
        assert measured.accept_length(arm) == 1.0, arm
        rounds = [trial.counters[1].acceptance for trial in measured.record.trials if trial.arm == arm and trial.counters]
        assert all(counted is not None and counted.num_rounds > 0 and counted.num_accepted == 0 for counted in rounds), arm
    folders = {str(arm.speculation.drafter) for arm in measured.record.arms if arm.speculation and arm.name.startswith("eagle3")}
    assert len(folders) == 1


def test_acceptance_follows_the_order(measured: Measured) -> None:
    """On the CPU too. SGLang draws one length a step for the whole batch, two or three here."""
    (trial,) = (trial for trial in measured.record.trials if trial.arm == "forced")
    assert trial.counters is not None
    before, after = (scrape.acceptance for scrape in trial.counters)
    assert after is not None
    num_draws = (after.since(before) if before is not None else after).num_rounds / 2
    allowance = 4 * 0.5 / math.sqrt(num_draws) + 0.1  # and what the end of an answer cuts off
    assert abs(measured.accept_length("forced") - ORDERED_LENGTH) < min(allowance, 0.9)
    (arm,) = (arm for arm in measured.result["arms"] if arm["name"] == "forced")
    assert arm["forced_accept_length"] == ORDERED_LENGTH


def test_the_number_of_drafts_follows_the_batch(measured: Measured) -> None:
    """One draft for two requests, three for one that is alone while the other ended. SGLang's own count takes three for all."""
    log = next((measured.folder / "logs").glob("scheduled*.log")).read_text(errors="replace")
    assert "Switch adaptive runtime state: steps 3 -> 1" in log
    assert measured.record.facts["scheduled"]["drafts_follow_batch"] is True
    (trial,) = (trial for trial in measured.record.trials if trial.arm == "scheduled" and trial.valid)
    reports = [sample.speculation for sample in trial.samples if sample.speculation]
    assert reports
    assert all(report["spec_num_proposed_drafts"] == NUM_DRAFTS * int(str(report["spec_verify_ct"])) for report in reports)

    assert 1.2 < measured.accept_length("scheduled") < 2.1
    shown = measured.acceptance("scheduled")
    assert (shown["draft_acceptance"], shown["drafted_share"], shown["per_round_length"]) == (None, None, None)
    assert isinstance(shown["joint"], list)
    assert len(shown["joint"]) == 1
    told = [finding for finding in measured.result["findings"] if finding["code"] == "drafts-not-counted"]
    assert [finding["severity"] for finding in told] == ["info"]


@pytest.mark.skipif(shutil.which("c++") is None, reason="SGLang compiles its n-gram tables with c++, which is not here")
def test_n_grams_are_drafted_from_the_text(measured: Measured) -> None:
    assert 1.0 <= measured.accept_length("ngram") <= 1 + NUM_DRAFTS
    assert measured.record.facts["ngram"]["algorithm"] == "NGRAM"
    assert measured.record.facts["ngram"]["num_draft_tokens"] == NUM_DRAFTS


def test_settings_are_read_back_from_the_server(measured: Measured) -> None:
    plain, facts = measured.record.facts["plain"], measured.record.facts["eagle3"]
    for told in (plain, facts):
        names = ("version", "dtype", "context_length", "max_running_requests", "kv_cache_tokens")
        assert [told[name] for name in names] == ["0.5.23", "float32", 1024, 2, 8192]
    assert "algorithm" not in plain
    assert (facts["algorithm"], facts["num_steps"], facts["topk"], facts["num_draft_tokens"]) == ("EAGLE3", 3, 1, 3)
    assert facts["drafter_class"] == "LlamaForCausalLMEagle3"
    assert Path(str(facts["drafter"])).is_dir()


def test_stand_in_kernels_are_told_in_every_form_of_the_report(measured: Measured) -> None:
    launched = {"plain", "eagle3", "forced", "scheduled", "ngram"} & {arm.name for arm in measured.record.arms}
    for name in launched:
        assert str(STAND_INS) in str(measured.record.facts[name]["unreleased_kernels"])
    told = [finding for finding in measured.result["findings"] if finding["code"] == "unreleased-kernels"]
    assert {str(finding["title"]).partition(":")[0] for finding in told} == launched
    assert {finding["severity"] for finding in told} == {"warning"}
    run = str(measured.folder)
    shown = {"html": (measured.folder / "report.html").read_text(encoding="utf-8"), "terminal": breakeven("verdict", run)}
    shown |= {form: breakeven("report", run, "--format", form) for form in ("markdown", "json", "csv")}
    for form, text in shown.items():
        assert "replaced kernels" in " ".join(text.split()), form


def breakeven(*arguments: str) -> str:
    command = [sys.executable, "-m", "breakeven", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout


@pytest.fixture(scope="module")
def target() -> Path:
    return resolve_model("demo:smollm2-135m-instruct", Path())


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[LaunchLedger]:
    with LaunchLedger(tmp_path / "run") as opened:
        yield opened


@asynccontextmanager
async def served(arm: Arm, ledger: LaunchLedger, log: Path, port: int | None = None) -> AsyncIterator[ServerProcess]:
    port = choose_port() if port is None else port
    server = ServerProcess.start(SGLANG.launch_command(arm, port), name=arm.name, port=port, log=log, ledger=ledger)
    try:
        yield server
    finally:
        await server.stop()


def launched_arm(environment: Path, target: Path, speculation: Speculation | None = None) -> Arm:
    return Arm(
        name="arm",
        engine="sglang",
        target=target,
        executable=environment,
        speculation=speculation,
        dtype="float32",
        context_length=512,
        max_running_requests=2,
        extra_flags=tuple(FLAGS),
        env=ENV,
    )


async def test_a_folder_that_holds_no_head(sglang_environment: Path, target: Path, ledger: LaunchLedger, tmp_path: Path) -> None:
    arm = launched_arm(sglang_environment, target, Speculation(method="eagle3", num_draft_tokens=3, drafter=target))
    with pytest.raises(CheckpointError, match="method eagle3 expects an EAGLE-3 head"):
        SGLANG.check(arm)
    async with served(arm, ledger, tmp_path / "log") as server:
        with pytest.raises(LaunchError, match="What was loaded as the drafter is a LlamaForCausalLM, which is no head"):
            await server.wait_ready(SGLANG.health_path, SGLANG.explain_failure, timeout_s=START_TIMEOUT_S)


async def test_a_port_that_is_taken(sglang_environment: Path, target: Path, ledger: LaunchLedger, tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        async with served(launched_arm(sglang_environment, target), ledger, tmp_path / "log", taken.getsockname()[1]) as server:
            with pytest.raises(LaunchError, match="Another program took the port"):
                await server.wait_ready(SGLANG.health_path, SGLANG.explain_failure, timeout_s=START_TIMEOUT_S)


def test_killed_while_it_measures_nothing_of_the_engine_is_left(sglang_environment: Path, tmp_path: Path) -> None:
    content = plan(sglang_environment, {"plain": LAUNCHED}) | {"trial": {"window_s": 600}}
    breakeven = subprocess.Popen(bench_command(tmp_path, content), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        logs, began_s = tmp_path / "runs/sglang/logs", time.monotonic()
        while not any("POST /v1/chat/completions" in log.read_text(errors="replace") for log in logs.glob("*.log")):
            assert breakeven.poll() is None, "the run ended by itself"
            assert time.monotonic() - began_s < START_TIMEOUT_S
            time.sleep(0.5)
        engine = [child for child in psutil.Process(breakeven.pid).children(recursive=True) if "sglang" in _name(child)]
        assert len(engine) >= 3, f"SGLang's server, scheduler and detokenizer were not found: {[_name(one) for one in engine]}"
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
