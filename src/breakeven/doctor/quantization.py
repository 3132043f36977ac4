"""Which of a drafter's matrices are quantized, by their tensors, and which should be, by its configuration.

Modules are named by role (`layer.self_attn.q_proj`). Exceptions of a configuration come as exact names, parts of names, globs or,
with `re:` in front, regular expressions, under whatever prefix the exporter saw.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from breakeven.doctor.beside import side_json
from breakeven.doctor.drafter import Drafter
from breakeven.doctor.expected import stem

__all__ = ["FUSED", "Quantization", "is_plain", "quantization", "quantized_modules", "unscaled"]

FUSED = {
    "layer.self_attn.qkv_proj": tuple(f"layer.self_attn.{one}_proj" for one in "qkv"),
    "layer.mlp.gate_up_proj": ("layer.mlp.gate_proj", "layer.mlp.up_proj"),
    "layer.self_attn.fused_qkv_a_proj_with_mqa": ("layer.self_attn.q_a_proj", "layer.self_attn.kv_a_proj_with_mqa"),
}
_EXCEPTION_KEYS = ("ignore", "ignored_layers", "modules_to_not_convert", "exclude_modules", "exclude", "llm_int8_skip_modules")
_SCALES = ("weight_scale", "weight_scale_inv", "weight_scale_2", "scales", "weight_global_scale", "scale")
_PACKED = ("weight_packed", "qweight")
_PACKED_METHODS = ("awq", "gptq", "auto-round", "auto_round", "w4a16")
_PLAIN_TYPES = ("BF16", "F16", "F32")
_EIGHT_BITS = ("F8_E4M3", "F8_E5M2", "F8_E4M3FNUZ", "F8_E5M2FNUZ", "I8")
MAX_EXCEPTIONS, MAX_PATTERN = 500, 200
# Nested repetition can make a pattern take for ever on a short name.
_NESTED_REPEAT = re.compile(r"[*+}]\)?[*+{]|\([^)]*[*+][^)]*\)[*+{]")


@dataclass(frozen=True, kw_only=True)
class Quantization:
    """covers_all_linear: it applies to every linear layer that is not excepted, so that the rest can be judged.
    is_packed: the format keeps weights under another name than `weight`.
    """

    source: str
    method: str
    exceptions: tuple[str, ...]
    covers_all_linear: bool
    quantized: tuple[str, ...]
    plain: tuple[str, ...]
    is_packed: bool

    def excepts(self, module: str) -> bool:
        """Whether an exception names this module, under any prefix that an exporter or an engine gives the layer."""
        names = [module]
        if module.startswith("layer."):
            rest = module.removeprefix("layer.")
            names = [f"{prefix}{rest}" for prefix in ("midlayer.", "layers.0.", "model.layers.0.", "model.midlayer.", "")]
        return any(_matches(pattern, name) for pattern in self.exceptions for name in names)

    @cached_property
    def excepted(self) -> frozenset[str]:
        return frozenset(module for module in (*self.quantized, *self.plain) if self.excepts(module))


def quantization(draft: Drafter) -> Quantization | None:
    """What config.json (or Model-Optimizer's hf_quant_config.json) announces; None where nothing is announced."""
    table, source = draft.setting("quantization_config").value, "config.json: quantization_config"
    if not isinstance(table, dict):
        table = side_json(draft.folder.path, "hf_quant_config.json").get("quantization")
        source = "hf_quant_config.json: quantization"
    if not isinstance(table, dict) or not _announces(table):
        return None
    method = table.get("quant_method", table.get("quant_algo"))
    return Quantization(
        source=source,
        method=method if isinstance(method, str) and method.isprintable() else "not stated",
        exceptions=_exceptions(table),
        covers_all_linear=_covers_all(table),
        quantized=quantized_modules(draft),
        plain=_plain_modules(draft),
        is_packed=str(method).lower().startswith(_PACKED_METHODS) or table.get("format") == "pack-quantized",
    )


def quantized_modules(draft: Drafter) -> tuple[str, ...]:
    """Modules with packed or 8-bit weights, or with scales."""
    found = {
        stem(role)
        for role, info in draft.by_role.items()
        if _ending(role) in (*_SCALES, *_PACKED)
        or (_ending(role) == "weight" and len(info.shape) == 2 and info.dtype in _EIGHT_BITS)
    }
    return tuple(sorted(found))


def unscaled(draft: Drafter) -> tuple[str, ...]:
    """Weights of 8 bits, or packed, whose module has no scale of any name."""
    scaled = {stem(role) for role in draft.by_role if _ending(role) in _SCALES}
    return tuple(
        role
        for role, info in draft.by_role.items()
        if (_ending(role) in _PACKED or (_ending(role) == "weight" and len(info.shape) == 2 and info.dtype in _EIGHT_BITS))
        and stem(role) not in scaled
    )


def is_plain(draft: Drafter) -> bool:
    """Nothing in it is quantized, and nothing is announced."""
    return not quantized_modules(draft) and quantization(draft) is None


def _plain_modules(draft: Drafter) -> tuple[str, ...]:
    quantized = set(quantized_modules(draft))
    return tuple(
        sorted(
            stem(role)
            for role, info in draft.by_role.items()
            if _ending(role) == "weight" and len(info.shape) == 2 and info.dtype in _PLAIN_TYPES and stem(role) not in quantized
        )
    )


def _ending(role: str) -> str:
    return role.rpartition(".")[2]


def _announces(table: Mapping[str, Any]) -> bool:
    """Exporters write a table without a method for models that they did not quantize."""
    method = table.get("quant_method") or table.get("quant_algo")
    named = isinstance(method, str) and method.lower() != "none"
    return named or bool(table.get("config_groups")) or any(table.get(key) for key in ("bits", "w_bit", "num_bits"))


def _exceptions(table: Mapping[str, Any]) -> tuple[str, ...]:
    found = [one for key in _EXCEPTION_KEYS if isinstance(table.get(key), list) for one in table[key]]
    return tuple(one for one in found[:MAX_EXCEPTIONS] if isinstance(one, str) and len(one) <= MAX_PATTERN and one.isprintable())


def _covers_all(table: Mapping[str, Any]) -> bool:
    groups = table.get("config_groups")
    if not isinstance(groups, dict):
        return True
    targets = [
        one for group in groups.values() if isinstance(group, dict) for one in group.get("targets") or () if isinstance(one, str)
    ]
    return "Linear" in targets


def _matches(pattern: str, name: str) -> bool:
    if pattern.startswith("re:"):
        expression = pattern.removeprefix("re:")
        if _NESTED_REPEAT.search(expression):
            return True  # cannot be tried safely: taken for an exception, so that no fault is stated on it
        try:
            return re.match(expression, name) is not None
        except (re.error, RecursionError, OverflowError):
            return False
    if any(mark in pattern for mark in "*?["):
        return fnmatch.fnmatchcase(name, pattern)
    return name == pattern or name.endswith(f".{pattern}") or name.startswith(f"{pattern}.")
