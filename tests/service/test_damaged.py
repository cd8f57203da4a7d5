"""What is damaged on the disk says so, and is neither served nor trained: the file of a checkpoint
that is missing or another one, and rows of the database."""

import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import closing, contextmanager
from enum import StrEnum
from math import inf, nan, nextafter
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from httpx import AsyncClient, Response

from hud_tui.service.http import DamagedRow
from hud_tui.service.service import Service
from hud_tui.service.store import (
    access,
    checkpoints,
    jobs,
    models,
    proposals,
    replies,
    runs,
    times,
    traces,
    works,
)
from hud_tui.service.store.db import Db, insert, insert_all
from hud_tui.service.store.events import RESET, Frames, moves, newest
from hud_tui.service.store.seals import COLUMNS, is_intact, resealed
from tests.conftest import calling, ended, submit
from tests.service.calls import (
    Json,
    ask,
    cancel,
    catalog,
    chat,
    detail,
    fork_from,
    optim,
    pass_,
    payloads,
    set_head,
    step,
    told,
    trained_in,
    tree,
)
from tests.toy_engine import ToyEngine

Damage = Callable[[Path], object]


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-7])


def _flip(path: Path) -> None:
    body = bytearray(path.read_bytes())
    body[len(body) // 2] ^= 1
    path.write_bytes(body)


WAYS: list[Damage] = [Path.unlink, _cut, _flip]


@pytest.fixture
async def data(tmp_path: Path) -> Path:
    """A data directory with three checkpoints of one model."""
    await trained_in(tmp_path / "data", 3)
    return tmp_path / "data"


@pytest.fixture
async def service(data: Path) -> AsyncIterator[Service]:
    async with Service(data, ToyEngine()) as service:
        yield service


@pytest.fixture
async def model(http: AsyncClient) -> Json:
    return (await catalog(http))[1]


def _file(data: Path, row: Json) -> Path:
    return data / str(row["checkpoint_name"])


async def _sample(http: AsyncClient, model: Json, row: Json) -> Response:
    return await ask(http, model["id"], checkpoint=row["id"])


async def _serve(http: AsyncClient, model: Json, row: Json) -> Response:
    return await set_head(http, model["id"], row["id"])


async def _fork(http: AsyncClient, model: Json, row: Json) -> Response:
    return await fork_from(http, model["id"], "child", checkpoint_id=row["id"])


USES: list[Callable[[AsyncClient, Json, Json], Awaitable[Response]]] = [_sample, _serve, _fork]


@pytest.mark.parametrize(("damage", "use"), zip(WAYS, USES, strict=True))
async def test_it_is_refused_until_its_file_is_back(
    http: AsyncClient,
    data: Path,
    model: Json,
    damage: Damage,
    use: Callable[[AsyncClient, Json, Json], Awaitable[Response]],
) -> None:
    first, second, _ = await tree(http, model["id"])
    whole = _file(data, first).read_bytes()
    damage(_file(data, first))
    refused = await use(http, model, first)
    assert refused.status_code == 410
    said = detail(refused)
    assert "step-000001 of arith-rl is damaged" in said
    assert _file(data, first).name in said
    assert f"choose an intact checkpoint: {second['name']}" in said
    rows = await tree(http, model["id"])
    assert [row["state"] for row in rows] == ["damaged", "full", "full"]
    assert [row["is_active"] for row in rows] == [False, False, True]
    _file(data, first).write_bytes(whole)
    assert (await use(http, model, first)).status_code in (200, 201)
    assert [row["state"] for row in await tree(http, model["id"])] == ["full"] * 3


async def test_training_from_a_damaged_head_is_refused(
    http: AsyncClient, data: Path, model: Json
) -> None:
    _, second, head = await tree(http, model["id"])
    _flip(_file(data, head))
    assert (await ask(http, model["id"])).status_code == 410
    served = await set_head(http, model["id"], second["id"])
    assert served.status_code == 200
    await chat(http, model["id"])
    await step(http, model)


async def test_followers_hear_of_it(
    http: AsyncClient, service: Service, data: Path, model: Json
) -> None:
    first, *_ = await tree(http, model["id"])
    before = await told(service, model["id"])
    _flip(_file(data, first))
    for _ in range(2):
        await _sample(http, model, first)
    [news] = (await told(service, model["id"]))[len(before) :]
    assert news["checkpoint"]["state"] == "damaged"


@pytest.mark.parametrize("damage", WAYS)
async def test_a_start_looks_for_every_file_and_reads_the_heads(
    data: Path, damage: Damage, caplog: pytest.LogCaptureFixture
) -> None:
    async with Service(data, ToyEngine()) as service, calling(service) as http:
        model = (await catalog(http))[1]
        first, _, head = await tree(http, model["id"])
    bodies = {row["id"]: _file(data, row).read_bytes() for row in (first, head)}
    _file(data, first).unlink()
    damage(_file(data, head))
    async with Service(data, ToyEngine()) as service, calling(service) as http:
        states = [row["state"] for row in await tree(http, model["id"])]
        assert states == ["damaged", "full", "damaged"]
    assert "step-000001 of arith-rl is damaged" in caplog.text
    for row in (first, head):
        _file(data, row).write_bytes(bodies[row["id"]])
    async with Service(data, ToyEngine()) as service, calling(service) as http:
        assert [row["state"] for row in await tree(http, model["id"])] == ["full"] * 3


async def test_a_file_of_an_older_version_has_no_checksum_and_is_judged_by_the_engine(
    http: AsyncClient, service: Service, data: Path, model: Json
) -> None:
    first, second, _ = await tree(http, model["id"])
    forget = "UPDATE checkpoint SET sha256 = NULL"
    await service.parts.store.write(lambda db: db.execute(forget))
    await chat(http, model["id"], checkpoint=second["id"])
    _cut(_file(data, first))
    assert (await _sample(http, model, first)).status_code == 410
    assert [row["state"] for row in await tree(http, model["id"])] == ["damaged", "full", "full"]


async def test_a_damaged_state_is_not_thinned_into_one_that_looks_whole(data: Path) -> None:
    async with Service(data, ToyEngine()) as service, calling(service) as http:
        model = (await catalog(http))[1]
        first, *_ = await tree(http, model["id"])
        _flip(_file(data, first))
    async with Service(data, ToyEngine(), max_disk=0) as service, calling(service) as http:
        await service.parts.retention.settled()
        states = [row["state"] for row in await tree(http, model["id"])]
        assert states == ["damaged", "expired", "full"]
    assert _file(data, first).exists()


async def test_gradients_that_wait_are_kept_by_a_refused_head(
    http: AsyncClient, data: Path, model: Json
) -> None:
    first, *_ = await tree(http, model["id"])
    await pass_(http, model["id"], await payloads(http, model["id"], [1.0, 0.0]))
    _flip(_file(data, first))
    assert (await set_head(http, model["id"], first["id"])).status_code == 410
    assert (await optim(http, model["id"])).status_code == 200


async def test_a_row_that_is_not_as_it_was_written_is_told(data: Path) -> None:
    """SQLite's own check lets a bit of a text flip unseen."""
    async with Service(data, ToyEngine()) as service, calling(service) as http:
        model = (await catalog(http))[1]
        assert len(await tree(http, model["id"])) == 3
    with closing(sqlite3.connect(data / "service.db")) as db, db:
        changed = "replace(body, '\"learning_rate\":0', '\"learning_rate\":7')"
        db.execute(f"UPDATE checkpoint SET body = {changed} WHERE step = 2")
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    async with Service(data, ToyEngine()) as service, calling(service) as http:
        answer = await http.get(f"/v2/models/{model['id']}/checkpoints")
        assert (answer.status_code, "step-000002" in detail(answer)) == (500, True)
        assert "Restore it from a backup" in detail(answer)


async def test_a_damaged_row_of_a_step_does_not_hold_up_the_catalog(
    http: AsyncClient, data: Path, model: Json
) -> None:
    with unsealed(data) as db:
        db.execute("UPDATE checkpoint SET reward = reward + 1 WHERE step = 3")
    assert model["id"] in [row["id"] for row in await catalog(http)]
    assert (await http.get(f"/v2/models/{model['id']}/checkpoints")).status_code == 500


def flipped(value: Any) -> Any:
    """The value with another lowest bit; of a text, in its last byte."""
    if isinstance(value, float):
        return nextafter(value, inf)
    if isinstance(value, int):
        return value ^ 1
    body = bytearray(value if isinstance(value, bytes) else value.encode())
    body[-1] ^= 1
    return bytes(body) if isinstance(value, bytes) else body.decode()


@contextmanager
def unsealed(data: Path) -> Iterator[sqlite3.Connection]:
    """A connection whose changes are damage: it keeps no seals, and changes nothing else."""
    with closing(sqlite3.connect(data / "service.db", isolation_level=None)) as db:
        db.executescript("PRAGMA ignore_check_constraints = ON; PRAGMA synchronous = OFF")
        query = "SELECT name FROM sqlite_schema WHERE type = 'trigger'"
        for [name] in db.execute(query).fetchall():
            db.execute(f"DROP TRIGGER {name}")
        yield db


@pytest.mark.parametrize(
    ("table", "column", "path"),
    [
        ("checkpoint", "body", "/v2/models/{model}/checkpoints"),
        ("work", "parameters", "/v1/training/jobs/{job}/raw-status"),
        ("run", "rewards", "/v1/runs"),
    ],
)
async def test_a_text_that_cannot_be_read_is_told(
    http: AsyncClient, data: Path, model: Json, table: str, column: str, path: str
) -> None:
    job = await submit(http, model["id"], steps=1)
    await ended(http, job)
    for bit in (0x80, 0x10):  # no UTF-8, and another letter
        with unsealed(data) as db:
            cell = db.execute(f"SELECT min(rowid), CAST({column} AS BLOB) FROM {table}").fetchone()
            text = bytearray(cell[1])
            text[0] ^= bit
            change = f"UPDATE {table} SET {column} = CAST(? AS TEXT) WHERE rowid = ?"
            db.execute(change, (bytes(text), cell[0]))
        answer = await http.get(path.format(model=model["id"], job=job))
        told = (answer.status_code, "Restore it from a backup" in detail(answer))
        assert told == (500, True), answer.text
        assert "service.db is damaged" in detail(answer)
        with unsealed(data) as db:
            db.execute(change, (cell[1], cell[0]))


def every(db: Db, query: str, read: Callable[..., object]) -> list[object]:
    """What is read by each key in a table, whichever they are now."""
    return [read(db, *keys) for keys in db.execute(query).fetchall()]


READERS: dict[str, Callable[[Db], object]] = {
    "model": lambda db: models.catalog(db, 100, 0),
    "checkpoint": lambda db: every(db, "SELECT model_id FROM checkpoint", checkpoints.tree),
    "head": lambda db: every(db, "SELECT model_id FROM head", checkpoints.head_id),
    "trace": lambda db: every(db, "SELECT id FROM trace", traces.get),
    "turn": lambda db: every(db, "SELECT trace_id FROM turn", traces.turns_of),
    "span": lambda db: every(db, "SELECT trace_id FROM span", traces.spans_of),
    "taskset": lambda db: models.page(db, 100, 0),
    "task": lambda db: every(db, "SELECT DISTINCT taskset_id FROM task", models.rows),
    "reply": lambda db: every(db, "SELECT scope, key FROM reply", replies.find),
    "disk": checkpoints.used,
    "work": lambda db: db.execute(works.SELECT).fetchall(),
    "run": lambda db: runs.page(db, 0, 100, 0),
    "moves_from": lambda db: every(db, "SELECT id FROM model", moves),
    "step_time": lambda db: every(db, "SELECT run_id, 9 FROM step_time", times.newest),
    "discarded": lambda db: every(db, "SELECT run_id FROM discarded", times.counts),
    "access_key": access.keys,
    "author": lambda db: every(db, "SELECT what, id FROM author", access.author_of),
    "key_disk": lambda db: every(db, "SELECT name FROM key_disk", access.stored),
    "protection": lambda db: every(db, "SELECT model_id FROM protection", access.protected_by),
    "proposal": lambda db: every(db, "SELECT model_id FROM proposal", proposals.all_of),
}
"""What reads each table."""


async def test_a_bit_that_flips_in_any_column_is_told(
    http: AsyncClient, service: Service, data: Path, model: Json
) -> None:
    """SQLite's own check finds nothing."""
    await ended(http, await submit(http, model["id"], steps=1))
    trace = uuid4().hex
    await http.post(f"/v2/trace/{trace}/enter", json={"task_slug": "a"})
    answer = replies.StoredReply(replies.Asked("k", "optim-step", "d"), b"{}")
    await service.parts.store.write(replies.keep, model["id"], answer)
    spans = {"telemetry": [{"span_id": "s", "a": 1}]}
    await http.post(f"/telemetry/v3/api/trace/{trace}/telemetry-upload", json=spans)
    first, *_ = await tree(http, model["id"])
    assert (await set_head(http, model["id"], first["id"])).status_code == 200
    await service.parts.store.write(times.discard, model["id"], 1, {"failed": [trace]})
    new_key = {"name": "ana", "role": "train", "expires_s": 9.0, "max_work": 2}
    await http.post("/v1/keys", json={**new_key, "max_disk": 10**9, "max_calls": 7})
    await http.delete("/v1/keys/ana")
    await http.put(f"/v2/models/{model['id']}/protection")
    decided = {"status": "approved", "decided_by": "bob", "decided_at": 2.0}
    ids = {"model_id": model["id"], "checkpoint_id": first["id"], "previous": first["id"]}
    asked = {"id": str(uuid4()), "note": "why", "proposed_by": "ana", "at": 1.0}
    await service.parts.store.write(lambda db: insert(db, "proposal", **ids, **asked, **decided))
    start = {"model_id": model["id"], "at": 5.0}
    await service.parts.store.write(lambda db: insert(db, "moves_from", **start))
    looked_at, store = 0, service.parts.store
    with unsealed(data) as db:
        for table, columns in COLUMNS.items():
            for column in columns:
                query = f"SELECT max(rowid), {column} FROM {table} WHERE {column} IS NOT NULL"
                rowid, value = db.execute(query).fetchone()
                if value in (None, ""):
                    continue
                looked_at += 1
                change = f"UPDATE {table} SET {column} = ? WHERE rowid = ?"
                db.execute(change, (flipped(value), rowid))
                with pytest.raises(DamagedRow, match=rf"^a row of {table} \("):
                    await store.read(READERS[table])
                db.execute(change, (value, rowid))
            assert await store.read(READERS[table]), table
        assert db.execute("PRAGMA quick_check").fetchone() == ("ok",)
    assert looked_at > 90


async def test_every_column_is_sealed(service: Service) -> None:
    """But the text of checkpoints, tasks and events, which has a checksum of its own, the id that
    the checkpoints' directory must have, too, and integers that are keys."""

    def schema(db: Db) -> dict[str, set[str]]:
        query = "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
        names = [name for [name] in db.execute(query)]
        return {
            name: {row["name"] for row in db.execute(f"PRAGMA table_info({name})")}
            for name in names
        }

    found = await service.parts.store.read(schema)
    apart = {"event": found["event"], "identity": {"id"}}
    own = {
        "checkpoint": {"body"},
        "work": {"tasks"},
        "turn": {"id"},
        "task": {"id"},
        "reply": {"id"},
        "discarded": {"id"},
    }
    assert found == apart | {
        table: {*columns, "seal"} | own.get(table, set()) for table, columns in COLUMNS.items()
    }


class Text(StrEnum):
    A = "a"


@pytest.mark.parametrize(
    ("reward", "error"),
    [(1, "é"), (True, "a\0b"), (-0.0, ""), (nan, None), (inf, None), (2**60 + 1, Text.A)],
)
async def test_a_row_is_sealed_as_it_is_stored(
    service: Service, reward: float, error: str | None
) -> None:
    """Whatever SQLite makes of a value's type."""

    def intact(db: Db) -> bool:
        created_at, rollout = -0.0, reward == 1 if error is None else 1
        columns = {"created_at": created_at, "reward": reward, "error": error, "rollout": rollout}
        insert(db, "trace", id="t", status="completed", **columns)
        query = f"SELECT {is_intact('trace')} FROM trace WHERE id = 't'"
        return bool(db.execute(query).fetchone()[0]) and traces.get(db, "t")["id"] == "t"

    assert await service.parts.store.write(intact)


async def test_a_row_is_written_once(service: Service, model: Json) -> None:
    """With its seal: an update of every row of a batch would cost as much again."""

    def changes(db: Db) -> tuple[int, int]:
        [head] = db.execute("SELECT max(checkpoint_id) FROM head").fetchone()
        rows = [{"id": name, "status": "completed", "created_at": 1.0} for name in "abc"]
        before = db.total_changes
        insert_all(db, "trace", rows)
        after = db.total_changes
        linked = resealed("trace", checkpoint_id=":head")
        db.execute(f"UPDATE trace SET {linked} WHERE id IN ('a', 'b', 'c')", {"head": head})
        assert all(traces.get(db, name)["checkpoint_id"] == head for name in "abc")
        return after - before, db.total_changes - after

    assert await service.parts.store.write(changes) == (3, 3)


async def test_a_step_does_not_make_a_damaged_rollout_whole(service: Service, data: Path) -> None:
    store, start = service.parts.store, {"status": "completed", "created_at": 1.0}
    await store.write(lambda db: insert(db, "trace", id="t", **start))
    with unsealed(data) as db:
        db.execute("UPDATE trace SET reward = 1.0 WHERE id = 't'")
    change = f"UPDATE trace SET {resealed('trace', step='1')} WHERE id = 't'"
    await store.write(lambda db: db.execute(change))
    with pytest.raises(DamagedRow):
        await store.read(traces.get, "t")


async def test_what_is_written_to_a_damaged_row_does_not_make_it_whole(
    http: AsyncClient, service: Service, data: Path, model: Json
) -> None:
    job = await submit(http, model["id"], steps=1)
    await ended(http, job)
    with unsealed(data) as db:
        db.execute("UPDATE work SET steps = 3 WHERE id = ?", (job,))
    renamed = "UPDATE work SET name = 'another' WHERE id = ?"
    await service.parts.store.write(lambda db: db.execute(renamed, (job,)))
    answer = await http.get(f"/v1/training/jobs/{job}/raw-status")
    assert (answer.status_code, f"a row of work ({job})" in detail(answer)) == (500, True)


async def test_a_run_on_damaged_tasks_is_not_resumed(
    http: AsyncClient, data: Path, model: Json
) -> None:
    job = await submit(http, model["id"], steps=500)
    await cancel(http, job)
    await ended(http, job)
    with unsealed(data) as db:
        db.execute("UPDATE work SET tasks = replace(tasks, '1', '2') WHERE id = ?", (job,))
    answer = await http.post(f"/v1/training/jobs/{job}/resume")
    assert (answer.status_code, f"the tasks of training {job}" in detail(answer)) == (500, True)


@pytest.mark.parametrize("driver", [None, "laptop:1"])
@pytest.mark.parametrize("is_text", [True, False])
async def test_a_service_starts_with_a_damaged_row_of_what_was_interrupted(
    data: Path, caplog: pytest.LogCaptureFixture, driver: str | None, is_text: bool
) -> None:
    job = str(uuid4())
    with unsealed(data) as db:
        columns = "id, kind, status, created_at, model_id, steps, parameters, driver, seal, name"
        [model_id] = db.execute("SELECT max(id) FROM model WHERE NOT is_base").fetchone()
        values = (job, "training", "running", 1.0, model_id, 1, "{}", driver, 7)
        name = "'n'" if is_text else NO_UTF_8
        marks = "?, ?, ?, ?, ?, ?, ?, ?, ?"
        db.execute(f"INSERT INTO work ({columns}) VALUES ({marks}, {name})", values)
    async with Service(data, ToyEngine()) as service, calling(service) as http:
        if driver is not None:  # which may go on
            await service.parts.store.write(jobs.end_abandoned, lambda work_id: inf)
        what = f"a row of work ({job})" if is_text else "a text"
        assert f"training {job}: {what} is damaged" in caplog.text
        assert (await http.get(f"/v1/training/jobs/{job}/raw-status")).status_code == 500
        assert (await catalog(http))[1]


NO_UTF_8 = "CAST(x'ff' AS TEXT)"


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE taskset SET description = 'another'",
        "UPDATE taskset SET name_key = 'another' || rowid",
        "UPDATE checkpoint SET sha256 = 'another'",
        f"INSERT INTO trace (id, status, created_at, error) VALUES ('t', 'queued', 1, {NO_UTF_8})",
    ],
    ids=["taskset", "name", "checkpoint", "queued"],
)
async def test_a_service_starts_with_a_damaged_row(data: Path, damage: str) -> None:
    with unsealed(data) as db:
        db.execute(damage)
    async with Service(data, ToyEngine()) as service, calling(service) as http:
        assert (await http.get("/v2/auth/me")).status_code == 200


async def test_a_damaged_event_sends_its_readers_to_the_tree(
    service: Service, model: Json, caplog: pytest.LogCaptureFixture
) -> None:
    store, frames = service.parts.store, Frames()
    hub = service.parts.hub
    flip = "UPDATE event SET body = replace(body, '\"step\":2', '\"step\":7') WHERE type = 'step'"
    await store.write(lambda db: db.execute(flip))
    last, answer = await frames.after(store, model["id"], 0, hub.signal(model["id"]))
    assert (last, answer) == (await store.read(newest), RESET)
    assert "is damaged: its readers read the tree instead" in caplog.text
    assert await frames.after(store, model["id"], last, hub.signal(model["id"])) == (last, b"")


async def test_a_turn_that_is_not_as_it_was_written_is_not_trained_on(
    http: AsyncClient, service: Service, model: Json
) -> None:
    job = await submit(http, model["id"], steps=1)
    await ended(http, job)
    [trace, *_] = (await http.get(f"/v2/jobs/{job}/traces")).json()["items"]
    flip = (
        "UPDATE turn SET sample = replace(sample, 'output_token_ids\":[', 'output_token_ids\":[9,')"
    )
    await service.parts.store.write(lambda db: db.execute(flip))
    answer = await http.post(
        f"/v1/models/{model['id']}/train/forward-backward",
        json={"inputs": [trace["id"]], "loss_fn": "cross_entropy"},
    )
    assert (answer.status_code, "not as it was written" in detail(answer)) == (500, True)
    shown = await http.get(f"/v2/trace/{trace['id']}/events")
    assert (shown.status_code, trace["id"] in detail(shown)) == (500, True)
