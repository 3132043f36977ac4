"""What the columns of a table of speedups are called, and those that nobody may overlook because they change what is meant."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

__all__ = ["Columns", "bonus_included", "is_plain", "is_unknown", "named_columns"]

# what columns are called, first the name used here
COLUMNS = {
    "setup": ("setup", "setup_id"),
    "target": ("target", "model", "target_model"),
    "quantization": ("quantization", "target_quant", "quant"),
    "hardware": ("hardware", "gpu"),
    "parallel": ("tensor_parallel", "tp", "tp_size"),
    "gpus": ("num_gpus", "gpus", "num_gpu"),
    "engine": ("engine",),
    "drafter": ("drafter", "draft_model"),
    "method": ("method",),
    "steps": ("steps", "num_steps"),
    "topk": ("topk", "top_k_drafts", "eagle_topk"),
    "draft_tokens": ("draft_tokens", "num_draft_tokens", "num_speculative_tokens", "k"),
    "dataset": ("workload", "dataset"),
    "concurrency": ("concurrency", "batch_size"),
    "context": ("context", "context_length", "input_tokens", "input_len", "prompt_tokens", "isl"),
    "accept_length": ("accept_length", "accept_len", "acceptance_length", "acceptance_len", "mean_accept_length", "al"),
    "accept_rate": ("accept_rate", "acceptance_rate"),
    "bonus": ("bonus", "bonus_token", "bonus_included"),
    "plain": ("plain_tok_s", "base_tok_s"),
    "speculative": ("speculative_tok_s", "spec_tok_s"),
    "plain_time": ("plain_tpot_ms", "base_tpot_ms"),
    "speculative_time": ("speculative_tpot_ms", "spec_tpot_ms"),
    "speedup": ("speedup",),
    "baseline": ("baseline", "speedup_over", "speedup_vs", "relative_to", "compared_to", "versus", "vs"),
    "unit": ("unit",),
}
_BONUS_IN = {"included", "with", "yes", "true", "incl", "1", "counted"}
_BONUS_OUT = {"excluded", "without", "no", "false", "excl", "0", "not counted"}
_PLAIN = re.compile(
    r"(plain|vanilla|baseline|base|auto-?regressive|ar|none|no|target|without|off|standard|non-?speculative)"
    r"(?:[ -]?(decoding|model|only|alone|speculation|spec|sd|speculative decoding|drafter))*"
)
_UNKNOWN = {"n/a", "na", "n.a.", "-", "–", "—", "?", "unknown", "not reported", "null"}
# what a bracket may say without changing the figure
_NEUTRAL = {"x", "×", "tokens", "tok", "τ", "tau", "ratio", "k", "b", "bs", "ms"}
_LOADS = re.compile(
    r"(^|_)(batch|batch_size|batchsize|bs|concurrency|concurrent|conc|users|streams|clients|qps|rps|request_rate|req_s|in_flight)(_|$)"
)
_QUALIFIED = re.compile(r"(accept(ance)?_(length|len)|al)_(?P<rest>.*(bonus|draft|excl|incl|without|with).*)")


class Columns(NamedTuple):
    """`chosen`: what is read, by the name used here, and what the file calls it. `left_alone`: as the file calls them."""

    chosen: Mapping[str, str]
    left_alone: tuple[str, ...]


def named_columns(names: Iterable[str | None]) -> Columns:
    """Which column holds what.

    Raises:
        ValueError: a column that changes what another one means and that cannot be read; says what to write instead.
    """
    present: dict[str, str] = {}
    for name in names:
        if name is not None and name.strip():
            present.setdefault(_plain_name(name), name)
    chosen = {
        key: present[found]
        for key, spellings in COLUMNS.items()
        if (found := next((one for one in spellings if one in present), None)) is not None
    }
    taken = set(chosen.values())
    for plain, name in present.items():
        if name in taken:
            continue
        if "concurrency" not in chosen and _LOADS.search(plain):
            raise ValueError(
                f"column {name[:60]!a} looks like the load, which is read from concurrency: requests in flight on the whole server "
                "(times the GPUs or replicas where it was given for one of them); call it that, or rows of other loads would "
                "stand in for each other"
            )
        if "accept_length" not in chosen and (qualified := _QUALIFIED.fullmatch(plain)):
            raise ValueError(
                f"column {name[:60]!a} looks like an accept length; call it accept_length, and say in a column bonus whether the "
                f"target's own token is included or excluded ({qualified['rest'].replace('_', ' ')[:40]})"
            )
    return Columns(chosen, tuple(name for name in present.values() if name not in taken))


def is_unknown(cell: str) -> bool:
    return not cell or cell.lower() in _UNKNOWN


def bonus_included(cell: str) -> bool:
    """Whether an accept length counts the target's own token: it does where nothing is said.

    Raises:
        ValueError: neither included nor excluded.
    """
    word = cell.lower()
    if is_unknown(cell) or word in _BONUS_IN:
        return True
    if word in _BONUS_OUT:
        return False
    raise ValueError("expected included or excluded")


def is_plain(cell: str) -> bool:
    """Whether a speedup is over plain decoding: it is where nothing is said."""
    return is_unknown(cell) or _PLAIN.fullmatch(" ".join(cell.lower().replace("_", " ").split())) is not None


def _plain_name(name: str) -> str:
    """`Accept Length (τ)` is accept_length; what a bracket says is dropped only where it says nothing of the figure."""
    text = name.strip().lower()
    bracket = re.fullmatch(r"(.*?)\s*[(\[]([^)\]]*)[)\]]", text)
    if bracket is not None and bracket[2].strip() in _NEUTRAL:
        text = bracket[1]
    return re.sub(r"[\W]+", "_", text).strip("_")
