"""Where the time of runs' steps went, and the rollouts that no step was trained on."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from hud_tui.rl.groups import idle_rollouts
from hud_tui.rl.timeline import ZERO_VARIANCE
from hud_tui.service.store.db import Db, Values, insert, value
from hud_tui.service.store.seals import intact
from hud_tui.wire import Group
from hud_tui.wire_time import StepTime

Reasons = Mapping[str, Sequence[str]]
"""Trace ids by the reason for which they are discarded."""


def keep(db: Db, time: StepTime) -> None:
    """Store where the time of a step went; what came after the step before is part of it."""
    insert(
        db,
        "step_time",
        "INSERT OR REPLACE",
        run_id=time.run_id,
        step=time.step,
        checkpoint_id=time.checkpoint_id,
        body=time.model_dump_json(exclude_defaults=True),
    )


def newest(db: Db, run_id: str, last: int) -> list[StepTime]:
    """The newest steps of a run, oldest first."""
    where = "run_id = ? ORDER BY step DESC LIMIT ?"
    return _read(db, where, (run_id, last))[::-1]


def of_step(db: Db, run_id: str, step: int) -> list[StepTime]:
    """One step of a run; none if its time is not known."""
    return _read(db, "run_id = ? AND step = ?", (run_id, step))


def of_checkpoint(db: Db, checkpoint_id: str) -> list[StepTime]:
    """The step that made a checkpoint, whichever run took it."""
    of_run = "run_id = (SELECT run_id FROM checkpoint WHERE id = :id)"
    return _read(db, f"{of_run} AND checkpoint_id = :id", {"id": checkpoint_id})


def _read(db: Db, where: str, values: Values) -> list[StepTime]:
    query = f"SELECT body, {intact('step_time')} FROM step_time WHERE {where}"
    return [StepTime.model_validate_json(row["body"]) for row in db.execute(query, values)]


def known(db: Db, run_id: str) -> int:
    """Number of a run's steps whose time is known."""
    query = "SELECT count(checkpoint_id) FROM step_time WHERE run_id = ?"
    return value(db, query, (run_id,)) or 0


def discard(db: Db, run_id: str, step: int, reasons: Reasons) -> None:
    """Store that rollouts of a step are not trained on."""
    for reason, trace_ids in reasons.items():
        if trace_ids:
            insert(
                db,
                "discarded",
                run_id=run_id,
                step=step,
                reason=reason,
                number=len(trace_ids),
                traces=json.dumps(list(trace_ids)),
            )


def flat(groups: Sequence[Group], loss_fn: str | None) -> Reasons:
    """The rollouts of a batch that have no gradient."""
    idle = [
        trace_id
        for group in groups
        for index in idle_rollouts(group.rewards, loss_fn)
        for trace_id in group.trace_ids[index : index + 1]
    ]
    return {ZERO_VARIANCE: idle} if idle else {}


def counts(db: Db, run_id: str) -> dict[str, int]:
    """Discarded rollouts of a run by reason."""
    query = f"SELECT reason, number, {intact('discarded')} FROM discarded WHERE run_id = ?"
    numbers: Counter[str] = Counter()
    for row in db.execute(query, (run_id,)):
        numbers[row["reason"]] += row["number"]
    return dict(numbers)


def why_discarded(db: Db, run_id: str, trace_id: str) -> str | None:
    """Why no step was trained on a rollout of a run; None if one was, or may yet be."""
    query = f"""SELECT reason, {intact("discarded")} FROM discarded
        WHERE run_id = ? AND instr(traces, ?) ORDER BY id DESC LIMIT 1"""
    return value(db, query, (run_id, f'"{trace_id}"'))


def discarded(db: Db, run_id: str, limit: int, offset: int) -> list[dict[str, Any]]:
    """Discarded rollouts of a run, newest first, as far as their traces are known."""
    query = f"""SELECT step, attempt, task_slug, rollout, reward, num_tokens, error, ended_at,
        ended_at - created_at AS seconds, {intact("trace")} FROM trace WHERE id = ?"""
    rollouts = []
    for trace_id, reason, step in _traces(db, run_id, limit, offset):
        row = db.execute(query, (trace_id,)).fetchone()
        trace = {} if row is None else {key: row[key] for key in row.keys()[:-1]}
        rollouts.append({**trace, "trace_id": trace_id, "reason": reason, "step": step})
    return rollouts


def _traces(db: Db, run_id: str, limit: int, offset: int) -> Iterator[tuple[str, str, int]]:
    """Id, reason and step of some discarded rollouts."""
    columns = f"number, traces, reason, step, {intact('discarded')}"
    rows = db.execute(
        f"SELECT {columns} FROM discarded WHERE run_id = ? ORDER BY id DESC", (run_id,)
    )
    for row in rows:
        if offset >= row["number"]:
            offset -= row["number"]
            continue
        for trace_id in json.loads(row["traces"])[offset : offset + limit]:
            yield trace_id, row["reason"], row["step"]
            limit -= 1
        offset = 0
        if limit <= 0:
            return
