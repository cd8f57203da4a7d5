"""Reads a ``.wandb`` file: what the SDK of Weights & Biases writes of one run.

It is a log of LevelDB's form whose records are protocol buffers. The few fields that say what a run
was given and what it logged are read here, so that no SDK is needed, whatever version wrote them. A
file that is still being written, or whose writer was killed, is read up to its last whole record.

Source: LevelDB, doc/log_format.md; Protocol Buffers, "Encoding"; wandb 0.31,
wandb/proto/wandb_internal.proto.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

MAGIC = b":W&B"
BLOCK, HEAD = 32_768, 7
"""Size of a block, and of a chunk's head: checksum (4), length (2), kind (1). The file's own head
has as many bytes."""
FULL, FIRST, MIDDLE, LAST = 1, 2, 3, 4
HISTORY, CONFIG, RUN, EXIT = 2, 5, 17, 18
"""Fields of a record."""
ITEM_KEY, ITEM_NESTED, ITEM_JSON = 1, 2, 16
RUN_TEXTS = {1: "run_id", 3: "project", 8: "name"}
RUN_CONFIG, RUN_START = 4, 17
LARGEST = 64 << 20
"""Maximum bytes of one record."""
Fields = dict[int, list[int | bytes]]


@dataclass
class LoggedRun:
    """What one file has of a run."""

    run_id: str = ""
    project: str = ""
    name: str = ""
    started_at: float | None = None
    """Unix seconds."""
    config: dict[str, Any] = field(default_factory=dict)
    history: list[dict[str, Any]] = field(default_factory=list)
    """The logged rows in their order, by key; nested keys joined with dots."""
    exit_code: int | None = None
    """None if its writer has not ended it."""


def read_logged_run(body: bytes) -> LoggedRun:
    """The run in a file. Raises ValueError: it is no ``.wandb`` file."""
    run = LoggedRun()
    for record in _records(body):
        fields = _fields(record)
        for about in _messages(fields, RUN):
            _take_run(run, about)
        for config in _messages(fields, CONFIG):
            _take_config(run, config)
        run.history += filter(None, (dict(_items(row)) for row in _messages(fields, HISTORY)))
        for ended in _messages(fields, EXIT):
            code = ended.get(1, [0])[-1]
            run.exit_code = code if isinstance(code, int) else 0
    return run


def _take_run(run: LoggedRun, fields: Fields) -> None:
    for number, name in RUN_TEXTS.items():
        if text := _text(fields, number):
            setattr(run, name, text)
    for config in _messages(fields, RUN_CONFIG):
        _take_config(run, config)
    for start in _messages(fields, RUN_START):
        seconds = start.get(1, [0])[-1]
        run.started_at = float(seconds) if isinstance(seconds, int) else None


def _take_config(run: LoggedRun, fields: Fields) -> None:
    run.config |= {key: value for key, value in _items(fields) if not key.startswith("_wandb")}


def _items(fields: Fields) -> Iterator[tuple[str, Any]]:
    """Keys and values of a list of items."""
    for item in _messages(fields, 1):
        nested = [name.decode("utf-8", "replace") for name in _bytes(item, ITEM_NESTED)]
        key, value = ".".join(nested) or _text(item, ITEM_KEY), _text(item, ITEM_JSON)
        try:
            yield key, json.loads(value)
        except (ValueError, RecursionError):
            continue  # of a later form


def _text(fields: Fields, number: int) -> str:
    return b"".join(_bytes(fields, number)[-1:]).decode("utf-8", "replace")


def _messages(fields: Fields, number: int) -> Iterator[Fields]:
    return map(_fields, _bytes(fields, number))


def _bytes(fields: Fields, number: int) -> list[bytes]:
    return [value for value in fields.get(number, ()) if isinstance(value, bytes)]


def _records(body: bytes) -> Iterator[bytes]:
    """The whole records of a log."""
    if body[:4] != MAGIC:
        raise ValueError("not a .wandb file")
    position, parts = HEAD, bytearray()
    while position + HEAD <= len(body):
        room = BLOCK - position % BLOCK
        if room < HEAD:  # the rest of a block that no head fits in
            position += room
            continue
        length = int.from_bytes(body[position + 4 : position + 6], "little")
        kind = body[position + 6]
        chunk = body[position + HEAD : position + HEAD + length]
        if kind not in (FULL, FIRST, MIDDLE, LAST) or len(chunk) < length:
            return
        position += HEAD + length
        if kind in (FULL, FIRST):
            parts = bytearray()
        parts += chunk
        if len(parts) > LARGEST:
            return
        if kind in (FULL, LAST):
            yield bytes(parts)


def _fields(message: bytes) -> Fields:
    """The fields of a message by number; empty from where it cannot be read."""
    fields: Fields = {}
    position = 0
    try:
        while position < len(message):
            tag, position = _varint(message, position)
            value: int | bytes
            match tag & 7:
                case 0:
                    value, position = _varint(message, position)
                case 2:
                    length, position = _varint(message, position)
                    value, position = message[position : position + length], position + length
                case 1 | 5 as kind:  # numbers of fixed size, which none of the fields above is
                    value, position = b"", position + (8 if kind == 1 else 4)
                case _:
                    return fields
            fields.setdefault(tag >> 3, []).append(value)
    except IndexError:
        return fields
    return fields


def _varint(message: bytes, position: int) -> tuple[int, int]:
    """A number and the position after it. Raises IndexError: the message ends before it does."""
    value = shift = 0
    while True:
        byte = message[position]
        value |= (byte & 127) << shift
        position, shift = position + 1, shift + 7
        if byte < 128:
            return value, position
