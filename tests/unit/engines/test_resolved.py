from __future__ import annotations

import json
from pathlib import Path

import pytest

from breakeven.engines.base import Arm, Speculation
from breakeven.engines.resolved import resolved_findings


@pytest.fixture
def head(tmp_path: Path) -> Path:
    header = json.dumps({"fc.weight": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}).encode()
    (tmp_path / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + bytes(4))
    return tmp_path


def configured(head: Path, **config: object) -> Arm:
    (head / "config.json").write_text(json.dumps(config))
    return Arm(name="e", engine="vllm", speculation=Speculation(method="eagle3", num_draft_tokens=3, drafter=head))


def test_an_engine_that_does_as_asked_is_no_finding(head: Path) -> None:
    arm = configured(head, eagle_aux_hidden_state_layer_ids=[2, 15, 27])
    facts = {
        "max_running_requests": 8,
        "num_draft_tokens": 3,
        "method": "eagle3",
        "auxiliary_layers": [2, 15, 27],
        "dtype": "bfloat16",
    }
    assert resolved_findings(arm, facts) == []
    assert resolved_findings(arm, {"engine": "vllm"}) == []


def test_settings_that_the_engine_changed() -> None:
    arm = Arm(name="p", engine="vllm", max_running_requests=64, dtype="float16", context_length=4096)
    (finding,) = resolved_findings(arm, {"max_running_requests": 48, "dtype": "float16", "context_length": 2048})
    assert (finding.code, finding.severity) == ("engine-settings-differ", "error")
    assert finding.evidence == (
        "max_running_requests: asked for 64, the engine says 48",
        "context_length: asked for 4096, the engine says 2048",
    )
    (milder,) = resolved_findings(arm, {"dtype": "bfloat16"})
    assert milder.severity == "warning"


def test_a_schedule_that_the_engine_switched_off() -> None:
    speculation = Speculation(method="eagle3", num_draft_tokens=3, schedule=((1, 8, 3), (9, 64, 0)))
    arm = Arm(name="p", engine="sglang", speculation=speculation)
    (finding,) = resolved_findings(arm, {"num_draft_tokens": 3, "drafts_follow_batch": False})
    assert finding.severity == "error"
    assert finding.evidence == ("drafts_follow_batch: asked for True, the engine says False",)
    assert resolved_findings(arm, {"num_draft_tokens": 3, "drafts_follow_batch": True}) == []


def test_attached_servers_keep_their_own_settings() -> None:
    arm = Arm(name="p", engine="vllm", url="http://h:1", max_running_requests=64)
    assert resolved_findings(arm, {"max_running_requests": 48}) == []


@pytest.mark.parametrize(("config", "used", "found"), [
    ({"eagle_aux_hidden_state_layer_ids": [2, 30, 58]}, [2, 16, 29], True),
    ({"eagle_aux_hidden_state_layer_ids": [58, 2, 30]}, [2, 30, 58], False),
    ({"eagle_config": {"eagle_aux_hidden_state_layer_ids": [1, 29, 57]}}, [2, 16, 29], True),
    ({"eagle_config": {"eagle_aux_hidden_state_layer_ids": [1, 29, 57]}}, [1, 29, 57], True),
    ({"eagle_config": {"eagle_aux_hidden_state_layer_ids": [1, 29, 57]}}, [2, 30, 58], False),
    ({}, [2, 16, 29], False),
    ({"eagle_aux_hidden_state_layer_ids": "2,30,58"}, [2, 16, 29], False),
])  # fmt: skip
def test_layers_in_use_against_layers_trained_on(config: dict[str, object], used: list[int], found: bool, head: Path) -> None:
    codes = [finding.code for finding in resolved_findings(configured(head, **config), {"auxiliary_layers": used})]
    assert codes == (["auxiliary-layers-differ"] if found else [])


def test_a_release_that_nobody_checked() -> None:
    (finding,) = resolved_findings(Arm(name="p", engine="vllm"), {"unverified": "vllm 0.40.0 was never checked"})
    assert (finding.code, finding.severity) == ("release-unverified", "info")
