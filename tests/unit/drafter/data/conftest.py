"""Targets without weights worth the name: tokenizers and templates of several families, and a slow generator that is scripted."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers

from breakeven.drafter.data.generator import Finished
from breakeven.drafter.data.prompt_records import PromptRecord, prompt_id
from breakeven.drafter.data.target_files import TargetFiles
from breakeven.drafter.serving.tokenizer import BYTE_OF

CHATML = (
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>' + '\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
# begin-of-text once, contents trimmed, blank line behind headers
HEADERS = (
    "{{ '<|begin|>' }}{% for m in messages %}"
    "{{ '<|head|>' + m.role + '<|/head|>\\n\\n' + m.content | trim + '<|eot|>' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|head|>assistant<|/head|>\\n\\n' }}{% endif %}"
)
# reasoning is shown in the turn after the last user turn only
THINKING = (
    "{% set ns = namespace(last=-1) %}"
    "{% for m in messages %}{% if m.role == 'user' %}{% set ns.last = loop.index0 %}{% endif %}{% endfor %}"
    "{% for m in messages %}{% if m.role == 'assistant' %}{{ '<|im_start|>assistant\\n' }}"
    "{% if loop.index0 > ns.last %}{{ '<think>\\n' + m.reasoning_content | default('') + '\\n</think>\\n\\n' }}{% endif %}"
    "{{ m.content + '<|im_end|>\\n' }}"
    "{% else %}{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
# no system role, no header for the assistant, turns must alternate
INSTRUCT = (
    "{{ '<s>' }}{% for m in messages %}"
    "{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('user and assistant turns must alternate') }}{% endif %}"
    "{% if m.role == 'user' %}{{ '[INST] ' + m.content + ' [/INST]' }}"
    "{% else %}{{ ' ' + m.content | trim + '</s>' }}{% endif %}{% endfor %}"
)
# no special tokens at all
PLAIN = (
    "{% for m in messages %}{{ m.role + ':\\n' + m.content + '\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ 'assistant:\\n' }}{% endif %}"
)
MARKED = (
    "{% for m in messages %}{% if m.role == 'assistant' %}{{ '<|im_start|>assistant\\n' }}"
    "{% generation %}{{ m.content }}{% endgeneration %}{{ '<|im_end|>\\n' }}"
    "{% else %}{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
TEMPLATES = {"chatml": CHATML, "headers": HEADERS, "thinking": THINKING, "instruct": INSTRUCT, "plain": PLAIN, "marked": MARKED}
END_OF = {
    "chatml": "<|im_end|>",
    "headers": "<|eot|>",
    "thinking": "<|im_end|>",
    "instruct": "</s>",
    "plain": "</s>",
    "marked": "<|im_end|>",
}
SPECIALS = (
    "<|im_start|>", "<|im_end|>", "<|begin|>", "<|head|>", "<|/head|>", "<|eot|>", "<s>", "</s>", "[INST]", "[/INST]",
)  # fmt: skip
# Merges that reach over the borders which templates put between turns, and a few ordinary ones.
MERGES = [("Ċ", "Ċ"), (":", "Ċ"), (":Ċ", "Ċ"), ("Ġ", "h"), ("h", "e"), ("he", "l"), ("Ġh", "i")]


def byte_tokenizer() -> Tokenizer:
    """Ids 0 to 255 are bytes, then the merges, then the special tokens of all families."""
    vocabulary = dict(BYTE_OF)
    for left, right in MERGES:
        vocabulary[left + right] = len(vocabulary)
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=MERGES))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in SPECIALS])
    return tokenizer


def sentencepiece_tokenizer() -> Tokenizer:
    """Characters, bytes for what has none, and a space in front of every piece of text, as Llama 2 and Mistral have it."""
    pieces = ["<unk>", *(f"<0x{byte:02X}>" for byte in range(256)), "▁", *map(chr, range(0x21, 0x7F))]
    merges = [("▁", "y"), ("e", "s"), ("▁y", "es"), (":", "▁")]
    pieces += [left + right for left, right in merges]
    tokenizer = Tokenizer(
        models.BPE(
            vocab={piece: number for number, piece in enumerate(pieces)}, merges=merges, byte_fallback=True, unk_token="<unk>"
        )
    )
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    tokenizer.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in SPECIALS])
    return tokenizer


def write_chat_target(
    folder: Path, family: str, *, template: str | None = None, context_length: int = 512, tokenizer: Tokenizer | None = None
) -> Path:
    """A model folder with one tensor, a tokenizer (of bytes, where none is given) and the template of `family`."""
    folder.mkdir(parents=True)
    tokenizer = tokenizer or byte_tokenizer()
    tokenizer.save(str(folder / "tokenizer.json"))
    end = END_OF[family]
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": tokenizer.get_vocab_size() + 3,
        "max_position_embeddings": context_length,
        "eos_token_id": tokenizer.token_to_id(end),
    }
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": end}))
    (folder / "chat_template.jinja").write_text(template if template is not None else TEMPLATES[family])
    save_file({"w": np.zeros(3, dtype=np.float32)}, folder / "model.safetensors")
    return folder


@pytest.fixture
def make_chat_target(tmp_path: Path) -> Callable[..., TargetFiles]:
    def make(family: str = "chatml", name: str = "target", **options: object) -> TargetFiles:
        return TargetFiles.from_folder(write_chat_target(tmp_path / name, family, **options))  # type: ignore[arg-type]

    return make


@pytest.fixture(scope="session")
def family_targets(tmp_path_factory: pytest.TempPathFactory) -> dict[str, TargetFiles]:
    base = tmp_path_factory.mktemp("families")
    return {family: TargetFiles.from_folder(write_chat_target(base / family, family)) for family in TEMPLATES}


@dataclass
class SlowGenerator:
    """A `Generate` that writes what `says` returns for each prompt's text, as bytes and the stop token; calls are noted."""

    target: TargetFiles
    says: Callable[[int, str], str]
    calls: list[dict[str, object]] = field(default_factory=list)
    stop_after: int | None = None

    def __call__(
        self,
        model_folder: Path,
        prompts: Sequence[Sequence[int]],
        *,
        max_new_tokens: int,
        temperature: float | Sequence[float],
        top_p: float,
        seed: int,
        stop_ids: Collection[int] | None,
    ) -> Iterator[Finished]:
        assert model_folder == self.target.folder
        assert stop_ids
        self.calls.append({"prompts": prompts, "temperature": temperature, "seed": seed, "top_p": top_p})
        # last first: nobody may count on an order
        for number, index in enumerate(reversed(range(len(prompts)))):
            if number == self.stop_after:
                raise KeyboardInterrupt
            written = self.target.encode(self.says(index, self.target.tokenizer.text_of(prompts[index])))
            ids = [*written, sorted(stop_ids)[0]]
            yield (index, ids, "stop") if len(ids) <= max_new_tokens else (index, ids[:max_new_tokens], "length")


def prompts(count: int, *, held_out_every: int = 5) -> list[PromptRecord]:
    records = []
    for number in range(count):
        messages = ({"role": "user", "content": f"Question {number}?"},)
        side = "held_out" if number % held_out_every == 0 else "train"
        records.append(PromptRecord(id=prompt_id(messages), kind="custom", messages=messages, split=side, source="file"))
    return records
