"""Two faults at once are both named; deployments of public reports, rebuilt, get the answer that was right."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tests.unit.doctor.broken import BREAKERS, SGLANG, VLLM, Deployment
from tests.unit.doctor.folders import LAYER_IDS, Array, copied, drawn_once, trained

# One way each, in parts of the folder and the command that do not overlap.
INDEPENDENT = (
    "algorithm-mismatch",
    "layers-out-of-range",
    "lm-head-tied",
    "tensors-misnamed",
    "norms-zero-centred",
    "vocabulary-map-absolute",
    "position-limit",
    "target-changed",
    "weights-not-finite",
    "quantization-unannounced",
)


@pytest.mark.parametrize(("one", "other"), list(itertools.combinations(INDEPENDENT, 2)))
def test_both_faults_of_a_pair_are_named(one: str, other: str, tmp_path: Path) -> None:
    broken = Deployment()
    for code in (one, other):
        BREAKERS[code][0](broken)
    found = [finding.code for finding in broken.examine(tmp_path).findings if finding.severity != "info"]
    assert {one, other} <= set(found)
    assert {one, other} == set(found), "a fault was named that is not there"


# --- the vocabulary map is missing, or was rebuilt (SpecForge PR 534, Automodel PR 2447) ---------------------------------------


def with_vocabularies(it: Deployment, vocab: int, draft_vocab: int) -> None:
    for folder in (it.draft, it.target):
        folder.config["vocab_size"] = vocab
    it.draft.config["draft_vocab_size"] = draft_vocab
    it.target.tensors |= target_vocabulary(vocab)
    it.draft.tensors |= draft_vocabulary(vocab, draft_vocab)


@drawn_once
def target_vocabulary(vocab: int) -> dict[str, Array]:
    generator = np.random.default_rng(0)
    return {name: trained(generator, vocab, 64) for name in ("model.embed_tokens.weight", "lm_head.weight")}


@drawn_once
def draft_vocabulary(vocab: int, draft_vocab: int) -> dict[str, Array]:
    generator = np.random.default_rng(1)
    ids = np.sort(generator.choice(vocab, draft_vocab, replace=False)).astype(np.int64)
    marks = np.zeros(vocab, np.bool_)
    marks[ids] = True
    head = trained(generator, draft_vocab, 64)
    return {"lm_head.weight": head, "d2t": ids - np.arange(draft_vocab), "t2d": marks}


@pytest.mark.parametrize(("vocab", "draft_vocab"), [(151_936, 32_000), (9_000, 2_000)])
@pytest.mark.parametrize("engine", [None, "vllm", "sglang"])
def test_a_missing_map_is_named_and_no_retraining_is_asked_for(
    vocab: int, draft_vocab: int, engine: str | None, tmp_path: Path
) -> None:
    it = Deployment(engine=engine)
    with_vocabularies(it, vocab, draft_vocab)
    del it.draft.tensors["d2t"], it.draft.tensors["t2d"]
    first = it.examine(tmp_path).findings[0]
    assert (first.code, first.severity, first.confidence) == ("vocabulary-map-absent", "error", "high")
    assert f"the first {draft_vocab} ids" in first.title
    assert "no retraining" in first.remedy
    assert set(first.symptoms.values()) == {"floor"}


@pytest.mark.parametrize("share", [1.0, 0.41])
def test_a_rebuilt_map_is_named_by_the_parent(share: float, tmp_path: Path) -> None:
    it = Deployment()
    with_vocabularies(it, 9_000, 2_000)
    it.parent = copied(it.draft)
    it.parent.name = "parent"
    before = it.draft.tensors["d2t"] + np.arange(2_000)
    kept = before[: round((1 - share) * 2_000)]
    rest = np.setdiff1d(np.arange(int(kept[-1]) + 1 if len(kept) else 0, 9_000), before)
    ids = np.concatenate([kept, np.sort(np.random.default_rng(5).choice(rest, 2_000 - len(kept), replace=False))])
    marks = np.zeros(9_000, np.bool_)
    marks[ids] = True
    it.draft.tensors |= {"d2t": ids - np.arange(2_000), "t2d": marks}
    # fine-tuned on: the head moved a little, training saw nothing odd
    head = it.draft.tensors["lm_head.weight"]
    it.draft.tensors["lm_head.weight"] = head + 0.1 * head.std() * np.random.default_rng(6).standard_normal(head.shape).astype(
        np.float32
    )
    first = it.examine(tmp_path).findings[0]
    assert (first.code, first.severity, first.confidence) == ("vocabulary-map-rebuilt", "error", "high")
    assert f"{100 * share:.0f} %" in first.title
    assert "No retraining" in first.remedy


def test_the_parents_own_map_is_no_fault(tmp_path: Path) -> None:
    it = Deployment()
    it.parent = copied(it.draft)
    assert it.examine(tmp_path).findings == ()


# --- the drafter's position limit (vllm 48894, 23072; SpecForge PR 271) --------------------------------------------------------


@pytest.mark.parametrize(("limit", "served"), [(2048, 40_960), (4096, 131_072), (512, 8192)])
@pytest.mark.parametrize(
    ("engine", "version", "severity", "sign"),
    [
        (None, None, "error", None),
        ("sglang", "0.5.9", "error", "load-error"),
        ("vllm", "0.11.0", "error", "falls-with-context"),
        ("vllm", "0.33.0", "warning", "falls-with-context"),
    ],
)
def test_a_short_position_limit(
    limit: int, served: int, engine: str | None, version: str | None, severity: str, sign: str | None, tmp_path: Path
) -> None:
    it = Deployment(engine=engine, engine_version=version)
    it.target.config["max_position_embeddings"] = served
    it.draft.config["max_position_embeddings"] = limit
    first = it.examine(tmp_path).findings[0]
    assert (first.code, first.severity) == ("position-limit", severity)
    assert f"max_position_embeddings to {served}; its RoPE settings agree" in first.remedy
    assert first.repairable
    assert sign is None or first.symptoms == {engine: sign}


def test_a_limit_is_not_raised_where_the_rotations_differ(tmp_path: Path) -> None:
    it = Deployment()
    it.draft.config |= {"max_position_embeddings": 2048, "rope_theta": 10_000.0}
    first = it.examine(tmp_path).findings[0]
    assert first.code == "position-limit"
    assert "after checking" in first.remedy
    assert not first.repairable


def test_the_override_of_sglang_lets_it_start(tmp_path: Path) -> None:
    it = Deployment(engine_version="0.5.23", launch=f"SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN=1 {SGLANG}")
    it.draft.config["max_position_embeddings"] = 2048
    first = it.examine(tmp_path).findings[0]
    assert (first.severity, first.symptoms) == ("warning", {"sglang": "falls-with-context"})


def test_a_short_context_that_is_served_needs_no_more(tmp_path: Path) -> None:
    it = Deployment(engine_version="0.5.23", launch=f"{SGLANG} --context-length 2048")
    it.draft.config["max_position_embeddings"] = 2048
    assert it.examine(tmp_path).findings == ()


# --- the same file under several releases --------------------------------------------------------------------------------------

KIMI = {"model_type": "kimi_k2", "num_hidden_layers": 61, "architectures": ["DeepseekV3ForCausalLM"]}


@pytest.mark.parametrize(
    ("ids", "version", "code"),
    [
        ([1, 29, 57], "0.5.10", None),
        ([1, 29, 57], "0.5.23", None),
        ([2, 30, 58], "0.5.10", "layers-off-by-one"),
        ([2, 30, 58], "0.5.12.post1", "layers-off-by-one"),
        ([2, 30, 58], "0.5.13", None),
        ([2, 30, 58], "0.5.23", None),
    ],
)
def test_nested_ids_of_a_latent_target_on_sglang(ids: list[int], version: str, code: str | None, tmp_path: Path) -> None:
    it = Deployment(engine="sglang", engine_version=version)
    it.target.config |= KIMI
    del it.draft.config[LAYER_IDS]
    it.draft.config["eagle_config"][LAYER_IDS] = ids
    found = [finding.code for finding in it.examine(tmp_path).findings]
    assert found == ([code] if code else [])


@pytest.mark.parametrize(
    ("version", "environment", "code"),
    [
        ("0.18.1", "", None),  # the top level only, so the default, which these are
        ("0.22.1", "", "layers-off-by-one"),  # runner V1 takes the nested ones as inputs
        ("0.33.0", "", None),  # runner V2 does not look there
        ("0.33.0", "VLLM_USE_V2_MODEL_RUNNER=0 ", "layers-off-by-one"),
    ],
)
def test_nested_outputs_on_vllm(version: str, environment: str, code: str | None, tmp_path: Path) -> None:
    it = Deployment(engine_version=version, launch=environment + VLLM)
    del it.draft.config[LAYER_IDS]
    found = [finding.code for finding in it.examine(tmp_path).findings]
    assert found == ([code] if code else [])


def test_a_release_between_two_that_were_read_states_no_fault_of_either(tmp_path: Path) -> None:
    it = Deployment(engine="vllm", engine_version="0.21.0")
    del it.draft.config[LAYER_IDS]
    it.draft.config["eagle_config"][LAYER_IDS] = [1, 4, 9]
    assert [finding.code for finding in it.examine(tmp_path).findings] == []


def test_a_release_newer_than_all_that_were_read_is_a_doubt(tmp_path: Path) -> None:
    it = Deployment(engine="vllm", engine_version="9.0")
    del it.draft.config[LAYER_IDS]
    it.draft.config["eagle_config"][LAYER_IDS] = [1, 4, 9]
    first = it.examine(tmp_path).findings[0]
    assert (first.code, first.confidence) == ("layers-defaulted", "medium")
    assert any("unverified" in line for line in first.evidence)


Change = Callable[[Deployment], None]
INFORMATIVE: dict[str, Change] = {
    "norms of EAGLE-3.1": BREAKERS["fc-norm-unsupported"][0],
    "an input norm": BREAKERS["norm-before-fc-unsupported"][0],
}


@pytest.mark.parametrize("name", INFORMATIVE)
@pytest.mark.parametrize(("engine", "version"), [("vllm", "0.33.0"), ("sglang", "0.5.23"), (None, None)])
def test_what_an_engine_reads_is_no_fault(name: str, engine: str | None, version: str | None, tmp_path: Path) -> None:
    it = Deployment()
    INFORMATIVE[name](it)
    it.engine, it.engine_version = engine, version
    assert it.examine(tmp_path).findings == ()
