"""Evaluations: rollouts from exactly one checkpoint's weights, beside whatever else goes on."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
from httpx import AsyncClient

from hud_tui.events import WorkChanged
from hud_tui.rl.run import Run
from hud_tui.service import engine_rollouts
from hud_tui.service.engine_rollouts import EVALUATION_SEED
from hud_tui.service.engines.base import Datum, EngineError, EngineLost, Sampled, SampleRequest
from hud_tui.service.engines.tiny.engine import TinyEngine
from hud_tui.service.service import Service
from hud_tui.service.store import evaluations, models
from hud_tui.wire_runs import SubmitEvaluation
from tests.conftest import Served, at_end, calling, ended, fork, submit, tasks_of, until
from tests.service.calls import Json, ran, step, timeless, tree
from tests.service.clients import over_socket
from tests.toy_engine import ToyEngine

HELDOUT = 36


class Watched:
    """Counts what an evaluation asks an engine for, and may hold it up or fail it."""

    def __init__(self, engine: Any) -> None:
        self.asked: list[tuple[int, ...]] = []
        """Seeds of the evaluating requests, in order."""
        self.calls: list[str] = []
        """The verb of each call, ``evaluate`` for an evaluation's samples."""
        self.open = asyncio.Event()
        self.open.set()
        self.error: Exception | None = None
        """What an evaluation's next call meets, once."""
        self.hold_after = -1
        """Calls of an evaluation after which the next one waits for `open`."""
        self.held = asyncio.Event()
        self.before: list[int] = []
        """For each call that does not evaluate: how many that do were begun while it waited."""
        self.met = asyncio.Event()
        """Set once a call that does not evaluate finds one under way, which lasts until then."""
        self.met.set()
        self.lasts = 1
        """Turns of the loop that an evaluation's call takes after that."""
        self._sample, self._line = engine.sample, asyncio.Lock()
        engine.sample = self.sample
        for verb in ("forward_backward", "optim_step"):
            setattr(engine, verb, self._passed(verb, getattr(engine, verb)))

    def _passed(self, verb: str, call: Any) -> Any:
        async def watched(*args: Any) -> Any:
            async with self._waiting(verb):
                return await call(*args)

        return watched

    @asynccontextmanager
    async def _waiting(self, verb: str) -> AsyncIterator[None]:
        """One at a time, oldest first, as a real engine does it."""
        begun = self.calls.count("evaluate")
        if verb != "evaluate" and self._line.locked():
            self.met.set()
        async with self._line:
            if verb != "evaluate":
                self.before.append(self.calls.count("evaluate") - begun)
            self.calls.append(verb)
            yield
            if verb == "evaluate":
                await self.met.wait()
            for _ in range(self.lasts if verb == "evaluate" else 1):
                await asyncio.sleep(0)

    async def sample(self, handle: str, requests: Sequence[SampleRequest]) -> list[Sampled]:
        evaluates = requests[0].seed[1:2] == (EVALUATION_SEED,)
        if evaluates and self.hold_after == self.calls.count("evaluate"):
            self.held.set()
            await self.open.wait()
        async with self._waiting("evaluate" if evaluates else "sample"):
            if evaluates and self.error is not None:
                error, self.error = self.error, None
                raise error
            found: list[Sampled] = await self._sample(handle, requests)
            if evaluates:
                self.asked += [request.seed for request in requests]
            return found


@pytest.fixture
def watched(engine: ToyEngine) -> Watched:
    return Watched(engine)


async def evaluate(http: AsyncClient, model: Json, node: Json | None = None, **body: Any) -> Json:
    """Submit an evaluation on the arith taskset; its status."""
    parameters = {"samples": body.pop("samples", 2), **body.pop("parameters", {})}
    wanted = {"checkpoint_id": node and node["id"], "tasks": await tasks_of(http), **body}
    answer = await http.post(
        f"/v1/models/{model['id']}/evaluations", json=wanted | {"parameters": parameters}
    )
    assert answer.status_code == 201, answer.text
    return dict(answer.json())


async def over(http: AsyncClient, evaluation: Json) -> Json:
    """An evaluation once it has ended, however it did, with its rewards by task."""
    return await at_end(http, f"/v1/evaluations/{evaluation['id']}")


async def listed(http: AsyncClient, model: Json) -> list[Json]:
    return list((await http.get(f"/v1/models/{model['id']}/evaluations")).json())


async def trained(http: AsyncClient, steps: int = 2) -> tuple[Json, list[Json]]:
    """A model and its tree after some steps."""
    model = await fork(http)
    for _ in range(steps):
        await step(http, model)
    return model, await tree(http, model["id"])


async def test_each_held_out_task_is_rolled_out_k_times_from_exactly_those_weights(
    http: AsyncClient, service: Service, engine: ToyEngine
) -> None:
    model, [first, _] = await trained(http)
    found = await over(http, await evaluate(http, model, first, samples=3, name="arith"))
    assert (found["status"], found["done"], found["total"]) == ("succeeded", 108, 108)
    assert (found["split"], found["num_tasks"], found["checkpoint"]) == (
        "heldout", HELDOUT, first["name"],
    )  # fmt: skip
    rewards = {group["task_slug"]: group["rewards"] for group in found["groups"]}
    assert {len(row) for row in rewards.values()} == {3}
    result = found["result"]
    assert result["mean_reward"] == pytest.approx(fmean(r for row in rewards.values() for r in row))
    assert sorted(result["pass_at"]) == ["1", "2", "3"]
    assert (result["max_tokens"], result["temperature"]) == (found["parameters"]["max_tokens"], 1.0)
    assert found["seconds"] > 0
    assert result["mean"]["low"] < result["mean_reward"] < result["mean"]["high"]
    rows = (await http.get(f"/v2/jobs/{found['id']}/traces?limit=1000")).json()["items"]
    assert {row["evaluates"] for row in rows} == {first["id"]}
    assert len(rows) == 108
    own = await engine.open(service.data_dir / first["checkpoint_name"])
    for row in rows[:4]:
        events = (await http.get(f"/v2/trace/{row['id']}/events")).json()["events"]
        said = events[1]["sample"]
        datum = Datum(said["prompt_token_ids"], said["output_token_ids"])
        assert await engine.forward(own, [datum]) == [pytest.approx(said["output_logprobs"])]


async def test_what_it_found_is_kept_beside_the_checkpoint_and_its_job_is_listed(
    http: AsyncClient,
) -> None:
    model, before = await trained(http)
    found = await over(http, await evaluate(http, model, before[0], name="arith"))
    after = await tree(http, model["id"])
    [kept] = after[0].pop("evaluations")
    assert after == before, "nothing else has changed"
    assert kept == found["result"]
    assert (kept["id"], kept["name"], kept["samples"]) == (found["id"], "arith", 2)
    [job] = (await http.get("/v2/jobs?limit=1")).json()["items"]
    assert (job["id"], job["status"], job["num_traces"]) == (found["id"], "succeeded", 72)
    assert job["name"] == f"evaluation of step-000001 of {model['model_name']} on arith"
    assert job["metadata"] == {
        "kind": "evaluation", "model": model["model_name"], "checkpoint_id": before[0]["id"],
        "done": 72, "total": 72, "reason": None,
        "tasks": HELDOUT, "samples": 2, "mean": kept["mean"],
    }  # fmt: skip


async def test_one_that_is_resumed_while_its_end_is_stored_is_kept_once(
    http: AsyncClient, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, before = await trained(http, steps=1)
    storing, resuming, opened = asyncio.Event(), asyncio.Event(), asyncio.Event()
    write, settle = service.parts.store.write, service.works.settle

    async def held(change: Any, *args: Any, **columns: Any) -> Any:
        if change is evaluations.finish:
            storing.set()
            await opened.wait()
        return await write(change, *args, **columns)

    async def settled(work_id: str) -> None:
        resuming.set()
        await settle(work_id)

    monkeypatch.setattr(service.parts.store, "write", held)
    monkeypatch.setattr(service.works, "settle", settled)
    evaluation = await evaluate(http, model, before[0])
    await storing.wait()
    path = f"/v1/training/jobs/{evaluation['id']}/resume"
    answer = asyncio.ensure_future(http.post(path))
    await resuming.wait()
    opened.set()
    assert (await answer).status_code == 409
    found = await over(http, evaluation)
    [node] = await tree(http, model["id"])
    assert node["evaluations"] == [found["result"]]


async def test_the_start_of_a_fork_and_a_base_can_be_evaluated(http: AsyncClient) -> None:
    model, _ = await trained(http, steps=1)
    base = (await http.get("/v2/models")).json()["items"][0]
    for one in (model, base):
        found = await over(http, await evaluate(http, one))
        assert (found["status"], found["checkpoint_id"]) == ("succeeded", None)
        assert [row["id"] for row in await listed(http, one)] == [found["id"]]
    starts = [(await listed(http, one))[0]["mean_reward"] for one in (model, base)]
    assert starts[0] == starts[1], "the fork starts at the base's weights"


async def test_a_split_is_chosen(http: AsyncClient, model: Json) -> None:
    rows = await tasks_of(http)
    for split, count in (("train", len(rows) - HELDOUT), ("all", len(rows)), (None, HELDOUT)):
        found = await over(http, await evaluate(http, model, split=split, samples=1))
        assert found["num_tasks"] == count
    train = [row for row in rows if not row.get("columns")]
    assert (await evaluate(http, model, tasks=train))["split"] == "all"


async def test_the_tasks_are_those_of_the_latest_run_where_none_are_named(
    http: AsyncClient, model: Json
) -> None:
    path = f"/v1/models/{model['id']}/evaluations"
    assert (await http.get(f"{path}/tasks")).status_code == 404
    refused = await http.post(path, json={})
    assert refused.status_code == 422
    assert "no managed run" in refused.json()["detail"][0]["msg"]
    await ran(http, model["id"], steps=1)
    told = (await http.get(f"{path}/tasks")).json()
    assert (told["name"], told["heldout"], told["train"]) == ("arith", HELDOUT, 96)
    found = await over(http, (await http.post(path, json={})).json())
    assert (found["num_tasks"], found["samples"], found["name"]) == (HELDOUT, 4, "arith")


async def test_what_cannot_be_evaluated_is_refused_and_nothing_is_queued(
    http: AsyncClient, service: Service
) -> None:
    model, [first, _] = await trained(http)
    gone = "UPDATE checkpoint SET state = 'expired' WHERE id = ?"
    await service.parts.store.write(lambda db: db.execute(gone, (first["id"],)))
    rows = await tasks_of(http)
    train = [row for row in rows if not row.get("columns")]
    many = [{**train[0], "slug": f"t{number}"} for number in range(400)]
    for body, status, said in (
        ({"checkpoint_id": "nope"}, 404, "no such checkpoint"),
        ({"checkpoint_id": first["id"]}, 410, "has expired"),
        ({"parameters": {"samples": 0}}, 422, "greater than or equal to 1"),
        ({"tasks": [{"env": "nope", "id": "x"}]}, 422, "no such environment"),
        ({"tasks": [{"env": "arith"}]}, 422, "field id"),
        ({"tasks": many, "parameters": {"samples": 256}}, 422, "102400 rollouts"),
        ({"split": "test"}, 422, "'heldout', 'train' or 'all'"),
        ({"tasks": train, "split": "heldout"}, 422, f"none of the {len(train)} tasks is in held"),
    ):
        path = f"/v1/models/{model['id']}/evaluations"
        answer = await http.post(path, json={"tasks": rows} | body)
        assert (answer.status_code, said in answer.text) == (status, True), answer.text
    assert await listed(http, model) == []


async def test_the_same_seed_draws_the_same_rollouts_whatever_else_is_evaluated(
    http: AsyncClient, model: Json
) -> None:
    whole = await over(http, await evaluate(http, model, split="all", samples=4))
    some = await over(http, await evaluate(http, model, samples=2))
    other = await over(http, await evaluate(http, model, parameters={"seed": 1}))
    rewards = {group["task_slug"]: group["rewards"] for group in whole["groups"]}
    assert all(g["rewards"] == rewards[g["task_slug"]][:2] for g in some["groups"])
    assert other["groups"] != some["groups"]


async def test_a_key_that_comes_twice_submits_once(http: AsyncClient, model: Json) -> None:
    body, headers = {"tasks": await tasks_of(http)}, {"Idempotency-Key": "once"}
    path = f"/v1/models/{model['id']}/evaluations"
    answers = [await http.post(path, json=body, headers=headers) for _ in range(2)]
    assert answers[0].json()["id"] == answers[1].json()["id"]
    assert len(await listed(http, model)) == 1
    settled = await http.post(f"/v1/models/{model['id']}/train/calls/once/settle")
    assert settled.json()["state"] == "done"


async def test_one_is_sampled_at_a_time_and_the_others_wait(
    http: AsyncClient, watched: Watched
) -> None:
    watched.hold_after = 0
    watched.open.clear()
    model = await fork(http)
    first, second = [await evaluate(http, model) for _ in range(2)]
    await watched.held.wait()
    assert [one["status"] for one in await listed(http, model)] == ["running", "queued"]
    cancelled = await http.post("/v2/rollouts/cancel_job", json={"job_id": second["id"]})
    assert cancelled.json() == {"cancelled": 1, "status": "cancelled"}
    assert (await over(http, second))["done"] == 0
    watched.open.set()
    assert (await over(http, first))["status"] == "succeeded"


async def test_one_that_is_cancelled_at_once_gives_its_turn_back(
    http: AsyncClient, model: Json, service: Service
) -> None:
    row = await service.parts.store.read(models.find, model["id"])
    body = SubmitEvaluation(tasks=await tasks_of(http))
    begun = await service.evaluator.submit(row, body, lambda db, status: None)
    assert await service.works.cancel(begun.id)
    assert (await over(http, {"id": begun.id}))["status"] == "cancelled"
    assert (await over(http, await evaluate(http, model)))["status"] == "succeeded"


async def test_cancelled_and_resumed_it_samples_nothing_twice(
    http: AsyncClient, watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_rollouts, "AT_ONCE", 10)
    watched.hold_after = 3
    watched.open.clear()
    model, [first, _] = await trained(http)
    evaluation = await evaluate(http, model, first)
    await watched.held.wait()

    async def kept() -> bool:
        [one] = await listed(http, model)
        return bool(one["done"] == 30)

    await until(kept)
    await http.post("/v2/rollouts/cancel_job", json={"job_id": evaluation["id"]})
    cancelled = await over(http, evaluation)
    assert (cancelled["status"], cancelled["done"], cancelled["result"]) == ("cancelled", 30, None)
    assert len(cancelled["groups"]) == 15
    watched.hold_after = -1
    assert (await http.post(f"/v1/training/jobs/{evaluation['id']}/resume")).status_code == 200
    found = await over(http, evaluation)
    assert (found["status"], found["done"], found["error"]) == ("succeeded", 72, None)
    assert len(watched.asked) == len(set(watched.asked)) == 72
    again = await http.post(f"/v1/training/jobs/{evaluation['id']}/resume")
    assert again.status_code == 409
    whole = await over(http, await evaluate(http, model, first))
    assert sorted(map(str, whole["groups"])) == sorted(map(str, found["groups"]))


async def test_a_killed_service_goes_on_with_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_rollouts, "AT_ONCE", 10)
    engine = ToyEngine()
    watched = Watched(engine)
    watched.hold_after = 2
    watched.open.clear()
    async with Service(tmp_path, engine) as service, calling(service) as http:
        model, [first] = await trained(http, steps=1)
        evaluation = await evaluate(http, model, first)
        await watched.held.wait()
        await http.post("/v2/rollouts/cancel_job", json={"job_id": evaluation["id"]})
        done = (await over(http, evaluation))["done"]
        alive = "UPDATE work SET status = 'running'"  # as a crash leaves it
        await service.parts.store.write(lambda db: db.execute(alive))
    engine = ToyEngine()
    again = Watched(engine)
    async with Service(tmp_path, engine) as service, calling(service) as http:
        left = await over(http, evaluation)
        assert (left["status"], left["done"], left["error"]["code"]) == (
            "interrupted", done, "interrupted",
        )  # fmt: skip
        await http.post(f"/v1/training/jobs/{evaluation['id']}/resume")
        assert (await over(http, evaluation))["status"] == "succeeded"
    assert 0 < done < 72
    assert len(again.asked) == 72 - done
    assert not {*again.asked} & {*watched.asked[:done]}


async def test_a_service_that_ends_interrupts_it(tmp_path: Path) -> None:
    engine = ToyEngine()
    watched = Watched(engine)
    watched.hold_after = 0
    watched.open.clear()
    async with Service(tmp_path, engine) as service, calling(service) as http:
        evaluation = await evaluate(http, await fork(http))
        await watched.held.wait()
    async with Service(tmp_path, ToyEngine()) as service, calling(service) as http:
        assert (await over(http, evaluation))["status"] == "interrupted"


@pytest.mark.usefixtures("hurried")
async def test_an_engine_that_stops_once_costs_nothing_and_one_that_fails_ends_it(
    http: AsyncClient, model: Json, watched: Watched
) -> None:
    watched.error = EngineLost("the engine stopped")
    assert (await over(http, await evaluate(http, model)))["status"] == "succeeded"
    assert len(set(watched.asked)) == 72
    assert len(watched.asked) <= 72 + engine_rollouts.AT_ONCE, "but for the part that waited"
    watched.error = EngineError("it cannot")
    failed = await over(http, await evaluate(http, model))
    assert (failed["status"], failed["error"]["message"]) == ("failed", "it cannot")
    assert (await http.post(f"/v1/training/jobs/{failed['id']}/resume")).status_code == 200
    assert (await over(http, failed))["status"] == "succeeded"


# Beside a run.


@asynccontextmanager
async def beside(folder: Path, evaluated: bool) -> AsyncIterator[list[Json]]:
    """The tree of a run of three steps, with an evaluation of what was before it beside it."""
    async with Service(folder, TinyEngine()) as service, calling(service) as http:
        model = await fork(http)
        first = submit(http, model["id"], steps=1, seed=3, tasks_per_step=4, group_size=4)
        await ended(http, await first)
        rows = await tree(http, model["id"])
        if evaluated:
            await evaluate(http, model, rows[0], split="all", samples=2)
        more = submit(http, model["id"], steps=3, seed=4, tasks_per_step=4, group_size=4)
        await ended(http, await more)
        if evaluated:
            assert (await listed(http, model))[-1]["done"] > 0
        yield await tree(http, model["id"])


def learned(rows: list[Json]) -> list[Json]:
    """What training did, without the times that it took."""
    return [
        {
            "rewards": [(g["task_slug"], g["rewards"], g["num_tokens"]) for g in row["groups"]],
            "metrics": timeless(row["metrics"]),
        }
        for row in rows
    ]


async def test_a_run_learns_the_same_bit_for_bit_with_an_evaluation_beside_it(
    tmp_path: Path,
) -> None:
    async with beside(tmp_path / "alone", False) as alone:
        pass
    async with beside(tmp_path / "beside", True) as together:
        pass
    assert learned(together) == learned(alone)


async def test_a_run_waits_for_the_part_under_way_and_one_more_at_most(
    http: AsyncClient, watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_rollouts, "AT_ONCE", 8)
    model, [first] = await trained(http, steps=1)
    watched.calls.clear()
    watched.met.clear()
    watched.lasts = 200
    evaluation = await evaluate(http, model, first, split="all", samples=4)
    await ran(http, model["id"], steps=3)
    assert watched.met.is_set()
    assert (await listed(http, model))[0]["status"] == "running", "the run was not kept waiting"
    assert max(watched.before) <= 1
    assert watched.calls.count("evaluate") > 3, "nor was the evaluation"
    assert (await over(http, evaluation))["status"] == "succeeded"


async def test_a_run_may_evaluate_every_few_steps_and_what_it_starts_from(
    http: AsyncClient, model: Json
) -> None:
    job = await ran(http, model["id"], steps=5, eval_every=2, eval_samples=3, baseline=True)
    rows = await tree(http, model["id"])
    assert [len(row.get("evaluations") or ()) for row in rows] == [0, 1, 0, 1, 1]
    start, *others = await listed(http, model)
    assert (start["checkpoint_id"], start["job_id"], start["num_tasks"]) == (None, job, HELDOUT)
    assert [one["checkpoint_id"] for one in others] == [rows[n]["id"] for n in (1, 3, 4)]
    kept = rows[1]["evaluations"][0]
    assert (kept["samples"], kept["num_traces"], kept["job_id"]) == (3, 3 * HELDOUT, job)
    whole = (await http.get(f"/v1/evaluations/{kept['id']}")).json()
    assert {len(group["rewards"]) for group in whole["groups"]} == {3}
    assert {key: value for key, value in whole["result"].items() if value is not None} == kept


async def test_evaluating_every_step_changes_nothing_that_is_learned(tmp_path: Path) -> None:
    found = []
    for parameters in ({}, {"eval_every": 1, "eval_samples": 2, "baseline": True}):
        folder = tmp_path / str(len(found))
        async with Service(folder, ToyEngine()) as service, calling(service) as http:
            model = await fork(http)
            await ran(http, model["id"], steps=3, seed=9, **parameters)
            found.append(learned(await tree(http, model["id"])))
    assert found[0] == found[1]


@pytest.mark.parametrize("calls", [2, 6])
async def test_a_run_that_ends_in_an_evaluation_of_its_own_samples_only_the_rest_of_it(
    http: AsyncClient, watched: Watched, monkeypatch: pytest.MonkeyPatch, calls: int
) -> None:
    """Of the weights that it starts from, in four parts, and of its first checkpoint."""
    monkeypatch.setattr(engine_rollouts, "AT_ONCE", 10)
    watched.hold_after = calls
    watched.open.clear()
    model = await fork(http)
    job = await submit(http, model["id"], steps=1, eval_every=1, baseline=True)
    await watched.held.wait()
    stored = f"/v2/jobs/{job}/traces?limit=1000"

    async def kept() -> bool:
        rows = (await http.get(stored)).json()["items"]
        evaluating = [row for row in rows if row["evaluates"] or row["step"] == 0]
        return len(evaluating) == HELDOUT * (calls // 4) + 10 * (calls % 4)

    await until(kept)
    await http.post("/v2/rollouts/cancel_job", json={"job_id": job})
    await ended(http, job)
    watched.hold_after = -1
    await http.post(f"/v1/training/jobs/{job}/resume")
    assert (await ended(http, job))["status"] == "succeeded"
    assert len(watched.asked) == 2 * HELDOUT
    assert max(Counter(watched.asked).values()) == 2, "once from each of the two weights"
    assert [(one["checkpoint"], one["done"]) for one in await listed(http, model)] == [
        (None, HELDOUT), ("step-000001", HELDOUT),
    ]  # fmt: skip


async def test_who_follows_the_model_hears_of_it(served: Served) -> None:
    async with over_socket(served) as client, calling(served.service) as http:
        model, [first] = await trained(http, steps=1)
        run = Run()
        feed = aiter(client.feed(model["id"]))
        run = run.fold(await anext(feed))
        evaluation = await evaluate(http, model, first)
        told = []
        while not told or told[-1].status != "succeeded":
            event = await anext(feed)
            run = run.fold(event)
            if isinstance(event, WorkChanged):
                told.append(event.work)
        await feed.aclose()  # type: ignore[attr-defined]
    assert [one.status for one in told][:2] == ["queued", "running"]
    assert [one.done for one in told] == sorted(one.done for one in told)
    assert run.evaluations[evaluation["id"]].result is not None
    assert run.head is not None
    assert run.head.evaluations[0].samples == 2
    assert not run.rollouts, "nothing of it is taken for a step's rollouts"
