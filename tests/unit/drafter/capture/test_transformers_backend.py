from __future__ import annotations

import json
from itertools import accumulate, pairwise

import pytest
import torch
from safetensors.torch import load_file, save_file

from breakeven.checkpoints.folder import open_folder
from breakeven.drafter.capture.llama_backend import LlamaBackend
from breakeven.drafter.capture.transformers_backend import TransformersBackend
from breakeven.errors import CheckpointError

CPU = torch.device("cpu")
LENGTHS = [5, 40, 1, 33, 17]
LATENT_ATTENTION_AND_EXPERTS = {
    "num_key_value_heads": 4,
    "moe_intermediate_size": 16,
    "n_routed_experts": 8,
    "n_shared_experts": 1,
    "num_experts_per_tok": 2,
    "n_group": 2,
    "topk_group": 1,
    "kv_lora_rank": 16,
    "q_lora_rank": 16,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 8,
    "v_head_dim": 8,
    "first_k_dense_replace": 1,
}


def load(folder, dtype=torch.float32):
    return TransformersBackend.from_folder(open_folder(folder), device=CPU, dtype=dtype)


def packed():
    generator = torch.Generator().manual_seed(3)
    return torch.randint(0, 97, (sum(LENGTHS),), generator=generator), [0, *accumulate(LENGTHS)]


@pytest.mark.parametrize(
    ("family", "overrides", "is_routed"),
    [
        ("Llama", {}, False),
        ("Qwen2", {}, False),
        ("Qwen3", {"head_dim": 8}, False),
        ("Mistral", {"sliding_window": 16}, False),
        ("GPT2", {"n_embd": 32, "n_layer": 4, "n_head": 4, "n_positions": 128}, False),
        ("Llama4Text", {"head_dim": 8, "num_local_experts": 2, "intermediate_size_mlp": 48, "pad_token_id": 0}, True),
        ("DeepseekV3", LATENT_ATTENTION_AND_EXPERTS, True),
        ("Qwen3Moe", {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 16, "head_dim": 8}, True),
    ],
)
def test_streams_are_those_that_transformers_reports_for_each_sample_alone(make_model, family, overrides, is_routed):
    from transformers import AutoModelForCausalLM

    folder = make_model(family, **overrides)
    backend = load(folder)
    assert backend.is_routed == is_routed
    assert (backend.hidden_size, backend.vocab_size, backend.num_layers, backend.max_positions) == (32, 97, 4, 128)
    token_ids, starts = packed()
    auxiliary, last = backend.states(token_ids, starts, (1, 2, 3))
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    for first, end in pairwise(starts):
        with torch.no_grad():
            theirs = model(token_ids[None, first:end], output_hidden_states=True)
        streams = torch.cat([theirs.hidden_states[layer][0] for layer in (1, 2, 3)], dim=-1)
        torch.testing.assert_close(auxiliary[first:end], streams, rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(last[first:end], theirs.hidden_states[-1][0], rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(last[first:end] @ backend.head_weight.T, theirs.logits[0], rtol=1e-3, atol=1e-3)


def test_a_llama_has_the_states_of_our_own_forward(make_model):
    folder = make_model("Llama", tie_word_embeddings=True)
    own = LlamaBackend.from_folder(open_folder(folder), device=CPU, dtype=torch.float32)
    theirs = load(folder)
    for mine, other in zip(own.states(*packed(), (0, 2, 3)), theirs.states(*packed(), (0, 2, 3)), strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-4, atol=1e-4)
    assert torch.equal(own.embed_weight, theirs.embed_weight)
    assert torch.equal(own.head_weight, theirs.head_weight)


def test_packed_int4_weights_have_the_states_of_the_same_weights_dequantized(make_int4):
    int4, dense = make_int4()
    served, plain = load(int4), load(dense)
    for mine, other in zip(served.states(*packed(), (1, 2, 3)), plain.states(*packed(), (1, 2, 3)), strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-4, atol=1e-4)


def test_fp8_weights_and_activations_are_rounded_as_a_served_model_rounds_them(make_fp8):
    fp8, dense = make_fp8()

    def rounded(_module, args):
        scales = args[0].abs().amax(-1, keepdim=True) / 448
        return ((args[0] / scales).to(torch.float8_e4m3fn).float() * scales,)

    plain = load(dense)
    exact, _ = plain.states(*packed(), (1, 2, 3))
    for name, module in plain._model.named_modules():
        if name.endswith("_proj"):
            module.register_forward_pre_hook(rounded)
    expected, _ = plain.states(*packed(), (1, 2, 3))
    auxiliary, _ = load(fp8).states(*packed(), (1, 2, 3))
    error = (auxiliary - expected).norm(dim=-1) / expected.norm(dim=-1)
    # a number at the edge between two FP8 values may fall either way; what rounding as such does is much larger
    assert error.median() < 1e-3
    assert error.max() < 0.05
    assert ((exact - expected).norm(dim=-1) / expected.norm(dim=-1)).median() > 10 * error.median()


def test_hooks_are_gone_after_a_pass(make_model):
    backend = load(make_model("Qwen2"))
    backend.states(*packed(), (1, 2, 3))
    assert not any(module._forward_pre_hooks for module in backend._model.modules())


def test_an_unknown_architecture_is_named(make_model):
    folder = make_model("Llama")
    config = json.loads((folder / "config.json").read_text()) | {"architectures": ["NoSuchForCausalLM"], "model_type": "no_such"}
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(CheckpointError, match="NoSuchForCausalLM"):
        load(folder)


def test_code_in_the_folder_does_not_run(make_model):
    folder = make_model("Llama")
    config = json.loads((folder / "config.json").read_text()) | {
        "architectures": ["EvilForCausalLM"],
        "model_type": "evil",
        "auto_map": {"AutoConfig": "evil.EvilConfig", "AutoModelForCausalLM": "evil.EvilForCausalLM"},
    }
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "evil.py").write_text(f"open({str(folder / 'ran')!r}, 'w')\n")
    with pytest.raises(CheckpointError, match=r"EvilForCausalLM.*--trust-remote-code"):
        load(folder)
    assert not (folder / "ran").exists()


def test_missing_weights_are_not_filled_with_random_numbers(make_model):
    folder = make_model("Qwen3", head_dim=8)
    tensors = load_file(folder / "model.safetensors")
    del tensors["model.layers.2.mlp.up_proj.weight"]
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(CheckpointError, match=r"Qwen3ForCausalLM has missing keys model\.layers\.2\.mlp\.up_proj\.weight"):
        load(folder)


@pytest.mark.parametrize(
    ("family", "overrides"),
    [
        ("Cohere", {"logit_scale": 0.5}),
        ("Gemma2", {"head_dim": 8, "final_logit_softcapping": 0.05, "pad_token_id": 0}),
    ],
    ids=["scaled", "capped"],
)
def test_logits_that_are_not_last_times_head_are_refused_by_name(make_model, family, overrides):
    with pytest.raises(CheckpointError, match=f"{family}ForCausalLM: its logits differ"):
        load(make_model(family, **overrides))
