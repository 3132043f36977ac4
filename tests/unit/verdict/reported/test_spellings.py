"""One engine, method or switch is one, however it is spelled."""

from __future__ import annotations

import pytest

from breakeven.verdict.reported.spellings import engine_and_release, means_plain, method_named, switch


@pytest.mark.parametrize(
    ("engine", "release", "read"),
    [
        ("SGLang 0.5.9", None, ("sglang", "0.5.9")),
        ("sglang==0.5.9", "0.5.10", ("sglang", "0.5.10")),
        ("TensorRT-LLM v1.2.0", None, ("tensorrt-llm", "1.2.0")),
        ("llama-server", None, ("llama.cpp", None)),
        ("In House", None, ("in house", None)),
        (None, None, ("", None)),
    ],
)
def test_engines(engine: str | None, release: str | None, read: tuple[str, str | None]) -> None:
    assert engine_and_release(engine, release) == read


@pytest.mark.parametrize(
    ("texts", "method"),
    [
        (("EAGLE-3.1",), "eagle3"),
        (("EAGLE 2",), "eagle"),
        (("NextN",), "mtp"),
        (("prompt-lookup",), "ngram"),
        ((None, "k2.5-eagle3", "arm"), "eagle3"),
        (("mtp", "k2.5-eagle3"), "mtp"),
        (("in-house", None), None),
    ],
)
def test_methods(texts: tuple[str | None, ...], method: str | None) -> None:
    assert method_named(*texts) == method


def test_plain_decoding_and_switches() -> None:
    assert means_plain("Vanilla")
    assert not means_plain("k2.5-eagle3")
    assert [switch(value) for value in ("Enabled", "yes", "without", "0.7")] == ["on", "on", "off", "0.7"]
