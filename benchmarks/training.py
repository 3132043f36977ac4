"""Training tokens per second on this machine: our step, its phases, and a public trainer's step on the same states.

    python benchmarks/training.py [--target demo:smollm2-135m-instruct] [--tokens 16384] [--sample-tokens 300] [--steps 6]
        [--draft-vocab 16384] [--window 20] [--repeats 5] [--public speculators [--way whole]] [--optimiser adamw] [--limit SECONDS]
        [--profile FILE] [--json FILE]

Samples are made up (random tokens, lengths around --sample-tokens, the first fifth of each a prompt): what a step costs does not
depend on what the tokens say. Every arm runs windows of --window steps, one after the other in an order drawn anew in each repeat,
so that drift of the machine meets all arms alike; ratios are medians over repeats.

* ours, target included: capture, batch, objective, backward, clipping, optimiser: what an epoch costs where states do not fit;
* ours, states kept: the same from the states of an earlier epoch;
* ours, states given: from states that lie on the device, which is all that the public trainer's step does;
* speculators, with --public: its own Trainer on the same states, K, batch and packing, from the same weights; their losses are
  compared first. `public_trainer.py` says what it leaves out and why its first step compiles for minutes on a GPU (3 on an H200).
  So there it is timed with nothing but its attention compiled first, and as it comes after that.

Figures are told, and written to --json, as they come; --limit ends the run after so many seconds, whatever is under way then, with
exit code 0 and "ended by --limit" as its last line: `--public speculators --limit 580` surely ends, with what was known by then.

For `--public speculators` unpack the wheel where Python finds it (pip install --no-deps --target FOLDER speculators==0.9.0
loguru==0.7.3 pydantic-settings python-dotenv; PYTHONPATH=FOLDER). What it imports for other purposes (servers, data sets) is stood
in for where it is not installed. On a CPU: --tokens 1024 --steps 3 --draft-vocab 4096 --window 3 --repeats 3.

Floor on one H200 for SmolLM2-135M, W = 16384, K = 6, with the target included: twice a plain prototype's 118 000 tokens/s in
batches of 16k, and 136 000 in batches of 64k (--tokens 65536).
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import statistics
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from breakeven.checkpoints.folder import open_folder
from breakeven.checkpoints.resolve import resolve_model
from breakeven.drafter.capture.capture import Capture
from breakeven.drafter.data.samples import Sample
from breakeven.drafter.model.eagle3 import Eagle3Config
from breakeven.drafter.training.batch import TrainingBatch
from breakeven.drafter.training.corpus import Corpus
from breakeven.drafter.training.head_shape import head_config
from breakeven.drafter.training.kernel_choice import choose_kernels
from breakeven.drafter.training.kernels import Kernels
from breakeven.drafter.training.module import Eagle3Module, power_of_two_scales
from breakeven.drafter.training.objective_fast import FastObjective
from breakeven.drafter.training.optimiser import Optimiser
from breakeven.drafter.training.order import Order
from breakeven.drafter.training.plan_schema import HeadPlan, OptimiserPlan
from breakeven.drafter.training.rows import known_tokens
from breakeven.drafter.training.states_source import StatesSource
from breakeven.stats.intervals import block_interval

# bf16 products of one H200 without sparsity, by its data sheet; a large product reaches about 790.
PEAK_FLOPS = 989e12
# kernels are compiled, and caches filled, in the first few; a CPU compiles nothing
STEPS_BEFORE_TIMING = {"cuda": 5, "cpu": 1}
GIVEN = "ours, states given"
# of a loss, from the same weights: rounding stays below, a wrong row, mask or weight does not
SAME_LOSS = {torch.float32: 1e-3, torch.bfloat16: 0.03}


def made_up_samples(num_tokens: int, mean_tokens: int, vocab_size: int, target_ids: np.ndarray, seed: int) -> list[Sample]:
    chance = np.random.default_rng(seed)
    samples = []
    while num_tokens > 0:
        length = int(np.clip(chance.normal(mean_tokens, mean_tokens / 3), 24, 2 * mean_tokens))
        prompt = max(4, length // 5)
        # about 99 of 100 answer tokens are in the draft vocabulary, as in real data
        known, anything = target_ids[chance.integers(len(target_ids), size=length)], chance.integers(vocab_size, size=length)
        tokens = np.where(chance.random(length) < 0.99, known, anything)
        samples.append(
            Sample(
                sample_id=str(len(samples)),
                kind="made-up",
                token_ids=tuple(tokens.tolist()),
                loss_mask=(False,) * prompt + (True,) * (length - prompt),
                num_prompt_tokens=prompt,
            )
        )
        num_tokens -= length
    return samples


def flops_a_token(config: Eagle3Config, num_steps: int, judged_share: float, target_parameters: int) -> dict[str, float]:
    """Multiply-adds twice, matrix products only; a backward pass is twice the forward. The head is judged on answer rows alone."""
    shape, width = config.shape, config.shape.hidden_size
    rows = (shape.num_heads + 2 * shape.num_kv_heads) * shape.head_dim
    layer = width * rows + width * shape.num_heads * shape.head_dim + 3 * width * shape.intermediate_size
    head = width * config.draft_vocab_size
    once = 3 * width * width + width * rows  # fc, and the embeddings' share of queries, keys and values
    return {
        "target": 2.0 * target_parameters,
        "layer": 6.0 * (once + num_steps * layer),
        "vocabulary": judged_share * (6.0 * num_steps * head + 2.0 * head),
    }


class Ours:
    def __init__(self, arguments: argparse.Namespace, device: torch.device) -> None:
        folder = resolve_model(arguments.target, Path.cwd())
        self.folder = folder
        opened = open_folder(folder)
        self.dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
        self.config = head_config(opened, HeadPlan(draft_vocab_size=arguments.draft_vocab))
        vocab_size = self.config.shape.vocab_size
        target_ids = np.sort(np.random.default_rng(0).permutation(vocab_size)[: arguments.draft_vocab])
        self.target_ids = torch.from_numpy(target_ids)
        self.num_steps, self.num_rows, self.device = arguments.steps, arguments.tokens, device
        self.capture = Capture.from_folder(folder, self.config.auxiliary_layers, device=device, dtype=self.dtype, defer_checks=True)
        samples = made_up_samples(arguments.tokens * arguments.batches, arguments.sample_tokens, vocab_size, target_ids, 1)
        known = known_tokens(target_ids, vocab_size)
        self.corpus = Corpus(samples, known, self.num_steps, self.num_rows)
        packed = self.capture.capture(self.corpus.samples[:32])
        drafter = Eagle3Module(
            self.config, self.target_ids, self.capture.embed_weight, power_of_two_scales(packed.auxiliary, packed.loss_mask)
        )
        head = self.capture.head_weight(self.target_ids)
        drafter.initialise(head.float(), 0)
        self.objective = FastObjective(drafter, head, self.num_steps, self.dtype, Kernels())
        started = time.perf_counter()
        self.objective.kernels = choose_kernels(self.objective, self.num_rows, arguments.sample_tokens)
        self.notes = (*self.objective.kernels.notes, *self.capture.compile_for(self.num_rows))
        self.compile_s = time.perf_counter() - started
        self.parameters = dict(self.objective.named_parameters())
        self.optimiser = Optimiser(self.parameters, OptimiserPlan(kind=arguments.optimiser))
        self.batches = [samples for _, samples in Order(self.corpus.lengths, self.num_rows, 1, 0).from_batch(0)]
        self.online = StatesSource(self.capture, self.corpus, self.num_rows, keep=False)
        self.kept = StatesSource(self.capture, self.corpus, self.num_rows, keep=True)
        self.given = [self.kept.batch(samples) for samples in self.batches]
        weights = 0.8 ** np.arange(self.num_steps)
        self.scales = [
            torch.from_numpy(weights / np.maximum(batch.judged.num_trained, 1)).float().to(device) for batch in self.given
        ]

    def tokens(self, index: int) -> int:
        return int(self.corpus.lengths[self.batches[index % len(self.batches)]].sum())

    def update(self, batch: TrainingBatch, index: int, mark: Callable[[str], None] = lambda name: None) -> None:
        loss, *_ = self.objective(batch, self.scales[index % len(self.batches)])
        mark("objective")
        loss.backward()
        mark("backward")
        torch.nn.utils.clip_grad_norm_(self.parameters.values(), 1.0)
        self.optimiser.step(0.01)
        mark("optimiser")

    def step(self, source: str, index: int, mark: Callable[[str], None] = lambda name: None) -> None:
        samples = self.batches[index % len(self.batches)]
        if source == "given":
            batch = self.given[index % len(self.batches)]
        else:
            batch = (self.online if source == "online" else self.kept).batch(samples)
        mark("states")
        self.update(batch, index, mark)

    def window(self, source: str, num_steps: int) -> int:
        for index in range(num_steps):
            self.step(source, index)
        return sum(self.tokens(index) for index in range(num_steps))


def waited(device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()


def phases(ours: Ours, source: str, num_steps: int) -> dict[str, float]:
    """Median milliseconds of each phase, waiting for the device after each: their sum is more than a step that never waits."""
    taken: defaultdict[str, list[float]] = defaultdict(list)
    for index in range(num_steps):
        last = [waited(ours.device)]

        def mark(name: str, last: list[float] = last) -> None:
            now = waited(ours.device)
            taken[name].append(1e3 * (now - last[0]))
            last[0] = now

        ours.step(source, index, mark)
    return {name: round(statistics.median(values), 3) for name, values in taken.items()}


def host_ms(ours: Ours, source: str, num_steps: int) -> float:
    """Milliseconds a step keeps the host busy if the device is free: below the step's time, the device is never left waiting."""
    taken = []
    for index in range(num_steps):
        started = waited(ours.device)
        ours.step(source, index)
        taken.append(1e3 * (time.perf_counter() - started))
    return round(statistics.median(taken), 3)


def profile(ours: Ours, source: str, path: Path) -> None:
    """The kernels of three steps by device time, written to a text file."""
    activities = [torch.profiler.ProfilerActivity.CPU]
    if ours.device.type == "cuda":
        activities.append(torch.profiler.ProfilerActivity.CUDA)
    with torch.profiler.profile(activities=activities) as found:
        ours.window(source, 3)
        waited(ours.device)
    by = "self_cuda_time_total" if ours.device.type == "cuda" else "self_cpu_time_total"
    path.write_text(found.key_averages().table(sort_by=by, row_limit=60, max_name_column_width=90))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--target", default="demo:smollm2-135m-instruct")
    parser.add_argument("--tokens", type=int, default=16384)
    parser.add_argument("--sample-tokens", type=int, default=300)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--draft-vocab", type=int, default=16384)
    parser.add_argument("--batches", type=int, default=8)
    parser.add_argument("--window", type=int, default=20)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--optimiser", choices=("adamw", "muon"), default="adamw")
    parser.add_argument("--public", choices=("speculators",))
    parser.add_argument("--way", choices=("plain", "attention", "whole"), help="how much of it is compiled (default: each in turn)")
    parser.add_argument("--limit", type=float)
    parser.add_argument("--profile", type=Path)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--scratch", default="/tmp")
    arguments = parser.parse_args()
    if arguments.limit:
        end_after(arguments.limit)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.set_float32_matmul_precision("high")
    ours = Ours(arguments, device)
    tell(f"{torch.cuda.get_device_name() if device.type == 'cuda' else 'CPU'}, torch {torch.__version__}")
    for note in ours.notes:
        tell(f"note: {note}")
    tell(f"compiling and self-check: {ours.compile_s:.1f} s")
    result: dict[str, Any] = {"compile_s": ours.compile_s, "notes": ours.notes}

    def save() -> None:
        if arguments.json:
            arguments.json.write_text(json.dumps(result, indent=2))

    save()
    arms: dict[str, Callable[[int], int]] = {
        "ours, target included": lambda steps: ours.window("online", steps),
        "ours, states kept": lambda steps: ours.window("kept", steps),
        GIVEN: lambda steps: ours.window("given", steps),
    }
    result["memory_gib"] = {name: warm_up(name, arm, device) for name, arm in arms.items()}
    result["tokens_per_s"] = rates = {name: [] for name in arms}
    interleaved(arms, arguments, device, rates, save)
    judged = sum(int(batch.judged.num_trained[0]) for batch in ours.given)
    share = judged / sum(batch.num_tokens for batch in ours.given)
    body = sum(tensor.numel() for tensor in _target_matrices(ours))
    result["flops"] = flops = flops_a_token(ours.config, ours.num_steps, share, body)
    tell(f"rows judged: {share:.1%}; GFLOP a token: " + ", ".join(f"{name} {value / 1e9:.3f}" for name, value in flops.items()))
    for name, values in rates.items():
        counted = sum(flops.values()) if "included" in name else flops["layer"] + flops["vocabulary"]
        utilisation = statistics.median(values) * counted / PEAK_FLOPS
        share = f", {utilisation:.1%} of {PEAK_FLOPS / 1e12:.0f} TFLOP/s" if device.type == "cuda" else ""
        tell(f"{name}: {spread(values)} tokens/s{share}")
    for source in ("online", "kept", "given"):
        result[f"phases_ms_{source}"] = found = phases(ours, source, arguments.window)
        busy = host_ms(ours, source, arguments.window)
        tell(f"phases, {source} (ms, waiting after each): {found}; host busy {busy} ms a step")
    save()
    if arguments.profile:
        profile(ours, "online", arguments.profile)
        tell(f"kernels by time: {arguments.profile}")
    if arguments.public:
        result["public"] = {}
        beside_public(ours, arguments, result["public"], save)


def beside_public(ours: Ours, arguments: argparse.Namespace, result: dict[str, Any], save: Callable[[], None]) -> None:
    """Ours and the public trainer in turn, the surest way to run it first."""
    from public_trainer import WAYS, PublicTrainer, our_losses

    device = ours.device
    for way in (arguments.way,) if arguments.way else WAYS[device.type]:
        result[way] = found = {}
        public = PublicTrainer(ours, arguments.optimiser, Path(arguments.scratch), way)
        name = f"speculators ({way})"
        # compiled whole, its first pass is what takes minutes, so it is not asked for its losses apart from that
        if way != "whole":
            # training moved ours, and the other started from there; AdamW's steps differ, so this is before its first
            found["losses"] = losses = {"ours": our_losses(ours), "theirs": public.losses()}
            found["rows"] = {"ours": ours.given[0].judged.num_trained.tolist(), "theirs": public.num_rows()}
            tell(f"{name}: divergence by step from the same weights: {losses}; rows {found['rows']}")
            apart = max(abs(mine / theirs - 1) for mine, theirs in zip(*losses.values(), strict=True))
            found["same_work"] = bool(apart <= SAME_LOSS[ours.dtype])
            if not found["same_work"]:
                tell(f"! {name} does not compute what ours does, their losses lie {apart:.1%} apart: believe no ratio below")
        arms: dict[str, Callable[[int], int]] = {
            GIVEN: lambda steps: ours.window("given", steps),
            f"{name}, head frozen": public.window,
        }
        if way != "whole":
            arms[f"{name}, head trained"] = lambda steps, public=public: public.window(steps, train_head=True)
        found["memory_gib"] = {arm: warm_up(arm, run, device) for arm, run in arms.items() if arm != GIVEN}
        found["tokens_per_s"] = rates = {arm: [] for arm in arms}
        interleaved(arms, arguments, device, rates, save)
        for arm, values in rates.items():
            tell(f"{arm}: {spread(values)} tokens/s")
            if arm != GIVEN:
                ratio = [math.log(mine / theirs) for mine, theirs in zip(rates[GIVEN], values, strict=True)]
                estimate = block_interval([[value] for value in ratio], assumed_sd=0.1)
                figures = [round(math.exp(value), 3) for value in (estimate.value, estimate.low, estimate.high)]
                found.setdefault("ratio", {})[arm] = figures
                tell(f"ours / {arm}: {figures[0]} (95 % over {len(ratio)} repeats: {figures[1]} to {figures[2]})")
        save()


def end_after(seconds: float) -> None:
    """A compiler is not interrupted by anything gentler; what was measured has been told and written by then."""

    def end() -> None:
        tell(f"ended by --limit after {seconds:.0f} s")
        os._exit(0)

    timer = threading.Timer(seconds, end)
    timer.daemon = True
    timer.start()


def tell(line: str) -> None:
    """At once: a run that is cut off has said what it knew."""
    print(line, flush=True)


def spread(values: list[float]) -> str:
    return f"{statistics.median(values):,.0f} (from {min(values):,.0f} to {max(values):,.0f})"


def warm_up(name: str, arm: Callable[[int], int], device: torch.device) -> float | None:
    """A few steps, each told; returns the peak memory of the ones after them in GiB, None on a CPU."""
    for step in range(STEPS_BEFORE_TIMING[device.type]):
        started = waited(device)
        arm(1)
        tell(f"{name}: warming up, step {step + 1} took {waited(device) - started:.2f} s")
    if device.type != "cuda":
        return None
    torch.cuda.reset_peak_memory_stats(device)
    arm(2)
    memory = torch.cuda.max_memory_allocated(device) / 2**30
    tell(f"{name}: peak memory {memory:.2f} GiB")
    return memory


def interleaved(
    arms: dict[str, Callable[[int], int]],
    arguments: argparse.Namespace,
    device: torch.device,
    rates: dict[str, list[float]],
    save: Callable[[], None],
) -> None:
    """Adds tokens per second of every arm in every repeat to `rates`, told and saved as they come."""
    for repeat in range(arguments.repeats):
        for name in random.sample(sorted(arms), len(arms)):
            started = waited(device)
            tokens = arms[name](arguments.window)
            rates[name].append(tokens / (waited(device) - started))
        told = ", ".join(f"{name} {rates[name][-1]:,.0f}" for name in arms)
        tell(f"repeat {repeat + 1} of {arguments.repeats} (load {os.getloadavg()[0]:.1f}): {told} tokens/s")
        save()


def _target_matrices(ours: Ours) -> Iterator[Tensor]:
    """The target's layers, without embedding and head: what capture multiplies by."""
    from breakeven.drafter.model.llama import LlamaConfig, LlamaWeights

    folder = open_folder(ours.folder)
    for layer in LlamaWeights.from_folder(folder, LlamaConfig.from_folder(folder), torch.bfloat16).layers:
        yield from (layer.qkv, layer.out, layer.gate_up, layer.down)


if __name__ == "__main__":
    main()
