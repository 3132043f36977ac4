"""What servers report about a request's drafts when it ends, whichever engine wrote it: its own field names tell which."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from breakeven.acceptance import Acceptance
from breakeven.engines.sglang.meta_info import ROUNDS as SGLANG_ROUNDS
from breakeven.engines.sglang.meta_info import TOKENS, meta_info_acceptance
from breakeven.engines.vllm.request_metrics import ROUNDS as VLLM_ROUNDS
from breakeven.engines.vllm.request_metrics import request_metrics_acceptance
from breakeven.errors import EngineError

__all__ = ["requests_acceptance"]


def requests_acceptance(reports: Iterable[tuple[Mapping[str, object], int]]) -> Acceptance | None:
    """The acceptance of requests together, from what each reported and its output tokens; None where none can be counted.

    One request whose report is nonsense makes all of them worthless: None then, never a part of the truth.
    """
    total: Acceptance | None = None
    for reported, output_tokens in reports:
        try:
            found = _acceptance(reported, output_tokens)
        except EngineError:
            return None
        if found is not None:
            total = found if total is None else total + found
    return total


def _acceptance(reported: Mapping[str, object], output_tokens: int) -> Acceptance | None:
    if SGLANG_ROUNDS in reported:
        return meta_info_acceptance([{**reported, TOKENS: output_tokens}])
    if VLLM_ROUNDS in reported:
        return request_metrics_acceptance(reported, output_tokens)
    return None
