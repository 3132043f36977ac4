from __future__ import annotations

import os
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[3]


@pytest.fixture(scope="session")
def vllm_environment() -> Path:
    """The environment with the real vLLM, built by `make engines`."""
    return environment("vLLM", "BREAKEVEN_TEST_VLLM", ".venv-vllm")


@pytest.fixture(scope="session")
def sglang_environment() -> Path:
    """The environment with the real SGLang, built by `make engines`; its kernels are those of `sglang_stand_ins`."""
    return environment("SGLang", "BREAKEVEN_TEST_SGLANG", ".venv-sglang")


def environment(name: str, variable: str, default: str) -> Path:
    folder = Path(os.environ.get(variable, REPOSITORY / default))
    if not (folder / ".ready").is_file():
        pytest.skip(f"no {name} in {folder}; `make engines` builds it")
    return folder
