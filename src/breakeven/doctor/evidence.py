"""Everything the doctor was given, as facts with their sources. Rules read it and nothing else.

Any part may be missing. A rule names the inputs it needs; `Evidence.has` says which are there, and what is not there is reported as
not checked, with what to provide.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Literal

from breakeven.checkpoints.folder import ModelFolder
from breakeven.doctor.drafter import Drafter
from breakeven.doctor.launch import Launch
from breakeven.doctor.observed import Observation, observations
from breakeven.doctor.start_up import StartUp
from breakeven.readers.reading import ReadResult
from breakeven.versions import Version

if TYPE_CHECKING:
    from breakeven.experiment.summary import RunSummary

__all__ = ["NEEDS", "Answers", "Evidence", "Need"]

Need = Literal[
    "draft", "target", "parent", "engine", "launch", "baseline", "readings", "run", "measured", "answers", "gpu-memory",
    "training-log", "run or answers", "start-up log", "launch alone", "other engine",
]  # fmt: skip
NEEDS: dict[Need, str] = {
    "draft": "--draft DIR",
    "target": "--target DIR",
    "parent": "--parent DIR, the drafter that this one was fine-tuned from",
    "engine": "--engine vllm|sglang (with --engine-version), or --launch",
    "launch": "--launch 'COMMAND', or --plan FILE --arm NAME",
    "baseline": "--plan FILE --arm NAME, which also says how the arm without speculation is launched",
    "readings": "--log FILE or --metrics FILE",
    "run": "--run RUN",
    "measured": "--log FILE, --metrics FILE or --run RUN",
    "answers": "--answers FILE of the served target (JSON lines), with --target for its tokenizer",
    "run or answers": "--run RUN, or --answers FILE",
    "gpu-memory": "--gpu-memory GIB of one device",
    "training-log": "--log FILE of the training",
    "start-up log": "--log FILE of a server that did not start",
    # in place of "launch", where a plan or a run was given and does not tell
    "launch alone": "--launch 'COMMAND' in place of --plan: how this arm was started is not known from its plan or run",
    "other engine": "an arm or a command that starts vLLM or SGLang: this arm's engine has none of their flags",
}


_FORCING = ("SGLANG_SIMULATE_ACC_LEN", "SIMULATE_ACC_LEN")
_COLLAPSES = ("accept-length-collapses", "accept-length-falls-after-cache-reuse")


@dataclass(frozen=True, slots=True, kw_only=True)
class Answers:
    """How often each token stands in the user's answers: token id -> count.

    looping_answers, looping_prompts: why some are no text, of `num_texts` answers and `num_prompts` prompts that are text."""

    source: str
    counts: Mapping[int, int]
    num_tokens: int
    num_texts: int = 0
    num_prompts: int = 0
    looping_answers: tuple[str, ...] = ()
    looping_prompts: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """log_facts: what the engine's start-up log states, in the words of `engines/*/facts.py`.
    starts: logs without an interval of decoding.
    training: what a trainer's log prints, by name (last value), such as tau_sim.
    gpu_memory_bytes: of one device.
    expected_length: accept length that the drafter's card, another server or the user names.
    arm_engine: engine of the plan's or run's arm, whatever it is; None where there is none."""

    draft: Drafter | None = None
    target: ModelFolder | None = None
    parent: Drafter | None = None
    engine: str | None = None
    version: Version | None = None
    version_source: str = ""
    launch: Launch | None = None
    baseline: Launch | None = None
    readings: ReadResult | None = None
    log_facts: Mapping[str, object] = field(default_factory=dict)
    run: RunSummary | None = None
    starts: tuple[StartUp, ...] = ()
    training: Mapping[str, float] = field(default_factory=dict)
    answers: Answers | None = None
    gpu_memory_bytes: int | None = None
    expected_length: float | None = None
    arm_engine: str | None = None

    def has(self, need: Need) -> bool:
        return {
            "draft": self.draft is not None,
            "target": self.target is not None,
            "parent": self.parent is not None,
            "engine": self.engine is not None,
            "launch": self.launch is not None,
            "baseline": self.baseline is not None,
            "readings": self.readings is not None,
            "run": self.run is not None,
            "measured": self.readings is not None or self.run is not None,
            "answers": self.answers is not None,
            "run or answers": self.run is not None or self.answers is not None,
            "gpu-memory": self.gpu_memory_bytes is not None,
            "training-log": bool(self.training),
            "start-up log": bool(self.starts),
            "launch alone": self.launch is not None,
            "other engine": self.launch is not None,
        }[need]

    def lacks(self, need: Need) -> Need:
        """What would bring a `need` that is not there: not a plan or a run again, where one was given and does not tell."""
        if need not in ("launch", "baseline") or self.launch is not None or self.arm_engine is None:
            return need
        return "other engine" if self.has_other_engine else "launch alone"

    @property
    def has_other_engine(self) -> bool:
        """The arm is served by an engine that the rules on flags and releases know nothing of."""
        return self.arm_engine is not None and self.arm_engine not in ("vllm", "sglang")

    @cached_property
    def observed(self) -> tuple[Observation, ...]:
        """Every server that was seen to draft with a model, from logs, metrics and the run; acceptance forced to order left out."""
        seen = observations(self.readings, self.run)
        # the run names its own forced arms, the launch speaks of the logs
        return tuple(one for one in seen if one.least is not None or not self.forced_by)

    @cached_property
    def forced_by(self) -> tuple[str, ...]:
        """What makes the served engine accept to order."""
        found = []
        if self.launch is not None:
            if self.launch.spec("rejection_sample_method").value == "synthetic":
                found.append(str(self.launch.spec("rejection_sample_method")))
            found += [f"{name}={self.launch.env[name]}" for name in _FORCING if self.launch.env.get(name)]
        if self.readings is not None:
            forced = (one.source for one in self.readings.readings if one.settings.get("rejection_sample_method") == "synthetic")
            found += [f"{source}: rejection_sample_method is synthetic" for source in forced]
        return tuple(found)

    @cached_property
    def has_collapse(self) -> bool:
        """Some log, or one among several, lies far below its neighbours: then levels are those of a mixture."""
        if self.readings is None:
            return False
        findings = [*self.readings.findings, *(finding for one in self.readings.readings for finding in one.findings)]
        return any(finding.code in _COLLAPSES for finding in findings)

    @cached_property
    def engines(self) -> tuple[str, ...]:
        """The engine, or both where it is not known: what may bite under either is worth saying."""
        return (self.engine,) if self.engine is not None else ("vllm", "sglang")

    @property
    def engine_text(self) -> str:
        """The engine with its release, as messages name it."""
        name = {"vllm": "vLLM", "sglang": "SGLang"}.get(self.engine or "", "the engine")
        return f"{name} {self.version}" if self.version is not None else name
