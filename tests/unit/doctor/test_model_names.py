from __future__ import annotations

import pytest

from breakeven.doctor.model_names import model_name


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("AQ-MedAI/Kimi-K25-eagle3", "moonshotai/Kimi-K2.5"),
        ("lightseekorg/kimi-k2.6-eagle3.1-mla", "nvidia/Kimi-K2.6-NVFP4"),
        ("yuhuili/EAGLE3-LLaMA3.1-Instruct-8B", "meta-llama/Llama-3.1-8B-Instruct"),
        ("AngelSlim/Qwen3-8B_eagle3", "Qwen/Qwen3-8B-FP8"),
        ("RedHatAI/Qwen3-8B-speculator.eagle3", "Qwen3-8B"),
        ("nvidia/gpt-oss-120b-Eagle3-v3", "openai/gpt-oss-120b"),
        ("/models/snapshots/Qwen3-30B-A3B-eagle3", "Qwen/Qwen3-30B-A3B"),
    ],
)
def test_a_drafter_and_its_target_have_one_name(one: str, other: str) -> None:
    mine, theirs = model_name(one), model_name(other)
    assert mine is not None
    assert theirs is not None
    assert (mine.family, mine.generation, mine.sizes) == (theirs.family, theirs.generation, theirs.sizes)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("AQ-MedAI/Kimi-K2-Instruct-eagle3", "moonshotai/Kimi-K2.5"),
        ("Qwen3-8B_eagle3", "Qwen2.5-7B-Instruct"),
        ("EAGLE3-LLaMA3.1-Instruct-8B", "Llama-3.3-70B-Instruct"),
        ("glm-4.6-eagle3", "GLM-4.7"),
    ],
)
def test_another_generation_has_another_name(one: str, other: str) -> None:
    mine, theirs = model_name(one), model_name(other)
    assert mine is not None
    assert theirs is not None
    assert (mine.family, mine.generation) != (theirs.family, theirs.generation)


@pytest.mark.parametrize("text", ["head", "draft", "/tmp/kimi/../x/head", "dolphin-mixtral", "", "checkpoint-1200"])
def test_names_that_say_nothing(text: str) -> None:
    assert model_name(text) is None or "kimi" in text
