"""Retold: how to do again what was done, with the ``hud`` CLI, with curl, and in Python.

The texts are for a clipboard, so for a shell: everything that came from anywhere is quoted
with shlex or is an ASCII literal of Python's. The key is never in them.
"""

import json
from shlex import join, quote
from urllib.parse import urlsplit

from hud_tui.rl.written import Written

HUD_ORIGINS = ("https://api.hud.ai", "https://rl.hud.ai")
KEY = '"Authorization: Bearer $HUD_API_KEY"'
CLI = frozenset({"fork", "set head", "cancel"})
"""What the ``hud`` CLI can do too."""


def as_hud(one: Written) -> str:
    """The command of the ``hud`` CLI that does the same, else that of ``hud-tui``; empty where
    neither has one."""
    command = _hud(one)
    if not command:
        return _hud_tui(one)
    origin = _origin(one.url)
    home = "" if origin in HUD_ORIGINS else f"HUD_API_URL={quote(origin)} "
    return home + join(command)


def as_curl(one: Written) -> str:
    """A line for a POSIX shell, that takes the key from ``$HUD_API_KEY``."""
    parts = ["curl", "-X", quote(one.method), KEY_HEADER, *_data(one), quote(one.url)]
    line = " ".join(parts)
    if not one.left_out:
        return line
    note = f"body.json: {one.body or '{}'} and {', '.join(one.left_out)}"
    return f": {quote(note)}\n{line}"


def as_python(one: Written) -> str:
    """A program with this package's own client; empty where the body was not kept."""
    call = _call(one)
    if not call:
        return ""
    imports, make = _client(one)
    return PROGRAM.format(imports=imports, make=make, call=call)


KEY_HEADER = f"-H {KEY}"
PROGRAM = """\
import asyncio
from contextlib import aclosing

{imports}


async def main() -> None:
    async with aclosing({make}) as client:
        print({call})


asyncio.run(main())
"""


def _client(one: Written) -> tuple[str, str]:
    if one.local:
        imports = (
            "from hud_tui.connect import connect_local\nfrom hud_tui.settings import read_paths"
        )
        return imports, "await connect_local(read_paths(), print)"
    imports = (
        "from hud_tui.client.client import HudClient\nfrom hud_tui.settings import read_settings"
    )
    return imports, "HudClient(read_settings())"


def _call(one: Written) -> str:
    """The client's call that sends the same; the client's own methods where it has one."""
    model = ascii(one.model)
    match one.verb:
        case "set head":
            return f"await client.set_head({model}, {one.after!a})"
        case "fork":
            start = one.sent.get("checkpoint_id")
            at = f", {str(start)!a}" if start is not None else ""
            return f"await client.fork({model}, {one.subject!a}{at})"
        case "pin" | "unpin":
            return f"await client.pin({model}, {one.subject!a}, {one.verb == 'pin'})"
        case "cancel":
            return f"await client.cancel_job({one.subject!a})"
        case "resume":
            return f"await client.resume_job({one.subject!a})"
    return ""


def _hud(one: Written) -> list[str]:
    """The ``hud`` CLI's words, as in its version 0.6.21."""
    match one.verb:
        case "set head":
            return ["hud", "models", "head", f"--set={one.after}", "--yes", *_place(one.model)]
        case "fork" if "checkpoint_id" not in one.sent:
            return ["hud", "models", "fork", f"--name={one.subject}", "--yes", *_place(one.model)]
        case "cancel":
            return ["hud", "jobs", "cancel", "--yes", *_place(one.subject)]
    return []


def _hud_tui(one: Written) -> str:
    """This program's own words, where it has some."""
    start = ["hud-tui", "--headless", *(["--local"] if one.local else [])]
    if one.verb == "resume":
        return join([*start, "jobs", "--resume", "-y", *_place(one.subject)])
    if one.verb != "submit":
        return ""
    flags = [f"--{name.replace('_', '-')}={value}" for name, value in _parameters(one)]
    return f"{join([*start, 'run'])} SOURCE {join([f'--model={one.model}', *flags, '-y'])}"


FLAGS = (
    *("steps", "group_size", "tasks_per_step", "learning_rate", "loss_fn"),
    *("temperature", "max_tokens", "seed", "reasoning_effort"),
)
"""Parameters of a run that ``hud-tui run`` has flags for."""


def _parameters(one: Written) -> list[tuple[str, object]]:
    config = one.sent.get("config")
    given = config.get("parameters") if isinstance(config, dict) else None
    if not isinstance(given, dict):
        return []
    return [(name, given[name]) for name in FLAGS if given.get(name) is not None]


def _place(word: str) -> list[str]:
    """A word that is no flag, whatever it begins with."""
    return ["--", word] if word.startswith("-") else [word]


def _data(one: Written) -> list[str]:
    if one.left_out:
        return [JSON, "--data", "@body.json"]
    return [JSON, "--data-raw", quote(one.body)] if one.body else []


JSON = "-H 'Content-Type: application/json'"


def _origin(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"


def document(one: Written) -> dict[str, object]:
    """All of it, to be read as JSON."""
    again = {"hud": as_hud(one), "curl": as_curl(one), "python": as_python(one)}
    return {
        **{name: value for name, value in vars(one).items() if name != "body"},
        "body": json.loads(one.body) if one.sent else one.body,
        "again": again,
    }
