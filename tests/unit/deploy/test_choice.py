from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from breakeven.deploy.choice import choose
from breakeven.engines.base import Arm, Speculation
from breakeven.errors import UsageError
from breakeven.experiment.record import RunRecord

MakeRecord = Callable[..., RunRecord]


def test_the_winner_is_served_where_it_won(make_record: MakeRecord, plain: Arm, eagle: Arm) -> None:
    choice = choose(make_record(plain, eagle))
    assert choice.arm is eagle
    assert choice.why.startswith(f"eagle pays at {choice.load.label}: ")
    assert choice.notes == ()
    assert choose(make_record(plain, eagle), label="c=4").load.label == "c=4"


def test_an_undecided_run_serves_the_baseline_and_says_so(make_record: MakeRecord, plain: Arm) -> None:
    same = replace(plain, name="same")
    choice = choose(make_record(plain, same, launches=1))
    assert choice.arm is plain
    assert "the run is undecided at c=1 and c=4" in choice.why


def test_a_run_in_which_nothing_pays_says_that_instead(make_record: MakeRecord, plain: Arm, eagle: Arm) -> None:
    slow = replace(eagle, simulation={"joint": [0.1, 0.0, 0.0], "cost_ratio": 2.0})
    choice = choose(make_record(plain, slow))
    assert choice.arm is plain
    assert "nothing measured pays" in choice.why


def test_an_arm_asked_for_goes_with_what_the_run_says_against_it(make_record: MakeRecord, plain: Arm, eagle: Arm) -> None:
    choice = choose(make_record(plain, eagle, interrupted=True), "plain", "c=4")
    assert (choice.arm, choice.load.label) == (plain, "c=4")
    assert "not finished" in choice.notes[0]
    assert "eagle instead" in choice.notes[1]


def test_a_schedule_is_told_and_so_is_the_file_that_has_to_go_with_it(make_record: MakeRecord, plain: Arm, eagle: Arm) -> None:
    assert eagle.speculation is not None
    follows = replace(eagle, speculation=replace(eagle.speculation, schedule=((1, 4, 3), (5, 8, 0))))
    told = "Its drafts by running requests: 3 drafts at 1 to 4, none from 5 on"
    assert choose(make_record(plain, follows)).notes == (told,)
    (note,) = choose(make_record(plain, replace(follows, engine="sglang"))).notes
    assert note.startswith(told)
    assert note.endswith("the file that --speculative-adaptive-config names, which has to go with the command")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (
            {"speculation": Speculation(method="eagle3", num_draft_tokens=3, forced_accept_length=2.0), "simulation": {}},
            "accept length is forced",
        ),
        ({"url": "http://10.0.0.1:8000"}, r"attached to it at http://10\.0\.0\.1:8000"),
        ({"engine": "fake"}, "simulates"),
    ],
)
def test_arms_that_cannot_be_served_are_refused_with_the_reason(
    make_record: MakeRecord, plain: Arm, eagle: Arm, change: dict[str, object], says: str
) -> None:
    other = replace(eagle, **change)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=says):
        choose(make_record(plain, other), "eagle")


def test_an_arm_that_failed_in_the_run_is_refused(make_record: MakeRecord, plain: Arm, eagle: Arm) -> None:
    with pytest.raises(UsageError, match=r"\(out of memory\)"):
        choose(make_record(plain, eagle, failures={"eagle": "out of memory. The last lines"}), "eagle")


def test_unknown_names_are_answered_with_those_there_are(make_record: MakeRecord, plain: Arm, eagle: Arm) -> None:
    with pytest.raises(UsageError, match="expected one of plain, eagle"):
        choose(make_record(plain, eagle), "medusa")
    with pytest.raises(UsageError, match="expected one of c=1, c=4"):
        choose(make_record(plain, eagle), label="c=9")


def test_a_winner_whose_output_differs_is_not_served(make_record: MakeRecord, plain: Arm, eagle: Arm) -> None:
    record = make_record(plain, eagle)
    choice = choose(record, faulty=("eagle",))
    assert choice.arm is plain
    assert choice.notes[0] == "eagle is not considered: its output differs from plain's (breakeven equal)"
    asked = choose(record, "eagle", faulty=("eagle",))
    assert asked.arm is eagle
    assert asked.notes[0] == "eagle is not fit for use: its output differs from plain's (breakeven equal)"


def test_what_the_run_does_not_know_is_no_advice_against_an_arm(make_record: MakeRecord, plain: Arm) -> None:
    """The baseline is kept there for want of knowledge: "the run says to serve plain instead" would be more than it says."""
    same = replace(plain, name="same")
    choice = choose(make_record(plain, same, launches=1), "same")
    assert choice.notes == ("At c=1 and c=4 the run does not know whether same pays, and keeps plain until it does",)
    slow = replace(plain, name="slow", simulation={"step_s": 0.08})
    assert choose(make_record(plain, slow), "slow").notes == ("At c=1 and c=4 the run says to serve plain instead",)


def test_an_arm_on_kernels_of_no_release_is_not_served_as_its_engine(make_record: MakeRecord, plain: Arm, eagle: Arm) -> None:
    record = make_record(plain, eagle)
    record = replace(record, facts={"eagle": {"unreleased_kernels": "sgl_kernel is imported from elsewhere"}})
    assert any("not those of any release" in note for note in choose(record).notes)
    assert not any("release" in note for note in choose(record, "plain").notes)
