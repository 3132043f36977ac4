"""Every static rule: healthy deployments raise nothing above info; broken in just one way, that fault is named first."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.doctor.broken import BREAKERS, QUESTIONS, SGLANG, VLLM, Breaker, Deployment
from tests.unit.doctor.folders import LAYOUTS

from breakeven.doctor.documentation import FAMILIES, rules_page
from breakeven.doctor.registry import RULES
from breakeven.doctor.result import Diagnosis, DoctorResult

PAGE = Path(__file__).parents[3] / "docs" / "rules.md"
DYNAMIC = ("acceptance", "cost", "counters")
SERVINGS: dict[str, dict[str, str | None]] = {
    "files alone": {},
    "vllm, release unknown": {"engine": "vllm"},
    "vllm 0.26": {"engine_version": "0.26.0", "launch": VLLM},
    "vllm 0.33": {"engine_version": "0.33.0", "launch": VLLM},
    "sglang, release unknown": {"engine": "sglang"},
    "sglang 0.5.12": {"engine_version": "0.5.12.post1", "launch": SGLANG},
    "sglang 0.5.23": {"engine_version": "0.5.23", "launch": SGLANG},
}
# What a layout really cannot have in an engine: faults of the pair, not of the folder, which the doctor must name.
TRUE_FAULTS = {("speculators", "sglang"): {"norm-before-residual-dropped", "architecture-unsupported"}}


def above_info(result: DoctorResult) -> list[Diagnosis]:
    return [finding for finding in result.findings if finding.severity != "info"]


@pytest.mark.parametrize("serving", SERVINGS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_healthy_layouts_have_no_finding_above_info(layout: str, serving: str, tmp_path: Path) -> None:
    healthy = Deployment(draft=LAYOUTS[layout](), **SERVINGS[serving])  # type: ignore[arg-type]
    found = above_info(healthy.examine(tmp_path))
    expected = TRUE_FAULTS.get((layout, serving.split()[0].strip(",")), set())
    assert {one.code for one in found} <= expected, [(one.code, one.title, one.evidence) for one in found]


EVERY_BREAKER = [
    pytest.param(code, breaker, id=f"{code}: {breaker.__name__}") for code, breakers in BREAKERS.items() for breaker in breakers
]


@pytest.mark.parametrize(("code", "breaker"), EVERY_BREAKER)
def test_broken_in_one_way_the_fault_is_named_first(code: str, breaker: Breaker, tmp_path: Path) -> None:
    broken = Deployment()
    breaker(broken)
    result = broken.examine(tmp_path)
    assert [finding.code for finding in result.findings][:1] == [code], [(one.code, one.severity) for one in result.findings]
    first = result.findings[0]
    assert first.evidence
    assert first.remedy
    assert first.title


EVERY_QUESTION = [
    pytest.param(code, breaker, id=f"{code}: {breaker.__name__}") for code, breakers in QUESTIONS.items() for breaker in breakers
]


@pytest.mark.parametrize("code", ["layers-out-of-range", "layers-unordered"])
def test_ids_that_are_said_once_for_each_engine_are_one_fault(code: str, tmp_path: Path) -> None:
    broken = Deployment()
    BREAKERS[code][0](broken)
    found = [finding for finding in broken.examine(tmp_path).findings if finding.code == code]
    assert len(found) == 1
    assert len([line for line in found[0].evidence if "layer_ids" in line]) == 2


@pytest.mark.parametrize(("code", "breaker"), EVERY_QUESTION)
def test_where_a_convention_is_open_no_fault_is_stated(code: str, breaker: Breaker, tmp_path: Path) -> None:
    unclear = Deployment()
    breaker(unclear)
    result = unclear.examine(tmp_path)
    assert not above_info(result), above_info(result)
    assert [question.code for question in result.open_questions] == [code]
    assert result.open_questions[0].provide
    assert result.open_questions[0].evidence


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.code)
def test_every_rule_is_documented_and_has_a_fixture(rule: object) -> None:
    from breakeven.doctor.registry import Rule

    assert isinstance(rule, Rule)
    assert rule.family in FAMILIES
    for part in ("Detects: ", "Why it hurts: ", "Evidence: ", "Remedy: "):
        assert f"\n{part}" in rule.explanation, f"{rule.code} lacks {part!r}"
    if rule.family not in DYNAMIC:
        assert BREAKERS.get(rule.code) or QUESTIONS.get(rule.code), f"{rule.code} has no breaker in broken.py"


def test_codes_are_unique_and_all_fixtures_have_a_rule() -> None:
    codes = [rule.code for rule in RULES]
    assert len(set(codes)) == len(codes)
    assert {*BREAKERS, *QUESTIONS} <= set(codes)


def test_every_rule_file_is_in_the_table() -> None:
    root = Path(__file__).parents[3] / "src" / "breakeven" / "doctor" / "rules"
    files = {(file.parent.name, file.stem.replace("_", "-")) for file in root.glob("*/*.py") if file.stem != "__init__"}
    assert files == {(rule.family, rule.code) for rule in RULES}


def test_rules_import_no_other_rule() -> None:
    root = Path(__file__).parents[3] / "src" / "breakeven" / "doctor" / "rules"
    for file in root.glob("*/*.py"):
        assert "breakeven.doctor.rules" not in file.read_text(encoding="utf-8"), file


def test_the_page_is_written_from_the_rules() -> None:
    assert PAGE.read_text(encoding="utf-8") == rules_page(), "run: python -m breakeven.doctor.documentation docs/rules.md"
