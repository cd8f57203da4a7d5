"""A start deletes nothing that its database does not know, and serves no directory by mistake."""

import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from hud_tui.service.data_dir import MARK, Unusable, refuse_foreign
from hud_tui.service.http import new_id
from hud_tui.service.service import Service
from hud_tui.service.store.db import connect
from hud_tui.service.store.seals import COLUMNS, add_functions
from hud_tui.service.store.tables import MIGRATIONS
from tests.conftest import blank, calling, fork
from tests.service.calls import catalog, chat, leftovers, made_once, saved_steps, step, tree
from tests.toy_engine import ToyEngine

STEPS = 4
WITHOUT_ID = 6
"""The last version whose data directories had no id."""
TABLES = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"


@pytest.fixture
async def data(tmp_path: Path) -> Path:
    """A data directory in which a model was trained; `older.db` is as it was half way."""

    async def make(folder: Path) -> None:
        service = Service(blank(folder / "data"), ToyEngine())
        async with service, calling(service) as http:
            model = await fork(http)
            for number in range(STEPS):
                if number == STEPS // 2:
                    await service.parts.store.read(lambda db: _copy(db, folder / "older.db"))
                await step(http, model)

    await made_once("data_dir", tmp_path, make)
    return tmp_path / "data"


def _copy(db: sqlite3.Connection, place: Path) -> None:
    with closing(sqlite3.connect(place)) as copy:
        db.backup(copy)


def contents(data: Path) -> dict[str, bytes]:
    """Every file of the checkpoints, and the database."""
    files = [*(data / "checkpoints").rglob("*"), data / "service.db"]
    return {str(path.relative_to(data)): path.read_bytes() for path in files if path.is_file()}


def empty(data: Path) -> None:
    (data / "service.db").write_bytes(b"")


def foreign(data: Path) -> None:
    (data / "service.db").unlink()
    with closing(sqlite3.connect(data / "service.db")) as db:
        db.execute("CREATE TABLE bookmarks (url TEXT)")


def another(data: Path) -> None:
    (data / "service.db").unlink()
    connect(data / "service.db", new_id()).close()


def anothers_of_an_older_version(data: Path) -> None:
    another(data)
    make_older(data)


def text(data: Path) -> None:
    (data / "service.db").write_text("Dear diary, " * 1000)


def cut_off(data: Path) -> None:
    whole = (data / "service.db").read_bytes()
    (data / "service.db").write_bytes(whole[: len(whole) // 2])


def damaged_page(data: Path) -> None:
    with (data / "service.db").open("r+b") as file:
        file.seek(3 * 4096)
        file.write(b"\xff" * 4096)


def missing(data: Path) -> None:
    (data / "service.db").unlink()


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (empty, "the database is empty"),
        (foreign, "another program's database"),
        (another, "the database's id is"),
        (anothers_of_an_older_version, "knows none of them"),
        (text, "is damaged, or no database"),
        (cut_off, "is damaged"),
        (damaged_page, "is damaged"),
        (missing, "has no service.db beside it"),
    ],
)
async def test_a_database_that_is_not_theirs_is_refused_and_nothing_touched(
    data: Path, wrong: Callable[[Path], None], said: str
) -> None:
    wrong(data)
    before = contents(data)
    with pytest.raises(Unusable, match=said) as refused:
        async with Service(data, ToyEngine()):
            pass
    assert "--data-dir" in str(refused.value)
    assert contents(data) == before
    assert leftovers(data) == []


async def test_what_an_older_copy_does_not_know_is_moved_aside(
    data: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    before = {path.name for path in saved_steps(data)}
    shutil.copy(tmp_path / "older.db", data / "service.db")
    async with Service(data, ToyEngine()) as service, calling(service) as http:
        rows = await tree(http, (await catalog(http))[1]["id"])
        assert [row["state"] for row in rows] == ["full"] * (STEPS // 2)
    [place] = leftovers(data)
    moved = {path.name for path in place.iterdir()}
    assert {path.name for path in saved_steps(data)} == before - moved == {r["id"] for r in rows}
    assert len(moved) == STEPS - STEPS // 2
    assert all(any(path.iterdir()) for path in place.iterdir())
    assert str(place) in caplog.text
    assert "nothing was deleted" in caplog.text


async def test_what_a_crash_left_is_moved_aside_and_what_is_not_ours_stays(
    data: Path, caplog: pytest.LogCaptureFixture
) -> None:
    directory, half = data / "checkpoints", new_id()
    (directory / (nothing := new_id())).mkdir()
    (directory / "somebody's").mkdir()
    (directory / "stray").write_text("…")
    for _ in range(2):
        (directory / half).mkdir()
        (directory / half / "half.tmp").write_text("…")
        async with Service(data, ToyEngine()):
            pass
    async with Service(data, ToyEngine()):
        pass
    names = {path.name for path in saved_steps(data)}
    assert {"somebody's", "stray"} <= names
    assert not {nothing, half} & names
    [place] = leftovers(data)
    assert sorted(path.name for path in place.iterdir()) == [half, f"{half}-2"]
    assert caplog.text.count("nothing was deleted") == 2


APART = """
    CREATE TEMP TABLE job_now AS SELECT * FROM now.work WHERE is_job;
    UPDATE job_now SET kind = 'reported' WHERE kind = 'evaluation';
    CREATE TEMP TABLE evaluation_now AS
        SELECT *, coalesce(run_id, id) AS job_id FROM now.work WHERE kind = 'evaluation';
    UPDATE evaluation_now SET name = tasks_name;
"""
"""Runs and evaluations as two tables, as older versions had them."""


def make_older(data: Path, version: int = WITHOUT_ID) -> None:
    """As an older version left it: its tables, without what was added since."""
    file, old = data / "service.db", data / "old.db"
    with closing(sqlite3.connect(old)) as db:
        add_functions(db, [])
        for script in MIGRATIONS[:version]:
            db.executescript(script)
        db.execute(f"PRAGMA user_version = {version}")
        db.execute("ATTACH ? AS now", (str(file),))
        tables = [name for (name,) in db.execute(TABLES)]
        if "job" in tables:
            db.executescript(APART)
        for table in tables:
            _copy_rows(
                db, table, f"{table}_now" if table in ("job", "evaluation") else f"now.{table}"
            )
        db.commit()
    file.unlink()
    old.rename(file)
    if "identity" not in tables:
        (data / "checkpoints" / MARK).unlink()


def _copy_rows(db: sqlite3.Connection, table: str, source: str) -> None:
    """Of the attached database, as far as the older table has the columns."""
    known = {column[0] for column in db.execute(f"SELECT * FROM {source} LIMIT 0").description}
    columns = list(db.execute(f"PRAGMA main.table_info({table})"))
    if all(name in known for _, name, _, needed, default, _ in columns if needed and not default):
        names = ", ".join(name for _, name, *_ in columns if name in known)
        db.execute(f"DELETE FROM main.{table}")
        db.execute(f"INSERT INTO main.{table} ({names}) SELECT {names} FROM {source}")
        if table in COLUMNS and "seal" in names.split(", "):  # a row was sealed as it was then
            sealed = ", ".join(name for name in COLUMNS[table] if name in names.split(", "))
            db.execute(f"UPDATE main.{table} SET seal = seal_of({sealed})")


@pytest.mark.parametrize("version", [*range(WITHOUT_ID, len(MIGRATIONS), 4)])
async def test_a_directory_of_an_older_version_is_adopted(data: Path, version: int) -> None:
    before = saved_steps(data)
    make_older(data, version)
    async with Service(data, ToyEngine()) as service, calling(service) as http:
        model = (await catalog(http))[1]
        rows = await tree(http, model["id"])
        assert len(rows) == STEPS
        for row in rows:
            assert row["state"] == "full"
            await chat(http, model["id"], checkpoint=row["id"])
        await step(http, model)
    assert set(saved_steps(data)) > set(before)
    known, held = refuse_foreign(data)
    assert known.id == held.id is not None


async def test_the_id_is_made_anew_in_a_directory_that_lost_it(data: Path) -> None:
    known, _ = refuse_foreign(data)
    (data / "checkpoints" / MARK).unlink()
    async with Service(data, ToyEngine()):
        pass
    assert (data / "checkpoints" / MARK).read_text().strip() == known.id


async def test_a_fresh_start_where_the_database_was_removed_with_all_checkpoints(
    data: Path,
) -> None:
    for path in saved_steps(data):
        shutil.rmtree(path)
    (data / "service.db").unlink()
    async with Service(data, ToyEngine()) as service, calling(service) as http:
        await step(http, await fork(http))
    async with Service(data, ToyEngine()):
        assert len(saved_steps(data)) == 1
