"""Training tokens per second on this machine: our step, its phases, and a public trainer's step on the same states.

    python benchmarks/training.py [--target demo:smollm2-135m-instruct] [--tokens 16384] [--sample-tokens 300] [--steps 6]
        [--draft-vocab 16384] [--window 20] [--repeats 5] [--public speculators] [--optimiser adamw] [--profile FILE] [--json FILE]

Samples are made up (random tokens, lengths around --sample-tokens, the first fifth of each a prompt): what a step costs does not
depend on what the tokens say. Every arm runs windows of --window steps, one after the other in an order drawn anew in each repeat,
so that drift of the machine meets all arms alike; ratios are medians over repeats.

* ours, target included: capture, batch, objective, backward, clipping, optimiser: what an epoch costs where states do not fit;
* ours, states kept: the same from the states of an earlier epoch;
* ours, states given: from states that lie on the device, which is all that the public trainer's step does;
* speculators: its own Trainer (train_epoch) on the same states, K, batch and packing, with its defaults (flex attention, its fused
  KL loss, compiled), fed from memory. It leaves its head frozen, so it computes less than ours. Its generation of states, by a vLLM
  server, is not timed. Its first steps compile and tune for minutes (150 s were not enough on an H200), so ours are printed, and
  written to --json, before it begins.

For `--public speculators` unpack the wheel where Python finds it (pip install --no-deps speculators==0.9.0 loguru==0.7.3
pydantic-settings). What it imports for other purposes (servers, data sets) is stood in for where it is not installed.

Floor on one H200 for SmolLM2-135M, batches of 16k, W = 16384, K = 6: 272 000 tokens/s with the target included.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
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

# bf16 products of one H200 without sparsity, by its data sheet; a large product reaches about 790.
PEAK_FLOPS = 989e12
STEPS_BEFORE_TIMING = 5
GIVEN, PUBLIC = "ours, states given", "speculators, states given"


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


class Speculators:
    """Its Trainer over the same batches, fed from the device's memory."""

    def __init__(self, ours: Ours, arguments: argparse.Namespace) -> None:
        _stand_in_for_unused_imports()
        from speculators.losses import resolve_loss_config  # type: ignore[import-not-found]
        from speculators.models.eagle3.core import Eagle3DraftModel  # type: ignore[import-not-found]
        from speculators.train.trainer import Trainer, TrainerConfig  # type: ignore[import-not-found]
        from transformers import AutoConfig

        layer = AutoConfig.from_pretrained(str(ours.folder))
        layer.num_hidden_layers = 1
        layer.head_dim = ours.config.shape.head_dim
        vocab_size = ours.config.shape.vocab_size
        known = torch.zeros(vocab_size, dtype=torch.bool)
        known[ours.target_ids] = True
        model = Eagle3DraftModel.from_training_args(
            layer,
            t2d=known,
            d2t=ours.target_ids - torch.arange(len(ours.target_ids)),
            verifier_name_or_path=str(ours.folder),
            target_layer_ids=list(ours.config.auxiliary_layers),
            draft_vocab_size=len(ours.target_ids),
            norm_before_residual=False,
            ttt_steps=ours.num_steps,
        )
        self.ours = ours
        self.loader = _Loader([_public_batch(batch) for batch in ours.given])
        loss = {"ttt_steps": ours.num_steps, "ttt_step_loss_decay": 0.8, "loss_config": resolve_loss_config("kl_div", "fused")}
        self.trainer = Trainer(
            model,
            TrainerConfig(
                lr=1e-5,
                num_epochs=1,
                save_path=str(Path(arguments.scratch) / "speculators"),
                train_call_kwargs=loss,
                scheduler_type="none",
                optimizer=arguments.optimiser,
                log_freq=10**9,  # each of its log lines waits for the device several times
            ),
            self.loader,
        )
        self.trainer.global_step = 1
        self.trainer.rank = 1  # so that it draws no progress bar

    def window(self, num_steps: int) -> int:
        self.loader.num_steps = num_steps
        self.trainer.train_epoch(0)
        return sum(self.ours.tokens(index) for index in range(num_steps))


class _Loader:
    """What its Trainer asks of a DataLoader."""

    batch_sampler = None

    def __init__(self, batches: list[dict[str, Any]]) -> None:
        self._batches = batches
        self.num_steps = len(batches)

    def __len__(self) -> int:
        return self.num_steps

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for index in range(self.num_steps):
            yield dict(self._batches[index % len(self._batches)])


def _public_batch(batch: TrainingBatch) -> dict[str, Any]:
    """Our batch in its layout: tokens one ahead of states, and one sequence of all samples."""
    following = torch.cat([batch.token_ids[1:], batch.token_ids[:1]])
    judged = torch.zeros(len(batch.token_ids), dtype=torch.bool, device=batch.token_ids.device)
    judged[batch.rows - 1] = True
    return {
        "hidden_states": batch.auxiliary[None],
        "input_ids": following[None],
        "document_ids": batch.samples.long()[None],
        "loss_mask": judged[None],
        "position_ids": batch.positions[None],
        "verifier_last_hidden_states": torch.cat([batch.last[1:], batch.last[:1]])[None],
        "error_records": 0,
    }


def _stand_in_for_unused_imports() -> None:
    from importlib.util import find_spec
    from unittest.mock import MagicMock

    for name in ("openai", "openai.types", "openai.types.chat", "openai.types.completion", "datasets", "hs_connectors", "httpx"):
        if name.partition(".")[0] not in sys.modules and find_spec(name.partition(".")[0]) is not None:
            continue
        module = MagicMock(name=name)
        module.__path__, module.__spec__, module.__name__ = [], None, name
        sys.modules[name] = module


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
    parser.add_argument("--profile", type=Path)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--scratch", default="/tmp")
    arguments = parser.parse_args()
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

    arms: dict[str, Callable[[int], int]] = {
        "ours, target included": lambda steps: ours.window("online", steps),
        "ours, states kept": lambda steps: ours.window("kept", steps),
        GIVEN: lambda steps: ours.window("given", steps),
    }
    result["memory_gib"] = {name: warm_up(name, arm, device) for name, arm in arms.items()}
    result["tokens_per_s"] = rates = interleaved(arms, arguments, device)
    judged = sum(int(batch.judged.num_trained[0]) for batch in ours.given)
    share = judged / sum(batch.num_tokens for batch in ours.given)
    body = sum(tensor.numel() for tensor in _target_matrices(ours))
    result["flops"] = flops = flops_a_token(ours.config, ours.num_steps, share, body)
    tell(f"rows judged: {share:.1%}; GFLOP a token: " + ", ".join(f"{name} {value / 1e9:.3f}" for name, value in flops.items()))
    for name, values in rates.items():
        counted = sum(flops.values()) if "included" in name else flops["layer"] + flops["vocabulary"]
        utilisation = statistics.median(values) * counted / PEAK_FLOPS
        tell(f"{name}: {spread(values)} tokens/s, {utilisation:.1%} of {PEAK_FLOPS / 1e12:.0f} TFLOP/s")
    for source in ("online", "kept", "given"):
        result[f"phases_ms_{source}"] = found = phases(ours, source, arguments.window)
        busy = host_ms(ours, source, arguments.window)
        tell(f"phases, {source} (ms, waiting after each): {found}; host busy {busy} ms a step")
    save()
    if arguments.profile:
        profile(ours, "online", arguments.profile)
        tell(f"kernels by time: {arguments.profile}")
    if arguments.public:
        public = {GIVEN: arms[GIVEN], PUBLIC: Speculators(ours, arguments).window}
        result["memory_gib"][PUBLIC] = warm_up(PUBLIC, public[PUBLIC], device)
        result["beside_public"] = beside = interleaved(public, arguments, device)
        result["ratio"] = ratios = [mine / theirs for mine, theirs in zip(beside[GIVEN], beside[PUBLIC], strict=True)]
        tell(f"{PUBLIC}: {spread(beside[PUBLIC])} tokens/s; ours beside it: {spread(beside[GIVEN])}")
        tell(f"ours / speculators: {statistics.median(ratios):.2f} (from {min(ratios):.2f} to {max(ratios):.2f})")
        save()


def tell(line: str) -> None:
    """At once: a run that is cut off has said what it knew."""
    print(line, flush=True)


def spread(values: list[float]) -> str:
    return f"{statistics.median(values):,.0f} (from {min(values):,.0f} to {max(values):,.0f})"


def warm_up(name: str, arm: Callable[[int], int], device: torch.device) -> float:
    """A few steps, each told; returns the peak memory of the ones after them in GiB."""
    for step in range(STEPS_BEFORE_TIMING):
        started = waited(device)
        arm(1)
        tell(f"{name}: warming up, step {step + 1} took {waited(device) - started:.2f} s")
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    arm(2)
    memory = torch.cuda.max_memory_allocated(device) / 2**30 if device.type == "cuda" else float("nan")
    tell(f"{name}: peak memory {memory:.2f} GiB")
    return memory


def interleaved(
    arms: dict[str, Callable[[int], int]], arguments: argparse.Namespace, device: torch.device
) -> dict[str, list[float]]:
    """Tokens per second of every arm in every repeat."""
    rates: dict[str, list[float]] = {name: [] for name in arms}
    for _ in range(arguments.repeats):
        for name in random.sample(sorted(arms), len(arms)):
            started = waited(device)
            tokens = arms[name](arguments.window)
            rates[name].append(tokens / (waited(device) - started))
    return rates


def _target_matrices(ours: Ours) -> Iterator[Tensor]:
    """The target's layers, without embedding and head: what capture multiplies by."""
    from breakeven.drafter.model.llama import LlamaConfig, LlamaWeights

    folder = open_folder(ours.folder)
    for layer in LlamaWeights.from_folder(folder, LlamaConfig.from_folder(folder), torch.bfloat16).layers:
        yield from (layer.qkv, layer.out, layer.gate_up, layer.down)


if __name__ == "__main__":
    main()
