"""Causes against signs: deployments of public reports and others of their kinds, each with the answer that is right."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.unit.doctor.broken import BREAKERS, SGLANG, Breaker, Deployment
from tests.unit.doctor.folders import LAYER_IDS
from tests.unit.doctor.test_signs import Doctor, codes, doctor, finding, sgl_lines, vllm_lines
from tests.unit.readers.conftest import sgl, vllm
from typer.testing import CliRunner

from breakeven.cli import app
from breakeven.doctor.result import DoctorResult
from breakeven.doctor.signs import SIGNS
from breakeven.doctor.suspects import CHECKS, SUSPECTS

__all__ = ["doctor"]  # a fixture


def with_log(it: Deployment, root: Path, *texts: str, **options: object) -> DoctorResult:
    paths = []
    for number, text in enumerate(texts):
        paths.append(root / f"server{number}.log")
        paths[-1].write_text(text)
    it.options |= {"logs": tuple(paths), **options}
    return it.examine(root)


# --- the founding case: an EAGLE-3 head served as EAGLE, quantization suspected ---------------------------------------------------

KIMI = (
    "python -m sglang.launch_server --model-path moonshotai/Kimi-K2.5 --tp 8 --max-running-requests 48 --speculative-algorithm "
    "{method} --speculative-draft-model-path {drafter} --speculative-num-steps {k} --speculative-eagle-topk 1 "
    "--speculative-num-draft-tokens {tokens}"
)


@pytest.mark.parametrize(
    ("method", "drafter", "k", "running"),
    [
        ("EAGLE", "lightseekorg/kimi-k2.5-eagle3", 3, 1),
        ("EAGLE", "lightseekorg/kimi-k2.5-eagle3", 3, 48),
        ("EAGLE", "AQ-MedAI/Kimi-K25-eagle3", 4, 8),
        ("eagle", "nvidia/Kimi-K2.5-Thinking-Eagle3", 3, 8),
        ("NEXTN", "someone/Qwen3-8B_EAGLE-3", 5, 16),
        ("EAGLE", "/models/EAGLE3-LLaMA3.1-8B", 7, 4),
    ],
)
def test_the_flag_is_named_first_and_quantization_refuted(method: str, drafter: str, k: int, running: int, doctor: Doctor) -> None:
    launch = KIMI.format(method=method, drafter=drafter, k=k, tokens=k + 1)
    result = doctor(sgl_lines(1.0, drafts=k, running=running), launch=launch)
    first = result.findings[0]
    assert (first.code, first.severity, first.confidence) == ("algorithm-against-name", "error", "high")
    assert "--speculative-algorithm EAGLE3" in first.remedy
    assert first.explains == ("accept-length-at-floor",)
    assert result.conclusion.startswith("algorithm-against-name explains what was seen")
    quantization = next(text for text in result.refuted if text.startswith("Quantization"))
    assert "weight-only INT4" in quantization
    assert "0 to 3 %" in quantization
    assert "cannot explain an accept length of 1.00" in quantization
    assert any(text.startswith("Too little training") for text in result.refuted)
    assert not result.open_questions


@pytest.mark.parametrize("drafter", ["lightseekorg/kimi-k2.5-eagle3", "some/drafter"])
def test_the_right_flag_is_not_accused(drafter: str, doctor: Doctor) -> None:
    result = doctor(sgl_lines(1.0), launch=KIMI.format(method="EAGLE3", drafter=drafter, k=3, tokens=4))
    assert codes(result) == ["accept-length-at-floor"]
    assert "--draft" in result.next_check


def test_the_flag_is_read_from_the_log_where_no_command_is_given(doctor: Doctor) -> None:
    banner = (
        "[2026-03-01 00:00:00] server_args=ServerArgs(model_path='moonshotai/Kimi-K2.5', speculative_algorithm='EAGLE', "
        "speculative_draft_model_path='lightseekorg/kimi-k2.5-eagle3', speculative_num_steps=3, speculative_eagle_topk=1, "
        "speculative_num_draft_tokens=4, tp_size=8)\n"
    )
    first = doctor(banner + sgl_lines(1.0)).findings[0]
    assert first.code == "algorithm-against-name"
    assert any(line.startswith("start-up log: --speculative-algorithm EAGLE") for line in first.evidence)


def test_the_folder_decides_where_it_is_at_hand(tmp_path: Path) -> None:
    it = Deployment()
    BREAKERS["algorithm-mismatch"][0](it)
    result = with_log(it, tmp_path, sgl_lines(1.0))
    assert codes(result)[:2] == ["algorithm-mismatch", "accept-length-at-floor"]
    assert result.conclusion == "algorithm-mismatch explains what was seen (accept-length-at-floor)."
    assert result.next_check == ""


def test_the_command_line_prints_it_and_exits_with_1(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "server.log").write_text(sgl_lines(1.0))
    monkeypatch.setenv("COLUMNS", "200")
    launch = KIMI.format(method="EAGLE", drafter="x/kimi-eagle3", k=3, tokens=4)
    done = CliRunner().invoke(app, ["doctor", "--launch", launch, "--log", str(tmp_path / "server.log")])
    assert done.exit_code == 1
    assert "1. ERROR The launch asks for EAGLE" in done.output
    assert "Not the cause: Quantization of the target" in done.output
    (tmp_path / "good.log").write_text(sgl_lines(2.7))
    assert CliRunner().invoke(app, ["doctor", "--log", str(tmp_path / "good.log")]).exit_code == 0
    (tmp_path / "empty.log").write_text("nothing here\n")
    bad = subprocess.run(
        [sys.executable, "-m", "breakeven", "doctor", "--log", str(tmp_path / "empty.log")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert bad.returncode == 2
    assert "Traceback" not in bad.stderr


# --- only position 0 is ever right (speculators 613) ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rates", "drafts"),
    [
        ((0.207, *[0.0] * 14), 691),
        ((0.207, *[0.0] * 14), 4_000),
        ((0.45, 0.0), 900),
        ((0.62, 0.0, 0.0), 300),
        ((0.35, *[0.0] * 4), 1_500),
        ((0.8, *[0.0] * 7), 200),
        ((0.12, *[0.0] * 15), 5_000),
        ((0.55, *[0.0] * 6), 10_000),
    ],
)
def test_exact_zeros_are_a_serving_fault(rates: Sequence[float], drafts: int, doctor: Doctor) -> None:
    result = doctor(vllm(rates, drafts))
    first = result.findings[0]
    assert (first.code, first.severity, first.confidence) == ("only-first-position-alive", "error", "high")
    assert "not a weak drafter" in first.title
    assert any(text.startswith("Quantization") for text in result.refuted)
    assert any(text.startswith("Too little training") for text in result.refuted)
    assert "offline" in result.next_check


@pytest.mark.parametrize("rates", [(0.207, 0.04, 0.009, 0.002, 0.0, 0.0), (0.3, 0.1, 0.03, 0.01, 0.003, 0.0), (0.21, 0.05, 0.01)])
def test_a_weak_head_that_decays_is_no_serving_fault(rates: Sequence[float], doctor: Doctor) -> None:
    assert "only-first-position-alive" not in codes(doctor(vllm_lines(rates)))


def test_zeros_over_a_handful_of_rounds_say_nothing(doctor: Doctor) -> None:
    assert codes(doctor(vllm((0.2, 0.0, 0.0), 20))) == []


# --- host cache (sglang 32176) ----------------------------------------------------------------------------------------------------

CACHED = (
    "[2026-03-01 00:00:00] server_args=ServerArgs(model_path='target', speculative_algorithm='EAGLE', speculative_num_steps=5, "
    "speculative_eagle_topk=1, speculative_num_draft_tokens=6, enable_hierarchical_cache={cached}, max_running_requests=16)\n"
)
REUSE = [(4.487, 1.589, 4.331), (3.2, 1.4, 3.15), (2.8, 1.9, 2.75), (5.1, 2.0, 5.0), (3.6, 1.2, 3.5)]


@pytest.mark.parametrize("lengths", REUSE)
@pytest.mark.parametrize("as_files", [True, False])
def test_drafts_start_blind_from_the_host_cache(lengths: tuple[float, float, float], as_files: bool, doctor: Doctor) -> None:
    banner = CACHED.format(cached=True)
    parts = [sgl_lines(length, drafts=5, lines=60, start_s=80 * number) for number, length in enumerate(lengths)]
    logs = [banner + part for part in parts] if as_files else [banner + "".join(parts)]
    result = doctor(*logs)
    first = result.findings[0]
    assert (first.code, first.severity) == ("accept-length-falls-after-cache-reuse", "error")
    assert "host cache off" in first.remedy
    assert "upgrade" in first.remedy
    assert any("training or the target's quantization" in text for text in result.refuted)
    assert codes(result) == ["accept-length-falls-after-cache-reuse"]


@pytest.mark.parametrize("lengths", [(4.438, 4.386, 4.353), (3.0, 2.97, 3.02), (2.2, 2.18, 2.21)])
def test_drift_of_two_percent_is_noise(lengths: tuple[float, float, float], doctor: Doctor) -> None:
    logs = [CACHED.format(cached=False) + sgl_lines(length, drafts=5, lines=60) for length in lengths]
    assert codes(doctor(*logs)) == []


# --- accept length must not depend on batch (sglang PR 21212) ---------------------------------------------------------------------

SERVED = (
    "[2026-03-01 00:00:00] server_args=ServerArgs(model_path='target', attention_backend='{backend}', "
    "speculative_algorithm='EAGLE3', speculative_num_steps=3, speculative_eagle_topk=1, speculative_num_draft_tokens=4, "
    "max_running_requests=32)\n"
)


def of_backend(backend: str, small: float, large: float, batches: tuple[int, int] = (2, 32)) -> str:
    parts = [
        sgl_lines(length, running=batch, lines=150, start_s=200 * n)
        for n, (length, batch) in enumerate(zip((small, large), batches, strict=True))
    ]
    return SERVED.format(backend=backend) + "".join(parts)


@pytest.mark.parametrize(
    ("good", "bad", "batches"),
    [
        ((2.49, 2.52), (2.41, 2.27), (2, 32)),
        ((3.1, 3.08), (2.9, 2.5), (1, 16)),
        ((2.8, 2.8), (2.7, 1.9), (4, 64)),
        ((2.2, 2.22), (2.0, 1.6), (2, 24)),
    ],
)
@pytest.mark.parametrize("bad_first", [True, False])
def test_the_backend_that_falls_is_named(
    good: tuple[float, float], bad: tuple[float, float], batches: tuple[int, int], bad_first: bool, doctor: Doctor
) -> None:
    logs = [of_backend("flashinfer", *good, batches), of_backend("trtllm_mla", *bad, batches)]
    result = doctor(*(reversed(logs) if bad_first else logs))
    first = result.findings[0]
    assert (first.code, first.severity) == ("backend-lowers-acceptance", "error")
    assert f"of log{0 if bad_first else 1}.txt accepts less" in first.title
    assert "trtllm_mla" in first.title
    assert set(first.explains) == {"accept-length-falls-with-batch", "accept-lengths-differ"}
    assert "other backend, or upgrade" in first.remedy


def test_backends_that_agree_are_not_accused(doctor: Doctor) -> None:
    assert codes(doctor(of_backend("flashinfer", 2.49, 2.52), of_backend("triton", 2.51, 2.5))) == []


BEFORE_AND_AFTER = (
    "[2026-03-01 0{hour}:00:00] server_args=ServerArgs(model_path='target', speculative_algorithm='{method}', {more}"
    "speculative_num_steps=3, speculative_eagle_topk=1, speculative_num_draft_tokens=4)\n"
)


@pytest.mark.parametrize("as_files", [True, False])
def test_the_setting_that_was_changed_is_named(as_files: bool, doctor: Doctor) -> None:
    before = BEFORE_AND_AFTER.format(hour=0, method="EAGLE", more="") + sgl_lines(1.0)
    after = BEFORE_AND_AFTER.format(hour=1, method="EAGLE3", more="") + sgl_lines(2.8, start_s=3700)
    result = doctor(before, after) if as_files else doctor(before + after)
    first = result.findings[0]
    assert (first.code, first.severity, first.confidence) == ("setting-lowers-acceptance", "error", "high")
    assert "speculative_algorithm: EAGLE / EAGLE3" in first.title
    assert set(first.explains) == {"accept-length-at-floor", "accept-lengths-differ"}


def test_a_quantized_drafter_is_named_by_its_setting(doctor: Doctor) -> None:
    plain = BEFORE_AND_AFTER.format(hour=0, method="EAGLE3", more="") + sgl_lines(2.8, lines=80)
    quoted = "speculative_draft_model_quantization='fp8', "
    other = BEFORE_AND_AFTER.format(hour=0, method="EAGLE3", more="speculative_draft_model_quantization='unquant', ")
    quantized = BEFORE_AND_AFTER.format(hour=0, method="EAGLE3", more=quoted) + sgl_lines(2.3, lines=80)
    assert codes(doctor(other + sgl_lines(2.8, lines=80), quantized))[0] == "setting-lowers-acceptance"
    # where one banner does not say, the other's setting may be the same
    assert "setting-lowers-acceptance" not in codes(doctor(plain, quantized))


# --- figures of training (NeMo Automodel) -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "accepted", "severity"),
    [
        ("train_tau_sim=1.2765 train_acc=0.1345", "0.28", "error"),
        ("step 900 | train_tau_sim=1.05 | train_acc=0.04", "0.05", "error"),
        ("train/tau_sim: 1.19 train/acc: 0.11 train/loss: 4.1", "0.19", "error"),
        ("{'val_tau_sim': 1.22, 'train_tau_sim': 2.5}", "0.22", "error"),
        ("train_tau_sim=1.41 train_acc=0.3", "0.41", "warning"),
        ("val_acc_0=0.5 val_acc_1=0.3 val_acc_2=0.2", "0.68", None),
        ("val_acc_0=0.2 val_acc_1=0.15 val_acc_2=0.1", "0.23", "error"),
        ("train_acc_0: 0.35, train_acc_1: 0.2, train_acc_2: 0.1, train_loss: 2", "0.43", "warning"),
        ("train_tau_sim=2.61 train_acc=0.55", "1.61", None),
        ("val_tau_sim=3.2", "2.20", None),
    ],
)
def test_what_training_promises(line: str, accepted: str, severity: str | None, doctor: Doctor) -> None:
    result = doctor(line + "\n")
    if severity is None:
        assert codes(result) == []
        return
    first = result.findings[0]
    assert (first.code, first.severity) == ("training-acceptance-low", severity)
    assert f"about {accepted} accepted drafts a round" in first.title
    assert "do not serve" in first.remedy


def test_an_accuracy_alone_is_no_accept_length(doctor: Doctor) -> None:
    result = doctor("train_acc=0.62 train_loss=1.9\n")
    assert codes(result) == []
    assert [question.code for question in result.open_questions] == ["training-acceptance-low"]


def test_a_head_that_learned_and_is_not_accepted(doctor: Doctor) -> None:
    result = doctor("train_tau_sim=2.9 train_acc=0.6\n", sgl_lines(1.0))
    assert {"accept-length-at-floor", "served-below-training"} == set(codes(result))
    assert any("its own log says" in text for text in result.refuted)


def test_a_weak_head_explains_a_weak_server(doctor: Doctor) -> None:
    result = doctor("train_tau_sim=1.45 train_acc=0.3\n", sgl_lines(1.42))
    assert codes(result)[0] == "training-acceptance-low"
    assert result.findings[0].explains == ("all-positions-lower",)


# --- folders and logs together ----------------------------------------------------------------------------------------------------


def off_by_one() -> Deployment:
    it = Deployment(engine="vllm", engine_version="0.33.0")
    it.draft.config[LAYER_IDS] = [1, 5, 8]
    del it.draft.config["eagle_config"]
    return it


@pytest.mark.parametrize("share", [0.7, 0.75, 0.8, 0.85, 0.9])
def test_layers_off_by_one_and_a_log_below_the_card(share: float, tmp_path: Path) -> None:
    card = 2.8
    length = share * card
    joint = [(length - 1) * part for part in (0.52, 0.3, 0.18)]
    result = with_log(off_by_one(), tmp_path, vllm_lines(joint), expected_length=card)
    assert codes(result) == ["layers-off-by-one", "all-positions-lower"]
    assert result.findings[0].explains == ("all-positions-lower",)
    assert result.conclusion == "layers-off-by-one explains what was seen (all-positions-lower)."
    assert f"{100 * share:.0f} % of the 2.80" in finding(result, "all-positions-lower").title


def test_layers_off_by_one_do_not_explain_the_floor(tmp_path: Path) -> None:
    result = with_log(off_by_one(), tmp_path, vllm_lines((0.0, 0.0, 0.0)))
    assert codes(result) == ["layers-off-by-one", "accept-length-at-floor"]
    assert result.findings[0].explains == ()
    assert "No cause was found here" in result.conclusion


def test_a_cause_of_all_signs_goes_before_one_of_some(tmp_path: Path) -> None:
    it = off_by_one()
    del it.draft.tensors["d2t"], it.draft.tensors["t2d"]
    result = with_log(it, tmp_path, vllm_lines((0.0, 0.0, 0.0)))
    assert codes(result)[0] == "vocabulary-map-absent"
    assert result.conclusion == "vocabulary-map-absent explains what was seen (accept-length-at-floor)."


def test_of_two_causes_the_cheaper_to_mend_is_checked_first(tmp_path: Path) -> None:
    it = Deployment()
    BREAKERS["algorithm-mismatch"][0](it)
    BREAKERS["vocabulary-map-absolute"][0](it)
    result = with_log(it, tmp_path, sgl_lines(1.0))
    assert set(codes(result)[:2]) == {"algorithm-mismatch", "vocabulary-map-absolute"}
    assert result.next_check.startswith("Mend algorithm-mismatch alone")
    assert "vocabulary-map-absolute" in result.next_check
    assert "by itself" in result.conclusion


@pytest.mark.parametrize(("lines", "running"), [(40, 8), (1, 2)])
def test_a_server_that_works_contradicts_a_fault_that_would_stop_it(lines: int, running: int, tmp_path: Path) -> None:
    """Some eighty rounds too: they prove no floor, but what was accepted in them was accepted."""
    it = Deployment()
    BREAKERS["algorithm-mismatch"][0](it)
    result = with_log(it, tmp_path, sgl_lines(2.8, lines=lines, running=running))
    first = result.findings[0]
    assert (first.code, first.severity, first.confidence) == ("algorithm-mismatch", "warning", "medium")
    assert any(line.startswith("against it: ") for line in first.evidence)
    assert not result.has_errors


def test_what_files_rule_out_is_said(tmp_path: Path) -> None:
    it = Deployment(engine="vllm", engine_version="0.33.0")
    result = with_log(it, tmp_path, vllm_lines((0.0, 0.0, 0.0)))
    assert codes(result) == ["accept-length-at-floor"]
    assert "Looked at and in order" in result.conclusion
    assert "the vocabulary map" in result.conclusion.partition("What can be behind it")[0]


@pytest.mark.parametrize(("limit", "beyond"), [(2048, 1.2), (4096, 1.5), (1024, 1.9)])
def test_a_position_limit_explains_a_fall_with_context(limit: int, beyond: float, tmp_path: Path) -> None:
    it = Deployment(engine_version="0.5.12", launch=f"SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN=1 {SGLANG}")
    it.draft.config["max_position_embeddings"] = limit
    lengths = [(2.74, limit // 2), (beyond, 6 * limit)] * 40
    log = "".join(
        sgl(length, round((length - 1) / 3, 2), running=1, tokens=tokens, at_s=at_s)
        for at_s, (length, tokens) in enumerate(lengths)
    )
    result = with_log(it, tmp_path, log)
    assert codes(result)[:2] == ["position-limit", "accept-length-falls-with-context"]
    assert result.findings[0].explains == ("accept-length-falls-with-context",)


@pytest.mark.parametrize(("quantization", "refuted"), [("int4", True), ("fp8", True), ("nvfp4", False)])
def test_a_fifth_fewer_drafts_is_more_than_weight_only_quantization_costs(quantization: str, refuted: bool, doctor: Doctor) -> None:
    launch = KIMI.format(method="EAGLE3", drafter="x/head", k=3, tokens=4) + f" --quantization {quantization}"
    result = doctor(sgl_lines(2.44), launch=launch, expected_length=2.8)
    assert "all-positions-lower" in codes(result)
    assert any(text.startswith("Quantization") for text in result.refuted) == refuted


# --- the tables -------------------------------------------------------------------------------------------------------------------


def test_every_suspect_is_looked_for_by_rules_that_exist() -> None:
    from breakeven.doctor.registry import RULES

    known = {rule.code for rule in RULES}
    for sign, suspects in SUSPECTS.items():
        assert sign in SIGNS
        assert sign in CHECKS, f"{sign} has suspects and no check that splits them"
        for suspect in suspects:
            assert set(suspect.codes) <= known, suspect


# --- every fault of a folder or a flag, beside a log that shows what it gives -----------------------------------------------------

LOGS = {
    ("vllm", "floor"): vllm_lines((0.0, 0.0, 0.0)),
    ("sglang", "floor"): sgl_lines(1.0),
    ("vllm", "all-positions-lower"): vllm_lines((0.45, 0.25, 0.14)),
    ("sglang", "all-positions-lower"): sgl_lines(1.84),
    ("vllm", "steep-decay"): vllm_lines((0.7, 0.14, 0.03)),
}


def broken_on(breaker: Breaker, engine: str) -> Deployment:
    it = Deployment()
    breaker(it)
    if it.engine is None and it.launch is None:
        it.engine = engine
    return it


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_a_log_that_shows_what_a_fault_gives_is_explained_by_it(engine: str, tmp_path: Path) -> None:
    explained = set()
    for number, (code, breaker) in enumerate((code, one) for code, breakers in BREAKERS.items() for one in breakers):
        alone = broken_on(breaker, engine).examine(tmp_path / f"alone{number}")
        told = next((one for one in alone.findings if one.code == code), None)
        log = LOGS.get((engine, told.symptoms.get(engine, ""))) if told is not None else None
        if told is None or log is None or told.severity == "info":
            continue  # this engine does not mind, or shows another sign
        folder = tmp_path / f"served{number}"
        folder.mkdir()
        result = with_log(broken_on(breaker, engine), folder, log, expected_length=2.7)
        assert result.findings[0].code == code, (code, breaker.__name__, [(one.code, one.explains) for one in result.findings])
        assert result.findings[0].explains
        assert code in result.conclusion
        explained.add(code)
    assert len(explained) >= {"vllm": 6, "sglang": 15}[engine], sorted(explained)
