"""Shapes of drafters that are published and work: nothing above info is raised where they are served."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.unit.doctor.broken import SGLANG, VLLM, Deployment
from tests.unit.doctor.folders import (
    DRAFT_VOCAB,
    HIDDEN,
    LAYER_IDS,
    LAYOUTS,
    VOCAB,
    Array,
    Folder,
    base_config,
    head_tensors,
    make_target,
    speculators,
    trained,
)

ENGINES = {
    "vllm 0.20.2": ("0.20.2", VLLM),
    "vllm 0.33.0": ("0.33.0", VLLM),
    "sglang 0.5.12.post1": ("0.5.12.post1", SGLANG),
    "sglang 0.5.23": ("0.5.23", SGLANG),
}
KIMI_TEXT = {
    "model_type": "kimi_k2",
    "hidden_size": HIDDEN,
    "num_hidden_layers": 61,
    "num_attention_heads": 4,
    "vocab_size": VOCAB,
    "q_lora_rank": 24,
    "kv_lora_rank": 16,
    "qk_nope_head_dim": 16,
    "qk_rope_head_dim": 8,
    "v_head_dim": 16,
    "n_routed_experts": 8,
    "num_experts_per_tok": 2,
    "rope_theta": 50000.0,
    "rope_scaling": {"type": "yarn", "factor": 64.0, "original_max_position_embeddings": 4096},
    "max_position_embeddings": 262144,
}


def kimi() -> Folder:
    """A multimodal target: the language model's keys one level down, its tensors under a prefix."""
    folder = make_target("Kimi-K2.5")
    folder.config = {"architectures": ["KimiK25ForConditionalGeneration"], "model_type": "kimi_k25", "text_config": KIMI_TEXT}
    folder.tensors = {f"language_model.{name}": values for name, values in folder.tensors.items()}
    return folder


def whole_vocabulary(folder: Folder) -> Folder:
    folder.config["draft_vocab_size"] = VOCAB
    del folder.tensors["d2t"], folder.tensors["t2d"]
    folder.tensors["lm_head.weight"] = trained(np.random.default_rng(3), VOCAB, HIDDEN)
    return folder


def llama_head_for_kimi(**changes: Any) -> Folder:
    """A Llama layer with heads wider than the model, the whole vocabulary, its own rotary base, nested ids."""
    config = base_config(
        rope_theta=1000000.0,
        max_position_embeddings=262144,
        eagle_config={LAYER_IDS: [1, 29, 57], "use_aux_hidden_state": True},
        **changes,
    )
    return whole_vocabulary(Folder(name="Kimi-K25-eagle3", config=config, tensors=head_tensors()))


def latent_head(*, with_head: bool) -> Folder:
    """Latent attention as the target's, ids for both engines."""
    generator = np.random.default_rng(2)
    shapes = {
        "q_a_proj": (24, 2 * HIDDEN),
        "q_b_proj": (4 * 24, 24),
        "kv_a_proj_with_mqa": (24, 2 * HIDDEN),
        "kv_b_proj": (4 * 32, 16),
        "o_proj": (HIDDEN, 64),
    }
    tensors = {name: values for name, values in head_tensors().items() if ".self_attn." not in name}
    tensors |= {f"midlayer.self_attn.{name}.weight": trained(generator, *shape) for name, shape in shapes.items()}
    tensors |= {
        "midlayer.self_attn.q_a_layernorm.weight": np.full(24, 1.1, np.float32),
        "midlayer.self_attn.kv_a_layernorm.weight": np.full(16, 0.9, np.float32),
    }
    latent = {key: value for key, value in KIMI_TEXT.items() if "lora" in key or "head_dim" in key}
    config = base_config(
        architectures=["Eagle3DeepseekV2ForCausalLM"],
        model_type="deepseek_v3",
        rope_theta=50000.0,
        rope_scaling=KIMI_TEXT["rope_scaling"],
        max_position_embeddings=262144,
        **latent,
        **{LAYER_IDS: [2, 30, 58], "eagle_config": {LAYER_IDS: [1, 29, 57], "use_aux_hidden_state": True}},
    )
    del config["head_dim"], config["num_key_value_heads"]
    folder = whole_vocabulary(Folder(name="kimi-k2.5-eagle3-mla", config=config, tensors=tensors))
    if not with_head:
        del folder.tensors["lm_head.weight"]
    return folder


def above_info(it: Deployment, root: Path) -> list[tuple[str, tuple[str, ...]]]:
    return [(one.code, one.evidence) for one in it.examine(root).findings if one.severity != "info"]


@pytest.mark.parametrize("engine", [name for name in ENGINES if name.startswith("sglang")])
def test_a_llama_head_for_kimi_on_sglang(engine: str, tmp_path: Path) -> None:
    version, launch = ENGINES[engine]
    assert above_info(Deployment(draft=llama_head_for_kimi(), target=kimi(), engine_version=version, launch=launch), tmp_path) == []


@pytest.mark.parametrize("engine", ENGINES)
def test_a_latent_head_on_both_engines(engine: str, tmp_path: Path) -> None:
    version, launch = ENGINES[engine]
    it = Deployment(draft=latent_head(with_head=True), target=kimi(), engine_version=version, launch=launch)
    assert above_info(it, tmp_path) == []


def test_a_latent_head_without_lm_head_is_vllms(tmp_path: Path) -> None:
    version, launch = ENGINES["vllm 0.33.0"]
    it = Deployment(draft=latent_head(with_head=False), target=kimi(), engine_version=version, launch=launch)
    assert above_info(it, tmp_path / "vllm") == []
    version, launch = ENGINES["sglang 0.5.23"]
    it = Deployment(draft=latent_head(with_head=False), target=kimi(), engine_version=version, launch=launch)
    result = it.examine(tmp_path / "sglang")
    assert [one.code for one in result.findings if one.severity != "info"] == ["lm-head-absent"]
    assert result.findings[0].symptoms == {"sglang": "floor"}


@pytest.mark.parametrize(("engine", "version"), [("vllm", "0.17.1"), ("sglang", "0.5.9")])
def test_latent_heads_are_newer_than_old_releases(engine: str, version: str, tmp_path: Path) -> None:
    it = Deployment(draft=latent_head(with_head=True), target=kimi(), engine=engine, engine_version=version)
    codes = [one.code for one in it.examine(tmp_path).findings]
    assert {"architecture-unsupported", "target-unsupported"} <= set(codes)


def test_a_speculators_head_with_its_trainers_defaults_on_vllm(tmp_path: Path) -> None:
    """norm_before_fc with its input_norm, a Qwen3 layer with its query and key norms."""
    folder = speculators()
    folder.config["norm_before_fc"] = True
    folder.config["transformer_layer_config"] |= {"model_type": "qwen3"}
    folder.tensors |= {
        "input_norm.weight": np.linspace(0.5, 1.5, 3 * HIDDEN, dtype=np.float32),
        "layers.0.self_attn.q_norm.weight": np.full(16, 1.2, np.float32),
        "layers.0.self_attn.k_norm.weight": np.full(16, 0.8, np.float32),
    }
    version, launch = ENGINES["vllm 0.33.0"]
    assert above_info(Deployment(draft=folder, engine_version=version, launch=launch), tmp_path) == []
    assert len(folder.tensors["d2t"]) == DRAFT_VOCAB


def test_a_quantized_head_with_exceptions_by_pattern(tmp_path: Path) -> None:
    """Everything but the MLP excepted by regular expressions, the MLP in 8 bits with scales."""
    from tests.unit.doctor.folders import packed, portable

    folder = portable()
    folder.config["quantization_config"] = {
        "quant_method": "compressed-tensors",
        "config_groups": {"group_0": {"targets": ["Linear"]}},
        "ignore": ["re:.*self_attn.*", "re:.*fc", "lm_head"],
    }
    for part in ("gate", "up", "down"):
        shape = folder.tensors.pop(f"midlayer.mlp.{part}_proj.weight").shape
        folder.tensors[f"midlayer.mlp.{part}_proj.weight"] = packed("F8_E4M3", shape, 8)
        folder.tensors[f"midlayer.mlp.{part}_proj.weight_scale"] = np.ones((shape[0], 1), np.float32)
    assert above_info(Deployment(draft=folder), tmp_path) == []


DUMMIES: dict[str, Callable[[str, Array], Array]] = {
    "drawn, norms of one": lambda name, values: np.ones_like(values) if "norm" in name else 0.02 * drawn(values),
    "drawn, norms too": lambda _, values: 0.02 * drawn(values),
    "drawn widely": lambda _, values: drawn(values),
    "zeros": lambda _, values: np.zeros_like(values),
    "ones": lambda _, values: np.ones_like(values),
}


def drawn(values: Array) -> Array:
    return np.random.default_rng(values.size).standard_normal(values.shape).astype(np.float32)


SERVED = [
    (layout, engine)
    for layout in LAYOUTS
    for engine in ((None, None), ("vllm", "0.32.0"), ("sglang", "0.5.23"))
    if (layout, engine[0]) != ("speculators", "sglang")  # which cannot serve it
]


@pytest.mark.parametrize(("layout", "engine"), SERVED)
@pytest.mark.parametrize("kind", DUMMIES)
def test_dummy_weights_of_a_right_layout_are_no_fault_of_the_layout(
    kind: str, layout: str, engine: tuple[str | None, str | None], tmp_path: Path
) -> None:
    folder, target = LAYOUTS[layout](), make_target()
    for one in (folder, target):
        one.tensors = {
            name: DUMMIES[kind](name, values).astype(values.dtype) if values.dtype.kind == "f" else values
            for name, values in one.tensors.items()
        }
    it = Deployment(draft=folder, target=target, engine=engine[0], engine_version=engine[1])
    assert above_info(it, tmp_path) == []


@pytest.mark.parametrize("table", [{"quant_algo": None, "kv_cache_quant_algo": None}, {"quant_method": "none"}, {}])
def test_an_exporter_that_says_it_quantized_nothing(table: dict[str, Any], tmp_path: Path) -> None:
    folder = llama_head_for_kimi()
    folder.files["hf_quant_config.json"] = json.dumps({"producer": {"name": "modelopt"}, "quantization": table})
    version, launch = ENGINES["sglang 0.5.23"]
    assert above_info(Deployment(draft=folder, target=kimi(), engine_version=version, launch=launch), tmp_path) == []
