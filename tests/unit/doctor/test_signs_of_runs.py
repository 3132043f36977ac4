"""Dynamic rules on runs, simulated from a declared truth."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tests.unit.doctor.folders import Folder, make_target, portable, trained
from tests.unit.verdict.measured.conftest import fake_arm, simulated_run

from breakeven.doctor.evidence import Evidence
from breakeven.doctor.examine import examine
from breakeven.doctor.gather import Inputs, gather
from breakeven.doctor.registry import RULES
from breakeven.doctor.result import DoctorResult
from breakeven.errors import UsageError
from breakeven.experiment.summary import RunSummary
from breakeven.loadgen.samples import Void

NOISE: dict[str, Any] = {"launch_sd": 0.02, "drift_sd": 0.01}
PLAIN = fake_arm("plain", cap=512, **NOISE)
HEALTHY = (0.62, 0.4, 0.26)


def arm(joint: tuple[float, ...] = HEALTHY, cost: Any = 1.5, **more: Any) -> Any:
    return fake_arm("eagle", len(joint), joint=joint, cost_ratio=cost, cap=512, **NOISE, **more)


def of_run(*arms: Any, loads: tuple[int, ...] = (1, 8), evidence: Evidence | None = None, **more: Any) -> DoctorResult:
    run = RunSummary(simulated_run([PLAIN, *arms], loads=loads, **more))
    return examine(replace(evidence or Evidence(engine="vllm"), run=run))


def loud(result: DoctorResult) -> list[str]:
    return [one.code for one in result.findings if one.severity != "info"]


@pytest.mark.parametrize("joint", [HEALTHY, (0.73, 0.52, 0.35), (0.8, 0.62), (0.83, 0.6, 0.45, 0.36, 0.22)])
def test_a_healthy_run_shows_nothing(joint: tuple[float, ...]) -> None:
    assert loud(of_run(arm(joint))) == []


def test_no_draft_is_accepted() -> None:
    result = of_run(arm((0.0, 0.0, 0.0)))
    assert set(loud(result)) == {"accept-length-at-floor"}
    assert any("cannot explain an accept length of 1.00" in text for text in result.refuted)


def test_every_draft_is_accepted() -> None:
    assert set(loud(of_run(arm((1.0, 1.0, 1.0))))) == {"accept-length-at-ceiling"}


def test_only_the_first_is_accepted() -> None:
    assert set(loud(of_run(arm((0.5, 0.0, 0.0))))) == {"only-first-position-alive"}


def test_forced_arms_are_no_drafters() -> None:
    assert loud(of_run(fake_arm("forced", 3, forced=1.0, cost_ratio=1.5, cap=512, **NOISE))) == []


@pytest.mark.parametrize(("cost", "joint"), [(2.8, HEALTHY), (3.5, (0.73, 0.52, 0.35)), ({1: 1.2, 8: 3.2}, HEALTHY)])
def test_accepted_and_slower(cost: Any, joint: tuple[float, ...]) -> None:
    result = of_run(arm(joint, cost))
    assert set(loud(result)) == {"speculation-slower"}
    worst = max(cost.values()) if isinstance(cost, dict) else cost
    told = [float(one.title.rpartition("costs ")[2].split()[0]) for one in result.findings]
    assert max(told) == pytest.approx(worst, rel=0.05)
    assert any(text.startswith("A poor drafter") for text in result.refuted)


def test_one_launch_is_too_few_for_slower() -> None:
    assert "speculation-slower" not in loud(of_run(arm(HEALTHY, 2.1), launches=1))


@pytest.mark.parametrize("cost", [0.6, 0.8])
def test_rounds_cheaper_than_steps_void_the_baseline(cost: float) -> None:
    result = of_run(arm(HEALTHY, cost))
    assert set(loud(result)) == {"impossible-baseline"}
    assert "Do not quote this speedup" in result.findings[0].remedy


def scheduled(one: Any, *schedule: tuple[int, int, int]) -> Any:
    return replace(one, speculation=replace(one.speculation, schedule=schedule))


def test_fewer_drafts_at_more_load_as_scheduled() -> None:
    """The accept length falls as it is to; the first draft alone is nothing that is dead; at rest there is nothing to say."""
    assert loud(of_run(scheduled(arm(HEALTHY), (1, 1, 3), (2, 512, 1)))) == []
    assert loud(of_run(scheduled(arm(HEALTHY, {1: 1.5, 8: 1.3}), (1, 4, 3), (5, 512, 0)))) == []
    # a schedule hides no dead drafter
    assert "accept-length-at-floor" in loud(of_run(scheduled(arm((0.0, 0.0, 0.0)), (1, 1, 3), (2, 512, 1))))


def test_accept_length_must_not_depend_on_load() -> None:
    poor, good = arm((0.4, 0.2, 0.1)), arm((0.7, 0.5, 0.35))
    record = simulated_run([PLAIN, good], loads=(2, 32))
    worse = simulated_run([PLAIN, poor], loads=(2, 32))
    at_32 = [trial for trial in worse.trials if trial.load.label == "c=32"]
    mixed = replace(record, trials=[trial for trial in record.trials if trial.load.label == "c=2" or trial.arm == "plain"] + at_32)
    result = examine(Evidence(engine="sglang", run=RunSummary(mixed)))
    assert "accept-length-falls-with-batch" in loud(result)
    assert "another attention backend" in result.next_check


def test_one_drafter_on_two_engines() -> None:
    good, poor = arm((0.7, 0.5, 0.35)), arm((0.55, 0.33, 0.2))
    both = []
    for number, one in enumerate((good, poor)):
        spec = replace(one.speculation, drafter=Path("head"))
        both.append(replace(one, name=f"arm{number}", speculation=spec, extra_flags=("--attention-backend", f"b{number}")))
    result = of_run(*both)
    assert "accept-lengths-differ" in loud(result)
    other = [replace(one, speculation=replace(one.speculation, drafter=Path(one.name))) for one in both]
    assert "accept-lengths-differ" not in loud(of_run(*other))  # two heads are two drafters


# --- cost by cause --------------------------------------------------------------------------------------------------------------


def mixture(num_experts: int = 32, top_k: int = 2) -> Folder:
    target = make_target()
    target.config |= {"num_experts": num_experts, "num_experts_per_tok": top_k}
    generator = np.random.default_rng(0)
    for expert in range(num_experts):
        target.tensors[f"model.layers.0.mlp.experts.{expert}.up_proj.weight"] = trained(generator, 512, 64)
    return target


def test_experts_that_verification_wakes(tmp_path: Path) -> None:
    target = mixture().write(tmp_path)
    evidence = gather(Inputs(target=str(target), engine="vllm"))
    result = of_run(arm(HEALTHY, 2.8), loads=(1,), evidence=evidence)
    assert loud(result)[0] == "experts-woken"
    assert result.findings[0].explains == ("speculation-slower",)
    assert loud(of_run(arm(HEALTHY, 1.4), loads=(1,), evidence=evidence)) == []  # rounds that pay wake experts too


def test_a_dense_target_wakes_none(tmp_path: Path) -> None:
    evidence = gather(Inputs(target=str(make_target().write(tmp_path)), engine="vllm"))
    assert loud(of_run(arm(HEALTHY, 2.8), loads=(1,), evidence=evidence)) == ["speculation-slower"]


def test_a_saturated_target() -> None:
    result = of_run(arm(HEALTHY, {1: 1.2, 128: 1.4, 256: 3.4}), loads=(8, 256), window_s=4.0)
    assert loud(result)[0] == "target-saturated"
    assert "1024 tokens" in result.findings[0].title


def test_collectives_are_a_question() -> None:
    devices = [replace(one, tensor_parallel=8) for one in (arm(HEALTHY, 3.0),)]
    result = of_run(*devices)
    question = next(one for one in result.open_questions if one.code == "collectives-unmeasured")
    assert "profile" in question.provide


def test_graphs_that_are_off_explain_the_cost(tmp_path: Path) -> None:
    config = '{"method": "eagle3", "model": "x", "num_speculative_tokens": 3}'
    launch = f"vllm serve TARGET --max-num-seqs 16 --enforce-eager --speculative-config '{config}'"
    result = of_run(arm(HEALTHY, 2.8), evidence=gather(Inputs(launch=launch)))
    assert loud(result)[0] == "graphs-off"
    assert "speculation-slower" in result.findings[0].explains


def test_what_a_head_recorded_at_export_is_expected_of_it(tmp_path: Path) -> None:
    head = portable()
    folder = head.write(tmp_path)
    (folder / "provenance.json").write_text('{"metrics": {"num_draft_tokens": 3, "overall": {"accept_length": 3.0}}}')
    evidence = gather(Inputs(draft=str(folder)))
    assert "all-positions-lower" in loud(of_run(arm((0.55, 0.33, 0.2)), evidence=evidence))
    assert "all-positions-lower" not in loud(of_run(arm((0.8, 0.65, 0.5)), evidence=evidence))


def recorded(length: float, kinds: dict[str, tuple[float, int, float | None]]) -> str:
    names = ("accept_length", "num_rounds", "accept_length_low")
    by_kind = {kind: dict(zip(names, figures, strict=True)) for kind, figures in kinds.items()}
    return json.dumps({"metrics": {"num_draft_tokens": 3, "overall": {"accept_length": length}, "by_kind": by_kind}})


@pytest.mark.parametrize(
    ("kinds", "told"),
    [
        ({"story": (2.3, 400, 2.0), "letter": (3.2, 300, 2.9)}, False),
        ({"letter": (3.2, 300, 2.9)}, True),
        ({"maths": (1.4, 5, 1.2)}, True),  # five rounds
        ({"code": (1.4, 500, None)}, True),  # one prompt
        ({"story": (math.nan, 400, 2.0)}, True),
    ],
)
def test_a_head_is_held_against_the_kind_of_prompt_that_it_drafts_for_worst(
    kinds: dict[str, tuple[float, int, float | None]], told: bool, tmp_path: Path
) -> None:
    """Traffic differs from what the head was judged on: what it recorded for stories is healthy, whatever the mean is."""
    folder = portable().write(tmp_path)
    (folder / "provenance.json").write_text(recorded(2.8, kinds))
    result = of_run(arm((0.62, 0.4, 0.25)), evidence=gather(Inputs(draft=str(folder))))
    assert ("all-positions-lower" in loud(result)) == told
    assert all(one.confidence != "high" for one in result.findings if one.code == "all-positions-lower")


def test_launches_that_differ_leave_the_level_open() -> None:
    """The doctor is as sure of an accept length as the run's verdict: rounds are no draws of their own."""
    good, poor = (simulated_run([PLAIN, arm(joint)], loads=(1,), repeats=1) for joint in ((0.75, 0.55, 0.4), (0.5, 0.3, 0.2)))
    evidence = Evidence(engine="vllm", expected_length=2.6)
    steady = examine(replace(evidence, run=RunSummary(poor)))
    assert "all-positions-lower" in loud(steady)
    trials = [*(one for one in good.trials if one.block % 2), *(one for one in poor.trials if not one.block % 2)]
    unsteady = examine(replace(evidence, run=RunSummary(replace(poor, trials=trials))))
    assert "all-positions-lower" not in loud(unsteady)


# --- what is measured on --------------------------------------------------------------------------------------------------------


def test_degenerate_answers_are_told() -> None:
    record = simulated_run([PLAIN, arm()], loads=(1,))
    void = Void(code="degenerate_output", detail="40% of 50 answers are degenerate, limit 25% (first: loop)")
    trials = [replace(trial, voids=(void,)) if trial.arm == "eagle" and trial.block == 0 else trial for trial in record.trials]
    result = examine(Evidence(engine="vllm", run=RunSummary(replace(record, trials=trials))))
    assert loud(result) == ["output-degenerate"]


LOOP = "I am sorry but I cannot help with that. " * 40
TEXT = "Rain falls where warm air rises over the hills, and the river carries it back to the sea within a week or two."


@pytest.mark.parametrize(
    ("answer", "prompt", "number"), [(LOOP, TEXT, 10), (TEXT, LOOP, 10), ("!" * 300, TEXT, 5), (TEXT, TEXT, 0), (LOOP, TEXT, 2)]
)
def test_answers_and_prompts_that_are_no_text(answer: str, prompt: str, number: int, tmp_path: Path) -> None:
    lines = [
        {"messages": [{"role": "user", "content": p}, {"role": "assistant", "content": a}]}
        for p, a in [(prompt, answer)] * number + [(TEXT, TEXT)] * (10 - number)
    ]
    file = tmp_path / "answers.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    evidence = gather(Inputs(answers=file), lambda text: list(text.encode()))
    assert loud(examine(evidence)) == (["output-degenerate"] if number > 2 else [])


class Sized:
    """A target of whom only sizes matter."""

    def __init__(self, num_bytes: int) -> None:
        self.config: dict[str, Any] = {}
        self.tensors = {"model.layers.0.mlp.up_proj.weight": replace_bytes(num_bytes)}
        self.path = Path("target")


def replace_bytes(num_bytes: int) -> Any:
    return SimpleNamespace(begin=0, end=num_bytes, shape=(num_bytes // 2,))


@pytest.mark.parametrize(("drafter", "large"), [(400_000_000, True), (100_000_000, False)])
def test_a_drafter_that_is_large_for_its_target(drafter: int, large: bool) -> None:
    assert "drafter-too-large" in {rule.code for rule in RULES}
    from breakeven.doctor.rules.cost import drafter_too_large

    draft = SimpleNamespace(by_role={"fc.weight": replace_bytes(drafter), "embed_tokens.weight": replace_bytes(10**9)})
    evidence = SimpleNamespace(draft=draft, target=Sized(2_000_000_000))
    told = list(drafter_too_large.check(evidence))  # type: ignore[arg-type]
    assert bool(told) == large
    if told:
        assert "20 %" in told[0].title  # type: ignore[union-attr]


# --- a run brings its folders and its launch ------------------------------------------------------------------------------------


def test_a_run_says_which_folder_was_served_and_how(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    head, target = portable(), make_target()
    del head.tensors["d2t"], head.tensors["t2d"]
    served = replace(arm((0.0, 0.0, 0.0)), engine="vllm", engine_version="0.33.0", target=target.write(tmp_path))
    served = replace(served, speculation=replace(served.speculation, drafter=head.write(tmp_path)))
    plain = replace(PLAIN, engine="vllm", engine_version="0.33.0", target=served.target)
    record = simulated_run([plain, served])
    monkeypatch.setattr("breakeven.experiment.stored_run.read_run", lambda _: record)
    result = examine(gather(Inputs(run=tmp_path)))
    first = result.findings[0]
    assert (first.code, first.explains) == ("vocabulary-map-absent", ("accept-length-at-floor",))
    with pytest.raises(UsageError, match="expected one of the run's arms: plain, eagle"):
        gather(Inputs(run=tmp_path, arm="other"))
    gone = replace(served, speculation=replace(served.speculation, drafter=tmp_path / "gone"))
    monkeypatch.setattr("breakeven.experiment.stored_run.read_run", lambda _: replace(record, arms=[plain, gone]))
    assert loud(examine(gather(Inputs(run=tmp_path)))) == ["accept-length-at-floor"]


def test_what_no_engine_of_the_rules_served_is_not_asked_for_its_flags(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The embedded engine has no flags to give: asking for --plan again would send the user in a circle."""
    served = replace(arm((0.4, 0.2, 0.1)), engine="local", target=make_target().write(tmp_path))
    served = replace(served, speculation=replace(served.speculation, drafter=portable().write(tmp_path)))
    record = simulated_run([replace(PLAIN, engine="local"), served])
    monkeypatch.setattr("breakeven.experiment.stored_run.read_run", lambda _: record)
    result = examine(gather(Inputs(run=tmp_path, expected_length=2.8)))
    assert "all-positions-lower" in loud(result)
    assert any("an arm of engine local" in line for line in result.examined)
    assert not any("launch" in one.needs or "baseline" in one.needs for one in result.unchecked)
    assert not any("--plan" in text for text in (result.next_check, *(one.provide for one in result.open_questions)))
    # an arm that was attached to: its plan says nothing of its flags, a command would
    attached = replace(served, engine="vllm", url="http://127.0.0.1:1")
    monkeypatch.setattr("breakeven.experiment.stored_run.read_run", lambda _: replace(record, arms=[PLAIN, attached]))
    asked = examine(gather(Inputs(run=tmp_path, expected_length=2.8)))
    assert any("launch alone" in one.needs for one in asked.unchecked)
    assert "--launch 'COMMAND' in place of --plan" in asked.next_check
