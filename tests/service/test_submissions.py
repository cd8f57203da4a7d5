"""A run before its first step: what is refused, and the plan, batches and metrics of the rest."""

from typing import Any
from uuid import uuid4

import pytest
from httpx import AsyncClient
from hypothesis import given
from hypothesis import strategies as st

from hud_tui.rl.drawing import Drawing
from hud_tui.service import run_plan
from hud_tui.service.batches import (
    Batch,
    Trajectory,
    Turn,
    finite,
    make_batch,
    merge_passes,
    of_rewards,
)
from hud_tui.service.environments import TASKSETS
from hud_tui.service.http import Refused
from hud_tui.service.run_plan import Plan, Planned, fill, make_plan
from hud_tui.wire_runs import JobParameters
from tests.conftest import dumps, ended, tasks_of
from tests.service.calls import Json, conversation, detail, traces_of
from tests.toy_engine import TOY, ToyEngine

GOOD: Json = {"env": "arith", "id": "add", "args": {"a": 1, "b": 2}}


async def submit(http: AsyncClient, model_id: str, tasks: Any, **parameters: Any) -> Any:
    body = {"model_id": model_id, "dataset": {"tasks": tasks}, "config": {"parameters": parameters}}
    return await http.post("/v1/training/jobs", content=dumps(body))


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ({"env": "chess", "id": "win"}, "row 2 (win): no such environment: chess"),
        ({"env": "arith", "id": "divide"}, "arith has no scenario divide"),
        ({"env": "arith", "id": "add", "args": {"a": 1}}, "args.b is missing"),
        ({"env": "arith", "id": "add", "args": {"a": 1, "b": "x"}}, "args.b must be an integer"),
        ({"env": "arith", "id": "add", "args": [1]}, "row 2: field args: expected an object"),
        ({"id": "add"}, "row 2: field env"),
        ({"env": "arith"}, "row 2: field id"),
        (GOOD, "row 2: slug add-"),
        ({"env": "text", "id": "reverse", "args": {"text": "x" * 64}, "slug": "long"}, ""),
    ],
)
async def test_rows_are_checked_by_number(
    http: AsyncClient, model: Json, row: Json, says: str
) -> None:
    answer = await submit(http, model["id"], [GOOD, row], steps=1)
    if not says:
        assert answer.status_code == 201
        return
    assert (answer.status_code, says in detail(answer)) == (422, True), answer.text
    assert (await http.get("/v2/jobs")).json()["total"] == 0


async def test_parameters_are_checked(http: AsyncClient, model: Json) -> None:
    for parameters, says in (
        ({"loss_fn": "magic"}, "unknown loss 'magic'"),
        ({"steps": 0}, "greater than or equal to 1"),
        ({"learning_rate": float("nan")}, "learning_rate"),
        ({"seed": 99999999999999999999999}, "less than or equal to 9223372036854775807"),
        ({"reasoning_effort": "extreme"}, "'low', 'medium' or 'high'"),
        ({"stepz": 3}, "Extra inputs"),
        ({"loss_fn": "ppo", "loss_fn_config": {"clip": 1.0}}, "no config key 'clip'"),
        (
            {"loss_fn": "ppo", "loss_fn_config": {"clip_low_threshold": -1.0}},
            "finite number from 0",
        ),
        ({"reward_scale": 0}, "0 leaves no gradient"),
    ):
        answer = await submit(http, model["id"], [GOOD], **parameters)
        assert (answer.status_code, says in detail(answer)) == (422, True), answer.text
        assert next(reversed(parameters)) in str(answer.json()["detail"][0]["loc"])
        assert "Value error" not in answer.text
        assert (await http.get("/v2/jobs")).json()["total"] == 0


async def test_something_must_be_trained_on_but_not_too_much_and_not_a_base(
    http: AsyncClient, model: Json, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_plan, "MOST_TASKS", 40)
    held = [row for row in await tasks_of(http) if row.get("columns")]
    many = [{**GOOD, "args": {"a": number, "b": 0}} for number in range(41)]
    for model_id, rows, status, said in (
        (model["id"], held, 422, "every row is held out"),
        (model["id"], [], 422, "at least 1 item"),
        (model["id"], many, 422, "at most 40 in one run"),
        ("toy/four", [GOOD], 409, "fork it first"),
        (str(uuid4()), [GOOD], 404, "no such model"),
    ):
        answer = await submit(http, model_id, rows)
        assert (answer.status_code, said in detail(answer)) == (status, True), answer.text
    assert (await submit(http, model["id"], many[1:], steps=1)).status_code == 201


async def test_a_whole_number_is_an_integer_however_it_is_written(
    http: AsyncClient, model: Json
) -> None:
    row = {**GOOD, "args": {"a": 3.0, "b": 2}}
    answer = await submit(http, model["id"], [row], steps=1, group_size=2)
    assert answer.status_code == 201, answer.text
    job_id = answer.json()["job_id"]
    await ended(http, job_id)
    trace, *_ = await traces_of(http, job_id)
    assert (await conversation(http, trace["id"]))[0]["text"] == "3 + 2 = ?"
    half = await submit(http, model["id"], [{**GOOD, "args": {"a": 3.5, "b": 2}}], steps=1)
    assert (half.status_code, "args.a must be an integer" in detail(half)) == (422, True)


async def test_every_form_of_row_is_taken(http: AsyncClient, model: Json) -> None:
    rows = [
        GOOD,
        {"env": {"name": "arith"}, "scenario": "arith:add", "args": {"a": 3, "b": 4}},
        {"name": "up", "env": {"name": "arith"}, "task_id": "add", "args": {"a": 5, "b": 6}},
        {"name": "out", "env": "arith", "scenario": "compare", "args": {"a": 7, "b": 8}},
    ]
    answer = await submit(http, model["id"], rows, steps=1, tasks_per_step=4, group_size=2)
    assert answer.status_code == 201, answer.text


async def test_a_driven_run_begins_only_with_a_loss_that_there_is(
    http: AsyncClient, model: Json
) -> None:
    for parameters, field, says in (
        ({"loss_fn": "magic"}, "loss_fn", "unknown loss 'magic'"),
        ({"loss_fn": ["ppo"]}, "loss_fn", "valid string"),
        ({"loss_fn": "ppo", "loss_fn_config": {"clip": 1}}, "loss_fn_config", "no config key"),
        ({"loss_fn": "dro", "loss_fn_config": {"beta": -1}}, "loss_fn_config", "finite number"),
        ({"loss_fn_config": [1]}, "loss_fn_config", "valid dictionary"),
    ):
        body = {"model_id": model["id"], "name": "n", "driver": "d:1"}
        body["parameters"] = {"steps": 1, "group_size": 2, **parameters}
        answer = await http.put(f"/v1/training/jobs/{uuid4()}/drive", json=body)
        assert (answer.status_code, says in detail(answer)) == (422, True), answer.text
        assert answer.json()["detail"][0]["loc"] == ["body", "parameters", field]
        assert (await http.get("/v2/jobs")).json()["total"] == 0


def plan(tasks_per_step: int = 12, seed: int = 0, **more: Any) -> Plan:
    given_ = JobParameters(tasks_per_step=tasks_per_step, seed=seed, **more)
    rows = list(TASKSETS["arith"].tasks)
    return make_plan(fill(given_, TOY), rows, TOY, ToyEngine().tokens)


def drawn(made: Plan, iteration: int) -> list[Planned]:
    return Drawing(made.parameters).tasks_of(made.train, iteration)


def test_an_epoch_deals_every_task_once_in_the_order_of_a_seed() -> None:
    for tasks_per_step in (1, 5, 12, 96, 1000):
        made = plan(tasks_per_step)
        count = min(tasks_per_step, len(made.train))
        steps = len(made.train) // count
        for epoch in range(3):
            dealt = [
                task.task.slug
                for iteration in range(epoch * steps, (epoch + 1) * steps)
                for task in drawn(made, iteration)
            ]
            assert len(dealt) == len(set(dealt)) == steps * count
            assert len(made.train) - len(dealt) < count
    assert made.heldout
    assert all(not task.task.heldout for i in range(20) for task in drawn(made, i))
    slugs = [[task.task.slug for task in drawn(plan(seed=seed), 7)] for seed in (1, 1, 2)]
    assert slugs[0] == slugs[1] != slugs[2]


def test_effort_sets_max_tokens() -> None:
    for effort, max_tokens, wanted in (
        ("low", None, 12),
        ("medium", None, 20),
        ("high", None, 40),
        (None, None, 20),
        ("low", 33, 33),
        (None, 5000, 127),
    ):
        given_ = JobParameters(reasoning_effort=effort, max_tokens=max_tokens)
        assert fill(given_, TOY)["max_tokens"] == wanted


def trajectories(rewards: list[float]) -> list[Trajectory]:
    return [Trajectory([Turn([1], [2, 3], [-1.0, -0.5])], reward) for reward in rewards]


REWARDS = st.lists(st.floats(-10, 10), min_size=1, max_size=24)


@given(rewards=REWARDS, size=st.integers(1, 8))
def test_advantages_sum_to_zero_in_every_group(rewards: list[float], size: int) -> None:
    rewards = rewards * size
    batch = make_batch(trajectories(rewards), size, "ppo", reward_scale=2.0)
    for start in range(0, len(rewards), size):
        assert sum(batch.weights[start : start + size]) == pytest.approx(0, abs=1e-9)
    assert len(batch.datums()) <= len(batch.all_datums()) == len(rewards)


@pytest.mark.parametrize("scale", [3.0, -3.0, 0.5])
@pytest.mark.parametrize("loss_fn", ["importance_sampling", "cross_entropy"])
def test_reward_scale_keeps_its_sign(loss_fn: str, scale: float) -> None:
    plain = make_batch(trajectories([1.0, 0.25]), 2, loss_fn)
    scaled = make_batch(trajectories([1.0, 0.25]), 2, loss_fn, reward_scale=scale)
    assert scaled.weights == [scale * weight for weight in plain.weights]
    assert [datum.advantage for datum in scaled.datums()] == scaled.weights


@given(rewards=REWARDS, size=st.integers(2, 25))
def test_a_count_that_does_not_divide_is_refused(rewards: list[float], size: int) -> None:
    if len(rewards) % size:
        with pytest.raises(Refused):
            make_batch(trajectories(rewards), size, "ppo")


def test_zero_variance_groups_are_split_in_solved_and_failed() -> None:
    def batch(rewards: list[float]) -> Batch:
        return make_batch(trajectories(rewards), 2, "ppo")

    metrics = of_rewards([batch([1.0, 1.0, 0.0, 0.0]), batch([1.0, 0.0, 0.2, 0.2])])
    assert metrics["frac_reward_zero_std"] == 0.75
    assert metrics["frac_groups_all_solved"] == 0.25
    assert metrics["frac_groups_all_failed"] == 0.5


def test_passes_merge_by_what_they_are() -> None:
    one = {"loss:sum": 1.0, "tokens": 10.0, "num_tokens": 30.0, "entropy": 2.0, "own": 1.0}
    two = {"loss:sum": 2.0, "tokens": 30.0, "num_tokens": 30.0, "entropy": 4.0, "own": 3.0}
    one |= {"ratio_max": 1.1, "trained/entropy": 2.0, "traces_without_samples": 1.0}
    two |= {"ratio_max": 1.0, "trained/entropy": 4.0}
    assert merge_passes([one, two]) == {
        "loss:sum": 3.0,
        "tokens": 40.0,
        "num_tokens": 60.0,
        "entropy": 3.0,
        "trained/entropy": 3.5,
        "ratio_max": 1.1,
        "traces_without_samples": 1.0,
        "own": 3.0,
    }
    assert merge_passes([]) == {}
    assert finite({"a": 1, "b": float("nan"), "c": float("-inf")}) == {"a": 1.0}, "as JSON has none"
