"""A drafter folder as the doctor sees it: which kind of head, in which layout, and where each setting stands.

Two layouts exist. Plain: every key at the top level, some under `eagle_config`. Speculators: the layer's own keys nested in
`transformer_layer_config`. `setting` finds a key in either and says where, so that evidence can name it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

from breakeven.checkpoints.folder import ModelFolder
from breakeven.checkpoints.headers import TensorInfo, printable

__all__ = ["LAYER_IDS", "Drafter", "Setting", "language_config", "shown", "whole"]

LAYER_IDS = "eagle_aux_hidden_state_layer_ids"
NESTED = "eagle_config"
_LAYER = "transformer_layer_config"
_PREFIX = re.compile(r"^(?:model\.)?(?:midlayer|layers\.0)\.")
_LATER_LAYER = re.compile(r"^(?:model\.)?layers\.(\d+)\.")

Method = Literal["eagle3", "eagle", "dflash", "mtp", "medusa", "model"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """A value of the configuration and the key it stands under; `key` is empty where it stands nowhere."""

    value: Any
    key: str

    def __str__(self) -> str:
        return f"config.json: {self.key} is {shown(self.value)}" if self.key else "config.json: no such key"


@dataclass(frozen=True, kw_only=True)
class Drafter:
    folder: ModelFolder

    @cached_property
    def is_speculators(self) -> bool:
        config = self.folder.config
        return "speculators_model_type" in config or isinstance(config.get(_LAYER), dict)

    @property
    def tensors(self) -> Mapping[str, TensorInfo]:
        return self.folder.tensors

    @cached_property
    def by_role(self) -> Mapping[str, TensorInfo]:
        """Tensors of the first layer under `layer.`, the rest without `model.`: the name that does not depend on the trainer."""
        found: dict[str, TensorInfo] = {}
        for name, info in self.tensors.items():
            found.setdefault(self.role(name), info)
        return found

    @staticmethod
    def role(name: str) -> str:
        return _PREFIX.sub("layer.", name).removeprefix("model.")

    @cached_property
    def num_layers_held(self) -> int:
        """Decoder layers that the tensors make up."""
        later = [int(match[1]) + 1 for name in self.tensors if (match := _LATER_LAYER.match(name)) and len(match[1]) < 5]
        return max([*later, 1 if any(_PREFIX.match(name) for name in self.tensors) else 0])

    def setting(self, *names: str) -> Setting:
        """The first of `names` that stands anywhere: top level, then the nested layer's configuration. Null counts as absent."""
        for name in names:
            for prefix, table in self._tables:
                if table.get(name) is not None:
                    return Setting(value=table[name], key=prefix + name)
        return Setting(value=None, key="")

    def flag(self, name: str) -> Setting:
        """As `setting`, for flags that engines look for under `eagle_config` first."""
        nested = self.folder.config.get(NESTED)
        if isinstance(nested, dict) and nested.get(name) is not None:
            return Setting(value=nested[name], key=f"{NESTED}.{name}")
        return self.setting(name)

    def number(self, name: str) -> int | None:
        return whole(self.setting(name).value)

    @cached_property
    def _tables(self) -> tuple[tuple[str, Mapping[str, Any]], ...]:
        config = self.folder.config
        tables: list[tuple[str, Mapping[str, Any]]] = [("", config)]
        tables.extend((f"{key}.", config[key]) for key in (_LAYER, "text_config") if isinstance(config.get(key), dict))
        return tuple(tables)

    @cached_property
    def layer_config(self) -> Mapping[str, Any]:
        """The configuration of the decoder layer: the nested one of a speculators folder, else the whole."""
        return {**{key: value for _, table in reversed(self._tables) for key, value in table.items()}}

    @cached_property
    def layer_ids(self) -> tuple[Setting, Setting]:
        """Auxiliary layer ids at the top level, and under `eagle_config`: each engine reads its own."""
        config = self.folder.config
        nested = config.get(NESTED)
        top = Setting(value=config[LAYER_IDS], key=LAYER_IDS) if config.get(LAYER_IDS) else Setting(value=None, key="")
        inner = nested.get(LAYER_IDS) if isinstance(nested, dict) else None
        return top, Setting(value=inner, key=f"{NESTED}.{LAYER_IDS}") if inner else Setting(value=None, key="")

    @cached_property
    def architecture(self) -> str:
        names = self.folder.config.get("architectures")
        return str(names[0]) if isinstance(names, list) and names and isinstance(names[0], str) else ""

    @cached_property
    def method(self) -> Method | None:
        """The kind of drafter, by its tensors where they tell, else by its configuration; None where neither does."""
        return self._by_tensors or self._by_name

    @property
    def _by_name(self) -> Method | None:
        text = f"{self.architecture} {self.folder.config.get('speculators_model_type', '')}".lower()
        for word, method in _NAMED:
            if word in text:
                return method
        return "model" if self.architecture.endswith("ForCausalLM") else None

    @property
    def _by_tensors(self) -> Method | None:
        """An EAGLE-3 layer takes the embedding beside the hidden state, so its attention is twice as wide as the model."""
        fc, hidden = self.by_role.get("fc.weight"), self.number("hidden_size")
        if fc is None or hidden is None or len(fc.shape) != 2:
            return None
        if "dflash" in self.architecture.lower() or "dspark" in self.architecture.lower():
            return "dflash"
        for name in ("layer.self_attn.q_proj.weight", "layer.self_attn.q_a_proj.weight"):
            query = self.by_role.get(name)
            if query is not None and len(query.shape) == 2:
                if query.shape[1] == 2 * hidden:
                    return "eagle3"
                if query.shape[1] == hidden:
                    return "eagle"
        return None

    @property
    def is_whole_model(self) -> bool:
        """Embeddings, several layers and nothing that joins a target's states: it runs without any."""
        return "fc.weight" not in self.by_role and "embed_tokens.weight" in self.by_role and self.number("num_hidden_layers") != 1

    @property
    def has_attention(self) -> bool:
        return self.method != "medusa"

    @cached_property
    def is_latent(self) -> bool:
        """Multi-head latent attention, as DeepSeek's and Kimi's."""
        return self.setting("kv_lora_rank").value is not None or "layer.self_attn.kv_a_proj_with_mqa.weight" in self.by_role

    @cached_property
    def hidden(self) -> int | None:
        return self.number("hidden_size")

    @cached_property
    def vocab(self) -> int | None:
        return self.number("vocab_size")

    @cached_property
    def draft_vocab(self) -> int | None:
        """Rows of the head: as configured, else as the tensor has, else the whole vocabulary."""
        head = self.by_role.get("lm_head.weight")
        return self.number("draft_vocab_size") or (head.shape[0] if head is not None and head.shape else None) or self.vocab

    @cached_property
    def target_hidden(self) -> int | None:
        return self.number("target_hidden_size") or self.hidden

    @cached_property
    def num_auxiliary(self) -> int | None:
        """States that `fc` takes in, by its own width; None where the widths do not divide."""
        fc = self.by_role.get("fc.weight")
        width = self.target_hidden
        if fc is None or len(fc.shape) != 2 or not width or fc.shape[1] % width:
            return None
        return fc.shape[1] // width


_NAMED: tuple[tuple[str, Method], ...] = (
    ("dflash", "dflash"),
    ("dspark", "dflash"),
    ("eagle3", "eagle3"),
    ("peagle", "eagle3"),
    ("eagle", "eagle"),
    ("medusa", "medusa"),
    ("mtp", "mtp"),
    ("nextn", "mtp"),
)


def language_config(folder: ModelFolder) -> Mapping[str, Any]:
    """A target's own keys; multimodal targets keep the language model's one level down."""
    nested = folder.config.get("text_config")
    return nested if isinstance(nested, dict) else folder.config


def whole(value: object) -> int | None:
    """A positive whole number, or None: configurations from strangers hold anything."""
    return value if type(value) is int and 0 < value < 1 << 40 else None


def shown(value: object) -> str:
    """A value of a stranger's configuration in one short line."""
    if isinstance(value, str):
        return printable(value)
    return ascii(value)[:120] if isinstance(value, (int, float, list, bool, type(None))) else f"a {type(value).__name__}"
