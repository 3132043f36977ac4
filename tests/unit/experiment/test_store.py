"""Trials come back as they went in, whatever happens to the process, the disk or the file."""

from __future__ import annotations

import os
import resource
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from breakeven.acceptance import Acceptance
from breakeven.engines.base import Counters
from breakeven.errors import StoreError
from breakeven.experiment import store_schema
from breakeven.experiment.plan import Plan
from breakeven.experiment.run_folder import DATABASE
from breakeven.experiment.samples_codec import StoredSamples, decode_samples, encode_samples
from breakeven.experiment.store import RunStore
from breakeven.experiment.stored_run import read_run, stored_plan
from breakeven.experiment.trial import Trial
from breakeven.loadgen.samples import ClientHealth, LoadPoint, RequestSample, Void

SAMPLES = (
    RequestSample(
        index=0, prompt_id="chat-1", kind="chat", scheduled_s=-1.5, start_s=-1.499, first_token_s=-0.25, end_s=3.000001,
        prompt_tokens=12, output_tokens=9, finish_reason="length", arrivals=((-0.25, 1), (0.5, 4), (3.0, 9)), staggered=True,
    ),
    RequestSample(
        index=1, prompt_id="línea\n2", kind="code", scheduled_s=0.1, start_s=0.1, first_token_s=None, end_s=9.0,
        prompt_tokens=None, output_tokens=0, finish_reason=None, arrivals=(), error="HTTP 500", degenerate=None,
    ),
    RequestSample(
        index=2, prompt_id="x", kind="code", scheduled_s=5000.0, start_s=5000.0, first_token_s=5000.1, end_s=5001.0,
        prompt_tokens=1, output_tokens=2_000_000, finish_reason="stop", arrivals=((5000.1, 2_000_000),), degenerate="loop: a",
    ),
)  # fmt: skip


def make_trial(arm: str = "plain", *, block: int = 0, repeat: int = 0, launch: str = "", **changes: object) -> Trial:
    acceptance = Acceptance(num_steps=10, num_rounds=9, num_drafted=27, num_accepted=13, accepted_per_position=(7, 4, 2))
    before = Counters(time_s=1.0, prompt_tokens=3, generation_tokens=5, num_running=1, num_waiting=0)
    trial = Trial(
        arm=arm,
        load=LoadPoint(concurrency=1, max_tokens=32, fixed_length=True),
        block=block,
        launch=launch,
        order=3,
        repeat=repeat,
        started_at_unix_s=1.7e9,
        window_s=10.0,
        samples=SAMPLES,
        health=ClientHealth(loop_lag_p99_s=0.001, dispatch_delay_p99_s=0.002, cpu_share=0.1),
        counters=(before, replace(before, time_s=11.0, num_requests=4, acceptance=acceptance)),
    )
    return replace(trial, **changes)  # type: ignore[arg-type]


@pytest.fixture
def plan(make_plan: Callable[..., Plan]) -> Plan:
    return make_plan()


@pytest.fixture
def store(tmp_path: Path, plan: Plan) -> Iterator[RunStore]:
    with RunStore(tmp_path / "run", plan) as store:
        yield store


def test_samples_survive_packing() -> None:
    requests, arrivals = encode_samples(SAMPLES)
    assert tuple(decode_samples(requests, arrivals)) == SAMPLES
    stored = StoredSamples(3, requests, arrivals)
    assert (len(stored), stored[1], list(stored[1:])) == (3, SAMPLES[1], list(SAMPLES[1:]))
    assert decode_samples(*encode_samples(())) == []
    reported = replace(SAMPLES[0], speculation={"spec_verify_ct": 3, "histogram": [1, 2]})
    assert decode_samples(*encode_samples([reported])) == [reported]
    with pytest.raises(ValueError, match="no table"):
        decode_samples(*encode_samples([replace(SAMPLES[0], speculation=[1])]))


def test_many_arrivals_take_few_bytes() -> None:
    arrivals = tuple((0.02 * n + 0.000_1 * (n % 7), n + 1) for n in range(20_000))
    sample = replace(SAMPLES[0], arrivals=arrivals)
    requests, packed = encode_samples([sample])
    [back] = decode_samples(requests, packed)
    assert max(abs(a - b) for (a, _), (b, _) in zip(back.arrivals, arrivals, strict=True)) < 1e-6
    assert [tokens for _, tokens in back.arrivals] == [tokens for _, tokens in arrivals]
    assert len(packed) < 4 * len(arrivals)


@pytest.mark.parametrize("damage", [lambda blob: blob[:-9], lambda blob: b"", lambda blob: blob[:20] + b"\0\0" + blob[22:]])
def test_damaged_samples_are_an_error_of_ours(damage: Callable[[bytes], bytes]) -> None:
    requests, arrivals = encode_samples(SAMPLES)
    for pair in ((damage(requests), arrivals), (requests, damage(arrivals))):
        with pytest.raises(StoreError, match="the samples of a trial are damaged"):
            list(StoredSamples(3, *pair))


def test_a_trial_comes_back_whole(store: RunStore, plan: Plan) -> None:
    store.begin({"cpu": "a fast one"})
    launch = store.open_launch("plain", 0, "serve --port 1")
    store.launch_ready(launch, 1.5, {"dtype": "float32"})
    given = make_trial(launch=launch, voids=(Void(code="errors", detail="3 of 4"),))
    store.add_trial(given)
    store.add_trial(make_trial(launch=launch, attempt=1, counters=None))
    store.add_failure("eagle", "it died", ("last line",))
    record = read_run(store.folder)
    first, second = record.trials
    assert replace(first, samples=tuple(first.samples)) == given
    assert (second.counters, second.attempt, second.valid, first.valid) == (None, 1, True, False)
    assert (record.name, record.baseline, record.min_launches, record.provenance) == ("small", "plain", 2, {"cpu": "a fast one"})
    assert record.arms == plan.arms()
    assert record.loads == plan.loads()
    assert record.failures == {"eagle": "it died"}
    assert record.interrupted
    store.finish()
    assert not read_run(store.folder / DATABASE).interrupted


def test_no_trial_is_doubled(store: RunStore) -> None:
    launch = store.open_launch("plain", 0, "")
    store.add_trial(make_trial(launch=launch))
    with pytest.raises(StoreError):
        store.add_trial(make_trial(launch=launch))
    with pytest.raises(StoreError):
        store.add_trial(make_trial(launch=launch, attempt=1))
    void = make_trial(launch=launch, attempt=2, voids=(Void(code="errors", detail=""),))
    store.add_trial(void)
    with pytest.raises(StoreError):
        store.add_trial(void)
    assert len(store.record().trials) == 2


def test_launches_get_ids_of_their_own_and_open_ones_are_closed_at_the_next_start(tmp_path: Path, plan: Plan) -> None:
    with RunStore(tmp_path / "run", plan) as store:
        assert [store.open_launch("plain", block, "") for block in (0, 0, 1)] == ["plain/1", "plain/1.2", "plain/2"]
        store.close_launch("plain/1", "finished")
        assert [store.open_launch("far", block, "", attached=True) for block in (0, 1)] == ["far/attached"] * 2
        store.close_launch("far/attached", "finished")
    with RunStore(tmp_path / "run", plan):
        pass
    rows = sqlite3.connect(tmp_path / "run" / DATABASE).execute("SELECT id, end_reason FROM launches ORDER BY id").fetchall()
    assert rows == [("far/attached", "finished"), ("plain/1", "finished"), ("plain/1.2", "killed"), ("plain/2", "killed")]


def test_a_run_goes_on_with_its_own_plan_only(tmp_path: Path, make_plan: Callable[..., Plan]) -> None:
    folder = tmp_path / "run"
    assert stored_plan(folder) is None
    with RunStore(folder, make_plan()):
        pass
    with RunStore(folder, make_plan(launches="{min: 2, max: 9}")) as store:
        assert store.record().max_launches == 9
    assert stored_plan(folder) == make_plan(launches="{min: 2, max: 9}")
    with (
        pytest.raises(StoreError, match=r"was begun with another plan:\n  threshold: 0.03 -> 0.1"),
        RunStore(folder, make_plan("threshold: 0.1")),
    ):
        pass
    assert "threshold: 0.03" in (folder / "plan.yaml").read_text()


def test_a_changed_model_is_noticed(store: RunStore) -> None:
    store.begin({"target.fingerprint": "aaa", "cpu": "one"})
    store.begin({"target.fingerprint": "aaa", "cpu": "another"})
    assert store.record().provenance["cpu"] == "one"
    with pytest.raises(StoreError, match=r"target has changed since this run began \(aaa -> bbb\)"):
        store.begin({"target.fingerprint": "bbb"})


def test_a_new_start_gives_failed_arms_another_chance(store: RunStore) -> None:
    store.add_failure("eagle", "it died")
    store.finish()
    assert not store.is_finished()
    store.begin({})
    assert store.record().failures == {}
    assert not store.is_finished()
    store.finish()
    assert store.is_finished()


def test_a_larger_budget_reopens_a_finished_run(tmp_path: Path, make_plan: Callable[..., Plan]) -> None:
    with RunStore(tmp_path / "run", make_plan()) as store:
        store.finish()
    with RunStore(tmp_path / "run", make_plan(launches="{min: 2, max: 3}")) as store:
        assert not store.is_finished()


HOLD = """
import sys, time
from pathlib import Path
from breakeven.experiment.run_lock import RunLock
with RunLock(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""


def test_two_at_once_are_refused_and_a_killed_holder_is_forgotten(tmp_path: Path, plan: Plan) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    holder = subprocess.Popen([sys.executable, "-c", HOLD, str(folder)], stdout=subprocess.PIPE)
    try:
        assert holder.stdout is not None
        with holder.stdout:
            assert holder.stdout.readline() == b"held\n"
        with pytest.raises(StoreError, match=f"process {holder.pid} is measuring this run"), RunStore(folder, plan):
            pass
    finally:
        os.kill(holder.pid, signal.SIGKILL)
        holder.wait()
    with RunStore(folder, plan):
        pass


def test_newer_and_older_schemas_get_different_advice_and_are_not_touched(
    tmp_path: Path, plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "run"
    with RunStore(folder, plan):
        pass
    set_version(folder, 99)
    before = (folder / DATABASE).read_bytes()
    for attempt in (lambda: RunStore(folder, plan).__enter__(), lambda: read_run(folder)):
        with pytest.raises(StoreError, match=r"written by a newer Breakeven \(schema 99.*upgrade Breakeven"):
            attempt()
    assert (folder / DATABASE).read_bytes() == before
    set_version(folder, 1)
    monkeypatch.setattr(store_schema, "SCHEMA_VERSION", 2)
    for attempt in (lambda: RunStore(folder, plan).__enter__(), lambda: read_run(folder)):
        with pytest.raises(StoreError, match=r"schema 1 is too old.*measure again with --fresh"):
            attempt()


def set_version(folder: Path, version: int) -> None:
    connection = sqlite3.connect(folder / DATABASE)
    connection.execute(f"PRAGMA user_version = {version}")
    connection.commit()
    connection.close()


def test_upgrades_run_one_step_after_the_other(tmp_path: Path, plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "run"
    with RunStore(folder, plan):
        pass
    steps = []

    def step_from(version: int) -> Callable[[sqlite3.Connection], None]:
        def upgrade(connection: sqlite3.Connection) -> None:
            steps.append(version)
            connection.execute(f"ALTER TABLE launches ADD COLUMN added_{version} TEXT")

        return upgrade

    monkeypatch.setattr(store_schema, "SCHEMA_VERSION", 3)
    monkeypatch.setattr(store_schema, "UPGRADES", {1: step_from(1), 2: step_from(2)})
    read_run(folder)
    assert steps == [1, 2]
    connection = sqlite3.connect(folder / DATABASE)
    assert connection.execute("PRAGMA user_version").fetchone() == (3,)
    connection.close()
    with RunStore(folder, plan):
        pass
    assert steps == [1, 2]


@pytest.mark.parametrize("column", ["load_point", "health", "counters", "voids"])
@pytest.mark.parametrize("content", ["[]", "[1, 2]", "[null, null]", "[{}]", "{", "null", "1", "x"])
def test_columns_damaged_into_anything(tmp_path: Path, plan: Plan, column: str, content: str) -> None:
    with RunStore(tmp_path, plan) as store:
        store.add_trial(make_trial(launch=store.open_launch("plain", 0, "")))
    connection = sqlite3.connect(tmp_path / DATABASE)
    with connection:
        connection.execute(f"UPDATE trials SET {column} = ?", (content,))
    connection.close()
    # "null" is what a trial without counters has, "[]" one without voids
    if (column, content) in {("counters", "null"), ("voids", "[]")}:
        assert len(read_run(tmp_path).trials) == 1
        return
    with pytest.raises(StoreError, match="damaged"):
        read_run(tmp_path)


@pytest.mark.parametrize(
    ("column", "content"),
    [("window_s", 0), ("window_s", -1), ("window_s", float("inf"))]
    + [(column, "x") for column in ("window_s", "started_at_unix_s", "block", "repeat", "attempt", "place")]
    + [("arm", b"\xff"), ("num_requests", -1)],
)
def test_a_trial_that_cannot_have_been(tmp_path: Path, plan: Plan, column: str, content: object) -> None:
    with RunStore(tmp_path, plan) as store:
        store.add_trial(make_trial(launch=store.open_launch("plain", 0, "")))
    connection = sqlite3.connect(tmp_path / DATABASE)
    with connection:
        connection.execute(f"UPDATE trials SET {column} = ?", (content,))
    connection.close()
    with pytest.raises(StoreError, match="damaged"):
        read_run(tmp_path)


def test_what_is_no_run_or_damaged(tmp_path: Path, plan: Plan) -> None:
    with pytest.raises(StoreError, match=r"holds no run\.sqlite; expected the folder of a run"):
        read_run(tmp_path)
    other = tmp_path / "other.sqlite"
    connection = sqlite3.connect(other)
    connection.execute("CREATE TABLE t (x)")
    connection.close()
    with pytest.raises(StoreError, match=r"not a run of Breakeven"):
        read_run(other)
    text = tmp_path / "text.sqlite"
    text.write_text("this is no database" * 100)
    with pytest.raises(StoreError, match="not a run: it is no SQLite database; expected the folder that breakeven bench wrote"):
        read_run(text)
    folder = tmp_path / "run"
    with RunStore(folder, plan) as store:
        launch = store.open_launch("plain", 0, "")
        for repeat in range(50):
            store.add_trial(make_trial(launch=launch, repeat=repeat))
    file = folder / DATABASE
    data = file.read_bytes()
    file.write_bytes(data[:4096] + b"\xa5" * (len(data) - 4096))
    with pytest.raises(StoreError, match="damaged"):
        read_run(folder)
    file.write_bytes(b"")
    with pytest.raises(StoreError, match="its run was ended before it began"):
        read_run(folder)


def test_a_start_killed_between_creating_and_filling_is_taken_over(tmp_path: Path, plan: Plan) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / DATABASE).write_bytes(b"")
    with RunStore(folder, plan) as store:
        assert store.record().trials == []


def test_full_disk_loses_nothing(store: RunStore) -> None:
    """A limit on file sizes makes writes fail as a full disk does, without filling one."""
    launch = store.open_launch("plain", 0, "")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, limits[1]))
        with pytest.raises(StoreError, match=r"the disk is full.*MB free\); make room and run the same command"):
            add_trials(store, launch, 10_000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    repeat = len(store.record().trials)
    assert repeat > 3
    assert [trial.repeat for trial in store.record().trials] == list(range(repeat))
    store.add_trial(make_trial(launch=launch, repeat=repeat))
    assert len(read_run(store.folder).trials) == repeat + 1


def test_sqlite_full_is_explained_too(store: RunStore) -> None:
    launch = store.open_launch("plain", 0, "")
    pages = store._connection.execute("PRAGMA page_count").fetchone()[0]
    store._connection.execute(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(StoreError, match="the disk is full"):
        add_trials(store, launch, 1000)


def add_trials(store: RunStore, launch: str, num_trials: int) -> None:
    for repeat in range(num_trials):
        store.add_trial(make_trial(launch=launch, repeat=repeat))


def test_a_place_that_cannot_be_written(tmp_path: Path, plan: Plan) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError), RunStore(tmp_path / "file" / "run", plan):
        pass


KILLED_WHILE_WRITING = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
import test_store
from breakeven.experiment.plan import parse_plan
from breakeven.experiment.store import RunStore
plan = parse_plan("name: k\\nengine: fake\\nload: [{concurrency: 1}]\\narms: {plain: {}}\\n", "p")
with RunStore(Path(sys.argv[1]), plan) as store:
    launch = store.open_launch("plain", 0, "")
    for repeat in range(100000):
        store.add_trial(test_store.make_trial(launch=launch, repeat=repeat))
        print(repeat, flush=True)
"""


def test_kill_9_while_writing_keeps_every_trial_that_was_reported(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    command = [sys.executable, "-c", KILLED_WHILE_WRITING, str(folder), str(Path(__file__).parent)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    with process.stdout:
        reported = [int(process.stdout.readline()) for _ in range(40)]
        process.send_signal(signal.SIGKILL)
        reported += [int(line) for line in process.stdout.read().split()]
    process.wait()
    kept = [trial.repeat for trial in read_run(folder).trials]
    assert kept[: len(reported)] == reported
    assert len(kept) <= len(reported) + 1
    assert all(len(list(trial.samples)) == len(SAMPLES) for trial in read_run(folder).trials)
