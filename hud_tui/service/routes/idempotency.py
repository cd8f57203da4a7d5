"""Idempotency-Key: a repeated write with the same key gets the same answer and is not repeated.

``POST …/calls/{key}/settle``, of a model or a job, tells the outcome of a call whose answer was
lost. A call that has not arrived by then is refused if it arrives later.
"""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import orjson
from starlette.requests import Request
from starlette.responses import Response

from hud_tui.service.context import ServiceContext
from hud_tui.service.http import Refused, canonical, dumps, reply
from hud_tui.service.routes import REPLAYED, Route, find_model, parts_of, path, service_of
from hud_tui.service.session import Session
from hud_tui.service.store import jobs, replies
from hud_tui.service.store.db import Db
from hud_tui.service.store.models import ModelRow
from hud_tui.service.store.replies import GIVEN_UP, Asked, StoredReply
from hud_tui.wire_access import Role

LONGEST = 255
Keep = Callable[[Db, Any], object]
"""Stores an answer, in the transaction of the change."""


async def answer(
    request: Request, model: ModelRow, act: Callable[[Session, Asked | None], Awaitable[Any]]
) -> Response:
    """Carry out a training call under the lock of the model's session, unless its key was answered
    before. `act` stores the answer under the key, and returns it. Raises Refused, 409, a managed
    run trains the model; 409 or 422, the key was used."""
    parts, asked = parts_of(request), asked_of(request)
    runner, run = service_of(request).runner, driven_by(request)
    session = parts.session(model)
    stored = await _find(parts, session, model, asked)
    if stored is None:
        await runner.refuse_training(model.id, run)
        async with session.lock:
            stored = await _find(parts, session, model, asked)
            if stored is None:
                await runner.refuse_training(model.id, run)  # a run may have begun meanwhile
                body = await act(session, asked)
        await parts.rest()
    return reply(body) if stored is None or asked is None else again(stored, asked)


def driven_by(request: Request) -> str | None:
    """Id of the run that a client drives and this call is part of, from its header."""
    return canonical(request.headers.get("hud-tui-run", ""))


async def once(
    request: Request, scope: str, act: Callable[[Keep], Awaitable[Any]], status: int = 200
) -> Response:
    """Carry out a write, unless its key was answered before; a second request with the same key
    waits for the first.

    Args:
        request: Its body has been read.
        scope: The key's scope: the id of a model, a job or a trace.
        act: Carries it out, stores the answer in the same transaction, and returns it.
        status: Of the answer.

    Raises:
        Refused: 422, the key was used for another request; 409, it was given up.
    """
    parts, asked = parts_of(request), asked_of(request)
    if asked is None:
        return reply(await act(lambda db, body: None), status)
    async with parts.answering(scope, asked.key):
        stored = await parts.store.read(replies.find, scope, asked.key)
        if stored is not None:
            return again(stored, asked)
        keep = partial(_keep, scope=scope, asked=asked, status=status)
        return reply(await act(keep), status)


def _keep(db: Db, body: Any, scope: str, asked: Asked, status: int) -> None:
    replies.keep(db, scope, StoredReply(asked, dumps(body), status))


def asked_of(request: Request) -> Asked | None:
    """The key of a request whose body has been read; None if it has none. Raises Refused, 400, the
    key is blank or too long."""
    key = request.headers.get("idempotency-key")
    if key is None:
        return None
    if not key.strip() or len(key) > LONGEST or not key.isprintable():
        raise Refused(400, f"Idempotency-Key must have 1 to {LONGEST} printable characters")
    call = request.url.path.rpartition("/")[2]
    return Asked(key, call, replies.digest(request.state.body))


def again(stored: StoredReply, asked: Asked) -> Response:
    """The stored answer. Raises Refused as `StoredReply.refuse_other` does."""
    stored.refuse_other(asked)
    return Response(stored.body, stored.status, {REPLAYED.decode(): "true"}, "application/json")


async def settle(request: Request) -> Response:
    """Outcome of a model's call by its key: done, dropped (its gradients were), or never."""
    parts, model, key = parts_of(request), await find_model(request), _key(request)
    async with parts.answering(model.id, key):  # wait for a call in progress
        if model.is_base:
            return _settled(await parts.store.write(_settle, model.id, key))
        session = parts.session(model)
        async with session.lock:
            waiting = session.answered(key)
            return _settled(await parts.store.write(_settle, model.id, key, waiting))


async def settle_of_job(request: Request) -> Response:
    """`settle` for calls on a job."""
    parts, key = parts_of(request), _key(request)
    job = await parts.store.read(jobs.get, path(request, "job_id"))
    async with parts.answering(job["id"], key):
        return _settled(await parts.store.write(_settle, job["id"], key))


def _key(request: Request) -> str:
    key = path(request, "key")
    if len(key) > LONGEST:
        raise Refused(400, f"a key has at most {LONGEST} characters")
    return key


def _settled(stored: StoredReply | None) -> Response:
    if stored is None:
        return reply({"state": "never", "call": None, "reply": None})
    state = "dropped" if stored.dropped else "done"
    return reply({"state": state, "call": stored.asked.call, "reply": orjson.loads(stored.body)})


def _settle(db: Db, scope: str, key: str, waiting: StoredReply | None = None) -> StoredReply | None:
    stored = replies.find(db, scope, key) or waiting
    if stored is None:  # a call that arrives later is refused
        replies.keep(db, scope, StoredReply(Asked(key, GIVEN_UP, ""), b"null"))
    return None if stored is None or stored.asked.call == GIVEN_UP else stored


async def _find(
    parts: ServiceContext, session: Session, model: ModelRow, asked: Asked | None
) -> StoredReply | None:
    """The answer to a key. The store is asked last, since it knows of steps."""
    if asked is None:
        return None
    stored = await parts.store.read(replies.find, model.id, asked.key)
    return stored or session.answered(asked.key)


SETTLES = "look up the outcome of a call"
_CALLS = {"/v1/models/{model_id:path}/train": settle, "/v1/training/jobs/{job_id}": settle_of_job}
ROUTES = [
    Route(f"{of}/calls/{{key}}/settle", look_up, ["POST"], Role.TRAIN, SETTLES, False)
    for of, look_up in _CALLS.items()
]
