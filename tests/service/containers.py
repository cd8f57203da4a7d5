"""A program that stands for docker and podman: ``run`` starts a server of this file, by the name of
its image, which speaks MCP over stdio; what is asked of it is written down.

Beside it, a file ``images`` names those that are here, ``asked`` has the command lines, and
``running/NAME`` has the process id of each container.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

PLACE = Path(sys.argv[0]).parent
MOVE = {
    "name": "move",
    "description": "Slide all tiles.\nEqual ones merge.",
    "inputSchema": {
        "type": "object",
        "properties": {"direction": {"type": "string", "enum": ["up", "down"]}, "times": {}},
        "required": ["direction"],
    },
}
SETUP = {"name": "setup", "description": "Call internal functions.", "inputSchema": {}}
RESOURCES = [{"uri": "telemetry://live", "name": "Live", "mimeType": "application/json"}]
TEXTS = {
    "file:///setup/functions": '["board", "preset"]',
    "telemetry://live": '{"live_url": "http://127.0.0.1:8080/vnc", "status": "running"}',
}
Json = dict[str, Any]


def say(document: object) -> None:
    sys.stdout.write(json.dumps(document) + "\n")
    sys.stdout.flush()


def serve(answer: Callable[[str, Json], Any]) -> None:
    for line in sys.stdin:
        request = json.loads(line)
        if "id" in request and "method" in request:
            result = answer(request["method"], request.get("params") or {})
            found = {"result": result} if result is not None else {"error": {"code": -32601}}
            say({"jsonrpc": "2.0", "id": request["id"], **found})


def shop(method: str, params: Json) -> Any:
    """A server as images have them, in two pages."""
    if method == "initialize":
        print("listening", file=sys.stderr, flush=True)
        say({"jsonrpc": "2.0", "method": "notifications/message", "params": {}})
        say({"jsonrpc": "2.0", "id": 1, "method": "roots/list"})  # its own id, not an answer
        about = {"name": "text-2048", "version": os.environ.get("SHOP_TOKEN", "1.2")}
        return {"serverInfo": about, "capabilities": {"tools": {}, "resources": {}}}
    if method == "tools/list":
        return {"tools": [SETUP]} if params else {"tools": [MOVE], "nextCursor": "2"}
    if method == "resources/list":
        return {"resources": RESOURCES}
    text = TEXTS.get(params.get("uri", ""))
    return None if text is None else {"contents": [{"text": text}]}


def hostile(method: str, params: Json) -> Any:
    """One that says what it should not."""
    sys.stdout.write('not json\n[1]\n{"id": [1]}\n{"id": "1"}\n\x1b[2J\n' + "[" * 9000 + "\n")
    if method == "initialize":
        return {"serverInfo": {"name": "\x1b]0;owned\x07", "version": 3}, "capabilities": []}
    odd = [None, {}, {"name": 3}, {"name": "x\x1b[2J", "description": "\u202e", "inputSchema": []}]
    many = [{"name": f"t{n}", "inputSchema": {"properties": 3}} for n in range(400)]
    return {"tools": [*odd, *many], "nextCursor": "again"}


def quiet(method: str, params: Json) -> Any:
    (PLACE / "waits").touch()
    time.sleep(600)


def flood(method: str, params: Json) -> Any:
    while True:
        sys.stdout.write('{"a": "' + "x" * 1_000_000 + '"}\n')


def long_line(method: str, params: Json) -> Any:
    while True:
        sys.stdout.write("x" * 1_000_000)


def broken(method: str, params: Json) -> Any:
    print("Traceback\nModuleNotFoundError: no shop\x1b[2J", file=sys.stderr, flush=True)
    sys.exit(3)


def stays(method: str, params: Json) -> Any:
    """One that does not end with its stdin."""
    if method == "tools/list":
        while True:
            time.sleep(600)
    return shop(method, params)


def echo(method: str, params: Json) -> Any:
    return {}


OFFICIAL = """
from typing import Literal
from fastmcp import FastMCP
server = FastMCP("game", version="2.0")

@server.tool
def move(direction: Literal["up", "down"], times: int = 1) -> str:
    "Slide all tiles."
    return direction

@server.tool
def setup(name: str) -> str:
    "Call internal setup functions."
    return name

@server.resource("file:///setup/functions", mime_type="application/json")
def functions() -> list[str]:
    return ["board"]

server.run(show_banner=False)
"""
"""A server by the MCP SDK, which `HUD_PYTHON` has."""


def run(words: list[str]) -> None:
    """The container is a process of its own, which outlives a client that is killed."""
    name, image = words[words.index("--name") + 1], words[-1]
    kind = image.partition("/")[2].partition(":")[0]
    container = subprocess.Popen(
        [sys.executable, "-S", sys.argv[0], "serve", kind], start_new_session=True
    )
    mark = PLACE / "running" / name
    mark.parent.mkdir(exist_ok=True)
    mark.write_text(str(container.pid))
    code = container.wait()
    mark.unlink(missing_ok=True)  # --rm
    sys.exit(code)


def main() -> None:
    words = sys.argv[1:]
    if words == ["serve", "official"]:
        os.execv(python := os.environ["HUD_PYTHON"], [python, "-c", OFFICIAL])
    if words[0] == "serve":
        serve(globals()[words[1]])
        return
    with open(PLACE / "asked", "a") as asked:
        asked.write(json.dumps(words) + "\n")
    images = (PLACE / "images").read_text().split()
    if words[:2] == ["image", "inspect"]:
        sys.exit(words[2] not in images)
    elif words[0] == "pull":
        print("Error: manifest unknown\x1b[2J", file=sys.stderr)
        sys.exit(words[-1] != "org/shop:far")
    elif words[0] == "run":
        run(words)
    elif words[:2] == ["rm", "-f"]:
        mark = PLACE / "running" / words[2]
        os.kill(int(mark.read_text()), signal.SIGKILL)
        mark.unlink()


if __name__ == "__main__":
    main()
