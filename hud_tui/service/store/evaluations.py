"""Evaluations: their requests, progress and results."""

import json
import sqlite3
from collections.abc import Mapping, Sequence
from math import isfinite
from typing import Any

from hud_tui.rl.evaluation import summarize
from hud_tui.rl.groups import task_groups
from hud_tui.rl.text import one_line
from hud_tui.rl.work import EVALUATION, REPORTED, End, has_ended
from hud_tui.service.http import Refused, bad_field, canonical, iso, new_id, now
from hud_tui.service.store import access, checkpoints, jobs, models, works
from hud_tui.service.store.checkpoints import STATE, Node
from hud_tui.service.store.db import Db, fetched, insert, value
from hud_tui.service.store.models import ModelRow
from hud_tui.service.store.seals import intact
from hud_tui.service.store.traces import SELECT, TraceRow, cancel_running, keep_rollouts
from hud_tui.wire import Evaluation, Group, WorkState
from hud_tui.wire_runs import EvaluationParameters, KeepEvaluation


def submit(
    db: Db,
    id_: str,
    model: ModelRow,
    node: Node | None,
    tasks: Sequence[dict[str, Any]],
    about: Mapping[str, Any],
) -> WorkState:
    """Queue an evaluation of these rows of tasks; `about`: as of `_begin`. Raises Refused, 429: the
    caller has too much work under way; 507: it may store no more."""
    access.refuse_more_disk(db)
    _begin(db, id_, model, node, **about, **works.tasks_columns(tasks), status="queued")
    access.refuse_too_much_work(db)
    return works.changed(db, id_)


def _begin(db: Db, id_: str, model: ModelRow, node: Node | None, **about: Any) -> None:
    """Add an evaluation whose rollouts have a job of their own: of a checkpoint, or None for the
    weights that the model started from. `about`: more of its columns, with its parameters as they
    are. Of a job that a client has begun, its name stays."""
    columns = {
        **about,
        "kind": EVALUATION,
        "model_id": model.id,
        "checkpoint_id": node.id if node else None,
        "parameters": json.dumps(about["parameters"]),
    }
    if not jobs.exists(db, id_):
        title = f"evaluation of {node.name if node else 'base'} of {model.slug}"
        title += f" on {about['tasks_name']}" if about["tasks_name"] else ""
        job = {"id": id_, "name": one_line(title, 200), "created_at": now()}
        insert(db, "work", **job, group_size=about["samples"], **columns)
        access.sign(db, "work", id_)
    names = ", ".join(f"{name} = :{name}" for name in columns)
    db.execute(f"UPDATE work SET {names} WHERE id = :id", {**columns, "id": id_})


def get(db: Db, ref: str) -> sqlite3.Row:
    """One evaluation by either spelling of its id. Raises Refused, 404."""
    query = f"{works.SELECT} WHERE work.id = ? AND work.kind = 'evaluation'"
    return fetched(db, "evaluation", ref[:100], query, (canonical(ref),))


def known(db: Db, ref: str) -> str | None:
    """The id of an evaluation in its canonical spelling; None if it is none."""
    query = "SELECT id FROM work WHERE id = ? AND kind = 'evaluation'"
    return value(db, query, (canonical(ref),))


def of_model(db: Db, model_id: str) -> list[sqlite3.Row]:
    """All of a model, oldest first, including those of the weights that it started from."""
    query = f"""{works.SELECT} WHERE work.model_id = ? AND work.kind = 'evaluation'
        ORDER BY work.rowid"""
    return db.execute(query, (model_id,)).fetchall()


def advance(db: Db, evaluation_id: str, rows: Sequence[TraceRow], seconds: float) -> WorkState:
    """Store finished rollouts, with their number and the seconds they took. Raises Refused, 507:
    the caller may store no more."""
    access.refuse_more_disk(db)
    keep_rollouts(db, rows, now())
    db.execute(
        "UPDATE work SET done = done + ?, reward_sum = reward_sum + ?,"
        " seconds = coalesce(seconds, 0) + ? WHERE id = ?",
        (len(rows), sum(row.reward for row in rows), seconds, evaluation_id),
    )
    return works.changed(db, evaluation_id)


def made(db: Db, evaluation_id: str) -> list[Group]:
    """Rewards by task of the stored rollouts, in the order they were made."""
    return _groups(db, "job_id = ?", evaluation_id)


def _groups(db: Db, condition: str, *values: object) -> list[Group]:
    rows = db.execute(f"{SELECT} WHERE {condition} ORDER BY rowid", values)
    return task_groups((row["task_slug"], row["reward"]) for row in rows)


def finish(
    db: Db,
    evaluation_id: str,
    end: End,
    result: Evaluation | None = None,
    groups: Sequence[Group] | None = None,
) -> WorkState:
    """Store how an evaluation ended; its result, if it succeeded, also with the checkpoint.
    `groups`: its rewards by task; None if its rollouts have them."""
    stored = None if groups is None else _dump(groups)
    db.execute("UPDATE work SET groups = ? WHERE id = ?", (stored, evaluation_id))
    if result is not None:
        _keep_result(db, evaluation_id, result, now())
    works.finish(db, evaluation_id, end)
    return works.state_of(get(db, evaluation_id))


def whole(db: Db, ref: str) -> WorkState:
    """One evaluation, with its rewards by task. Raises Refused, 404."""
    row = get(db, ref)
    stored = row["groups"]
    groups = (
        made(db, row["id"]) if stored is None else map(Group.model_validate, json.loads(stored))
    )
    return works.state_of(row, list(groups))


def _keep_result(db: Db, evaluation_id: str, outcome: Evaluation, stamp: float) -> None:
    """Store what it found, also with its checkpoint."""
    row = get(db, evaluation_id)
    parameters = json.loads(row["parameters"])
    origin = {"id": row["id"], "job_id": row["run_id"] or row["id"], "split": row["split"]}
    origin |= {"name": row["tasks_name"]}
    origin |= {name: parameters.get(name) for name in ("max_tokens", "temperature", "seed")}
    result = outcome.model_copy(update={**origin, "created_at": iso(stamp)})
    text = result.model_dump_json(exclude_none=True)
    db.execute("UPDATE work SET result = ? WHERE id = ?", (text, row["id"]))
    db.execute("UPDATE work SET note = NULL WHERE id = ?", (origin["job_id"],))
    if row["checkpoint_id"] is not None:
        db.execute(
            "UPDATE checkpoint SET evaluations ="
            " json_insert(coalesce(evaluations, '[]'), '$[#]', json(?)) WHERE id = ?",
            (text, row["checkpoint_id"]),
        )
        checkpoints.announce(db, row["model_id"], row["checkpoint_id"])


def _dump(groups: Sequence[Group]) -> str:
    rows = [group.model_dump(include={"task_slug", "rewards"}) for group in groups]
    return json.dumps(rows)


# Evaluations that a managed run makes of its own checkpoints.


def due(db: Db, job_id: str) -> Node | None:
    """The last checkpoint of a run, if the run has not evaluated it and still can."""
    row = db.execute(
        f"SELECT id, step, name, sampler_path, state_path, {STATE} AS state, evaluations"
        f", {intact('checkpoint')} FROM checkpoint WHERE job_id = ? ORDER BY step DESC LIMIT 1",
        (job_id,),
    ).fetchone()
    if row is None:
        return None
    *node, scored, _ = row
    done = any(evaluation["job_id"] == job_id for evaluation in json.loads(scored or "[]"))
    return None if done or row["state"] == "expired" else Node(*node)


def has_baseline(db: Db, job_id: str) -> bool:
    """Whether a run has evaluated the weights that it starts from."""
    return db.execute("SELECT 1 FROM work WHERE run_id = ?", (job_id,)).fetchone() is not None


def made_by_run(db: Db, job_id: str, node: Node | None) -> list[Group]:
    """As `made`, of a run's own evaluation of a checkpoint; None for the weights that the model
    started from."""
    if node is None:
        return _groups(db, "job_id = ? AND heldout AND evaluates IS NULL AND step = 0", job_id)
    return _groups(db, "job_id = ? AND evaluates = ?", job_id, node.id)


def record(
    db: Db,
    model_id: str,
    job_id: str,
    node: Node | None,
    asked: EvaluationParameters,
    groups: Sequence[Group],
    result: Evaluation,
) -> WorkState:
    """Store what a managed run's own weights scored. `node`: the checkpoint; None for the weights
    that the model started from."""
    stamp, id_ = now(), new_id()
    insert(
        db,
        "work",
        id=id_,
        kind=EVALUATION,
        is_job=0,
        model_id=model_id,
        checkpoint_id=None if node is None else node.id,
        run_id=job_id,
        status="succeeded",
        split="heldout",
        samples=asked.samples,
        num_tasks=len(groups),
        done=sum(len(group.rewards) for group in groups),
        reward_sum=sum(sum(group.rewards) for group in groups),
        parameters=json.dumps(asked.model_dump(exclude={"samples"})),
        groups=_dump(groups),
        created_at=stamp,
        finished_at=stamp,
    )
    _keep_result(db, id_, result, stamp)
    return works.changed(db, id_)


# Those whose rollouts a client makes.


def keep(db: Db, evaluation_id: str, body: KeepEvaluation) -> WorkState:
    """How such an evaluation is doing; one that has succeeded stays as it is. Its rollouts' job has
    the same id. Raises Refused, 404, no such model, checkpoint or run; 403, it or its run is
    somebody else's; 409, the service makes it itself, or a run has its id; 422, a reward is not
    finite, or there is none; 429, the caller has too much work under way; 507, it may store no
    more, and this has not ended."""
    rewards = _checked_rewards(body)
    if known(db, evaluation_id) is None:
        _begin_kept(db, evaluation_id, body)
    row = get(db, evaluation_id)
    access.refuse_others(db, row["id"], "report on")
    if row["tasks"] is not None:
        raise Refused(409, f"evaluation {evaluation_id} is made by the service itself")
    if row["status"] == "succeeded":
        return works.state_of(row)
    if body.status == "running":
        access.refuse_more_disk(db)
    is_resumed = body.status == "running" and has_ended(row["status"])
    if is_resumed:
        access.take_over(db, row["id"])
    error = body.error.model_dump_json() if body.error else None
    db.execute(
        "UPDATE work SET status = 'running', finished_at = NULL, error = ?, done = ?,"
        " reward_sum = ?, seconds = ?, groups = ?, driver = coalesce(?, driver) WHERE id = ?",
        (
            *(error, len(rewards), sum(rewards), body.seconds, _dump(body.groups)),
            *(body.driver, evaluation_id),
        ),
    )
    if is_resumed:
        access.refuse_too_much_work(db)
    if body.status == "running":
        return works.changed(db, evaluation_id)
    cancel_running(db, evaluation_id)
    result = None
    if body.status == "succeeded":
        result = summarize(body.groups, body.parameters.get("solved_at", 1.0))
    return finish(db, evaluation_id, End(body.status, body.error), result, body.groups)


def _checked_rewards(body: KeepEvaluation) -> list[float]:
    rewards = [reward for group in body.groups for reward in group.rewards]
    if not all(map(isfinite, rewards)):
        raise bad_field("groups", "a reward is not finite")
    if body.status == "succeeded" and not rewards:
        raise bad_field("groups", "it has succeeded without a rollout")
    return rewards


def _begin_kept(db: Db, evaluation_id: str, body: KeepEvaluation) -> None:
    access.refuse_others(db, evaluation_id, "report on")
    if value(db, "SELECT kind FROM work WHERE id = ?", (evaluation_id,)) not in (None, REPORTED):
        raise Refused(409, f"job {evaluation_id} is a run: an evaluation has an id of its own")
    model, node = models.find(db, body.model_id), None
    if body.checkpoint_id is not None:
        node = checkpoints.find(db, model.id, body.checkpoint_id)
    run_id = None if body.run_id is None else jobs.driven(db, body.run_id)["id"]
    access.refuse_more_disk(db)
    if run_id is not None:
        access.refuse_others(db, run_id, "report on")
    about = body.model_dump(include={"split", "samples", "num_tasks", "parameters"})
    about |= {"tasks_name": body.name, "run_id": run_id}
    _begin(db, evaluation_id, model, node, **about, status="running")
    access.refuse_too_much_work(db)


def count(db: Db, evaluation_id: str, reward: float | None) -> None:
    """A client's rollout of it has ended."""
    if reward is not None:
        db.execute(
            "UPDATE work SET done = done + 1, reward_sum = reward_sum + ?"
            " WHERE id = ? AND status = 'running' AND tasks IS NULL",
            (reward, evaluation_id),
        )
    works.changed(db, evaluation_id)
