"""SkyRL's Tinker API on this machine's CPU, for SDKs newer than the 0.25 that it was written for.

SkyRL's own files stay as they were installed:
  * On Python 3.11 pydantic wants typing_extensions' TypedDict, which is put in place first.
  * It starts its engine with `uv run` in a checkout of its source; here it is this file, with
    the word `engine`.
  * Promises of samples get the `sample_sequence_ids` that tinker from 0.26 on insists on.

usage: server.py --base-model DIR --backend jax … (SkyRL's flags) --host H --port P
"""

import sys

if sys.version_info < (3, 12):
    import typing

    import typing_extensions

    typing.TypedDict = typing_extensions.TypedDict

import argparse
import json
import os
import runpy
import uuid
from pathlib import Path


class SequenceIds:
    """ASGI: adds what is missing to the answers of POST /api/v1/asample."""

    def __init__(self, app):
        self.app = app

    async def __call__(self, scope, receive, send):
        if scope["type"] != "http" or scope["path"] != "/api/v1/asample":
            return await self.app(scope, receive, send)
        asked = await _read(receive)
        messages = [{"type": "http.request", "body": asked, "more_body": False}]

        async def replay():
            return messages.pop() if messages else await receive()

        answer = []

        async def keep(message):
            answer.append(message)

        await self.app(scope, replay, keep)
        start, body = answer[0], b"".join(part.get("body", b"") for part in answer[1:])
        if start["status"] == 200:
            body = _with_ids(body, int(json.loads(asked or b"{}").get("num_samples") or 1))
        headers = [pair for pair in start["headers"] if pair[0].lower() != b"content-length"]
        length = (b"content-length", str(len(body)).encode())
        await send({**start, "headers": [*headers, length]})
        await send({"type": "http.response.body", "body": body})


async def _read(receive):
    body, more = b"", True
    while more:
        message = await receive()
        body += message.get("body", b"")
        more = message.get("more_body", False)
    return body


def _with_ids(body, count):
    promise = json.loads(body)
    ids = [f"{promise['request_id']}-{i}-{uuid.uuid4().hex[:6]}" for i in range(count)]
    promise.setdefault("sample_sequence_ids", ids)
    return json.dumps(promise).encode()


def main():
    from skyrl.tinker.config import EngineConfig, add_model, config_to_argv

    if sys.argv[1:2] == ["engine"]:  # as SkyRL's own module would be run
        sys.argv = ["skyrl.tinker.engine", *sys.argv[2:]]
        return runpy.run_module("skyrl.tinker.engine", run_name="__main__")

    import uvicorn
    from skyrl.tinker import api

    parser = argparse.ArgumentParser()
    add_model(parser, EngineConfig)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8765)
    given = vars(parser.parse_args())
    own = {name: value for name, value in given.items() if name in EngineConfig.model_fields}
    me = str(Path(__file__).resolve())
    api._build_uv_run_cmd_engine = lambda _, cfg: [
        sys.executable,
        me,
        "engine",
        *config_to_argv(cfg),
    ]
    api.app.state.engine_config = EngineConfig.model_validate(own)
    level = os.environ.get("LOG", "warning")
    uvicorn.run(SequenceIds(api.app), host=given["host"], port=given["port"], log_level=level)


if __name__ == "__main__":
    main()
