"""How many answer tokens a second the in-process generator makes.

    python benchmarks/generation.py --model ~/.cache/breakeven/models/smollm2-135m-instruct     # one GPU: 16 384 answers
    python benchmarks/generation.py --model DIR --prompts 64 --tokens 32                         # a CPU, to see that it runs

Prompts are user turns that the model writes itself (temperature 1, top_p 0.95); their answers are half greedy, half at temperature
0.7, as training data is made. Seconds are wall time of the whole call; loading, kernels, compilation and graphs are counted
separately, and so is how many answers ended with a stop token. Prints one JSON object.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
import time
from pathlib import Path

import torch
from tokenizers import Tokenizer

from breakeven.drafter.data.generation import generate

SYSTEM = "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n<|im_start|>user\n"


def measured(
    name: str, folder: Path, prompts: list[list[int]], **arguments: object
) -> tuple[dict[str, object], dict[int, list[int]]]:
    began = time.perf_counter()
    answers = generate(folder, prompts, **arguments)
    ready = time.perf_counter()
    results = {index: (list(tokens), reason) for index, tokens, reason in answers}
    ended = time.perf_counter()
    num_tokens = sum(len(tokens) for tokens, _ in results.values())
    figures = {
        "stage": name,
        "answers": len(results),
        "answer_tokens": num_tokens,
        "prompt_tokens": sum(map(len, prompts)),
        "stopped": sum(reason == "stop" for _, reason in results.values()),
        "prepare_s": round(ready - began, 3),
        "generate_s": round(ended - ready, 3),
        "tokens_per_s": round(num_tokens / (ended - ready)),
        "tokens_per_s_with_preparation": round(num_tokens / (ended - began)),
    }
    if torch.cuda.is_available():
        figures["peak_memory_gib"] = round(torch.cuda.max_memory_allocated() / 2**30, 1)
    print(json.dumps(figures), file=sys.stderr, flush=True)
    return figures, {index: tokens for index, (tokens, _) in results.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--prompts", type=int, default=16_384)
    parser.add_argument("--tokens", type=int, default=384, help="most tokens of an answer")
    parser.add_argument("--batch", type=int, help="sequences at once")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO)

    tokenizer = Tokenizer.from_file(str(arguments.model / "tokenizer.json"))

    def ids(text: str) -> list[int]:
        return list(tokenizer.encode(text, add_special_tokens=False).ids)

    stop = tokenizer.token_to_id("<|im_end|>")
    start, end = ids(SYSTEM), ids("<|im_end|>\n<|im_start|>assistant\n")
    common = {"seed": arguments.seed, "stop_ids": [stop], "batch_size": arguments.batch}
    first, turns = measured(
        "user turns", arguments.model, [start] * arguments.prompts, max_new_tokens=64, temperature=1.0, top_p=0.95, **common
    )
    prompts = [start + [token for token in turns[index] if token != stop] + end for index in range(arguments.prompts)]
    second, _ = measured(
        "answers",
        arguments.model,
        prompts,
        max_new_tokens=arguments.tokens,
        temperature=[0.7 * (index % 2) for index in range(len(prompts))],
        top_p=0.95,
        **common,
    )
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"
    print(json.dumps({"device": device, "torch": torch.__version__, "stages": [first, second]}, indent=2))


if __name__ == "__main__":
    main()
