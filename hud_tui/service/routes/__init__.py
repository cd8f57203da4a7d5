"""Routes: parse, call, serialize. One file per area, each with its list ROUTES."""

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack

import starlette.routing
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from hud_tui.service.caller import CALLER
from hud_tui.service.context import ServiceContext
from hud_tui.service.http import Refused
from hud_tui.service.journal import GONE
from hud_tui.service.service import Service
from hud_tui.service.store.models import ModelRow, find
from hud_tui.wire_access import Role, why_not

REPLAYED = b"idempotency-replayed"
"""Header of an answer that a request got before, maybe that of another key."""
Handler = Callable[[Request], Awaitable[Response]]


class Route(starlette.routing.Route):
    """A path with the role that calling it needs, and what it does, in the words of the log."""

    def __init__(
        self,
        path: str,
        endpoint: Handler,
        methods: Sequence[str] = ("GET",),
        needs: Role = Role.READ,
        does: str = "",
        is_logged: bool = True,
        is_stream: bool = False,
    ) -> None:
        """
        Args:
            does: What it changes, e.g. ``fork a model``; empty if nothing.
            is_logged: Whether each call that changes something has a line in the log. Rollouts and
                reports of drivers have none: there are hundreds of them per step, which has one.
            is_stream: Whether its answer goes on for as long as somebody reads it.
        """
        super().__init__(path, endpoint, methods=list(methods))
        self.needs, self.does, self.is_logged = needs, does, is_logged
        self._takes_turns = "GET" in methods and not is_stream

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] not in (self.methods or ()):
            await super().handle(scope, receive, send)  # answers 405
            return
        if not (self.does and self.is_logged):
            self._check()
            await (self._in_turn if self._takes_turns else super().handle)(scope, receive, send)
            return
        is_written = False

        def write(status: int, repeated: bool = False) -> None:
            nonlocal is_written
            if not is_written:
                is_written = True
                shown = {name: str(about[name]) for name in about}
                journal = scope["app"].state.service.journal
                journal.write(scope, self.does, status, shown, repeated)

        async def noting(message: Message) -> None:
            if message["type"] == "http.response.start":
                # whoever has the answer finds the line
                write(message["status"], REPLAYED in dict(message["headers"]))
            await send(message)

        about = scope.setdefault("state", {})["about"] = dict(scope.get("path_params", {}))
        try:
            self._check()
            await super().handle(scope, receive, noting)
        except Refused as refused:
            write(refused.status)
            raise
        except Exception:
            write(500)
            raise
        finally:
            write(GONE)

    async def _in_turn(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Carry out a read when it is the caller's turn. How fast the answer is read makes no
        difference to the next one."""
        async with AsyncExitStack() as turn:
            access = scope["app"].state.service.access
            await turn.enter_async_context(access.reading(CALLER.get()))

            async def sending(message: Message) -> None:
                await turn.aclose()
                await send(message)

            await super().handle(scope, receive, sending)

    def _check(self) -> None:
        refuse_role(self.needs, self.does or "do that")


def refuse_role(needed: Role, what: str) -> None:
    """Raises Refused, 403: the caller's role does not include the needed one."""
    caller = CALLER.get()
    if not caller.role.may(needed):
        raise Refused(403, f"{why_not(caller.name, caller.role, needed, what)}: ask an admin")


def log_about(request: Request, **about: str | None) -> None:
    """Add to the log's line of this request what it is about."""
    request.state.about.update({name: text for name, text in about.items() if text})


def service_of(request: Request) -> Service:
    service = request.app.state.service
    assert isinstance(service, Service)
    return service


def parts_of(request: Request) -> ServiceContext:
    """The service's collaborators."""
    return service_of(request).parts


def path(request: Request, name: str) -> str:
    """A parameter of the path."""
    return str(request.path_params[name])


ANY = ("GET", "POST", "PUT", "PATCH", "DELETE")
"""The methods of an `absent` path that HUD has for writing too."""


def absent(instead: str) -> Handler:
    """The handler of a path that HUD has and this service does not; the answer says what to use
    instead."""

    async def refuse(request: Request) -> Response:
        raise Refused(404, f"this service has no {request.url.path[:200]}: {instead}")

    return refuse


async def find_model(request: Request) -> ModelRow:
    """The model in the path, by id, slug or name. Raises Refused, 404."""
    model = await parts_of(request).store.read(find, path(request, "model_id"))
    about = getattr(request.state, "about", None)
    if about is not None:  # a name says more than an id, and there are several for each model
        about.pop("model_id", None)
        about["model"] = model.slug
    return model
