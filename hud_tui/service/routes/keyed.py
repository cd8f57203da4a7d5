"""Idempotency-Key: a write that comes again with its key is answered again, not done again.

``POST …/train/calls/{key}/settle`` says what became of a call, and fences it: one that
has not arrived by then is refused when it does. So a sender who lost an answer can know.
"""

from collections.abc import Awaitable, Callable
from typing import Any

import orjson
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from hud_tui.service.bodies import reply
from hud_tui.service.parts import Parts, trainable
from hud_tui.service.refusals import Refused
from hud_tui.service.routes import parts_of, path, service_of
from hud_tui.service.routes.catalog import find_model
from hud_tui.service.sessions import Session
from hud_tui.service.store import Db, replies
from hud_tui.service.store.models import ModelRow
from hud_tui.service.store.replies import GIVEN_UP, Asked, Kept

LONGEST = 255
REPLAYED = {"Idempotency-Replayed": "true"}


async def answer(
    request: Request, model: ModelRow, act: Callable[[Session, Asked | None], Awaitable[Any]]
) -> Response:
    """Do a training call, alone in the model's session, unless its key was answered before.

    Args:
        request: Whose body has been read.
        model: The fork that is trained.
        act: Does it and keeps the answer under the key; returns the answer.

    Raises:
        Refused: 409, a managed run trains the model; 409 or 422, the key was used.
    """
    parts, asked = parts_of(request), asked_of(request)
    runner = service_of(request).runner
    session = parts.session(model)
    kept = await _find(parts, session, model, asked)
    if kept is None:
        await runner.refuse_busy(model.id)
        async with session.lock:
            kept = await _find(parts, session, model, asked)
            if kept is None:
                await runner.refuse_busy(model.id)  # it may have begun meanwhile
                body = await act(session, asked)
        await parts.rest()
    return reply(body) if kept is None or asked is None else again(kept, asked)


def asked_of(request: Request) -> Asked | None:
    """The key of a request whose body has been read; None where it has none.

    Raises:
        Refused: 400, it is blank or too long.
    """
    key = request.headers.get("idempotency-key")
    if key is None:
        return None
    if not key.strip() or len(key) > LONGEST or not key.isprintable():
        raise Refused(400, f"Idempotency-Key must have 1 to {LONGEST} printable characters")
    call = request.url.path.rpartition("/")[2]
    return Asked(key, call, replies.digest(request.state.body))


def again(kept: Kept, asked: Asked) -> Response:
    """The answer that was given before. Raises Refused as `Kept.refuse_other` does."""
    kept.refuse_other(asked)
    return Response(kept.body, kept.status, REPLAYED, "application/json")


async def settle(request: Request) -> Response:
    """What became of the call with a key: done, dropped (its gradients are), or never."""
    parts, model = parts_of(request), trainable(await find_model(request))
    key, session = path(request, "key"), parts.session(model)
    if len(key) > LONGEST:
        raise Refused(400, f"a key has at most {LONGEST} characters")
    async with session.lock:  # one that is being done is waited for
        waiting = session.passes.find(key)
        kept = await parts.store.write(_settle, model.id, key, waiting)
    if kept is None:
        return reply({"state": "never", "call": None, "reply": None})
    state = "dropped" if kept.dropped else "done"
    return reply({"state": state, "call": kept.asked.call, "reply": orjson.loads(kept.body)})


def _settle(db: Db, model_id: str, key: str, waiting: Kept | None) -> Kept | None:
    kept = replies.find(db, model_id, key) or waiting
    if kept is None:
        replies.give_up(db, model_id, key)
    return None if kept is None or kept.asked.call == GIVEN_UP else kept


async def _find(
    parts: Parts, session: Session, model: ModelRow, asked: Asked | None
) -> Kept | None:
    """What was answered to a key. The store has the last word: it knows of steps."""
    if asked is None:
        return None
    stored = await parts.store.read(replies.find, model.id, asked.key)
    return stored or session.passes.find(asked.key)


ROUTES = [Route("/v1/models/{model_id:path}/train/calls/{key}/settle", settle, methods=["POST"])]
