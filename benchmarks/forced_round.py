"""Does a round that accepts to order cost what a real round costs? In one vLLM process, so that no launch differs from another.

    PYTHON_WITH_VLLM benchmarks/forced_round.py [--target FOLDER] [--loads 1,8,64] [--repeats 6] [--limit SECONDS] [--json FILE]

`forced_against_real.py` compares servers as users run them, and servers of one arm differ by 10 to 30 % from launch to launch, so
many launches say little. Here one engine runs the drafter, and forced acceptance is switched on and off in it every `--turn`
seconds while one steady batch goes on: a machine that is slow for a second is slow for both. A second engine of the same process
decodes plainly, in windows of its own. Every window starts anew: requests of the built-in prompts at evenly spread stages of their
answers, `--warmup` seconds, then `--window` seconds of each arm. Which engine and which arm come first is drawn anew each time.
Prints for every load the time of a round in ms, c of both arms and the ratio of their rounds, with 95 % over repeats.

Reaches into vLLM: made for 0.26 on a GPU (both of its model runners; forced acceptance is refused on a CPU), where the switch is
the rejection sampler's `synthetic_conditional_rates`.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import json
import math
import os
import random
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"

ROOT = Path(__file__).parents[1]
HEAD = ROOT / "models" / "smollm2-135m-eagle3"
PROMPTS = ROOT / "src" / "breakeven" / "loadgen" / "data" / "prompts.jsonl"
PLAIN, REAL, FORCED = "plain", "drafter", "forced"
# a step that was scheduled before a turn began may end in it
ROUNDS_UNDER_WAY = 3
# of Student's t at 95 %, by degrees of freedom
STUDENT = {1: 12.71, 2: 4.30, 3: 3.18, 4: 2.78, 5: 2.57, 6: 2.45, 7: 2.36, 8: 2.31, 9: 2.26}


class Engine:
    """A vLLM engine in this process."""

    def __init__(self, options: argparse.Namespace, speculation: dict[str, Any] | None) -> None:
        from vllm import EngineArgs, LLMEngine  # type: ignore[import-not-found]

        largest = max(options.loads)
        tokens = 1 if speculation is None else options.drafts + 1
        arguments = {
            "model": options.target,
            "max_model_len": 1024,
            "max_num_seqs": largest,
            "seed": 0,
            "gpu_memory_utilization": 0.3,
            "speculative_config": speculation,
            "disable_log_stats": True,
            **({} if options.cpu else {"max_cudagraph_capture_size": largest * tokens}),
        }
        self.engine = LLMEngine.from_engine_args(EngineArgs(**arguments))
        self.tokens = options.max_tokens
        self.number = itertools.count()

    def window(
        self, load: int, prompts: Iterator[list[int]], warmup_s: float, turns: Sequence[tuple[str, float, Callable[[], None]]]
    ) -> dict[str, tuple[float, float]]:
        """Seconds a round, and tokens a round of one request, of `load` requests that are always under way, by arm.

        `turns` are the arm, seconds and what begins the turn: the rounds that are under way then are nobody's.
        """
        for slot in range(load):
            self._add(next(prompts), max(1, round(self.tokens * (slot + 1) / load)))
        self._rounds(load, prompts, warmup_s)
        sums: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0, 0.0])
        for arm, turn_s, begin in turns:
            begin()
            self._rounds(load, prompts, 0.0, at_least=ROUNDS_UNDER_WAY)
            for index, value in enumerate(self._rounds(load, prompts, turn_s)):
                sums[arm][index] += value
        self.engine.abort_request(list(self.engine.output_processor.request_states), internal=True)
        while self.engine.has_unfinished_requests():
            self.engine.step()
        return {arm: (seconds * load / rounds, tokens / rounds) for arm, (seconds, rounds, tokens) in sums.items()}

    def _rounds(self, load: int, prompts: Iterator[list[int]], least_s: float, at_least: int = 1) -> tuple[float, int, int]:
        """Goes on for so many seconds and rounds of the batch: the seconds, the rounds of all requests, their tokens."""
        begun, rounds, tokens = time.perf_counter(), 0, 0
        while rounds < at_least * load or time.perf_counter() - begun < least_s:
            outputs = self.engine.step()
            # an output of one request is what one round gave it
            rounds += sum(bool(output.outputs[0].token_ids) for output in outputs)
            tokens += sum(len(output.outputs[0].token_ids) for output in outputs)
            for output in outputs:
                if output.finished:
                    self._add(next(prompts), self.tokens)
        return time.perf_counter() - begun, rounds, tokens

    def _add(self, prompt: list[int], max_tokens: int) -> None:
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind  # type: ignore[import-not-found]

        sampling = SamplingParams(
            temperature=0.0, max_tokens=max_tokens, ignore_eos=True, detokenize=False, output_kind=RequestOutputKind.DELTA
        )
        self.engine.add_request(str(next(self.number)), {"prompt_token_ids": prompt}, sampling)


class Switch:
    """Forced acceptance of the engine of this process, on and off."""

    def __init__(self) -> None:
        gc.unfreeze()  # vLLM hides what it has loaded from the collector
        found = [each for each in gc.get_objects() if type(each).__name__ == "RejectionSampler"]
        self.samplers = [sampler for sampler in found if sampler.synthetic_conditional_rates is not None]
        assert len(self.samplers) == 1, f"{len(found)} rejection samplers, {len(self.samplers)} of them forced; expected one"
        self.rates = self.samplers[0].synthetic_conditional_rates

    def set(self, forced: bool) -> None:
        for sampler in self.samplers:
            sampler.synthetic_conditional_rates = self.rates if forced else None
            if hasattr(sampler, "synthetic_mode"):
                sampler.synthetic_mode = forced


def chat_prompts(target: str) -> list[list[int]]:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(target)
    messages = [json.loads(line)["messages"] for line in PROMPTS.read_text(encoding="utf-8").splitlines()]
    texts = [tokenizer.apply_chat_template(each, tokenize=False, add_generation_prompt=True) for each in messages]
    return [tokenizer.encode(text, add_special_tokens=False) for text in texts]


def shown(logs: list[float]) -> str:
    """The geometric mean, and its 95 % over repeats."""
    middle = statistics.fmean(logs)
    if len(logs) < 2:
        return f"{math.exp(middle):.3f} (one repeat)"
    half = STUDENT.get(len(logs) - 1, 2.26) * statistics.stdev(logs) / math.sqrt(len(logs))
    return f"{math.exp(middle):.3f} [{math.exp(middle - half):.3f}, {math.exp(middle + half):.3f}]"


def the_turns(
    options: argparse.Namespace, switch: Switch | None, arm: str, chance: random.Random
) -> list[tuple[str, float, Callable[[], None]]]:
    """One arm's whole window, or both arms of a switch in short turns: A B B A, so that a drift meets both alike."""
    if switch is None:
        return [(arm, options.window, lambda: None)]
    first = chance.random() < 0.5
    pairs = max(1, round(options.window / options.turn))
    forced = [kind for index in range(pairs) for kind in ((first, not first) if index % 2 == 0 else (not first, first))]
    return [(FORCED if kind else REAL, options.turn, partial(switch.set, kind)) for kind in forced]


def report(options: argparse.Namespace, windows: list[dict[str, Any]]) -> None:
    seconds: dict[tuple[str, int], dict[int, float]] = defaultdict(dict)
    lengths: dict[tuple[str, int], list[float]] = defaultdict(list)
    for each in windows:
        seconds[each["arm"], each["load"]][each["repeat"]] = each["seconds_a_round"]
        lengths[each["arm"], each["load"]].append(each["tokens_a_round"])

    def ratio(load: int, above: str, below: str) -> str:
        mine, theirs = seconds[above, load], seconds[below, load]
        logs = [math.log(mine[repeat] / theirs[repeat]) for repeat in sorted(mine.keys() & theirs.keys())]
        return shown(logs) if logs else "-"

    print(
        "| load | ms a round: plain, drafter, forced | tokens a round | c of the drafter | c forced | drafter / forced | repeats |"
    )
    print("|---|---|---|---|---|---|---|")
    for load in options.loads:
        arms = [arm for arm in (PLAIN, REAL, FORCED) if seconds[arm, load]]
        times = ", ".join(f"{1000 * statistics.median(seconds[arm, load].values()):.2f}" for arm in arms)
        tokens = ", ".join(f"{statistics.fmean(lengths[arm, load]):.2f}" for arm in arms)
        ratios = " | ".join(ratio(load, *pair) for pair in ((REAL, PLAIN), (FORCED, PLAIN), (REAL, FORCED)))
        print(f"| {load} | {times} | {tokens} | {ratios} | {max((len(seconds[arm, load]) for arm in arms), default=0)} |")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", required=True, help="folder of SmolLM2-135M-Instruct (breakeven fetch prints it)")
    parser.add_argument("--loads", default="1,8,64", type=lambda text: [int(load) for load in text.split(",")])
    parser.add_argument("--drafts", type=int, default=3)
    parser.add_argument("--accept-length", type=float, default=2.59)
    parser.add_argument("--max-tokens", type=int, default=256)
    parser.add_argument("--warmup", type=float, default=0.6)
    parser.add_argument("--window", type=float, default=3.0)
    parser.add_argument("--turn", type=float, default=0.5)
    parser.add_argument("--repeats", type=int, default=6)
    parser.add_argument("--limit", type=float, default=math.inf, help="begin no window after so many seconds")
    parser.add_argument("--cpu", action="store_true", help="drafter and plain alone, to try this script where there is no GPU")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    begun = time.perf_counter()

    drafting: dict[str, Any] = {"method": "eagle3", "model": str(HEAD), "num_speculative_tokens": options.drafts}
    forcing = {"rejection_sample_method": "synthetic", "synthetic_acceptance_length": options.accept_length}
    speculating = Engine(options, drafting if options.cpu else drafting | forcing)
    switch = None if options.cpu else Switch()
    print(f"drafter is ready after {time.perf_counter() - begun:.0f} s", flush=True)
    plain = Engine(options, None)
    print(f"plain is ready after {time.perf_counter() - begun:.0f} s", flush=True)

    chance, prompts = random.Random(0), chat_prompts(options.target)
    windows: list[dict[str, Any]] = []
    # kernels and batches of every size are met once before any window counts
    for repeat in range(-1, options.repeats):
        for load in options.loads:
            order = chance.sample(prompts, len(prompts))
            for engine in chance.sample([plain, speculating], 2):
                if time.perf_counter() - begun > options.limit:
                    break
                turns = the_turns(options, None if engine is plain else switch, PLAIN if engine is plain else REAL, chance)
                turns = turns if repeat >= 0 else turns[:2]
                for arm, (seconds, tokens) in engine.window(load, itertools.cycle(order), options.warmup, turns).items():
                    told = {"repeat": repeat, "load": load, "arm": arm, "seconds_a_round": seconds, "tokens_a_round": tokens}
                    print(json.dumps(told), flush=True)
                    if repeat >= 0:
                        windows.append(told)
                if options.json is not None:
                    options.json.write_text(json.dumps(windows), encoding="utf-8")
    report(options, windows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
