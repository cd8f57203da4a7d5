"""Requests and replies of the service: refusals, bodies, pages, times and ids."""

import asyncio
import errno
import json
import shutil
import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from functools import lru_cache
from hashlib import sha1
from pathlib import Path
from typing import Any, ParamSpec, TypeVar
from uuid import NAMESPACE_URL, UUID, uuid4, uuid5

import orjson
from pydantic import BaseModel, ValidationError
from starlette.requests import Request
from starlette.responses import Response

from hud_tui.service.caller import CALLER
from hud_tui.service.engines.base import DiskFull, EngineError, EngineLost, NotFinite, StateGone

# Refused: the service does not carry out the request, and says why.


class Refused(Exception):
    """Answered as ``{"detail": …}`` with this status; nothing was changed."""

    def __init__(
        self, status: int, detail: Any, code: str | None = None, param: str | None = None
    ) -> None:
        super().__init__(_sentence(detail))
        self.status = status
        self.detail = detail
        self.code = code
        """Machine-readable code, if the wire defines one: ``context_length_exceeded``."""
        self.param = param or (_place(detail[0]) if isinstance(detail, list) and detail else None)
        """The invalid field, e.g. ``messages.0.role``; None if the error is not about a field."""


def not_found(kind: str, name: object) -> Refused:
    """404: there is no such object of this kind."""
    return Refused(404, f"no such {kind}: {name}")


def bad_field(field: str, message: str) -> Refused:
    """422 in the shape of a validation error; `field` is a path such as ``inputs.3.reward``."""
    loc = ["body", *(int(part) if part.isdigit() else part for part in field.split("."))]
    return Refused(422, [{"type": "value_error", "loc": loc, "msg": message}])


def invalid(part: str, error: ValidationError) -> Refused:
    """`bad_field` for the first invalid field of what is in `part`."""
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    return bad_field(f"{part}.{first['loc'][0]}", first["msg"])


def _sentence(detail: Any) -> str:
    """A detail as a sentence; validation errors begin with the field's name."""
    if not isinstance(detail, list):
        return str(detail)
    problems = (": ".join(filter(None, (_place(e), str(e.get("msg", ""))))) for e in detail)
    return "; ".join(problems)


def _place(error: dict[str, Any]) -> str | None:
    """The field of a validation error, without ``body`` or ``query`` in front."""
    return ".".join(str(part) for part in error.get("loc", ())[1:]) or None


RESTORE = (
    "Restore it from a backup; or save what can be read:"
    " sqlite3 service.db .recover | sqlite3 recovered.db, then put that in its place;"
    " or serve another directory: --data-dir"
)
"""What to do about a damaged database."""


FULL = (
    "the disk of the data directory is full: nothing of this was kept. Free some space (hud-tui"
    " doctor says where it goes), or serve with a lower --max-disk, then try again"
)
NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
READ_ONLY = {errno.EROFS, errno.EACCES, errno.EPERM}
WRITES = {
    sqlite3.SQLITE_IOERR_WRITE,
    sqlite3.SQLITE_IOERR_FSYNC,
    sqlite3.SQLITE_IOERR_TRUNCATE,
    sqlite3.SQLITE_IOERR_SHMSIZE,
    sqlite3.SQLITE_IOERR_SHMMAP,
}
"""SQLite's codes for a full disk, or a quota that was reached."""


def free_bytes(data_dir: Path) -> int:
    """Free bytes on the checkpoints' disk."""
    return shutil.disk_usage(data_dir / "checkpoints").free


def damaged_row(what: str) -> Refused:
    """500 for a row that is not as it was written."""
    return Refused(500, f"service.db is damaged: {what} is not as it was written. {RESTORE}")


class DamagedRow(sqlite3.DatabaseError):
    """The row with this name is not as it was written."""


def refusal(error: BaseException) -> Refused | None:
    """A disk error as a refusal: 507 if there is no room, 503 if a retry may succeed, 500 for
    damage, also of a stored text that is no JSON; None for other errors."""
    if isinstance(error, DiskFull):
        return Refused(507, FULL)
    if isinstance(error, json.JSONDecodeError):
        return damaged_row("a text")
    if isinstance(error, DamagedRow):
        return damaged_row(str(error))
    if isinstance(error, sqlite3.Error):
        return _of_sqlite(error)
    if not isinstance(error, OSError):
        return None
    if error.errno in NO_ROOM:
        return Refused(507, FULL)
    if error.errno in READ_ONLY:
        return _not_writable(error.strerror or "permission denied")
    if error.errno == errno.EIO:
        return Refused(500, f"the disk of the data directory fails: {error.strerror}: check it")
    return None


def status_of(error: EngineError) -> tuple[int, str]:
    """Status and detail of the answer to an engine's failure."""
    match error:
        case StateGone():
            return 410, str(error)
        case NotFinite():  # of 500, OpenAI's clients would ask again
            return 422, str(error)
        case EngineLost():
            return 503, str(error)
    return 500, f"the engine refused: {error}"


NO_TEXT = ("Could not decode to UTF-8", "user-defined function raised exception")
"""How sqlite3 says that a text is no UTF-8, when it is read; and that or another damage, when a
seal is checked."""


def _of_sqlite(error: sqlite3.Error) -> Refused | None:
    code = getattr(error, "sqlite_errorcode", 0)
    match code & 0xFF:
        case sqlite3.SQLITE_FULL:
            return Refused(507, FULL)
        case sqlite3.SQLITE_IOERR if code in WRITES:
            return Refused(507, f"{FULL} (or its quota is reached, or it fails: {error})")
        case sqlite3.SQLITE_IOERR:
            return Refused(500, f"the disk of the data directory fails: {error}: check it")
        case sqlite3.SQLITE_READONLY | sqlite3.SQLITE_CANTOPEN | sqlite3.SQLITE_PERM:
            return _not_writable(str(error))
        case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
            return Refused(
                503,
                "another program holds service.db locked: end it (a backup, a sqlite3 shell),"
                " then do this again; nothing of it was kept",
            )
        case sqlite3.SQLITE_CORRUPT | sqlite3.SQLITE_NOTADB:
            return Refused(
                500,
                f"service.db is damaged ({error}): stop the service (hud-tui stop); hud-tui doctor"
                " shows the fix",
            )
    if str(error).startswith(NO_TEXT):  # of sqlite3 itself, without a code
        return damaged_row("a text")
    return None


def _not_writable(why: str) -> Refused:
    return Refused(
        507,
        f"the data directory cannot be written to ({why}): nothing of this was kept. Fix its"
        " permissions, or mount its disk writable, then do this again",
    )


# Request bodies in, JSON out.


M = TypeVar("M", bound=BaseModel)
P = ParamSpec("P")
T = TypeVar("T")

MAX_BYTES = 32 * 1024 * 1024
"""Maximum size of a body, bytes; more is refused with 413. HUD's own service refuses 37 MB of
inline tokens."""
MOST_VALUES = 2**22
"""Most values in a body. Each takes about 70 bytes in memory: a million tokens with their logprobs
are 2 million values and 25 MB."""
CHUNK_S, BODY_S = 30.0, 600.0
"""Longest pause within a body, and longest time for a whole body, seconds."""
LONG = 2**16
"""Size in bytes from which the texts of a body are made tokens in a thread."""
LARGE = 2**20
"""Size in bytes from which a body is parsed in a thread."""
AT_ONCE = 2
"""Large bodies of one key that are received at the same time, and of all that are parsed."""
MOST_ERRORS = 1000
"""Most validation errors that are listed; the rest is counted."""


class LargeBodies:
    """Room for large bodies, by key: who sends slowly keeps nobody else out."""

    def __init__(self) -> None:
        self.parsing = asyncio.Semaphore(AT_ONCE)
        self._receiving: dict[str, asyncio.Semaphore] = {}

    @property
    def receiving(self) -> asyncio.Semaphore:
        """The caller's."""
        return self._receiving.setdefault(CALLER.get().name, asyncio.Semaphore(AT_ONCE))


async def read_bytes(request: Request) -> bytes:
    """The whole body. Raises Refused, 413, it is larger than `MAX_BYTES`; what was sent is read
    nevertheless, so that the client sees the answer. 408, the body is not complete in time."""
    async with AsyncExitStack() as room:
        return await _take(request, room)


async def _take(request: Request, room: AsyncExitStack) -> bytes:
    """`read_bytes`; a large body holds a slot until the stack is closed."""
    chunks, size = [], 0
    try:
        async for chunk in _in_time(request):
            if size <= LARGE < size + len(chunk):
                await room.enter_async_context(request.app.state.large.receiving)
            size += len(chunk)
            if size <= MAX_BYTES:
                chunks.append(chunk)
            elif size > 4 * MAX_BYTES:
                break
    except TimeoutError:
        raise Refused(408, f"the rest of the body did not come: {size} bytes did") from None
    if size > MAX_BYTES:
        chunks.clear()
        limit = f"the body is larger than {MAX_BYTES // 2**20} MB"
        raise Refused(413, f"{limit}: send fewer inputs a call")
    return b"".join(chunks)


async def _in_time(request: Request) -> AsyncIterator[bytes]:
    """The body's chunks. Raises TimeoutError."""
    stream = request.stream()
    async with asyncio.timeout(BODY_S):
        while True:
            async with asyncio.timeout(CHUNK_S):
                chunk = await anext(stream, None)
            if chunk is None:
                return
            yield chunk


async def read(request: Request, model: type[M]) -> M:
    """The body as one of the wire's models. Raises Refused, 400, it is not JSON; 422, it does not
    fit the model; 408 and 413 as `read_bytes`, and 413 for more than `MOST_VALUES` values."""
    async with AsyncExitStack() as room:
        body = request.state.body = await _take(request, room)
        if body.count(b",") >= MOST_VALUES:
            many = f"more than {MOST_VALUES} values in a body"
            raise Refused(413, f"{many}: send fewer inputs a call")
        return await beside(request, LARGE, _parse, model, body)


async def beside(
    request: Request, most: int, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs
) -> T:
    """Work on a request's body; if that has more than `most` bytes, in a thread, of which there are
    few at once."""
    if len(request.state.body) <= most:
        return work(*args, **kwargs)
    async with request.app.state.large.parsing:
        return await asyncio.to_thread(work, *args, **kwargs)


def _parse(model: type[M], body: bytes) -> M:
    try:
        return model.model_validate_json(body)
    except ValidationError as error:
        if error.error_count() > MOST_ERRORS:
            message = f"{error.error_count()} values do not fit: too many to name"
            raise Refused(422, [{"type": "misfit", "loc": ["body"], "msg": message}]) from None
        faults = error.errors(include_url=False, include_context=False, include_input=False)
        if faults and faults[0]["type"] == "json_invalid":
            raise Refused(400, f"the body is not JSON: {faults[0]['msg']}") from error
        detail = [{**fault, "loc": ["body", *fault["loc"]]} for fault in faults[:50]]
        raise Refused(422, detail) from error


def reply(body: Any, status: int = 200) -> Response:
    """A JSON reply of plain values and of the wire's models."""
    return Response(dumps(body), status, media_type="application/json")


def dumps(body: Any) -> bytes:
    """The JSON that `reply` sends."""
    try:
        return orjson.dumps(body, default=_plain)
    except TypeError:  # numbers beyond 64 bits that a client sent are returned unchanged
        return json.dumps(body, default=_plain).encode()


def page(items: list[Any], total: int, limit: int, offset: int) -> Response:
    """One page of a collection."""
    return reply({"items": items, "total": total, "limit": limit, "offset": offset})


def number(request: Request, name: str, default: int, most: int) -> int:
    """A query parameter as an integer from 0 to `most`. Raises Refused, 422: it is not one."""
    text = request.query_params.get(name)
    if text is None:
        return default
    if not text.isascii() or not text.isdigit():
        faults = [{"type": "int_parsing", "loc": ["query", name], "msg": "not a whole number ≥ 0"}]
        raise Refused(422, faults)
    return min(int(text[:18]), most)


def window(request: Request, default: int = 50, most: int = 1000) -> tuple[int, int]:
    """The query's limit and offset."""
    return number(request, "limit", default, most), number(request, "offset", 0, 2**31)


def _plain(value: object) -> Any:
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    raise TypeError(f"{type(value).__name__} is not JSON")


# The service's clock, in the wire's two formats.


def now() -> float:
    """Unix seconds."""
    return datetime.now(UTC).timestamp()


def iso(stamp: float) -> str:
    """ISO 8601 in UTC with microseconds; sorts chronologically as text."""
    return datetime.fromtimestamp(stamp, UTC).isoformat(timespec="microseconds")


# Ids: 32 hex digits and canonical UUIDs name the same object; the store has the latter.


def new_id() -> str:
    """A fresh id, as a canonical UUID."""
    return str(uuid4())


def named_id(kind: str, name: str) -> str:
    """Id of an object that ships with the service: the same in every data directory."""
    return str(uuid5(NAMESPACE_URL, f"hud-tui:{kind}:{name}"))


def rollout_id(job_id: str, *parts: object) -> str:
    """Id of a managed run's rollout; the same if it is sampled again."""
    named = _namespace(job_id) + " ".join(map(str, parts)).encode()
    digest = sha1(named, usedforsecurity=False).hexdigest()
    variant = "89ab"[int(digest[16], 16) & 3]
    # as uuid5 does, in a fifth of the time
    return f"{digest[:8]}-{digest[8:12]}-5{digest[13:16]}-{variant}{digest[17:20]}-{digest[20:32]}"


@lru_cache(maxsize=16)
def _namespace(job_id: str) -> bytes:
    return UUID(job_id).bytes


def canonical(text: str) -> str | None:
    """The canonical UUID for either spelling; None if it is not a UUID."""
    try:
        return str(UUID(text)) if len(text) in (32, 36) else None
    except ValueError:
        return None


def canonical_id(kind: str, text: str) -> str:
    """The canonical id for an id in a path or body. Raises Refused, 404: it is not a UUID."""
    id_ = canonical(text)
    if id_ is None:
        raise not_found(kind, text[:100])
    return id_
