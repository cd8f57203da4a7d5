"""Killed at any instant, a restart finds a whole head, no orphan, and a run to resume."""

import asyncio
import random
from pathlib import Path
from typing import Any

from httpx import AsyncClient

from tests.conftest import Process, fork, serve_process, submit
from tests.service.calls import chat, ran, reach, saved_steps

KILLS = 5
STEPS = 100
"""More than the run reaches between all the kills."""


async def test_kill_at_random_points(tmp_path: Path) -> None:
    data, rng = tmp_path / "data", random.Random(7)
    job_id = model_id = ""
    taken = 0
    for kill in range(KILLS):
        async with serve_process(data) as process, process.client() as http:
            if kill == 0:
                model_id = (await fork(http))["id"]
                job_id = await submit(http, model_id, steps=STEPS, tasks_per_step=4)
            else:
                taken = await _check(http, data, model_id, job_id, at_least=taken)
                answer = await http.post(f"/v1/training/jobs/{job_id}/resume")
                assert answer.status_code == 200, answer.text
            await reach(http, job_id, taken + 1)
            taken += 1
            await asyncio.sleep(rng.uniform(0, 0.15))  # where in a step it dies is the point
            await _kill(process)
    async with serve_process(data) as process, process.client() as http:
        taken = await _check(http, data, model_id, job_id, at_least=taken)
        await _samples(http, model_id)
        await ran(http, model_id, steps=1)


async def _kill(process: Process) -> None:
    process.process.kill()
    await process.process.wait()


async def _check(http: AsyncClient, data: Path, model_id: str, job_id: str, at_least: int) -> int:
    """Everything that must hold after a restart; how many steps the tree has."""
    tree: list[dict[str, Any]] = (await http.get(f"/v2/models/{model_id}/checkpoints")).json()
    ids = [row["id"] for row in tree]
    assert len(tree) >= at_least
    assert [row["prev_model_checkpoint_id"] for row in tree] == [None, *ids[:-1]]
    assert [row["is_active"] for row in tree] == [False] * (len(tree) - 1) + [True]
    assert [row["step"] for row in tree] == list(range(1, len(tree) + 1))
    assert {path.name for path in saved_steps(data)} == set(ids)
    assert all((data / row["checkpoint_name"]).stat().st_size > 0 for row in tree)
    status = (await http.get(f"/v1/training/jobs/{job_id}/raw-status")).json()
    assert (status["status"], status["step"]) == ("interrupted", len(tree))
    traces = (await http.get(f"/v2/jobs/{job_id}/traces?limit=10000")).json()["items"]
    places = [(row["step"], row["task_slug"], row["rollout"]) for row in traces]
    assert len(places) == len(set(places)), "a step that was repeated has its rollouts once"
    await _samples(http, model_id)
    return len(tree)


async def _samples(http: AsyncClient, model_id: str) -> None:
    """The head can be opened and sampled."""
    await chat(http, model_id, temperature=0)
