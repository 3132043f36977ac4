"""Answers of a plan's arms to the same prompts at temperature 0: each plain arm twice, in batches of different shape, others once.

Arms are launched one after the other, plain ones at both ends, so that what differs from launch to launch shows in plain against
itself as well. Answers are kept as they come (`kept_answers`): killed at any moment, the same call goes on.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from breakeven.engines.base import Arm
from breakeven.engines.ledger import LaunchLedger, end_leftovers
from breakeven.engines.registry import get_engine
from breakeven.errors import EngineDied, LaunchError
from breakeven.experiment import events
from breakeven.experiment.events import ArmFailed, Launching, Note, Ready, Tell
from breakeven.experiment.kept_answers import KeptAnswers
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

__all__ = ["Answered", "Asked", "Asking", "collect_answers", "what_to_ask"]

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
    """Launch, ask, end, arm by arm; None where a signal ended it. Nothing is left running, and what is answered is not asked again.

    Raises:
        BreakevenError: for what can be seen before anything is launched.
        StoreError: the run's folder is in use, was begun with another plan, or has no room; answers were asked for otherwise.
        EngineError: processes could not be ended.
    """
    import uvloop

    chosen = {arm.name: arm for arm in plan.arms() if arm.name in {*asking.references, *asking.references.values()}}
    check_arms(list(chosen.values()))
    check_plan(folder, plan)
    check_disk(folder)
    provenance = collect_provenance(list(chosen.values()))
    fingerprints = {key: value for key, value in provenance.items() if key.endswith(".fingerprint")}
    configurations = {name: _configuration(arm, fingerprints) for name, arm in chosen.items()}
    (folder / "logs").mkdir(parents=True, exist_ok=True)
    with ExitStack() as closing:
        closing.enter_context(RunLock(folder))
        end_leftovers(folder)
        kept = closing.enter_context(KeptAnswers(folder, max_tokens=asking.asked.max_tokens, concurrency=asking.asked.concurrency))
        for name, configuration in configurations.items():
            kept.check(name, configuration)
        if make_live is None:
            make_live = _live_arms(plan, asking.asked, folder, closing)
        collecting = _Collecting(asking, chosen, configurations, kept, make_live, tell)
        done = uvloop.run(until_signalled(collecting.all(), collecting.on_signal))
        if done is None:
            return None
        facts = {name: found for name in chosen if (found := kept.facts(name)) is not None}
        return Answered(passes=collecting.passes(), failed=collecting.failed, facts=facts, fingerprints=fingerprints)


class _Collecting:
    def __init__(
        self,
        asking: Asking,
        arms: Mapping[str, Arm],
        configurations: Mapping[str, Mapping[str, Any]],
        kept: KeptAnswers,
        make_live: MakeAnswering,
        tell: Tell,
    ) -> None:
        self._asking, self._arms, self._configurations = asking, arms, configurations
        self._kept, self._make_live, self._tell = kept, make_live, tell
        self.failed: dict[str, str] = {}

    async def all(self) -> bool:
        self._say_what_is_kept()
        for reference in dict.fromkeys(self._asking.references.values()):
            mine = [arm for arm, other in self._asking.references.items() if other == reference]
            await self._ask(reference, 1)
            if reference not in self.failed:
                for arm in mine:
                    await self._ask(arm, 1)
                if any(arm not in self.failed for arm in mine):
                    await self._ask(reference, 2)
        return True

    def passes(self) -> dict[str, list[list[GreedyAnswer]]]:
        """Those that are whole, of each arm, in the order of the prompts."""
        found: dict[str, list[list[GreedyAnswer]]] = {}
        for name in self._arms:
            for number in (1, 2):
                answers = [self._kept.answer(name, number, prompt) for prompt in self._asking.asked.prompts]
                there = [answer for answer in answers if answer is not None]
                if len(there) == len(answers):
                    found.setdefault(name, []).append(there)
        return found

    def on_signal(self, _number: int, again: bool) -> None:
        self._tell(Note(text="Already stopping: waiting for the server to end" if again else "Stopping: ending the server"))

    def _say_what_is_kept(self) -> None:
        asked = [(arm, 1) for arm in self._arms] + [(arm, 2) for arm in dict.fromkeys(self._asking.references.values())]
        wanted = len(asked) * len(self._asking.asked.prompts)
        missing = sum(len(self._missing(*which)) for which in asked)
        if not missing:
            self._tell(Note(text="All of this has been answered: nothing is asked again, here is the result (--fresh asks anew)"))
        elif missing < wanted:
            text = f"Going on with {self._kept.file}: {wanted - missing} of {wanted} answers are kept from an earlier start"
            self._tell(Note(text=text))

    def _missing(self, name: str, number: int) -> list[Prompt]:
        """Prompts that the pass still lacks, in its order: another one for the second pass, for batches of other shapes."""
        order = list(self._asking.asked.prompts)
        if number == 2:
            random.Random(self._asking.asked.seed).shuffle(order)
        return [prompt for prompt in order if self._kept.answer(name, number, prompt) is None]

    async def _ask(self, name: str, number: int) -> None:
        """What a pass of an arm still lacks, in a launch of its own. An arm that cannot be asked is left out with the reason."""
        asked, missing = self._asking.asked, self._missing(name, number)
        if not missing:
            return
        live = self._make_live(self._arms[name])
        num_done = len(asked.prompts) - len(missing)

        def on_answer(prompt: Prompt, answer: GreedyAnswer) -> None:
            nonlocal num_done
            num_done += 1
            self._kept.add(name, number, prompt, answer)
            self._tell(events.Answering(arm=name, num_done=num_done, total=len(asked.prompts)))

        try:
            began_s = time.monotonic()
            self._tell(Launching(arm=name, block=number - 1, elapsed_s=0.0))
            facts = await live.start(
                self._kept.next_launch(name, number),
                lambda elapsed_s, line: self._tell(Launching(arm=name, block=number - 1, elapsed_s=elapsed_s, line=line)),
            )
            if odd := self._kept.launched(name, number, self._configurations[name], facts):
                raise LaunchError(
                    f"arm {name}: {odd}; serve what was served then to go on, or ask everything again with breakeven equal --fresh"
                )
            self._tell(Ready(arm=name, block=number - 1, after_s=time.monotonic() - began_s))
            await live.answer(
                missing,
                max_tokens=asked.max_tokens,
                # half the load when plain is asked again
                concurrency=asked.concurrency if number == 1 else max(1, asked.concurrency // 2),
                seed=number - 1,
                on_answer=on_answer,
            )
        except (LaunchError, EngineDied) as error:
            self.failed[name] = str(error)
            self._tell(ArmFailed(arm=name, message=str(error)))
        finally:
            await live.stop()


def _configuration(arm: Arm, fingerprints: Mapping[str, str]) -> Mapping[str, Any]:
    """How an arm is served and of which models, as JSON: what its answers depend on."""
    models = ("target.fingerprint", f"drafter of {arm.name}.fingerprint")
    mine = {key: fingerprints[key] for key in models if key in fingerprints}
    return {**orjson.loads(orjson.dumps(arm, default=str)), **mine}


def _live_arms(plan: Plan, asked: Asked, folder: Path, closing: ExitStack) -> MakeAnswering:
    questions = Questions.of(plan, asked.prompts)
    ledger: LaunchLedger | None = None

    def make_live(arm: Arm) -> Answering:
        nonlocal ledger
        if arm.engine == "fake":
            return SimulatedArm(arm, seed=plan.seed, window_s=plan.window_s)
        engine = get_engine(arm.engine)
        if arm.url is not None:
            return AttachedArm(arm, engine, questions)
        if ledger is None:
            ledger = closing.enter_context(LaunchLedger(folder))
        return LaunchedArm(arm, engine, questions, ledger=ledger, logs=folder / "logs", timeout_s=plan.start_timeout_s)

    return make_live
