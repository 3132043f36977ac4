"""The schema of plan.yaml: every key, its default and its meaning, and the combinations that make no sense.

Strict about types ("8" is not a number) and about names: a key that is not listed here is an error, never ignored. Validators
raise ValueError with a message for the user; `plan.py` puts the file, the line and the key in front of it.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, Strict, ValidationError, field_validator, model_validator

from breakeven.engines.base import Arm, Speculation
from breakeven.experiment.curve_plan import CurvePlan, curve_arms
from breakeven.experiment.objective import Objective, ObjectiveName
from breakeven.experiment.secrets import names_a_secret
from breakeven.loadgen.samples import LoadPoint

__all__ = [
    "ArmPlan",
    "EngineName",
    "LaunchesPlan",
    "LimitsPlan",
    "LoadPlan",
    "Plan",
    "ServingPlan",
    "SpeculationPlan",
    "TrialPlan",
    "WorkloadPlan",
]

MAX_NAME_LENGTH = 40
RUN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
VARIABLE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# Set from the plan's keys: given twice, a server could listen elsewhere or admit more than its arm says.
RESERVED_FLAGS = ("--port", "--host", "--model", "--model-path", "--max-num-seqs", "--max-running-requests")

EngineName = Literal["local", "vllm", "sglang", "fake"]
Texts = Annotated[tuple[str, ...], Strict(False)]
Stretch = Annotated[tuple[Annotated[int, Field(ge=1)], Annotated[int, Field(ge=1)], Annotated[int, Field(ge=0)]], Strict(False)]


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


class LaunchesPlan(_Section):
    min: int = Field(default=3, ge=1, le=100, description="Launches of every arm before the first look at the intervals")
    max: int = Field(default=3, ge=1, le=100, description="Launches of an arm at most, where the interval stays open")

    @model_validator(mode="after")
    def _ordered(self) -> LaunchesPlan:
        if self.min > self.max:
            raise ValueError(f"min is {self.min} and max is {self.max}; expected min <= max")
        return self


class WorkloadPlan(_Section):
    prompts: str = Field(default="builtin", description="builtin, or a .jsonl file of your own prompts")
    kinds: Texts = Field(default=(), description="Kinds of prompts to keep; empty keeps all")
    max_tokens: int = Field(default=128, ge=1, le=1_000_000, description="Longest answer asked for, in tokens")
    fixed_length: bool = Field(default=False, description="Every answer has exactly max_tokens (ignore_eos)")
    temperature: float = Field(default=0.0, ge=0.0, le=10.0, description="0 is greedy")
    top_p: float = Field(default=1.0, gt=0.0, le=1.0, description="Nucleus sampling")


class LoadPlan(_Section):
    concurrency: int | None = Field(default=None, ge=1, le=100_000, description="Closed loop: requests always under way")
    rate_per_s: float | None = Field(default=None, gt=0.0, le=1e6, description="Open loop: Poisson arrivals, requests per second")

    @model_validator(mode="after")
    def _one_kind(self) -> LoadPlan:
        if (self.concurrency is None) == (self.rate_per_s is None):
            raise ValueError("expected either concurrency or rate_per_s in each load point")
        return self


class LimitsPlan(_Section):
    ttft_s: float | None = Field(default=None, gt=0.0, description="Longest wait for the first token, from when it was due")
    tpot_s: float | None = Field(default=None, gt=0.0, description="Longest mean time of each further token of an answer")


class TrialPlan(_Section):
    warmup_s: float = Field(default=5.0, ge=0.0, le=3600.0, description="Load before the window opens, not measured")
    window_s: float = Field(default=30.0, gt=0.0, le=86400.0, description="Length of the measured window")
    repeats: int = Field(default=1, ge=1, le=100, description="Windows of each arm at each load point within one launch")
    reset_cache: bool = Field(default=False, description="Empty the server's prefix cache before each window's load begins")


class SpeculationPlan(_Section):
    method: Literal["ngram", "eagle3"] = Field(description="How to draft")
    num_draft_tokens: int = Field(default=3, ge=1, le=64, description="Tokens drafted a round")
    drafter: str | None = Field(default=None, description="EAGLE-3 head: a folder, a hub id, or random (right shape, no training)")
    forced_accept_length: float | None = Field(
        default=None, ge=1.0, description="Accept to order: mean tokens a round, bonus included"
    )
    ngram_max: int = Field(default=3, ge=1, le=64, description="Longest n-gram looked up")
    ngram_min: int = Field(default=1, ge=1, le=64, description="Shortest n-gram looked up")
    topk: int = Field(default=1, ge=1, le=64, description="Branches a step of a drafted tree (sglang); 1 drafts a chain")
    num_steps: int | None = Field(
        default=None, ge=1, le=64, description="Drafting steps of a tree; a chain has one a drafted token"
    )

    schedule: Annotated[tuple[Stretch, ...], Strict(False)] = Field(
        default=(), max_length=64, description="Drafts by running requests: [first, last, drafts] each; the last number holds on"
    )

    @field_validator("schedule", mode="before")
    @classmethod
    def _triples(cls, schedule: Any) -> Any:
        for stretch in schedule if isinstance(schedule, list) else ():
            if not isinstance(stretch, list) or len(stretch) != 3:
                raise ValueError(
                    f"found {str(stretch)[:60]!a} in it; expected [first, last, drafts] for each range of running requests"
                )
        return schedule

    @field_validator("schedule")
    @classmethod
    def _follows_on(cls, schedule: tuple[tuple[int, int, int], ...]) -> tuple[tuple[int, int, int], ...]:
        expected = 1
        for first, last, _ in schedule:
            if first != expected or last < first:
                raise ValueError(
                    f"found [{first}, {last}] where a range from {expected} was expected; ranges begin at 1 and follow each other, "
                    "e.g. [[1, 8, 3], [9, 64, 0]]"
                )
            expected = last + 1
        return schedule

    @model_validator(mode="after")
    def _possible(self) -> SpeculationPlan:
        most = max((drafts for _, _, drafts in self.schedule), default=0)
        if most > self.num_draft_tokens:
            raise ValueError(
                f"schedule asks for {most} drafts; num_draft_tokens, the most there can be, is {self.num_draft_tokens}"
            )
        if self.schedule and (self.forced_accept_length is not None or self.topk > 1):
            other = "forced_accept_length" if self.forced_accept_length is not None else "topk"
            raise ValueError(
                f"schedule changes the number of drafts of a chain, which {other} does not go with; remove one of them"
            )
        if self.method == "eagle3" and self.drafter is None:
            raise ValueError(
                "method eagle3 needs a drafter: a folder, a hub id, or random for one of the right shape without training"
            )
        if self.method != "eagle3" and self.drafter is not None:
            raise ValueError(f"method {self.method} takes no drafter; remove the key or choose method eagle3")
        if self.forced_accept_length is not None and self.forced_accept_length > self.num_draft_tokens + 1:
            raise ValueError(
                f"forced_accept_length {self.forced_accept_length:g} cannot be reached: {self.num_draft_tokens} draft tokens "
                f"give at most {self.num_draft_tokens + 1} tokens a round"
            )
        if self.topk > 1 and (self.method != "eagle3" or self.num_steps is None):
            raise ValueError(f"topk is {self.topk}: trees are drafted by method eagle3, and need num_steps too")
        if self.topk == 1 and self.num_steps not in (None, self.num_draft_tokens):
            raise ValueError(
                f"num_steps is {self.num_steps} and num_draft_tokens {self.num_draft_tokens}; a chain (topk 1) drafts one token a "
                "step: leave num_steps out"
            )
        if self.ngram_min > self.ngram_max:
            raise ValueError(f"ngram_min is {self.ngram_min} and ngram_max {self.ngram_max}; expected ngram_min <= ngram_max")
        return self


class ServingPlan(_Section):
    """How a launched engine is installed and laid out. In the plan: for every arm of the plan's engine; in an arm: for it alone."""

    executable: str | None = Field(
        default=None, min_length=1, description="The engine's command, its environment's folder or Python (default: on the PATH)"
    )
    engine_version: str | None = Field(
        default=None, min_length=1, max_length=40, description="Release, where it cannot be read from the installation"
    )
    tensor_parallel: int | None = Field(default=None, ge=1, le=1024, description="GPUs that share each layer")
    pipeline_parallel: int | None = Field(default=None, ge=1, le=1024, description="Stages of layers")
    data_parallel: int | None = Field(default=None, ge=1, le=1024, description="Copies of the model behind one server")
    quantization: str | None = Field(default=None, min_length=1, max_length=40, description="The target's, as the engine spells it")
    max_graph_batch: int | None = Field(
        default=None, ge=1, le=100_000, description="Largest batch, in requests, decoded from a recorded GPU graph"
    )


class ArmPlan(ServingPlan):
    engine: EngineName | None = Field(default=None, description="This arm's engine, where it differs from the plan's")
    speculation: SpeculationPlan | None = Field(default=None, description="Absent: plain decoding")
    max_running_requests: int | None = Field(
        default=None, ge=1, description="This arm's own limit; the report flags the difference"
    )
    command: Texts = Field(default=(), description="Your own command that serves this arm, as a list; {port} is put in")
    extra_flags: Texts = Field(default=(), description="Given to the engine's command line untouched")
    env: dict[str, str] = Field(default_factory=dict, description="Environment of this server; no secrets")
    served_name: str | None = Field(default=None, min_length=1, max_length=200, description="What requests call the model")
    url: str | None = Field(default=None, description="Attach to a running server instead of launching one")
    metrics_urls: Texts = Field(default=(), description="Attached: /metrics of every replica (default: URL/metrics)")
    api_key_env: str | None = Field(default=None, description="Attached: the environment variable that holds the API key")
    simulation: dict[str, Any] = Field(default_factory=dict, description="Declared truth of the fake engine")

    @field_validator("url")
    @classmethod
    def _plain_url(cls, url: str | None) -> str | None:
        return None if url is None else _checked_url(url)

    @field_validator("metrics_urls")
    @classmethod
    def _plain_urls(cls, urls: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(map(_checked_url, urls))

    @model_validator(mode="after")
    def _possible(self) -> ArmPlan:
        if self.api_key_env is not None and not VARIABLE_NAME.fullmatch(self.api_key_env):
            raise ValueError(
                "api_key_env holds no variable name; expected the NAME of an environment variable, never the key itself"
            )
        flags = [flag for flag in self.extra_flags if flag.startswith("-")]
        secret = next((name for name in (*self.env, *flags) if names_a_secret(name)), None)
        if secret is not None:
            shown = secret.partition("=")[0]
            raise ValueError(f"{shown} looks like a secret, and plans are stored; set it in the environment, which servers inherit")
        reserved = next((flag for flag in flags if flag.partition("=")[0] in RESERVED_FLAGS), None)
        if reserved is not None:
            raise ValueError(f"extra_flags has {reserved}, which Breakeven sets itself; remove it")
        if self.command and not any("{port}" in part for part in self.command):
            raise ValueError("command has no {port}; put it where the server takes its port, e.g. [./serve.sh, --port, '{port}']")
        fixed = next((key for key in ("extra_flags", *ServingPlan.model_fields) if getattr(self, key)), None)
        if self.command and fixed is not None:
            raise ValueError(f"{fixed} goes into a command line that Breakeven writes, and this arm has its own (command)")
        launched = ("command", "extra_flags", "env", *ServingPlan.model_fields)
        launched_only = [key for key in launched if getattr(self, key) and key != "engine_version"]
        if self.url is not None and launched_only:
            raise ValueError(f"{launched_only[0]} cannot reach a server that is only attached to (url); remove one of the two")
        attached_only = [key for key in ("metrics_urls", "api_key_env") if getattr(self, key)]
        if self.url is None and attached_only:
            raise ValueError(f"{attached_only[0]} goes with url (an attached server); remove it or give the url")
        return self


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


def _checked_url(url: str) -> str:
    try:
        parts = urlsplit(url)
        # a port is first looked at when it is asked for; urlsplit drops line ends and tabs without a word
        whole = parts.hostname is not None and (parts.port is None or parts.port > 0) and url.isprintable() and " " not in url
    except ValueError:
        whole = False
    if not whole or parts.scheme not in {"http", "https"}:
        raise ValueError(f"{url!a} is no server address; expected http://HOST:PORT or https://HOST")
    if parts.username or parts.password or parts.query:
        raise ValueError("the address carries a user, a password or a query, and plans are stored; use api_key_env for the key")
    return url.rstrip("/")
