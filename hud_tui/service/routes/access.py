"""Access: keys, protected models, proposals for their heads, and the log."""

import asyncio

from starlette.requests import Request
from starlette.responses import Response

from hud_tui.events import HeadMoved
from hud_tui.service.context import trainable
from hud_tui.service.http import bad_field, number, read, reply
from hud_tui.service.journal import CURSOR
from hud_tui.service.routes import Route, find_model, log_about, parts_of, path, service_of
from hud_tui.service.routes.models import head_request
from hud_tui.service.store import access, proposals
from hud_tui.service.store.checkpoints import Node
from hud_tui.service.store.db import Db
from hud_tui.wire_access import NewKey, Proposals, Propose, Role


async def list_keys(request: Request) -> Response:
    return reply(await parts_of(request).store.read(access.keys))


async def add_key(request: Request) -> Response:
    """The reply is the only one that ever has the key."""
    new = await read(request, NewKey)
    log_about(request, name=new.name, role=new.role)
    return reply(await service_of(request).access.add(new), 201)


async def revoke_key(request: Request) -> Response:
    return reply(await service_of(request).access.revoke(path(request, "name")))


async def protect(request: Request) -> Response:
    """PUT protects a model, DELETE ends that; said twice, it changes nothing."""
    parts, model = parts_of(request), trainable(await find_model(request))
    session, on = parts.session(model), request.method == "PUT"
    async with session.lock:  # no step is being taken
        await parts.store.write(access.protect, model.id, on)
    name = await parts.store.read(access.protected_by, model.id)
    return reply({"model_id": model.id, "protected_by": name})


async def list_proposals(request: Request) -> Response:
    """Whether a model is protected, and what was proposed for its head."""
    store, model = parts_of(request).store, await find_model(request)
    known = await store.read(proposals.all_of, model.id)
    by = model.protected_by
    return reply(Proposals(model_id=model.id, protected_by=by, proposals=known))


async def check_proposal(request: Request) -> Response:
    """What proposing ``?checkpoint=ID`` would come to."""
    store, model = parts_of(request).store, trainable(await find_model(request))
    named = request.query_params.get("checkpoint", "")[:200]
    return reply(await store.read(proposals.check, model.id, named))


async def propose(request: Request) -> Response:
    body, model = await read(request, Propose), trainable(await find_model(request))
    log_about(request, checkpoint=body.checkpoint_id)
    return reply(await parts_of(request).store.write(proposals.propose, model.id, body), 201)


async def approve(request: Request) -> Response:
    """Moves the head, if it is where it was when that was proposed. Answers with the proposal."""
    parts, model = parts_of(request), trainable(await find_model(request))
    asked = await parts.store.read(proposals.get, model.id, path(request, "proposal_id"))
    log_about(request, checkpoint=asked.checkpoint_id, proposed_by=asked.by)
    move = head_request(request, asked.checkpoint_id, asked)
    session = parts.session(model)

    def agree(db: Db, node: Node, moved: HeadMoved | None) -> None:
        proposals.approve(db, model.id, asked.id)

    async with session.lock:
        await session.set_head(move, agree)
    return reply(await parts.store.read(proposals.get, model.id, asked.id))


async def withdraw(request: Request) -> Response:
    parts, model = parts_of(request), await find_model(request)
    id_ = path(request, "proposal_id")
    return reply(await parts.store.write(proposals.withdraw, model.id, id_))


async def read_log(request: Request) -> Response:
    """The newest lines; for those before them ``?cursor=`` of their page, or ``?before=`` Unix
    seconds."""
    journal, limit = service_of(request).journal, number(request, "limit", 100, 1000)
    text, before = request.query_params.get("before"), None
    if text is not None:
        try:
            before = float(text)
        except ValueError as error:
            raise bad_field("before", "Unix seconds") from error
    cursor = request.query_params.get("cursor", "")
    if cursor and not CURSOR.fullmatch(cursor):
        raise bad_field("cursor", "that of a page")
    return reply(await asyncio.to_thread(journal.newest, limit, before, cursor))


_MODEL = "/v2/models/{model_id:path}"
_HEAD = _MODEL + "/head/proposals"

ROUTES = [
    Route("/v1/keys", list_keys, needs=Role.ADMIN, does="list keys", is_logged=False),
    Route("/v1/keys", add_key, ["POST"], Role.ADMIN, "make a key"),
    Route("/v1/keys/{name}", revoke_key, ["DELETE"], Role.ADMIN, "revoke a key"),
    Route("/v1/log", read_log),
    Route(_MODEL + "/protection", protect, ["PUT", "DELETE"], Role.ADMIN, "protect a model"),
    Route(_HEAD, list_proposals),
    Route(_HEAD + "/check", check_proposal, ["GET"], Role.STEER, "propose a head", False),
    Route(_HEAD, propose, ["POST"], Role.STEER, "propose a head"),
    Route(_HEAD + "/{proposal_id}/approve", approve, ["POST"], Role.STEER, "approve a head"),
    Route(_HEAD + "/{proposal_id}/withdraw", withdraw, ["POST"], Role.STEER, "withdraw a proposal"),
]
