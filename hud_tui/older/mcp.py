"""The MCP servers of a v4 task, inferred from a lock file's image.

A pushed image runs on HUD, which the key is for: it stands there as ``${HUD_API_KEY}``,
never as itself. An image that only this machine has runs in its Docker.

Source: ``hud hf`` and ``hud run`` of hud 0.4; the host is that of 0.5.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from hud_tui.older.lock import Lock

URL = "${HUD_MCP_URL:https://mcp.hud.ai/v3/mcp}"
HEADER = "Mcp-Image"


def infer_servers(lock: Lock) -> dict[str, Any] | None:
    """A task's ``mcp_config``; None where the lock file names no image."""
    if not lock.image:
        return None
    if lock.pushed:
        headers = {"Authorization": "Bearer ${HUD_API_KEY}", HEADER: lock.image}
        return {"hud": {"url": URL, "headers": headers}}
    wanted = [word for name in lock.variables for word in ("-e", name)]
    command = {"command": "docker", "args": ["run", "--rm", "-i", *wanted, lock.image]}
    return {"local": command}


def images_of(servers: object) -> Iterator[str]:
    """Images that an ``mcp_config`` runs: of the header, or the last word of ``docker run``."""
    if not isinstance(servers, Mapping):
        return
    for server in servers.values():
        if not isinstance(server, Mapping):
            continue
        headers, args = server.get("headers"), server.get("args")
        if isinstance(headers, Mapping):
            yield from (
                value
                for name, value in headers.items()
                if str(name).casefold() == HEADER.casefold() and isinstance(value, str)
            )
        if server.get("command") == "docker" and isinstance(args, list) and "run" in args:
            image = _docker_image(args)
            if image:
                yield image


def _docker_image(args: list[Any]) -> str | None:
    """The first word of ``docker run`` that is neither a flag nor a flag's value."""
    words = iter(args[args.index("run") + 1 :])
    for word in words:
        if not isinstance(word, str):
            return None
        if not word.startswith("-"):
            return word
        if "=" not in word and word not in (
            "--rm",
            "-i",
            "-t",
            "-it",
            "-d",
            "--init",
            "--privileged",
        ):
            next(words, None)
    return None
