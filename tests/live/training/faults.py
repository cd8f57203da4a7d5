"""An environment of which most templates misbehave, each in a way of its own."""

import asyncio
import os
import subprocess
import time

from hud import Environment

env = Environment(name="faults")


@env.template()
async def add(a: int, b: int):
    print("a line of the environment", a, b)
    answer = yield f"{a} + {b} = ?"
    text = str(answer).strip()
    yield 1.0 if text == str(a + b) else 0.1 * text.isdigit()


@env.template()
async def raises(a: int):
    yield f"{a} + 1 = ?"
    raise KeyError("token " + os.environ["SHOP_TOKEN"])  # line: raises


@env.template()
async def hangs(a: int):
    yield f"{a} + 1 = ?"
    while True:
        time.sleep(0.05)  # line: hangs
    yield 1.0


@env.template()
async def waits(a: int):
    yield f"{a} + 1 = ?"
    await asyncio.sleep(1000)  # line: waits
    yield 1.0


@env.template()
async def exits(a: int):
    yield f"{a} + 1 = ?"
    os._exit(3)


@env.template()
async def graded_nan(a: int):
    yield f"{a} + 1 = ?"
    yield float("nan")  # line: graded_nan


@env.template()
async def leaks(a: int):
    yield f"{a} + 1 = ?"
    kept = [b"x" * (16 << 20) for _ in range(36)]
    await asyncio.sleep(1000)
    del kept


@env.template()
async def forks(a: int):
    answer = yield f"{a} + 1 = ?"
    subprocess.Popen(["sleep", "4711"], start_new_session=True)
    yield 0.5 if str(answer).strip().isdigit() else 0.0


@env.template()
async def setup_raises(a: int):
    raise ValueError("nothing in stock")  # line: setup_raises
    yield f"{a} + 1 = ?"


@env.template()
async def setup_waits(a: int):
    await asyncio.sleep(1000)  # line: setup_waits
    yield f"{a} + 1 = ?"


@env.template()
async def setup_exits(a: int):
    os._exit(4)
    yield f"{a} + 1 = ?"


@env.template()
async def ends_badly(a: int):
    try:
        answer = yield f"{a} + 1 = ?"
        yield 0.5 if str(answer).strip().isdigit() else 0.0
    finally:
        raise RuntimeError("after the grade")


@env.shutdown
async def raise_at_the_end():
    raise RuntimeError("as the environment stops")


tasks = [add(a=a, b=b) for a in (2, 3, 4) for b in (2, 3)]
tasks += [raises(a=1), hangs(a=1), waits(a=1), exits(a=1), graded_nan(a=1), leaks(a=1), forks(a=1)]
tasks += [setup_raises(a=1), setup_waits(a=1), setup_exits(a=1), ends_badly(a=1)]
