"""What changed between two checkpoints, read from the service: by the client, and headless."""

from typing import Any

import pytest

from hud_tui.client.changed import ChangeReader, sides_of_runs
from hud_tui.client.client import HudClient
from hud_tui.rl.changed import Comparison, heldout_sentences
from hud_tui.rl.checkpoint_tree import Tree
from hud_tui.rl.sides import Side
from hud_tui.rollouts.control import works_of
from hud_tui.service.service import Service
from tests.conftest import Served, calling, ended, fork, submit
from tests.service.headless import Command, Text


async def run_on(service: Service, model_id: str, **parameters: Any) -> str:
    """A run that has ended: its id."""
    async with calling(service) as http:
        job_id = await submit(http, model_id, **{"learning_rate": 1e-6, **parameters})
        assert (await ended(http, job_id))["status"] == "succeeded"
    return job_id


@pytest.fixture
async def two_runs(service: Service) -> tuple[str, list[str]]:
    """A model that two runs have trained, two steps and three: the ids."""
    async with calling(service) as http:
        model_id = str((await fork(http))["id"])
    jobs = [await run_on(service, model_id, steps=2, tasks_per_step=96, group_size=2)]
    every = {"heldout_every": 1, "tasks_per_step": 96, "group_size": 2}
    jobs += [await run_on(service, model_id, steps=3, **every)]
    return model_id, jobs


async def compared(client: HudClient, model_id: str, left: int, right: int) -> Comparison:
    tree = Tree.of(await client.checkpoints(model_id))
    reader = ChangeReader(client, works_of(client, None).evaluations)
    return await reader.compare(Side(tree, left, model_id), Side(tree, right, model_id))


async def test_rollouts_of_a_second_run_are_found_by_its_own_steps(
    client: HudClient, two_runs: tuple[str, list[str]]
) -> None:
    """A tree counts the steps of all runs; a run numbers its rollouts from 1."""
    model_id, jobs = two_runs
    both = await compared(client, model_id, 2, 3)
    heldout = both.heldout
    assert heldout is not None
    assert [side.position for side in (heldout.before, heldout.after)] == [2, 3]
    assert [side.evaluation for side in (heldout.before, heldout.after)] == [None, None]
    assert len(heldout.difference.changes) == 36
    assert both.is_of_one_run
    reader = ChangeReader(client, works_of(client, None).evaluations)
    slug = heldout.difference.changes[0].slug
    groups = await reader.heldout(both, slug)
    traces = [await client.rollouts.trace(group.trace_ids[0]) for group in groups]
    assert [(trace.job_id, trace.step, trace.heldout) for trace in traces] == [
        (jobs[1], 2, True),
        (jobs[1], 3, True),
    ]
    assert [trace.reward for trace in traces] == [group.rewards[0] for group in groups]
    evaluated = await compared(client, model_id, 1, 4)
    groups = await reader.heldout(evaluated, slug)
    traces = [await client.rollouts.trace(group.trace_ids[0]) for group in groups]
    nodes = evaluated.left.node, evaluated.right.node
    assert [trace.evaluates for trace in traces] == [node.id for node in nodes if node]


async def test_both_sides_rollouts_of_a_training_task_are_found(
    client: HudClient, two_runs: tuple[str, list[str]]
) -> None:
    model_id, jobs = two_runs
    both = await compared(client, model_id, 0, 2)
    assert both.tasks is not None
    assert len(both.tasks.changes) == 96
    change = both.tasks.changes[0]
    reader = ChangeReader(client, works_of(client, None).evaluations)
    before, after = await reader.training(both, change.slug)
    assert tuple(before.rewards) == change.before.rewards
    assert tuple(after.rewards) == change.after.rewards
    sources = [await client.rollouts.trace(group.trace_ids[0]) for group in (before, after)]
    assert [(trace.job_id, trace.step) for trace in sources] == [(jobs[0], 1), (jobs[1], 2)]
    assert both.settings is not None
    differing = dict(zip(both.settings.keys, both.settings.rows[1][1], strict=True))
    assert differing["steps"] == "3"
    step = both.batches[0].steps[0]
    assert [group.task_slug for group in await reader.batch(both.right, step)] == [
        group.task_slug for group in step.groups
    ]


async def test_runs_of_two_models_are_compared_by_their_last_checkpoints(
    client: HudClient, service: Service, two_runs: tuple[str, list[str]]
) -> None:
    assert two_runs
    async with calling(service) as http:
        other = str((await fork(http, "other"))["id"])
    await run_on(service, other, steps=2, tasks_per_step=96, group_size=2, learning_rate=3e-6)
    works = works_of(client, None)
    newest, second, first = await works.runs.read()
    left, right = await sides_of_runs(client, works.runs, (first, newest))
    assert (left.position, right.position, left.tree is right.tree) == (1, 1, False)
    assert right.name == "other step-000002"
    both = await ChangeReader(client, works.evaluations).compare(left, right, [first, newest])
    assert both.heldout is not None
    assert both.settings is not None
    assert {"model", "learning_rate"} <= set(both.settings.keys)
    left, right = await sides_of_runs(client, works.runs, (first, second))
    assert (left.tree is right.tree, left.name, right.name) == (
        *(True, "step-000002", "step-000005"),
    )


async def test_held_out_rollouts_that_are_gone_are_said_to_be(
    client: HudClient, service: Service
) -> None:
    async with calling(service) as http:
        model_id = str((await fork(http))["id"])
    await run_on(service, model_id, steps=2, heldout_every=1, group_size=2)
    await service.parts.store.write(lambda db: db.execute("DELETE FROM trace"))
    both = await compared(client, model_id, 0, 1)
    assert both.heldout is None
    assert both.unread.startswith("the service does not have those of ")
    assert heldout_sentences(both) == [f"Their held-out rollouts cannot be read: {both.unread}."]


async def test_a_step_is_explained_headless(hud: Command, text: Text, served: Served) -> None:
    model_id = (await hud("status", "arith-rl")).data["model"]["id"]
    every = {"heldout_every": 1, "tasks_per_step": 96, "group_size": 2}
    job_id = await run_on(served.service, model_id, steps=3, **every)
    result = await hud("compare", "step-000002", "-m", "arith-rl")
    assert (result.code, result.kind) == (0, "compare")
    data = result.data
    assert [data[side]["name"] for side in ("before", "after")] == ["step-000001", "step-000002"]
    assert data["relation"] == "B is 1 step after A."
    assert data["one_run"]
    assert (data["heldout"]["tasks"], data["heldout"]["rollouts"]) == (36, [36, 36])
    assert (data["training"]["tasks"], data["training"]["rollouts"]) == (96, [192, 192])
    [between] = data["between"]
    assert [step["name"] for step in between["steps"]] == ["step-000002"]
    assert len(between["steps"][0]["groups"]) == 96
    assert data["summary"][-1].startswith("Sampled from A step-000001 (192 rollouts)")
    whole = (await hud("compare", "base", "head", "-m", "arith-rl")).data
    assert whole["before"] == {"checkpoint_id": None, "name": "base", "model_id": model_id}
    assert len(whole["between"][0]["steps"]) == 3
    code, out, _ = await text("compare", "step-000002", "-m", "arith-rl")
    assert code == 0
    assert "A step-000001, B step-000002. B is 1 step after A. Both are of one run" in out
    assert "1 step between them" in out
    assert "held-out tasks" in out.splitlines()
    assert "training: Sampled from A step-000001 (192 rollouts)" in out
    for refs in (["base"], ["head", "step-000003"]):
        refused = await hud("compare", *refs, "-m", "arith-rl")
        assert (refused.code, refused.kind) == (2, "error")
    three = await hud("compare", "base", "step-000001", "head", "-m", "arith-rl")
    assert (three.code, three.error["message"]) == (2, "3 checkpoints")
    alone = await hud("compare", job_id)
    assert alone.code == 2
    assert alone.error["message"] == "name two runs"
    second = await run_on(served.service, model_id, steps=1, tasks_per_step=96, group_size=2)
    runs = (await hud("compare", job_id[:8], second[:8])).data
    assert runs["parameters"]["steps"] == ["3", "1"]
    assert [runs[side]["name"] for side in ("before", "after")] == ["step-000003", "step-000004"]
