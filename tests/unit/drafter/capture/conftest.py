"""Tiny random targets of many architectures, written as folders, and samples to capture."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from breakeven.drafter.data.samples import Sample

SIZES: dict[str, Any] = {
    "vocab_size": 97,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
}


@pytest.fixture
def random_samples() -> Callable[..., list[Sample]]:
    """Samples of these lengths, a third of each a prompt."""

    def make(*lengths: int, seed: int = 7) -> list[Sample]:
        generator = torch.Generator().manual_seed(seed)
        return [
            Sample(
                sample_id=f"sample-{index}",
                kind="random",
                token_ids=tuple(torch.randint(0, SIZES["vocab_size"], (length,), generator=generator).tolist()),
                loss_mask=(False,) * (length // 3) + (True,) * (length - length // 3),
                num_prompt_tokens=length // 3,
            )
            for index, length in enumerate(lengths)
        ]

    return make


@pytest.fixture
def make_model(tmp_path: Path) -> Callable[..., Path]:
    """Write a random model of a transformers configuration class, named as transformers names it."""

    def make(family: str, **overrides: Any) -> Path:
        import transformers

        torch.manual_seed(0)
        config = getattr(transformers, f"{family}Config")(**(SIZES | overrides))
        model = transformers.AutoModelForCausalLM.from_config(config)
        with torch.no_grad():
            # norms start as ones and biases as zeros, which would hide that one was left out
            for parameter in model.parameters():
                if parameter.dim() == 1:
                    parameter += torch.randn_like(parameter) * 0.2
        folder = tmp_path / family
        model.save_pretrained(folder)
        return folder

    return make


@pytest.fixture
def make_int4(make_model: Callable[..., Path]) -> Callable[[], tuple[Path, Path]]:
    """A Llama with W4A16 weights in groups of 16 (compressed-tensors, packed), and the same weights dequantized, dense."""

    def make() -> tuple[Path, Path]:
        dense = make_model("Llama", tie_word_embeddings=False)
        packed = dense.parent / "int4"
        tensors, kept, exact = load_file(dense / "model.safetensors"), {}, {}
        for name, tensor in tensors.items():
            if not name.endswith("_proj.weight"):
                kept[name] = exact[name] = tensor
                continue
            rows, columns = tensor.shape
            groups = tensor.view(rows, columns // 16, 16)
            scales = groups.abs().amax(-1, keepdim=True) / 7
            numbers = (groups / scales).round().clamp(-8, 7)
            exact[name] = (numbers * scales).view(rows, columns)
            nibbles = (numbers.view(rows, columns // 8, 8) + 8).long() << (4 * torch.arange(8))
            stem = name.removesuffix("weight")
            # the sign bit of the last nibble makes some of them negative
            kept[stem + "weight_packed"] = torch.where(nibbles.sum(-1) >= 2**31, nibbles.sum(-1) - 2**32, nibbles.sum(-1)).int()
            kept[stem + "weight_scale"] = scales[..., 0].contiguous()
            kept[stem + "weight_shape"] = torch.tensor([rows, columns])
        weights = {"num_bits": 4, "type": "int", "symmetric": True, "strategy": "group", "group_size": 16}
        write_quantized(packed, dense, "pack-quantized", {"weights": weights}, kept)
        save_file(exact, dense / "model.safetensors", metadata={"format": "pt"})
        return packed, dense

    return make


@pytest.fixture
def make_fp8(make_model: Callable[..., Path]) -> Callable[[], tuple[Path, Path]]:
    """A Llama with FP8 weights scaled by row and activations scaled by token as they come, and its weights dequantized, dense."""

    def make() -> tuple[Path, Path]:
        dense = make_model("Llama", tie_word_embeddings=False)
        quantized = dense.parent / "fp8"
        tensors, kept, exact = load_file(dense / "model.safetensors"), {}, {}
        for name, tensor in tensors.items():
            if not name.endswith("_proj.weight"):
                kept[name] = exact[name] = tensor
                continue
            scales = tensor.abs().amax(-1, keepdim=True) / 448
            kept[name] = (tensor / scales).to(torch.float8_e4m3fn)
            kept[name.removesuffix("weight") + "weight_scale"] = scales
            exact[name] = kept[name].float() * scales
        floats = {"num_bits": 8, "type": "float", "symmetric": True}
        scheme = {
            "weights": floats | {"strategy": "channel"},
            "input_activations": floats | {"strategy": "token", "dynamic": True},
        }
        write_quantized(quantized, dense, "float-quantized", scheme, kept)
        save_file(exact, dense / "model.safetensors", metadata={"format": "pt"})
        return quantized, dense

    return make


def write_quantized(folder: Path, dense: Path, layout: str, scheme: dict[str, Any], tensors: dict[str, torch.Tensor]) -> None:
    folder.mkdir(exist_ok=True)
    config = json.loads((dense / "config.json").read_text())
    config["quantization_config"] = {
        "quant_method": "compressed-tensors",
        "format": layout,
        "quantization_status": "compressed",
        "ignore": ["lm_head"],
        "config_groups": {"group_0": {"targets": ["Linear"], **scheme}},
    }
    (folder / "config.json").write_text(json.dumps(config))
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
