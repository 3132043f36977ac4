from __future__ import annotations

import pytest
import torch

from breakeven.drafter.data.samples import Sample
from breakeven.drafter.evaluation.target_states import TargetStates
from breakeven.drafter.reference.llama import llama, norm


def sample(index: int, length: int) -> Sample:
    token_ids = tuple(torch.randint(0, 97, (length,), generator=torch.Generator().manual_seed(index)).tolist())
    return Sample(
        sample_id=str(index), kind="x", token_ids=token_ids, loss_mask=(False,) + (True,) * (length - 1), num_prompt_tokens=1
    )


@pytest.mark.parametrize("at_once", [1, 30, 10_000])
@pytest.mark.parametrize("rope", [None, {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16}])
def test_states_are_the_plain_oracles_however_the_samples_are_batched(make_target, load_target, monkeypatch, at_once, rope):
    monkeypatch.setattr("breakeven.drafter.evaluation.target_states.TOKENS_AT_ONCE", {"cpu": at_once})
    config, weights = load_target(make_target(rope_scaling=rope))
    samples = [sample(index, length) for index, length in enumerate((9, 2, 31, 17))]
    packs = list(TargetStates(config=config, weights=weights, auxiliary_layers=(1, 2, 3))(samples))
    assert len(packs) == {1: 4, 30: 3, 10_000: 1}[at_once]
    row = {
        name: torch.cat([getattr(pack, name) for pack in packs])
        for name in ("token_ids", "positions", "loss_mask", "auxiliary", "last")
    }
    start = 0
    for each in samples:
        end = start + len(each.token_ids)
        logits, streams = llama(torch.tensor(each.token_ids), config, weights)
        assert row["token_ids"][start:end].tolist() == list(each.token_ids)
        assert row["positions"][start:end].tolist() == list(range(end - start))
        assert row["loss_mask"][start:end].tolist() == list(each.loss_mask)
        torch.testing.assert_close(row["auxiliary"][start:end], torch.cat(streams[1:4], dim=-1), rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(
            row["last"][start:end], norm(streams[-1], weights.norm, config.rms_norm_eps), rtol=1e-4, atol=1e-4
        )
        torch.testing.assert_close(row["last"][start:end] @ weights.head.T, logits, rtol=1e-4, atol=1e-4)
        start = end
    assert [int(length) for pack in packs for length in pack.starts.diff()] == [9, 2, 31, 17]
