"""YAML that holds a table of keys, with the line of every key: hostile text costs no more time or memory than it has bytes."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import yaml

from breakeven.errors import BreakevenError

__all__ = ["Lines", "Location", "parse_yaml_table"]

MAX_NODES = 20_000
MAX_DEPTH = 50
# YAML 1.1 has numbers to the base of 60 (1:30 is 90), 16 and 2: short texts of numbers that no machine has room to print
MAX_NUMBER_CHARACTERS = 100

# NUL and halves of characters: only escapes can write them
_UNWRITABLE = re.compile("[\0\ud800-\udfff]")

Location = tuple[str, ...]
# the line, 1-based, of every key and list item by its path; an item of a list is known by its number
Lines = Mapping[Location, int]


class _Loader(yaml.SafeLoader):
    """Numbers as people write them: YAML 1.1, which PyYAML reads, takes 1e-3 for text and wants 1.0e-3."""


def _number(read: Callable[[yaml.SafeLoader, yaml.ScalarNode], float]) -> Callable[[yaml.SafeLoader, Any], float]:
    def checked(loader: yaml.SafeLoader, node: yaml.ScalarNode) -> float:
        if len(node.value) > MAX_NUMBER_CHARACTERS:
            raise yaml.constructor.ConstructorError(None, None, f"a number of {len(node.value)} characters", node.start_mark)
        return read(loader, node)

    return checked


_Loader.add_constructor("tag:yaml.org,2002:int", _number(yaml.SafeLoader.construct_yaml_int))
_Loader.add_constructor("tag:yaml.org,2002:float", _number(yaml.SafeLoader.construct_yaml_float))
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)[eE][-+]?[0-9]+\Z"), list("-+.0123456789")
)


def parse_yaml_table(text: str, where: str, *, expected: str, error: type[BreakevenError]) -> tuple[dict[Any, Any], Lines]:
    """The table in `text`. `where` stands in front of messages, and what was `expected` behind them.

    YAML in pure Python reads about 100 kB a second; whoever read the text has bounded it.

    Raises:
        error: not YAML, no table, a key given twice (YAML readers drop one silently), or aliases that unfold without end.
    """
    try:
        loader = _Loader(text)
        root = loader.get_single_node()
        # before anything is built: tables merged into tables (`<<`) grow without bound while they are built
        lines = dict(_lines(root, where, expected, error)) if root is not None else {}
        content = loader.construct_document(root) if root is not None else None
    # the reader of a tagged value (`!!bool x`) lets whatever it stumbles over through
    except (yaml.YAMLError, RecursionError, ValueError, LookupError, AttributeError, TypeError, ArithmeticError) as fault:
        raise error(_yaml_message(fault, where)) from fault
    if not isinstance(content, dict):
        found = "nothing" if content is None else "a list" if isinstance(content, list) else repr(content)[:80]
        raise error(f"{where}: holds {found}; expected {expected}")
    return content, lines


def _lines(root: yaml.Node, where: str, expected: str, error: type[BreakevenError]) -> Iterator[tuple[Location, int]]:
    waiting: list[tuple[Location, yaml.Node]] = [((), root)]
    for _ in range(MAX_NODES):
        if not waiting:
            return
        location, node = waiting.pop()
        if len(location) > MAX_DEPTH:
            raise error(f"{where}: nested deeper than {MAX_DEPTH} (an alias inside what it stands for?); expected {expected}")
        if isinstance(node, yaml.MappingNode):
            seen: dict[str, int] = {}
            for key_node, value_node in node.value:
                line = key_node.start_mark.line + 1
                if not isinstance(key_node, yaml.ScalarNode):
                    raise error(f"{where}:{line}: a list or table stands where a key is expected; expected a word")
                key = key_node.value
                if key in seen and key != "<<":
                    raise error(f"{where}:{line}: key {key!r} stands on line {seen[key]} too; expected it once")
                seen[key] = line
                _refuse_unwritable(key_node, where, error)
                yield (*location, key), line
                # a merged table's keys count as written where they stand
                waiting.append((location if key == "<<" else (*location, key), value_node))
        elif isinstance(node, yaml.ScalarNode):
            _refuse_unwritable(node, where, error)
        elif isinstance(node, yaml.SequenceNode):
            for index, item in enumerate(node.value):
                yield (*location, str(index)), item.start_mark.line + 1
                waiting.append(((*location, str(index)), item))
    raise error(f"{where}: more than {MAX_NODES} entries (aliases that repeat each other?); expected {expected}")


def _refuse_unwritable(node: yaml.ScalarNode, where: str, error: type[BreakevenError]) -> None:
    if _UNWRITABLE.search(node.value):
        at = f"{where}:{node.start_mark.line + 1}"
        raise error(f"{at}: {node.value[:80]!a} holds a character that no file, command or report can have; remove it")


def _yaml_message(fault: Exception, where: str) -> str:
    if isinstance(fault, yaml.MarkedYAMLError) and fault.problem_mark is not None:
        mark = fault.problem_mark
        return (
            f"{where}:{mark.line + 1}: not valid YAML at column {mark.column + 1} ({fault.problem}); check indentation and quotes"
        )
    return f"{where}: not valid YAML ({type(fault).__name__}: {str(fault)[:200]}); check tags (!!) and quotes"
