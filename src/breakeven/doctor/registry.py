"""The one table of rules: code, family, what it needs, since which release. A new rule is one line here and one file."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from types import ModuleType

from breakeven.doctor.evidence import Evidence, Need
from breakeven.doctor.rules.auxiliary import layers_defaulted
from breakeven.doctor.rules.launch import algorithm_mismatch
from breakeven.doctor.rules.vocabulary import vocabulary_map_absolute
from breakeven.doctor.told import Told

__all__ = ["RULES", "Rule"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """`module` is the rule's file: `check` in it judges, its docstring explains. `needs`: all of them, or it is not checked."""

    module: ModuleType
    needs: tuple[Need, ...]
    since: str = "0.1.0"

    @property
    def code(self) -> str:
        return self.module.__name__.rpartition(".")[2].replace("_", "-")

    @property
    def family(self) -> str:
        return self.module.__name__.split(".")[-2]

    @property
    def explanation(self) -> str:
        return inspect.getdoc(self.module) or ""

    @property
    def check(self) -> Callable[[Evidence], Iterable[Told]]:
        check: Callable[[Evidence], Iterable[Told]] = self.module.check
        return check


def _rule(module: ModuleType, *needs: Need) -> Rule:
    return Rule(module=module, needs=needs)


RULES: tuple[Rule, ...] = (
    _rule(algorithm_mismatch, "draft", "launch"),
    _rule(layers_defaulted, "draft", "engine"),
    _rule(vocabulary_map_absolute, "draft"),
)
