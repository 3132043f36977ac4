"""What the real SGLang does with each case: run in SGLang's own environment, from the repository's root.

    PYTHONPATH=. .venv-sglang/bin/python tests/integration/doctor/truth_sglang.py OUT.json [CASE ...]

One server a case, with the stand-ins for SGLang's compiled kernels: what counts is whether it starts, and whether drafts are
accepted at all; lengths in between would be the stand-ins' own.
"""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from importlib.metadata import version
from pathlib import Path
from typing import Any

from tests.integration.doctor.cases import CASES, Case
from tests.integration.doctor.perfect_pair import draft_ids

NUM_TOKENS = 48
START_S, ANSWER_S = 400, 120
STAND_INS = Path(__file__).parents[1] / "engines" / "sglang_stand_ins"
ENV = {
    "SGLANG_USE_CPU_ENGINE": "1",
    "PYTHONPATH": str(STAND_INS),
    "OMP_NUM_THREADS": "1",
    "TORCHDYNAMO_DISABLE": "1",
    "HF_HUB_OFFLINE": "1",
}
FLAGS = [
    *("--device", "cpu", "--skip-tokenizer-init", "--disable-overlap-schedule", "--skip-server-warmup"),
    *("--max-total-tokens", "2048", "--max-running-requests", "2", "--context-length", "256"),
    *("--prefill-attention-backend", "intel_amx", "--decode-attention-backend", "intel_amx"),
    *("--speculative-num-steps", "3", "--speculative-eagle-topk", "1", "--speculative-num-draft-tokens", "4"),
]


def run_case(name: str, root: Path) -> dict[str, Any]:
    it = Case()
    CASES[name][1](it)
    draft, target = it.draft.write(root), it.target.write(root)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "sglang.launch_server", "--model-path", str(target), "--port", str(port), *FLAGS]
    command += ["--dtype", it.dtype, "--speculative-algorithm", it.algorithm, "--speculative-draft-model-path", str(draft)]
    log = root / "server.log"
    with log.open("wb") as out:
        server = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, env={**os.environ, **ENV}, start_new_session=True)
    try:
        if not ready(server, port):
            error = last_error(log, root)
            return {"outcome": "needs a GPU" if "CUDA enabled" in error else "load-error", "error": error}
        meta = generate(port)
        if meta is None:
            return {"outcome": "crash", "error": last_error(log, root)}
        rounds, accepted = meta["spec_verify_ct"], meta["spec_num_correct_drafts"]
        return {
            "outcome": "served",
            "drafts": rounds,
            "accepted": accepted,
            "accept_length": round(1 + accepted / max(1, rounds), 3),
        }
    finally:
        os.killpg(server.pid, signal.SIGKILL)
        server.wait()


def ready(server: subprocess.Popen[bytes], port: int) -> bool:
    until_s = time.monotonic() + START_S
    while time.monotonic() < until_s and server.poll() is None:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/server_info", timeout=5) as answer:
                return bool(answer.status == 200)
        except OSError:
            time.sleep(1)
    return False


def generate(port: int) -> dict[str, Any] | None:
    body = {
        "input_ids": [int(draft_ids()[2])] * 3,
        "sampling_params": {"temperature": 0, "max_new_tokens": NUM_TOKENS, "ignore_eos": True},
    }
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/generate", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    try:
        with urllib.request.urlopen(request, timeout=ANSWER_S) as answer:
            return json.loads(answer.read())["meta_info"]
    except (OSError, KeyError, ValueError):
        return None


def last_error(log: Path, root: Path) -> str:
    text = log.read_text(errors="replace").replace(str(root), "")
    found = re.findall(r"^(?:\w+\.)*\w*(?:Error|Exception): .*", text, re.MULTILINE)
    return (found[0] if found else text[-300:]).strip()[:200]


def main() -> None:
    out, names = Path(sys.argv[1]), sys.argv[2:] or list(CASES)
    record = json.loads(out.read_text()) if out.exists() else {"engine": "sglang", "version": version("sglang"), "cases": {}}
    for name in names:
        with tempfile.TemporaryDirectory() as folder:
            record["cases"][name] = run_case(name, Path(folder))
        out.write_text(json.dumps(record, indent=1) + "\n")
        print(name, record["cases"][name], flush=True)


if __name__ == "__main__":
    main()
