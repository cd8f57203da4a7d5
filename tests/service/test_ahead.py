"""Batches that are sampled ahead, and several steps on one batch: managed runs, end to end."""

import asyncio
from collections import Counter
from typing import Any

import pytest
from httpx import AsyncClient

from hud_tui.rl.checkpoint_tree import ROOT, Tree
from hud_tui.service.engines.base import STEPPED, EngineError, EngineLost, Saved
from hud_tui.service.service import Service
from hud_tui.wire import BASE, Checkpoint
from tests.conftest import ended, fork, submit, tasks_of, until
from tests.service.calls import (
    Held,
    Json,
    ask,
    cancel,
    optim,
    pass_,
    payloads,
    ran,
    reach,
    resume,
    set_head,
    status_of,
    step,
    traces_of,
    tree,
)
from tests.toy_engine import ToyEngine

ROLLOUTS = 8


@pytest.fixture
def training(engine: ToyEngine) -> Held:
    """The engine's steps."""
    held = Held(engine, "optim_step")
    held.go_on.set()
    return held


@pytest.fixture
def sampling(engine: ToyEngine) -> Held:
    """The engine's sampling of batches."""
    held = Held(engine, "sample", lambda handle, requests: len(requests) >= ROLLOUTS)
    held.go_on.set()
    return held


async def begin(http: AsyncClient, model: Json, **parameters: Any) -> str:
    usual = {"tasks_per_step": 1, "group_size": ROLLOUTS, "heldout_every": 100}
    return await submit(http, model["id"], **usual | parameters)


def samplers(rows: list[Json]) -> list[str]:
    """The checkpoint that sampled each step's rollouts."""
    found = []
    for row in rows:
        [sampler] = row.get("sampled_from") or {row["prev_model_checkpoint_id"] or BASE: 1}
        found.append(sampler)
    return found


async def made(http: AsyncClient, job_id: str) -> list[Json]:
    """The rollouts that a run has stored to train on."""
    return [row for row in await traces_of(http, job_id) if not row["heldout"]]


@pytest.mark.parametrize("most", [1, 3])
async def test_batches_are_sampled_while_a_step_is_taken(
    http: AsyncClient, model: Json, engine: ToyEngine, sampling: Held, most: int
) -> None:
    passing = Held(engine, "forward_backward")
    passing.go_on.clear()
    job_id = await begin(http, model, steps=8, max_staleness=most)
    await until(lambda: passing.waiting == 1 and sampling.calls >= 1 + most)
    passing.go_on.set()
    status = await ended(http, job_id)
    assert (status["status"], status["step"]) == ("succeeded", 8)
    rows = await tree(http, model["id"])
    ids = [BASE, *(row["id"] for row in rows)]
    ages = [step - ids.index(sampler) for step, sampler in enumerate(samplers(rows))]
    assert ages[0] == 0
    assert max(ages) == most, "as many ahead as allowed, and none older"
    told = [row["metrics"].get("staleness_mean", 0.0) for row in rows]
    assert told == ages
    assert [row["metrics"].get("staleness_max", 0.0) for row in rows] == ages
    traces = [row for row in await traces_of(http, job_id) if row["checkpoint_id"]]
    by_step = {row["id"]: sampler for row, sampler in zip(rows, samplers(rows), strict=True)}
    assert traces
    assert all(trace["sampled_from"] == by_step[trace["checkpoint_id"]] for trace in traces)


async def test_own_numbers_are_those_of_the_checkpoint_that_sampled(
    http: AsyncClient, model: Json
) -> None:
    job_id = await begin(http, model, steps=6, max_staleness=1, group_size=ROLLOUTS)
    assert (await ended(http, job_id))["status"] == "succeeded"
    rows = await tree(http, model["id"])
    known = Tree.of([Checkpoint.model_validate(row) for row in rows])
    ids = {row["id"]: position for position, row in enumerate(rows)} | {BASE: ROOT}
    rewards: dict[int, list[float]] = {}
    for row, sampler in zip(rows, samplers(rows), strict=True):
        rewards.setdefault(ids[sampler], []).append(row["mean_reward"])
    for position, means in rewards.items():
        assert known.reward(position) == pytest.approx(sum(means) / len(means))
        assert known.own(position).sampled == ROLLOUTS * len(means)
    assert known.reward(len(rows) - 2) is None, "nothing was sampled from the one before the last"


async def test_what_was_sampled_from_elsewhere_is_discarded_when_the_head_moves(
    http: AsyncClient, model: Json, training: Held, sampling: Held
) -> None:
    job_id = await begin(http, model, steps=6, max_staleness=2)
    await reach(http, job_id, 3)
    sampling.go_on.clear()
    await until(lambda: sampling.waiting > 0 and training.waiting == 0)
    rows = await tree(http, model["id"])
    assert (await set_head(http, model["id"], rows[0]["id"])).status_code == 200
    known = len(await tree(http, model["id"]))
    sampling.go_on.set()
    status = await ended(http, job_id)
    assert (status["status"], status["step"]) == ("succeeded", 6)
    rows = await tree(http, model["id"])
    assert len(rows) == 6
    assert rows[known]["prev_model_checkpoint_id"] == rows[0]["id"]
    above = {BASE, rows[0]["id"]}
    for row, sampler in list(zip(rows, samplers(rows), strict=True))[known:]:
        assert sampler in above, "no ancestor sampled it"
        above.add(row["id"])


async def test_no_step_is_taken_twice_where_the_engine_stops_while_it_samples_ahead(
    http: AsyncClient, model: Json, engine: ToyEngine
) -> None:
    calls, sample = 0, engine.sample

    async def losing(handle: str, requests: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls in (3, 6):
            raise EngineLost("it stopped")
        return await sample(handle, requests)

    engine.sample = losing  # type: ignore[method-assign]
    job_id = await begin(http, model, steps=6, max_staleness=2)
    status = await ended(http, job_id)
    assert (status["status"], status["step"]) == ("succeeded", 6)
    rows = await tree(http, model["id"])
    assert [row["step"] for row in rows] == [1, 2, 3, 4, 5, 6]
    traces = await made(http, job_id)
    assert Counter(trace["step"] for trace in traces if trace["checkpoint_id"]) == Counter(
        dict.fromkeys(range(1, 7), ROLLOUTS)
    )


async def test_a_cancelled_run_samples_nothing_more_and_goes_on_when_it_is_resumed(
    http: AsyncClient, model: Json, training: Held, sampling: Held
) -> None:
    job_id = await begin(http, model, steps=6, max_staleness=2)
    await reach(http, job_id, 2)
    sampling.go_on.clear()
    await until(lambda: sampling.waiting > 0)
    assert (await cancel(http, job_id)).is_success
    assert (await status_of(http, job_id))["status"] == "cancelled"
    names = [task.get_name() for task in asyncio.all_tasks()]
    assert "sampling ahead" not in names
    sampling.go_on.set()
    assert (await resume(http, job_id)).is_success
    status = await ended(http, job_id)
    assert (status["status"], status["step"]) == ("succeeded", 6)
    assert len(await tree(http, model["id"])) == 6


async def test_a_cancelled_run_does_not_wait_for_what_it_samples_ahead(
    http: AsyncClient, model: Json, sampling: Held, training: Held
) -> None:
    """Its step does: with one batch ahead, both are of the same policy."""
    job_id = await begin(http, model, steps=6, max_staleness=1)
    await reach(http, job_id, 2)
    sampling.go_on.clear()
    await until(lambda: sampling.waiting > 0)
    assert (await cancel(http, job_id)).is_success
    assert (await ended(http, job_id))["status"] == "cancelled"
    sampling.go_on.set()


class Early:
    """An engine's optimizer steps, whose weights can be sampled before they are saved."""

    def __init__(self, engine: ToyEngine) -> None:
        self.error: EngineError | None = None
        self.saving, self.go_on = 0, asyncio.Event()
        self.handles: list[str] = []
        """Of the steps."""
        self._step = engine.optim_step
        engine.optim_step = self  # type: ignore[assignment, method-assign]

    async def __call__(self, *given: Any) -> Saved:
        saved = await self._step(*given)
        self.handles.append(given[0])
        STEPPED.get()(saved.state_path)
        self.saving += 1
        await self.go_on.wait()
        self.saving -= 1
        if self.error is not None:
            raise self.error
        return saved


@pytest.mark.parametrize("has_views", [False, True])
async def test_the_next_batch_is_sampled_while_a_step_is_saved(
    http: AsyncClient, model: Json, engine: ToyEngine, sampling: Held, has_views: bool
) -> None:
    engine.has_views = has_views
    usual = await fork(http, "usual")
    assert (await ended(http, await begin(http, usual, steps=4)))["status"] == "succeeded"
    expected = [row["groups"] for row in await tree(http, usual["id"])]
    before, early, asked_of = sampling.calls, Early(engine), list[str]()
    engine.sample = lambda *given: asked_of.append(given[0]) or sampling(*given)  # type: ignore
    job_id = await begin(http, model, steps=4)
    await until(lambda: early.saving == 1 and sampling.calls == before + 2)
    of_step = asked_of[-1].startswith("view") if has_views else asked_of[-1:] == early.handles
    assert of_step, "whose weights are the new ones"
    assert await tree(http, model["id"]) == []
    assert len(await made(http, job_id)) == ROLLOUTS, "those of the step alone"
    chat = (await ask(http, model["id"])).json()
    assert chat["checkpoint"] is None, "others sample the head"
    early.go_on.set()
    assert (await ended(http, job_id))["status"] == "succeeded"
    rows = await tree(http, model["id"])
    told = [[group["rewards"] for group in row["groups"]] for row in rows]
    assert told == [[group["rewards"] for group in groups] for groups in expected]
    assert samplers(rows) == [BASE, *(row["id"] for row in rows[:-1])]
    assert all(row.get("sampled_from") is None for row in rows), "each by its parent"


@pytest.mark.parametrize("has_views", [False, True])
async def test_who_asks_while_a_step_is_saved_opens_no_weights_of_which_there_is_a_view(
    http: AsyncClient, model: Json, service: Service, engine: ToyEngine, has_views: bool
) -> None:
    engine.has_views = has_views
    head = await step(http, model)
    early = Early(engine)
    job_id = await begin(http, model, steps=2)
    await until(lambda: early.saving == 1)
    service.parts.policies._sampling.clear()  # where the run has begun
    opening = Held(engine, "open")
    opening.go_on.set()
    assert (await ask(http, model["id"])).json()["checkpoint"] == head["checkpoint_id"]
    assert opening.calls == (0 if has_views else 1)
    early.go_on.set()
    await ended(http, job_id)


@pytest.mark.parametrize("has_views", [False, True])
@pytest.mark.parametrize("error", [EngineError("the state could not be written"), EngineLost("it")])
async def test_what_was_sampled_from_weights_that_were_not_saved_is_dropped(
    http: AsyncClient,
    model: Json,
    engine: ToyEngine,
    sampling: Held,
    error: EngineError,
    has_views: bool,
) -> None:
    engine.has_views = has_views
    early = Early(engine)
    job_id = await begin(http, model, steps=3)
    await until(lambda: early.saving == 1 and sampling.calls == 2)
    early.error = error
    early.go_on.set()
    if not isinstance(error, EngineLost):
        assert (await ended(http, job_id))["status"] == "failed"
        assert await tree(http, model["id"]) == []
        assert len(await made(http, job_id)) == ROLLOUTS
        early.error = None
        assert (await resume(http, job_id)).is_success
    else:
        await until(lambda: sampling.calls == 3)
        early.error = None
    assert (await ended(http, job_id))["status"] == "succeeded"
    rows = await tree(http, model["id"])
    assert samplers(rows) == [BASE, *(row["id"] for row in rows[:-1])]
    traces = [row for row in await traces_of(http, job_id) if row["checkpoint_id"]]
    assert Counter(trace["step"] for trace in traces) == dict.fromkeys((1, 2, 3), ROLLOUTS)


async def test_a_cancelled_run_does_not_wait_for_the_batch_after_its_step(
    http: AsyncClient, model: Json, engine: ToyEngine, sampling: Held
) -> None:
    early = Early(engine)
    job_id = await begin(http, model, steps=3)
    await until(lambda: early.saving == 1 and sampling.calls == 2)
    sampling.go_on.clear()
    early.go_on.set()
    await until(lambda: sampling.waiting == 1)
    assert (await cancel(http, job_id)).is_success
    assert (await ended(http, job_id))["status"] == "cancelled"
    assert "sampling ahead" not in [task.get_name() for task in asyncio.all_tasks()]
    sampling.go_on.set()


async def test_several_steps_on_one_batch(http: AsyncClient, model: Json, sampling: Held) -> None:
    job_id = await begin(http, model, steps=5, substeps=2)
    status = await ended(http, job_id)
    assert (status["status"], status["step"]) == ("succeeded", 5)
    rows = await tree(http, model["id"])
    batches = [[group["rewards"] for group in row["groups"]] for row in rows]
    assert batches[0] == batches[1]
    assert batches[2] == batches[3]
    assert samplers(rows)[:4] == [BASE, BASE, rows[1]["id"], rows[1]["id"]]
    ratios = [row["metrics"]["ratio_max"] for row in rows]
    assert ratios[0] == pytest.approx(1.0)
    assert ratios[1] > 1.0 + 1e-6, "off-policy by the first of them"
    known = Tree.of([Checkpoint.model_validate(row) for row in rows])
    assert known.own(ROOT).sampled == ROLLOUTS, "rollouts count once"
    assert sampling.calls == 3 + 1, "three batches, and the evaluation at the end"


async def test_rollouts_without_a_gradient_are_discarded_once_in_several_steps(
    http: AsyncClient, model: Json
) -> None:
    job_id = await begin(http, model, steps=4, substeps=2, tasks_per_step=8, group_size=2)
    assert (await ended(http, job_id))["status"] == "succeeded"
    rows = (await http.get(f"/v1/runs/{job_id}/discarded")).json()["items"]
    ids = [row["trace_id"] for row in rows if row["reason"] == "zero variance"]
    assert len(set(ids)) == len(ids) > 0


async def test_an_outside_loop_that_trains_on_old_rollouts_has_their_sampler(
    http: AsyncClient, model: Json
) -> None:
    """Its traces are the gateway's; tokens that are sent inline are found by themselves."""
    body = await payloads(http, model["id"], [1.0, 0.0])
    for _ in range(2):
        assert (await pass_(http, model["id"], body)).is_success
        assert (await optim(http, model["id"])).is_success
    first, second = await tree(http, model["id"])
    assert first.get("sampled_from") is None
    assert "staleness_mean" not in first["metrics"]
    assert second["sampled_from"] == {BASE: 2}
    assert second["metrics"]["staleness_mean"] == 1.0
    mixed = [*body, *await payloads(http, model["id"], [1.0, 0.0])]
    assert (await pass_(http, model["id"], mixed)).is_success
    assert (await optim(http, model["id"])).is_success
    *_, third = rows = await tree(http, model["id"])
    assert third["sampled_from"] == {BASE: 2, second["id"]: 2}
    assert [third["metrics"][f"staleness_{kind}"] for kind in ("mean", "max")] == [1.0, 2.0]
    known = Tree.of([Checkpoint.model_validate(row) for row in rows])
    assert known.own(1).sampled == 0, "a mixed batch tells nobody's own reward"


async def test_a_penalty_keeps_the_policy_near_its_reference(
    http: AsyncClient, engine: ToyEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    passed: list[Any] = []
    forward_backward = engine.forward_backward

    async def passing(handle: str, datums: Any, *given: Any) -> Any:
        passed.append(datums)
        return await forward_backward(handle, datums, *given)

    monkeypatch.setattr(engine, "forward_backward", passing)
    distances = []
    for coef in (0.0, 2.0):
        model = await fork(http, f"at {coef}")
        await ran(http, model["id"], steps=8, kl_coef=coef, learning_rate=0.3)
        rows = await tree(http, model["id"])
        distances.append([row["metrics"].get("kl_reference") for row in rows])
    free, held = distances
    assert free == [None] * 8
    assert held[0] == pytest.approx(0.0, abs=1e-6), "the first step is from the base itself"
    assert held[-1] > 0
    penalised = [datum for datum in passed[-1] if datum.penalties]
    assert penalised
    assert all(bool(datum.penalties) == bool(datum.advantage) for datum in passed[-1])
    every = [penalty for datum in penalised for penalty in datum.penalties]
    assert sum(every) == pytest.approx(0.0, abs=1e-6), "centred"
    assert not any(datum.penalties for datum in passed[0])


async def test_a_reference_is_a_checkpoint_of_the_model(http: AsyncClient, model: Json) -> None:
    refused = await http.post(
        "/v1/training/jobs",
        json={
            "model_id": model["id"],
            "dataset": {"tasks": await tasks_of(http, "arith")},
            "config": {"parameters": {"kl_coef": 0.1, "kl_reference": "step-000009"}},
        },
    )
    assert refused.status_code == 404
    assert "step-000009" in refused.text
    await ran(http, model["id"], steps=2)
    first, _ = await tree(http, model["id"])
    job_id = await submit(http, model["id"], steps=1, kl_coef=0.1, kl_reference=first["name"])
    assert (await ended(http, job_id))["status"] == "succeeded"
    *_, last = await tree(http, model["id"])
    assert "kl_reference" in last["metrics"]
