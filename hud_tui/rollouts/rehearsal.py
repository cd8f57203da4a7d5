"""One rollout of an empty environment, in the process from which the others are forked.

Much of what a rollout costs is what the SDK, FastMCP and their libraries prepare when they are
first used: modules, schemas, compiled checks, caches of classes. After a rehearsal the rollouts'
processes inherit that. Nothing of the user's runs in it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import warnings
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

LONGEST_S = 10.0
"""Longest rehearsal, seconds; without one, rollouts only take longer."""
NAME = "rehearsal"


def rehearse(has_tools: bool) -> None:
    """Roll an empty environment out; a failure, which the user's environment would have too, is
    ignored. `has_tools`: whether it serves a tool by FastMCP."""
    policy, disabled = asyncio.get_event_loop_policy(), logging.root.manager.disable
    asyncio.set_event_loop_policy(asyncio.DefaultEventLoopPolicy())
    logging.disable(logging.CRITICAL)  # the log is for the user's environment
    try:
        with warnings.catch_warnings(action="ignore"):
            asyncio.run(asyncio.wait_for(_roll_out(has_tools), LONGEST_S))
    except Exception:
        return
    finally:
        logging.disable(disabled)
        asyncio.set_event_loop_policy(policy)  # which still makes a loop for who asks at import


async def _roll_out(has_tools: bool) -> None:
    from hud.capabilities import Capability
    from hud.clients import connect
    from hud.environment import Environment
    from hud.environment.server import bind
    from hud.eval import Runtime

    env: Any = Environment(name=NAME)
    env.template(id=NAME, description=NAME)(_template)
    async with contextlib.AsyncExitStack() as stack:
        if has_tools:
            port = await stack.enter_async_context(_served_tool())
            env.add_capability(Capability.mcp(name=NAME, url=f"http://127.0.0.1:{port}/mcp"))
        await env.start()
        stack.push_async_callback(env.stop)
        server = await stack.enter_async_context(await bind(env, "127.0.0.1", 0))
        address = "{}:{}".format(*server.sockets[0].getsockname())
        client = await stack.enter_async_context(connect(Runtime(f"tcp://{address}")))
        await client.start_task(NAME, {"number": 1})
        if has_tools:
            tools = await client.open(NAME)
            await tools.list_tools()
            await tools.call_tool("tool", {"number": 1, "word": "one"})
        await client.grade({"answer": "1"})


async def _template(number: int) -> AsyncIterator[Any]:
    yield f"{number}"
    from hud.graders import EvaluationResult, SubScore

    part = SubScore(name=NAME, weight=1.0, value=1.0)
    yield EvaluationResult(reward=1.0, subscores=[part], info={NAME: [number]})


@asynccontextmanager
async def _served_tool() -> AsyncIterator[int]:
    """A tool, over MCP; yields its port."""
    from fastmcp import FastMCP

    async def tool(number: int, word: str) -> str:
        """Say both."""
        return f"{number} {word}"

    tools = FastMCP(name=NAME)
    tools.tool(tool)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port: int = listening.getsockname()[1]
        serving = asyncio.create_task(
            tools.run_async(
                transport="http",
                port=port,
                show_banner=False,
                log_level="critical",
                uvicorn_config={"fd": listening.fileno()},
            )
        )
        try:
            yield port
        finally:
            serving.cancel()
            await asyncio.wait([serving])
