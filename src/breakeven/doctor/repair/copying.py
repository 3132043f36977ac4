"""A drafter's folder while it is repaired: its configuration and its tensors, changed here and written elsewhere."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import Any, Self

from breakeven.checkpoints.writing import NewTensor, copy_of
from breakeven.doctor.drafter import Drafter

__all__ = ["Copying"]


@dataclass(slots=True, kw_only=True)
class Copying:
    """changes: one line each, as they are made. Tensors are copied from the original unless a repair put others in their place."""

    config: dict[str, Any]
    tensors: dict[str, NewTensor]
    changes: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, draft: Drafter) -> Self:
        return cls(
            config=copy.deepcopy(dict(draft.folder.config)), tensors={name: copy_of(info) for name, info in draft.tensors.items()}
        )

    def set(self, key: str, value: object, *, inside: str = "", why: str = "") -> None:
        """A key of config.json, or of a table in it. `why`: what the value rests on, where it does not follow from the folder."""
        table = self.config
        if inside:
            if not isinstance(table.get(inside), dict):
                table[inside] = {}
            table = table[inside]
        before = table.get(key)
        if before == value and type(before) is type(value) and key in table:
            return
        table[key] = value
        name = f"{inside}.{key}" if inside else key
        self.changes.append(f"config.json: {name} {'set' if before is None else 'changed'} to {value!a}{f': {why}' if why else ''}")

    def unset(self, key: str) -> None:
        if key in self.config:
            del self.config[key]
            self.changes.append(f"config.json: {key} removed")

    def rename(self, before: str, after: str) -> None:
        if before not in self.tensors or after in self.tensors:
            return
        self.tensors = {after if name == before else name: tensor for name, tensor in self.tensors.items()}
        self.changes.append(f"tensor {before} renamed to {after}")

    def put(self, name: str, tensor: NewTensor, why: str) -> None:
        verb = "replaced" if name in self.tensors else "added"
        self.tensors[name] = tensor
        self.changes.append(f"tensor {name} {verb}: {why}")

    def remove(self, name: str, why: str) -> None:
        if name in self.tensors:
            del self.tensors[name]
            self.changes.append(f"tensor {name} removed: {why}")

    def home_of(self, key: str, draft: Drafter) -> str:
        """The table in which `key` stands: that of the nested layer in a speculators folder, or the top level ("")."""
        found = draft.setting(key).key
        return found.rpartition(".")[0]
