"""A loop driven from outside is seen as it happens: its rollouts, groups, steps and traces."""

from typing import Any
from uuid import UUID, uuid4

from httpx import AsyncClient

from hud_tui.client import TrainingClient
from hud_tui.client.client import HudClient
from hud_tui.client.runs import RunList
from hud_tui.rl.runs import eta_s
from hud_tui.service.service import Service
from hud_tui.wire import BASE
from tests.conftest import fork
from tests.service.calls import QUESTION, Json, chat, optim, pass_, sample_of, told, tree
from tests.service.clients import fork_of


async def sdk_group(
    http: AsyncClient, model: Json, job: str, task: str, rewards: list[float]
) -> list[Any]:
    """A group as the SDK samples, reports and sends it: inline, without its trace ids."""
    group, inputs = uuid4().hex, []
    for seed, reward in enumerate(rewards):
        trace = uuid4().hex
        entered = {"job_id": job, "group_id": group, "task_slug": task}
        entered["model"] = model["model_name"]
        await http.post(f"/v2/trace/{trace}/enter", json=entered)
        headers = {"Trace-Id": trace}
        reply = await chat(http, model["id"], seed=seed, return_token_ids=True, headers=headers)
        await http.post(f"/v2/trace/{trace}/exit", json={"status": "completed", "reward": reward})
        inputs.append({"samples": [sample_of(reply["choices"][0])], "reward": reward})
    return inputs


async def test_a_loop_of_the_sdk(http: AsyncClient, service: Service) -> None:
    model, job = await fork(http), uuid4().hex
    await http.post(f"/v2/trace/job/{job}/enter", json={"name": "mine", "group": 2})
    for number in (1, 2):
        batch = await sdk_group(http, model, job, "add-1", [1.0, 0.0])
        batch += await sdk_group(http, model, job, "add-2", [0.5, 1.0])
        assert (await pass_(http, model["id"], batch, group_size=2)).status_code == 200
        assert (await optim(http, model["id"])).json()["step"] == number
    kinds = [event["type"] for event in await told(service, model["id"])]
    assert kinds == [*["rollout"] * 4, "checkpoint", "head", "step"] * 2
    rollouts = await told(service, model["id"], "rollout")
    assert [body["task_slug"] for body in rollouts[:4]] == ["add-1", "add-1", "add-2", "add-2"]
    assert [body["rollout"] for body in rollouts] == [0, 1] * 4
    assert [body["step"] for body in rollouts] == [1] * 4 + [2] * 4
    assert {body["job_id"] for body in rollouts} == {str(UUID(job))}
    steps = await told(service, model["id"], "step")
    groups = [group for body in steps for group in body["groups"]]
    assert [group["task_slug"] for group in groups] == ["add-1", "add-2"] * 2
    assert [id_ for group in groups for id_ in group["trace_ids"]] == [
        body["trace_id"] for body in rollouts
    ]
    first, last = await tree(http, model["id"])
    assert [row["task_slug"] for row in last["groups"]] == ["add-1", "add-2"]
    for step, sampler in ((1, BASE), (2, first["id"])):
        page = (await http.get(f"/v2/jobs/{job}/traces", params={"step": step})).json()
        assert [row["sampled_from"] for row in page["items"]] == [sampler] * 4


async def test_a_loop_of_our_client(http: AsyncClient, client: HudClient, service: Service) -> None:
    model = await fork_of(client)
    async with TrainingClient(model.id, client) as trainer:
        batch = await trainer.sample(QUESTION, group_size=3, seed=1)
        batch += await trainer.sample("1 + 1 = ?", group_size=3, seed=1, task_slug="easy")
        for number, rollout in enumerate(batch):
            rollout.reward = float(number % 2)
        await trainer.step(batch, learning_rate=0.1, group_size=3)
        left = await trainer.sample(QUESTION, group_size=1)
    kinds = [event["type"] for event in await told(service, model.id)]
    assert kinds == [*["rollout"] * 6, "checkpoint", "head", "step", "rollout"]
    shown = {
        (body["task_slug"], body["rollout"], body["reward"], body["step"])
        for body in (await told(service, model.id, "rollout"))[:6]
    }
    assert shown == {
        (task, place, float((place + start) % 2), 1)
        for task, start in ((QUESTION, 0), ("easy", 3))
        for place in range(3)
    }
    [job] = await client.jobs()
    assert (job.name, job.status) == ("loop on arith-rl", "completed")
    rows = {row.id: row for row in await client.rollouts.job_traces(job.id)}
    assert len(rows) == 7
    assert rows[str(UUID(left[0].trace_id))].reward is None
    [node] = await client.checkpoints(model.id)
    assert [group.task_slug for group in node.groups] == [QUESTION, "easy"]
    traces = await client.rollouts.checkpoint_traces(model.id, node.id)
    assert {trace.trace_id for trace in traces} <= rows.keys()
    turn = (await client.rollouts.trace_events(traces[0].trace_id)).events[1]
    assert turn.tokens


async def test_a_loop_that_says_its_name_and_its_steps_has_an_end_in_sight(
    client: HudClient,
) -> None:
    model = await fork_of(client)
    async with TrainingClient(model.id, client, name="sums", steps=10) as trainer:
        for _ in range(2):
            group = await trainer.sample(QUESTION, group_size=2, seed=1)
            group[0].reward, group[1].reward = 1.0, 0.0
            await trainer.step(group, learning_rate=0.1, group_size=2)
        open_ = await trainer.sample(QUESTION, group_size=1)
        [row] = await RunList(client).read()
        assert (row.name, row.step, row.steps, row.reward) == ("sums", 2, 10, 0.5)
        assert (row.is_active, eta_s(row) is not None) == (True, True)
        assert open_
