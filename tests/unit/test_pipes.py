"""Requests to a process and its answers, from both sides of the pipe."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from hud_tui.pipes import LARGE, Inbox, Pipe, ProcessEnded, write_document
from tests.conftest import until

ECHO = """
import asyncio, os, subprocess, sys
from hud_tui import pipes

async def answer(request):
    verb = request["verb"]
    if verb == "say":
        pipes.reply(1, {"event": "said", "id": request["id"], "text": request["text"]})
    if verb == "stay":
        try:
            await asyncio.sleep(1000)
        except asyncio.CancelledError:
            pipes.reply(1, {"stopped": request["id"]})
            raise
    if verb == "deafen":
        os.close(0)
    if verb == "exit":
        os._exit(request["code"])
    if verb == "babble":
        os.write(1, b"Welcome!\\n")
        await asyncio.sleep(1000)
    if verb == "fork":
        subprocess.Popen(["sleep", "1000"])
    pipes.reply(1, {"id": request["id"], "result": request.get("value")})

asyncio.run(pipes.answer_requests(sys.stdin.buffer, answer, {}))
if "--stays" in sys.argv:
    import time
    time.sleep(1000)
"""
WORDS = (sys.executable, "-c", ECHO)


@asynccontextmanager
async def echo(*more: str, **options: Any) -> AsyncIterator[Pipe]:
    pipe = await Pipe.start([*WORDS, *more], **options)
    try:
        yield pipe
    finally:
        pipe.kill()
        await pipe.wait()


async def test_answers_come_in_any_order_and_what_is_no_answer_is_passed_on() -> None:
    said = list[dict[str, Any]]()
    async with echo(said=said.append) as pipe:
        staying = pipe.send("stay")
        large = "x" * (LARGE + 1)
        values = [{"a": [1.5, None, "ü\n"]}, 7, large]
        answers = await asyncio.gather(*(pipe.ask("get", value=value) for value in values))
        assert [answer["result"] for answer in answers] == values
        await pipe.ask("say", text="aside")
        assert [one["text"] for one in said] == ["aside"]
        assert pipe.waits
        assert not staying.done()
        with pytest.raises(TypeError):
            await Pipe.ask(pipe, "get", **{"value": 1, 2: 3})  # type: ignore[call-overload]


@pytest.mark.parametrize("how", ["exit", "kill", "babble"])
async def test_whoever_waits_for_a_process_that_ends_is_told(how: str) -> None:
    async with echo() as pipe:
        await pipe.ask("get")
        waiting = [asyncio.create_task(pipe.ask("stay")) for _ in range(2)]
        forgotten = pipe.send("stay")
        code = {"exit": 7}.get(how, -signal.SIGKILL)
        if how == "kill":
            os.kill(pipe.pid, signal.SIGKILL)
        else:
            pipe.send(how, code=code)
        for one in waiting:
            with pytest.raises(ProcessEnded, match=f"ended with code {code}"):
                await one
        assert forgotten.done()
        assert not pipe.runs
        assert not pipe.waits
        with pytest.raises(ProcessEnded):
            await pipe.ask("get")


@pytest.mark.parametrize(("stoppable", "is_stopped"), [({"stay"}, True), (set(), False)])
async def test_what_nobody_waits_for_is_stopped_if_that_is_safe(
    stoppable: set[str], is_stopped: bool
) -> None:
    said = list[dict[str, Any]]()
    async with echo(said=said.append, stoppable=stoppable) as pipe:
        await pipe.ask("get")
        asking = asyncio.create_task(pipe.ask("stay"))
        await until(lambda: pipe.waits)
        await pipe.ask("get")
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        await pipe.ask("get")
        assert said == ([{"stopped": 2}] if is_stopped else [])


@pytest.mark.parametrize(("more", "code"), [([], 0), (["--stays"], -signal.SIGKILL)])
async def test_it_ends_when_its_stdin_is_closed_or_is_killed(more: list[str], code: int) -> None:
    async with echo(*more) as pipe:
        await pipe.ask("get")
        await pipe.close(0.5 if more else 60.0)
        assert pipe.process.returncode == code


async def test_the_exit_code_of_a_killed_process_is_left_to_asyncio(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Who else looks for it takes it away, of which asyncio complains on stderr."""
    looks: list[int] = []
    pipe = await Pipe.start(["sleep", "600"])
    monkeypatch.setattr(subprocess.Popen, "poll", lambda popen: looks.append(popen.pid))
    pipe.kill()
    await pipe.wait()
    assert (pipe.process.returncode, looks) == (-signal.SIGKILL, [])


async def test_a_group_is_killed_with_what_is_left_of_it() -> None:
    async with echo(has_group=True) as pipe:
        await pipe.ask("fork")
        assert os.getpgid(pipe.pid) == pipe.pid
        await pipe.close(0.5)  # whoever has its stdout may still say something
        assert pipe.process.returncode is not None
        await until(_is_gone(pipe.pid))


def _is_gone(group: int) -> Callable[[], bool]:
    def look() -> bool:
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return True
        return False

    return look


def test_the_beginning_of_a_line_is_no_document() -> None:
    there, here = os.pipe()
    inbox = Inbox(there)
    os.write(here, b'{"id": 1}\n{"id"')
    assert inbox.next() == {"id": 1}
    os.write(here, b': 2}\n{"id": 3}')
    os.close(here)
    assert inbox.next() == {"id": 2}
    assert inbox.next() is None
    os.close(there)


def test_what_need_not_wait_for_its_turn_is_taken_when_it_is_looked_for() -> None:
    there, here = os.pipe()
    heard = list[Any]()

    def taken(document: dict[str, Any]) -> bool:
        if "left" in document:
            heard.append(document["left"])
        return "left" in document

    inbox = Inbox(there, taken=taken)
    inbox.look()
    os.write(here, b'{"id": 1}\n{"id": 2}\n{"left": 1}\n{"id": 3}\n')
    assert inbox.next() == {"id": 1}
    inbox.look()
    assert heard == [1]
    os.close(here)
    inbox.look()  # the end is no reason to wait
    assert [inbox.next() for _ in range(3)] == [{"id": 2}, {"id": 3}, None]
    os.close(there)


def test_a_document_is_written_whole_however_little_the_pipe_takes() -> None:
    there, here = os.pipe()
    value = "x" * (1 << 20)
    if os.fork() == 0:
        write_document(here, {"value": value})
        os._exit(0)
    os.close(here)
    assert Inbox(there).next() == {"value": value}
    os.close(there)


async def test_a_process_that_closed_its_input_has_ended_with_a_code() -> None:
    async with echo() as pipe:
        await pipe.ask("deafen")
        said = asyncio.gather(*(pipe.ask("say", text="x" * LARGE) for _ in range(50)))
        with pytest.raises(ProcessEnded, match=r"^ended with code -?[0-9]+$"):
            await said
