"""The server's flags, and the record they become."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NoReturn

from breakeven.errors import UsageError

__all__ = ["ServerOptions", "parse_flags"]

LOOPBACK = ("127.0.0.1", "localhost", "::1")
# As a plan has it: no drafter is right so often in a row, and every drafted token takes room in each request's cache.
MAX_DRAFT_TOKENS = 64
MAX_SEED = 2**63 - 1
# The cache of all slots is taken when the server starts.
MAX_REQUESTS = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerOptions:
    """`model` and `draft_model` are folders or hub ids, as given. `forced_accept_length` is a mean, bonus token included."""

    model: str
    port: int
    host: str = "127.0.0.1"
    served_model_name: str | None = None
    method: str | None = None
    num_draft_tokens: int = 3
    draft_model: str | None = None
    forced_accept_length: float | None = None
    ngram_max: int = 3
    ngram_min: int = 1
    draft_schedule: tuple[tuple[int, int, int], ...] = ()
    dtype: str = "auto"
    max_num_seqs: int = 8
    context_length: int | None = None
    num_threads: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if self.host not in LOOPBACK:
            raise UsageError(
                f"--host {self.host}: this server has no authentication and listens on loopback only ({', '.join(LOOPBACK)})"
            )
        if not 0 <= self.port <= 65535:
            raise UsageError(f"--port {self.port}: expected 1 to 65535, or 0 for any free port")
        if self.num_threads is not None and self.num_threads < 1:
            raise UsageError(f"--num-threads {self.num_threads}: expected at least 1")
        if not 1 <= self.num_draft_tokens <= MAX_DRAFT_TOKENS:
            raise UsageError(f"--num-draft-tokens {self.num_draft_tokens}: expected 1 to {MAX_DRAFT_TOKENS}")
        if not 0 <= self.seed <= MAX_SEED:
            raise UsageError(f"--seed {self.seed}: expected 0 to {MAX_SEED}")
        if not 1 <= self.max_num_seqs <= MAX_REQUESTS:
            raise UsageError(f"--max-num-seqs {self.max_num_seqs}: expected 1 to {MAX_REQUESTS}")
        if self.context_length is not None and self.context_length < 2:
            raise UsageError(f"--context-length {self.context_length}: expected at least 2")
        self._check_schedule()
        if self.draft_model is not None and self.method != "eagle3":
            raise UsageError(f"--draft-model goes with --method eagle3, found --method {self.method}")

    def _check_schedule(self) -> None:
        if self.draft_schedule and (self.method is None or self.forced_accept_length is not None):
            raise UsageError("--draft-schedule goes with --method, and not with --forced-accept-length")
        expected = 1
        for first, last, drafts in self.draft_schedule:
            if first != expected or last < first:
                raise UsageError(
                    f"--draft-schedule: found {first}-{last} where a range from {expected} was expected; they follow on from 1"
                )
            if drafts > self.num_draft_tokens:
                raise UsageError(
                    f"--draft-schedule: {drafts} drafts at {first}-{last}, above --num-draft-tokens {self.num_draft_tokens}"
                )
            expected = last + 1

    @property
    def model_name(self) -> str:
        """What requests call the model."""
        return self.served_model_name or self.model


def _schedule(text: str) -> tuple[tuple[int, int, int], ...]:
    parts = [re.fullmatch(r"(\d{1,6})-(\d{1,6}):(\d{1,4})", part) for part in text.split(",")]
    if not all(parts):
        raise argparse.ArgumentTypeError(f"{text[:80]!a}; expected FIRST-LAST:DRAFTS, separated by commas, e.g. 1-8:3,9-64:0")
    return tuple((int(part[1]), int(part[2]), int(part[3])) for part in parts if part is not None)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message} (see python -m breakeven.drafter.serving --help)")


def parse_flags(arguments: Sequence[str]) -> ServerOptions:
    """Options from the command line.

    Raises:
        UsageError: an unknown flag or a value that makes no sense.
    """
    parser = _Parser(
        prog="python -m breakeven.drafter.serving",
        description="Breakeven's embedded engine: an OpenAI-compatible server for laptops, tests and teaching.",
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("--model", required=True, metavar="DIR", help="target: a model folder, or a hub id in the local hub cache")
    add("--port", required=True, type=int, help="port to listen on; 0 takes a free one and logs it")
    add("--host", default="127.0.0.1", help="loopback address to listen on (default %(default)s)")
    add("--served-model-name", metavar="NAME", help="what requests call the model (default: --model as given)")
    add("--method", choices=("ngram", "eagle3"), help="how to draft (default: plain decoding)")
    add("--num-draft-tokens", type=int, default=3, metavar="K", help="tokens drafted a round (default %(default)s)")
    add("--draft-model", metavar="DIR", help="EAGLE-3 head: a folder, or a hub id in the local hub cache")
    add("--forced-accept-length", type=float, metavar="X", help="accept to order: mean tokens a round, bonus included")
    add("--ngram-max", type=int, default=3, metavar="N", help="longest n-gram looked up (default %(default)s)")
    add("--ngram-min", type=int, default=1, metavar="N", help="shortest n-gram looked up (default %(default)s)")
    add(
        "--draft-schedule",
        type=_schedule,
        default=(),
        metavar="A-B:K,...",
        help="tokens drafted a round by how many requests run, e.g. 1-8:3,9-64:0 (default: always --num-draft-tokens)",
    )
    add("--dtype", choices=("auto", "float32", "bfloat16"), default="auto", help="arithmetic (default %(default)s: float32)")
    add("--max-num-seqs", type=int, default=8, metavar="N", help="requests run at once; the others wait (default %(default)s)")
    add(
        "--context-length",
        type=int,
        metavar="N",
        help="most tokens of prompt and answer together (default: the model's, at most 2048)",
    )
    add("--num-threads", type=int, metavar="N", help="threads of the forward pass (default: torch's)")
    add("--seed", type=int, default=0, help="seed for requests that bring none (default %(default)s)")
    return ServerOptions(**vars(parser.parse_args(arguments)))
