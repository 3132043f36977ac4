"""What somebody meant by a key that a reported table does not have: another name, a mistyped one, or another figure."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable

__all__ = ["nearest_key"]

# Names people use for a key; only to name the right one when theirs is refused.
_SYNONYMS = {
    "acc_len": "accept_length",
    "accept_len": "accept_length",
    "acceptance_length": "accept_length",
    "al": "accept_length",
    "acc_rate": "accept_rate",
    "acceptance": "accept_rate",
    "acceptance_rate": "accept_rate",
    "arms": "rows",
    "batch_size": "concurrency",
    "conc": "concurrency",
    "config": "arm",
    "dataset": "workload",
    "eagle_topk": "topk",
    "k": "draft_tokens",
    "max_num_seqs": "max_running_requests",
    "model": "name",
    "name": "arm",
    "num_draft_tokens": "draft_tokens",
    "num_speculative_tokens": "draft_tokens",
    "num_steps": "steps",
    "batch": "concurrency",
    "bs": "concurrency",
    "drafts": "draft_tokens",
    "num_drafts": "draft_tokens",
    "engine_version": "version",
    "speed_up": "speedup",
    "release": "version",
    "single_stream": "single_stream_tok_s",
    "throughput": "throughput_tok_s",
    "tok_s": "throughput_tok_s",
    "tp": "tensor_parallel",
    "tp_size": "tensor_parallel",
    "tpot": "tpot_ms",
    "dp_size": "settings",
    "attention_backend": "settings",
    "chunked_prefill": "settings",
    "prefix_cache": "prefix_caching",
    "radix_cache": "prefix_caching",
    "temp": "temperature",
    "warmup": "warm_up",
    "stat": "statistic",
    "per_position": "accept_by_position",
    "per_position_acceptance": "accept_by_position",
    "acceptance_by_position": "accept_by_position",
    "isl": "input_tokens",
    "osl": "output_tokens",
}

# Figures that people report and that say something else than a key here: why, and what to give.
_OTHER_FIGURES = {
    "itl": "with speculation an inter-token latency is the time between chunks of several tokens; give tpot_ms, (end - first "
    "token) / (tokens - 1)",
    "ttft": "the first token comes from prefill, which speculation does not shorten; leave it out, or put it into notes",
    "goodput": "how many requests kept their limits depends on limits and arrivals; give throughput_tok_s and tpot_ms at the same "
    "load, and let a plan with objective: goodput measure it (docs/objectives.md)",
    "request_throughput": "requests/s times output tokens of a request is throughput_tok_s; give that, and output_tokens",
    "req_s": "requests/s times output tokens of a request is throughput_tok_s; give that, and output_tokens",
    "total_token_throughput": "it counts prompt tokens too; give output tokens/s as throughput_tok_s",
    "latency": "the time of a whole request holds prefill and waiting; give tpot_ms, or tokens/s",
    "e2el": "the time of a whole request holds prefill and waiting; give tpot_ms, or tokens/s",
    "position": "give them together as accept_by_position: 0.76, 0.60, 0.50",
}

# A name of a speed: with it a length (`output_tokens`) would be the nearest key by letters, and the wrong one.
_SPEED = re.compile(r"(?:^|_)(?:tps|throughput|tok(?:en)?s?_(?:per_)?s(?:ec(?:ond)?)?)(?:_|$)")
_OF_A_REQUEST = re.compile(r"(?:^|_)(?:request|user|stream|sequence)(?:_|$)")
# Letters so alike that a key was mistyped.
_MISTYPED = 0.85


def nearest_key(key: str, known: Iterable[str]) -> str:
    """The end of a message that refuses `key`."""
    known = tuple(known)
    plain = re.sub(r"\W+", "_", key.lower()).strip("_")
    synonym = _SYNONYMS.get(plain.removeprefix("speculative_"))
    if synonym in known:
        return f"; did you mean {synonym!r}?"
    other = next((why for word, why in _OTHER_FIGURES.items() if re.search(rf"(?:^|_){word}(?:_|$|\d)", plain)), None)
    if other is not None:
        return f": {other}"
    mistyped = difflib.get_close_matches(plain, known, n=1, cutoff=_MISTYPED)
    if not mistyped and _SPEED.search(plain) and "throughput_tok_s" in known:
        of = {"throughput_tok_s": "the whole server", "request_speed_tok_s": "one request"}
        meant, other_speed = sorted(of, reverse=not _OF_A_REQUEST.search(plain))
        return f"; did you mean {meant!r}, output tokens/s of {of[meant]} ({other_speed!r} is that of {of[other_speed]})?"
    close = mistyped or difflib.get_close_matches(plain, known, n=1, cutoff=0.6)
    return f"; did you mean {close[0]!r}?" if close else f"; known: {', '.join(known)}"
