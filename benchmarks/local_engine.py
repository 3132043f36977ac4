"""The embedded engine against `transformers` generate, and what a speculative round costs in plain steps.

    OMP_WAIT_POLICY=passive python benchmarks/local_engine.py [--model FOLDER] [--threads 2] [--rounds 20] [--answers 5]

Everything runs in one process on the same weights, dtype and threads. One round of every arm makes a repetition, in an order drawn
anew each time, so that drift of the machine meets all arms alike; ratios are medians of ratios within a repetition. Floors: one
request at least 1.3 times `generate`; verifying 4 tokens at most 1.6 plain steps.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import torch
from torch import Tensor
from transformers import LlamaForCausalLM

from breakeven.checkpoints.cache import demo_model_path
from breakeven.checkpoints.folder import open_folder
from breakeven.drafter.model.eagle3 import Eagle3Config, Eagle3Weights, default_auxiliary_layers
from breakeven.drafter.model.llama import LlamaConfig, LlamaWeights
from breakeven.drafter.serving.core import EngineCore
from breakeven.drafter.serving.drafting import Drafter, Eagle3Drafter
from breakeven.drafter.serving.layers import KVCache, Rotary, Span
from breakeven.drafter.serving.requests import GenerationRequest
from breakeven.drafter.serving.target import Target

PROMPT_TOKENS = 64
NEW_TOKENS = 32
BATCH_SIZES = (1, 4, 8)
POSITIONS = 512


class ConstantDrafter:
    """Drafts at no cost, so that a round's time is that of verification."""

    auxiliary_layers: tuple[int, ...] = ()

    def start(self, slot: int) -> None:
        return

    def propose(
        self, histories: Sequence[Sequence[int]], spans: Sequence[Span], states: Tensor | None, num_drafts: int
    ) -> list[list[int]]:
        return [[5] * num_drafts for _ in histories]


def random_head(target: LlamaConfig, draft_vocab_size: int) -> tuple[Eagle3Config, Eagle3Weights]:
    hidden, intermediate = target.hidden_size, target.intermediate_size
    queries, kv = target.num_heads * target.head_dim, target.num_kv_heads * target.head_dim
    config = Eagle3Config(
        shape=target,
        draft_vocab_size=draft_vocab_size,
        auxiliary_layers=default_auxiliary_layers(target.num_layers),
        auxiliary_source="default",
    )

    def matrix(rows: int, columns: int) -> Tensor:
        return torch.randn(rows, columns) * 0.02

    return config, Eagle3Weights(
        fc=matrix(hidden, 3 * hidden),
        embed_norm=torch.ones(hidden),
        hidden_norm=torch.ones(hidden),
        qkv=matrix(queries + 2 * kv, 2 * hidden),
        out=matrix(hidden, queries),
        post_norm=torch.ones(hidden),
        gate_up=matrix(2 * intermediate, hidden),
        down=matrix(hidden, intermediate),
        norm=torch.ones(hidden),
        head=matrix(draft_vocab_size, hidden),
        embed=None,
        target_ids=torch.arange(draft_vocab_size),
    )


class Arms:
    """Cores that share one target and its cache: what they read there is each other's, which costs the same time."""

    def __init__(self, folder: Path) -> None:
        opened = open_folder(folder)
        self.config = LlamaConfig.from_folder(opened)
        weights = LlamaWeights.from_folder(opened, self.config, torch.float32)
        cache = KVCache(self.config, max(BATCH_SIZES), POSITIONS, torch.float32)
        self.target = Target(self.config, weights, cache, Rotary(self.config, POSITIONS, torch.float32))
        head, head_weights = random_head(self.config, min(16384, self.config.vocab_size))
        head_cache = KVCache(head.shape, max(BATCH_SIZES), POSITIONS, torch.float32)
        self.head = Eagle3Drafter(head, head_weights, self.target.embed, head_cache, Rotary(head.shape, POSITIONS, torch.float32))
        self.reference = LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()

    def core(self, drafter: Drafter | None, num_draft_tokens: int) -> EngineCore:
        return EngineCore(
            self.target,
            drafter,
            num_draft_tokens=num_draft_tokens,
            forced_accept_length=None,
            max_num_seqs=max(BATCH_SIZES),
            context_length=POSITIONS - 16,
            seed=0,
        )

    def prompt(self, seed: int) -> tuple[int, ...]:
        generator = torch.Generator().manual_seed(seed)
        return tuple(torch.randint(100, self.config.vocab_size, (PROMPT_TOKENS,), generator=generator).tolist())

    def started(self, drafter: Drafter | None, num_draft_tokens: int, batch_size: int) -> EngineCore:
        """A core with a steady batch: prompts run, and one round, in which the drafter catches up with them."""
        core = self.core(drafter, num_draft_tokens)
        for index in range(batch_size):
            core.submit(
                GenerationRequest(request_id=str(index), prompt_ids=self.prompt(index), max_tokens=POSITIONS, ignore_eos=True)
            )
        core.step()
        core.step()
        return core

    def answer_s(self) -> float:
        """One greedy answer, prompt included, of the engine."""
        core = self.core(None, 0)
        core.submit(GenerationRequest(request_id="a", prompt_ids=self.prompt(0), max_tokens=NEW_TOKENS, ignore_eos=True))

        def run() -> None:
            while core.has_work:
                core.step()

        return timed(run)

    def reference_answer_s(self) -> float:
        """The same of transformers, with the cache it uses by default."""
        prompt = torch.tensor([self.prompt(0)])

        def run() -> None:
            with torch.inference_mode():
                self.reference.generate(
                    prompt,
                    attention_mask=torch.ones_like(prompt),
                    max_new_tokens=NEW_TOKENS,
                    min_new_tokens=NEW_TOKENS,
                    do_sample=False,
                    pad_token_id=0,
                )

        return timed(run)


def timed(action: Callable[[], object]) -> float:
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


class Stages:
    """Where a round's time goes, by wrapping the calls of one core's parts."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)

    def watch(self, owner: object, name: str, stage: str) -> None:
        original = getattr(owner, name)

        def wrapped(*args: object) -> object:
            start = time.perf_counter()
            try:
                return original(*args)
            finally:
                self.seconds[stage] += time.perf_counter() - start

        setattr(owner, name, wrapped)


def print_stages(arms: Arms, batch_size: int, num_rounds: int = 20) -> None:
    core = arms.started(arms.head, 3, batch_size)
    stages = Stages()
    stages.watch(arms.target, "forward", "target layers")
    stages.watch(arms.target, "logits", "target head")
    stages.watch(arms.head, "propose", "drafting")
    total = sum(timed(core.step) for _ in range(num_rounds))
    for owner, name in ((arms.target, "forward"), (arms.target, "logits"), (arms.head, "propose")):
        delattr(owner, name)
    stages.seconds["scheduler, choice of tokens"] = total - sum(stages.seconds.values())
    shares = ", ".join(f"{stage} {seconds / num_rounds * 1e3:.1f} ms" for stage, seconds in stages.seconds.items())
    print(f"a round of eagle3 k=3 at {batch_size} requests: {total / num_rounds * 1e3:.1f} ms: {shares}")


def measure(actions: dict[str, Callable[[], float]], num_repetitions: int) -> dict[str, list[float]]:
    """Seconds of each action, interleaved; the first repetition is thrown away."""
    results: dict[str, list[float]] = {name: [] for name in actions}
    for repetition in range(num_repetitions + 1):
        for name in random.sample(list(actions), len(actions)):
            seconds = actions[name]()
            if repetition > 0:
                results[name].append(seconds)
    return results


def ratio(results: dict[str, list[float]], over: str, under: str) -> str:
    ratios = sorted(a / b for a, b in zip(results[over], results[under], strict=True))
    quarter = len(ratios) // 4
    return f"{statistics.median(ratios):.2f} (half of them {ratios[quarter]:.2f} to {ratios[-1 - quarter]:.2f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, default=demo_model_path("smollm2-135m-instruct"))
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--answers", type=int, default=5)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    arms = Arms(options.model)

    answers = measure({"generate": arms.reference_answer_s, "answer": arms.answer_s}, options.answers)
    for name, figures in answers.items():
        print(f"{name:9s} {NEW_TOKENS / statistics.median(figures):6.1f} tok/s at one request, {NEW_TOKENS} tokens")
    print(f"the engine is {ratio(answers, 'generate', 'answer')} times as fast as transformers generate (floor 1.3)")

    drafters: dict[str, tuple[Drafter | None, int]] = {
        "plain": (None, 0),
        **{f"verify {k + 1}": (ConstantDrafter(), k) for k in (1, 3, 7)},
        "eagle3 k=3": (arms.head, 3),
    }
    for batch_size in BATCH_SIZES:
        cores = {name: arms.started(drafter, k, batch_size) for name, (drafter, k) in drafters.items()}
        rounds = measure({name: partial(timed, core.step) for name, core in cores.items()}, options.rounds)
        for name, figures in rounds.items():
            print(
                f"{name:10s} at {batch_size}: median {statistics.median(figures) * 1e3:.1f} ms, least {min(figures) * 1e3:.1f} ms, "
                f"{ratio(rounds, name, 'plain')} plain steps"
            )
        print_stages(arms, batch_size)


if __name__ == "__main__":
    main()
