"""What is refused before a run is queued."""

from typing import Any
from uuid import uuid4

import pytest
from httpx import AsyncClient

from hud_tui.service.managed_run import MOST_TASKS
from tests.conftest import dumps, ended, tasks_of
from tests.service.calls import Json, conversation, detail, traces_of

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
        ({"group_size": 1}, "greater than or equal to 2"),
        ({"learning_rate": 0}, "greater than 0"),
        ({"learning_rate": float("nan")}, "learning_rate"),
        ({"temperature": 0}, "greater than or equal to 0.01"),
        ({"temperature": 0.001}, "greater than or equal to 0.01"),
        ({"seed": 99999999999999999999999}, "less than or equal to 9223372036854775807"),
        ({"seed": 2**63}, "less than or equal to 9223372036854775807"),
        ({"reasoning_effort": "extreme"}, "'low', 'medium' or 'high'"),
        ({"stepz": 3}, "Extra inputs"),
        ({"loss_fn": "ppo", "loss_fn_config": {"clip": 1.0}}, "no config key 'clip'"),
        (
            {"loss_fn": "ppo", "loss_fn_config": {"clip_low_threshold": -1.0}},
            "finite number from 0",
        ),
        ({"reward_scale": 0}, "0 leaves no gradient"),
        ({"beta1": 1.0}, "less than 1"),
        ({"eps": 0}, "greater than or equal to"),
        ({"weight_decay": -0.1}, "greater than or equal to 0"),
    ):
        answer = await submit(http, model["id"], [GOOD], **parameters)
        assert (answer.status_code, says in detail(answer)) == (422, True), answer.text
        assert next(reversed(parameters)) in str(answer.json()["detail"][0]["loc"])
        assert "Value error" not in answer.text
        assert (await http.get("/v2/jobs")).json()["total"] == 0


async def test_something_must_be_trained_on_but_not_too_much_and_not_a_base(
    http: AsyncClient, model: Json
) -> None:
    held = [row for row in await tasks_of(http) if row.get("columns")]
    many = [{**GOOD, "args": {"a": number, "b": 0}} for number in range(MOST_TASKS + 1)]
    for model_id, rows, status, said in (
        (model["id"], held, 422, "every row is held out"),
        (model["id"], [], 422, "at least 1 item"),
        (model["id"], many, 422, "at most 10000 in one run"),
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
