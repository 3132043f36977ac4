"""Plans: what is accepted, how it resolves, and the exact words for every kind of mistake."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from breakeven.errors import BreakevenError, CheckpointError, PlanError
from breakeven.experiment.plan import Plan, load_plan, parse_plan, plan_difference

MINIMAL = """
name: small
engine: fake
load: [{concurrency: 1}]
arms: {plain: {}}
"""

EXAMPLE = Path(__file__).parents[3] / "examples" / "smollm2-laptop" / "plan.yaml"


def refusal(text: str) -> str:
    with pytest.raises(PlanError) as caught:
        parse_plan(text, "plan.yaml")
    return str(caught.value)


def test_defaults() -> None:
    plan = parse_plan(MINIMAL, "plan.yaml")
    assert (plan.threshold, plan.baseline, plan.launches.min, plan.max_running_requests) == (0.03, "plain", 3, 8)
    [arm] = plan.arms()
    assert (arm.name, arm.engine, arm.speculation, arm.max_running_requests) == ("plain", "fake", None, 8)
    [load] = plan.loads()
    assert (load.label, load.max_tokens, load.fixed_length) == ("c=1", 128, False)


def test_arms_carry_everything_and_the_baseline_comes_first() -> None:
    plan = parse_plan(
        """
        name: all
        engine: fake
        baseline: base
        dtype: float32
        context_length: 512
        num_threads: 3
        seed: 7
        max_running_requests: 16
        workload: {fixed_length: true, max_tokens: 9, temperature: 0.5, top_p: 0.9}
        load: [{concurrency: 4}, {rate_per_s: 0.5}]
        arms:
          forced:
            speculation: {method: eagle3, num_draft_tokens: 5, drafter: random, forced_accept_length: 3, ngram_max: 4}
            max_running_requests: 12
            simulation: {prefill_s: 0.1}
          base:
        """,
        "plan.yaml",
    )
    base, forced = plan.arms()
    assert [base.name, forced.name] == ["base", "forced"]
    assert (base.dtype, base.context_length, base.num_threads, base.seed, base.max_running_requests) == ("float32", 512, 3, 7, 16)
    assert forced.forced
    assert forced.speculation is not None
    assert (forced.speculation.num_draft_tokens, forced.speculation.forced_accept_length, forced.speculation.ngram_max) == (
        5,
        3.0,
        4,
    )
    assert forced.max_running_requests == 12
    assert forced.simulation == {"prefill_s": 0.1}
    closed, opened = plan.loads()
    assert (closed.concurrency, opened.rate_per_s) == (4, 0.5)
    assert (closed.max_tokens, closed.temperature, closed.top_p, closed.fixed_length) == (9, 0.5, 0.9, True)


def test_the_example_names_every_key() -> None:
    text = EXAMPLE.read_text(encoding="utf-8")
    plan = parse_plan(text, str(EXAMPLE))
    assert plan.name == "smollm2-laptop"
    sections = [Plan, *(type(part) for part in (plan.launches, plan.workload, plan.load[0], plan.trial, plan.arm_plans["ngram"]))]
    speculation = plan.arm_plans["forced-2.0"].speculation
    assert speculation is not None
    for section in [*sections, type(speculation)]:
        for name, field in section.model_fields.items():
            assert (field.alias or name) in text, f"the example does not explain {field.alias or name}"


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (
            "max_runing_requests: 8",
            "plan.yaml:6: unknown key 'max_runing_requests' in the plan; did you mean 'max_running_requests'?",
        ),
        ("xyzzy: 8", "plan.yaml:6: unknown key 'xyzzy' in the plan; known keys: "),
        ("env: {A: b}", "plan.yaml:6: unknown key 'env' in the plan; it belongs in arms.NAME"),
        ("max_tokens: 8", "plan.yaml:6: unknown key 'max_tokens' in the plan; it belongs in workload"),
        ("workload: {launches: 8}", "plan.yaml:6: unknown key 'launches' in workload; it belongs in the plan"),
        ("drafter: random", "plan.yaml:6: unknown key 'drafter' in the plan; it belongs in arms.NAME.speculation or curve"),
        ("trial: {window: 3}", "plan.yaml:6: unknown key 'window' in trial; did you mean 'window_s'?"),
        ("threshold: '0.03'", "plan.yaml:6: threshold is '0.03'; expected a number"),
        ("threshold: .nan", "plan.yaml:6: threshold is nan; expected a finite number"),
        ("threshold: 1.5", "plan.yaml:6: threshold is 1.5; expected less than 1"),
        ("seed: 1.5", "plan.yaml:6: seed is 1.5; expected a whole number"),
        ("seed: yes", "plan.yaml:6: seed is True; expected a whole number"),
        ("trial: 5", "plan.yaml:6: trial is 5; expected a table of keys"),
        ("trial: {window_s: 0}", "plan.yaml:6: trial.window_s is 0; expected greater than 0"),
        ("launches: {min: 4, max: 2}", "plan.yaml:6: launches: min is 4 and max is 2; expected min <= max"),
        ("workload: {kinds: code}", "plan.yaml:6: workload.kinds is 'code'; expected a list"),
        ("workload: {fixed_length: 1}", "plan.yaml:6: workload.fixed_length is 1; expected true or false"),
        ("engine: fake", "plan.yaml:6: key 'engine' stands on line 3 too; expected it once"),
        ("engine2: [", "plan.yaml:7: not valid YAML"),
        ("dtype: 16", "plan.yaml:6: dtype is 16; expected text (put numbers, yes and no in quotes)"),
        ("objective: speed", "plan.yaml:6: objective is 'speed'; expected 'throughput', 'request-speed' or 'goodput'"),
        ("objective: goodput", "objective goodput needs limits: ttft_s (first token), tpot_s (each further one), or both"),
        ("limits: {ttft: 1}", "plan.yaml:6: unknown key 'ttft' in limits; did you mean 'ttft_s'?"),
        ("limits: {ttft_s: 0}", "plan.yaml:6: limits.ttft_s is 0; expected greater than 0"),
        ("baseline: palin", "plan.yaml: baseline is 'palin', which is no arm; expected one of: plain"),
    ],
)
def test_mistakes_at_the_top(line: str, expected: str) -> None:
    assert expected in refusal(MINIMAL + line + "\n")


def plan_with(arms: str, load: str = "[{concurrency: 1}]", top: str = "") -> str:
    return f"name: p\nengine: fake\n{top}\nload: {load}\narms:\n{arms}\n"


@pytest.mark.parametrize(
    ("arms", "expected"),
    [
        ("  on: {}", "plan.yaml:5: arms has a key that is no text (True); put yes, no, on, off and numbers in quotes"),
        ("  plain: 3", "plan.yaml:6: arms.plain is 3; expected a table of keys"),
        ("  plain:\n  x: {speculation: {}}", "plan.yaml:7: key 'method' is missing in arms.x.speculation; expected: How to draft"),
        ("  plain:\n  x: {speculation: {method: eagle}}", "arms.x.speculation.method is 'eagle'; expected 'ngram' or 'eagle3'"),
        ("  plain:\n  x: {speculation: {method: ngram, num_drafts: 3}}", "did you mean 'num_draft_tokens'?"),
        ("  plain:\n  x: {speculation: {method: eagle3}}", "method eagle3 needs a drafter"),
        ("  plain:\n  x: {speculation: {method: ngram, drafter: y}}", "method ngram takes no drafter"),
        (
            "  plain:\n  x: {speculation: {method: ngram, num_draft_tokens: 2, forced_accept_length: 3.5}}",
            "forced_accept_length 3.5 cannot be reached: 2 draft tokens give at most 3 tokens a round",
        ),
        ("  plain:\n  x: {speculation: {method: ngram, ngram_min: 5}}", "ngram_min is 5 and ngram_max 3"),
        (
            "  plain:\n  x: {speculation: {method: ngram, forced_accept_length: 2}}",
            "so its answers are junk that ends anywhere; set workload.fixed_length: true",
        ),
        ("  plain:\n  x: {env: {OMP_NUM_THREADS: 1}}", "arms.x.env.OMP_NUM_THREADS is 1; expected text (put numbers"),
        ("  plain:\n  x: {env: {'A=B': c}}", "'A=B' cannot be the name of an environment variable; expected NAME: value"),
        ("  plain:\n  x: {env: {'': c}}", "'' cannot be the name of an environment variable"),
        ("  plain:\n  x: {env: {HF_TOKEN: abc}}", "HF_TOKEN looks like a secret, and plans are stored"),
        ("  plain:\n  x: {extra_flags: ['--api-key=abc']}", "--api-key looks like a secret"),
        ("  plain:\n  x: {extra_flags: ['--port=3']}", "extra_flags has --port=3, which Breakeven sets itself"),
        ("  plain:\n  x: {url: 'localhost:8000'}", "arms.x.url: 'localhost:8000' is no server address"),
        ("  plain:\n  x: {engine: vllm, url: 'http://u:p@h'}", "carries a user, a password or a query, and plans are stored"),
        ("  plain:\n  x: {engine: vllm, url: 'http://h', env: {A: b}}", "env cannot reach a server that is only attached to"),
        ("  plain:\n  x: {engine: vllm, url: 'http://h', api_key_env: sk-123}", "expected the NAME of an environment variable"),
        ("  plain:\n  x: {metrics_urls: ['http://h/metrics']}", "metrics_urls goes with url"),
        ("  plain:\n  x: {speculation: {method: ngram, schedule: [[2, 8, 3]]}}", "found [2, 8] where a range from 1 was expected"),
        ("  plain:\n  x: {speculation: {method: ngram, schedule: [[1, 8, 3], [8, 9, 0]]}}", "found [8, 9] where a range from 9"),
        ("  plain:\n  x: {speculation: {method: ngram, schedule: [[1, 8, 4]]}}", "schedule asks for 4 drafts; num_draft_tokens"),
        (
            "  plain:\n  x: {speculation: {method: ngram, schedule: [[1, 8]]}}",
            "found '[1, 8]' in it; expected [first, last, drafts]",
        ),
        (
            "  plain:\n  x: {speculation: {method: ngram, forced_accept_length: 2, schedule: [[1, 8, 1]]}}",
            "which forced_accept_length does not go with",
        ),
        ("  plain:\n  x: {engine: local}", "target is missing: arm 'x' needs a model folder"),
        ("  plain:\n  x: {url: 'http://h'}", "engine fake has no servers, so no url"),
        ("  plain:\n  x: {engine: vllm, url: 'http://h', simulation: {a: 1}}", "has a simulation, which only engine fake takes"),
        ("  plain:\n  " + "n" * 41 + ": {}", "expected 1 to 40 printable characters"),
        ('  plain:\n  "a\\e[31m": {}', r"arm name 'a\x1b[31m': expected 1 to 40 printable characters"),
    ],
)
def test_mistakes_in_arms(arms: str, expected: str) -> None:
    assert expected in refusal(plan_with(arms))


def test_a_key_that_looks_secret_is_not_repeated_with_its_value() -> None:
    assert "hunter2" not in refusal(plan_with("  plain:\n  x: {env: {MY_PASSWORD: hunter2}}"))
    assert "hunter2" not in refusal(plan_with("  plain:\n  x: {extra_flags: ['--api-key=hunter2']}"))


def test_tokens_that_are_no_secrets_pass() -> None:
    text = plan_with("  plain: {extra_flags: ['--max-num-batched-tokens', '8'], env: {TOKENIZERS_PARALLELISM: 'false'}}")
    assert parse_plan(text, "plan.yaml").arms()[0].extra_flags == ("--max-num-batched-tokens", "8")


@pytest.mark.parametrize(
    ("load", "expected"),
    [
        ("[]", "load is empty; expected at least one entry"),
        ("[{concurrency: 1, rate_per_s: 2}]", "load.0: expected either concurrency or rate_per_s"),
        ("[{}]", "load.0: expected either concurrency or rate_per_s"),
        ("[{concurrency: 2}, {concurrency: 2}]", "load point c=2 is listed twice"),
        ("[{concurrency: 2}, {concurrency: 2, window_s: 60}]", "load point c=2 is listed twice"),
        ("[{concurrency: 2, window_s: 0}]", "load.0.window_s"),
        ("[{concurrency: 9}]", "load point c=9 is above the max_running_requests of arm 'plain' (8): requests would queue"),
    ],
)
def test_mistakes_in_load(load: str, expected: str) -> None:
    assert expected in refusal(plan_with("  plain:", load))


def test_a_load_point_may_have_a_window_of_its_own() -> None:
    plan = parse_plan(plan_with("  plain:", "[{concurrency: 1, window_s: 60}, {concurrency: 2}]"), "plan.yaml")
    one, two = plan.loads()
    assert (plan.window_s(one), plan.window_s(two)) == (60.0, plan.trial.window_s)
    assert plan.trial_s(one) - plan.trial_s(two) == 60.0 - plan.trial.window_s


def test_a_forced_baseline_is_refused() -> None:
    text = plan_with("  plain: {speculation: {method: ngram, forced_accept_length: 2}}", top="workload: {fixed_length: true}")
    assert "baseline 'plain' has a forced accept length" in refusal(text)


def test_every_mistake_is_listed_up_to_five() -> None:
    message = refusal(MINIMAL + "".join(f"unknown_{letter}: 1\n" for letter in "abcdefg"))
    assert len(message.splitlines()) == 6
    assert message.endswith("and 2 more")


def test_other_files() -> None:
    assert "holds nothing; expected a plan with keys such as" in refusal("")
    assert "holds a list" in refusal("- 1\n- 2\n")
    assert "more than 20000 entries" in refusal("a: &a [1,1,1,1,1,1,1,1,1,1]\n" + bomb(6))


def bomb(levels: int) -> str:
    names = "abcdefghij"
    return "".join(f"{names[n + 1]}: &{names[n + 1]} [{', '.join(['*' + names[n]] * 10)}]\n" for n in range(levels))


def test_files_that_are_no_plan(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match="cannot be read"):
        load_plan(tmp_path / "absent.yaml")
    binary = tmp_path / "binary.yaml"
    binary.write_bytes(b"name: \xff\xfe")
    with pytest.raises(PlanError, match="byte 6 is not UTF-8"):
        load_plan(binary)
    large = tmp_path / "large.yaml"
    large.write_bytes(b"#" * 200_001)
    with pytest.raises(PlanError, match="expected a plan"):
        load_plan(large)


def test_the_folder_names_a_plan_without_a_name(tmp_path: Path) -> None:
    folder = tmp_path / "my plan (2)"
    folder.mkdir()
    (folder / "plan.yaml").write_text(MINIMAL.replace("name: small\n", ""))
    assert load_plan(folder / "plan.yaml").name == "my-plan-2"
    assert "name: expected letters" in refusal(MINIMAL.replace("small", "../escape"))


def test_models_and_prompts_resolve_beside_the_plan(
    tmp_path: Path, make_target: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BREAKEVEN_CACHE", str(tmp_path / "cache"))
    target = make_target()
    text = """
target: target
workload: {prompts: my.jsonl}
load: [{concurrency: 1}]
arms:
  plain:
  dead: {speculation: {method: eagle3, drafter: random}}
"""
    (tmp_path / "plan.yaml").write_text(text)
    plan = load_plan(tmp_path / "plan.yaml")
    plain, dead = plan.arms()
    assert plain.target == target
    assert dead.speculation is not None
    assert dead.speculation.drafter is not None
    assert (dead.speculation.drafter / "model.safetensors").is_file()
    assert plan.workload.prompts == str(tmp_path / "my.jsonl")
    # resolved plans are stored as JSON and read back without a disk
    assert Plan.model_validate_json(plan.model_dump_json(by_alias=True)) == plan

    (tmp_path / "plan.yaml").write_text(text.replace("target: target", "target: targt"))
    with pytest.raises(CheckpointError, match="targt"):
        load_plan(tmp_path / "plan.yaml")


def test_difference_names_keys_and_lets_budgets_change() -> None:
    before = parse_plan(MINIMAL, "p")
    assert plan_difference(before, before) == []
    assert plan_difference(before, parse_plan(MINIMAL + "launches: {max: 9}\nstart_timeout_s: 9\n", "p")) == []
    changed = parse_plan(MINIMAL.replace("plain: {}", "plain: {}, more: {}") + "trial: {window_s: 3}\n", "p")
    assert plan_difference(before, changed)[0] == "trial.window_s: 30.0 -> 3.0"
    assert any(line.startswith("arms.more.") for line in plan_difference(before, changed))
    # of a list, what is in it
    before, changed = (parse_plan(MINIMAL.replace("plain: {}", f"plain: {{extra_flags: ['--{x}']}}"), "p") for x in "ab")
    assert plan_difference(before, changed) == ["""arms.plain.extra_flags: '["--a"]' -> '["--b"]'"""]
    # of load points, the key of the one that differs, however many stand before it
    points = [f"{{concurrency: {number}}}" for number in range(1, 6)]
    before, changed = (
        parse_plan(plan_with("  plain:", f"[{', '.join([*points, last])}]"), "p")
        for last in ("{concurrency: 6}", "{concurrency: 6, window_s: 60}")
    )
    assert plan_difference(before, changed) == ["load.5.window_s: nothing -> 60.0"]


@pytest.mark.parametrize(
    "text", ["name: !!bool x", "name: !!int ''", "name: !!float x", "name: !!timestamp x", "name: 2001-99-99", "&a\n<<: *a"]
)
def test_tags_that_do_not_fit(text: str) -> None:
    assert refusal(text + "\n").startswith("p")


def test_a_device_without_end_is_not_read_whole() -> None:
    with pytest.raises(PlanError, match="larger than 200 kB; expected a plan"):
        load_plan(Path("/dev/zero"))


@pytest.mark.parametrize("key", ["workload: {prompts: PATH}", "engine: vllm\ntarget: /\nexecutable: PATH"])
@pytest.mark.parametrize("path", ["~nobody-of-this-name/x", '"a\\0b"', '"\\ud800"', "x" * 5000])
def test_paths_that_no_file_has(key: str, path: str, tmp_path: Path) -> None:
    text = "engine: fake\n" * ("engine" not in key) + key.replace("PATH", path) + "\nload: [{concurrency: 1}]\narms: {plain: {}}\n"
    (tmp_path / "plan.yaml").write_text(text)
    with pytest.raises(BreakevenError) as caught:
        load_plan(tmp_path / "plan.yaml")
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize(
    "url",
    [
        '"http://[::1"',
        "http://a:port",
        "http://a:99999",
        "http://a:0",
        '"http://a/\\r\\nX: y"',
        '"http://a b"',
        '"http://a\\e[31m"',
    ],
)
def test_addresses_that_no_server_has(url: str) -> None:
    assert "no server address" in refusal(MINIMAL.replace("plain: {}", f"plain: {{}}, there: {{engine: vllm, url: {url}}}"))


def test_only_servers_of_the_run_have_their_caches_emptied() -> None:
    plan = parse_plan(MINIMAL + "trial: {reset_cache: true}\n", "plan.yaml")
    assert all(arm.resets_cache for arm in plan.arms())
    assert not any(arm.resets_cache for arm in parse_plan(MINIMAL, "plan.yaml").arms())
    attached = "load: [{concurrency: 1}]\ntrial: {reset_cache: true}\narms:\n  plain: {engine: vllm, url: 'http://127.0.0.1:9'}\n"
    assert "reset_cache cannot reach arm 'plain': an attached server belongs to its users" in refusal(attached)
