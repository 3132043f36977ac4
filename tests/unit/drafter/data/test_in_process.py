"""The fast generator behind the data side: a tiny model answers, and the training file holds what it said."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from tests.unit.drafter.data.conftest import write_chat_target

from breakeven.drafter.data.answering import collect_answers
from breakeven.drafter.data.asks import AnswerSettings
from breakeven.drafter.data.generator import in_process
from breakeven.drafter.data.in_process import InProcess
from breakeven.drafter.data.prompt_records import PromptRecord, prompt_id
from breakeven.drafter.data.reading import read_samples
from breakeven.drafter.data.target_files import TargetFiles
from breakeven.drafter.model.llama import LlamaConfig, LlamaWeights
from breakeven.drafter.reference.llama import llama


@pytest.fixture
def target(make_target: Callable[..., Path], tmp_path: Path) -> TargetFiles:
    """A random model with the tokenizer and template of the ChatML family."""
    dressed = write_chat_target(tmp_path / "dressed", "chatml")
    vocab_size = TargetFiles.from_folder(dressed).identity.vocab_size
    end = TargetFiles.from_folder(dressed).stop_token_ids
    folder = make_target(vocab_size=vocab_size, eos_token_id=next(iter(end)), max_position_embeddings=256)
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        (folder / name).write_bytes((dressed / name).read_bytes())
    return TargetFiles.from_folder(folder)


def test_answers_are_the_models_own(
    target: TargetFiles, tmp_path: Path, load_target: Callable[[Path], tuple[LlamaConfig, LlamaWeights]]
) -> None:
    records = []
    for number in range(6):
        messages = ({"role": "user", "content": f"Question {number}?"},)
        records.append(PromptRecord(id=prompt_id(messages), kind="custom", messages=messages, split="train", source="file"))
    settings = AnswerSettings(max_tokens=12, greedy_share=1.0)
    source = InProcess(target, in_process(), max_tokens=settings.max_tokens, seed=settings.seed)
    found = collect_answers(tmp_path / "t.jsonl", records, settings, source, target=target)
    assert found.num_answers == 6
    config, weights = load_target(target.folder)
    for sample in read_samples(tmp_path / "t.jsonl", split="train", target=target):
        logits, _ = llama(torch.tensor(sample.token_ids), config, weights)
        for place in range(sample.num_prompt_tokens, len(sample.token_ids)):
            assert logits[place - 1].argmax() == sample.token_ids[place]
