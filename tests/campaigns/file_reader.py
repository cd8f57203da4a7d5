"""Runs commands for `tests.campaigns.files`, one after another, in a process that can be ended.

A line of JSON in is a command, a line out is what it did: its exit code, what it wrote to each
stream as bytes in Latin-1, and its processor time. Nothing else goes to either stream.
"""

import asyncio
import io
import json
import os
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from time import process_time
from traceback import format_exc
from typing import Any

from hud_tui.cli.main import main
from hud_tui.client.replay import player
from hud_tui.config import read_config
from hud_tui.errors import HudError
from hud_tui.notebook import Notebook, read_last_known, scope_of
from hud_tui.storage import JsonStore
from hud_tui.tui.layout import LayoutStore


async def replay(file: str) -> None:
    """Read a recording as the app does, and ask the player for what is known at its start."""
    play = player(None, file, 1.0)
    client = await play("replay", None, lambda text: None)
    for model in await client.models():
        await client.checkpoints(model.id)
    await client.aclose()


def kept(directory: str) -> None:
    """Read what the app keeps between two sessions."""
    state = Path(directory)
    store = JsonStore(lambda: state)
    for name in ("look", "look-charts"):
        store.read(name)
    LayoutStore(store, "0")
    for line in store.problems():
        print(line)
    print(sorted(Notebook(state / "notes.json").notes.items()) != [])
    print(read_last_known(state / "known.json", "https://x") is None)
    print(scope_of(state, "https://x", "key") is not None)


def run(argv: list[str]) -> int:
    """A command of hud-tui, or one of the readers that only the app has."""
    try:
        match argv[0]:
            case "replay":
                asyncio.run(replay(argv[1]))
            case "config":
                print(read_config(Path(argv[1])))
            case "kept":
                kept(argv[1])
            case _:
                return main(argv)
    except HudError as error:
        print(f"{error.message} ({error.hint})", file=sys.stderr)
        return error.exit_code
    return 0


def answer(asked: dict[str, Any]) -> dict[str, Any]:
    os.chdir(asked["cwd"])
    os.environ |= asked["environ"]
    streams = [io.TextIOWrapper(io.BytesIO(), "utf-8", errors="strict") for _ in range(2)]
    before = process_time()
    with redirect_stdout(streams[0]), redirect_stderr(streams[1]):
        try:
            code = run(asked["argv"])
        except SystemExit as left:
            code = left.code if isinstance(left.code, int) else 1
        except BaseException:
            code = -1
            print(format_exc().encode("ascii", "backslashreplace").decode(), file=sys.stderr)
    said = []
    for stream in streams:
        stream.flush()
        said.append(stream.buffer.getvalue().decode("latin-1"))  # type: ignore[attr-defined]
    took = process_time() - before
    return {"code": code, "out": said[0], "err": said[1], "cpu_s": took}


if __name__ == "__main__":
    for line in sys.stdin:
        print(json.dumps(answer(json.loads(line))), flush=True)
