"""Jinja for templates from strangers: nothing of Python can be reached, and rendering ends within bounded time and memory.

Jinja's own sandbox bounds what a template can reach, and of what it costs only `range`. Here every loop, macro, filter and call
looks at the clock, and whatever makes text or lists longer says first how long they can get.
"""

from __future__ import annotations

import functools
import re
import time
from collections.abc import Callable, ItemsView, Iterable, Iterator, KeysView, Mapping, Sequence, Sized, ValuesView
from typing import Any

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.visitor import NodeTransformer

__all__ = ["BoundedSandbox"]

RENDER_S = 10.0
# characters, and items of lists, of all that one operation takes in, and that it could make of them; a context of a million tokens
# has four million characters
MAX_SIZE = 20_000_000
MAX_MADE = 200_000_000
MAX_BITS = 10_000
# they take long for what nobody asks of a chat
UNUSED_FILTERS = ("striptags", "urlize", "wordwrap")
_WIDE = re.compile(r"[:%][^{}\s]*(?:\d{5}|\*)")


class BoundedSandbox(ImmutableSandboxedEnvironment):
    """Raises `jinja2.TemplateError` where a template costs more than a chat can."""

    intercepted_binops = frozenset({"+", "*", "**", "%"})

    def __init__(self, extensions: Iterable[type[Extension]], filters: Mapping[str, Callable[..., Any]]) -> None:
        super().__init__(trim_blocks=True, lstrip_blocks=True, extensions=list(extensions), finalize=self._finalized)
        self._until_s = 0.0
        self._num_written = 0
        for name in UNUSED_FILTERS:
            del self.filters[name]
        del self.globals["lipsum"]
        for name, function in {**self.filters, **filters}.items():
            self.filters[name] = self._guarded(name, function)

    def begin(self) -> None:
        """The clock starts: for a template that is read, or rendered."""
        self._until_s, self._num_written = time.monotonic() + RENDER_S, 0

    def tick(self) -> str:
        """Nothing, which loops and macros write at each turn."""
        if time.monotonic() > self._until_s:
            raise jinja2.TemplateRuntimeError(f"it takes longer than {RENDER_S:.0f} s")
        return ""

    def joined(self, *values: Any) -> str:
        """What `~` does; like every call it has been admitted."""
        return "".join(map(str, values))

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        if operator == "+" and type(left) is str and type(right) is str and len(left) + len(right) <= MAX_SIZE:
            return left + right  # what most templates do most, and 10 times faster
        self._admit(operator, (left, right), {})
        if operator == "**" and isinstance(left, int) and isinstance(right, int) and left.bit_length() * abs(right) > MAX_BITS:
            raise jinja2.TemplateRuntimeError(f"it makes a number of more than {MAX_BITS} bits")
        return super().call_binop(context, operator, left, right)

    def call(__self, __context: Any, __obj: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N805 - as Jinja names them
        function = getattr(__obj, "__wrapped__", __obj)  # str.format comes wrapped
        receiver = getattr(function, "__self__", None)
        values = (receiver, *args) if isinstance(receiver, (str, list, tuple, dict)) else args
        __self._admit(getattr(function, "__name__", ""), values, kwargs)
        return super().call(__context, __obj, *args, **kwargs)

    def _guarded(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def checked(*args: Any, **kwargs: Any) -> Any:
            # what comes one by one has been counted when it was made
            values = tuple(list(value) if isinstance(value, Iterator) else value for value in args)
            self._admit(name, values, kwargs)
            made = function(*values, **kwargs)
            return self._counted(name, made) if isinstance(made, Iterator) else made

        return checked

    def _counted(self, name: str, items: Iterator[Any]) -> Iterator[Any]:
        size = 0
        for item in items:
            size += _size(item)
            self._admit(name, (), {"": size})
            yield item

    def _finalized(self, value: Any) -> Any:
        self._num_written += len(value) if type(value) is str else _size(value)
        if self._num_written > MAX_SIZE:
            raise jinja2.TemplateRuntimeError(f"it writes more than {MAX_SIZE} characters")
        return value

    def _admit(self, name: str, values: Sequence[Any], named: Mapping[str, Any]) -> None:
        """
        Raises:
            TemplateRuntimeError: out of time, or `name` done to `values` could make something too large.
        """
        self.tick()
        values = (*values, *named.values())
        size = sum(map(_size, values))
        if size > MAX_SIZE or _most_made(name, values, size) > MAX_MADE:
            raise jinja2.TemplateRuntimeError(f"{name} makes more than {MAX_SIZE} characters or items")

    def _generate(self, source: nodes.Template, *args: Any, **kwargs: Any) -> str:
        for node in source.find_all((nodes.For, nodes.Macro, nodes.CallBlock)):
            assert isinstance(node, (nodes.For, nodes.Macro, nodes.CallBlock))
            node.body.insert(0, nodes.Output([_call_of("tick", [])]).set_lineno(node.lineno))
        return super()._generate(_Concatenations().visit(source).set_environment(self), *args, **kwargs)


class _Concatenations(NodeTransformer):
    """`a ~ b` becomes a call."""

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:  # noqa: N802 - as Jinja names them
        return _call_of("joined", [self.visit(part) for part in node.nodes]).set_lineno(node.lineno)


def _call_of(name: str, arguments: list[nodes.Expr]) -> nodes.Call:
    return nodes.Call(nodes.EnvironmentAttribute(name), arguments, [], None, None)


def _most_made(name: str, values: Sequence[Any], size: int) -> int:
    """How many characters and items there can be after `name`: widths and counts multiply, and so do texts put into texts."""
    texts = [value for value in values if isinstance(value, str)]
    made = size * max((abs(value) for value in values if isinstance(value, int)), default=1)
    if name == "replace" and len(texts) > 2:
        made += len(texts[0]) // max(len(texts[1]), 1) * len(texts[2])
    elif name in ("format", "format_map", "%") and texts:
        made += texts[0].count("%" if name == "%" else "{") * size + (MAX_MADE if _WIDE.search(texts[0]) else 0)
    elif name == "join" and texts:
        made += max(len(value) for value in values if isinstance(value, Sized)) * max(map(len, texts))
    return made


def _size(value: Any) -> int:
    """Characters and items, those inside counted, and beyond `MAX_SIZE` not to the end."""
    size, waiting = 0, [value]
    while waiting and size <= MAX_SIZE:
        found = waiting.pop()
        if isinstance(found, (str, bytes)):
            size += len(found)
        elif isinstance(found, (list, tuple, dict, set, KeysView, ValuesView, ItemsView)):
            size += len(found)
            waiting.extend(found.values() if isinstance(found, dict) else found)
        elif isinstance(found, int) and found.bit_length() > MAX_BITS:
            size += MAX_SIZE
        size += 1
    return size
