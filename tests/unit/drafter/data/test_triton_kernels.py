"""On a GPU only: the kernels against the plain functions, and the whole generator against itself on the CPU."""

from __future__ import annotations

import logging

import pytest
import torch

from breakeven.drafter.data.generation import generate

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_kernels_equal_the_plain_functions(make_target, load_target, dtype):
    from breakeven.drafter.data.triton_kernels import check

    config, _ = load_target(make_target(head_dim=16, hidden_size=64, vocab_size=9001))
    check(config, dtype, torch.device("cuda"))


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("compile_from", [1, 10**9])
def test_graphs_and_kernels_change_no_answer(make_target, monkeypatch, caplog, temperature, compile_from):
    from breakeven.drafter.data import generation

    monkeypatch.setattr(generation, "COMPILE_FROM_TOKENS", compile_from)
    folder = make_target(head_dim=16, hidden_size=64)
    prompts = [[3 + index % 90, 7, 11][: 1 + index % 3] for index in range(40)]
    arguments = {"max_new_tokens": 40, "temperature": temperature, "top_p": 0.9, "dtype": torch.float32, "batch_size": 16}
    plain = {index: rest for index, *rest in generate(folder, prompts, device="cpu", **arguments)}
    fast = {index: rest for index, *rest in generate(folder, prompts, device="cuda", **arguments)}
    # nothing fell back; torch's compiler traces itself to the log, below the level that anyone reads
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING] == []
    # rounding may turn a near-tie, after which an answer goes its own way
    assert sum(plain[index] == fast[index] for index in plain) >= 38
