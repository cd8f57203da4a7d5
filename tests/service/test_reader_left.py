"""Output that nobody reads on, as under ``| head``: the command ends quietly, with 141."""

import asyncio
import os
import sys
from asyncio.subprocess import PIPE, STDOUT
from pathlib import Path

import pytest

from hud_tui.cli.main import READER_LEFT, main
from tests.conftest import Served, pointed_at
from tests.service.clients import fork_of, over_socket
from tests.service.headless import point_at

QUIET = (
    *("keys", "--version", "doctor", "log", "protect", "--headless keys", "--headless --version"),
    *("--headless doctor", "--headless log", "--headless models", "--headless status nobody"),
    "--headless nonsense",
)


async def started(
    served: Served, home: Path, *argv: str, stderr: int = PIPE
) -> asyncio.subprocess.Process:
    """A command whose output nobody reads yet."""
    dirs = {f"HUD_TUI_{name}_DIR": str(home / name) for name in ("CONFIG", "STATE", "DATA")}
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "hud_tui", *argv),
        stdout=PIPE,
        stderr=stderr,
        env=os.environ | dirs | pointed_at(served.url, served.api_key),
    )


def leave(process: asyncio.subprocess.Process) -> None:
    """Close the reading end of its output."""
    transport = process._transport.get_pipe_transport(1)  # type: ignore[attr-defined]
    assert transport is not None
    transport.close()


async def test_every_command_ends_quietly_without_its_reader(
    served: Served, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    point_at(monkeypatch, served.url, served.api_key)
    for argv in QUIET:
        reader, writer = os.pipe()
        os.close(reader)
        with os.fdopen(writer, "w") as nobody, monkeypatch.context() as left:
            left.setattr(sys, "stdout", nobody)
            assert await asyncio.to_thread(main, argv.split()) == READER_LEFT, argv
    err = capsys.readouterr().err
    assert "Traceback" not in err
    assert "Broken pipe" not in err


@pytest.mark.parametrize(
    ("word", "stderr", "code"),
    [
        ("keys", PIPE, READER_LEFT),
        ("--help", PIPE, 0),
        ("nonsense", STDOUT, READER_LEFT),  # errors that nobody reads, too
    ],
)
async def test_a_reader_that_leaves_ends_it_quietly(
    served: Served, tmp_path: Path, word: str, stderr: int, code: int
) -> None:
    process = await started(served, tmp_path, word, stderr=stderr)
    leave(process)
    said = await process.stderr.read() if process.stderr is not None else b""
    assert (said, await process.wait()) == (b"", code)


async def test_a_run_that_is_followed_goes_on_without_its_reader(
    served: Served, tmp_path: Path
) -> None:
    async with over_socket(served) as client:
        await fork_of(client, "mine")
        run = ("run", "arith", "-m", "mine", "-y", "--follow", "--steps", "20")
        process = await started(served, tmp_path, "--headless", *run, "--group-size", "2")
        assert process.stdout is not None
        assert process.stderr is not None
        await process.stdout.readline()
        leave(process)
        err = await process.stderr.read()
        assert await process.wait() == READER_LEFT
        assert b"Traceback" not in err
        assert len(await client.jobs(5)) == 1
