"""A Hugging Face Hub of one's own, for what the real one never should do."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Thread
from typing import Any, ClassVar


@dataclass
class Hub:
    """What it was asked, and how it answers."""

    url: str = ""
    asked: list[tuple[str, str]] = field(default_factory=list)
    tokens: set[str | None] = field(default_factory=set)
    created: dict[str, Any] | None = None
    committed: bytes = b""
    existing: dict[str, Any] | None = None
    """The data set that is there already."""
    fail: dict[str, int] = field(default_factory=dict)
    """Part of a path → the status it is answered with."""
    silent: str = ""
    """Part of a path that is never answered."""
    closed: Event = field(default_factory=Event)


@contextmanager
def hub() -> Iterator[Hub]:
    state = Hub()

    class Handler(_Handler):
        hub = state

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    state.url = f"http://127.0.0.1:{server.server_port}"
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield state
    finally:
        state.closed.set()
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    hub: ClassVar[Hub]

    def log_message(self, *args: Any) -> None:
        """Keep the terminal quiet."""

    def do_GET(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        hub = self.hub
        hub.asked.append((self.command, self.path))
        hub.tokens.add(self.headers.get("authorization"))
        if hub.silent and hub.silent in self.path:
            hub.closed.wait()
            return
        status = next((code for part, code in hub.fail.items() if part in self.path), None)
        if status is not None:
            self._answer(status, {"error": f"no, says the Hub: {self.headers['authorization']}"})
        else:
            self._answer(*self._reply(body))

    do_POST = do_GET

    def _reply(self, body: bytes) -> tuple[int, dict[str, Any]]:
        hub = self.hub
        if self.path.endswith("/repos/create"):
            hub.created = json.loads(body)
            return 200, {"url": f"{hub.url}/datasets/org/tasks", "name": "org/tasks"}
        if "/preupload/" in self.path:
            files = json.loads(body)["files"]
            return 200, {
                "files": [
                    {"path": file["path"], "uploadMode": "regular", "shouldIgnore": False}
                    for file in files
                ]
            }
        if "/commit/" in self.path:
            hub.committed = body
            url = f"{hub.url}/datasets/org/tasks/commit/abc"
            return 200, {"commitUrl": url, "commitOid": "abc", "success": True}
        if self.command == "GET" and self.path.startswith("/api/datasets/"):
            return (200, hub.existing) if hub.existing else (404, {"error": "not found"})
        return 200, {}

    def _answer(self, status: int, body: dict[str, Any]) -> None:
        raw = json.dumps(body).encode()
        self.send_response(status)
        if status == 404:
            self.send_header("X-Error-Code", "RepoNotFound")
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)
