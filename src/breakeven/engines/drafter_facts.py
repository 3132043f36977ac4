"""What each release of an engine does with a drafter's folder: which keys and tensors it reads, and which it drops. One row each.

Read from released packages and public pull requests. Values are words that rules compare with; a topic without a row for an engine
is not known there. Look up with `drafter_fact`; between two checked releases both neighbours are possible.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from breakeven.versions import Span, Version, rows_for

__all__ = ["DRAFTER_FACTS", "DrafterFact", "Known", "drafter_fact"]

Topic = Literal[
    "model runner",
    "nested layer ids",
    "layer ids, most targets",
    "layer ids, latent attention",
    "layers.0 names",
    "num_aux_hidden_states",
    "fc_norm",
    "norm_output",
    "norm_before_fc",
    "norm_before_residual",
    "attention_bias",
    "several layers",
    "latent drafters",
    "token trees",
    "disable_by_batch_size",
    "short drafters",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class DrafterFact:
    engine: str
    topic: Topic
    span: Span
    value: str
    source: str
    recorded: str = "2026-11"


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What may hold for a release. `values` has one entry where it is settled; `doubt` says why it is not, or not quite."""

    values: tuple[str, ...]
    sources: tuple[str, ...]
    doubt: str = ""

    @property
    def settled(self) -> str | None:
        return self.values[0] if len(self.values) == 1 else None

    def may_be(self, value: str) -> bool:
        return value in self.values


def _rows(engine: str, topic: Topic, *rows: tuple[str | None, str | None, str, str]) -> Iterator[DrafterFact]:
    """(first, last, value, source); an open end was checked to the newest release that was read."""
    newest = {"vllm": "0.33.0", "sglang": "0.5.23"}[engine]
    for first, last, value, source in rows:
        yield DrafterFact(engine=engine, topic=topic, span=Span.of(first, last, last or newest), value=value, source=source)


DRAFTER_FACTS: tuple[DrafterFact, ...] = (
    *_rows(
        "vllm",
        "model runner",
        (None, "0.20.2", "V1", "config/vllm.py"),
        ("0.22.0", "0.22.1", "V2 for dense Qwen3", "config/vllm.py"),
        ("0.26.0", "0.26.0", "V2 for dense targets", "config/vllm.py; some mixtures of experts too"),
        ("0.32.0", None, "V2", "config/vllm.py; V1 without Triton, as on CPUs"),
    ),
    *_rows(
        "vllm",
        "nested layer ids",
        (None, "0.20.2", "never", "v1/worker/gpu_model_runner.py: top level only"),
        ("0.22.1", None, "by V1", "v1/worker/gpu_model_runner.py reads eagle_config too; V2's eagle3_utils.py does not"),
    ),
    *_rows("sglang", "layer ids, most targets", (None, None, "outputs", "models/llama.py, qwen3.py, ...: adds 1 to each id")),
    *_rows(
        "sglang",
        "layer ids, latent attention",
        (None, "0.5.12.post1", "outputs", "models/deepseek_v2.py: adds 1 to each id"),
        ("0.5.13", None, "outputs where the first is 1", "models/deepseek_v2.py, sglang PR 25454: else as they are"),
    ),
    *_rows("vllm", "layers.0 names", (None, None, "read", "models/llama_eagle3.py")),
    *_rows(
        "sglang",
        "layers.0 names",
        (None, "0.5.11", "dropped", "models/llama_eagle3.py: the layer is called midlayer, other names are passed over"),
        ("0.5.12.post1", None, "read", "models/llama_eagle3.py"),
    ),
    *_rows(
        "sglang",
        "num_aux_hidden_states",
        (None, "0.5.11", "always 3", "models/llama_eagle3.py"),
        ("0.5.12.post1", None, "read", "models/llama_eagle3.py, PR 24663"),
    ),
    *_rows(
        "vllm",
        "fc_norm",
        (None, "0.20.2", "not known", "models/llama_eagle3.py"),
        ("0.22.1", None, "read", "vllm PR 42764"),
    ),
    *_rows(
        "sglang",
        "fc_norm",
        (None, "0.5.11", "dropped", "models/llama_eagle3.py"),
        ("0.5.12.post1", None, "read", "sglang PR 24663"),
    ),
    *_rows(
        "vllm",
        "norm_output",
        (None, "0.20.2", "not known", "models/llama_eagle3.py"),
        ("0.22.1", None, "read", "vllm PR 42764"),
    ),
    *_rows(
        "sglang",
        "norm_output",
        (None, "0.5.11", "dropped", "models/llama_eagle3.py"),
        ("0.5.12.post1", None, "read", "sglang PR 24663"),
    ),
    *_rows(
        "vllm",
        "norm_before_fc",
        (None, "0.17.1", "not known", "models/llama_eagle3.py"),
        ("0.20.2", None, "read", "models/llama_eagle3.py"),
    ),
    *_rows(
        "sglang",
        "norm_before_fc",
        (None, "0.5.16", "dropped", "models/llama_eagle3.py"),
        ("0.5.18", None, "read", "sglang PR 32334"),
    ),
    *_rows("vllm", "norm_before_residual", (None, None, "read", "models/llama_eagle3.py")),
    *_rows("sglang", "norm_before_residual", (None, None, "dropped", "models/llama_eagle3.py, in no release read")),
    *_rows("vllm", "attention_bias", (None, None, "read", "models/llama_eagle3.py")),
    *_rows("sglang", "attention_bias", (None, None, "dropped", "models/llama_eagle3.py: bias=False, in no release read")),
    *_rows("vllm", "several layers", (None, None, "read", "models/llama_eagle3.py: input_layernorm from the second layer on")),
    *_rows(
        "sglang",
        "several layers",
        (None, "0.5.11", "refused", "models/llama_eagle3.py"),
        ("0.5.12.post1", None, "other norm", "models/llama_eagle3.py: hidden_norm from the second layer on"),
    ),
    *_rows(
        "vllm",
        "latent drafters",
        (None, "0.17.1", "refused", "model registry"),
        ("0.20.2", None, "read", "models/deepseek_eagle3.py"),
    ),
    *_rows(
        "sglang",
        "latent drafters",
        (None, "0.5.11", "refused", "model registry"),
        ("0.5.12.post1", None, "read", "models/kimi_k25_eagle3.py"),
    ),
    *_rows(
        "vllm",
        "short drafters",
        ("0.32.0", None, "raised", "config/speculative.py: raises max_position_embeddings for default, linear and llama3 RoPE"),
    ),
    *_rows(
        "vllm",
        "token trees",
        (None, "0.20.2", "read", "config/speculative.py: speculative_token_tree"),
        ("0.22.1", None, "refused", "config/speculative.py: no such key, chains only"),
    ),
    *_rows(
        "vllm",
        "disable_by_batch_size",
        (None, "0.14.1", "read", "config/speculative.py"),
        ("0.17.1", None, "refused", "config/speculative.py: num_speculative_tokens_per_batch_size came in its place"),
    ),
)


def drafter_fact(engine: str, topic: Topic, version: Version | None) -> Known:
    """What `engine` in `version` (None: unknown) does about `topic`."""
    rows = tuple(row for row in DRAFTER_FACTS if (row.engine, row.topic) == (engine, topic))
    if not rows:
        return Known(values=("not known",), sources=(), doubt=f"nothing was read of {topic} in {engine}")
    found = rows_for(rows, version)
    values = tuple(dict.fromkeys(row.value for row in found.rows))
    if not _covers(rows, version):
        values = (*values, "not known")
    doubt = found.doubt if len(values) > 1 or "unverified" in found.doubt else ""
    return Known(values=values, sources=tuple(row.source for row in found.rows), doubt=doubt)


def _covers(rows: tuple[DrafterFact, ...], version: Version | None) -> bool:
    """Whether one of the rows must hold: releases before the first that was read may do anything."""
    first = rows[0].span.first
    return first is None or (version is not None and version >= first)
