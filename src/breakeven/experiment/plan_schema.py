"""The schema of plan.yaml: every key at its top, its default and its meaning, and the combinations that make no sense.

`plan_sections`, `arm_plan`, `speculation_plan` and `curve_plan` hold the tables inside. Validators raise ValueError with a message
for the user; the file, the line and the key are put in front of it (`inputs/checking.py`).
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, Strict, ValidationError, field_validator, model_validator

from breakeven.engines.base import Arm, Speculation
from breakeven.experiment.arm_plan import ArmPlan, EngineName, ServingPlan
from breakeven.experiment.curve_plan import CurvePlan, curve_arms
from breakeven.experiment.objective import Objective, ObjectiveName
from breakeven.experiment.plan_sections import LaunchesPlan, LimitsPlan, LoadPlan, TrialPlan, WorkloadPlan
from breakeven.loadgen.samples import LoadPoint

__all__ = ["RUN_NAME", "Plan"]

MAX_NAME_LENGTH = 40
RUN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


class Plan(ServingPlan):
    """plan.yaml. After `load_plan` every model and file is an absolute path."""

    name: str = Field(description="Folder of the run under runs/ (default: the plan's folder)")
    target: str | None = Field(default=None, description="Model folder (relative to the plan), hub id, or demo:NAME")
    engine: EngineName = Field(default="local", description="Engine of every arm that names none")
    threshold: float = Field(default=0.03, gt=0.0, lt=1.0, description="Smallest relative difference that matters to you")
    objective: ObjectiveName = Field(
        default="throughput", description="What arms are judged by: throughput, request-speed or goodput (within limits)"
    )
    limits: LimitsPlan = Field(default_factory=LimitsPlan, description="What an answer must keep to count for goodput")
    baseline: str = Field(default="plain", description="Arm that the others are compared with")
    launches: LaunchesPlan = Field(default_factory=LaunchesPlan, description="Launches are what intervals count")
    max_running_requests: int = Field(default=8, ge=1, description="Admission limit, the same on every arm")
    dtype: str = Field(default="auto", description="auto, float32, bfloat16, ... as the engine spells it")
    context_length: int | None = Field(default=None, ge=2, description="Longest prompt and answer together, in tokens")
    num_threads: int | None = Field(default=None, ge=1, description="CPU threads of one server")
    seed: int = Field(default=0, ge=0, lt=2**31, description="Decides orders, arrivals and prompts")
    workload: WorkloadPlan = Field(default_factory=WorkloadPlan, description="What is asked")
    load: Annotated[tuple[LoadPlan, ...], Strict(False)] = Field(min_length=1, description="How many at once")
    trial: TrialPlan = Field(default_factory=TrialPlan, description="One measured window")
    side_by_side: bool | Literal["auto"] = Field(default="auto", description="Keep a block's servers alive together")
    arm_plans: dict[str, ArmPlan] = Field(alias="arms", min_length=1, description="The serving configurations that are compared")
    curve: CurvePlan | None = Field(default=None, description="Measure break-even accept lengths over batches and drafts")
    start_timeout_s: float = Field(default=300.0, gt=0.0, le=86400.0, description="How long a server may take to become ready")

    @model_validator(mode="before")
    @classmethod
    def _curve_arms(cls, content: Any) -> Any:
        """A curve stands for arms; those that a stored plan holds already, with their paths resolved, are kept."""
        if not isinstance(content, dict) or content.get("curve") is None:
            return content
        content = {**content, "curve": {} if content["curve"] is True else content["curve"]}
        arms = content.get("arms") or {"plain": None}
        try:
            stands_for = curve_arms(CurvePlan.model_validate(content["curve"]))
        except ValidationError:
            # reported where the key itself is read, with its line
            stands_for = {}
        return {**content, "arms": {**stands_for, **arms} if isinstance(arms, dict) else arms}

    @field_validator("name")
    @classmethod
    def _folder_name(cls, name: str) -> str:
        if not RUN_NAME.fullmatch(name):
            raise ValueError("expected letters, digits, dot, dash and underscore (64 at most), because it names a folder")
        return name

    @field_validator("arm_plans", mode="before")
    @classmethod
    def _empty_arms(cls, arms: Any) -> Any:
        # `plain:` with nothing after it reads as null
        return {name: {} if arm is None else arm for name, arm in arms.items()} if isinstance(arms, dict) else arms

    @field_validator("arm_plans")
    @classmethod
    def _arm_names(cls, arms: dict[str, ArmPlan]) -> dict[str, ArmPlan]:
        for name in arms:
            if not (0 < len(name) <= MAX_NAME_LENGTH and name.isprintable() and name == name.strip()):
                raise ValueError(f"arm name {name[:60]!a}: expected 1 to {MAX_NAME_LENGTH} printable characters")
        return arms

    @model_validator(mode="after")
    def _possible(self) -> Plan:
        if self.baseline not in self.arm_plans:
            raise ValueError(f"baseline is {self.baseline!r}, which is no arm; expected one of: {', '.join(self.arm_plans)}")
        if self.objective == "goodput" and self.limits == LimitsPlan():
            raise ValueError("objective goodput needs limits: ttft_s (first token), tpot_s (each further one), or both")
        labels = [load.label for load in self.loads()]
        doubled = next((label for label in labels if labels.count(label) > 1), None)
        if doubled:
            raise ValueError(f"load point {doubled} is listed twice; list it once and raise trial.repeats to measure it more often")
        forced = [arm.name for arm in self.arms() if arm.forced]
        if self.baseline in forced:
            raise ValueError(f"baseline {self.baseline!r} has a forced accept length; expected an arm that could be served")
        if forced and not self.workload.fixed_length:
            raise ValueError(
                f"arm {forced[0]!r} has a forced accept length, so its answers are junk that ends anywhere; "
                "set workload.fixed_length: true, so that every arm's answers have the same length"
            )
        self._check_arms()
        return self

    def _check_arms(self) -> None:
        highest = max((load.concurrency or 0 for load in self.load), default=0)
        for name, arm in self.arm_plans.items():
            engine = arm.engine or self.engine
            if (arm.simulation or None) and engine != "fake":
                raise ValueError(f"arm {name!r} has a simulation, which only engine fake takes; its engine is {engine}")
            if self.trial.reset_cache and arm.url is not None:
                raise ValueError(
                    f"trial.reset_cache cannot reach arm {name!r}: an attached server belongs to its users and is never changed; "
                    "remove the key, or serve the arms without a prefix cache"
                )
            if engine == "fake" and arm.url is not None:
                raise ValueError(f"arm {name!r}: engine fake has no servers, so no url; name the engine that answers there")
            if engine != "fake" and arm.url is None and self.target is None:
                raise ValueError(f"target is missing: arm {name!r} needs a model folder, a hub id or demo:NAME to serve")
            limit = self.max_running_requests if arm.max_running_requests is None else arm.max_running_requests
            if highest > limit and (arm.url is None or arm.max_running_requests is not None):
                raise ValueError(
                    f"load point c={highest} is above the max_running_requests of arm {name!r} ({limit}): requests would queue; "
                    f"raise max_running_requests to {highest} or lower the concurrency"
                )

    def judged_by(self) -> Objective:
        return Objective(name=self.objective, ttft_s=self.limits.ttft_s, tpot_s=self.limits.tpot_s)

    def loads(self) -> tuple[LoadPoint, ...]:
        """The load points with their workload, in the plan's order."""
        workload = self.workload
        return tuple(
            LoadPoint(
                concurrency=load.concurrency,
                rate_per_s=load.rate_per_s,
                max_tokens=workload.max_tokens,
                fixed_length=workload.fixed_length,
                temperature=workload.temperature,
                top_p=workload.top_p,
            )
            for load in self.load
        )

    def window_s(self, load: LoadPoint) -> float:
        """Seconds of the measured window at one of the plan's load points."""
        own = {point.label: plan.window_s for point, plan in zip(self.loads(), self.load, strict=True)}
        return own.get(load.label) or self.trial.window_s

    def trial_s(self, load: LoadPoint) -> float:
        """Seconds of one trial: warm-up and window."""
        return self.trial.warmup_s + self.window_s(load)

    def arms(self) -> tuple[Arm, ...]:
        """Every arm as engines take it, the baseline first, the others in the plan's order. The plan must be resolved."""
        names = sorted(self.arm_plans, key=lambda name: name != self.baseline)
        return tuple(self._arm(name, self.arm_plans[name]) for name in names)

    def _arm(self, name: str, arm: ArmPlan) -> Arm:
        speculation, drafting = None, arm.speculation
        if drafting is not None:
            speculation = Speculation(
                method=drafting.method,
                num_draft_tokens=drafting.num_draft_tokens,
                drafter=None if drafting.drafter is None else Path(drafting.drafter),
                forced_accept_length=drafting.forced_accept_length,
                ngram_max=drafting.ngram_max,
                ngram_min=drafting.ngram_min,
                topk=drafting.topk,
                num_steps=drafting.num_steps,
                schedule=drafting.schedule,
            )
        engine = arm.engine or self.engine
        return Arm(
            name=name,
            engine=engine,
            target=None if self.target is None else Path(self.target),
            served_name=arm.served_name,
            speculation=speculation,
            dtype=self.dtype,
            max_running_requests=self.max_running_requests if arm.max_running_requests is None else arm.max_running_requests,
            context_length=self.context_length,
            num_threads=self.num_threads,
            seed=self.seed,
            **self._serving(arm, engine),
            command=arm.command,
            extra_flags=arm.extra_flags,
            env=arm.env,
            url=arm.url,
            metrics_urls=arm.metrics_urls,
            api_key_env=arm.api_key_env,
            resets_cache=self.trial.reset_cache,
            simulation=arm.simulation,
        )

    def _serving(self, arm: ArmPlan, engine: str) -> dict[str, Any]:
        """The arm's keys of `ServingPlan`, else the plan's, which speak of its own engine; what neither says keeps its default."""
        sources = (arm, self) if engine == self.engine and not arm.command else (arm,)
        chosen: dict[str, Any] = {}
        for key in ServingPlan.model_fields:
            value = next((getattr(source, key) for source in sources if getattr(source, key) is not None), None)
            if value is not None:
                chosen[key] = Path(value) if key == "executable" else value
        return chosen
