"""Seals: a checksum in each row, so that it is read as it was written or not at all.

SQLite notices damage to a page's structure, but not a flipped bit in a value. Triggers of the
connection keep the seals; a query that reads a row has `intact` of its table among its columns.
Where many rows are written, a trigger's own update of each costs as much as the row: those are
written with their seals (`Stored`, `resealed`), and the triggers leave them alone.
"""

import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from zlib import crc32

_TABLES = """
model: slug id name name_key is_base base state_path forked_from created_at pruned_to
checkpoint: name id model_id parent_id step sampler_path state_path job_id body_crc state pinned
    bytes reward sha256 damage evaluations run_id
head: model_id checkpoint_id set_to
trace: id job_id checkpoint_id status created_at ended_at task_slug group_id parent_trace_id model
    reward stop_reason error evaluation_result step rollout completion num_tokens heldout attempt
    evaluates played
turn: trace_id prompt_digest digest base temperature prompt completion sample started_at ended_at
    sampled_from
span: trace_id span_id body answered_at
taskset: name id name_key description created_at
task: slug taskset_id row
reply: key scope call digest status body name
disk: bytes
work: id kind name status created_at finished_at model_id error is_job group_size taskset_id
    loop_steps step steps iteration attempt trained_tokens busy_s note reason solved waits driver
    heard_at asked checkpoint_id run_id tasks_name split samples num_tasks done reward_sum seconds
    parameters tasks_crc result groups
run: id model_id start taskset steps first_at last_at learning_rate loss_fn tokens rollouts idle
    rewards heldout evaluated evaluation alarms alarm alarm_title revision heldout_traces times
    discarded
moves_from: model_id at
step_time: run_id step checkpoint_id body
discarded: run_id step reason number traces
access_key: name role digest created_at made_by expires_at revoked_at max_work max_disk max_calls
author: what id name at
key_disk: name bytes
protection: model_id name at
proposal: id model_id checkpoint_id previous note proposed_by at status decided_by decided_at
"""
COLUMNS = {
    table: tuple(names.split())
    for table, _, names in (
        line.partition(":") for line in _TABLES.strip().replace("\n    ", " ").splitlines()
    )
}
"""Columns of each sealed table; the first one names a row to the user. The body of a
checkpoint and the tasks of work are long: they have checksums of their own. An integer that is a
row's key is part of the structure. A migration that
changes columns has to seal the rows again."""
_FIRST = {
    **dict.fromkeys(("moves_from", "step_time", "discarded"), ()),
    **dict.fromkeys(("access_key", "author", "protection", "proposal", "key_disk"), ()),
    **{table: COLUMNS[table][:-1] for table in ("turn", "trace", "span", "reply", "run")},
}
"""The columns that were sealed first, of a table that has got more since."""
_TEXT = "iif(typeof({0}) = 'text', CAST({0} AS BLOB), NULL)"
SEAL_ALL = ";".join(
    f"ALTER TABLE {table} ADD COLUMN seal INTEGER;"
    f"UPDATE {table} SET seal = seal_of({', '.join(columns)})"
    f" WHERE are_utf8({', '.join(_TEXT.format(column) for column in columns)})"
    for table, columns in (COLUMNS | _FIRST).items()
    if columns
)
"""SQL that adds the seals to all tables of that time; a row with a text that is no UTF-8 gets
none."""


def seal_again(table: str) -> str:
    """SQL that seals the rows of a table again that has got its newest columns; a row that is not
    as it was written stays so."""
    before, now = (", ".join(columns) for columns in (_FIRST[table], COLUMNS[table]))
    readable = f"are_utf8({', '.join(_TEXT.format(column) for column in COLUMNS[table])})"
    seal = f"iif(seal IS seal_of({before}), seal_of({now}), NULL)"
    return f"UPDATE {table} SET seal = {seal} WHERE {readable}"


def intact(table: str) -> str:
    """SQL for a column that fails where a row is not as it was written; of an outer join without a
    row it is true."""
    return f"intact('{table}', {_values(table, table)})"


def is_intact(table: str, alias: str = "") -> str:
    """SQL for a condition that leaves damaged rows out."""
    name = alias or table
    return f"{name}.seal IS seal_of({_values(table, name, seal=False)})"


def _values(table: str, name: str, seal: bool = True) -> str:
    columns = ("seal", *COLUMNS[table]) if seal else COLUMNS[table]
    return ", ".join(f"{name}.{column}" for column in columns)


INTACT_BODY = f"""CASE WHEN body_crc = crc32(CAST(body AS BLOB)) THEN {intact("checkpoint")}
    ELSE intact('checkpoint', NULL, name) END"""
"""`intact` of a checkpoint with its body."""


def checksum(text: str | bytes) -> int:
    """CRC-32 of a text that is stored."""
    return crc32(text.encode() if isinstance(text, str) else text)


def seal_of(*values: str | bytes | float | None) -> int:
    """CRC-32 of a row's columns."""
    return checksum("\x1f".join(map(str, values)))


def are_utf8(*texts: bytes | None) -> bool:
    """Whether all of these texts are UTF-8."""
    try:
        for text in texts:
            (text or b"").decode()
    except UnicodeDecodeError:
        return False
    return True


def add_functions(db: sqlite3.Connection, damage: list[str]) -> None:
    """Add the functions of this module's SQL; `damage` gets the names of rows that a query finds
    damaged."""

    def check(table: str, seal: int | None, *values: str | bytes | float | None) -> int:
        if seal != seal_of(*values) and (seal is not None or any(v is not None for v in values)):
            damage.append(f"a row of {table} ({str(values[0])[:100]})")
            raise ValueError(damage[-1])
        return 1

    db.create_function("crc32", 1, checksum, deterministic=True)
    db.create_function("seal_of", -1, seal_of, deterministic=True)
    db.create_function("are_utf8", -1, are_utf8, deterministic=True)
    db.create_function("intact", -1, check)


def keep(db: sqlite3.Connection) -> None:
    """Keep the seals of all rows that this connection writes. The seal of a row that was damaged
    before is dropped."""
    for table, columns in COLUMNS.items():
        new, old = (_values(table, name, seal=False) for name in ("NEW", "OLD"))
        db.executescript(
            f"CREATE TEMP TRIGGER {table}_added AFTER INSERT ON main.{table}"
            f" WHEN NEW.seal IS NULL BEGIN"
            f" UPDATE {table} SET seal = seal_of({new}) WHERE rowid = NEW.rowid; END;"
            f"CREATE TEMP TRIGGER {table}_changed AFTER UPDATE OF {', '.join(columns)}"
            f" ON main.{table} WHEN NEW.seal IS OLD.seal BEGIN"
            f" UPDATE {table} SET seal = iif(OLD.seal IS seal_of({old}), seal_of({new}), NULL)"
            f" WHERE rowid = NEW.rowid; END"
        )


def resealed(table: str, **changed: str) -> str:
    """SQL of an update that sets columns of a table to these expressions and keeps the seal, so
    that the row is written once."""
    now = ", ".join(changed.get(column, column) for column in COLUMNS[table])
    seal = f"iif(seal IS seal_of({', '.join(COLUMNS[table])}), seal_of({now}), NULL)"
    return ", ".join(f"{name} = {value}" for name, value in (changed | {"seal": seal}).items())


_KINDS = {"TEXT": str, "INTEGER": int, "REAL": float, "BLOB": bytes}


@dataclass(frozen=True)
class Stored:
    """How a sealed table stores what is inserted."""

    kinds: Sequence[type]
    """Of each sealed column, as `_KINDS`."""
    defaults: Mapping[str, str | float | None]
    """Value of a column that is left out."""

    @classmethod
    def of(cls, db: sqlite3.Connection, table: str) -> "Stored":
        known = {row["name"]: row for row in db.execute(f"PRAGMA table_info({table})")}
        columns = [known[column] for column in COLUMNS[table]]
        defaults = {
            row["name"]: db.execute(f"SELECT {row['dflt_value'] or 'NULL'}").fetchone()[0]
            for row in columns
        }
        return cls([_KINDS[row["type"]] for row in columns], defaults)

    def seals(self, columns: Mapping[str, Sequence[object]], count: int) -> list[int | None]:
        """The seals of so many rows, given as columns; None of all where a value is of another type
        than its column: a trigger sees what SQLite makes of it."""
        stored = []
        for (name, default), kind in zip(self.defaults.items(), self.kinds, strict=True):
            values = columns.get(name, [default] * count)
            if kind is float:
                values = list(map(_as_real, values))
            elif not {type(None), kind}.issuperset(map(type, values)):
                return [None] * count
            stored.append(values)
        return [seal_of(*row) for row in zip(*stored, strict=True)]


def _as_real(value: object) -> float | None:
    """A number as a column of reals has it: no integer, no negative zero, and NaN is none."""
    return value + 0.0 if isinstance(value, int | float) and value == value else None
