"""Chat completions."""

import asyncio
from typing import Any
from uuid import uuid4

import pytest
from httpx import AsyncClient

from hud_tui.service.engines.tiny.tokenizer import CALL, END, CharTokenizer
from hud_tui.service.service import Service
from hud_tui.wire_training import ChatReply
from tests.conftest import fork, until
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


async def test_what_is_asked_during_a_step_names_the_weights_it_sampled(
    http: AsyncClient, engine: ToyEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The engine has stepped, and the service does not know it yet."""
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
    during = await chat(http, model["id"], **ask)
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
    return any(policy.held for _, policy in service.parts.policies._training.values())


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


async def test_what_was_cut_off_or_not_offered_is_no_call(
    http: AsyncClient, engine: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, tokens = await fork(http), CharTokenizer()
    tool = {"type": "function", "function": {"name": "plus"}}
    asked = [CALL, *tokens.encode('plus{"x"')]
    for reason, offered in (("length", [tool]), ("stop", None)):
        says(engine, monkeypatch, asked, reason)
        [choice] = (await chat(http, model["id"], tools=offered))["choices"]
        assert (choice["finish_reason"], choice["message"]) == (
            reason,
            {"role": "assistant", "content": 'plus{"x"'},
        )


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


async def test_a_turn_asked_again_counts_once(http: AsyncClient) -> None:
    model, headers = await fork(http), {"Trace-Id": uuid4().hex}
    for seed in (1, 2):
        reply = await chat(http, model["id"], seed=seed, headers=headers, return_token_ids=True)
    events = await conversation(http, headers["Trace-Id"])
    assert [event["kind"] for event in events] == ["user_message", "agent_message"]
    assert events[1]["sample"]["output_token_ids"] == reply["choices"][0]["token_ids"]
