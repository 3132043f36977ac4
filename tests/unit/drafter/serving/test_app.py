"""The application over a real socket and a scripted core: what a client sees."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from breakeven.drafter.serving.requests import GenerationRequest
from breakeven.drafter.serving.scripted import ScriptedCore

END = 256
CHAT = "/v1/chat/completions"
TEXT = "/v1/completions"
HI: dict[str, Any] = {"messages": [{"role": "user", "content": "hi"}]}

Serving = Callable[..., AbstractAsyncContextManager[Any]]


def saying(text: str, *, end: bool = True, **options: Any) -> ScriptedCore:
    tokens = [*text.encode(), *([END] if end else [])]
    return ScriptedCore(lambda request: tokens, **options)


async def metrics(client: Any) -> dict[str, float]:
    """Sample name, with any label beyond model and engine appended, -> value."""
    async with client.http.get("/metrics") as response:
        text = await response.text()
    values = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            extra = [value for name, value in sorted(sample.labels.items()) if name not in ("engine", "model_name")]
            values[":".join([sample.name, *extra])] = sample.value
    return values


async def until(condition: Callable[[], bool]) -> None:
    for _ in range(500):
        if condition():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("waited five seconds in vain")


async def test_chat_answer_whole(serving: Serving) -> None:
    async with serving(saying("Hello")) as client:
        status, answer = await client.post(CHAT, model="tiny", **HI)
    assert status == 200
    assert answer["object"] == "chat.completion"
    assert answer["model"] == "tiny"
    [choice] = answer["choices"]
    assert choice["message"] == {"role": "assistant", "content": "Hello"}
    assert (choice["finish_reason"], choice["stop_reason"]) == ("stop", None)
    # "user:hi\n>" in, five letters and the end token out
    assert answer["usage"] == {"prompt_tokens": 9, "completion_tokens": 6, "total_tokens": 15}


async def test_chat_stream(serving: Serving) -> None:
    async with serving(saying("Hello", tokens_per_step=2, step_s=0.02)) as client:
        events = await client.events(CHAT, **HI)
    first, *rest = events
    assert first["object"] == "chat.completion.chunk"
    assert first["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert "".join(event["choices"][0]["delta"]["content"] for event in rest) == "Hello"
    assert not any("role" in event["choices"][0]["delta"] for event in rest)
    assert [event["choices"][0]["finish_reason"] for event in events][-1] == "stop"
    assert not any("usage" in event for event in events)
    assert len({event["id"] for event in events}) == 1


async def test_usage_in_every_chunk_counts_tokens_not_chunks(serving: Serving) -> None:
    options = {"include_usage": True, "continuous_usage_stats": True}
    async with serving(saying("abcdefgh", tokens_per_step=3, end=False)) as client:
        events = await client.events(CHAT, **HI, max_tokens=8, stream_options=options)
    counts = [event["usage"]["completion_tokens"] for event in events]
    assert counts[0] == 0
    assert counts == sorted(counts)
    assert counts[-2:] == [8, 8]
    assert events[-1]["choices"] == []
    assert events[-2]["choices"][0]["finish_reason"] == "length"
    assert events[-1]["usage"] == {"prompt_tokens": 9, "completion_tokens": 8, "total_tokens": 17}


@pytest.mark.parametrize(
    ("options", "in_chunks", "at_end"),
    [({"include_usage": True}, False, True), ({"continuous_usage_stats": True}, False, False), ({}, False, False)],
)
async def test_continuous_usage_needs_include_usage(
    serving: Serving, options: dict[str, bool], in_chunks: bool, at_end: bool
) -> None:
    async with serving(saying("ab")) as client:
        events = await client.events(TEXT, prompt="x", stream_options=options)
    assert ("usage" in events[0]) is in_chunks
    assert ("usage" in events[-1]) is at_end


async def test_token_ids_of_prompt_and_answer_stand_where_vllm_puts_them(serving: Serving) -> None:
    async with serving(ScriptedCore(lambda _request: [*b"yes", END])) as client:
        _, chat = await client.post(CHAT, **HI, return_token_ids=True)
        _, text = await client.post(TEXT, prompt="ab", return_token_ids=True)
        _, bare = await client.post(CHAT, **HI)
    assert bytes(chat["prompt_token_ids"]) == b"user:hi\n>"
    assert chat["choices"][0]["token_ids"] == [*b"yes", END]
    assert text["choices"][0]["prompt_token_ids"] == [*b"ab"]
    assert "prompt_token_ids" not in bare


async def test_completion_of_text_and_of_token_ids(serving: Serving) -> None:
    seen: list[GenerationRequest] = []

    def script(request: GenerationRequest) -> list[int]:
        seen.append(request)
        return [*b"yes", END]

    async with serving(ScriptedCore(script)) as client:
        for prompt in ("ab", [97, 98], ["ab"], [[97, 98]]):
            status, answer = await client.post(TEXT, prompt=prompt, temperature=0, seed=7)
            assert status == 200, answer
            assert answer["object"] == "text_completion"
            assert answer["choices"][0]["text"] == "yes"
            assert seen[-1].prompt_ids == (97, 98)
    assert (seen[-1].temperature, seen[-1].seed, seen[-1].max_tokens) == (0.0, 7, 16)


async def test_sampling_defaults_are_the_generation_configs(serving: Serving) -> None:
    seen: list[GenerationRequest] = []

    def script(request: GenerationRequest) -> list[int]:
        seen.append(request)
        return [END]

    async with serving(ScriptedCore(script), temperature=0.6, top_p=0.9) as client:
        await client.post(CHAT, **HI)
        await client.post(CHAT, **HI, temperature=0, top_p=0.5, max_tokens=9, max_completion_tokens=3, stop_token_ids=[7])
    assert (seen[0].temperature, seen[0].top_p, seen[0].max_tokens) == (0.6, 0.9, 64 - 9)
    assert (seen[-1].temperature, seen[-1].top_p, seen[-1].max_tokens) == (0.0, 0.5, 3)
    assert seen[-1].stop_token_ids == {7, END}


async def test_a_stop_token_is_counted_and_its_text_is_not_shown(serving: Serving) -> None:
    async with serving(saying("abc", end=False)) as client:
        _, answer = await client.post(TEXT, prompt="x", stop_token_ids=[ord("c")])
    assert answer["choices"][0]["text"] == "ab"
    assert answer["usage"]["completion_tokens"] == 3


async def test_ignore_eos_makes_the_end_token_ordinary(serving: Serving) -> None:
    async with serving(saying("ab")) as client:
        _, answer = await client.post(TEXT, prompt="x", ignore_eos=True, min_tokens=7, max_tokens=7)
    assert answer["usage"]["completion_tokens"] == 7
    assert answer["choices"][0]["text"] == "ababa"
    assert answer["choices"][0]["finish_reason"] == "length"


@pytest.mark.parametrize("tokens_per_step", [1, 2, 5])
async def test_stop_string_across_chunks(serving: Serving, tokens_per_step: int) -> None:
    core = saying("one STOP two", end=False, tokens_per_step=tokens_per_step)
    async with serving(core) as client:
        events = await client.events(
            TEXT, prompt="x", stop=["STOP", "never"], max_tokens=40, stream_options={"include_usage": True}
        )
        await until(lambda: core.stats.num_running == 0)  # the core would go on to 40 tokens
        counters = await metrics(client)
    assert "".join(event["choices"][0]["text"] for event in events[:-1]) == "one "
    assert events[-2]["choices"][0]["finish_reason"] == "stop"
    assert events[-2]["choices"][0]["stop_reason"] == "STOP"
    assert events[-1]["usage"]["completion_tokens"] == 8
    assert counters["vllm:request_success_total:stop"] == 1
    assert counters["vllm:request_success_total:abort"] == 0


async def test_characters_of_several_tokens_arrive_whole(serving: Serving) -> None:
    async with serving(saying("é日😀")) as client:
        events = await client.events(TEXT, prompt="x", return_token_ids=True)
    texts = [event["choices"][0]["text"] for event in events]
    assert "".join(texts) == "é日😀"
    assert not any("\N{REPLACEMENT CHARACTER}" in text for text in texts)
    assert [token for event in events for token in event["choices"][0]["token_ids"]] == [*"é日😀".encode(), END]


BAD_REQUESTS: list[tuple[dict[str, Any], str]] = [
    ({"prompt": "x", "n": 2}, "n=2 is not supported"),
    ({"prompt": "x", "logprobs": 3}, "logprobs=3 is not supported"),
    ({"prompt": "x", "max_tokens": 0}, "max_tokens"),
    ({"prompt": "x", "temperature": -1}, "temperature"),
    ({"prompt": "x", "top_p": 0}, "top_p"),
    ({"prompt": "x", "seed": -1}, "seed is -1; expected 0 to 2^63 - 1"),
    ({"prompt": "x", "seed": 2**63}, "expected 0 to 2^63 - 1"),
    ({"prompt": "x", "stop": [""]}, "empty string"),
    ({"prompt": "x", "stream_options": {"include_usage": True}}, "stream=true"),
    ({"prompt": "x", "min_tokens": 2}, "ignore_eos"),
    ({"prompt": ""}, "prompt is empty"),
    ({"prompt": []}, "prompt is empty"),
    ({"prompt": ["a", "b"]}, "2 prompts"),
    ({"prompt": "x" * 64}, "maximum context length is 64 tokens"),
    ({"prompt": "x", "max_tokens": 64}, "maximum context length is 64 tokens"),
    ({}, "prompt"),
]


async def test_bad_requests_get_one_clear_error(serving: Serving) -> None:
    async with serving(saying("ab")) as client:
        for body, message in BAD_REQUESTS:
            status, answer = await client.post(TEXT, **body)
            assert status == 400, body
            assert set(answer["error"]) == {"message", "type", "param", "code"}
            assert message in answer["error"]["message"]
            assert (answer["error"]["type"], answer["error"]["code"]) == ("BadRequestError", 400)


async def test_fields_that_are_off_and_fields_nobody_knows_are_accepted(serving: Serving, caplog: pytest.LogCaptureFixture) -> None:
    off = {"n": 1, "presence_penalty": 0.0, "logprobs": None, "top_k": -1, "tools": [], "user": "me", "invented": 3}
    async with serving(saying("ab")) as client:
        for _ in range(2):
            status, _ = await client.post(TEXT, prompt="x", **off)
            assert status == 200
    assert [record.message for record in caplog.records if "invented" in record.message] == [
        "Request field 'invented' is not used by this server (said once)"
    ]


async def test_text_parts_are_joined_and_images_refused(serving: Serving) -> None:
    seen: list[GenerationRequest] = []

    def script(request: GenerationRequest) -> list[int]:
        seen.append(request)
        return [END]

    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    async with serving(ScriptedCore(script)) as client:
        await client.post(CHAT, messages=[{"role": "user", "content": parts}])
        assert bytes(seen[0].prompt_ids) == b"user:a\nb\n>"
        status, answer = await client.post(CHAT, messages=[{"role": "user", "content": [{"type": "image_url"}]}])
    assert status == 400
    assert "text only" in answer["error"]["message"]


async def test_not_json_unknown_model_unknown_path_wrong_method(serving: Serving) -> None:
    async with serving(saying("ab")) as client:
        async with client.http.post(TEXT, data=b"{not json") as response:
            assert response.status == 400
            assert "not JSON" in (await response.json())["error"]["message"]
        status, answer = await client.post(TEXT, model="gpt-4", prompt="x")
        assert (status, answer["error"]["type"]) == (404, "NotFoundError")
        assert "`gpt-4` does not exist" in answer["error"]["message"]
        async with client.http.get("/v1/nothing") as response:
            assert response.status == 404
            assert (await response.json())["error"]["code"] == 404
        async with client.http.get(TEXT) as response:
            assert response.status == 405


async def test_a_body_without_bounds_is_refused(serving: Serving, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("breakeven.drafter.serving.app.MAX_BODY_BYTES", 20_000)
    async with serving(saying("x")) as client:
        status, answer = await client.post(CHAT, messages=[{"role": "user", "content": "a" * 20_000}])
        assert status == 413
        assert "longer than 20000 bytes" in answer["error"]["message"]
        status, answer = await client.post(CHAT, model="m" * 10_000, **HI)
        assert status == 404
        assert len(answer["error"]["message"]) < 400
        status, _ = await client.post(CHAT, model="tiny", **HI)
        assert status == 200


async def test_a_client_that_leaves_within_its_request_is_no_error(serving: Serving, caplog: pytest.LogCaptureFixture) -> None:
    async with serving(saying("x")) as client:
        async with client.http.get("/health") as response:
            address = response.url
        for _ in range(3):
            _, writer = await asyncio.open_connection(address.host, address.port)
            writer.write(b"POST /v1/chat/completions HTTP/1.1\r\nHost: h\r\nContent-Length: 99\r\n\r\n{")
            await writer.drain()
            await asyncio.sleep(0.05)
            writer.close()
            await writer.wait_closed()
        await asyncio.sleep(0.05)
        status, _ = await client.post(CHAT, model="tiny", **HI)
    assert status == 200
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


async def test_models_and_version(serving: Serving) -> None:
    async with serving(saying("ab")) as client:
        async with client.http.get("/v1/models") as response:
            [model] = (await response.json())["data"]
        async with client.http.get("/version") as response:
            assert set(await response.json()) == {"version"}
    assert (model["id"], model["max_model_len"]) == ("tiny", 64)


async def test_health_before_the_model_is_there(serving: Serving) -> None:
    async with serving(saying("ab"), loaded=False) as client:
        for path in ("/health", "/v1/models", "/metrics"):
            async with client.http.get(path) as response:
                assert response.status == 503
        status, answer = await client.post(TEXT, prompt="x")
        assert (status, answer["error"]["type"]) == (503, "ServiceUnavailableError")
        client.application.service = client.service
        async with client.http.get("/health") as response:
            assert response.status == 200


async def test_engine_that_dies_fails_open_requests_and_health(serving: Serving) -> None:
    async with serving(saying("ab", end=False, fail_at_step=3)) as client:
        events = await client.events(TEXT, prompt="x", max_tokens=40)
        assert "RuntimeError: scripted failure" in events[-1]["error"]["message"]
        assert "choices" in events[0]
        async with client.http.get("/health") as response:
            assert response.status == 500
        status, answer = await client.post(TEXT, prompt="x")
        assert (status, answer["error"]["type"]) == (500, "InternalServerError")


async def test_engine_that_dies_before_the_first_token_gives_an_error_status(serving: Serving) -> None:
    async with serving(saying("ab", fail_at_step=0)) as client:
        status, answer = await client.post(TEXT, prompt="x", stream=True)
    assert status == 500
    assert "scripted failure" in answer["error"]["message"]


@pytest.mark.parametrize("stream", [True, False])
async def test_client_that_leaves_frees_its_slot(serving: Serving, stream: bool) -> None:
    core = saying("ab", end=False, max_num_seqs=1, step_s=0.005)
    async with serving(core, context_length=100_000) as client:
        leaving = asyncio.create_task(client.post(TEXT, prompt="x", max_tokens=90_000, stream=stream))
        await until(lambda: core.stats.num_running == 1)
        # waits for the only slot
        staying = asyncio.create_task(client.post(TEXT, prompt="y", max_tokens=4))
        await until(lambda: core.stats.num_waiting == 1)
        counters = await metrics(client)
        assert (counters["vllm:num_requests_running"], counters["vllm:num_requests_waiting"]) == (1, 1)
        leaving.cancel()
        status, _ = await staying
        assert status == 200
        counters = await metrics(client)
    assert counters["vllm:request_success_total:abort"] == 1
    assert counters["vllm:request_success_total:length"] == 1
    assert counters["vllm:num_requests_running"] == 0


async def test_metrics_count_what_was_served(serving: Serving) -> None:
    async with serving(saying("abcdef", end=False, tokens_per_step=3)) as client:
        await client.post(TEXT, prompt="xy", max_tokens=6)
        counters = await metrics(client)
    assert counters["vllm:prompt_tokens_total"] == 2
    assert counters["vllm:generation_tokens_total"] == 6
    assert counters["breakeven:decode_steps_total"] == 2
    assert counters["vllm:spec_decode_num_drafts_total"] == 2
    assert counters["vllm:spec_decode_num_draft_tokens_total"] == 4
    assert counters["vllm:spec_decode_num_accepted_tokens_total"] == 4
    assert counters["vllm:spec_decode_num_accepted_tokens_per_pos_total:0"] == 2
    assert counters["vllm:spec_decode_num_accepted_tokens_per_pos_total:1"] == 2
    assert counters["vllm:request_success_total:length"] == 1


async def test_requests_run_side_by_side(serving: Serving) -> None:
    def echo(request: GenerationRequest) -> list[int]:
        return [*request.prompt_ids, END]

    prompts = [f"prompt {index}" for index in range(20)]
    async with serving(ScriptedCore(echo, max_num_seqs=4, tokens_per_step=3)) as client:
        answers = await asyncio.gather(*(client.post(TEXT, prompt=prompt) for prompt in prompts))
    assert [answer["choices"][0]["text"] for _, answer in answers] == prompts
