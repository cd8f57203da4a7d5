"""Models: the owner of the key, the catalog, forks, the checkpoint tree, the head, and events."""

import asyncio
from collections.abc import AsyncIterator, Callable
from functools import partial
from math import inf
from typing import Any
from urllib.parse import parse_qs

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from hud_tui import __version__, build
from hud_tui.events import Act, Actor, HeadMoved
from hud_tui.rl.text import one_line
from hud_tui.service.caller import ADMIN, CALLER
from hud_tui.service.context import ServiceContext, trainable
from hud_tui.service.engines.base import About, Base
from hud_tui.service.http import (
    bad_field,
    canonical,
    iso,
    named_id,
    not_found,
    page,
    read,
    reply,
    window,
)
from hud_tui.service.journal import program_of
from hud_tui.service.routes import Route, absent, find_model, log_about, parts_of, path, service_of
from hud_tui.service.routes.idempotency import Keep, once
from hud_tui.service.store import checkpoints, events, models, traces
from hud_tui.service.store.checkpoints import HeadRequest, Node
from hud_tui.service.store.db import Db
from hud_tui.service.store.events import RESET
from hud_tui.service.store.jobs import SAY_START
from hud_tui.service.store.models import ModelRow
from hud_tui.wire import Disk
from hud_tui.wire_access import Proposal, Role
from hud_tui.wire_changes import Fork, SetHead

IN_THE_TREE = "GET /v2/models/{id}/checkpoints has each step's rewards by task"
FRESH_MOMENTS = "only its weights are kept: training from it starts with fresh Adam moments"


async def me(request: Request) -> Response:
    """There is one user and one team of HUD's; keys have names of their own."""
    user, team = named_id("user", "local"), named_id("team", "local")
    which = {"version": __version__, "build": build.digest(), "data_id": service_of(request).id}
    caller = CALLER.get()
    expires = None if caller.expires_at == inf else caller.expires_at
    whom = {"key": caller.name, "role": caller.role, "expires_at": expires}
    return reply({"user_id": user, "team_id": team, **which, **whom})


async def catalog(request: Request) -> Response:
    parts, (limit, offset) = parts_of(request), window(request, default=100)
    rows, total = await parts.store.read(models.catalog, limit, offset)
    bases = parts.bases()
    disks = {name: await parts.retention.disk(base) for name, base in bases.items()}
    about = parts.engine.about()
    shown = [record(row, bases.get(row.base), about, disks.get(row.base)) for row in rows]
    return page(shown, total, limit, offset)


async def get_model(request: Request) -> Response:
    return reply(await _record(parts_of(request), await find_model(request)))


async def resolve(request: Request) -> Response:
    """Looks a name up, as older clients do."""
    parts = parts_of(request)
    model = await parts.store.read(models.find, request.query_params.get("model", ""))
    return reply(await _record(parts, model))


async def fork(request: Request) -> Response:
    parts, body = parts_of(request), await read(request, Fork)
    log_about(request, source=body.source_model_id, name=body.name, checkpoint=body.checkpoint_id)
    source = await parts.store.read(models.find, body.source_model_id)
    base = parts.base(source)
    start = body.checkpoint_id
    is_silent = start is None and "checkpoint_id" in body.model_fields_set
    if is_silent and await parts.store.read(checkpoints.head_id, source.id) is not None:
        raise bad_field("checkpoint_id", SAY_START)
    disk = await parts.retention.disk(base)

    def make(db: Db, keep: Keep) -> dict[str, Any]:
        made = models.fork(db, source, body.name, start)
        shown = record(made, base, parts.engine.about(), disk)
        keep(db, shown)
        return shown

    async def act(keep: Keep) -> dict[str, Any]:
        state, _ = await parts.store.read(models.start, source, start)
        if state is not None:
            await parts.weights.check(state)
        return await parts.store.write(make, keep)

    return await once(request, source.id, act, 201)


async def tree(request: Request) -> Response:
    parts, id_ = parts_of(request), canonical(path(request, "model_id"))
    if id_ is None or id_ not in parts.trees:
        id_ = (await find_model(request)).id
    body, etag = await parts.trees.read(parts.store, id_)
    headers = {"ETag": etag, "Cache-Control": "no-cache"}
    sent = request.headers.get("if-none-match", "")
    if etag in (tag.strip().removeprefix("W/") for tag in sent.split(",")):
        return Response(status_code=304, headers=headers)
    return Response(body, headers=headers, media_type="application/json")


async def pin(request: Request) -> Response:
    """PUT exempts a checkpoint from the disk limit, DELETE ends that; answers with its row."""
    parts, model = parts_of(request), await find_model(request)
    ref, pinned = path(request, "checkpoint_id"), request.method == "PUT"
    row = await parts.store.write(checkpoints.pin, model.id, ref, pinned)
    parts.retention.wake()
    return Response(row, media_type="application/json")


async def checkpoint_traces(request: Request) -> Response:
    parts, model = parts_of(request), await find_model(request)
    (limit, offset), ref = window(request, 200, 10_000), path(request, "checkpoint_id")
    rows = await parts.store.read(traces.of_checkpoint, model.id, ref, limit, offset)
    names = ("status", "reward", "task_slug", "group_id", "rollout")
    shown = [
        {"trace_id": row["id"], "created_at": iso(row["created_at"])}
        | {name: row[name] for name in names}
        for row in rows
    ]
    return reply(shown)


async def set_head(request: Request) -> Response:
    """``If-Match`` may have the head that the client saw, or ``"none"``; without it nothing is
    checked."""
    parts, body = parts_of(request), await read(request, SetHead)
    model = trainable(await find_model(request))
    id_ = canonical(body.checkpoint_id)
    if id_ is None:
        raise not_found("checkpoint", body.checkpoint_id[:200])
    session, move = parts.session(model), head_request(request, id_)
    log_about(request, checkpoint=id_)
    shown = await _record(parts, model)

    def answer(node: Node, moved: HeadMoved | None) -> dict[str, Any]:
        note = FRESH_MOMENTS if node.state == "weights" else None
        previous = node.id if moved is None else moved.previous
        return {**shown, "note": note, "previous": previous, "moved_at": moved and moved.at}

    async def act(keep: Keep) -> dict[str, Any]:
        def also(db: Db, node: Node, moved: HeadMoved | None) -> None:
            keep(db, answer(node, moved))

        async with session.lock:
            return answer(*await session.set_head(move, also))

    return await once(request, model.id, act)


async def head_moves(request: Request) -> Response:
    """All moves of the head that somebody made, oldest first, and since when none is missing."""
    parts, model = parts_of(request), await find_model(request)
    moves = await parts.store.read(events.moves, model.id)
    return Response(moves.model_dump_json(), media_type="application/json")


HERE = frozenset({"127.0.0.1", "::1"})


def head_request(
    request: Request, checkpoint_id: str, approved: Proposal | None = None
) -> HeadRequest:
    """What a request asks for: by whom, and whether it undoes or redoes a move, is in the header
    ``HUD-TUI-Move``, ``program=app&host=laptop&act=undo``. Of a client without it, the User-Agent
    and address are taken. `approved`: the proposal that it agrees to."""
    program, host = program_of(request.scope)
    address = "" if request.client is None else request.client.host
    host = host or ("" if address in HERE else one_line(address))
    key = "" if CALLER.get() is ADMIN else CALLER.get().name
    by = Actor(program=program, host=host, key=key)
    if approved is not None:
        by = by.model_copy(update={"proposed_by": approved.by})
        return HeadRequest(checkpoint_id, [approved.previous], by, approved=approved.id)
    act = parse_qs(request.headers.get("hud-tui-move", "")).get("act", [""])[0]
    return HeadRequest(checkpoint_id, _seen(request), by, Act(act) if act in list(Act) else Act.SET)


def _seen(request: Request) -> list[str | None] | None:
    """The ids in If-Match: quoted, comma-separated; ``*`` is whatever the head is."""
    header = request.headers.get("if-match", "*")
    tags = [tag.strip().strip('"') for tag in header.split(",")]
    if "*" in tags:
        return None
    return [None if tag == "none" else canonical(tag) or tag for tag in tags]


async def _record(parts: ServiceContext, model: ModelRow) -> dict[str, Any]:
    base = parts.bases().get(model.base)
    return record(model, base, parts.engine.about(), await parts.retention.disk(base))


def record(model: ModelRow, base: Base | None, about: About, disk: Disk | None) -> dict[str, Any]:
    """One row of the catalog. `base`: None if the engine does not offer it."""
    return {
        "id": model.id,
        "model_name": model.slug,
        "name": model.name,
        "description": base.description if base and model.is_base else None,
        "sdk_agent_type": "openai_compatible",
        "is_trainable": base is not None,
        "public": model.is_base,
        "status": "ready" if base else "unavailable",
        "provider": {"name": model.base.partition("/")[0]},
        "base_model": base.name if base else model.base,
        "context_length": base.context if base else None,
        "forked_from": model.forked_from,
        "checkpoint_count": model.checkpoint_count,
        "created_at": iso(model.created_at),
        "training_defaults": vars(base.defaults) if base else None,
        "disk": None if disk is None else disk.model_dump(),
        "engine": vars(about) if base else None,
        "by": model.by,
        "protected_by": model.protected_by,
    }


# The event stream of a model: server-sent events from the event log.
#
# Every reader is served from the store, however slow it is, so nothing accumulates in memory.
# Nothing is skipped except, for a reader far behind, the rollouts of past steps. Source: WHATWG
# HTML, section 9.2 (server-sent events).


KEEP_ALIVE_S = 5.0
"""Seconds between two comments. They are not followed by a blank line, which some readers take for
an event."""


async def follow(request: Request) -> Response:
    """Events after Last-Event-ID, else from now on; `X-Last-Event-ID` says where the stream
    begins."""
    parts, model = parts_of(request), await find_model(request)
    tail = await parts.store.read(events.newest)
    last, reset = tail, False
    last_id = request.headers.get("last-event-id")
    if last_id is not None:
        last = int(last_id) if last_id.isascii() and last_id.isdigit() and len(last_id) < 19 else -1
        if last < 0 or not await parts.store.read(events.can_resume, model.id, last):
            last, reset = tail, True
    headers = {"Cache-Control": "no-store", "X-Last-Event-ID": str(last)}
    accepts = partial(service_of(request).access.accepts, CALLER.get())
    stream = _follow_stream(parts, model.id, last, reset, accepts)
    return StreamingResponse(stream, media_type="text/event-stream", headers=headers)


async def _follow_stream(
    parts: ServiceContext, model_id: str, last: int, reset: bool, accepts: Callable[[], bool]
) -> AsyncIterator[bytes]:
    """`accepts`: whether the key that asked is accepted still; the stream ends with that."""
    yield b": open\n"
    if reset:
        yield RESET
    while accepts() and not parts.hub.closed:
        signal = parts.hub.signal(model_id)
        last, frames = await parts.frames.after(parts.store, model_id, last, signal)
        if frames:
            yield frames
            continue
        try:
            async with asyncio.timeout(KEEP_ALIVE_S):
                await signal.wait()
        except TimeoutError:
            yield b": still here\n"


_MODEL = "/v2/models/{model_id:path}"
_NODE = _MODEL + "/checkpoints/{checkpoint_id}"
ROUTES = [
    Route("/v2/auth/me", me),
    Route("/v2/models", catalog),
    Route("/v2/models/fork", fork, ["POST"], Role.TRAIN, "fork a model"),
    Route("/v2/models/resolve", resolve),
    Route(_NODE + "/traces", checkpoint_traces),
    Route(_NODE + "/pin", pin, ["PUT", "DELETE"], Role.TRAIN, "pin a checkpoint"),
    Route(_MODEL + "/checkpoints", tree),
    Route(_MODEL + "/head/moves", head_moves),
    Route(_MODEL + "/head", set_head, ["PUT"], Role.STEER, "move a head"),
    Route(_MODEL + "/results", absent(IN_THE_TREE)),
    Route(_MODEL + "/suggested-tasksets", absent(IN_THE_TREE)),
    Route(_MODEL + "/logs", absent("GET /v2/trace/{id}/events has each turn")),
    Route(_MODEL, get_model),
    Route("/v1/models/{model_id:path}/train/events", follow, is_stream=True),
]
