"""An environment with a tool, of which each task misbehaves in a phase and a way of its own."""

import asyncio
import random
import socket
from math import inf, nan

import misdeeds
from fastmcp import FastMCP
from hud import Environment
from hud.capabilities import Capability
from hud.graders import EvaluationResult

env = Environment(name="faults")
tools = FastMCP(name="faults-tools")
fault = {"when": "", "kind": "", "said": ""}
"""Of this rollout: every rollout has a process of its own."""


LONE = chr(0xD800)
"""A lone surrogate, which no request can carry."""


async def do(phase: str) -> None:
    for kind in fault["kind"].split() if fault["when"] == phase else ():
        await misdeeds.do(kind)


@tools.tool
async def plus(a: int, b: int) -> str:
    """Add two numbers."""
    await do("tool call")
    if fault["said"] == "in an error":
        raise ValueError(LONE)
    return str(a + b) + {"by a tool": LONE, "at length": 40_000 * "more "}.get(fault["said"], "")


@tools.tool
def times(a: int, b: int) -> list:
    """Multiply two numbers."""
    return [a * b, nan, inf, None, "text", {"nested": nan}]


@env.initialize
async def serve_tools() -> None:
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


async def idle() -> None:
    """What runs beside all rollouts is not what they wait for."""
    while True:
        await asyncio.sleep(0.5)


@env.shutdown
async def stop() -> None:
    await do("shutdown")


def varied(reward: float) -> float:
    """With some variance in each group, whatever the policy says: else there is no step to take."""
    return reward + 0.1 * random.random()


@env.template()
async def add(a: int, b: int):
    answer = yield f"Use the plus tool to add {a} and {b}, then say the number."
    yield varied(0.9 * (str(answer).strip() == str(a + b)))


@env.template()
async def goes_wrong(when: str, kind: str):
    fault.update(when=when, kind=kind)
    await do("setup")
    try:
        yield "Use the plus tool to add 3 and 4, then say the number."
        await do("grade")
        yield varied(0.5)
    finally:
        await do("teardown")


@env.template()
async def graded(what: str):
    yield "Use the plus tool to add 3 and 4, then say the number."
    yield WRONG[what]  # line: graded


@env.template()
async def prompted(what: str):
    yield WRONG[what]  # line: prompted
    yield 0.5


@env.template()
async def told_of_nothing_finite(loss: float | None = nan):
    yield "Use the times tool to multiply 3 by 4, then say the number."
    yield EvaluationResult(reward=0.5, info={"loss": loss, "each": [nan, inf, None, "text"]})


@env.template()
async def unusual(said: str):
    fault["said"] = said
    yield f"Use the plus tool to add 3 and 4, then say the number.{LONE * (said == 'in a prompt')}"
    yield EvaluationResult(reward=varied(0.5), info={"said": LONE * (said == "in info")})


WRONG = {"nan": nan, "infinite": -inf, "nothing": None, "text": "0.5", "dict": {"reward": 1.0}}


def named(task, slug: str):
    task.slug = slug
    return task


PHASES = ("setup", "tool call", "grade", "teardown")
KINDS = [*misdeeds.FATAL, *misdeeds.HANGING, " ".join(misdeeds.HARMLESS)]
tasks = [add(a=a, b=4) for a in (3, 12, 47)]
tasks += [
    named(goes_wrong(when=phase, kind=kind), f"{phase}: {kind}")
    for phase in PHASES
    for kind in KINDS
]
tasks += [named(goes_wrong(when="shutdown", kind=kind), kind) for kind in ("raises", "deadlocks")]
tasks += [named(graded(what=what), f"graded: {what}") for what in WRONG]
tasks += [named(prompted(what=what), f"prompted: {what}") for what in ("nan", "infinite")]
SAID = ("by a tool", "in an error", "in a prompt", "in info", "at length")
tasks += [named(unusual(said=said), f"said {said}") for said in SAID]
tasks += [named(told_of_nothing_finite(), "told of nothing finite")]
