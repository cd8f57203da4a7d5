"""Training by trace id: turns that the gateway kept, or that spans carry."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from uuid import UUID, uuid4

import pytest
from httpx import AsyncClient, Response

from hud_tui.service.engines.base import Base
from hud_tui.service.engines.tiny.tokenizer import CharTokenizer
from hud_tui.service.service import Service
from tests.conftest import calling, fork
from tests.service.calls import (
    Json,
    chat,
    detail,
    fork_from,
    leave,
    optim,
    pass_,
    ran,
    report,
    sample_of,
    traces_of,
    tree,
)
from tests.toy_engine import TOY, ToyEngine


async def rollout(
    http: AsyncClient, model: Json, reward: float | None, seed: int = 1, **exit_: object
) -> str:
    """A client's rollout of one turn, reported as the SDK does; its 32-hex id."""
    trace = uuid4().hex
    await http.post(
        f"/v2/trace/{trace}/enter", json={"task_slug": "sum", "model": model["model_name"]}
    )
    await chat(http, model["id"], seed=seed, return_token_ids=True, headers={"Trace-Id": trace})
    if reward is not None or exit_:
        await leave(http, trace, reward, **exit_)
    return trace


async def test_the_gateways_turns_train(http: AsyncClient, model: Json) -> None:
    ids = [await rollout(http, model, reward, seed) for seed, reward in enumerate([1.0, 0.0])]
    passed = await pass_(http, model["id"], ids)
    assert (passed.status_code, passed.json()["num_datums"]) == (200, 2)
    await optim(http, model["id"])
    [row] = await tree(http, model["id"])
    assert row["groups"] == [{"task_slug": "sum", "rewards": [1.0, 0.0], "num_tokens": [15, 15]}]
    url = f"/v2/models/{model['id']}/checkpoints/{row['id']}/traces"
    linked = (await http.get(url)).json()
    assert [one["trace_id"] for one in linked] == [str(UUID(id_)) for id_ in ids]


async def tempered(http: AsyncClient, model: Json, temperature: float, **headers: str) -> Json:
    """One choice, sampled at a temperature; every temperature says the same to this seed."""
    ask = {"temperature": temperature, "seed": 1, "return_token_ids": True, "headers": headers}
    return dict((await chat(http, model["id"], **ask))["choices"][0])


def on_policy(answer: Response) -> None:
    """The weights have not moved since sampling, so nothing may differ."""
    metrics = answer.json()["metrics"]
    assert metrics["ratio_max"] == pytest.approx(1.0)
    assert metrics["kl_sample_train"] == pytest.approx(0.0, abs=1e-6)


@pytest.mark.parametrize("temperature", [0.5, 2.0])
async def test_tempered_turns_are_trained_as_they_were_sampled(
    http: AsyncClient, temperature: float
) -> None:
    """Under a trace of its own, or many in a reply that no trace keeps."""
    model, inputs = await fork(http), []
    for reward in (1.0, 0.0):
        choice = await tempered(http, model, temperature, **{"Trace-Id": uuid4().hex})
        inputs.append({"samples": [sample_of(choice)], "reward": reward})
    on_policy(await pass_(http, model["id"], inputs))
    ask = {"temperature": temperature, "n": 8, "seed": 1, "return_token_ids": True}
    choices = (await chat(http, model["id"], **ask))["choices"]
    inputs = [
        {"samples": [sample_of(choice)], "reward": float(choice["index"])} for choice in choices
    ]
    on_policy(await pass_(http, model["id"], inputs))


async def test_spans_are_trained_at_the_temperature_of_their_samples(http: AsyncClient) -> None:
    model, ids = await fork(http), []
    for reward in (1.0, 0.0):
        ids.append(uuid4().hex)
        sample = sample_of(await tempered(http, model, 0.5))
        span = {"name": "step.agent", "attributes": {"hud.payload": {"sample": sample}}}
        await report(http, ids[-1], span)
        await leave(http, ids[-1], reward)
    passed = await pass_(http, model["id"], ids)
    assert (passed.status_code, passed.json()["num_datums"]) == (200, 2)
    on_policy(passed)


@pytest.mark.parametrize("named", [True, False])
async def test_what_others_sampled_later_changes_no_temperature(
    http: AsyncClient, named: bool
) -> None:
    """Not of those whose logprobs were rounded either, where the trace is named."""
    model, inputs = await fork(http), []
    for reward in (1.0, 0.0):
        trace = uuid4().hex
        choice = await tempered(http, model, 0.5, **{"Trace-Id": trace})
        sample, own = sample_of(choice), {}
        if named:
            own = {"trace_id": trace}
            sample["output_logprobs"] = [round(value, 7) for value in sample["output_logprobs"]]
        inputs.append({"samples": [sample], "reward": reward, **own})
    later = await tempered(http, model, 2.0, **{"Trace-Id": uuid4().hex})
    assert later["token_ids"] == choice["token_ids"]
    assert sample_of(later) != sample_of(choice)
    on_policy(await pass_(http, model["id"], inputs))


async def bare(http: AsyncClient) -> str:
    """A trace whose exit is all that was reported."""
    trace = uuid4().hex
    await leave(http, trace, 1.0)
    return trace


async def test_traces_without_turns_are_named_where_there_is_nothing_else(
    http: AsyncClient, model: Json
) -> None:
    empty = [uuid4().hex, await bare(http), "not an id"]
    answer = await pass_(http, model["id"], empty)
    assert answer.status_code == 400
    assert "no trainable turns in the provided inputs" in detail(answer)
    assert all(name in detail(answer) for name in empty)
    assert (await optim(http, model["id"])).status_code == 409


async def test_some_without_turns_are_left_out_and_counted(http: AsyncClient, model: Json) -> None:
    good = [await rollout(http, model, reward, seed) for seed, reward in enumerate([1.0, 0.0])]
    for _ in range(2):
        passed = await pass_(http, model["id"], [good[0], await bare(http), good[1]])
        assert (passed.status_code, passed.json()["num_datums"]) == (200, 2)
        assert passed.json()["metrics"]["traces_without_samples"] == 1.0
    await optim(http, model["id"])
    [node] = await tree(http, model["id"])
    assert node["metrics"]["traces_without_samples"] == 2.0
    assert (node["num_traces"], node["mean_reward"]) == (4, 0.5)


async def test_groups_are_left_out_whole_or_refused_by_name(http: AsyncClient, model: Json) -> None:
    good = [await rollout(http, model, reward, seed) for seed, reward in enumerate([1.0, 0.0])]
    empty = [await bare(http), await bare(http)]
    whole = await pass_(http, model["id"], [*empty, *good], group_size=2)
    assert whole.json()["metrics"]["traces_without_samples"] == 2.0
    await optim(http, model["id"])
    [node] = await tree(http, model["id"])
    assert [group["rewards"] for group in node["groups"]] == [[1.0, 0.0]]
    mixed = [*good, good[0], empty[1]]
    parted = await pass_(http, model["id"], mixed, group_size=2)
    assert parted.status_code == 400
    assert "group 2 has no trainable turns for 1 of its 2 inputs" in detail(parted)
    assert (empty[1] in detail(parted), good[0] in detail(parted)) == (True, False)
    assert (await pass_(http, model["id"], mixed[:3], group_size=2)).status_code == 422
    assert (await optim(http, model["id"])).status_code == 409, "no gradient was left behind"


async def test_errored_rollouts_that_come_inline_are_counted(http: AsyncClient) -> None:
    """As the SDK sends a run whose agent failed in its second turn: graded, with its tokens.

    A sibling that said the very same is not taken for it.
    """
    model, inputs = await fork(http), []
    for seed, (status, reward) in enumerate([("error", 0.0), ("completed", 0.0), ("completed", 1)]):
        trace = uuid4().hex
        asked = {"seed": seed // 2, "return_token_ids": True, "headers": {"Trace-Id": trace}}
        [choice] = (await chat(http, model["id"], **asked))["choices"]
        await leave(http, trace, reward, status=status)
        inputs.append({"samples": [sample_of(choice)], "reward": reward})
    passed = await pass_(http, model["id"], inputs[1:], group_size=2)
    assert passed.json()["metrics"]["errored_share"] == 0.0
    passed = await pass_(http, model["id"], [*inputs, inputs[2]], group_size=4)
    assert passed.json()["metrics"]["errored_share"] == 0.25
    await optim(http, model["id"])
    [node] = await tree(http, model["id"])
    assert node["metrics"]["errored_share"] == pytest.approx(1 / 6)


async def test_errored_and_unfinished_traces_are_named(http: AsyncClient, model: Json) -> None:
    good = await rollout(http, model, 1.0)
    errored = await rollout(http, model, 0.0, status="error", error="box died")
    silent = uuid4().hex  # it died before it said anything
    await leave(http, silent, 0.0, status="error")
    open_ = await rollout(http, model, None)
    for bad, says in (
        (errored, "(group 1) ended as error"),
        (silent, "(group 1) ended as error"),
        (open_, "has no reward"),
    ):
        answer = await pass_(http, model["id"], [good, bad], group_size=2)
        assert (answer.status_code, says in detail(answer)) == (422, True)
        assert str(UUID(bad)) in detail(answer)


async def test_every_turn_of_a_conversation_trains(http: AsyncClient, model: Json) -> None:
    """Two turns with a system message and tools; the second continues the exact tokens."""
    tool = {"type": "function", "function": {"name": "plus", "parameters": {}}}
    asked = [{"role": "system", "content": "Add."}, {"role": "user", "content": "3 + 4 = ?"}]
    ids = []
    for seed, reward in enumerate([1.0, 0.0]):
        trace = uuid4().hex
        body: Json = {"tools": [tool], "return_token_ids": True, "seed": seed, "max_tokens": 4}
        body["headers"] = {"Trace-Id": trace}
        [first] = (await chat(http, model["id"], messages=asked, **body))["choices"]
        before = [*first["prompt_token_ids"], *first["token_ids"]]
        body |= {"prompt_token_ids": before, "continuation_from": 2}
        answer = {"role": "tool", "tool_call_id": "1", "content": "7"}
        turns = [*asked, first["message"], answer]
        [second] = (await chat(http, model["id"], messages=turns, **body))["choices"]
        assert second["prompt_token_ids"][: len(before)] == before
        await leave(http, trace, reward)
        ids.append(trace)
    passed = await pass_(http, model["id"], ids)
    assert (passed.status_code, passed.json()["num_datums"]) == (200, 4), passed.text
    await optim(http, model["id"])
    [node] = await tree(http, model["id"])
    assert (node["num_traces"], node["num_datums"]) == (2, 4)


async def test_a_runs_own_rollouts_can_be_trained_again(http: AsyncClient, model: Json) -> None:
    job = await ran(http, model["id"], steps=1, tasks_per_step=1, group_size=8)
    ids = [row["id"] for row in await traces_of(http, job) if not row["heldout"]]
    passed = await pass_(http, model["id"], ids, group_size=8)
    assert (passed.status_code, passed.json()["num_datums"]) == (200, 8)


class TwoBases(ToyEngine):
    """Two bases that differ in their names."""

    def bases(self) -> Sequence[Base]:
        return [TOY, replace(TOY, name="toy/other")]

    async def tokenizer(self, base: str) -> CharTokenizer:
        return self.tokens

    async def open(self, source: str | Path) -> str:
        return await super().open(TOY.name if isinstance(source, str) else source)


async def test_tokens_of_another_base_are_refused(tmp_path: Path) -> None:
    """Its ids mean something else, though they are in the vocabulary."""
    async with Service(tmp_path, TwoBases()) as service, calling(service) as http:
        other = (await fork_from(http, "toy/other", "other")).json()
        mine = (await fork_from(http, "toy/four", "mine")).json()
        ids = [await rollout(http, other, reward, seed) for seed, reward in enumerate([1.0, 0.0])]
        refused = await pass_(http, mine["id"], ids)
        assert refused.status_code == 422
        assert "was sampled from toy/other, not toy/four" in detail(refused)
        assert (await optim(http, mine["id"])).status_code == 409
        assert (await pass_(http, other["id"], ids)).status_code == 200
