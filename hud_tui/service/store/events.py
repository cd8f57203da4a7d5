"""The event log: what happened to each model, with increasing ids that survive a restart, and how
followers get it."""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass

from hud_tui.events import (
    CheckpointAdded,
    HeadMoved,
    MovesRead,
    RolloutDone,
    StepTaken,
    WorkChanged,
)
from hud_tui.service.http import now
from hud_tui.service.store.db import Db, Store, drop, value
from hud_tui.service.store.seals import checksum, intact

log = logging.getLogger(__name__)

MOST_EVENTS = 50_000
"""Events kept per model, beside all moves of its head; a reader further behind has to read the
tree."""
PRUNE_EVERY = 1_000
MOST_MOVES = 5_000
"""Moves of a head that one answer has; the newest."""
MOVE = """type = 'head' AND instr(body, '"cause":"set"') > 0"""
"""SQL for an event of a move that somebody made. An index has the same condition."""
FAR = 20_000
"""Lag in events from which rollouts of past steps are skipped for a reader: half a minute of a
run."""

Sent = CheckpointAdded | HeadMoved | RolloutDone | StepTaken | WorkChanged


@dataclass(frozen=True)
class Logged:
    """One event of the log."""

    id: int
    type: str
    body: bytes
    """JSON."""


class Damaged(Exception):
    """The event with this id is not as it was written."""


def append(db: Db, model_id: str, events: Iterable[Sent]) -> None:
    """Log events; readers are woken after the commit."""
    rows: list[tuple[str, str, str, int, str | None]] = []
    for event in events:
        body = event.model_dump_json()
        rows.append((model_id, event.type, body, checksum(body), db.caller.name or None))
    if not rows:
        return
    names = "model_id, type, body, body_crc, name"
    db.executemany(f"INSERT INTO event ({names}) VALUES (?, ?, ?, ?, ?)", rows)
    db.appended.add(model_id)
    [newest] = db.execute("SELECT last_insert_rowid()").fetchone()
    if newest % PRUNE_EVERY < len(rows):  # ids are consecutive: one of these was a multiple
        _prune(db, model_id)


def after(db: Db, model_id: str, last: int, limit: int = 500) -> list[Logged]:
    """The model's events after one id, oldest first.

    For a reader far behind, rollouts of past steps are skipped, whose rewards are in those steps'
    events: over a slow line it would never catch up otherwise. Raises Damaged: one is not as it was
    written.
    """
    query = """SELECT id, type, CAST(body AS BLOB) AS body, body_crc FROM event
        WHERE model_id = ? AND id > ? AND (type != 'rollout' OR id > ?) ORDER BY id LIMIT ?"""
    over, later = last, "SELECT 1 FROM event WHERE model_id = ? AND id > ? LIMIT 1 OFFSET ?"
    if value(db, later, (model_id, last, FAR)):
        step = "SELECT id FROM event WHERE model_id = ? AND type = 'step' ORDER BY id DESC LIMIT 1"
        over = value(db, step, (model_id,)) or 0
    rows = db.execute(query, (model_id, last, over, limit)).fetchall()
    for row in rows:
        named = f'"type":"{row["type"]}"'.encode()
        if checksum(row["body"]) != row["body_crc"] or named not in row["body"]:
            raise Damaged(row["id"])
    return [Logged(row["id"], row["type"], row["body"]) for row in rows]


def moves(db: Db, model_id: str) -> MovesRead:
    """The moves of the head that somebody made, after the last one that is damaged."""
    query = f"""SELECT CAST(body AS BLOB) AS body, body_crc FROM event
        WHERE model_id = ? AND {MOVE} ORDER BY id DESC LIMIT ?"""
    rows = db.execute(query, (model_id, MOST_MOVES + 1)).fetchall()
    kept: list[HeadMoved] = []
    for row in rows[:MOST_MOVES]:
        if checksum(row["body"]) != row["body_crc"]:
            break
        kept.append(HeadMoved.model_validate_json(row["body"]))
    if len(kept) < len(rows):
        since = kept[-1].at if kept else now()
    else:
        starts = db.execute(f"SELECT model_id, at, {intact('moves_from')} FROM moves_from")
        since = {row["model_id"]: row["at"] for row in starts}.get(model_id, 0.0)
    return MovesRead(moves=tuple(reversed(kept)), since=since)


def newest(db: Db) -> int:
    """The newest id given to any model; 0 before the first."""
    return value(db, "SELECT seq FROM sqlite_sequence WHERE name = 'event'") or 0


def can_resume(db: Db, model_id: str, last: int) -> bool:
    """Whether this id is known and all later events are still kept."""
    query = f"SELECT pruned_to, {intact('model')} FROM model WHERE id = ?"
    pruned_to = value(db, query, (model_id,))
    return pruned_to is not None and pruned_to <= last <= newest(db)


def _prune(db: Db, model_id: str) -> None:
    query = "SELECT id FROM event WHERE model_id = ? ORDER BY id DESC LIMIT 1 OFFSET ?"
    last = value(db, query, (model_id, MOST_EVENTS))
    if last is not None:
        where = f"model_id = :model AND id <= :last AND NOT ({MOVE})"
        drop(db, "event", where, {"model": model_id, "last": last})
        db.execute("UPDATE model SET pruned_to = ? WHERE id = ?", (last, model_id))


# Frames: the newest events as sent, made once for all followers of a model.


MOST_FRAMES = 64
"""Answers kept; readers without lag ask for the same ones at the same time."""

RESET = b"event: reset\ndata: {}\n\n"
"""Tells a reader that events are missing from the log: read the tree, then continue."""

Answer = tuple[int, bytes]


class Frames:
    def __init__(self) -> None:
        self._cached: OrderedDict[tuple[str, int], Answer] = OrderedDict()
        self._none: dict[str, tuple[int, asyncio.Event]] = {}
        """The last id without newer events, and the signal that is set when there are some."""
        self._locks: dict[str, asyncio.Lock] = {}

    async def after(self, store: Store, model_id: str, last: int, signal: asyncio.Event) -> Answer:
        """The model's events after one id as sent, with the id of the last one; or `RESET`. Events
        never change, so all readers of the same id get the same answer; an empty answer is valid
        until the signal is set, which is taken from the hub before this call."""
        async with self._locks.setdefault(model_id, asyncio.Lock()):
            cached = self._cached.get((model_id, last))
            if cached is not None:
                return cached
            if self._none.get(model_id) == (last, signal) and not signal.is_set():
                return last, b""
            logged = await store.read(_after, model_id, last)
            if isinstance(logged, int):
                return logged, RESET
            if not logged:
                self._none[model_id] = last, signal
                return last, b""
            answer = logged[-1].id, b"".join(map(_frame, logged))
            self._cached[model_id, last] = answer
            while len(self._cached) > MOST_FRAMES:
                self._cached.popitem(last=False)
            return answer


def _after(db: Db, model_id: str, last: int) -> list[Logged] | int:
    """The events after an id; or the newest id, if some of them are no longer kept, or damaged."""
    if not can_resume(db, model_id, last):
        return newest(db)
    try:
        return after(db, model_id, last)
    except Damaged as error:
        log.error("event %s of service.db is damaged: its readers read the tree instead", error)
        return newest(db)


def _frame(event: Logged) -> bytes:
    """One server-sent event. JSON has no bare newline, so it fits one data line."""
    return f"id: {event.id}\nevent: {event.type}\ndata: ".encode() + event.body + b"\n\n"


# Hub: wakes followers of a model's events. The events themselves are in the store.


PAUSE_S = 0.02
"""Delay between an event and its readers, seconds: training goes on first, and later events are
sent together with it."""


class Hub:
    """Readers take the signal first, then read the store, then wait: no event is missed."""

    def __init__(self) -> None:
        self._signals: dict[str, asyncio.Event] = {}
        self._grown: set[str] = set()
        """Ids of models whose readers will be woken."""
        self.closed = False

    def signal(self, model_id: str) -> asyncio.Event:
        """Set once the model has new events, or the service stops."""
        signal = self._signals.setdefault(model_id, asyncio.Event())
        if self.closed:
            signal.set()
        return signal

    def grew(self, model_ids: set[str]) -> None:
        """Wake the readers of these models soon."""
        if not self._grown:
            asyncio.get_running_loop().call_later(PAUSE_S, self._wake)
        self._grown |= model_ids

    def close(self) -> None:
        """End all streams."""
        self.closed = True
        self._grown = set(self._signals)
        self._wake()

    def _wake(self) -> None:
        grown, self._grown = self._grown, set()
        for model_id in grown:
            signal = self._signals.pop(model_id, None)
            if signal is not None:
                signal.set()
