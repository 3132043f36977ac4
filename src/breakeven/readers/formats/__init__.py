"""Lines of one engine each: which bytes mark a line worth reading, and what it says. `FORMATS` lists them."""

from __future__ import annotations

from breakeven.readers.formats.base import Format
from breakeven.readers.formats.llamacpp import LlamaCppFormat
from breakeven.readers.formats.sglang import SGLangFormat
from breakeven.readers.formats.vllm import VllmFormat

__all__ = ["FORMATS"]

FORMATS: tuple[Format, ...] = (SGLangFormat(), VllmFormat(), LlamaCppFormat())
