"""Managed runs whose tasks are drawn by their signal: end to end."""

from collections.abc import Sequence
from itertools import groupby
from typing import Any
from uuid import uuid4

import pytest
from httpx import AsyncClient

from hud_tui.rl.checkpoint_tree import ROOT, Tree
from hud_tui.rl.metrics import TASK_COUNTS
from hud_tui.rl.plan import tasks_of_iteration
from hud_tui.service.engines.base import Sampled, SampleRequest
from hud_tui.service.environments import TASKSETS
from hud_tui.service.service import Service
from hud_tui.service.store import jobs, seen
from hud_tui.wire import Checkpoint
from tests.conftest import ended, fork, until
from tests.service.calls import Held, Json, cancel, reach, resume, set_head, traces_of, tree
from tests.toy_engine import ToyEngine

ROWS = [
    row
    for scenario, slugs in groupby(TASKSETS["arith"].tasks, lambda row: row["id"])
    for row in list(slugs)[24:34]
]
"""8 training tasks of each of three scenarios, and 2 held-out ones."""
TRAIN = [row["slug"] for row in ROWS if "columns" not in row]
USUAL = {"steps": 10, "tasks_per_step": 4, "group_size": 4, "heldout_every": 100, "seed": 3}


@pytest.fixture(autouse=True)
def mostly_hopeless(engine: ToyEngine) -> None:
    """Two scenarios in three are never solved."""
    sample = engine.sample

    async def failing(handle: str, requests: Sequence[SampleRequest]) -> list[Sampled]:
        tokens = await engine.tokenizer(engine.bases()[0].name)
        sampled = await sample(handle, requests)
        return [
            answer if "+" in tokens.decode(request.prompt) else Sampled([1], [0.0], "stop")
            for request, answer in zip(requests, sampled, strict=True)
        ]

    engine.sample = failing  # type: ignore[method-assign]


async def drawn(http: AsyncClient, job_id: str) -> dict[tuple[int, int], list[str]]:
    """The tasks of each batch of a run, by step and attempt."""
    batches: dict[tuple[int, int], list[str]] = {}
    for trace in await traces_of(http, job_id):
        if not trace["heldout"]:
            batch = batches.setdefault((trace["step"], trace["attempt"]), [])
            if trace["task_slug"] not in batch:
                batch.append(trace["task_slug"])
    return batches


async def begin(http: AsyncClient, model: Json, **parameters: Any) -> str:
    body = {
        "model_id": model["id"],
        "dataset": {"tasks": ROWS},
        "config": {"parameters": USUAL | {"draw": "signal"} | parameters},
    }
    answer = await http.post("/v1/training/jobs", json=body)
    assert answer.status_code == 201, answer.text
    return str(answer.json()["job_id"])


async def run(http: AsyncClient, name: str, **parameters: Any) -> tuple[str, list[Json]]:
    """A run on a fork of its own: its id, and its steps."""
    model, asked = await fork(http, name), USUAL | parameters
    job_id = await begin(http, model, **parameters)
    status = await ended(http, job_id)
    assert (status["status"], status["step"]) == ("succeeded", asked["steps"]), status
    return job_id, await tree(http, model["id"])


async def test_tasks_that_teach_are_drawn_more_often(http: AsyncClient) -> None:
    shares = []
    for draw in ("uniform", "signal"):
        job_id, _ = await run(http, draw, draw=draw)
        slugs = [slug for batch in (await drawn(http, job_id)).values() for slug in batch]
        shares.append(sum(slug.startswith("add") for slug in slugs) / len(slugs))
    assert shares[1] > shares[0] + 0.1


async def test_the_uniform_draw_is_that_of_a_run_without_the_parameter(http: AsyncClient) -> None:
    job_id, rows = await run(http, "uniform", draw="uniform", steps=3)
    for iteration, batch in enumerate((await drawn(http, job_id)).values()):
        assert batch == tasks_of_iteration(TRAIN, 4, 3, iteration)
    assert all(row["draw"] is None for row in rows)


async def test_a_resumed_run_draws_as_if_never_stopped(
    http: AsyncClient, engine: ToyEngine
) -> None:
    whole, rows = await run(http, "whole")
    model = await fork(http, "parts")
    engine.rest_after(3)
    job_id = await begin(http, model)
    await reach(http, job_id, 3)
    await cancel(http, job_id)
    engine.go_on()
    await resume(http, job_id)
    assert (await ended(http, job_id))["step"] == USUAL["steps"]
    assert await drawn(http, job_id) == await drawn(http, whole)
    others = await tree(http, model["id"])
    for name in ("groups", "draw"):
        assert [row[name] for row in others] == [row[name] for row in rows]
    for name in TASK_COUNTS:
        assert [row["metrics"][name] for row in others] == [row["metrics"][name] for row in rows]


async def test_what_was_discarded_because_the_head_moved_is_not_remembered(
    http: AsyncClient, engine: ToyEngine, service: Service
) -> None:
    gate = Held(engine, "sample")
    gate.go_on.set()
    model = await fork(http)
    # 2: an update waits for a single batch ahead, under the lock that the head's move waits for
    job_id = await begin(http, model, max_staleness=2)
    await reach(http, job_id, 2)
    gate.go_on.clear()
    await until(lambda: gate.waiting > 0)
    await set_head(http, model["id"], (await tree(http, model["id"]))[0]["id"])
    gate.go_on.set()
    await ended(http, job_id)
    store, last = service.parts.store, (USUAL["steps"] + 1, 1)
    batches = await store.read(seen.by_batch, job_id, *last)
    job = await store.read(jobs.get, job_id)
    assert len(batches) == job["iteration"]
    known = [
        {group["task_slug"] for group in row["groups"]} for row in await tree(http, model["id"])
    ]
    assert [tasks for tasks in map(set, batches) if tasks in known] == known


async def test_what_preflight_sampled_is_known_when_the_run_begins(
    http: AsyncClient, service: Service
) -> None:
    model = await fork(http)
    row = next(row for row in ROWS if row["id"] == "subtract")
    body = {
        **{"trace_id": str(uuid4()), "job_id": str(uuid4()), "group_id": str(uuid4())},
        **{"env": row["env"], "task": row["id"], "slug": row["slug"], "args": row["args"]},
        "agent": {"type": "openai_compatible", "config": {"model": model["model_name"]}},
    }
    assert (await http.post("/v2/rollouts/submit", json=body)).is_success
    job_id = await begin(http, model, steps=1)
    store = service.parts.store
    assert await store.read(seen.before, job_id) == {row["slug"]: [0.0]}
    assert (await ended(http, job_id))["step"] == 1
    later = await begin(http, model, steps=1)
    assert await store.read(seen.before, later) == {}, "other weights sampled it"


async def test_a_chosen_batch_is_no_sample_of_the_taskset(http: AsyncClient) -> None:
    _, rows = await run(http, "honest", heldout_every=1)
    assert {row["draw"] for row in rows} == {"signal"}
    known = Tree.of([Checkpoint.model_validate(row) for row in rows])
    for position in (ROOT, 0, 3):
        own = known.own(position)
        assert (own.reward, own.sampled) == (None, 0)
        assert own.heldout is not None
    for row in rows:
        assert sum(row["metrics"][name] for name in TASK_COUNTS) == len(TRAIN)
    assert rows[-1]["metrics"]["tasks_unseen"] < rows[0]["metrics"]["tasks_unseen"]
