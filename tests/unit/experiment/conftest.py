"""A tiny target folder without torch, small plans on the fake engine, and trials made by hand."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from breakeven.experiment.plan import Plan, parse_plan


@pytest.fixture
def make_target(tmp_path: Path) -> Callable[..., Path]:
    def make(name: str = "target", seed: int = 0) -> Path:
        folder = tmp_path / name
        folder.mkdir()
        config = {
            "architectures": ["LlamaForCausalLM"],
            "hidden_size": 16,
            "intermediate_size": 24,
            "num_hidden_layers": 4,
            "num_attention_heads": 2,
            "num_key_value_heads": 2,
            "vocab_size": 32,
        }
        (folder / "config.json").write_text(json.dumps(config))
        weights = np.random.default_rng(seed).standard_normal((32, 16), dtype=np.float32)
        save_file({"model.embed_tokens.weight": weights}, folder / "model.safetensors")
        return folder

    return make


@pytest.fixture
def make_plan() -> Callable[..., Plan]:
    """A plan of plain and one eagle3 arm on the fake engine; `more` is appended as YAML."""

    def make(more: str = "", *, arms: str = "", launches: str = "{min: 2, max: 2}", repeats: int = 2) -> Plan:
        text = f"""
name: small
engine: fake
launches: {launches}
workload: {{fixed_length: true, max_tokens: 32}}
load: [{{concurrency: 1}}, {{concurrency: 4}}]
trial: {{warmup_s: 0, window_s: 10, repeats: {repeats}}}
{more}
arms:
  plain: {{}}
  eagle: {{speculation: {{method: eagle3, drafter: random}}, simulation: {{joint: [0.7, 0.5, 0.3], cost_ratio: 1.3}}}}
{arms}
"""
        return parse_plan(text, "plan.yaml")

    return make
