"""Ways to break a healthy deployment, one or more a static rule: the rule's fixture. A rule without one fails the tests."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from tests.unit.doctor.folders import LAYER_IDS, Folder, make_target, portable

from breakeven.doctor.evidence import Evidence
from breakeven.doctor.examine import examine
from breakeven.doctor.gather import Inputs, gather
from breakeven.doctor.result import DoctorResult


@dataclass
class Deployment:
    """A drafter, its target and how they are served. Healthy as made; breakers change it."""

    draft: Folder = field(default_factory=portable)
    target: Folder = field(default_factory=make_target)
    parent: Folder | None = None
    engine: str | None = None
    engine_version: str | None = None
    launch: str | None = None
    answers: str | None = None
    gpu_memory_gib: float | None = None
    options: dict[str, Any] = field(default_factory=dict)

    def inputs(self, root: Path) -> Inputs:
        draft, target = self.draft.write(root), self.target.write(root)
        answers = root / "answers.jsonl"
        if self.answers is not None:
            answers.write_text(self.answers)
        return Inputs(
            draft=str(draft),
            target=str(target),
            parent=str(self.parent.write(root / "parent")) if self.parent is not None else None,
            engine=self.engine,
            engine_version=self.engine_version,
            launch=self.launch.replace("DRAFT", str(draft)).replace("TARGET", str(target)) if self.launch is not None else None,
            answers=answers if self.answers is not None else None,
            gpu_memory_gib=self.gpu_memory_gib,
            **self.options,
        )

    def evidence(self, root: Path) -> Evidence:
        return gather(self.inputs(root))

    def examine(self, root: Path) -> DoctorResult:
        return examine(self.evidence(root))


Breaker = Callable[[Deployment], None]
BREAKERS: dict[str, list[Breaker]] = {}

SGLANG = (
    "python -m sglang.launch_server --model-path TARGET --speculative-algorithm EAGLE3 --speculative-draft-model-path DRAFT "
    "--speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4 --max-running-requests 16"
)
VLLM = (
    "vllm serve TARGET --max-num-seqs 16 "
    '--speculative-config \'{"method": "eagle3", "model": "DRAFT", "num_speculative_tokens": 3}\''
)


def breaks(code: str) -> Callable[[Breaker], Breaker]:
    def register(breaker: Breaker) -> Breaker:
        BREAKERS.setdefault(code, []).append(breaker)
        return breaker

    return register


@breaks("algorithm-mismatch")
def eagle_for_eagle3(it: Deployment) -> None:
    it.engine_version, it.launch = "0.5.23", SGLANG.replace("EAGLE3", "EAGLE")


@breaks("algorithm-mismatch")
def eagle_method_for_eagle3(it: Deployment) -> None:
    it.engine_version, it.launch = "0.33.0", VLLM.replace('"eagle3"', '"eagle"')


@breaks("layers-defaulted")
def nested_ids_only_for_runner_v2(it: Deployment) -> None:
    it.engine, it.engine_version = "vllm", "0.33.0"
    del it.draft.config[LAYER_IDS]
    it.draft.config["eagle_config"][LAYER_IDS] = [1, 4, 9]


@breaks("layers-defaulted")
def nested_ids_only_for_old_vllm(it: Deployment) -> None:
    it.engine, it.engine_version = "vllm", "0.18.1"
    del it.draft.config[LAYER_IDS]
    it.draft.config["eagle_config"][LAYER_IDS] = [1, 3, 7]


@breaks("layers-defaulted")
def outer_ids_only_for_sglang(it: Deployment) -> None:
    it.engine, it.engine_version = "sglang", "0.5.23"
    del it.draft.config["eagle_config"]
    it.draft.config[LAYER_IDS] = [2, 5, 10]


@breaks("vocabulary-map-absolute")
def ids_in_place_of_offsets(it: Deployment) -> None:
    it.draft.tensors["d2t"] = it.draft.tensors["d2t"] + np.arange(len(it.draft.tensors["d2t"]))


@breaks("vocabulary-map-absolute")
def ids_without_a_witness(it: Deployment) -> None:
    ids_in_place_of_offsets(it)
    del it.draft.tensors["t2d"]
