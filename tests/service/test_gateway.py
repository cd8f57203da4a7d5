"""Chat completions, and all else that OpenAI's clients ask of the gateway."""

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
from hud_tui.wire_training import ChatReply
from tests.conftest import Served, caller, calling, fork, until
from tests.service.calls import (
    QUESTION,
    Held,
    Json,
    ask,
    chat,
    conversation,
    detail,
    fork_from,
    optim,
    pass_,
    payloads,
    says,
    set_head,
    step,
)
from tests.toy_engine import ToyEngine


async def test_a_reply_carries_the_exact_tokens(http: AsyncClient, model: Json) -> None:
    body = await chat(http, model["model_name"], return_token_ids=True, seed=1)
    reply = ChatReply.model_validate(body)
    [choice] = reply.choices
    assert choice.token_ids is not None
    assert choice.prompt_token_ids is not None
    content = body["choices"][0]["logprobs"]["content"]
    assert len(content) == len(choice.token_ids)
    assert all(token["logprob"] <= 0 and token["token"] for token in content)
    assert reply.model == model["model_name"]
    assert reply.usage == {
        "prompt_tokens": len(choice.prompt_token_ids),
        "completion_tokens": len(choice.token_ids),
        "total_tokens": len(choice.prompt_token_ids) + len(choice.token_ids),
    }
    assert choice.finish_reason == "stop"


async def test_tokens_come_only_when_asked_for_and_as_many_as_are(
    http: AsyncClient, model: Json
) -> None:
    for asked, has_logprobs in (({}, False), ({"logprobs": True}, True)):
        choice = (await chat(http, model["id"], **asked))["choices"][0]
        assert "token_ids" not in choice
        assert bool(choice["logprobs"] and choice["logprobs"]["content"]) == has_logprobs
    for name in ("max_tokens", "max_completion_tokens"):
        body = {name: 1, "n": 8, "return_token_ids": True}
        choices = (await chat(http, model["id"], **body))["choices"]
        assert {len(choice["token_ids"]) for choice in choices} == {1}
        assert {choice["finish_reason"] for choice in choices} == {"length"}


async def test_a_seed_repeats_and_n_differ(http: AsyncClient, model: Json) -> None:
    ask = {"seed": 9, "n": 12, "temperature": 1.5}
    one, two = await chat(http, model["id"], **ask), await chat(http, model["id"], **ask)
    assert one["choices"] == two["choices"]
    assert [choice["index"] for choice in one["choices"]] == list(range(12))
    assert len({choice["message"]["content"] for choice in one["choices"]}) > 1
    cold = await chat(http, model["id"], temperature=0, n=5)
    assert len({choice["message"]["content"] for choice in cold["choices"]}) == 1
    assert (await chat(http, model["id"], seed=-(2**70)))["choices"]


@pytest.mark.parametrize("stop", [" ", ["xyz", " "]])
async def test_stop_ends_the_text_and_stays_in_the_tokens(
    http: AsyncClient, model: Json, stop: Any
) -> None:
    choices = await chat(http, model["id"], stop=stop, n=20, seed=1, return_token_ids=True)
    stopped = [c for c in choices["choices"] if c["message"]["content"] in ("It", "I")]
    assert stopped
    for choice in stopped:
        assert choice["token_ids"][-1] == ord(" ")
        assert choice["finish_reason"] == "stop"


async def test_the_weights_that_a_model_started_from_can_be_pinned(
    http: AsyncClient, model: Json
) -> None:
    ask = {"seed": 2, "n": 10, "return_token_ids": True}
    started = await chat(http, model["id"], **ask)
    for _ in range(5):
        await step(http, model)
    pinned = await chat(http, model["id"], checkpoint="base", **ask)
    assert (pinned["choices"], pinned["checkpoint"]) == (started["choices"], None)
    other = (await fork_from(http, model["id"], "on")).json()
    head = (await chat(http, model["id"], **ask))["choices"]
    assert head != started["choices"]
    await step(http, other)
    assert (await chat(http, other["id"], checkpoint="base", **ask))["choices"] == head


async def test_a_pin_samples_that_checkpoint(http: AsyncClient, model: Json) -> None:
    ask = {"seed": 2, "n": 10, "return_token_ids": True}
    first = await step(http, model)
    then = await chat(http, model["id"], **ask)
    for _ in range(5):
        last = await step(http, model)
    for pin in (first["checkpoint_id"], "step-000001", first["sampler_path"]):
        pinned = await chat(http, model["id"], checkpoint=pin, **ask)
        assert pinned["choices"] == then["choices"]
        assert pinned["checkpoint"] == first["checkpoint_id"]
    head = await chat(http, model["id"], **ask)
    assert head["checkpoint"] == last["checkpoint_id"]
    assert head["choices"] != then["choices"]
    await set_head(http, model["id"], first["checkpoint_id"])
    assert (await chat(http, model["id"], **ask))["choices"] == then["choices"]


@pytest.mark.parametrize("has_views", [False, True])
async def test_what_is_asked_during_a_step_names_the_weights_it_sampled(
    http: AsyncClient, engine: ToyEngine, monkeypatch: pytest.MonkeyPatch, has_views: bool
) -> None:
    """The engine has stepped, and the service does not know it yet."""
    engine.has_views = has_views
    model, ask = await fork(http), {"seed": 2, "n": 20, "return_token_ids": True}
    first = await step(http, model)
    inputs = await payloads(http, model["id"], [1.0, 0.0])
    optim_step, stepped, go = engine.optim_step, asyncio.Event(), asyncio.Event()

    async def slowly(*given: Any) -> Any:
        saved = await optim_step(*given)
        stepped.set()
        await go.wait()
        return saved

    monkeypatch.setattr(engine, "optim_step", slowly)
    await pass_(http, model["id"], inputs)
    stepping = asyncio.create_task(optim(http, model["id"], learning_rate=5.0))
    await stepped.wait()
    opening = Held(engine, "open")
    opening.go_on.set()
    during = await chat(http, model["id"], **ask)
    assert opening.calls == (0 if has_views else 1)
    go.set()
    assert (await stepping).status_code == 200
    pinned = await chat(http, model["id"], checkpoint=first["checkpoint_id"], **ask)
    assert during["checkpoint"] == first["checkpoint_id"]
    assert during["choices"] == pinned["choices"]
    assert (await chat(http, model["id"], **ask))["choices"] != pinned["choices"]


async def test_a_step_waits_for_those_who_sample_the_weights_that_it_changes(
    http: AsyncClient, service: Service, engine: ToyEngine
) -> None:
    model, ask = await fork(http), {"seed": 2, "n": 20, "return_token_ids": True}
    first = await step(http, model)
    await pass_(http, model["id"], await payloads(http, model["id"], [1.0, 0.0]))
    then = await chat(http, model["id"], **ask)
    sample = Held(engine, "sample")
    sampling = asyncio.create_task(chat(http, model["id"], **ask))
    await sample.begun.wait()
    stepping = asyncio.create_task(optim(http, model["id"], learning_rate=5.0))
    await until(lambda: any(policy.t == 2 for policy in engine.policies.values()) or held(service))
    sample.go_on.set()
    assert (await sampling)["choices"] == then["choices"]
    assert (await sampling)["checkpoint"] == first["checkpoint_id"]
    assert (await stepping).status_code == 200


def held(service: Service) -> bool:
    """Whether a training policy waits for its samplers."""
    return any(trained.policy.held for trained in service.parts.policies._training.values())


async def test_a_step_does_not_wait_for_those_who_sample_a_view_of_its_weights(
    http: AsyncClient, engine: ToyEngine
) -> None:
    def views() -> int:
        return sum(handle.startswith("view") for handle in engine.policies)

    engine.has_views = True
    model, ask = await fork(http), {"seed": 2, "n": 20, "return_token_ids": True}
    first = await step(http, model)
    then, inputs = await chat(http, model["id"], **ask), await payloads(http, model["id"], [1, 0])
    sample = Held(engine, "sample")
    sampling = asyncio.create_task(chat(http, model["id"], **ask))
    await sample.begun.wait()
    for _ in range(3):
        assert (await pass_(http, model["id"], inputs)).status_code == 200
        assert (await optim(http, model["id"], learning_rate=5.0)).status_code == 200
    await until(lambda: views() == 2)  # the newest, and the one in use
    sample.go_on.set()
    assert (await sampling)["choices"] == then["choices"]
    assert (await sampling)["checkpoint"] == first["checkpoint_id"]
    await until(lambda: views() == 1)
    await set_head(http, model["id"], first["checkpoint_id"])
    await until(lambda: views() == 0)


async def test_of_all_who_ask_for_the_same_weights_at_once_one_opens_them(
    http: AsyncClient, engine: ToyEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another does if the first one leaves."""
    begun, go, open_ = list[Any](), asyncio.Event(), engine.open

    async def slowly(source: Any) -> str:
        begun.append(source)
        await go.wait()
        return await open_(source)

    monkeypatch.setattr(engine, "open", slowly)
    first, *others = [asyncio.create_task(chat(http, "toy/four")) for _ in range(5)]
    await until(lambda: len(begun) == 1)
    first.cancel()
    await until(lambda: len(begun) == 2)
    go.set()
    assert all(reply["choices"] for reply in await asyncio.gather(*others))
    assert (begun, len(engine.policies)) == (["toy/four"] * 2, 1)


async def test_many_pins_close_the_oldest(http: AsyncClient, model: Json, engine: Any) -> None:
    steps = [await step(http, model) for _ in range(12)]
    for _ in range(2):
        for one in steps:
            await chat(http, model["id"], checkpoint=one["checkpoint_id"])
    assert len(engine.policies) <= 8 + 1


async def test_a_later_turn_continues_the_exact_tokens(http: AsyncClient) -> None:
    model, ids = await fork(http), {"return_token_ids": True}
    for system in ([], [{"role": "system", "content": "Be short."}]):
        messages = [*system, {"role": "user", "content": [{"type": "text", "text": QUESTION}]}]
        [choice] = (await chat(http, model["id"], messages=messages, **ids))["choices"]
        prior = [*choice["prompt_token_ids"], *choice["token_ids"]]
        messages += [choice["message"], {"role": "tool", "tool_call_id": "x", "content": "9"}]
        more = {"prompt_token_ids": prior, "continuation_from": 2}
        second = await chat(http, model["id"], messages=messages, **more, **ids)
        got = second["choices"][0]["prompt_token_ids"]
        assert got[: len(prior)] == prior
        rest = await chat(http, model["id"], messages=messages[-1:], **ids)
        assert got[len(prior) :] == rest["choices"][0]["prompt_token_ids"]


async def test_a_rollout_of_several_turns_tells_each_message_once(http: AsyncClient) -> None:
    model, trace = await fork(http), uuid4().hex
    ask = {"headers": {"Trace-Id": trace}, "return_token_ids": True}
    messages: list[Json] = [{"role": "user", "content": QUESTION}]
    [choice] = (await chat(http, model["id"], messages=messages, **ask))["choices"]
    messages += [choice["message"], {"role": "user", "content": "And 9?"}]
    prior = [*choice["prompt_token_ids"], *choice["token_ids"]]
    more = {"prompt_token_ids": prior, "continuation_from": 2}
    await chat(http, model["id"], messages=messages, **more, **ask)
    first, _, second, _ = [event["text"] for event in await conversation(http, trace)]
    assert QUESTION in first
    assert "And 9?" in second
    assert QUESTION not in second


async def test_a_call_is_answered_as_one_and_the_turn_after_it_goes_on(
    http: AsyncClient, engine: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, tokens = await fork(http), CharTokenizer()
    tool = {"type": "function", "function": {"name": "plus", "parameters": {"type": "object"}}}
    asked = [*tokens.encode("So:"), CALL, *tokens.encode('plus{"x":2}'), END]
    says(engine, monkeypatch, asked, "stop")
    ask = {"messages": [{"role": "user", "content": "Add."}], "return_token_ids": True}
    [choice] = (await chat(http, model["id"], tools=[tool], **ask))["choices"]
    [call] = choice["message"]["tool_calls"]
    assert (choice["finish_reason"], choice["message"]["content"]) == ("tool_calls", "So:")
    assert call["type"] == "function"
    assert call["function"] == {"name": "plus", "arguments": '{"x":2}'}
    plain = (await chat(http, model["id"], **ask))["choices"][0]
    assert len(choice["prompt_token_ids"]) > len(plain["prompt_token_ids"]), "tools are shown"
    before = [*choice["prompt_token_ids"], *choice["token_ids"]]
    answer = {"role": "tool", "tool_call_id": call["id"], "content": "5"}
    ask["messages"] = [*ask["messages"], choice["message"], answer]
    again = (await chat(http, model["id"], tools=[tool], **ask))["choices"][0]
    more = {"prompt_token_ids": before, "continuation_from": 2}
    then = (await chat(http, model["id"], tools=[tool], **ask, **more))["choices"][0]
    assert then["prompt_token_ids"] == again["prompt_token_ids"]
    assert then["prompt_token_ids"][: len(before)] == before


async def test_what_cannot_be_answered(http: AsyncClient, model: Json) -> None:
    for body, status, said in (
        ({"model": "nobody"}, 404, "no such model: nobody"),
        ({"checkpoint": str(uuid4())}, 404, "no such checkpoint"),
        ({"messages": []}, 400, "messages is empty"),
        ({"messages": [{"role": "oracle", "content": "x"}]}, 400, "role must be"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, 400, "text parts"),
        ({"prompt_token_ids": [4000], "continuation_from": 1}, 400, "outside the vocabulary"),
        ({"prompt_token_ids": [65], "continuation_from": -5}, 400, "at least 0"),
        ({"tools": [{"function": "x"}]}, 400, "tools[0].function must be an object"),
        ({"tools": [{"function": {"parameters": [1]}}]}, 400, "parameters must be an object"),
        ({"messages": [{"role": "user", "tool_calls": "abc"}]}, 400, "tool_calls must be a list"),
        ({"top_p": 0}, 422, "top_p: Input should be greater than 0"),
        ({"top_p": 1.1}, 422, "top_p: Input should be less than or equal to 1"),
        ({"temperature": -1}, 422, "greater than or equal to 0"),
        ({"temperature": 0.001}, 422, "at least 0.01"),
        ({"n": 65}, 422, "less than or equal to 64"),
    ):
        answer = await ask(http, **{"model": model["id"], **body})
        assert answer.status_code == status, answer.text
        message = answer.json()["error"]["message"]
        assert said in message
        assert "{" not in message


async def test_a_prompt_must_fit_and_a_trace_id_be_one(http: AsyncClient) -> None:
    long = await ask(http, "toy/four", messages=[{"role": "user", "content": "x" * 200}])
    assert (long.status_code, "128 tokens" in detail(long)) == (400, True)
    assert long.json()["error"]["code"] == "context_length_exceeded"
    odd = await ask(http, "toy/four", headers={"Trace-Id": "nope"})
    assert (odd.status_code, "Trace-Id" in detail(odd)) == (400, True)


@pytest.mark.parametrize("streams", [False, True])
async def test_a_rollout_whose_context_is_full_ends_by_length(
    http: AsyncClient, streams: bool
) -> None:
    model, headers = await fork(http), {"Trace-Id": uuid4().hex}
    begun = await chat(http, model["id"], headers=headers, return_token_ids=True)
    first = begun["choices"][0]
    later = {
        "messages": [
            {"role": "user", "content": QUESTION},
            {"role": "assistant", "content": first["message"]["content"]},
            {"role": "user", "content": "x" * 200},
        ],
        "prompt_token_ids": first["prompt_token_ids"] + first["token_ids"],
        "continuation_from": 2,
        "return_token_ids": True,
    }
    if streams:
        *_, last = await streamed(http, model=model["id"], headers=headers, **later)
        assert last["choices"][0]["finish_reason"] == "length"
    else:
        [choice] = (await chat(http, model["id"], headers=headers, **later))["choices"]
        assert (choice["finish_reason"], choice["token_ids"]) == ("length", [])
        assert choice["message"] == {"role": "assistant", "content": ""}
        assert choice["logprobs"] == {"content": []}
    for others in ({}, {"Trace-Id": uuid4().hex}):  # a loop of their own; a task that is too long
        refused = await ask(http, model["id"], headers=others, **later)
        assert refused.json()["error"]["code"] == "context_length_exceeded"
    kinds = [event["kind"] for event in await conversation(http, headers["Trace-Id"])]
    assert kinds == ["user_message", "agent_message"], "no turn without a token"


async def test_a_turn_asked_again_counts_once(http: AsyncClient) -> None:
    model, headers = await fork(http), {"Trace-Id": uuid4().hex}
    for seed in (1, 2):
        reply = await chat(http, model["id"], seed=seed, headers=headers, return_token_ids=True)
    events = await conversation(http, headers["Trace-Id"])
    assert [event["kind"] for event in events] == ["user_message", "agent_message"]
    assert events[1]["sample"]["output_token_ids"] == reply["choices"][0]["token_ids"]


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


async def test_a_stream_has_the_tokens_of_the_whole_reply(http: AsyncClient) -> None:
    ask = {"model": "toy/four", "seed": 3, "n": 3, "return_token_ids": True}
    whole = await chat(http, **ask)
    chunks = await streamed(http, **ask)
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
    body = {"model": ask["model"], "prompt": [3, 51, 1, 4], "logprobs": 2, "temperature": 0}
    told = (await tiny.post("/v1/completions", json=body)).json()["choices"][0]["logprobs"]
    assert all(len(top) == 2 for top in told["top_logprobs"])
    for token, logprob, top in zip(
        told["tokens"], told["token_logprobs"], told["top_logprobs"], strict=True
    ):
        assert top[token] == logprob == max(top.values())
    assert told["text_offset"][0] == 0


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
