from __future__ import annotations

import os
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[3]


@pytest.fixture(scope="session")
def vllm_environment() -> Path:
    """The environment with the real vLLM, built by `make engines`."""
    folder = Path(os.environ.get("BREAKEVEN_TEST_VLLM", REPOSITORY / ".venv-vllm"))
    if not (folder / ".ready").is_file():
        pytest.skip(f"no vLLM in {folder}; `make engines` builds it")
    return folder
