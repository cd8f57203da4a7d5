"""Training calls, by turns or by trace id: what accumulates, is stepped on, and is refused."""

import asyncio
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from httpx import AsyncClient, Response

from hud_tui.service import context as parts_module
from hud_tui.service import session as session_module
from hud_tui.service.engines.base import Base, EngineRefused, NotFinite, loss_config
from hud_tui.service.engines.tiny.engine import TinyEngine
from hud_tui.service.engines.tiny.tokenizer import CharTokenizer
from hud_tui.service.policies import Policy
from hud_tui.service.service import Service
from hud_tui.service.store.models import find
from hud_tui.wire import Checkpoint
from hud_tui.wire_training import ForwardBackwardResult, OptimStepResult
from tests.conftest import calling, dumps, ended, fork, submit, until
from tests.service.calls import (
    Json,
    ask,
    chat,
    detail,
    fork_from,
    leave,
    optim,
    pass_,
    payloads,
    ran,
    report,
    sample_of,
    step,
    timeless,
    traces_of,
    tree,
)
from tests.toy_engine import TOY, ToyEngine

LOSSES = ["importance_sampling", "ppo", "cispo", "dro", "cross_entropy"]


async def test_losses_are_listed(http: AsyncClient, model: Json) -> None:
    answer = (await http.get(f"/v1/models/{model['id']}/train/losses")).json()
    assert answer["losses"] == LOSSES
    assert set(answer["config"]) == set(LOSSES), "with the keys of each one's configuration"
    assert answer["config"]["dro"] == {"beta": 0.05}
    assert (await http.get(f"/v1/models/{uuid4()}/train/losses")).status_code == 404


@pytest.mark.parametrize("loss_fn", LOSSES)
async def test_a_step_has_exactly_the_wires_keys(
    http: AsyncClient, model: Json, loss_fn: str
) -> None:
    inputs = await payloads(http, model["id"], [1.0, 0.0, 1.0, 0.0])
    passed = (await pass_(http, model["id"], inputs, group_size=2, loss_fn=loss_fn)).json()
    assert passed.keys() == set(ForwardBackwardResult.model_fields)
    assert passed["num_datums"] == (2 if loss_fn == "cross_entropy" else 4)
    assert all(isinstance(value, float) for value in passed["metrics"].values())
    stepped = (await optim(http, model["id"])).json()
    assert stepped.keys() == set(OptimStepResult.model_fields)
    assert (stepped["step"], stepped["model"]) == (1, model["model_name"])


async def test_a_checkpoint_says_what_its_step_was(http: AsyncClient, model: Json) -> None:
    inputs = await payloads(http, model["id"], [1.0, 0.0, 0.5, 0.5])
    await pass_(http, model["id"], inputs, group_size=2, loss_fn="ppo")
    stepped = (await optim(http, model["id"], 0.2)).json()
    [row] = await tree(http, model["id"])
    node = Checkpoint.model_validate(row)
    assert (node.id, node.checkpoint_name) == (stepped["checkpoint_id"], stepped["sampler_path"])
    assert (node.num_traces, node.num_datums, node.mean_reward) == (4, 2, 0.5)
    assert (node.loss_fn, node.learning_rate) == ("ppo", 0.2)
    lengths = [len(input["samples"][0]["output_token_ids"]) for input in inputs]
    assert (node.num_tokens, node.metrics["tokens"]) == (sum(lengths), sum(lengths[:2]))
    assert [group.rewards for group in node.groups] == [[1.0, 0.0], [0.5, 0.5]]
    assert "trace_ids" not in row["groups"][0]
    assert node.metrics["frac_reward_zero_std"] == 0.5
    assert node.metrics["reward_std"] == pytest.approx(math.sqrt(0.125))
    wanted = {
        "loss:sum", "reward_mean", "reward_std", "reward_min", "reward_max",
        "sampling_logprob_mean", "kl_sample_train", "ratio_max", "clip_fraction", "entropy",
        "ratio_outside",
        "grad_norm", "learning_rate", "frac_reward_zero_std", "frac_groups_all_solved",
        "frac_groups_all_failed", "completion_length_mean", "completion_length_max", "tokens",
        "errored_share",
        "num_tokens", "trained/kl_sample_train", "trained/ratio_max",
        "trained/clip_fraction", "trained/entropy", "trained/ratio_outside",
    }  # fmt: skip
    assert timeless(node.metrics).keys() == wanted
    assert node.metrics.keys() > {"train_s", "step_s", "wait_share"}


async def test_passes_accumulate_until_the_step(http: AsyncClient, engine: ToyEngine) -> None:
    whole, parts = await fork(http, "whole"), await fork(http, "parts")
    inputs = await payloads(http, whole["id"], [1.0, 0.0, 1.0, 0.0])
    await pass_(http, whole["id"], inputs, group_size=2)
    await pass_(http, parts["id"], inputs[:2], group_size=2)
    await pass_(http, parts["id"], inputs[2:], group_size=2)
    for model in (whole, parts):
        await optim(http, model["id"])
    [one], [other] = [await tree(http, model["id"]) for model in (whole, parts)]
    assert one["num_datums"] == other["num_datums"] == 4
    assert one["metrics"]["grad_norm"] == pytest.approx(other["metrics"]["grad_norm"])
    assert one["metrics"]["loss:sum"] == pytest.approx(other["metrics"]["loss:sum"])
    states = [policy.logits for policy in engine.policies.values() if policy.t == 1]
    assert states[0] == pytest.approx(states[1])


async def test_a_zero_variance_batch_takes_no_step(http: AsyncClient, model: Json) -> None:
    inputs = await payloads(http, model["id"], [1.0, 1.0, 0.0, 0.0])
    passed = (await pass_(http, model["id"], inputs, group_size=2)).json()
    assert passed["num_datums"] == 0
    assert passed["metrics"]["frac_reward_zero_std"] == 1.0
    assert passed["metrics"]["num_datums_dropped"] == 4.0
    assert (passed["metrics"]["tokens"], "trained/entropy" in passed["metrics"]) == (0.0, False)
    assert passed["metrics"]["entropy"] > 0
    answer = await optim(http, model["id"])
    assert answer.status_code == 409
    assert "group 1 (all 1.0), group 2 (all 0.0)" in detail(answer)
    assert (await tree(http, model["id"])) == []


async def test_a_step_that_the_engine_refuses_loses_no_gradients(
    http: AsyncClient, model: Json, engine: ToyEngine
) -> None:
    """As after ppo clipped every token: turns were passed, and there is no gradient."""
    inputs = await payloads(http, model["id"], [1.0, 0.0])
    await pass_(http, model["id"], inputs)
    policy = next(policy for policy in engine.policies.values() if policy.gradient)
    gradient, policy.gradient = policy.gradient, None
    answer = await optim(http, model["id"])
    assert (answer.status_code, "2 turns were passed" in detail(answer)) == (409, True)
    policy.gradient = gradient
    stepped = await optim(http, model["id"])
    assert stepped.status_code == 200, stepped.text
    [node] = await tree(http, model["id"])
    assert node["num_datums"] == 2


async def test_what_a_step_was_refused_for_is_no_part_of_the_next(
    http: AsyncClient, model: Json
) -> None:
    flat = await payloads(http, model["id"], [1.0, 1.0])
    await pass_(http, model["id"], flat)
    for _ in range(2):
        answer = await optim(http, model["id"])
        assert (answer.status_code, "group 1 (all 1.0)" in detail(answer)) == (409, True)
    again = await payloads(http, model["id"], [1.0, 0.0])
    for inputs in (again, flat):  # this one accumulates beside a batch that teaches
        await pass_(http, model["id"], inputs)
    assert (await optim(http, model["id"])).status_code == 200
    [node] = await tree(http, model["id"])
    assert (node["num_traces"], node["mean_reward"]) == (4, 0.75)
    assert node["metrics"]["frac_reward_zero_std"] == 0.5


async def test_only_so_much_waits_for_a_step(
    http: AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_module, "TURNS", 4)
    model = await fork(http)
    inputs = await payloads(http, model["id"], [1.0, 0.0])
    flat = await payloads(http, model["id"], [1.0, 1.0])
    for given in (flat, flat, inputs, inputs):
        assert (await pass_(http, model["id"], given)).status_code == 200
    answer = await pass_(http, model["id"], inputs)
    assert (answer.status_code, "call optim-step first" in detail(answer)) == (413, True)
    passed = await http.post(f"/v1/models/{model['id']}/train/forward", json={"inputs": inputs})
    body = {"forward_id": passed.json()["forward_id"], "weights": []}
    backward = await http.post(f"/v1/models/{model['id']}/train/backward", json=body)
    assert backward.status_code == 413
    assert (await optim(http, model["id"])).status_code == 200
    [node] = await tree(http, model["id"])
    assert node["num_traces"] == 4
    answer = await pass_(http, model["id"], inputs * 3)
    assert (answer.status_code, "fewer inputs" in detail(answer)) == (413, True)
    monkeypatch.setattr(session_module, "TOKENS", 4)
    assert (await pass_(http, model["id"], inputs)).status_code == 413


async def test_cross_entropy_weighs_by_reward(http: AsyncClient, model: Json) -> None:
    same = await payloads(http, model["id"], [1.0, 1.0])
    passed = (await pass_(http, model["id"], same, loss_fn="cross_entropy")).json()
    assert passed["num_datums"] == 2
    other = await fork(http, "other")
    zeros = await payloads(http, other["id"], [0.0, 0.0])
    passed = (await pass_(http, other["id"], zeros, loss_fn="cross_entropy")).json()
    assert passed["num_datums"] == 0
    answer = await optim(http, other["id"])
    assert (answer.status_code, "weight, is 0" in detail(answer)) == (409, True)


def broken(field: str, value: Any) -> Json:
    """One good payload's sample with one field changed."""
    sample = {"prompt_token_ids": [3, 65, 1, 4], "output_token_ids": [66, 1]}
    return {"samples": [{**sample, "output_logprobs": [-1.0, 0.0], field: value}], "reward": 1.0}


REFUSED = [
    (broken("output_token_ids", [66, 128]), "outside the vocabulary"),
    (broken("output_token_ids", [66, -1]), "outside the vocabulary"),
    (broken("prompt_token_ids", [999]), "outside the vocabulary"),
    (broken("prompt_token_ids", []), "no prompt tokens"),
    (broken("output_token_ids", []), "no output tokens"),
    (broken("output_logprobs", [-1.0]), "1 logprobs for 2 output tokens"),
    (broken("output_logprobs", []), "0 logprobs for 2 output tokens"),
    (broken("output_logprobs", [-1.0, float("nan")]), "not finite"),
    (broken("prompt_token_ids", [65] * 200), "202 tokens do not fit this model's context of 128"),
    ({**broken("prompt_token_ids", [65]), "reward": float("nan")}, "reward must be finite"),
    ({**broken("prompt_token_ids", [65]), "reward": float("inf")}, "reward must be finite"),
    ({**broken("prompt_token_ids", [65]), "reward": 1e308}, "reward must be finite"),
    (broken("output_logprobs", [-1e308, -1e308]), "not finite"),
]


async def test_what_would_spoil_the_gradients_is_refused(http: AsyncClient, model: Json) -> None:
    for bad, says in REFUSED:
        inputs = [broken("prompt_token_ids", [65]), bad]
        answer = await http.post(
            f"/v1/models/{model['id']}/train/forward-backward", content=dumps({"inputs": inputs})
        )
        [row] = answer.json()["detail"]
        assert (answer.status_code, row["loc"][:3]) == (422, ["body", "inputs", 1])
        assert says in row["msg"]
        assert (await optim(http, model["id"])).status_code == 409


async def test_a_call_that_does_not_fit_is_refused(http: AsyncClient, model: Json) -> None:
    for body, says in (
        ({"loss_fn": "nope"}, "unknown loss"),
        ({"loss_fn_config": {"epsilon": 0.2}}, "no config key 'epsilon'"),
        ({"group_size": 3}, "2 inputs do not divide into groups of 3"),
        ({"group_size": 0}, "greater than or equal to 1"),
        ({"reward_scale": float("inf")}, "finite"),
        ({"reward_scale": 1e300}, "finite"),
        ({"num_substeps": 0}, "greater than or equal to 1"),
        ({"extra": 1}, "Extra inputs"),
        ({"inputs": []}, "at least 1 item"),
    ):
        inputs = await payloads(http, model["id"], [1.0, 0.0])
        answer = await http.post(
            f"/v1/models/{model['id']}/train/forward-backward",
            content=dumps({"inputs": inputs, **body}),
        )
        assert (answer.status_code, says in detail(answer)) == (422, True), answer.text
        assert (await optim(http, model["id"])).status_code == 409


async def test_an_optimizer_out_of_bounds_is_refused(http: AsyncClient, model: Json) -> None:
    await pass_(http, model["id"], await payloads(http, model["id"], [1.0, 0.0]))
    url = f"/v1/models/{model['id']}/train/optim-step"
    for rate in (0, 1e300, float("inf")):
        assert (await http.post(url, content=dumps({"learning_rate": rate}))).status_code == 422
    wrong = {"beta1": [1.0], "eps": [0, 1e-320, float("nan")], "weight_decay": [-1]}
    for name, values in wrong.items():
        for value in values:
            body = {"learning_rate": 0.1, name: value}
            assert (await http.post(url, content=dumps(body))).status_code == 422
    assert (await optim(http, model["id"])).status_code == 200


async def test_a_base_is_forked_first_and_others_are_unknown(http: AsyncClient) -> None:
    for call in (pass_(http, "toy/four", ["0" * 32]), optim(http, "toy/four")):
        answer = await call
        assert answer.status_code == 409
        assert "is a shared base: fork it first" in detail(answer)
    assert (await optim(http, str(uuid4()))).status_code == 404


async def test_the_engine_stops_in_a_pass(
    http: AsyncClient, model: Json, engine: ToyEngine
) -> None:
    first = await step(http, model)
    inputs = await payloads(http, model["id"], [1.0, 0.0])
    await pass_(http, model["id"], inputs)
    engine.kill_next = "forward_backward"
    answer = await pass_(http, model["id"], inputs)
    assert (answer.status_code, "accumulated are lost" in detail(answer)) == (503, True)
    assert (await optim(http, model["id"])).status_code == 409
    await step(http, model)
    rows = await tree(http, model["id"])
    assert rows[1]["prev_model_checkpoint_id"] == first["checkpoint_id"]


@pytest.mark.parametrize("verb", ["optim_step", "sample"])
async def test_the_engine_stops_before_the_step(
    http: AsyncClient, model: Json, engine: ToyEngine, verb: str
) -> None:
    inputs = await payloads(http, model["id"], [1.0, 0.0])
    await pass_(http, model["id"], inputs)
    engine.kill_next = verb
    if verb == "sample":
        assert (await ask(http, model["id"])).status_code == 200, "sampling is repeated"
    answer = await optim(http, model["id"])
    assert (answer.status_code, "accumulated are lost" in detail(answer)) == (503, True)
    assert (await tree(http, model["id"])) == []
    assert (await step(http, model))["step"] == 1


async def test_a_forward_pass_is_passed_backward_once(http: AsyncClient, model: Json) -> None:
    path = f"/v1/models/{model['id']}/train"
    inputs = await payloads(http, model["id"], [1.0, 0.0])

    async def forward() -> Json:
        passed = (await http.post(f"{path}/forward", json={"inputs": inputs})).json()
        weights = [[0.1 * on for on in datum["mask"]] for datum in passed["data"]]
        return {"forward_id": passed["forward_id"], "weights": weights}

    body = await forward()
    wrong = await http.post(f"{path}/backward", json=body | {"weights": [[0.1]]})
    assert wrong.status_code == 422, "nothing was accumulated: it can be repeated"
    first = await http.post(f"{path}/backward", json=body)
    assert first.status_code == 200
    again = await http.post(f"{path}/backward", json=body)
    assert (again.status_code, "call forward again" in detail(again)) == (409, True)
    other = await http.post(f"{path}/backward", json=await forward())
    assert other.status_code == 200, "another loss on the same turns"


async def test_epsilon_stands_for_both_thresholds(http: AsyncClient, model: Json) -> None:
    path = f"/v1/models/{model['id']}/train/forward-backward"
    inputs = await payloads(http, model["id"], [1.0, 0.0])

    async def passed(config: Json) -> Response:
        body = {"inputs": inputs, "loss_fn": "ppo", "loss_fn_config": config}
        return await http.post(path, json=body)

    assert (await passed({"epsilon": 0.2})).status_code == 200
    for wrong in ({"epsilon": 1.5}, {"epsilon": 0.2, "clip_low_threshold": 0.8}):
        answer = await passed(wrong)
        assert (answer.status_code, "1 ± epsilon" in detail(answer)) == (422, True)
    assert loss_config("ppo", {"epsilon": 0.2}) == loss_config("ppo", None)
    assert loss_config("cispo", {"epsilon": 0.5})["clip_low_threshold"] == 0.5
    with pytest.raises(EngineRefused, match="no config key 'epsilon'"):
        loss_config("dro", {"epsilon": 0.2})


async def test_a_step_whose_weights_are_not_finite_leaves_all_as_it_was(
    http: AsyncClient, model: Json, service: Service, engine: ToyEngine
) -> None:
    first = await step(http, model)
    await pass_(http, model["id"], await payloads(http, model["id"], [1.0, 0.0]))
    files = list((service.data_dir / "checkpoints").iterdir())
    engine.fail_next["optim_step"] = NotFinite("lower the learning rate of 10.0")
    answer = await optim(http, model["id"], 10.0)
    assert (answer.status_code, detail(answer)) == (422, "lower the learning rate of 10.0")
    assert list((service.data_dir / "checkpoints").iterdir()) == files
    assert (await optim(http, model["id"])).status_code == 409, "its gradients are dropped"
    [row] = await tree(http, model["id"])
    assert (row["id"], row["is_active"]) == (first["checkpoint_id"], True)
    assert (await step(http, model))["step"] == 2


@pytest.mark.parametrize("path", ["/chat/completions", "/v1/completions"])
async def test_a_head_that_cannot_be_sampled_says_what_to_do_and_is_not_asked_again(
    http: AsyncClient, model: Json, engine: ToyEngine, path: str
) -> None:
    """OpenAI's clients repeat what 500 answers."""
    engine.fail_next["sample"] = NotFinite("set the head to an earlier checkpoint")
    question = {"messages": [{"role": "user", "content": "hi"}], "prompt": "hi"}
    asked = "messages" if "chat" in path else "prompt"
    answer = await http.post(path, json={"model": model["id"], asked: question[asked]})
    assert (answer.status_code, answer.json()["error"]["code"]) == (422, "not_finite")
    assert detail(answer) == "set the head to an earlier checkpoint"


@pytest.mark.parametrize(
    ("reward", "adam"),
    [
        (1e6, {"learning_rate": 0.1, "beta2": 0.0}),
        (1.0, {"learning_rate": 10.0, "weight_decay": 10.0, "beta2": 0.0, "eps": 1e-16}),
    ],
)
async def test_the_tiny_policy_s_head_always_answers(
    tmp_path: Path, reward: float, adam: Json
) -> None:
    async with Service(tmp_path, TinyEngine()) as service, calling(service) as http:
        model = await fork(http)
        statuses = []
        for _ in range(5):
            inputs = await payloads(http, model["id"], [reward, 0.0, -reward, 0.0])
            await pass_(http, model["id"], inputs)
            path = f"/v1/models/{model['id']}/train/optim-step"
            answer = await http.post(path, json=adam)
            statuses.append(answer.status_code)
            if answer.status_code == 422:
                assert "lower the learning rate of" in detail(answer)
            await chat(http, model["id"])
        assert 422 in statuses, statuses
        assert len(await tree(http, model["id"])) == statuses.count(200)


async def test_many_models_share_the_engine(http: AsyncClient, engine: ToyEngine) -> None:
    models = [await fork(http, f"m{number}") for number in range(8)]
    for _ in range(2):
        for model in models:
            await step(http, model)
    assert len(engine.policies) <= 4 + 8
    for model in models:
        assert [row["step"] for row in await tree(http, model["id"])] == [1, 2]


async def test_a_pass_that_comes_while_others_are_closed_keeps_its_gradients(
    http: AsyncClient, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = await fork(http, "first"), await fork(http, "second")
    for model in (first, second):
        await step(http, model)
    inputs = await payloads(http, second["id"], [1.0, 0.0])
    retire, closing, go = service.parts.policies.retire, asyncio.Event(), asyncio.Event()

    async def slowly(policy: Policy) -> None:
        closing.set()
        await go.wait()
        await retire(policy)

    monkeypatch.setattr(parts_module, "TRAINING", 0)
    monkeypatch.setattr(service.parts.policies, "retire", slowly)
    resting = asyncio.create_task(service.parts.rest())
    await closing.wait()
    assert (await pass_(http, second["id"], inputs)).status_code == 200
    go.set()
    await resting
    stepped = await optim(http, second["id"])
    assert stepped.status_code == 200, stepped.text


async def test_a_run_that_begins_between_the_check_and_the_call_is_seen(
    http: AsyncClient, model: Json, service: Service
) -> None:
    """The call was let through, waits for its turn, and meanwhile a run is submitted."""
    inputs = await payloads(http, model["id"], [1.0, 0.0])
    row = await service.parts.store.read(find, model["id"])
    lock = service.parts.session(row).lock
    async with lock:
        calling = asyncio.create_task(pass_(http, model["id"], inputs))
        await until(lambda: bool(lock._waiters))
        job_id = await submit(http, model["id"], steps=1)
    refused = await calling
    assert refused.status_code == 409, refused.text
    assert job_id in detail(refused)
    assert (await ended(http, job_id))["status"] == "succeeded"


async def test_the_policy_that_trained_longest_ago_is_closed_first(
    http: AsyncClient, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run keeps its session from its first step on: what it used, not when it was asked for,
    says how long it was left."""
    models = {name: await fork(http, name) for name in ("one", "two")}
    rows = [await service.parts.store.read(find, model["id"]) for model in models.values()]
    sessions = [service.parts.session(row) for row in rows]
    for name in ("two", "one"):
        await step(http, models[name])
    monkeypatch.setattr(parts_module, "TRAINING", 1)
    await service.parts.rest()
    assert [session.idle for session in sessions] == [True, False]


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
        other = (await fork_from(http, "toy/other", "others")).json()
        mine = (await fork_from(http, "toy/four", "mine")).json()
        ids = [await rollout(http, other, reward, seed) for seed, reward in enumerate([1.0, 0.0])]
        refused = await pass_(http, mine["id"], ids)
        assert refused.status_code == 422
        assert "was sampled from toy/other, not toy/four" in detail(refused)
        assert (await optim(http, mine["id"])).status_code == 409
        assert (await pass_(http, other["id"], ids)).status_code == 200
