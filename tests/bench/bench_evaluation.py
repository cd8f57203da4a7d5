"""An evaluation beside sampling alone: the same rollouts, from the same weights, in one process.

In turns: all requests of an evaluation handed to the tiny engine at once, in its largest batches,
and the evaluation itself, from its submission to its figures, with every rollout graded and on
disk. Of the ratios of each turn to those around it the median counts; an evaluation must make at
least .9 as many rollouts a second.
"""

import asyncio
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from time import perf_counter

import httpx

from hud_tui.service.engine_rollouts import evaluation_requests
from hud_tui.service.engines.tiny.engine import TinyEngine
from hud_tui.service.engines.tiny.parts import ROWS
from hud_tui.service.run_plan import plan_tasks
from hud_tui.service.service import Service
from hud_tui.wire_runs import EvaluationParameters
from tests.bench.timing import in_turns
from tests.conftest import calling, fork, tasks_of

ROUNDS, SAMPLES = 5, 32
"""So many samples that what an evaluation costs once, some .1 s, is no large part of it."""
LEAST = 0.9


async def measure() -> float:
    """Rollouts a second of an evaluation, in those of sampling alone."""
    engine = TinyEngine()
    with tempfile.TemporaryDirectory() as folder:
        async with Service(Path(folder), engine) as service, calling(service) as http:
            model = await fork(http)
            rows = await tasks_of(http)
            alone = [await sampling_s(engine, rows)]  # the first one warms up
            alone, evaluated = [await sampling_s(engine, rows)], []
            for _ in range(ROUNDS):
                evaluated.append(await evaluation_s(http, model["id"], rows))
                alone.append(await sampling_s(engine, rows))
    return 1 / in_turns(evaluated, alone)


async def sampling_s(engine: TinyEngine, rows: list[dict[str, object]]) -> float:
    base = engine.bases()[0]
    planned = plan_tasks(rows, base, await engine.tokenizer(base.name), "tasks")
    asked = EvaluationParameters(samples=SAMPLES, max_tokens=base.defaults.max_tokens)
    wanted = [(task, j) for task in planned for j in range(SAMPLES)]
    requests = evaluation_requests(wanted, asked, base.context)
    handle = await engine.open(base.name)
    start = perf_counter()
    parts = [requests[first : first + ROWS] for first in range(0, len(requests), ROWS)]
    await asyncio.gather(*(engine.sample(handle, part) for part in parts))
    spent = perf_counter() - start
    await engine.close(handle)
    return spent


async def evaluation_s(
    http: httpx.AsyncClient, model_id: str, rows: list[dict[str, object]]
) -> float:
    """Seconds from its submission to its end, as the service writes it down."""
    body = {"tasks": rows, "split": "all", "parameters": {"samples": SAMPLES}}
    start = datetime.now(UTC)
    answer = await http.post(f"/v1/models/{model_id}/evaluations", json=body)
    path = f"/v1/evaluations/{answer.json()['id']}?groups=0"
    # This client is in the service's own process, where others are not: asked oftener, it would
    # take processor time from what is measured, and the end is known to the millisecond anyway.
    while (now := (await http.get(path)).json())["status"] in ("queued", "running"):  # noqa: ASYNC110
        await asyncio.sleep(0.25)
    assert now["status"] == "succeeded", now
    return (datetime.fromisoformat(now["finished_at"]) - start).total_seconds()


def main() -> int:
    ratio = asyncio.run(measure())
    print(f"evaluation: {ratio:.2f} of sampling alone, rollouts a second (at least {LEAST})")
    return int(ratio < LEAST)
