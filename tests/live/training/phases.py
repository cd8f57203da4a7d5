"""An environment with a tool, of which each template misbehaves in another phase of its rollout."""

import asyncio
import os
import socket
import sys
import time

from fastmcp import FastMCP
from hud import Environment
from hud.capabilities import Capability

env = Environment(name="phases")
tools = FastMCP(name="phases-tools")
fault = ""
"""Of this rollout: every rollout has a process of its own."""


@tools.tool
async def plus(a: int, b: int) -> str:
    """Add two numbers."""
    if fault == "raises":
        raise KeyError("token " + os.environ["SHOP_TOKEN"])  # line: tool_raises
    if fault == "waits":
        await asyncio.sleep(1000)  # line: tool_waits
    if fault == "blocks":
        time.sleep(1000)  # line: tool_blocks
    if fault == "hangs":
        await asyncio.to_thread(work)
    if fault == "exits":
        os._exit(5)  # line: tool_exits
    if fault == "quits":
        sys.exit(6)  # line: tool_quits
    return str(a + b)


def work():
    time.sleep(1000)  # line: tool_hangs


@env.initialize
async def serve_tools():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    env.serving = asyncio.create_task(
        tools.run_async(transport="http", host="127.0.0.1", port=port, show_banner=False)
    )
    env.idle = asyncio.create_task(idle())
    for _ in range(500):
        try:
            socket.create_connection(("127.0.0.1", port), 0.2).close()
            break
        except OSError:
            await asyncio.sleep(0.02)
    env.add_capability(Capability.mcp(name="tools", url=f"http://127.0.0.1:{port}/mcp"))


async def idle():
    """What runs beside all rollouts is not what they wait for."""
    while True:
        await asyncio.sleep(0.5)


def asked(a: int) -> str:
    return f"Use the plus tool to add {a} and 4, then say the number."


@env.template()
async def fine(a: int):
    answer = yield asked(a)
    text = str(answer).strip()
    yield 1.0 if text == str(a + 4) else 0.1 * any(map(str.isdigit, text)) + 0.01 * len(text) / 99


@env.template()
async def tool(kind: str, a: int):
    global fault
    fault = kind
    yield asked(a)
    yield 0.5


@env.template()
async def setup_hangs(a: int):
    time.sleep(1000)  # line: setup_hangs
    yield asked(a)


@env.template()
async def setup_quits(a: int):
    sys.exit(7)  # line: setup_quits
    yield asked(a)


@env.template()
async def setup_leaks(a: int):
    kept = [b"x" * (16 << 20) for _ in range(36)]
    await asyncio.sleep(1000)
    yield f"{len(kept)}"


@env.template()
async def ends_hanging(a: int):
    try:
        yield asked(a)
        yield 0.5
    finally:
        time.sleep(1000)  # line: ends_hanging


@env.template()
async def ends_waiting(a: int):
    try:
        yield asked(a)
        yield 0.5
    finally:
        await nap()


async def nap():
    await asyncio.sleep(1000)  # line: ends_waiting


@env.template()
async def ends_exiting(a: int):
    try:
        yield asked(a)
        yield 0.5
    finally:
        os._exit(8)  # line: ends_exiting


@env.shutdown
async def never_stop():
    time.sleep(1000)  # line: never_stop


tasks = [fine(a=a) for a in (3, 12, 47)]
tasks += [tool(kind=kind, a=3) for kind in ("raises", "waits", "blocks", "exits", "quits", "hangs")]
tasks += [setup_hangs(a=1), setup_quits(a=1), setup_leaks(a=1)]
tasks += [ends_hanging(a=1), ends_waiting(a=1), ends_exiting(a=1)]
