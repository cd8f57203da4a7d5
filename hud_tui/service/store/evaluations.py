"""Evaluations: what rollouts from a checkpoint's own weights scored."""

import json

from hud_tui.service.clock import iso, now
from hud_tui.service.store import Db, checkpoints, nodes
from hud_tui.service.store.nodes import Node
from hud_tui.wire import Evaluation


def due(db: Db, job_id: str) -> Node | None:
    """The last checkpoint of a run, where the run has not evaluated it and still can."""
    row = db.execute(
        f"SELECT id, step, name, sampler_path, state_path, {nodes.STATE} AS state, evaluations"
        " FROM checkpoint WHERE job_id = ? ORDER BY step DESC LIMIT 1",
        (job_id,),
    ).fetchone()
    if row is None:
        return None
    *node, known = row
    done = any(one["job_id"] == job_id for one in json.loads(known or "[]"))
    return None if done or row["state"] == "expired" else Node(*node)


def add(db: Db, model_id: str, node: Node, rewards: list[float], tasks: int, job_id: str) -> None:
    """Say what a checkpoint scored on the held-out tasks, and that its run evaluates no more.

    Args:
        db: The store's.
        model_id: The checkpoint's.
        node: The checkpoint.
        rewards: Of all rollouts, at least one.
        tasks: How many tasks they are of.
        job_id: The run that sampled them.
    """
    found = Evaluation(
        mean_reward=sum(rewards) / len(rewards),
        num_tasks=tasks,
        num_traces=len(rewards),
        job_id=job_id,
        created_at=iso(now()),
    )
    db.execute(
        "UPDATE checkpoint SET evaluations ="
        " json_insert(coalesce(evaluations, '[]'), '$[#]', json(?)) WHERE id = ?",
        (found.model_dump_json(), node.id),
    )
    db.execute("UPDATE job SET note = NULL WHERE id = ?", (job_id,))
    checkpoints.announce(db, model_id, node.id)
