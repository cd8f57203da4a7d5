"""Managed runs, end to end."""

import httpx

from tests.conftest import ended, fork, submit


async def test_a_run_learns(http: httpx.AsyncClient) -> None:
    model = await fork(http)
    job_id = await submit(http, model["id"], steps=12)
    status = await ended(http, job_id)
    assert (status["status"], status["step"], status["error"]) == ("succeeded", 12, None)
    tree = (await http.get(f"/v2/models/{model['id']}/checkpoints")).json()
    rewards = [row["mean_reward"] for row in tree]
    assert len(tree) == 12
    assert sum(rewards[-3:]) / 3 > sum(rewards[:3]) / 3 + 0.2
    assert [row["is_active"] for row in tree] == [False] * 11 + [True]
    assert [row["prev_model_checkpoint_id"] for row in tree[1:]] == [row["id"] for row in tree[:-1]]
