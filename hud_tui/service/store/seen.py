"""What is stored of the tasks of a managed run: groups that were sampled for it, and before it."""

import json
from collections.abc import Iterable

from hud_tui.rl.timeline import HEAD_MOVED, STALE
from hud_tui.service.store.db import Db
from hud_tui.wire import BASE

Groups = dict[str, list[float]]
"""Rewards by task."""

JOBS = 20
"""Most jobs before a run whose rollouts are read."""


def before(db: Db, run_id: str) -> Groups:
    """What jobs of clients before a run, e.g. of preflight, sampled from the weights that it starts
    from."""
    query = """WITH start AS (SELECT checkpoint.id FROM run JOIN checkpoint
            ON checkpoint.model_id = run.model_id AND checkpoint.name = run.start
            WHERE run.id = :run)
        SELECT trace.task_slug, trace.reward FROM trace
        JOIN run ON run.id = :run JOIN model ON model.id = run.model_id
        WHERE trace.job_id IN (
            SELECT id FROM work WHERE kind = 'reported' AND rowid <
                (SELECT rowid FROM work WHERE id = :run) ORDER BY rowid DESC LIMIT :most)
        AND trace.model = model.slug AND trace.status = 'completed' AND trace.reward IS NOT NULL
        AND (SELECT sampled_from FROM turn WHERE trace_id = trace.id ORDER BY turn.id LIMIT 1) =
            coalesce((SELECT id FROM start), :base)
        ORDER BY trace.rowid"""
    return _by_task(db.execute(query, {"run": run_id, "most": JOBS, "base": BASE}))


def by_batch(db: Db, run_id: str, step: int, attempt: int) -> list[Groups]:
    """The batches of a run before an attempt at a step, oldest first, without those that were
    discarded whole: their iterations were sampled again."""
    reasons = f"reason IN ('{HEAD_MOVED}', '{STALE}')"
    rows = db.execute(f"SELECT traces FROM discarded WHERE run_id = ? AND {reasons}", (run_id,))
    discarded = {trace_id for row in rows for trace_id in json.loads(row["traces"])}
    query = """SELECT id, step, attempt, task_slug, reward FROM trace WHERE job_id = :run
        AND (step, attempt) < (:step, :attempt) AND NOT heldout AND evaluates IS NULL
        AND reward IS NOT NULL ORDER BY rowid"""
    batches: dict[tuple[int, int], list[tuple[str, float]]] = {}
    for row in db.execute(query, {"run": run_id, "step": step, "attempt": attempt}):
        if row["id"] not in discarded:
            batch = batches.setdefault((row["step"], row["attempt"]), [])
            batch.append((row["task_slug"], row["reward"]))
    return [_by_task(batch) for batch in batches.values()]


def _by_task(rows: Iterable[tuple[str, float]]) -> Groups:
    groups: Groups = {}
    for slug, reward in rows:
        groups.setdefault(slug, []).append(reward)
    return groups
