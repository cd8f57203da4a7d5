"""The list of all runs: what the service keeps, HUD without such a list, and ``hud-tui runs``."""

from contextlib import aclosing
from typing import Any
from uuid import UUID, uuid4

import httpx
import pytest

from hud_tui.client.client import HudClient
from hud_tui.client.run_calls import RunCalls
from hud_tui.client.runs import Budget, RunList
from hud_tui.errors import HudNotFound
from hud_tui.rl.axes import Axis
from hud_tui.rl.compare import overlay_runs
from hud_tui.rl.groups import Waste
from hud_tui.rl.progress import pace
from hud_tui.rl.runs import MOST_POINTS, eta_s, run_of_job
from hud_tui.rl.work import Work
from hud_tui.service import managed_run
from hud_tui.service.app import create_app
from hud_tui.service.service import Service
from hud_tui.service.store import runs
from hud_tui.service.store.db import Db
from hud_tui.service.store.seals import COLUMNS
from hud_tui.service.store.tables import MIGRATIONS
from hud_tui.settings import local_settings
from hud_tui.wire import Checkpoint, Job
from tests.conftest import Served, ended, fork, submit
from tests.service.calls import Json, optim, pass_, payloads, ran, reach, set_head, status_of, tree
from tests.service.headless import Command, Text, as_hud
from tests.service.test_loops_seen import sdk_group
from tests.toy_engine import ToyEngine
from tests.unit.trees import grown


async def listed(http: httpx.AsyncClient, **asked: Any) -> list[Json]:
    answer = await http.get("/v1/runs", params=asked)
    assert answer.status_code == 200, answer.text
    return list(answer.json()["items"])


async def test_a_managed_run_s_row(http: httpx.AsyncClient, model: Json) -> None:
    first = await ran(http, model["id"], steps=12, seed=3, learning_rate=0.25)
    second = await submit(http, model["id"], steps=1, loss_fn="ppo")
    await ended(http, second)
    newer, older = await listed(http)
    assert [newer["id"], older["id"]] == [second, first]
    steps = [node for node in await tree(http, model["id"]) if node["job_id"] == first]
    rewards = [node["mean_reward"] for node in steps]
    assert older["name"] == f"arith on {model['model_name']}"
    assert (older["kind"], older["status"], older["taskset"]) == ("training", "succeeded", "arith")
    assert (older["step"], older["steps"], older["start"]) == (12, 12, None)
    assert older["points"] == pytest.approx(rewards)
    assert older["reward_first"] == pytest.approx(sum(rewards[:5]) / 5)
    assert older["reward_last"] == pytest.approx(sum(rewards[-5:]) / 5)
    assert (older["learning_rate"], older["parameters"]["seed"]) == (0.25, 3)
    assert older["tokens"] == sum(node["num_tokens"] for node in steps)
    assert older["heldout"] == steps[-1]["evaluations"][-1]["mean_reward"]
    assert older["evaluation"] == steps[-1]["evaluations"][-1]
    assert older["num_heldout_traces"] == steps[-1]["evaluations"][-1]["num_traces"]
    assert (older["engine"], older["base"], older["forked_from"]) == ("toy", "toy/four", "toy/four")
    assert 0 < older["busy_s"] < older["finished_at"] - older["created_at"] + 1
    usual = pace([node["created_at"] for node in steps])
    assert usual is not None
    assert older["step_s"] == (await status_of(http, first))["step_s"] == usual
    assert (newer["start"], newer["loss_fn"]) == ("step-000012", "ppo")
    assert (await http.get(f"/v1/runs/{first.replace('-', '')}")).json() == older
    assert (await http.get("/v1/runs/nothing")).status_code == 404


async def test_rollouts_without_a_gradient_are_counted_with_those_sampled_again(
    http: httpx.AsyncClient, model: Json, service: Service
) -> None:
    job_id = await ran(http, model["id"], steps=4, group_size=2, tasks_per_step=2)
    traces = (await http.get(f"/v2/jobs/{job_id}/traces?limit=1000")).json()["items"]
    trained = [t for t in traces if not t["heldout"] and not t["evaluates"]]
    groups: dict[str, set[float]] = {}
    for trace in trained:
        groups.setdefault(trace["group_id"], set()).add(trace["reward"])
    idle = sum(len(groups[trace["group_id"]]) == 1 for trace in trained)
    [row] = await listed(http)
    assert row["rollouts"] == len(trained)
    assert row["no_gradient"] == pytest.approx(idle / len(trained))

    steps = [Checkpoint.model_validate(node) for node in await tree(http, model["id"])]
    assert sum(step.num_discarded or 0 for step in steps) > 0, "a batch was sampled again"
    assert run_of_job(Job(id="j"), None, None, steps).no_gradient == row["no_gradient"]
    waste = Waste()
    assert waste.follow(grown(*steps))
    assert waste.total().share == row["no_gradient"], "Live counts as Runs does"


async def test_a_run_begins_at_the_head_even_if_that_is_set_back(
    http: httpx.AsyncClient, model: Json
) -> None:
    await ran(http, model["id"], steps=3)
    nodes = await tree(http, model["id"])
    await set_head(http, model["id"], nodes[0]["id"])
    await ran(http, model["id"], steps=1)
    assert [row["start"] for row in await listed(http)] == ["step-000001", None]


async def test_the_alarms_of_a_run_s_own_steps_are_in_its_row(
    http: httpx.AsyncClient, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    step = managed_run._extra

    def spoilt(*sampled: Any) -> dict[str, float]:
        return {**step(*sampled), "errored_share": 0.9}

    model = await fork(http)
    small = {"group_size": 4, "tasks_per_step": 1}
    await ran(http, model["id"], steps=2, **small)
    monkeypatch.setattr(managed_run, "_extra", spoilt)
    job_id = await ran(http, model["id"], steps=25, **small)
    spoilt_run, healthy = await listed(http)
    assert spoilt_run["alarms"] >= 1
    assert (spoilt_run["alarm"], spoilt_run["alarm_title"]) == ("critical", "errored rollouts")
    assert (healthy["alarms"], healthy["alarm"]) == (0, None)
    told = runs.RunAlarms(service.parts.store, job_id, 25)
    await told.follow()
    assert (await http.get(f"/v1/runs/{job_id}")).json()["alarms"] == spoilt_run["alarms"], (
        "a run that is resumed reads its steps again, and says the same"
    )


async def test_only_what_has_changed_is_sent_again(
    http: httpx.AsyncClient, engine: ToyEngine
) -> None:
    model, other = await fork(http), await fork(http, "other")
    done = await ran(http, other["id"], steps=1)
    revision = (await http.get("/v1/runs")).json()["revision"]
    assert await listed(http, since=revision) == []
    engine.rest_after(2)
    job_id = await submit(http, model["id"], steps=5)
    await reach(http, job_id, 2)
    [row] = await listed(http, since=revision)
    assert (row["id"], row["status"], row["step"]) == (job_id, "running", 2)
    revision = (await http.get("/v1/runs")).json()["revision"]
    await http.patch(f"/v2/jobs/{done}", json={"name": "the first"})
    assert [row["name"] for row in await listed(http, since=revision)] == ["the first"]
    engine.go_on()
    await ended(http, job_id)
    assert (await listed(http, since=revision))[0]["status"] == "succeeded"
    assert len(await listed(http, limit=1, offset=1)) == 1


async def test_a_loop_from_outside_is_a_run_by_its_job_or_its_model(
    http: httpx.AsyncClient,
) -> None:
    model, job = await fork(http), uuid4().hex
    await http.post(f"/v2/trace/job/{job}/enter", json={"name": "mine", "group": 2, "steps": 10})
    assert await listed(http) == [], "a job that took no step is no run"
    for _ in range(2):
        batch = await sdk_group(http, model, job, "add-1", [1.0, 0.0])
        batch += await sdk_group(http, model, job, "add-2", [0.5, 0.5])
        assert (await pass_(http, model["id"], batch, group_size=2)).status_code == 200
        assert (await optim(http, model["id"])).status_code == 200
    [row] = await listed(http)
    assert (row["id"], row["name"], row["kind"]) == (str(UUID(job)), "mine", "reported")
    assert (row["model"], row["status"]) == (model["model_name"], "completed")
    assert (row["step"], row["steps"], row["parameters"]) == (2, 10, {"group_size": 2})
    assert (row["reward_last"], row["no_gradient"]) == (0.5, 0.5)
    assert row["learning_rate"] > 0
    revision = row["revision"]
    trace = uuid4().hex
    await http.post(f"/v2/trace/{trace}/enter", json={"job_id": job, "task_slug": "add-1"})
    [row] = await listed(http, since=revision)
    assert row["status"] == "running"
    other = await fork(http, "without a job")
    await pass_(http, other["id"], await payloads(http, other["id"], [1.0, 0.0]))
    await optim(http, other["id"])
    row, _ = await listed(http)
    assert (row["id"], row["status"]) == (other["id"], "")
    assert row["name"] == f"loop on {other['model_name']}"


async def test_the_steps_of_a_run_as_columns(http: httpx.AsyncClient, model: Json) -> None:
    await ran(http, model["id"], steps=2)
    job_id = await ran(http, model["id"], steps=5)
    nodes = [node for node in await tree(http, model["id"]) if node["job_id"] == job_id]
    url = f"/v1/runs/{job_id}/steps"
    asked = {"after": 1, "limit": 3, "keys": "reward_mean,loss:sum,trained/entropy,nothing"}
    found = (await http.get(url, params=asked)).json()
    assert (found["step"], found["total"]) == ([2, 3, 4], 5)
    assert found["checkpoint_id"] == [node["id"] for node in nodes[1:4]]
    assert found["tokens"] == [node["num_tokens"] for node in nodes[1:4]]
    for key in ("reward_mean", "loss:sum", "trained/entropy"):
        assert found["metrics"][key] == [node["metrics"][key] for node in nodes[1:4]]
    assert found["metrics"]["nothing"] == [None] * 3
    assert found["evaluations"] == {}, "they were not asked for"
    held = (await http.get(url, params={"after": 5, "keys": "heldout_reward"})).json()
    assert held["evaluations"] == {nodes[-1]["id"]: nodes[-1]["evaluations"]}
    assert held["evaluations"][nodes[-1]["id"]][0]["mean"]["low"] is not None
    assert (await http.get(url, params={"after": 5})).json()["step"] == []
    assert (await http.get(url, params={"keys": 'a"b'})).status_code == 422
    assert (await http.get("/v1/runs/nothing/steps")).status_code == 404


async def test_a_held_out_reward_without_an_evaluation_says_of_how_many_rollouts_it_is(
    http: httpx.AsyncClient, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def stopped(*_: Any) -> None:
        """As for a run that ends before its last checkpoint is evaluated."""

    monkeypatch.setattr(managed_run.Run, "_evaluate", stopped)
    model = await fork(http)
    await ran(http, model["id"], steps=3, heldout_every=2)
    metrics = [node["metrics"] for node in await tree(http, model["id"])]
    told = [metric for metric in metrics if "heldout_reward" in metric][-1]
    [row] = await listed(http)
    assert row["evaluation"] is None
    assert row["heldout"] == told["heldout_reward"]
    assert row["num_heldout_traces"] == told["num_heldout_traces"] > 0

    def older(db: Db) -> None:
        db.executescript("DROP TRIGGER run_added; DROP TRIGGER run_changed")
        db.execute("ALTER TABLE run DROP COLUMN heldout_traces")
        db.executescript(next(one for one in MIGRATIONS if "heldout_traces INTEGER" in one))
        db.execute(f"UPDATE run SET seal = seal_of({', '.join(COLUMNS['run'])})")

    await service.parts.store.read(older)
    assert (await listed(http))[0]["num_heldout_traces"] == row["num_heldout_traces"]


def test_the_course_of_the_rewards_is_bounded_and_whole() -> None:
    kept: dict[str, Any] = {}
    for number in range(1000):
        kept = runs.grown(kept, float(number))
    assert kept["first"] == [0.0, 1.0, 2.0, 3.0, 4.0]
    assert kept["last"] == [995.0, 996.0, 997.0, 998.0, 999.0]
    stride, points = kept["stride"], kept["points"]
    assert len(points) < MOST_POINTS
    assert points == [n * stride + (stride - 1) / 2 for n in range(len(points))]
    assert len(points) * stride + kept["part"][1] == 1000


async def test_runs_of_an_older_version_are_counted_at_the_first_start(
    http: httpx.AsyncClient, service: Service
) -> None:
    model, job = await fork(http), uuid4().hex
    managed = await ran(http, model["id"], steps=3)
    await http.post(f"/v2/trace/job/{job}/enter", json={"name": "mine"})
    batch = await sdk_group(http, model, job, "add-1", [1.0, 0.0])
    await pass_(http, model["id"], batch, group_size=2)
    await optim(http, model["id"])
    before = await listed(http)

    def forget(db: Db) -> None:
        db.execute("DELETE FROM run")
        db.execute("UPDATE checkpoint SET run_id = NULL")

    await service.parts.store.write(forget)
    assert await listed(http) == []
    await service.parts.store.write(runs.backfill)
    left_out = {"alarms", "revision", "stepped_at", "busy_s", "rollouts", "no_gradient", "taskset"}
    for row, was in zip(await listed(http), before, strict=True):
        assert {k: v for k, v in row.items() if k not in left_out} == {
            k: v for k, v in was.items() if k not in left_out
        }
        assert row["taskset"] == ("arith" if row["id"] == managed else None)
    await service.parts.store.write(runs.backfill)
    assert len(await listed(http)) == 2, "once"


async def test_the_client_follows_the_list_and_writes_names_and_notes(
    client: HudClient, http: httpx.AsyncClient, model: Json, engine: ToyEngine
) -> None:
    notes: dict[str, str] = {}
    table = RunList(client, lambda: notes)
    assert await table.read() == ()
    engine.rest_after(2)
    job_id = await submit(http, model["id"], steps=4)
    await reach(http, job_id, 2)
    [row] = await table.read()
    assert (row.id, row.is_active, row.step, row.steps) == (job_id, True, 2, 4)
    assert eta_s(row) is not None
    rows = await table.read()
    assert rows is await table.read(), "nothing has changed"
    notes[job_id] = "promising"
    assert (await table.read())[0].note == "promising"
    series = await table.series(job_id, ["reward_mean"])
    assert len(series) == 2
    engine.go_on()
    await ended(http, job_id)
    grown = await table.series(job_id, ["reward_mean"])
    assert (grown is series, len(grown)) == (True, 4)
    more = await table.series(job_id, ["entropy"])
    assert set(more.keys) == {"reward_mean", "entropy"}
    await client.rename_job(job_id, "the best")
    [row] = await table.read()
    assert (row.name, row.status, table.polls, table.source_text) == (
        *("the best", "succeeded", False, "list"),
    )
    scored = await table.series(job_id, ["heldout_reward"])
    assert list(scored.scores)[-1] == 3
    assert scored.scores[3].over, "its last checkpoint was evaluated"
    [line] = overlay_runs([(row, more)], "reward_mean", Axis.TOKENS).lines
    assert line.last == pytest.approx(row.points[-1])


class Counted(httpx.ASGITransport):
    """A service without a list of runs, as HUD's; its requests are counted."""

    def __init__(self, service: Service) -> None:
        super().__init__(create_app(service))
        self.asked: list[str] = []

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        if request.url.path.startswith("/v1/runs"):
            return httpx.Response(404, json={"detail": "no such path"}, request=request)
        self.asked.append(request.url.path)
        return await super().handle_async_request(request)


async def test_on_hud_rows_are_put_together_within_a_budget(
    service: Service, http: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[str] = []
    for name in ("a", "b", "c"):
        model = await fork(http, name)
        made.append(await submit(http, model["id"], steps=3))
        await ended(http, made[-1])
    await http.post(f"/v2/trace/job/{uuid4().hex}/enter", json={"name": "an evaluation"})
    clock = [0.0]
    monkeypatch.setattr("hud_tui.client.runs.PER_MINUTE", 6)
    transport = Counted(service)
    settings = local_settings("http://127.0.0.1", service.api_key, "http://127.0.0.1/t")
    async with aclosing(HudClient(settings, transport)) as client:
        table = RunList(client, clock=lambda: clock[0])
        rows = await table.read(marked=[made[0]])
        assert len(transport.asked) <= 6
        whole = {row.id for row in rows if row.whole}
        assert made[0] in whole, "what is marked comes first"
        assert "≤ 6 requests/min" in table.source_text
        for _ in range(4):
            clock[0] += 60
            before = len(transport.asked)
            rows = await table.read()
            assert len(transport.asked) - before <= 6
        assert [row.id for row in rows] == made[::-1], "a job that trains nothing is no run"
        assert all(row.whole for row in rows)
        by_list = {row["id"]: row for row in await listed(http)}
        for row in rows:
            assert _shared(row) == {key: by_list[row.id][other] for key, other in SHARED.items()}
        assert len(await table.series(made[0], ["reward_mean"])) == 3


SHARED = {"model": "model", "step": "step", "steps": "steps", "reward": "reward_last"} | {
    "loss": "loss_fn",
    "heldout": "heldout",
    "heldout_rollouts": "num_heldout_traces",
    "tokens": "tokens",
    "status": "status",
}


def _shared(row: Work) -> dict[str, Any]:
    return {key: getattr(row, key) for key in SHARED}


def test_a_budget_is_so_many_a_minute_and_fills_up_again() -> None:
    now = [0.0]
    budget = Budget(6, lambda: now[0])
    assert [budget.take() for _ in range(7)] == [True] * 6 + [False]
    now[0] = 20.0
    assert [budget.take(2), budget.take()] == [True, False]
    now[0] = 1000.0
    assert not budget.take(7), "it does not save up more than a minute's"


SIZE = ("--steps", "2", "--group-size", "2", "--tasks-per-step", "2")


@pytest.fixture
async def two(hud: Command) -> list[str]:
    """Ids of two runs that have ended, on models of their own, the newest first."""
    base = (await hud("models")).data["models"][-1]["model_name"]
    ids = []
    for name, rate in (("slow", "0.1"), ("fast", "0.3")):
        await hud("fork", base, "--name", name, "-y")
        args = ("run", "arith", "-m", name, *SIZE, "--learning-rate", rate, "-y", "--follow")
        ids.append((await hud(*args)).data["job_id"])
    return ids[::-1]


async def test_the_table_is_a_document(hud: Command, two: list[str]) -> None:
    found = await hud("runs")
    assert (found.code, found.kind) == (0, "runs")
    data = found.data
    assert (data["total"], data["matched"], data["omitted"], data["source"]) == (2, 2, 0, "list")
    assert [row["id"] for row in data["runs"]] == two
    fast = data["runs"][0]
    assert (fast["model"], fast["lr"], fast["step"], fast["status"]) == (
        *("fast", 0.3, 2, "succeeded"),
    )
    assert fast["parameters"]["tasks_per_step"] == 2
    assert fast["evaluation"]["num_tasks"] == 36
    rows = (await hud("runs", "--sort", "lr", "--limit", "1", "--columns", "model,lr")).data
    assert rows["runs"] == [{"id": two[1], "model": "slow", "lr": 0.1}]
    assert rows["omitted"] == 1
    best = (await hud("runs", "--sort", "-lr", "--columns", "-age,+id")).data["runs"]
    assert ([row["lr"] for row in best], "age" in best[0]) == ([0.3, 0.1], False)
    some = (await hud("runs", "--filter", "lr>.2 is:ended fast")).data
    assert [row["id"] for row in some["runs"]] == two[:1]
    groups = (await hud("runs", "--group", "differs")).data["groups"]
    assert [group["keys"]["learning_rate"] for group in groups] == ["0.3", "0.1"]
    told = (await hud("runs", "slow", two[0][:8])).data["differences"]
    assert set(told["keys"]) == {"learning_rate", "model"}
    assert told["rows"][two[0]] == {"learning_rate": "0.3", "model": "fast"}
    assert told["same"]["tasks_per_step"] == "2"


async def test_columns_that_the_terminal_cuts_are_named(
    text: Text, two: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "26")
    asked = ("runs", "--columns", "model,lr,state,steps,id")
    for group in ((), ("--group", "model")):
        _, out, err = await text(*asked, *group)
        assert all(len(line) <= 26 for line in out.splitlines())
        assert "2 columns cut at 26 characters: steps, id; --columns KEYS shows others" in err
    monkeypatch.setenv("COLUMNS", "200")
    assert (await text(*asked))[2] == ""


async def test_the_table_as_text_with_names_and_notes(
    hud: Command, text: Text, two: list[str]
) -> None:
    code, out, err = await text("runs", "--columns", "model,lr,reward,steps,state")
    head, first, second = out.splitlines()
    assert (code, err) == (0, "")
    assert head.split() == ["model", "lr", "reward", "steps", "state"]
    assert first.split()[:2] == ["fast", "0.3"]
    assert second.split()[-2:] == ["2/2", "succeeded"]
    assert first.index("succeeded") == second.index("succeeded"), "columns stand under each other"
    _, out, err = await text("runs", "--limit", "1")
    assert len(out.splitlines()) == 2
    assert "1 older runs omitted" in err
    _, out, _ = await text("runs", "--group", "model", "--columns", "lr")
    heading, first, run, second, other = out.splitlines()
    assert (heading, run.strip(), other.strip()) == (" lr", "0.3", "0.1"), "one heading for all"
    for title, model in ((first, "fast"), (second, "slow")):
        assert title.startswith("▾ 1 run · reward ")
        assert title.endswith(f" · model {model}")
    _, out, _ = await text("runs", "slow", "fast")
    assert "differs in" in out
    _, out, _ = await text("runs", "--filter", "nothing-like-it")
    assert out == "no run matches\n"
    named = await hud("runs", two[0], "--name", "the \x1b[31mbest", "-y")
    assert (named.kind, named.data["run"]["name"]) == ("run", "the ␛[31mbest")
    assert (await hud("runs", "slow", "--note", "too low")).data["run"]["note"] == "too low"
    assert (await hud("runs", "--filter", "note:low")).data["matched"] == 1
    code, out, _ = await text("runs", "--columns", "name,note")
    assert code == 0
    assert out.splitlines()[1].split() == ["the", "␛[31mbest", "–"]
    refused = await hud("runs", two[0], "--name", "x")
    assert (refused.code, refused.error["outcome"]) == (2, "not_done")


async def test_what_is_not_there_is_named(hud: Command) -> None:
    for words, said in (
        ("--columns rewrad", "no column named rewrad"),
        ("--sort nothing", "no column named nothing"),
        ("--filter rewrad>1", "no run has rewrad"),
        ("--group nothing", "no column named nothing"),
        ("--limit 0", "--limit: 0 is below the least, 1"),
        ("nope", "no run named nope"),
        ("--name x -y", "for one run"),
    ):
        found = await hud("runs", *words.split())
        assert (found.code, found.error["type"]) == (2, "usage")
        assert said in found.error["message"]


async def test_on_hud_it_says_what_it_has_read(
    hud: Command, two: list[str], monkeypatch: pytest.MonkeyPatch, served: Served
) -> None:
    async def none(*args: Any, **kwargs: Any) -> Any:
        raise HudNotFound(404, "no such path")

    as_hud(monkeypatch)
    monkeypatch.setattr(RunCalls, "run_page", none)
    data = (await hud("runs")).data
    assert [row["id"] for row in data["runs"]] == two
    assert data["source"] == "polls · ≤ 30 requests/min · 2 of 2 runs read"
