"""What the doctor predicts for each case against what the real engines did with it (recorded by tests/integration/doctor)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.integration.doctor.cases import CASES, Case

from breakeven.doctor.examine import examine
from breakeven.doctor.gather import Inputs, gather
from breakeven.doctor.result import DoctorResult
from breakeven.doctor.signs import Sign

RECORDED = {
    file.stem.partition("-")[0]: json.loads(file.read_text()) for file in (Path(__file__).parent / "recorded").glob("*.json")
}
PAGE = (Path(__file__).parents[3] / "docs" / "doctor.md").read_text(encoding="utf-8")
# A server that does not start, or dies at the first request: which of the two depends on the moment at which a shape is first used.
GRAVEST: tuple[Sign, ...] = ("load-error", "crash", "floor")
PERFECT, DEAD = 3.9, 1.1
# What a CPU cannot show; its row says so.
NOT_HERE = "needs a GPU"
EVERY = [
    pytest.param(engine, name, id=f"{engine}: {name}")
    for engine, record in RECORDED.items()
    for name, one in record["cases"].items()
    if one["outcome"] != NOT_HERE
]


def predicted(name: str, engine: str, root: Path) -> DoctorResult:
    it = Case()
    CASES[name][1](it)
    draft, target = it.draft.write(root), it.target.write(root)
    if engine == "vllm":
        config = json.dumps({**it.speculative, "model": str(draft)})
        launch = (
            f"VLLM_USE_V2_MODEL_RUNNER=0 vllm serve {target} --max-num-seqs 2 --max-model-len 256 --speculative-config '{config}'"
        )
    else:
        launch = (
            f"python -m sglang.launch_server --device cpu --model-path {target} --context-length 256 --max-running-requests 2 "
            f"--speculative-algorithm {it.algorithm} --speculative-draft-model-path {draft} "
            "--speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4"
        )
    return examine(gather(Inputs(launch=launch, engine_version=RECORDED[engine]["version"])))


def sign_of(record: dict[str, Any]) -> Sign:
    if record["outcome"] != "served":
        return "load-error" if record["outcome"] == "load-error" else "crash"
    return "floor" if record["accept_length"] < DEAD else "nothing"


def gravest(result: DoctorResult, engine: str) -> Sign:
    shown = {finding.symptoms.get(engine) for finding in result.findings if finding.severity != "info"}
    return next((sign for sign in GRAVEST if sign in shown), "nothing")


@pytest.mark.parametrize(("engine", "name"), EVERY)
def test_the_prediction_is_what_the_engine_did(engine: str, name: str, tmp_path: Path) -> None:
    result, record = predicted(name, engine, tmp_path), RECORDED[engine]["cases"][name]
    seen, said = sign_of(record), gravest(result, engine)
    assert said == seen or {said, seen} == {"load-error", "crash"}, (record, [(one.code, one.symptoms) for one in result.findings])
    code = CASES[name][0]
    if seen != "nothing":
        assert code in [finding.code for finding in result.findings], [finding.code for finding in result.findings]
    if record["outcome"] == "served":
        assert record["accept_length"] > PERFECT or record["accept_length"] < DEAD, "neither perfect nor dead"


@pytest.mark.parametrize("engine", RECORDED)
def test_the_recordings_cover_every_case(engine: str) -> None:
    assert set(RECORDED[engine]["cases"]) == set(CASES)
    assert (
        len(
            {
                CASES[name][0]
                for name, one in RECORDED[engine]["cases"].items()
                if one["outcome"] != NOT_HERE and sign_of(one) != "nothing"
            }
        )
        >= 10
    )


def table() -> str:
    """Cases, the rule that sees each, and what the engines did: the table of docs/doctor.md."""
    engines = [engine for engine in ("vllm", "sglang") if engine in RECORDED]
    names = {"vllm": "vLLM", "sglang": "SGLang"}
    head = [f"{names[engine]} {RECORDED[engine]['version'].partition('+')[0]}" for engine in engines]
    lines = [f"| broken so | rule | {' | '.join(head)} |", f"| --- | --- |{' --- |' * len(engines)}"]
    for name, (code, _) in CASES.items():
        done = [told(RECORDED[engine]["cases"][name]) for engine in engines]
        lines.append(f"| {name} | {code or ''} | {' | '.join(done)} |")
    return "\n".join(lines)


def told(record: dict[str, Any]) -> str:
    if record["outcome"] == NOT_HERE:
        return NOT_HERE
    if record["outcome"] == "served":
        return f"accept length {record['accept_length']:.2f}"
    return "does not start" if record["outcome"] == "load-error" else "dies at the first request"


def test_the_table_in_the_documentation_is_what_was_recorded() -> None:
    assert table() in PAGE, f"put this into docs/doctor.md:\n{table()}"
