"""The store: migrations, transactions, what the schema refuses, and leftovers."""

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from uuid import UUID, uuid5

import pytest

from hud_tui.service.http import new_id, now, rollout_id
from hud_tui.service.service import Service
from hud_tui.service.store import checkpoints, models
from hud_tui.service.store.checkpoints import File, HeadHasMoved, NewCheckpoint
from hud_tui.service.store.db import Db, TooNew, connect, insert
from hud_tui.service.store.tables import MIGRATIONS
from hud_tui.wire import Checkpoint


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Db]:
    db = connect(tmp_path / "service.db")
    models.offer_bases(db, {"toy/four": "toy/four"})
    models.fork(db, models.find(db, "toy/four"), "fork")
    yield db
    db.close()


def new(model_id: str, parent: str | None, id_: str = "c1") -> NewCheckpoint:
    row = Checkpoint(
        id=id_,
        checkpoint_name=f"{id_}/s",
        prev_model_checkpoint_id=parent,
        learning_rate=0.1,
        loss_fn="ppo",
        num_traces=1,
        num_datums=1,
        num_tokens=1,
        mean_reward=0.0,
    )
    return NewCheckpoint(model_id, row, File(f"{id_}/s", 0, None))


def test_a_file_is_durable_and_strict(db: Db) -> None:
    assert db.execute("PRAGMA journal_mode").fetchone()[0] == "wal"
    assert db.execute("PRAGMA synchronous").fetchone()[0] == 2
    assert db.execute("PRAGMA foreign_keys").fetchone()[0] == 1
    assert db.execute("PRAGMA user_version").fetchone()[0] == len(MIGRATIONS)
    with pytest.raises(sqlite3.IntegrityError):
        db.execute("UPDATE model SET created_at = 'yesterday'")


def test_opening_again_migrates_nothing_and_a_newer_file_is_left_alone(
    db: Db, tmp_path: Path
) -> None:
    db.close()
    again = connect(tmp_path / "service.db")
    assert models.find(again, "fork").name == "fork"
    again.execute(f"PRAGMA user_version = {len(MIGRATIONS) + 1}")
    again.close()
    with pytest.raises(TooNew):
        connect(tmp_path / "service.db")


def test_a_step_needs_its_parent_to_be_the_head(db: Db) -> None:
    model = models.find(db, "fork")
    checkpoints.append(db, new(model.id, None))
    with pytest.raises(HeadHasMoved):
        checkpoints.append(db, new(model.id, None, "c2"))
    assert checkpoints.head_id(db, model.id) == "c1"


def test_the_schema_refuses_orphans_foreign_heads_and_two_runs_on_a_model(db: Db) -> None:
    model = models.find(db, "fork")
    other = models.fork(db, models.find(db, "toy/four"), "other")
    checkpoints.append(db, new(model.id, None))
    columns = {"name": "x", "sampler_path": "x", "state_path": "x", "body": "{}", "step": 9}
    for parent, owner in (("nothing", model.id), ("c1", other.id)):
        with pytest.raises(sqlite3.IntegrityError):
            insert(db, "checkpoint", id="c3", model_id=owner, parent_id=parent, **columns)
    with pytest.raises(sqlite3.IntegrityError):
        db.execute("INSERT INTO head (model_id, checkpoint_id) VALUES (?, 'c1')", (other.id,))
    row = {"kind": "training", "status": "running", "model_id": model.id, "created_at": now()}
    insert(db, "work", id="j1", **row)
    with pytest.raises(sqlite3.IntegrityError):
        insert(db, "work", id="j2", **row)
    insert(db, "work", id="j3", **{**row, "status": "failed"})


async def test_a_failed_change_leaves_nothing(service: Service) -> None:
    def change(db: Db) -> None:
        insert(db, "taskset", id="x", name="x", name_key="x", created_at=0.0)
        raise KeyError

    store = service.parts.store
    with pytest.raises(KeyError):
        await store.write(change)
    query = "SELECT count(*) FROM taskset WHERE id = 'x'"
    assert await store.read(lambda db: db.execute(query).fetchone()[0]) == 0


def test_a_rollout_has_the_id_that_an_older_version_gave_it() -> None:
    """A run that is resumed after an update replaces its repeated rollouts."""
    job_id = new_id()
    assert rollout_id(job_id, 3, "a b", 0) == str(uuid5(UUID(job_id), "3 a b 0"))
