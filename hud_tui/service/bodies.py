"""Request bodies in, JSON out."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any, TypeVar

import orjson
from pydantic import BaseModel, ValidationError
from starlette.requests import Request
from starlette.responses import Response

from hud_tui.service.refusals import Refused

M = TypeVar("M", bound=BaseModel)

MAX_BYTES = 32 * 1024 * 1024
"""A larger body is refused with 413. HUD's own service refuses 37 MB of inline tokens."""
MOST_VALUES = 2**22
"""Most values in a body. Each takes some 70 bytes once it is read: a million tokens with their
logprobs are 2 million values and 25 MB."""
CHUNK_S, BODY_S = 30.0, 600.0
"""Longest silence within a body, and longest that a whole one may take."""
LARGE = 2**20
"""A larger body is read beside the event loop, and only `AT_ONCE` of them together."""
AT_ONCE = 2
"""Large bodies that are taken in together; the others' senders wait."""
MOST_ERRORS = 1000
"""Of more values that do not fit only the number is said."""


async def read_bytes(request: Request) -> bytes:
    """The whole body.

    Raises:
        Refused: 413, it is larger than `MAX_BYTES`; what there was of it has been read,
            so that the client gets to see the answer. 408, it does not come to an end.
    """
    async with AsyncExitStack() as room:
        return await _take(request, room)


async def _take(request: Request, room: AsyncExitStack) -> bytes:
    """`read_bytes`; a large body has its room until the stack ends."""
    chunks, size = [], 0
    try:
        async for chunk in _in_time(request):
            if size <= LARGE < size + len(chunk):
                await room.enter_async_context(request.app.state.large)
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
    """The body's pieces. Raises TimeoutError."""
    stream = request.stream()
    async with asyncio.timeout(BODY_S):
        while True:
            async with asyncio.timeout(CHUNK_S):
                chunk = await anext(stream, None)
            if chunk is None:
                return
            yield chunk


async def read(request: Request, model: type[M]) -> M:
    """The body as one of the wire's models.

    Raises:
        Refused: 400, it is not JSON; 422, it does not fit; 408 and 413 as `read_bytes`, and 413
            for more than `MOST_VALUES` values.
    """
    async with AsyncExitStack() as room:
        body = request.state.body = await _take(request, room)
        if body.count(b",") >= MOST_VALUES:
            many = f"more than {MOST_VALUES} values in a body"
            raise Refused(413, f"{many}: send fewer inputs a call")
        if len(body) > LARGE:
            return await asyncio.to_thread(_parse, model, body)
        return _parse(model, body)


def _parse(model: type[M], body: bytes) -> M:
    try:
        return model.model_validate_json(body)
    except ValidationError as error:
        if error.error_count() > MOST_ERRORS:
            message = f"{error.error_count()} values do not fit: too many to name"
            raise Refused(422, [{"type": "misfit", "loc": ["body"], "msg": message}]) from None
        found = error.errors(include_url=False, include_context=False, include_input=False)
        if found and found[0]["type"] == "json_invalid":
            raise Refused(400, f"the body is not JSON: {found[0]['msg']}") from error
        detail = [{**one, "loc": ["body", *one["loc"]]} for one in found[:50]]
        raise Refused(422, detail) from error


def reply(body: Any, status: int = 200) -> Response:
    """JSON of plain values and of the wire's models."""
    return Response(dumps(body), status, media_type="application/json")


def dumps(body: Any) -> bytes:
    """`reply`'s JSON."""
    try:
        return orjson.dumps(body, default=_plain)
    except TypeError:  # a client's number beyond 64 bits comes back as it came
        return json.dumps(body, default=_plain).encode()


def page(items: list[Any], total: int, limit: int, offset: int) -> Response:
    """One page of a collection."""
    return reply({"items": items, "total": total, "limit": limit, "offset": offset})


def number(request: Request, name: str, default: int, most: int) -> int:
    """A query's non-negative integer, at most `most`.

    Raises:
        Refused: 422, it is not one.
    """
    text = request.query_params.get(name)
    if text is None:
        return default
    if not text.isascii() or not text.isdigit():
        found = [{"type": "int_parsing", "loc": ["query", name], "msg": "not a whole number ≥ 0"}]
        raise Refused(422, found)
    return min(int(text[:18]), most)


def window(request: Request, default: int = 50, most: int = 1000) -> tuple[int, int]:
    """The query's limit and offset."""
    return number(request, "limit", default, most), number(request, "offset", 0, 2**31)


def _plain(value: object) -> Any:
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    raise TypeError(f"{type(value).__name__} is not JSON")
