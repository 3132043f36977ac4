"""A whole training in miniature: a random target, samples it never saw, the slow capture, a trainer. Also run as a program, so that
it can be killed and started under torchrun."""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from breakeven.drafter.capture.states import PackedStates
from breakeven.drafter.data.samples import Sample
from breakeven.drafter.model.eagle3 import Eagle3Config, Eagle3Weights
from breakeven.drafter.model.llama import LayerWeights, LlamaConfig, LlamaWeights
from breakeven.drafter.reference.llama import llama, norm
from breakeven.drafter.training.corpus import Corpus
from breakeven.drafter.training.kernels import Kernels
from breakeven.drafter.training.module import Eagle3Module
from breakeven.drafter.training.objective_fast import FastObjective
from breakeven.drafter.training.plan_schema import TrainPlan
from breakeven.drafter.training.processes import Processes, leave
from breakeven.drafter.training.progress import AcceptLength
from breakeven.drafter.training.rows import known_tokens
from breakeven.drafter.training.states_source import StatesSource
from breakeven.drafter.training.trainer import Trainer

VOCAB, HIDDEN, DRAFT_VOCAB = 61, 16, 40


def shape(**overrides: Any) -> LlamaConfig:
    sizes: dict[str, Any] = {
        "hidden_size": HIDDEN,
        "intermediate_size": 24,
        "num_layers": 4,
        "num_heads": 2,
        "num_kv_heads": 1,
        "head_dim": 8,
        "vocab_size": VOCAB,
        "max_positions": 128,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "rope_scaling": {},
        "tie_word_embeddings": True,
        "eos_token_ids": frozenset({2}),
    }
    return LlamaConfig(**(sizes | overrides))


def target(seed: int = 0) -> tuple[LlamaConfig, LlamaWeights]:
    config = shape()
    generator = torch.Generator().manual_seed(seed)

    def matrix(rows: int, columns: int) -> torch.Tensor:
        return torch.randn(rows, columns, generator=generator) * columns**-0.5

    layers = tuple(
        LayerWeights(
            input_norm=torch.ones(HIDDEN),
            qkv=matrix(32, HIDDEN),
            out=matrix(HIDDEN, 16),
            post_norm=torch.ones(HIDDEN),
            gate_up=matrix(48, HIDDEN),
            down=matrix(HIDDEN, 24),
        )
        for _ in range(4)
    )
    embed = torch.randn(VOCAB, HIDDEN, generator=generator)
    return config, LlamaWeights(embed=embed, layers=layers, norm=torch.ones(HIDDEN), head=embed)


class SlowCapture:
    """One sequence at a time through the reference target."""

    def __init__(self) -> None:
        self.config, self.weights = target()
        self.num_calls = 0

    def capture(self, samples: Sequence[Sample]) -> PackedStates:
        self.num_calls += 1
        auxiliary, last = [], []
        for sample in samples:
            _, streams = llama(torch.tensor(sample.token_ids), self.config, self.weights)
            auxiliary.append(torch.cat([streams[layer] for layer in (1, 2, 3)], dim=-1))
            last.append(norm(streams[-1], self.weights.norm, 1e-5))
        lengths = [len(sample.token_ids) for sample in samples]
        return PackedStates(
            token_ids=torch.tensor([token for sample in samples for token in sample.token_ids]),
            positions=torch.cat([torch.arange(length) for length in lengths]),
            samples=torch.repeat_interleave(torch.arange(len(lengths), dtype=torch.int32), torch.tensor(lengths)),
            starts=torch.tensor([0, *lengths]).cumsum(0),
            loss_mask=torch.tensor([flag for sample in samples for flag in sample.loss_mask]),
            auxiliary=torch.cat(auxiliary),
            last=torch.cat(last),
        )


def samples(count: int = 40, seed: int = 1, length_of_all: int | None = None) -> list[Sample]:
    chance = random.Random(seed)
    made = []
    for index in range(count):
        length = length_of_all or chance.randrange(8, 40)
        made.append(
            Sample(
                sample_id=f"prompt-{index}",
                kind="toy",
                token_ids=tuple(chance.randrange(VOCAB) for _ in range(length)),
                loss_mask=tuple(place >= 4 for place in range(length)),
                num_prompt_tokens=4,
            )
        )
    return made


def plan(out: Path, **overrides: Any) -> TrainPlan:
    content: dict[str, Any] = {
        "target": "toy",
        "data": "toy",
        "out": str(out),
        "epochs": 3,
        "log_every": 2,
        "checkpoint_every": 4,
        "objective": {"steps": 3},
        "batches": {"tokens": 128},
        "evaluation": {"every": 6},
        "optimiser": {"learning_rate": 0.01},
    }
    return TrainPlan.model_validate(content | overrides)


def made_up_accept_length(weights: Eagle3Weights) -> AcceptLength:
    """Any function of the weights will do where only the bookkeeping is tested."""
    return AcceptLength(mean=1.0 + weights.head.abs().mean().item())


def trainer(chosen: TrainPlan, *, evaluate: Any = made_up_accept_length, keep: bool = False, **options: Any) -> Trainer:
    torch.manual_seed(0)
    processes = Processes.start("cpu")
    capture = SlowCapture()
    head = Eagle3Config(
        shape=shape(num_layers=1),
        draft_vocab_size=DRAFT_VOCAB,
        auxiliary_layers=(1, 2, 3),
        auxiliary_source="toy",
        fc_norm=chosen.head.fc_norm,
    )
    target_ids = torch.arange(DRAFT_VOCAB) + 7
    drafter = Eagle3Module(head, target_ids, capture.weights.embed)
    drafter.initialise(capture.weights.head[target_ids], chosen.seed)
    objective = FastObjective(
        drafter, capture.weights.head[target_ids], chosen.objective.steps, torch.float32, options.pop("kernels", Kernels())
    )
    known = known_tokens(target_ids.numpy(), VOCAB)
    corpus = Corpus(options.pop("data", None) or samples(), known, chosen.objective.steps, chosen.batches.tokens)
    return Trainer(
        plan=chosen,
        corpus=corpus,
        states=StatesSource(options.pop("capture", capture), corpus, chosen.batches.tokens, keep=keep),
        objective=objective,
        folder=Path(chosen.out),
        processes=processes,
        evaluate=evaluate,
        **options,
    )


def curve(folder: Path) -> list[dict[str, Any]]:
    """The metrics without what depends on the clock."""
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [{key: value for key, value in line.items() if key not in ("seconds", "tokens_per_s")} for line in lines]


def main() -> None:
    torch.set_num_threads(1)
    chosen = plan(Path(sys.argv[1]), **json.loads(sys.argv[2]))
    made = trainer(chosen)
    made.run()
    made.processes.stop()
    if made.processes.count > 1:
        leave()


if __name__ == "__main__":
    main()
