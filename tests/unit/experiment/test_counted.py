"""Servers that do not say what is needed; the real ones are asked in tests/integration/engines/test_offline_counts.py."""

from __future__ import annotations

import dataclasses

import pytest

from breakeven.engines.base import Arm, Counters, Speculation
from breakeven.errors import EngineError, UsageError
from breakeven.experiment import counted
from breakeven.experiment.counted import count_answers


class Response:
    def __init__(self, status: int, body: object) -> None:
        self.status, self._body = status, body

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_):
        return None

    async def text(self) -> str:
        return str(self._body)

    async def json(self):
        if isinstance(self._body, Exception):
            raise self._body
        return self._body


class Session:
    def __init__(self, status: int, body: object) -> None:
        self._response = Response(status, body)

    def post(self, path, json):
        assert json.get("sampling_params", json)["temperature"] == 0.0
        assert path == "/generate" or json["return_token_ids"] is True
        return self._response

    def get(self, _path):
        return Response(200, "")


@pytest.fixture
def asked(monkeypatch):
    def make(status: int, body: object, *, acceptance: object = None) -> counted._Asked:
        arm = Arm(name="arm", engine="vllm")
        made = counted._Asked(arm, Session(status, body), 8, [2])  # type: ignore[arg-type]

        class Engine:
            @staticmethod
            def parse_metrics(_text: str, time_s: float) -> Counters:
                return Counters(
                    time_s=time_s, prompt_tokens=0, generation_tokens=0, num_running=0, num_waiting=0, acceptance=acceptance
                )

        made._engine = Engine()  # type: ignore[assignment]
        return made

    return make


async def test_a_server_that_counts_no_drafts_is_told_so(asked):
    with pytest.raises(EngineError, match="do not count drafts"):
        await asked(200, {}).answer([1, 2])


@pytest.mark.parametrize(
    ("status", "body", "message"),
    [
        (400, "no token ids here", "HTTP 400 to a prompt of token ids"),
        (200, {"choices": [{"text": "x"}]}, "no token ids in its answer"),
        (200, {"choices": []}, "no token ids in its answer"),
        (200, ["choices"], "no token ids in its answer"),
        (200, ValueError("not JSON"), "/v1/completions gave no answer"),
    ],
)
async def test_an_answer_without_token_ids_is_one_error(asked, status, body, message):
    from breakeven.acceptance import Acceptance

    none = Acceptance(num_steps=0, num_rounds=0, num_drafted=0, num_accepted=0)
    with pytest.raises(EngineError, match=message):
        await asked(status, body, acceptance=none).answer([1, 2])


def native(body: object) -> counted._Asked:
    speculation = Speculation(method="eagle3", num_draft_tokens=3)
    return counted._Asked(Arm(name="arm", engine="sglang", speculation=speculation), Session(200, body), 8, [2])  # type: ignore[arg-type]


async def test_sglang_counts_each_request_itself():
    meta = {
        "spec_verify_ct": 4,
        "spec_num_correct_drafts": 3,
        "spec_num_proposed_drafts": 12,
        "spec_correct_drafts_histogram": [2, 1, 1],
    }
    answer = await native({"output_ids": [5, 6, 7, 8, 9, 5, 6, 7], "meta_info": meta}).answer([1, 2])
    assert (answer.num_rounds, answer.num_accepted, answer.accepted_per_position) == (4, 3, (2, 1, 0))
    alone = await native({"output_ids": [5], "meta_info": {}}).answer([1, 2])
    assert (alone.num_rounds, alone.accepted_per_position) == (0, (0, 0, 0))


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"output_ids": [1, 2], "meta_info": {}}, "counts no rounds"),
        ({"text": "x"}, "no token ids or counts"),
        ({"output_ids": [1], "meta_info": None}, "no token ids or counts"),
        ({"output_ids": [1, 2], "meta_info": {"spec_verify_ct": -1}}, "whole number"),
    ],
)
async def test_an_answer_of_sglang_without_counts_is_one_error(body, message):
    with pytest.raises(EngineError, match=message):
        await native(body).answer([1, 2])


def test_an_arm_that_cannot_be_launched_is_refused_before(tmp_path):
    arm = Arm(name="arm", engine="vllm", executable=tmp_path / "nothing", target=tmp_path)
    with pytest.raises(UsageError):
        count_answers(dataclasses.replace(arm), [[1]], max_tokens=4, stop_ids=[], folder=tmp_path / "log")
