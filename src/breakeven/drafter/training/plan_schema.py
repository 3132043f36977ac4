"""The schema of train.yaml: every key, its default and its meaning. Keys that are not listed here are errors, never ignored."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, Strict, model_validator

from breakeven.inputs.checking import VariableName

__all__ = ["BatchPlan", "EvaluationPlan", "GatesPlan", "HeadPlan", "ObjectivePlan", "OptimiserPlan", "TrainPlan"]

Layers = Annotated[tuple[int, int, int], Strict(False)]
Weights = Annotated[tuple[float, ...], Strict(False)]
Words = Annotated[tuple[str, ...], Strict(False)]
Betas = Annotated[tuple[float, float], Strict(False)]


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


class HeadPlan(_Section):
    """Shapes left out are the target's own."""

    draft_vocab_size: int | None = Field(
        default=None, ge=2, description="Tokens that can be drafted, the most frequent in answers (default: about a third of all)"
    )
    auxiliary_layers: Layers | None = Field(
        default=None, description="Three layers whose inputs the head sees, low to high (default: 2, the middle, the fourth last)"
    )
    intermediate_size: int | None = Field(default=None, ge=1, description="Width of the MLP")
    num_heads: int | None = Field(default=None, ge=1, description="Query heads")
    num_kv_heads: int | None = Field(default=None, ge=1, description="Key/value heads")
    head_dim: int | None = Field(default=None, ge=2, description="Dimension of a head")
    rope_theta: float | None = Field(default=None, gt=0, description="Base of the rotary positions")
    rope_scaling: dict[str, str | int | float | bool | None] | None = Field(
        default=None, description="Rotary scaling: rope_type default, linear, llama3 or yarn with its figures; {} for none"
    )
    fc_norm: bool = Field(default=False, description="EAGLE-3.1: norm each auxiliary state before fc")
    norm_output: bool = Field(default=False, description="EAGLE-3.1: feed the normed state back, as vLLM and SGLang do")


class ObjectivePlan(_Section):
    steps: int = Field(default=6, ge=1, le=16, description="Steps of the training-time test: how deep drafting is practised")
    step_decay: float = Field(default=0.8, gt=0, le=2, description="Step k counts step_decay to the power of k")
    step_weights: Weights | None = Field(default=None, description="One weight a step, in place of step_decay")

    @model_validator(mode="after")
    def _one_weight_a_step(self) -> ObjectivePlan:
        if self.step_weights is not None and (len(self.step_weights) != self.steps or min(self.step_weights) < 0):
            raise ValueError(f"step_weights has {len(self.step_weights)} entries; expected {self.steps}, none below 0")
        return self

    @property
    def weights(self) -> tuple[float, ...]:
        return self.step_weights or tuple(self.step_decay**step for step in range(self.steps))


class BatchPlan(_Section):
    tokens: int = Field(default=16384, ge=128, multiple_of=128, description="Rows of a packed batch; a longer sample is cut to it")
    per_step: int = Field(default=1, ge=1, description="Batches of one optimiser step, over all processes")


class OptimiserPlan(_Section):
    kind: Literal["adamw", "muon"] = Field(
        default="adamw", description="muon: orthogonalised momentum for the layer's matrices, AdamW for head and norms"
    )
    learning_rate: float = Field(default=1e-3, gt=0, description="Peak of AdamW's")
    muon_learning_rate: float = Field(default=2e-3, gt=0, description="Peak of Muon's, scaled to AdamW's size of update")
    weight_decay: float = Field(default=0.0, ge=0, description="Of matrices; norms have none")
    muon_momentum: float = Field(default=0.95, ge=0, lt=1, description="Muon's momentum")
    betas: Betas = Field(default=(0.9, 0.95), description="AdamW's")
    clip: float = Field(default=1.0, gt=0, description="Largest norm of the gradient")
    warmup_share: float = Field(default=0.03, ge=0, lt=1, description="Share of all steps in which the rates rise from 0")
    final_share: float = Field(default=0.05, ge=0, le=1, description="Share of the peak that the cosine ends at")


class EvaluationPlan(_Section):
    every: int = Field(default=500, ge=0, description="Steps between evaluations; 0 evaluates at the end only")
    num_prompts: int = Field(default=128, ge=1, description="Held-out prompts")
    num_draft_tokens: int = Field(default=3, ge=1, le=16, description="Drafts a round")
    max_answer_tokens: int = Field(default=256, ge=8, description="Longest answer of the target")


class GatesPlan(_Section):
    """What must hold before and after training (docs/training-gates.md)."""

    agreement: bool = Field(default=True, description="Data, states, losses and names against transformers and the plain decoder")
    overfit: bool = Field(default=True, description="Ten answers must be learnt by heart")
    pilot_samples: int = Field(default=1000, ge=0, description="Samples of the pilot; 0 for none")
    pilot_steps: int | None = Field(default=None, ge=4, description="Steps of the pilot (default: its samples seen twice)")
    served_by: str | None = Field(
        default=None, description="Environment of an engine that must count what was counted offline; relative to this file"
    )
    served_engine: Literal["vllm", "sglang"] = Field(default="vllm", description="Which engine that is")
    served_prompts: int = Field(default=8, ge=1, description="Held-out prompts that it is asked")
    served_env: dict[VariableName, str] = Field(default={}, description="Variables of its environment")
    served_flags: Words = Field(default=(), description="Further flags of its command")


class TrainPlan(_Section):
    target: str = Field(description="The served model: a folder, a hub id in the local cache, or demo:NAME")
    data: str = Field(description="Training file, as breakeven data answers writes it; relative to this file")
    out: str = Field(description="Folder for checkpoints, metrics and the drafter; relative to this file")
    states: str | None = Field(
        default=None, description="States stored by breakeven data states, in place of running the target; relative to this file"
    )
    start_from: str | None = Field(default=None, description="A trained EAGLE-3 folder to go on from")
    seed: int = Field(default=0, ge=0, lt=2**31, description="Of the first weights and of the order of samples")
    epochs: int = Field(default=4, ge=1, description="Times that every sample is seen")
    max_steps: int | None = Field(default=None, ge=1, description="Optimiser steps at most; schedules end there")
    max_sample_tokens: int | None = Field(default=None, ge=8, description="Longer samples are cut (default: the batch)")
    keep_looping: bool = Field(default=True, description="Learn also from answers that repeat themselves")
    device: Literal["auto", "cpu", "cuda"] = Field(default="auto", description="auto: a GPU if there is one")
    precision: Literal["auto", "bfloat16", "float32"] = Field(
        default="auto", description="Of the products; weights are kept in float32. auto: bfloat16 on a GPU, float32 on a CPU"
    )
    compiled: bool = Field(default=True, description="Compile for the GPU (a minute); ignored on a CPU")
    parallel: Literal["ddp", "fsdp"] = Field(default="ddp", description="Under torchrun: copies of the head, or shards of it")
    keep_states: Literal["auto", "never"] = Field(
        default="auto", description="auto: keep the target's states of the first epoch on the GPU where they fit"
    )
    log_every: int = Field(default=20, ge=1, description="Steps between lines of metrics.jsonl")
    checkpoint_every: int = Field(default=200, ge=1, description="Steps between checkpoints; a multiple of log_every")
    keep_checkpoints: int = Field(default=2, ge=1, description="How many of the newest are kept beside the best")
    head: HeadPlan = HeadPlan()
    objective: ObjectivePlan = ObjectivePlan()
    batches: BatchPlan = BatchPlan()
    optimiser: OptimiserPlan = OptimiserPlan()
    evaluation: EvaluationPlan = EvaluationPlan()
    gates: GatesPlan | None = Field(default=None, description="Gates before and after training; {} for all; none without the key")

    @model_validator(mode="after")
    def _rhythm(self) -> TrainPlan:
        for name, value in (("checkpoint_every", self.checkpoint_every), ("evaluation.every", self.evaluation.every)):
            if value % self.log_every:
                raise ValueError(f"{name} is {value} and log_every {self.log_every}; expected a multiple of it")
        return self
