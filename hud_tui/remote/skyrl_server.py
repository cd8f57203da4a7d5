"""SkyRL's Tinker API behind a key, for SDKs newer than the 0.25 that it was written for.

Only this file is copied to the machine, and run there; it imports nothing of ours. SkyRL's own
files are not changed:
  * On Python 3.11, pydantic needs typing_extensions' TypedDict, which is put in place first.
  * SkyRL starts its engine with `uv run` in a checkout of its source; here it is this file, with
    the argument `engine`.
  * Answers to asample get the `sample_sequence_ids` that tinker requires since 0.26.
  * If HUD_TUI_SERVER_KEY names a file, calls must have the key in it, since other users of the
    machine can reach its loopback. HUD_TUI_SERVER_USED names a file whose date is set with each
    call.

usage: skyrl_server.py --base-model DIR --backend jax … (SkyRL's flags) --host H --port P
"""

import sys

if sys.version_info < (3, 12):
    import typing

    import typing_extensions

    typing.TypedDict = typing_extensions.TypedDict

import argparse
import hmac
import json
import os
import runpy
import uuid
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

Scope = dict[str, Any]
Message = dict[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]
IDLE = frozenset({"/api/v1/healthz", "/api/v1/session_heartbeat", "/api/v1/telemetry"})
"""Calls that clients make even when nobody uses the server."""


class Keyed:
    """ASGI middleware: refuses calls without the key, and records the time of the last one."""

    def __init__(self, app: App, key: str, used: Path | None) -> None:
        self.app, self.key, self.used = app, key.encode(), used

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] not in IDLE:
            if self.key and not hmac.compare_digest(_sent_key(scope), self.key):
                return await _refuse(send)
            if self.used is not None:
                self.used.touch()
        await self.app(scope, receive, send)


def _sent_key(scope: Scope) -> bytes:
    headers: dict[bytes, bytes] = dict(scope["headers"])
    bearer = headers.get(b"authorization", b"").removeprefix(b"Bearer ")
    return headers.get(b"x-api-key", bearer).strip()


async def _refuse(send: Send) -> None:
    headers = [(b"content-type", b"application/json")]
    await send({"type": "http.response.start", "status": 401, "headers": headers})
    await send({"type": "http.response.body", "body": b'{"detail": "missing or wrong API key"}'})


class SequenceIds:
    """ASGI middleware: adds the missing field to answers of POST /api/v1/asample."""

    def __init__(self, app: App) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] != "/api/v1/asample":
            return await self.app(scope, receive, send)
        asked = await _read(receive)
        messages: list[Message] = [{"type": "http.request", "body": asked, "more_body": False}]

        async def replay() -> Message:
            return messages.pop() if messages else await receive()

        answer: list[Message] = []

        async def keep(message: Message) -> None:
            answer.append(message)

        await self.app(scope, replay, keep)
        start, body = answer[0], b"".join(part.get("body", b"") for part in answer[1:])
        if start["status"] == 200:
            count = int(json.loads(asked or b"{}").get("num_samples") or 1)
            promise = json.loads(body)
            ids = [f"{promise['request_id']}-{i}-{uuid.uuid4().hex[:6]}" for i in range(count)]
            promise.setdefault("sample_sequence_ids", ids)
            body = json.dumps(promise).encode()
        headers = [pair for pair in start["headers"] if pair[0].lower() != b"content-length"]
        length = (b"content-length", str(len(body)).encode())
        await send({**start, "headers": [*headers, length]})
        await send({"type": "http.response.body", "body": body})


async def _read(receive: Receive) -> bytes:
    body, more = b"", True
    while more:
        message = await receive()
        body += message.get("body", b"")
        more = message.get("more_body", False)
    return body


def main(uvicorn: Any, api: Any, config: Any) -> None:
    """Serve; the arguments are modules."""
    parser = argparse.ArgumentParser()
    config.add_model(parser, config.EngineConfig)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8765)
    arguments = vars(parser.parse_args())
    fields = config.EngineConfig.model_fields
    own = {name: value for name, value in arguments.items() if name in fields}
    me = str(Path(__file__).resolve())
    api._build_uv_run_cmd_engine = lambda _, cfg: [
        sys.executable,
        me,
        "engine",
        *config.config_to_argv(cfg),
    ]
    api.app.state.engine_config = config.EngineConfig.model_validate(own)
    level = os.environ.get("LOG", "warning")
    file, used = os.environ.get("HUD_TUI_SERVER_KEY"), os.environ.get("HUD_TUI_SERVER_USED")
    key = Path(file).read_text().strip() if file else ""
    app = Keyed(SequenceIds(api.app), key, Path(used) if used else None)
    uvicorn.run(app, host=arguments["host"], port=arguments["port"], log_level=level)


if __name__ == "__main__":
    if sys.argv[1:2] == ["engine"]:  # runs as SkyRL's own module would
        sys.argv = ["skyrl.tinker.engine", *sys.argv[2:]]
        runpy.run_module("skyrl.tinker.engine", run_name="__main__")
    else:
        import uvicorn
        from skyrl.tinker import api, config

        main(uvicorn, api, config)
