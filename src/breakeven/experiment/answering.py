"""Answers of a plan's arms to the same prompts at temperature 0: each plain arm twice, in batches of different shape, others once.

Arms are launched one after the other, plain ones at both ends, so that what differs from launch to launch shows in plain against
itself as well.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import orjson

from breakeven.engines.base import Arm
from breakeven.engines.ledger import LaunchLedger, end_leftovers
from breakeven.engines.registry import get_engine
from breakeven.errors import EngineDied, LaunchError
from breakeven.experiment import events
from breakeven.experiment.events import ArmFailed, Launching, Note, Ready, Tell
from breakeven.experiment.live import Answering, SimulatedArm
from breakeven.experiment.measure import check_arms, check_disk, run_prompts
from breakeven.experiment.plan_schema import Plan
from breakeven.experiment.provenance import collect_provenance
from breakeven.experiment.run_lock import RunLock
from breakeven.experiment.served import AttachedArm, LaunchedArm, Questions
from breakeven.experiment.signalled import until_signalled
from breakeven.experiment.stored_run import check_plan
from breakeven.loadgen.answers import GreedyAnswer
from breakeven.loadgen.prompts import prompt_sequence
from breakeven.loadgen.samples import Prompt
from breakeven.whole import write_whole

__all__ = ["FOLDER", "Answered", "Asked", "Asking", "collect_answers", "what_to_ask"]

FOLDER = "equality"
FORCED = "it accepts drafts to order, so its answers are junk by design"
NO_PLAIN = "no plain arm of the same engine to compare it with"

MakeAnswering = Callable[[Arm], Answering]


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What every arm is asked. `concurrency` requests at once, and half as many when plain is asked again."""

    prompts: Sequence[Prompt]
    max_tokens: int
    concurrency: int
    seed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Asking:
    """`references` says for each arm with speculation which plain arm it is held against; `left_out` why others are not."""

    asked: Asked
    references: Mapping[str, str]
    left_out: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """`passes` of each arm, in the order of the prompts: two of a plain arm, one of others. `failed` says why an arm has none.

    `facts` are what the engines said of themselves, `fingerprints` those of the models, as in a run's provenance.
    """

    passes: Mapping[str, Sequence[Sequence[GreedyAnswer]]]
    failed: Mapping[str, str]
    facts: Mapping[str, Mapping[str, object]]
    fingerprints: Mapping[str, str] = field(default_factory=dict)


def what_to_ask(plan: Plan, *, num_prompts: int, max_tokens: int | None = None) -> Asking:
    """Prompts, and who is held against whom. Every prompt once: a repeated one would tell nothing new.

    Raises:
        PromptsError: there are none.
    """
    prompts = run_prompts(plan)
    in_order = prompt_sequence(prompts, plan.seed)
    chosen = [next(in_order) for _ in range(min(num_prompts, len(prompts)))]
    highest = max((load.concurrency or 0 for load in plan.load), default=0) or plan.max_running_requests
    arms = plan.arms()
    plain = [arm for arm in arms if arm.speculation is None]
    references, left_out = {}, {}
    for arm in arms:
        if arm.speculation is None:
            continue
        reference = next((other for other in plain if other.engine == arm.engine), None)
        if arm.forced:
            left_out[arm.name] = FORCED
        elif reference is None:
            left_out[arm.name] = NO_PLAIN
        else:
            references[arm.name] = reference.name
    asked = Asked(
        prompts=chosen,
        max_tokens=max_tokens or plan.workload.max_tokens,
        # two at least, so that half as many is another batch
        concurrency=max(min(highest, plan.max_running_requests), min(2, plan.max_running_requests)),
        seed=plan.seed,
    )
    return Asking(asked=asked, references=references, left_out=left_out)


def collect_answers(
    plan: Plan, folder: Path, asking: Asking, tell: Tell, *, make_live: MakeAnswering | None = None
) -> Answered | None:
    """Launch, ask, end, arm by arm; None where a signal ended it. Nothing is left running.

    Raises:
        BreakevenError: for what can be seen before anything is launched.
        StoreError: the run's folder is in use, was begun with another plan, or has no room.
        EngineError: processes could not be ended.
    """
    import uvloop

    chosen = {arm.name: arm for arm in plan.arms() if arm.name in {*asking.references, *asking.references.values()}}
    check_arms(list(chosen.values()))
    check_plan(folder, plan)
    check_disk(folder)
    (folder / "logs").mkdir(parents=True, exist_ok=True)
    with ExitStack() as closing:
        closing.enter_context(RunLock(folder))
        end_leftovers(folder)
        if make_live is None:
            make_live = _live_arms(plan, asking.asked, folder, closing)
        collecting = _Collecting(asking, chosen, make_live, tell)
        done = uvloop.run(until_signalled(collecting.all(), collecting.on_signal))
    if done is None:
        return None
    provenance = collect_provenance(list(chosen.values()))
    fingerprints = {key: value for key, value in provenance.items() if key.endswith(".fingerprint")}
    answered = Answered(passes=collecting.passes, failed=collecting.failed, facts=collecting.facts, fingerprints=fingerprints)
    _keep(folder, answered)
    return answered


class _Collecting:
    def __init__(self, asking: Asking, arms: Mapping[str, Arm], make_live: MakeAnswering, tell: Tell) -> None:
        self._asking, self._arms, self._make_live, self._tell = asking, arms, make_live, tell
        self.passes: dict[str, list[list[GreedyAnswer]]] = {}
        self.failed: dict[str, str] = {}
        self.facts: dict[str, Mapping[str, object]] = {}

    async def all(self) -> bool:
        for reference in dict.fromkeys(self._asking.references.values()):
            mine = [arm for arm, other in self._asking.references.items() if other == reference]
            await self._ask(reference, 0)
            if reference not in self.failed:
                for arm in mine:
                    await self._ask(arm, 0)
                if any(arm not in self.failed for arm in mine):
                    await self._ask(reference, 1)
        return True

    def on_signal(self, _number: int, again: bool) -> None:
        self._tell(Note(text="Already stopping: waiting for the server to end" if again else "Stopping: ending the server"))

    async def _ask(self, name: str, number: int) -> None:
        """One pass of one arm, in a launch of its own. An arm that cannot be asked is left out with the reason."""
        asked = self._asking.asked
        live = self._make_live(self._arms[name])
        # another order and half the load: batches of other shapes
        order = list(range(len(asked.prompts)))
        concurrency = asked.concurrency
        if number:
            random.Random(asked.seed).shuffle(order)
            concurrency = max(1, concurrency // 2)
        try:
            began_s = time.monotonic()
            self._tell(Launching(arm=name, block=number, elapsed_s=0.0))
            self.facts[name] = await live.start(
                f"equal/{name}/{number + 1}",
                lambda elapsed_s, line: self._tell(Launching(arm=name, block=number, elapsed_s=elapsed_s, line=line)),
            )
            self._tell(Ready(arm=name, block=number, after_s=time.monotonic() - began_s))
            answers = await live.answer(
                [asked.prompts[place] for place in order],
                max_tokens=asked.max_tokens,
                concurrency=concurrency,
                seed=number,
                on_answer=lambda done: self._tell(events.Answering(arm=name, num_done=done, total=len(order))),
            )
            in_order = sorted(zip(order, answers, strict=True), key=lambda pair: pair[0])
            self.passes.setdefault(name, []).append([answer for _, answer in in_order])
        except (LaunchError, EngineDied) as error:
            self.failed[name] = str(error)
            self._tell(ArmFailed(arm=name, message=str(error)))
        finally:
            await live.stop()


def _live_arms(plan: Plan, asked: Asked, folder: Path, closing: ExitStack) -> MakeAnswering:
    questions = Questions(prompts=asked.prompts, trial=plan.trial, seed=plan.seed)
    ledger: LaunchLedger | None = None

    def make_live(arm: Arm) -> Answering:
        nonlocal ledger
        if arm.engine == "fake":
            return SimulatedArm(arm, seed=plan.seed, window_s=plan.trial.window_s)
        engine = get_engine(arm.engine)
        if arm.url is not None:
            return AttachedArm(arm, engine, questions)
        if ledger is None:
            ledger = closing.enter_context(LaunchLedger(folder))
        return LaunchedArm(arm, engine, questions, ledger=ledger, logs=folder / "logs", timeout_s=plan.start_timeout_s)

    return make_live


def _keep(folder: Path, answered: Answered) -> None:
    """Every answer as one line of JSON: texts and tokens are other people's, and JSON is the only thing they can be."""
    (folder / FOLDER).mkdir(exist_ok=True)
    lines = [
        orjson.dumps({"arm": arm, "pass": number, **_row(answer)}).decode()
        for arm, passes in answered.passes.items()
        for number, answers in enumerate(passes, start=1)
        for answer in answers
    ]
    write_whole(folder / FOLDER / "answers.jsonl", "".join(f"{line}\n" for line in lines))


def _row(answer: GreedyAnswer) -> dict[str, object]:
    return {
        "prompt": answer.prompt_id,
        "text": answer.text,
        "tokens": answer.tokens,
        "token_ids": answer.token_ids,
        "alternatives": answer.alternatives,
        "finish_reason": answer.finish_reason,
        "degenerate": answer.degenerate,
        "error": answer.error,
    }
