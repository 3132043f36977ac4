from __future__ import annotations

import pytest
import torch

from breakeven.drafter.model.rope import inverse_frequencies
from breakeven.drafter.reference.llama import llama


@pytest.mark.parametrize(
    "overrides",
    [
        {},
        {"num_key_value_heads": 4, "tie_word_embeddings": False},
        {"rope_scaling": {"rope_type": "linear", "factor": 4.0}},
        {
            "rope_scaling": {
                "rope_type": "llama3",
                "factor": 8.0,
                "low_freq_factor": 1.0,
                "high_freq_factor": 4.0,
                "original_max_position_embeddings": 32,
            }
        },
    ],
    ids=["grouped", "multi-head, untied", "linear rope", "llama3 rope"],
)
def test_logits_and_states_are_those_of_transformers(make_target, load_target, overrides):
    from transformers import LlamaForCausalLM

    folder = make_target(**overrides)
    token_ids = torch.randint(0, 97, (40,), generator=torch.Generator().manual_seed(3))
    model = LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager")
    with torch.inference_mode():
        theirs = model(token_ids[None], output_hidden_states=True)
        logits, streams = llama(token_ids, *load_target(folder))
    torch.testing.assert_close(logits, theirs.logits[0], rtol=1e-4, atol=1e-4)
    # transformers gives the last stream after the final norm, so it is compared through the logits
    for mine, other in zip(streams[:-1], theirs.hidden_states[:-1], strict=True):
        torch.testing.assert_close(mine, other[0], rtol=1e-4, atol=1e-4)


def test_llama3_frequencies_are_those_of_transformers():
    from transformers import LlamaConfig
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

    rope = {
        "rope_type": "llama3",
        "rope_theta": 500000.0,
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    }
    theirs = LlamaRotaryEmbedding(LlamaConfig(hidden_size=256, num_attention_heads=2, head_dim=128, rope_parameters=rope)).inv_freq
    torch.testing.assert_close(inverse_frequencies(rope, 128, 500000.0), theirs)
