"""What OpenAI's clients ask of the gateway: streams, models, text completions, every parameter."""

import asyncio
import json
import math
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from httpx import AsyncClient, Response

from hud_tui.service.engines.tiny.engine import TinyEngine
from hud_tui.service.engines.tiny.tokenizer import CALL, END, CharTokenizer
from hud_tui.service.service import Service
from tests.conftest import Served, caller, calling, until
from tests.service.calls import QUESTION, Json, chat, conversation, detail, says
from tests.toy_engine import ToyEngine

ASK = {"role": "user", "content": QUESTION}
TOOL = {"type": "function", "function": {"name": "plus", "parameters": {"type": "object"}}}


@pytest.fixture
async def tiny(tmp_path: Path) -> AsyncIterator[AsyncClient]:
    """A service with the tiny engine, whose logprobs are a real model's."""
    async with Service(tmp_path / "tiny", TinyEngine()) as service, calling(service) as http:
        yield http


async def streamed(http: AsyncClient, path: str = "/chat/completions", **body: Any) -> Any:
    """The chunks of a streamed answer, which ends as it should."""
    asked = {"stream": True, **body}
    if path.endswith("chat/completions"):
        asked.setdefault("messages", [ASK])
    answer = await http.post(path, json=asked, headers=asked.pop("headers", None))
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"].startswith("text/event-stream")
    events = answer.text.split("\n\n")
    assert events[-2:] == ["data: [DONE]", ""]
    assert all(event.startswith("data: ") for event in events[:-1])
    return [json.loads(event.removeprefix("data: ")) for event in events[:-2]]


def joined(chunks: Sequence[Json], number: int = 0) -> Json:
    """One choice of a stream, put together again."""
    parts = [c for chunk in chunks for c in chunk["choices"] if c["index"] == number]
    return {
        "role": parts[0]["delta"]["role"],
        "content": "".join(part["delta"].get("content") or "" for part in parts),
        "finish_reason": parts[-1]["finish_reason"],
        "token_ids": [id_ for part in parts for id_ in part.get("token_ids", [])],
        "logprobs": [
            row for part in parts for row in (part["logprobs"] or {"content": []})["content"]
        ],
    }


async def test_a_stream_has_the_tokens_of_the_whole_reply(tiny: AsyncClient) -> None:
    ask = {"model": "tiny/arith-0.2M", "seed": 3, "n": 3, "return_token_ids": True}
    whole = await chat(tiny, **ask)
    chunks = await streamed(tiny, **ask)
    assert len({chunk["id"] for chunk in chunks}) == 1
    assert {chunk["object"] for chunk in chunks} == {"chat.completion.chunk"}
    assert not any("usage" in chunk for chunk in chunks)
    for number, choice in enumerate(whole["choices"]):
        one = joined(chunks, number)
        assert one["content"] == choice["message"]["content"]
        assert one["token_ids"] == choice["token_ids"]
        assert one["logprobs"] == choice["logprobs"]["content"]
        assert (one["role"], one["finish_reason"]) == ("assistant", choice["finish_reason"])
    [first] = chunks[0]["choices"]
    assert first["prompt_token_ids"] == whole["choices"][0]["prompt_token_ids"]
    deltas = [c["delta"] for chunk in chunks for c in chunk["choices"] if c["index"] == 0]
    assert len([delta for delta in deltas if delta.get("content")]) == len(one_text(whole))


def one_text(reply: Json) -> str:
    return str(reply["choices"][0]["message"]["content"])


async def test_the_usage_comes_last_where_it_is_asked_for(http: AsyncClient) -> None:
    ask = {"model": "toy/four", "seed": 1, "n": 2}
    *chunks, last = await streamed(http, **ask, stream_options={"include_usage": True})
    assert [chunk["usage"] for chunk in chunks] == [None] * len(chunks)
    assert last["choices"] == []
    assert last["usage"] == (await chat(http, **ask))["usage"]


async def test_a_streamed_turn_is_kept_and_one_that_cannot_be_is_refused_before_the_stream(
    http: AsyncClient,
) -> None:
    trace = uuid4().hex
    ask = {"model": "toy/four", "return_token_ids": True, "headers": {"Trace-Id": trace}}
    one = joined(await streamed(http, **ask))
    assert (await conversation(http, trace))[1]["sample"]["output_token_ids"] == one["token_ids"]
    body = {"model": "nobody", "messages": [ASK], "stream": True}
    answer = await http.post("/v1/chat/completions", json=body)
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "not_found")


async def test_a_stop_sequence_is_in_a_stream_s_tokens_and_not_in_its_text(
    http: AsyncClient,
) -> None:
    ask = {"model": "toy/four", "stop": " ", "n": 20, "seed": 1, "return_token_ids": True}
    whole, chunks = await chat(http, **ask), await streamed(http, **ask)
    stopped = [c for c in whole["choices"] if c["token_ids"][-1] == ord(" ")]
    assert stopped
    for choice in stopped:
        one = joined(chunks, choice["index"])
        assert (one["content"], one["token_ids"]) == (
            choice["message"]["content"],
            choice["token_ids"],
        )


async def test_calls_of_tools_are_streamed_as_calls(
    http: AsyncClient, engine: ToyEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokens = CharTokenizer()
    said = [*tokens.encode("So:"), CALL, *tokens.encode('plus{"x":2}'), END]
    says(engine, monkeypatch, said, "stop")
    ask = {"model": "toy/four", "return_token_ids": True, "tools": [TOOL]}
    chunks = await streamed(http, **ask)
    deltas = [choice["delta"] for chunk in chunks for choice in chunk["choices"]]
    [[call]] = [delta["tool_calls"] for delta in deltas if "tool_calls" in delta]
    assert (call["index"], call["function"]) == (0, {"name": "plus", "arguments": '{"x":2}'})
    one = joined(chunks)
    assert (one["content"], one["finish_reason"]) == ("So:", "tool_calls")
    assert one["token_ids"] == said


async def test_tools_that_may_not_be_called_are_neither_shown_nor_called(
    http: AsyncClient, engine: ToyEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = await chat(http, "toy/four", return_token_ids=True)
    none = await chat(http, "toy/four", return_token_ids=True, tools=[TOOL], tool_choice="none")
    prompts = [reply["choices"][0]["prompt_token_ids"] for reply in (plain, none)]
    assert prompts[0] == prompts[1]
    says(engine, monkeypatch, [CALL, *CharTokenizer().encode("plus{}"), END], "stop")
    for choice, reason in (("none", "stop"), ("auto", "tool_calls")):
        [one] = (await chat(http, "toy/four", tools=[TOOL], tool_choice=choice))["choices"]
        assert one["finish_reason"] == reason
        assert ("tool_calls" in one["message"]) == (choice == "auto")


async def test_what_no_engine_has_is_refused_by_name(http: AsyncClient) -> None:
    body = {"model": "toy/four", "messages": [ASK], "tools": [TOOL]}

    async def asked(**more: Any) -> Response:
        return await http.post("/v1/chat/completions", json=body | more)

    for name, value, neutral in (
        ("frequency_penalty", 0.5, 0),
        ("presence_penalty", -0.5, 0),
        ("logit_bias", {"65": 10}, {}),
        ("response_format", {"type": "json_object"}, {"type": "text"}),
        ("tool_choice", "required", "auto"),
        ("tool_choice", {"type": "function", "function": {"name": "plus"}}, "none"),
        ("parallel_tool_calls", False, True),
        ("reasoning_effort", "high", None),
        ("functions", [{"name": "plus"}], None),
        ("modalities", ["audio"], ["text"]),
    ):
        refused = await asked(**{name: value})
        error = refused.json()["error"]
        assert (refused.status_code, error["param"]) == (400, name)
        assert error["code"] == "unsupported_parameter"
        assert error["message"].startswith(f"{name} is not supported by the toy engine: remove it")
        assert (await asked(**{name: neutral})).is_success
    for name, value in (("top_logprobs", 3), ("stream_options", {"include_usage": True})):
        error = (await asked(**{name: value})).json()["error"]
        assert (error["param"], "needs" in error["message"]) == (name, True)
    refused = await asked(logprobs=True, top_logprobs=2)
    assert (refused.status_code, "the toy tells none" in detail(refused)) == (400, True)
    refused = await asked(frequencypenalty=1, top_k=3)
    assert (refused.status_code, refused.json()["error"]["param"]) == (422, "frequencypenalty")
    assert refused.json()["error"]["message"] == (
        "frequencypenalty: Extra inputs are not permitted; top_k: Extra inputs are not permitted"
    )


async def test_labels_are_taken_and_change_nothing(http: AsyncClient) -> None:
    labels = {"user": "ada", "metadata": {"run": "7"}, "store": False, "service_tier": "auto"}
    plain = await chat(http, "toy/four", seed=4)
    assert (await chat(http, "toy/four", seed=4, **labels))["choices"] == plain["choices"]


async def test_top_logprobs_are_the_likeliest_tokens(tiny: AsyncClient) -> None:
    ask = {"model": "tiny/arith-0.2M", "temperature": 0, "logprobs": True, "top_logprobs": 3}
    for content in (
        (await chat(tiny, **ask))["choices"][0]["logprobs"]["content"],
        joined(await streamed(tiny, **ask))["logprobs"],
    ):
        assert content
        for row in content:
            top = row["top_logprobs"]
            assert len(top) == 3
            assert [one["logprob"] for one in top] == sorted(
                (o["logprob"] for o in top), reverse=True
            )
            assert (top[0]["token"], top[0]["logprob"]) == (row["token"], row["logprob"])


async def test_top_p_draws_from_the_nucleus_and_keeps_the_policy_s_logprobs(
    tiny: AsyncClient,
) -> None:
    ask = {"model": "tiny/mixed-0.2M", "n": 64, "seed": 5, "max_tokens": 1, "logprobs": True}
    free = await chat(tiny, **ask, top_logprobs=20)
    narrow = await chat(tiny, **ask, top_logprobs=20, top_p=0.5)
    top = free["choices"][0]["logprobs"]["content"][0]["top_logprobs"]
    mass, nucleus = 0.0, set()
    for one in top:
        if mass < 0.5:
            nucleus.add(one["token"])
        mass += math.exp(one["logprob"])
    drawn = [choice["logprobs"]["content"][0] for choice in narrow["choices"]]
    assert {one["token"] for one in drawn} == nucleus
    assert {c["logprobs"]["content"][0]["token"] for c in free["choices"]} > nucleus
    policy = {one["token"]: one["logprob"] for one in top}
    assert all(one["logprob"] == policy[one["token"]] for one in drawn)


async def test_the_models_are_listed_as_openai_lists_them(http: AsyncClient, model: Json) -> None:
    for path in ("/v1/models", "/models"):
        found = (await http.get(path)).json()
        assert found["object"] == "list"
        ids = [one["id"] for one in found["data"]]
        assert ids == ["toy/four", model["model_name"]]
        assert {one["object"] for one in found["data"]} == {"model"}
        assert {one["max_model_len"] for one in found["data"]} == {128}
    one = (await http.get(f"/v1/models/{model['model_name']}")).json()
    assert one in found["data"]
    assert (await http.get("/v1/models/toy/four")).json()["id"] == "toy/four"
    losses = await http.get("/v1/models/toy/four/train/losses")
    assert "ppo" in losses.json()["losses"]
    missing = await http.get("/v1/models/nobody")
    assert (missing.status_code, missing.json()["error"]["code"]) == (404, "not_found")


async def test_a_text_completion_goes_on_from_the_text_itself(http: AsyncClient) -> None:
    prompt = CharTokenizer().render([ASK])
    asked = {"model": "toy/four", "seed": 9, "return_token_ids": True, "max_tokens": 20}
    answer = await http.post("/v1/completions", json={**asked, "prompt": prompt, "n": 2})
    reply = answer.json()
    assert reply["object"] == "text_completion"
    said = await chat(http, **asked, n=2)
    for one, other in zip(reply["choices"], said["choices"], strict=True):
        assert one["text"] == other["message"]["content"]
        assert one["token_ids"] == other["token_ids"]
        assert one["logprobs"]["token_logprobs"] == [
            row["logprob"] for row in other["logprobs"]["content"]
        ]
    assert reply["usage"] == said["usage"]
    plain = (await http.post("/completions", json={**asked, "prompt": QUESTION})).json()
    [choice] = plain["choices"]
    assert choice["prompt_token_ids"] == CharTokenizer().encode(QUESTION)


async def test_many_prompts_are_answered_in_their_order(http: AsyncClient) -> None:
    body = {"model": "toy/four", "prompt": ["a", "bc"], "n": 2, "return_token_ids": True}
    reply = (await http.post("/v1/completions", json=body)).json()
    assert [c["prompt_token_ids"] for c in reply["choices"]] == [[97], [97], [98, 99], [98, 99]]
    assert [c["index"] for c in reply["choices"]] == [0, 1, 2, 3]
    assert reply["usage"]["prompt_tokens"] == 3
    body = {"model": "toy/four", "prompt": "x", "seed": 3}
    [short] = (await http.post("/v1/completions", json=body)).json()["choices"]
    chunks = await streamed(http, "/v1/completions", **body)
    assert "".join(chunk["choices"][0]["text"] for chunk in chunks) == short["text"]
    assert chunks[-1]["choices"][0]["finish_reason"] == short["finish_reason"]


async def test_a_prompt_that_cannot_be_continued(http: AsyncClient) -> None:
    for prompt in ("", [], [[]], ["x"] * 65, [[4000]], "x" * 128):
        answer = await http.post("/v1/completions", json={"model": "toy/four", "prompt": prompt})
        assert answer.status_code == 400
        assert isinstance(answer.json()["error"]["message"], str)


async def test_likeliest_tokens_of_a_text_completion(tiny: AsyncClient) -> None:
    body = {"model": "tiny/arith-0.2M", "prompt": [3, 51, 1, 4], "logprobs": 2, "temperature": 0}
    [choice] = (await tiny.post("/v1/completions", json=body)).json()["choices"]
    told = choice["logprobs"]
    assert all(len(top) == 2 for top in told["top_logprobs"])
    for token, logprob, top in zip(
        told["tokens"], told["token_logprobs"], told["top_logprobs"], strict=True
    ):
        assert top[token] == logprob == max(top.values())
    assert told["text_offset"][0] == 0


@pytest.mark.parametrize("stream", [False, True])
async def test_who_hangs_up_costs_nothing_more(
    served: Served, engine: ToyEngine, monkeypatch: pytest.MonkeyPatch, stream: bool
) -> None:
    """The engine is told that nobody waits for the sample, and the policy is free again."""
    asked, ended = asyncio.Event(), asyncio.Event()

    async def forever(*given: Any) -> Any:
        asked.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    async with caller(served) as http:
        body = {"model": "toy/four", "messages": [ASK], "stream": stream}
        with monkeypatch.context() as patch:
            patch.setattr(engine, "sample", forever)
            call = asyncio.create_task(http.post("/v1/chat/completions", json=body, timeout=None))
            await asked.wait()
            call.cancel()
            await until(ended.is_set)
        assert (await chat(http, "toy/four"))["choices"]
    users = [policy.users for policy in served.service.parts.policies._sampling.values()]
    assert users == [0]
