"""The reader of .wandb files, on files that are made here byte by byte."""

import json
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hud_tui.rl.wandb_file import BLOCK, HEAD, MAGIC, LoggedRun, read_logged_run


def _varint(number: int) -> bytes:
    low, rest = number & 127, number >> 7
    return bytes([low | 128]) + _varint(rest) if rest else bytes([low])


def message(number: int, body: bytes | str) -> bytes:
    """A field of a protocol buffer."""
    body = body.encode() if isinstance(body, str) else body
    return _varint(number << 3 | 2) + _varint(len(body)) + body


def items(values: Mapping[str, Any]) -> bytes:
    texts = ((key, json.dumps(value)) for key, value in values.items())
    return b"".join(message(1, message(2, key) + message(16, text)) for key, text in texts)


def log_of(*records: bytes) -> bytes:
    """A log of LevelDB's form, whose records may span blocks; checksums are not read."""
    body = bytearray(MAGIC + bytes(HEAD - len(MAGIC)))
    for record in records:
        parts = bytearray(record)
        is_first = True
        while is_first or parts:
            room = BLOCK - len(body) % BLOCK
            if room < HEAD:
                body += bytes(room)
                continue
            chunk = parts[: room - HEAD]
            del parts[: len(chunk)]
            kind = (1 if is_first else 4) if not parts else (2 if is_first else 3)
            body += bytes(4) + len(chunk).to_bytes(2, "little") + bytes([kind]) + chunk
            is_first = False
    return bytes(body)


def file_of(
    *rows: Mapping[str, Any],
    config: Mapping[str, Any] | None = None,
    name: str = "a run",
    run_id: str = "abc",
    exit_code: int | None = 0,
    project: str = "proj",
) -> bytes:
    """A file with these logged rows."""
    about = message(1, run_id) + message(3, project) + message(8, name)
    about += message(17, b"\x08" + _varint(1_800_000_000))
    records = [message(17, about + message(4, items(config or {})))]
    records += [message(2, items(row)) for row in rows]
    if exit_code is not None:
        records.append(message(18, b"\x08" + _varint(exit_code)))
    return log_of(*records)


def test_a_run_is_read_with_all_that_was_logged() -> None:
    rows = [{"step": n, "reward": n / 4, "text": "ü" * n * 9000} for n in range(6)]
    run = read_logged_run(file_of(*rows, config={"lr": 1e-4, "_wandb": {"t": 1}}))
    assert (run.run_id, run.project, run.name) == ("abc", "proj", "a run")
    assert (run.started_at, run.config, run.exit_code) == (1.8e9, {"lr": 1e-4}, 0)
    assert run.history == rows, "rows of 50 kB span several blocks"


@given(st.data())
def test_a_file_that_ends_anywhere_has_the_rows_before(data: st.DataObject) -> None:
    rows = [{"step": n, "text": "x" * data.draw(st.integers(0, 40_000))} for n in range(3)]
    body = file_of(*rows)
    cut = data.draw(st.integers(len(MAGIC), len(body)))
    read = read_logged_run(body[:cut]).history
    assert read == rows[: len(read)]


@given(st.binary(max_size=300), st.integers(0, 200))
def test_whatever_is_in_a_file_nothing_breaks(noise: bytes, place: int) -> None:
    body = bytearray(file_of({"step": 1, "reward": 0.5}, config={"a": {"b": [1]}}))
    body[HEAD + place : HEAD + place + len(noise)] = noise
    assert isinstance(read_logged_run(bytes(body)), LoggedRun)


def test_another_file_is_refused() -> None:
    with pytest.raises(ValueError, match=r"not a \.wandb file"):
        read_logged_run(b"\x89PNG")
