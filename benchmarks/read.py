"""How fast `breakeven read` reads a large log, and in how much memory, against one regular expression a line.

    python benchmarks/read.py                      # 1 GB of SGLang's log, a third of it decode lines
    python benchmarks/read.py --megabytes 200 --engine vllm
    python benchmarks/read.py --decode-share 1.0   # decode lines and nothing else: the worst case

The log is written once to a temporary folder: decode lines with random lengths, rates and batches among request lines as servers
write (access logs, prompts, prefill). Each reader gets a process of its own; wall seconds, CPU seconds and the most memory are that
process's. On a busy machine only CPU seconds carry over. The plain reader matches one expression on every line and keeps lengths
and throughputs: less than a reading needs.

Exits with 1 where Breakeven misses its floor: a gigabyte in at most 60 s of processor time, whatever its lines, in at most 200 MB.
"""

from __future__ import annotations

import argparse
import random
import re
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

FLOOR_S_PER_GB = 60.0
FLOOR_MB = 200.0
REQUEST_LINES = (
    '[2026-03-01 12:00:00] INFO:     10.0.{a}.{b}:{c} - "POST /v1/chat/completions HTTP/1.1" 200 OK',
    "[2026-03-01 12:00:00] Receive: obj=GenerateReqInput(rid='{c:032x}', text='{words}', sampling_params={{'temperature': 0.7}})",
    "[2026-03-01 12:00:00] Finish: obj=GenerateReqInput(rid='{c:032x}'), out={{'text': '{words}', 'meta_info': {{'e2e': 1.5}}}}",
    (
        "[2026-03-01 12:00:00 TP0] Prefill batch, #new-seq: 1, #new-token: {c}, #cached-token: {b}, token usage: 0.05, "
        "#running-req: 7, #queue-req: 0, "
    ),
)
WORDS = [
    "speculative",
    "decoding",
    "pays",
    "when",
    "accepted",
    "tokens",
    "outweigh",
    "what",
    "a",
    "round",
    "costs",
    "and",
    "the",
    "batch",
    "is",
    "small",
    "enough",
    "for",
    "it",
]
PLAIN = {
    "sglang": re.compile(
        r"Decode batch.*?#running-req: (\d+).*?accept len: ([\d.]+), accept rate: ([\d.]+).*?gen throughput \(token/s\): ([\d.]+)"
    ),
    "vllm": re.compile(r"Mean acceptance length: ([\d.]+).*?Accepted: (\d+) tokens, Drafted: (\d+) tokens"),
}


def decode_line(rng: random.Random, second: int, engine: str) -> str:
    stamp = f"2026-03-{1 + second // 86400 % 28:02d} {second // 3600 % 24:02d}:{second // 60 % 60:02d}:{second % 60:02d}"
    length = rng.gauss(2.6, 0.2)
    if engine == "sglang":
        running = rng.randrange(1, 65)
        return (
            f"[{stamp} TP0] Decode batch, #running-req: {running}, #token: {running * 900}, token usage: 0.31, "
            f"accept len: {length:.2f}, accept rate: {(round(length, 2) - 1) / 3:.2f}, cuda graph: True, gen throughput (token/s): "
            f"{running * 60 + rng.random():.2f}, #queue-req: 0"
        )
    joint = [0.75, 0.52, length - 2.27]
    accepted, rates = round(sum(joint) * 4000), ", ".join(f"{rate:.3f}" for rate in joint)
    return (
        f"(APIServer pid=42) INFO {stamp[5:]} [loggers.py:248] Engine 000: Avg prompt throughput: 10.0 tokens/s, Avg generation "
        f"throughput: 1040.0 tokens/s, Running: 8 reqs, Waiting: 0 reqs, GPU KV cache usage: 3.2%, Prefix cache hit rate: 11.0%\n"
        f"(APIServer pid=42) INFO {stamp[5:]} [metrics.py:96] SpecDecoding metrics: "
        f"Mean acceptance length: {1 + accepted / 4000:.2f}, Accepted throughput: {accepted / 10:.2f} tokens/s, "
        f"Drafted throughput: 1200.00 tokens/s, Accepted: {accepted} tokens, Drafted: 12000 tokens, "
        f"Per-position acceptance rate: {rates}, Avg Draft acceptance rate: {accepted / 120:.1f}%"
    )


def write_log(path: Path, num_bytes: int, decode_share: float, engine: str) -> None:
    """A block of a few MB made with care, repeated with other stamps in its place: the log must be written in seconds."""
    rng = random.Random(0)
    second = written = 0
    with path.open("w", encoding="utf-8") as out:
        while written < num_bytes:
            lines = []
            for _ in range(20_000):
                if rng.random() < decode_share:
                    second += 1
                    lines.append(decode_line(rng, second, engine))
                else:
                    words = " ".join(rng.choices(WORDS, k=rng.randrange(5, 60)))
                    lines.append(
                        rng.choice(REQUEST_LINES).format(
                            a=rng.randrange(255), b=rng.randrange(255), c=rng.randrange(60_000), words=words
                        )
                    )
            text = "\n".join(lines) + "\n"
            for _ in range(8):
                written += out.write(text)


def read_plainly(path: Path, engine: str) -> int:
    search = PLAIN[engine].search
    with path.open(encoding="utf-8", errors="replace") as opened:
        return len([[float(text) for text in match.groups()] for line in opened if (match := search(line))])


def read_with_breakeven(path: Path) -> int:
    from breakeven.readers.files import read_files

    return sum(reading.num_lines for reading in read_files([path]).readings)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--megabytes", type=int, default=1000)
    parser.add_argument("--decode-share", type=float, default=0.33)
    parser.add_argument("--engine", choices=sorted(PLAIN), default="sglang")
    parser.add_argument("--child", choices=("breakeven", "plain"), help=argparse.SUPPRESS)
    parser.add_argument("--log", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        started_s = time.perf_counter()
        count = read_with_breakeven(options.log) if options.child == "breakeven" else read_plainly(options.log, options.engine)
        usage = resource.getrusage(resource.RUSAGE_SELF)
        wall_s, cpu_s, peak_mb = time.perf_counter() - started_s, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1e3
        print(
            f"{options.child:<10} {count:>9} intervals  {wall_s:6.1f} s  {cpu_s:6.1f} CPU s  {peak_mb:6.0f} MB at most", flush=True
        )
        floor_s = FLOOR_S_PER_GB * max(0.1, options.log.stat().st_size / 1e9)
        if options.child == "breakeven" and (cpu_s > floor_s or peak_mb > FLOOR_MB):
            sys.exit(f"the floor is missed: at most {floor_s:.0f} CPU s and {FLOOR_MB:.0f} MB")
        return
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "server.log"
        write_log(log, options.megabytes * 1_000_000, options.decode_share, options.engine)
        print(f"{log.stat().st_size / 1e6:.0f} MB of {options.engine}'s log, {options.decode_share:.0%} decode lines")
        command = [sys.executable, __file__, "--log", str(log), "--engine", options.engine]
        done = [subprocess.run([*command, "--child", child], check=False).returncode for child in ("breakeven", "plain")]
    sys.exit(any(done))


if __name__ == "__main__":
    main()
