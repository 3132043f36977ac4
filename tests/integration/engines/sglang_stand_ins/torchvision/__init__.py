"""Stand-in for torchvision, which SGLang and transformers import when they start and use for images only.

The modules that they import are there, and every name in them, as something that cannot be used. Test support, see the README
beside this folder.
"""

from __future__ import annotations

from collections.abc import Callable

__version__ = "0.0.0"


def absent(module: str) -> Callable[[str], object]:
    """A module's `__getattr__`, for names that may be imported but not used."""

    def get(name: str) -> object:
        if name.startswith("__"):
            raise AttributeError(name)

        def use(*_arguments: object, **_options: object) -> None:
            raise NotImplementedError(f"{module}.{name}: the stand-in for torchvision in Breakeven's tests does not do it")

        return use

    return get
