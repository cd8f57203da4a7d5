"""A run that one update spoils, on the real policy: the rescue solves what was solved before."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from httpx import AsyncClient

from hud_tui.rl.alarms.monitor import AlarmMonitor
from hud_tui.rl.checkpoint_tree import Tree
from hud_tui.rl.tasks.formats import read_rows
from hud_tui.service.engines.tiny.engine import TinyEngine
from hud_tui.service.environments import ENVIRONMENTS
from hud_tui.service.service import Service
from hud_tui.wire import Checkpoint
from tests.conftest import tasks_of
from tests.service.calls import chat, fork_from, ran, tree

GOOD, ASKED = 40, 20


@pytest.fixture
async def service(tmp_path: Path) -> AsyncIterator[Service]:
    async with Service(tmp_path / "data", TinyEngine()) as service:
        yield service


async def solved(http: AsyncClient, model: str, checkpoint: str) -> set[str]:
    """The held-out tasks that a checkpoint solves, greedily, of the first ASKED."""
    found = set()
    tasks = [task for task in read_rows(await tasks_of(http)) if task.heldout][:ASKED]
    for task in tasks:
        scenario = ENVIRONMENTS[task.env].scenarios[task.scenario]
        asked = [{"role": "user", "content": scenario.prompt(task.args)}]
        reply = await chat(http, model, messages=asked, temperature=0, checkpoint=checkpoint)
        if scenario.grade(task.args, reply["choices"][0]["message"]["content"]) == 1.0:
            found.add(task.slug)
    return found


async def test_the_rescue_solves_what_was_solved_before_the_update_that_spoilt_it(
    http: AsyncClient,
) -> None:
    model = (await fork_from(http, "tiny/arith-0.2M", "arith rl")).json()
    for steps, rate in ((GOOD, None), (1, 0.02), (25, 1e-5)):
        given = {} if rate is None else {"learning_rate": rate}
        await ran(http, model["id"], steps=steps, **given)
    nodes = Tree.of(Checkpoint.model_validate(row) for row in await tree(http, model["id"]))
    monitor = AlarmMonitor()
    monitor.follow(nodes)
    alarm = next(one for one in monitor.report().alarms if one.name == "reward_collapse")
    rescue = nodes.find(alarm.before_id)
    assert (alarm.onset, alarm.checkpoint_id) == (GOOD + 1, nodes[GOOD].id)
    assert rescue is not None
    assert rescue <= GOOD - 1

    name = model["model_name"]
    before = await solved(http, name, nodes[GOOD - 1].id)
    rescued = await solved(http, name, nodes[rescue].id)
    spoilt = await solved(http, name, nodes[GOOD].id)
    assert len(before) >= 18
    assert len(rescued) >= len(before)
    assert len(spoilt) < len(before) - 3
