"""Which names hold secrets: their values reach no plan, store, log or report."""

from __future__ import annotations

import re
from collections.abc import Mapping

__all__ = ["names_a_secret", "without_secrets"]

HIDDEN = "(hidden)"
# Words, so that HF_TOKEN is one and TOKENIZERS_PARALLELISM or --max-total-tokens is not.
_WORDS = frozenset({"KEY", "TOKEN", "AUTH", "AUTHORIZATION"})
_ANYWHERE = ("APIKEY", "SECRET", "PASSWORD", "PASSWD", "CREDENTIAL")


def names_a_secret(name: str) -> bool:
    """Whether a variable or flag of this name usually holds a secret (`--api-key=x` is judged by what stands before `=`)."""
    upper = name.partition("=")[0].upper()
    return any(part in upper for part in _ANYWHERE) or not _WORDS.isdisjoint(re.split(r"[^A-Z0-9]+", upper))


def without_secrets(variables: Mapping[str, str]) -> dict[str, str]:
    """The same variables, the values of secrets replaced."""
    return {name: HIDDEN if names_a_secret(name) else value for name, value in variables.items()}
