"""Runs: what each has come to, kept up with every step, so that the table of all is one query.

A run is a managed one, or a loop that is driven from outside once it has taken a step; that one is
known by the job of its rollouts, or by its model where it reports none. Triggers (in `db`) count a
row's `revision` up when its job, its rollouts' states or its evaluations change.
"""

import json
import logging
import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from hud_tui.rl.alarms.monitor import DetectorSet
from hud_tui.rl.alarms.statistics import row_of
from hud_tui.rl.groups import rollouts_of
from hud_tui.rl.own_numbers import heldout_rollouts_of
from hud_tui.rl.progress import RECENT
from hud_tui.rl.runs import ENDS, MOST_POINTS
from hud_tui.rl.text import seconds
from hud_tui.service.http import canonical, now
from hud_tui.service.store import access
from hud_tui.service.store.db import Db, Store, fetched, insert, value
from hud_tui.service.store.seals import INTACT_BODY, intact
from hud_tui.service.store.works import STATUS
from hud_tui.wire import Checkpoint

log = logging.getLogger(__name__)

LOOKED_AT = 64
"""Rollouts of a step that are looked at for the job they belong to."""


def begin(db: Db, run_id: str, model_id: str, taskset: str | None) -> None:
    """A run is queued: its first step will be taken from the model's head."""
    head = f"""SELECT checkpoint.name, {intact("head")}, {intact("checkpoint")}
        FROM head JOIN checkpoint ON checkpoint.id = checkpoint_id WHERE head.model_id = ?"""
    _insert(db, run_id, model_id, value(db, head, (model_id,)), taskset)


def taskset(db: Db, run_id: str) -> str | None:
    """Name of the tasks, or the environment, that a run is on; None if it is not known."""
    return value(db, f"SELECT taskset, {intact('run')} FROM run WHERE id = ?", (run_id,))


def run_of(db: Db, model_id: str, node: Checkpoint, trace_ids: Sequence[str]) -> str:
    """Id of the run that takes a step, which is trained on these rollouts."""
    return node.job_id or _loop(db, model_id, trace_ids)


def discarded(db: Db, run_id: str) -> int:
    """Rollouts of a run that were wasted since its last step."""
    query = f"SELECT discarded, {intact('run')} FROM run WHERE id = ?"
    return value(db, query, (run_id,)) or 0


def stepped(db: Db, run_id: str, model_id: str, node: Checkpoint, stamp: float) -> int:
    """Add a step of the tree to its run, `stamp` Unix seconds. Returns its number within that."""
    query = f"SELECT steps, rewards, times, {intact('run')} FROM run WHERE id = ?"
    row = db.execute(query, (run_id,)).fetchone()
    if row is None or not row["steps"]:
        name = f"SELECT name, {intact('checkpoint')} FROM checkpoint WHERE id = ?"
        start = value(db, name, (node.prev_model_checkpoint_id,))
        if row is None:
            _insert(db, run_id, model_id, start, None)
        else:  # the head may have been set elsewhere while it waited
            db.execute("UPDATE run SET start = ? WHERE id = ?", (start, run_id))
    rollouts, idle = rollouts_of(node, node.groups)
    before = node.num_discarded or 0  # `wasted` has counted them
    rewards = grown(json.loads(row["rewards"]) if row else {}, node.mean_reward or 0.0)
    times = [*(json.loads(row["times"]) if row else []), node.created_at][-RECENT - 1 :]
    db.execute("UPDATE checkpoint SET run_id = ? WHERE id = ?", (run_id, node.id))
    db.execute(
        "UPDATE run SET steps = steps + 1, first_at = coalesce(first_at, :at), last_at = :at,"
        " learning_rate = :lr, loss_fn = :loss_fn, tokens = tokens + :tokens,"
        " rollouts = rollouts + :rollouts, idle = idle + :idle, discarded = 0,"
        " rewards = :rewards, times = :times,"
        " heldout_traces = iif(:heldout IS NULL, heldout_traces, :heldout_traces),"
        f" heldout = coalesce(:heldout, heldout), revision = {NEXT} WHERE id = :id",
        {
            "id": run_id,
            "at": stamp,
            "lr": node.learning_rate,
            "loss_fn": node.loss_fn,
            "tokens": node.num_tokens or 0,
            "rollouts": rollouts - before,
            "idle": round(idle) - before,
            "rewards": json.dumps(rewards),
            "times": json.dumps(times),
            "heldout": node.metrics.get("heldout_reward"),
            "heldout_traces": heldout_rollouts_of(node) or None,
        },
    )
    return (row["steps"] if row else 0) + 1


def wasted(db: Db, run_id: str, rollouts: int) -> None:
    """Rollouts of a run are not trained on."""
    query = """UPDATE run SET rollouts = rollouts + :n, idle = idle + :n,
        discarded = discarded + :n WHERE id = :id"""
    db.execute(query, {"n": rollouts, "id": run_id})


@dataclass(frozen=True)
class Alarms:
    """Active alarms of a run."""

    count: int
    worst: str | None
    """info, warn or critical."""
    title: str | None
    """Title of the most severe one."""


def alarmed(db: Db, run_id: str, alarms: Alarms) -> None:
    """Store the active alarms of a run."""
    db.execute(
        f"UPDATE run SET alarms = ?, alarm = ?, alarm_title = ?, revision = {NEXT} WHERE id = ?",
        (alarms.count, alarms.worst, alarms.title, run_id),
    )


def bodies(db: Db, run_id: str, after: int, limit: int) -> list[str]:
    """A run's checkpoints as the wire's JSON, in order, without the first so many."""
    query = f"""SELECT body, {INTACT_BODY} FROM checkpoint WHERE run_id = ?
        ORDER BY step LIMIT ? OFFSET ?"""
    return [row["body"] for row in db.execute(query, (run_id, limit, after))]


CAUGHT_UP = 100
"""Steps that the detectors read together; of a resumed run so many more after every step."""


class RunAlarms:
    """The detectors over one run's own steps, for the table of all runs.

    Reads each step once, by the usual thresholds, and writes down what holds when it changes.
    """

    def __init__(self, store: Store, run_id: str, steps: int) -> None:
        """`steps`: how many the run is to take."""
        self._store, self._run_id = store, run_id
        self._detectors = DetectorSet(steps=steps)
        self._written: Alarms | None = None

    async def follow(self) -> None:
        """Read the steps that are new. What goes wrong here is logged, and is no run's end."""
        try:
            await self._follow()
        except (ValueError, ArithmeticError, LookupError, TypeError, sqlite3.Error):
            log.exception("the alarms of run %s could not be told", self._run_id)

    async def _follow(self) -> None:
        read = len(self._detectors)
        for body in await self._store.read(bodies, self._run_id, read, CAUGHT_UP):
            node = Checkpoint.model_validate_json(body)
            self._detectors.read(row_of(len(self._detectors), node))
        active = self._detectors.report().active
        worst = max(active, key=lambda alarm: alarm.level.rank, default=None)
        alarms = Alarms(0, None, None)
        if worst is not None:
            alarms = Alarms(len(active), str(worst.level), worst.title)
        if alarms != self._written:
            await self._store.write(alarmed, self._run_id, alarms)
            self._written = alarms


NEXT = "(SELECT coalesce(max(revision), 0) + 1 FROM run)"


def grown(rewards: Mapping[str, Any], reward: float) -> dict[str, Any]:
    """The course of a run's rewards with one more: first and last few, and at most `MOST_POINTS`
    means of `stride` steps each, the newest of them perhaps of fewer."""
    first, last = rewards.get("first", []), rewards.get("last", [])
    points, stride = list(rewards.get("points", [])), rewards.get("stride", 1)
    part = [*rewards.get("part", [0.0, 0])]
    part = [part[0] + reward, part[1] + 1]
    if part[1] >= stride:
        points.append(part[0] / part[1])
        part = [0.0, 0]
    if len(points) >= MOST_POINTS:
        points = [fmean(points[start : start + 2]) for start in range(0, len(points), 2)]
        stride *= 2
    return {
        "first": first if len(first) >= ENDS else [*first, reward],
        "last": [*last, reward][-ENDS:],
        "points": points,
        "stride": stride,
        "part": part,
    }


def _insert(db: Db, run_id: str, model_id: str, start: str | None, taskset: str | None) -> None:
    revision = value(db, f"SELECT {NEXT}")
    insert(db, "run", id=run_id, model_id=model_id, start=start, taskset=taskset, revision=revision)


def _loop(db: Db, model_id: str, trace_ids: Sequence[str]) -> str:
    """The job of a loop's rollouts, where one is known and trains this model; else the model."""
    ids = list(trace_ids[:LOOKED_AT])
    marks = ", ".join("?" * len(ids))
    query = f"""SELECT work.id FROM trace JOIN work ON work.id = trace.job_id
        WHERE trace.id IN ({marks}) AND work.kind != 'training' LIMIT 1"""
    row = db.execute(query, ids).fetchone() if ids else None
    if row is None:
        return model_id
    run = db.execute("SELECT model_id FROM run WHERE id = ?", (row["id"],)).fetchone()
    return row["id"] if run is None or run["model_id"] == model_id else model_id


def backfill(db: Db) -> None:
    """Add steps taken by versions without this table."""
    if db.execute("SELECT 1 FROM run LIMIT 1").fetchone() is not None:
        return
    query = """SELECT id, model_id, name FROM work WHERE kind = 'training' ORDER BY rowid"""
    for job in db.execute(query).fetchall():
        taskset, _, _ = (job["name"] or "").rpartition(" on ")
        _insert(db, job["id"], job["model_id"], None, taskset or None)
    query = "SELECT model_id, parent_id, body, job_id FROM checkpoint WHERE rowid = ?"
    trained = "SELECT id FROM trace WHERE checkpoint_id = ? LIMIT ?"
    for rowid in db.execute("SELECT rowid FROM checkpoint ORDER BY rowid").fetchall():
        row = db.execute(query, tuple(rowid)).fetchone()
        parents = {"prev_model_checkpoint_id": row["parent_id"], "job_id": row["job_id"]}
        node = Checkpoint.model_validate_json(row["body"]).model_copy(update=parents)
        traces = [id_ for [id_] in db.execute(trained, (node.id, LOOKED_AT)).fetchall()]
        run_id = run_of(db, row["model_id"], node, traces)
        stepped(db, run_id, row["model_id"], node, seconds(node.created_at) or now())
    db.execute("UPDATE checkpoint SET evaluations = evaluations WHERE evaluations IS NOT NULL")


# The table.


_STATUS = f"iif(work.id IS NULL, NULL, {STATUS})"
"""A loop without a job has none."""
_SELECT = f"""SELECT run.*, {access.author("work", "run.id")} AS by,
    {access.author("resumed", "run.id")} AS resumed_by,
    work.kind, work.name, {_STATUS} AS shown_status, work.created_at,
    work.finished_at, work.group_size, work.busy_s, work.waits, work.parameters,
    work.steps AS wanted, work.loop_steps, model.slug, model.base, model.forked_from,
    taskset.name AS taskset_name, {intact("run")}, {intact("work")}, {intact("model")},
    {intact("taskset")} FROM run LEFT JOIN work ON work.id = run.id
    LEFT JOIN model ON model.id = run.model_id LEFT JOIN taskset ON taskset.id = work.taskset_id"""


def page(db: Db, since: int, limit: int, offset: int) -> tuple[list[sqlite3.Row], int, int]:
    """Runs that changed after a revision, newest run first; how many there are, and the newest
    revision."""
    where = "WHERE run.revision > ?"
    order = "ORDER BY run.rowid DESC LIMIT ? OFFSET ?"
    rows = db.execute(f"{_SELECT} {where} {order}", (since, limit, offset)).fetchall()
    [total] = db.execute(f"SELECT count(*) FROM run {where}", (since,)).fetchone()
    [newest] = db.execute("SELECT coalesce(max(revision), 0) FROM run").fetchone()
    return rows, int(total), int(newest)


def get(db: Db, run_id: str) -> sqlite3.Row:
    """One run. Raises Refused, 404."""
    return fetched(db, "run", run_id[:100], f"{_SELECT} WHERE run.id = ?", (canonical(run_id),))


def steps(
    db: Db, run_id: str, after: int, limit: int, keys: Sequence[str]
) -> tuple[list[tuple[Any, ...]], int]:
    """Some steps of a run in order: id, created_at, num_tokens and a value for each key; and how
    many there are. Raises Refused, 404.

    Args:
        after: How many steps are left out at the beginning.
        limit: Most that are told.
        keys: Of metrics; none has a quotation mark or a backslash in it.
    """
    run = get(db, run_id)
    paths = [f'$.metrics."{key}"' for key in keys]
    values = "".join(", json_extract(body, ?)" for _ in paths)
    query = f"""SELECT {INTACT_BODY}, id, json_extract(body, '$.created_at'),
        json_extract(body, '$.num_tokens') {values} FROM checkpoint
        WHERE run_id = ? ORDER BY step LIMIT ? OFFSET ?"""
    rows = db.execute(query, (*paths, run["id"], limit, after)).fetchall()
    return [tuple(row)[1:] for row in rows], int(run["steps"])


def evaluations(db: Db, run_id: str) -> dict[str, Any]:
    """Evaluations of a run's checkpoints, as JSON by checkpoint. Raises Refused, 404."""
    query = f"""SELECT id, evaluations, {intact("checkpoint")} FROM checkpoint
        WHERE run_id = ? AND evaluations IS NOT NULL"""
    rows = db.execute(query, (get(db, run_id)["id"],))
    return {id_: json.loads(text) for id_, text, _ in rows}
