"""The link to the SDK's process: one that does not answer is ended, and samples are called off."""

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from hud_tui.pipes import write_document
from hud_tui.service.engines.base import EngineLost
from hud_tui.service.engines.tinker import link as links
from hud_tui.service.engines.tinker import worker as workers
from hud_tui.service.engines.tinker.link import Link
from tests.conftest import until


@pytest.fixture
async def link(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Link]:
    monkeypatch.setattr(links, "PING_S", 0.1)
    link = Link(tmp_path, {}, lambda state: None)
    await link.start()
    await link.ask("ping")
    yield link
    await link.stop()


async def test_a_process_that_does_not_answer_is_ended(
    link: Link, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert link.pid is not None
    assert link._pipe is not None
    await until(lambda: not link._pipe.waits)  # nobody asks it, who would be more patient
    os.kill(link.pid, signal.SIGSTOP)
    with monkeypatch.context() as hasty:  # a process that starts may take longer on a busy machine
        hasty.setattr(links, "SILENT_S", 2)
        with pytest.raises(EngineLost, match="did not answer for 2 s, and was ended"):
            await link.ask("ping")
    await until(lambda: link.pid is None)
    assert await link.start()
    assert await link.ask("ping") is None


async def test_a_process_that_is_busy_for_others_is_left_alone(
    link: Link, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is asked whether it is there, and not whether it is done."""
    asked, ask = [], link.ask

    async def noted(verb: str, **fields: Any) -> Any:
        asked.append(verb)
        return await ask(verb, **fields)

    monkeypatch.setattr(link, "ask", noted)
    assert link._pipe is not None
    link._pipe._waiting[0] = asyncio.get_running_loop().create_future()  # one that takes long
    pid = link.pid
    await until(lambda: len(asked) > 5)
    assert link.pid == pid


async def test_a_sample_that_nobody_waits_for_is_called_off(link: Link) -> None:
    assert link._pipe is not None
    stdin, sent = link._pipe.process.stdin, list[bytes]()
    assert stdin is not None
    stdin.write = sent.append  # type: ignore[method-assign]
    for verb in ("sample", "forward_backward"):
        asking = asyncio.create_task(link.ask(verb, handle="h"))
        await until(lambda: bool(sent))
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
    told = [body for body in sent if b'"cancel"' in body]
    [first] = [body for body in sent if b'"sample"' in body]
    assert len(told) == 1
    assert json.loads(told[0])["of"] == json.loads(first)["id"]


async def test_the_process_stops_what_is_called_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, stopped = asyncio.Event(), asyncio.Event()

    async def answer(self: object, request: dict[str, Any]) -> dict[str, Any]:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()
        raise AssertionError

    monkeypatch.setattr(workers.Worker, "answer", answer)
    there, here = os.pipe()
    with os.fdopen(there, "rb") as stdin, (tmp_path / "out").open("wb") as stdout:
        serving = asyncio.create_task(workers.serve(stdin, stdout.fileno(), tmp_path))
        write_document(here, {"id": 7, "verb": "sample"})
        await begun.wait()
        write_document(here, {"verb": "cancel", "of": 4})
        write_document(here, {"verb": "cancel", "of": 7})
        await stopped.wait()
        os.close(here)
        await serving
    assert (tmp_path / "out").read_bytes() == b""
