from __future__ import annotations

from pathlib import Path

import pytest

from breakeven.costs.acceptance_curve import AcceptanceCurve
from breakeven.errors import UsageError
from breakeven.verdict.predicted.step_file import StepFile, predict_from_steps, read_step_file

EXAMPLE = Path(__file__).parents[4] / "examples" / "predict" / "step-times.yaml"


def test_the_example_pays_with_three_drafts_and_falls_off_the_cliff_with_seven() -> None:
    result = predict_from_steps(read_step_file(EXAMPLE), AcceptanceCurve((0.7, 0.5, 0.3)), (), (3, 7), threshold=0.03)
    assert [batch.batch for batch in result.batches] == [1, 8, 32, 64, 128, 256]
    three = [batch.points[0] for batch in result.batches]
    assert all(point.outcome == "pays" for point in three)
    assert [round(point.cost.value, 2) for point in three] == [1.17, 1.37, 1.76, 1.72, 1.93, 2.30]
    last = result.batches[-1].points[1]
    assert last.outcome == "slower"
    assert any("raise the capture size to 2048 tokens" in doubt for doubt in last.doubts)
    assert any(note.startswith("Cliff between 1024 and 1536 tokens") for note in result.notes)


def test_noise_of_the_times_widens_every_interval() -> None:
    file = read_step_file(EXAMPLE)
    loud = file.model_copy(update={"noise": 0.2})
    quiet, wide = (predict_from_steps(one, None, (64,), (3,), threshold=0.03).batches[0].points[0].cost for one in (file, loud))
    assert wide.high / wide.value == pytest.approx(1.2)
    assert quiet.high / quiet.value == pytest.approx(1.05)
    assert wide.value == quiet.value


def test_out_of_reach_is_said_once(tmp_path: Path) -> None:
    result = predict_from_steps(read_step_file(EXAMPLE), None, (5000, 6000), (3, 5), threshold=0.03)
    assert result.batches == ()
    assert all("measure further" in entry.reason for entry in result.unpredicted)
    assert result.headline.startswith("Nothing could be predicted")


@pytest.mark.parametrize("passes", ["one", "each"])
def test_how_drafts_are_made_settles_what_more_of_them_cost(passes: str) -> None:
    file = StepFile(verify_ms={1: 1.0, 100: 1.0}, draft_ms={1: 0.3, 10: 0.3}, drafts=3, draft_passes=passes)
    assert file.surface().cost(1, 6).value == pytest.approx(1.3 if passes == "one" else 1.6)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("verify_ms: {1: 1, 2: 2}\n", "key 'draft_ms' is missing in the file; expected: Time of a whole round of the drafter"),
        ("verify_ms: {1: -1, 2: 2}\nREST", r"steps\.yaml:1: verify_ms\.1 is -1; expected greater than or equal to 0.000001"),
        (
            "verify_ms: {1: 1e-320, 2: 2}\nREST",
            r"steps\.yaml:1: verify_ms\.1 is 1e-320; expected greater than or equal to 0.000001",
        ),
        ("verify_ms:\n  0: 1\n  2: 2\nREST", r"yaml:2: verify_ms\.0 has the key \(0\); expected greater than or equal to 1"),
        ("verify_ms: {1: .nan, 2: 2}\nREST", "verify_ms.1 is nan; expected a finite number"),
        ("verify_ms: {1: 1, 2: 2}\nRESTother: 1\n", r"steps\.yaml:4: unknown key 'other' in the file; known keys: name"),
        ("verify_ms: {1: 1}\nREST", "verify_ms has 1; expected at least 2 entries"),
        ("- 1\n", "holds a list; expected a few dozen step times under verify_ms"),
        ("{", r"steps\.yaml:1: not valid YAML"),
        ("!!python/object/apply:os.system [id]", "not valid YAML"),
    ],
)
def test_what_is_wrong_is_said_by_its_key(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "steps.yaml"
    path.write_text(content.replace("REST", "draft_ms: {1: 1}\ndrafts: 3\n"), encoding="utf-8")
    with pytest.raises(UsageError, match=message):
        read_step_file(path)
