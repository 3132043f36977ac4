"""A speculative setting that this release does not have.

Detects: keys of vLLM's --speculative-config that came later, are gone, or never belonged there; the flags that came before it.

Why it hurts: vLLM refuses unknown keys and flags and does not start. Recipes keep them for years.

Evidence: speculative_token_tree is gone by 0.22.1 (chains only), disable_by_batch_size by 0.17.1; tensor_parallel_size inside the
JSON raises in every release. --speculative-model and its like are gone by 0.32.0; releases before it were not read for them.

Remedy: num_speculative_tokens_per_batch_size in place of disable_by_batch_size; draft_tensor_parallel_size in place of
tensor_parallel_size; no tree; one --speculative-config in place of the old flags.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from breakeven.doctor.evidence import Evidence
from breakeven.doctor.signs import Symptoms
from breakeven.doctor.told import Fault, Told
from breakeven.engines.drafter_facts import Topic, drafter_fact
from breakeven.versions import Version

_KEYS: dict[str, tuple[Topic, str]] = {
    "speculative_token_tree": ("token trees", "Leave it out: this release drafts chains; num_speculative_tokens is all it takes."),
    "disable_by_batch_size": (
        "disable_by_batch_size",
        "Use num_speculative_tokens_per_batch_size, a list of [from, to, drafts], with 0 drafts where it should be off.",
    ),
}


# Flags of vLLM's first engine, by the key of --speculative-config that took their place; read in 0.32.0, which has none of them.
_OLD_FLAGS = {
    "--speculative-model": "model",
    "--num-speculative-tokens": "num_speculative_tokens",
    "--speculative-draft-tensor-parallel-size": "draft_tensor_parallel_size",
    "--ngram-prompt-lookup-max": "prompt_lookup_max",
    "--ngram-prompt-lookup-min": "prompt_lookup_min",
}
_GONE_BY = Version.parse("0.32.0")


def check(evidence: Evidence) -> Iterator[Told]:
    launch = evidence.launch
    assert launch is not None
    if launch.engine != "vllm":
        return
    for key, (topic, remedy) in _KEYS.items():
        known = drafter_fact("vllm", topic, evidence.version)
        if launch.spec(key) and known.settled == "refused":
            yield _fault(f"{evidence.engine_text} has no {key}", (str(launch.spec(key)), *known.sources), remedy)
    old = [flag for flag in _OLD_FLAGS if launch.flag(flag)]
    if old:
        is_read = evidence.version is not None and evidence.version >= _GONE_BY
        keys = ", ".join(f'"{_OLD_FLAGS[flag]}": ...' for flag in old)
        yield _fault(
            f"{evidence.engine_text} has no {', '.join(old)}" if is_read else f"{', '.join(old)}: gone from vLLM by {_GONE_BY}",
            (*(str(launch.flag(flag)) for flag in old), "engine/arg_utils.py, 0.32.0"),
            f"Write --speculative-config '{{{keys}}}'.",
            severity="error" if is_read else "warning",
            confidence="high" if is_read else "medium",
        )
    if launch.spec("tensor_parallel_size"):
        yield _fault(
            "tensor_parallel_size inside --speculative-config is refused",
            (str(launch.spec("tensor_parallel_size")), "config/speculative.py"),
            "Write draft_tensor_parallel_size, 1 or the target's.",
        )


def _fault(
    title: str,
    evidence: tuple[str, ...],
    remedy: str,
    severity: Literal["error", "warning"] = "error",
    confidence: Literal["high", "medium"] = "high",
) -> Fault:
    return Fault(
        severity=severity,
        confidence=confidence,
        title=title,
        evidence=evidence,
        remedy=remedy,
        symptoms=Symptoms(vllm="load-error", sglang="nothing"),
    )
