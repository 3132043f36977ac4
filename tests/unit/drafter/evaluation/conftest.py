"""A tiny target that talks: random weights, a byte tokenizer and a chat template, so that whole commands can be run."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from breakeven.drafter.serving.tokenizer import BYTE_OF

TEMPLATE = (
    "{% for m in messages %}{{ '<|' + m.role + '|>' + m.content }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)
SPECIALS = ("<|user|>", "<|assistant|>", "<|end|>")
VOCAB_SIZE = 264


@pytest.fixture
def talking_target(make_target: Callable[..., Path]) -> Path:
    folder = make_target("talking", vocab_size=VOCAB_SIZE, eos_token_id=258)
    tokenizer = Tokenizer(models.BPE(vocab=dict(BYTE_OF), merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in SPECIALS])
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<|end|>"}))
    (folder / "chat_template.jinja").write_text(TEMPLATE)
    return folder
