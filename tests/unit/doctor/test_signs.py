"""Dynamic rules: what logs, metrics and runs show is named, with what it speaks against; healthy servers show nothing."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from tests.unit.doctor.broken import SGLANG
from tests.unit.readers.conftest import counters, prefill, sgl, vllm, vllm_load

from breakeven.doctor.examine import examine
from breakeven.doctor.gather import Inputs, gather
from breakeven.doctor.registry import RULES, Rule
from breakeven.doctor.result import Diagnosis, DoctorResult

Doctor = Callable[..., DoctorResult]
DYNAMIC = ("acceptance", "cost", "counters")


@pytest.fixture
def doctor(tmp_path: Path) -> Doctor:
    """Examines texts, each a log of its own, beside whatever else is given."""

    def run(*logs: str, metrics: Sequence[str] = (), **inputs: object) -> DoctorResult:
        paths = []
        for number, text in enumerate((*logs, *metrics)):
            path = tmp_path / f"{'log' if number < len(logs) else 'metrics'}{number}.txt"
            path.write_text(text)
            paths.append(path)
        given = Inputs(logs=tuple(paths[: len(logs)]), metrics=tuple(paths[len(logs) :]), **inputs)  # type: ignore[arg-type]
        return examine(gather(given))

    return run


def codes(result: DoctorResult, *, above: str = "info") -> list[str]:
    return [finding.code for finding in result.findings if finding.severity != above]


def finding(result: DoctorResult, code: str) -> Diagnosis:
    return next(one for one in result.findings if one.code == code)


def sgl_lines(
    length: float, *, lines: int = 40, running: int = 8, drafts: int = 3, start_s: int = 0, spread: float = 0.08, **more: object
) -> str:
    """SGLang 0.5.12 lines around one length, with the rate that release prints."""
    noise = random.Random(f"{length} {running} {start_s}")
    text = ""
    for number in range(lines):
        shown = round(min(max(length + noise.gauss(0, spread if length > 1.01 else 0.0), 1.0), drafts + 1.0), 2)
        text += sgl(shown, round((shown - 1) / drafts, 2), running=running, at_s=start_s + number, **more)  # type: ignore[arg-type]
    return text


def vllm_lines(joint: Sequence[float], *, lines: int = 12, drafts: int = 900) -> str:
    noise = random.Random(str(joint))
    shaken = [[max(rate + noise.gauss(0, 0.004), 0.0) if rate else 0.0 for rate in joint] for _ in range(lines)]
    return "".join(vllm(sorted(rates, reverse=True), drafts, at_s=10 * number) for number, rates in enumerate(shaken))


HICACHE = (
    "[2026-03-01 00:00:00] server_args=ServerArgs(model_path='target', speculative_algorithm='EAGLE', "
    "speculative_num_steps=5, speculative_eagle_topk=1, speculative_num_draft_tokens=6, enable_hierarchical_cache=True)\n"
)


def with_reuse(good: float, poor: float) -> str:
    """Prefixes come from the cache in the middle third."""
    text = ""
    for phase, (length, new, cached) in enumerate([(good, 900, 0), (poor, 50, 850), (good, 900, 0)]):
        for step in range(15):
            text += prefill(new, cached, at_s=200 * phase + 10 * step) + sgl_lines(
                length, lines=4, start_s=200 * phase + 10 * step + 1
            )
    return text


# --- healthy servers ------------------------------------------------------------------------------------------------------------

HEALTHY = {
    "Llama-3.1-8B, three drafts": lambda: vllm_lines((0.73, 0.52, 0.35)),
    "Qwen3-8B, three drafts": lambda: vllm_lines((0.65, 0.40, 0.20)),
    "Kimi-K2.5, eight drafts": lambda: vllm_lines((0.83, 0.60, 0.45, 0.36, 0.22, 0.16, 0.09, 0.06)),
    "SGLang chat": lambda: sgl_lines(2.69),
    "SGLang code": lambda: sgl_lines(3.29),
    "SGLang, six tokens": lambda: sgl_lines(4.4, drafts=5),
    "two batches alike": lambda: sgl_lines(2.49, running=2) + sgl_lines(2.52, running=32, start_s=50),
    "tool calls": lambda: sgl_lines(3.75),
}


@pytest.mark.parametrize("name", HEALTHY)
def test_healthy_servers_show_nothing(name: str, doctor: Doctor) -> None:
    result = doctor(HEALTHY[name]())
    assert codes(result) == [], [(one.code, one.title) for one in result.findings]
    assert result.refuted == ()
    assert result.next_check == ""


# --- one sign each --------------------------------------------------------------------------------------------------------------

SIGNS: dict[str, tuple[str, ...]] = {
    "rank-accepts-less": (
        "".join(
            sgl(2.6 if rank else 1.0, 0.53 if rank else 0.0, at_s=second, rank=f" DP{rank} TP{rank}")
            for second in range(40)
            for rank in range(4)
        ),
    ),
    "accept-length-at-floor": (sgl_lines(1.0), vllm_lines((0.0, 0.0, 0.0)), sgl_lines(1.0, drafts=5, running=1)),
    "accept-length-near-floor": (vllm_lines((0.06, 0.02, 0.01)), sgl_lines(1.08)),
    "accept-length-at-ceiling": (sgl_lines(4.0, spread=0.0), sgl_lines(6.0, drafts=5, spread=0.0)),
    "only-first-position-alive": (vllm((0.207, *[0.0] * 14), 691), vllm_lines((0.62, 0.0, 0.0))),
    "steep-fall-after-first": (vllm_lines((0.72, 0.15, 0.04)), vllm_lines((0.55, 0.09, 0.02, 0.01))),
    "accept-length-falls-with-batch": (
        sgl_lines(2.41, running=2, lines=60) + sgl_lines(2.1, running=32, start_s=80, lines=60),
        sgl_lines(3.0, running=1, lines=60) + sgl_lines(2.2, running=64, start_s=80, lines=60),
    ),
    "accept-length-falls-with-context": (
        "".join(
            sgl_lines(2.9, tokens=4_000, lines=1, start_s=2 * n) + sgl_lines(1.9, tokens=120_000, lines=1, start_s=2 * n + 1)
            for n in range(60)
        ),
    ),
    "accept-length-collapses": (
        sgl_lines(3.0, lines=60) + sgl_lines(1.4, lines=60, start_s=70) + sgl_lines(3.0, lines=60, start_s=140),
        "".join(
            sgl_lines(length, tokens=tokens, lines=60, start_s=70 * n)
            for n, (length, tokens) in enumerate([(2.9, 4_000), (1.9, 120_000)] * 2)
        ),
    ),
    "accept-length-falls-after-cache-reuse": (
        HICACHE
        + sgl_lines(4.49, lines=60, drafts=5)
        + sgl_lines(1.59, lines=60, start_s=70, drafts=5)
        + sgl_lines(4.33, lines=60, start_s=140, drafts=5),
        with_reuse(3.0, 1.5),
    ),
    "accept-length-drifts": ("".join(sgl_lines(3.0 - 0.012 * step, lines=4, start_s=4 * step, spread=0.02) for step in range(60)),),
    "cuda-graph-off": (sgl_lines(2.8, graph="cuda graph: False"),),
    "queue-saturated": (sgl_lines(2.8, running=37, queued=60),),
    "admission-capped": (sgl_lines(2.8, running=48, queued=100), sgl_lines(3.1, running=48, queued=7)),
    "counters-contradict": ("".join(vllm((0.6, 0.4, 0.2), 900, at_s=10 * n, length=3.1) for n in range(12)),),
}
EVERY_SIGN = [pytest.param(code, text, id=f"{code} {number}") for code, texts in SIGNS.items() for number, text in enumerate(texts)]


@pytest.mark.parametrize(("code", "text"), EVERY_SIGN)
def test_a_sign_is_named_first(code: str, text: str, doctor: Doctor) -> None:
    result = doctor(text)
    assert codes(result)[:1] == [code], [(one.code, one.severity, one.title) for one in result.findings]
    first = result.findings[0]
    assert first.evidence
    assert first.remedy


@pytest.mark.parametrize(("code", "text"), EVERY_SIGN)
def test_a_sign_alone_leads_to_one_check_and_names_no_cause(code: str, text: str, doctor: Doctor) -> None:
    if code in ("counters-contradict", "cuda-graph-off", "admission-capped"):
        return  # the one says what is wrong with the figures, the others are causes themselves
    result = doctor(text)
    assert [one.code for one in result.findings if one.kind == "cause" and one.severity == "error"] == []
    assert result.next_check


# --- every dynamic rule is seen somewhere -----------------------------------------------------------------------------------------

# Rules that are seen in runs, pairs of logs or folders, with the tests that show them.
ELSEWHERE = {
    "acceptance-forced": "test_signs.py",
    "accept-lengths-differ": "test_weighing.py",
    "all-positions-lower": "test_weighing.py",
    "backend-lowers-acceptance": "test_weighing.py",
    "served-below-training": "test_weighing.py",
    "setting-lowers-acceptance": "test_weighing.py",
    "training-acceptance-low": "test_weighing.py",
    "speculation-slower": "test_signs_of_runs.py",
    "experts-woken": "test_signs_of_runs.py",
    "target-saturated": "test_signs_of_runs.py",
    "collectives-unmeasured": "test_signs_of_runs.py",
    "impossible-baseline": "test_signs_of_runs.py",
    "drafter-too-large": "test_signs_of_runs.py",
    "output-degenerate": "test_signs_of_runs.py",
    "rate-ambiguous": "test_signs.py",
    "steps-without-drafts": "test_signs.py",
}


@pytest.mark.parametrize("rule", [rule for rule in RULES if rule.family in DYNAMIC], ids=lambda rule: rule.code)
def test_every_dynamic_rule_is_shown_by_a_test(rule: Rule) -> None:
    if rule.code in SIGNS:
        return
    text = (Path(__file__).parent / ELSEWHERE[rule.code]).read_text(encoding="utf-8")
    assert f'"{rule.code}"' in text.partition("ELSEWHERE = {")[0] + text.partition("def test_every_dynamic")[2]


def test_a_rate_without_a_length_is_a_question(doctor: Doctor) -> None:
    labels = '{model_name="target",engine_type="unified"}'
    dump = f"# TYPE sglang:spec_accept_rate gauge\nsglang:spec_accept_rate{labels} 0.42\nsglang:num_running_reqs{labels} 4\n"
    result = doctor(metrics=(dump,))
    assert codes(result) == []
    assert [question.code for question in result.open_questions] == ["rate-ambiguous"]
    assert "--engine-version" in result.open_questions[0].provide


def test_steps_that_carry_no_drafts_are_told(doctor: Doctor) -> None:
    text = "".join(vllm((0.5, 0.3, 0.2), 300, at_s=10 * n) + vllm_load(200.0, at_s=10 * n) for n in range(12))
    assert "steps-without-drafts" in codes(doctor(text))


def test_counters_of_metrics_show_signs_too(doctor: Doctor) -> None:
    dumps = [counters(1000 * n, 3000 * n, 0, (0, 0, 0)) for n in (1, 3)]
    result = doctor(metrics=dumps)
    assert codes(result) == ["accept-length-at-floor"]
    healthy = [counters(1000 * n, 3000 * n, 1500 * n, (800 * n, 450 * n, 250 * n)) for n in (1, 3)]
    assert codes(doctor(metrics=healthy)) == []
    odd = [counters(1000 * n, 3000 * n, 1500 * n, (800 * n, 450 * n, 900 * n)) for n in (1, 3)]
    assert codes(doctor(metrics=odd))[0] == "counters-contradict"


FORCED = {
    "vllm": """vllm serve x --speculative-config '{"method": "eagle3", "model": "d", "num_speculative_tokens": 3, """
    """"rejection_sample_method": "synthetic", "synthetic_acceptance_length": 1.0}'""",
    "sglang": f"SGLANG_SIMULATE_ACC_LEN=4 {SGLANG}",
}


@pytest.mark.parametrize("engine", FORCED)
def test_forced_acceptance_is_not_judged(engine: str, doctor: Doctor) -> None:
    log = vllm_lines((0.0, 0.0, 0.0)) if engine == "vllm" else sgl_lines(4.0, spread=0.0)
    result = doctor(log, launch=FORCED[engine])
    assert "acceptance-forced" in codes(result)
    assert {"accept-length-at-floor", "accept-length-at-ceiling"}.isdisjoint(codes(result))


def test_draft_layers_of_the_target_are_not_sent_looking_for_what_only_heads_have(doctor: Doctor) -> None:
    text = "".join(vllm([0.0] * 3, 300, at_s=10 * i) for i in range(6))
    launch = 'vllm serve org/m --max-num-seqs 16 -sc \'{"method": "%s", "model": "org/h", "num_speculative_tokens": 3}\''
    of_mtp, of_head = doctor(text, launch=launch % "mtp"), doctor(text, launch=launch % "eagle3")
    assert "d2t" in finding(of_head, "accept-length-at-floor").remedy
    assert "d2t" not in finding(of_mtp, "accept-length-at-floor").remedy
    assert "the auxiliary layers" in of_head.conclusion
    assert "the auxiliary layers" not in of_mtp.conclusion
    assert "accept-length-at-floor" not in codes(doctor(text, launch=launch % "ngram")), "no matches are no wiring fault"


def test_a_log_of_this_launch_is_not_doubted(doctor: Doctor) -> None:
    text = "".join(vllm([0.7, 0.5, 0.3], 300, at_s=10 * i) for i in range(6))
    launch = 'vllm serve org/m --max-num-seqs 16 -sc \'{"method": "eagle3", "model": "org/h", "num_speculative_tokens": %d}\''
    assert "launch-not-of-log" not in codes(doctor(text, launch=launch % 3))
    assert "launch-not-of-log" in codes(doctor(text, launch=launch % 2))
    other = "".join(vllm([0.7, 0.5], 300, at_s=10 * i) for i in range(6))
    assert "launch-not-of-log" not in codes(doctor(text, other, launch=launch % 2)), "one of two logs may be there to be compared"
