"""A speculative setting that this release does not have.

Detects: keys of vLLM's --speculative-config that came later, are gone, or never belonged there.

Why it hurts: vLLM refuses unknown keys and does not start. Recipes keep such keys for years.

Evidence: speculative_token_tree is gone by 0.22.1 (chains only), disable_by_batch_size by 0.17.1; tensor_parallel_size inside the
JSON raises in every release.

Remedy: num_speculative_tokens_per_batch_size in place of disable_by_batch_size; draft_tensor_parallel_size in place of
tensor_parallel_size; no tree.
"""

from __future__ import annotations

from collections.abc import Iterator

from breakeven.doctor.evidence import Evidence
from breakeven.doctor.signs import Symptoms
from breakeven.doctor.told import Fault, Told
from breakeven.engines.drafter_facts import Topic, drafter_fact

_KEYS: dict[str, tuple[Topic, str]] = {
    "speculative_token_tree": ("token trees", "Leave it out: this release drafts chains; num_speculative_tokens is all it takes."),
    "disable_by_batch_size": (
        "disable_by_batch_size",
        "Use num_speculative_tokens_per_batch_size, a list of [from, to, drafts], with 0 drafts where it should be off.",
    ),
}


def check(evidence: Evidence) -> Iterator[Told]:
    launch = evidence.launch
    assert launch is not None
    if launch.engine != "vllm":
        return
    for key, (topic, remedy) in _KEYS.items():
        known = drafter_fact("vllm", topic, evidence.version)
        if launch.spec(key) and known.settled == "refused":
            yield _fault(f"{evidence.engine_text} has no {key}", (str(launch.spec(key)), *known.sources), remedy)
    if launch.spec("tensor_parallel_size"):
        yield _fault(
            "tensor_parallel_size inside --speculative-config is refused",
            (str(launch.spec("tensor_parallel_size")), "config/speculative.py"),
            "Write draft_tensor_parallel_size, 1 or the target's.",
        )


def _fault(title: str, evidence: tuple[str, ...], remedy: str) -> Fault:
    return Fault(
        severity="error",
        confidence="high",
        title=title,
        evidence=evidence,
        remedy=remedy,
        symptoms=Symptoms(vllm="load-error", sglang="nothing"),
    )
