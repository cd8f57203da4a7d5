"""Writes at a terminal: asked for, refused, interrupted, overtaken; and output nobody reads on."""

import asyncio
import io
import json
import os
import pty
import re
import signal
import sys
from asyncio.subprocess import PIPE, STDOUT
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from platform import node
from select import select
from typing import IO

import pytest

from hud_tui.cli import sinks
from hud_tui.cli.commands import COMMANDS, build_parser
from hud_tui.cli.main import main, needs_no_app
from hud_tui.cli.streams import (
    INTERRUPTED,
    NOT_PRINTED,
    READER_LEFT,
    StdoutFailed,
    changed,
    streams,
)
from hud_tui.client.client import HudClient
from hud_tui.rl.work import is_active
from hud_tui.wire import Model
from tests.conftest import PATIENCE_S, Served, pointed_at, until
from tests.service.clients import fork_of, over_socket, run_of, trained
from tests.service.headless import Command, Configure, Text, point_at
from tests.toy_engine import ToyEngine


class Terminal:
    """A command whose stdin is a terminal."""

    def __init__(
        self, argv: Sequence[str], keyboard: int, read: Callable[[], tuple[str, str]]
    ) -> None:
        """`read` returns what was printed since it was called last."""
        self._keyboard, self._read = keyboard, read
        self._out = self._err = ""
        self._running = asyncio.ensure_future(asyncio.to_thread(main, argv))

    async def asked(self, ending: str = "[y/N] ") -> str:
        """What it has said up to a question, which it waits with."""
        await until(lambda: ending in self._said())
        said, self._err = self._err, ""
        return said

    def _said(self) -> str:
        out, err = self._read()
        self._out += out
        self._err += err
        return self._err

    def type(self, text: str) -> None:
        os.write(self._keyboard, text.encode())

    async def ended(self) -> tuple[int, str]:
        """Its exit code and its stdout, once it has ended."""
        code = await self._running
        self._said()
        return code, self._out


Open = Callable[..., Terminal]


@pytest.fixture
def open_terminal(
    served: Served, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Open]:
    """Begins a command at a terminal."""
    point_at(monkeypatch, served.url, served.api_key)
    keyboard, screen = pty.openpty()
    with os.fdopen(screen) as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        yield lambda *argv: Terminal(argv, keyboard, capsys.readouterr)
    os.close(keyboard)


@pytest.fixture(autouse=True)
def _no_sdk_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    """By doctor: where it is installed, that takes seconds."""
    monkeypatch.setattr(sinks, "_try_sdk", str)


@pytest.fixture
async def client(served: Served) -> AsyncIterator[HudClient]:
    async with over_socket(served) as client:
        yield client


async def head_of(client: HudClient, model: Model) -> str | None:
    return next((c.name for c in await client.checkpoints(model.id) if c.is_active), None)


async def test_only_yes_is_yes(open_terminal: Open, client: HudClient) -> None:
    model = await trained(client, "mine", steps=3, group_size=2, tasks_per_step=2)
    for answer, code, head in (("\n", 2, 3), ("no\n", 2, 3), ("y\n", 0, 2)):
        terminal = open_terminal("--headless", "head", "mine", "--back", "1")
        assert "serve step-000002 instead of step-000003" in await terminal.asked()
        terminal.type(answer)
        ended, out = await terminal.ended()
        assert (ended, len(out.splitlines())) == (code, 1)
        assert await head_of(client, model) == f"step-00000{head}"


async def test_a_head_that_moves_while_somebody_thinks_is_left_alone(
    open_terminal: Open, client: HudClient
) -> None:
    model = await trained(client, "mine", steps=3, group_size=2)
    first = (await client.checkpoints(model.id))[0]
    terminal = open_terminal("--headless", "head", "mine", "--back", "1")
    await terminal.asked()
    await client.set_head(model.id, first.id)
    terminal.type("y\n")
    code, out = await terminal.ended()
    error = json.loads(out)["error"]
    assert (code, error["type"]) == (1, "conflict")
    assert "nothing was sent" in error["message"]
    assert await head_of(client, model) == first.name


async def test_a_question_can_be_left(open_terminal: Open, client: HudClient) -> None:
    await fork_of(client, "mine")
    terminal = open_terminal("--headless", "fork", "mine", "--name", "other")
    assert "fork mine at base weights as other?" in await terminal.asked()
    terminal.type("\x04")
    assert (await terminal.ended())[0] == 2
    assert "other" not in [known.name for known in await client.models()]


async def test_a_question_can_be_interrupted(served: Served, client: HudClient) -> None:
    await fork_of(client, "mine")
    keyboard, stdin = pty.openpty()
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "hud_tui", "fork", "mine", "--name", "other"),
        stdin=stdin,
        stderr=PIPE,
        env=os.environ | pointed_at(served.url, served.api_key),
    )
    os.close(stdin)
    try:
        async with asyncio.timeout(PATIENCE_S):
            await process.stderr.readuntil(b"[y/N] ")
            process.send_signal(signal.SIGINT)
            assert await process.wait() == INTERRUPTED
    finally:
        os.close(keyboard)  # which ends a process that is left
    assert "other" not in [known.name for known in await client.models()]


async def test_a_model_is_picked_and_all_that_is_sent_is_said(
    open_terminal: Open, client: HudClient
) -> None:
    first, second = await fork_of(client, "first"), await fork_of(client, "second")
    flags = ("--steps", "1", "--group-size", "2", "--reasoning-effort", "low")
    terminal = open_terminal("--headless", "run", "arith", *flags)
    offered = await terminal.asked("or a name] ")
    assert offered.index("1  second") < offered.index("2  first")
    terminal.type("2\n")
    said = await terminal.asked()
    for words in ("first", "training task", "taskset arith", "group size", '"low"', "other "):
        assert words in said
    assert f"train {first.model_name} on" in said
    terminal.type("y\n")
    code, out = await terminal.ended()
    job = json.loads(out)["data"]
    assert (code, job["model"]) == (0, first.model_name)
    assert job["url"].endswith(f"/jobs/{job['job_id']}")
    assert await client.known_job(second.id) is None


async def test_an_answer_that_names_no_model_sends_nothing(
    open_terminal: Open, client: HudClient
) -> None:
    models = [await fork_of(client, name) for name in ("first", "second")]
    terminal = open_terminal("--headless", "run", "arith")
    await terminal.asked("or a name] ")
    terminal.type("7\n")
    code, out = await terminal.ended()
    assert (code, json.loads(out)["error"]["message"]) == (2, "no model named 7")
    assert [await client.known_job(model.id) for model in models] == [None, None]


async def confirmed(terminal: Terminal, question: str) -> str:
    """Answer y to the question of a command without --headless; what it printed at its end."""
    assert question in await terminal.asked()
    terminal.type("y\n")
    code, out = await terminal.ended()
    assert code == 0
    return out


async def test_without_headless_a_change_is_asked_for_done_and_told_in_a_line(
    open_terminal: Open, text: Text, client: HudClient
) -> None:
    model = await trained(client, "mine", steps=3, group_size=2)
    out = await confirmed(open_terminal("head", "mine", "--back", "2"), "serve step-000001")
    assert out == "mine serves step-000001 instead of step-000003; verified\n"
    assert await head_of(client, model) == "step-000001"
    *_, moved, summary = (await text("head", "mine", "--history"))[1].splitlines()
    assert moved.endswith(f"head set  step-000003  step-000001  command line on {node()}")
    assert summary == "moves of the head: complete"
    again = open_terminal("head", "mine", "--set", "step-000001")
    out = await confirmed(again, "serve step-000001")
    assert out == "mine serves step-000001 already; verified\n"
    out = await confirmed(open_terminal("fork", "mine", "--name", "other"), "as other?")
    assert out == "forked mine at step-000001 as other; train it: hud-tui run TASKS -m other\n"
    assert "other" in [known.name for known in await client.models()]


async def test_without_headless_a_job_is_cancelled_and_resumed(
    open_terminal: Open, client: HudClient, engine: ToyEngine
) -> None:
    model = await fork_of(client, "mine")
    engine.rest_after(1)
    job_id = (await client.runs.submit(await run_of(client, model, steps=3, group_size=2))).job_id
    await until(lambda: engine.rests)
    for flag, done in (("--cancel", "cancelled"), ("--resume", "resumed")):
        out = await confirmed(open_terminal("jobs", job_id[:8], flag), f"{flag[2:]} job")
        assert out.startswith(f"{done} job {job_id}")
    assert (await client.job_status(job_id)).status in ("queued", "running")


async def test_a_run_that_is_confirmed_is_followed_in_lines(
    hud: Command, text: Text, configure: Configure
) -> None:
    configure("[alarms.zero_variance]\ninfo = 1e-9\nwarn = 2e-9\nwarmup = 0\nhold = 1\n")
    words = ("run", "arith", "-m", "arith-rl", "--steps", "2", "--group-size", "2", "-y")
    code, printed, _ = await text(*words, "--follow")
    out = printed.splitlines()
    assert code == 0
    (alarm,) = [line for line in out if "zero-variance groups since step " in line]
    out.remove(alarm)
    assert re.match(r"\w+: .* since step \d+: zero-variance groups [\d.]+ ", alarm)
    assert [line.partition(":")[0] for line in out[:-1]] == ["step 1", "step 2"]
    assert re.match(r"job \S+ succeeded; step-000002: reward ", out[-1])
    _, printed, _ = await text(*words)
    assert re.fullmatch(r"submitted job \S+ of arith-rl; watch it: hud-tui .*\n", printed)


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


WORDS = {
    "fork": ("SOURCE", "--name", "another", "-y"),
    "head": ("mine", "--set", "head", "-y"),
    "run": ("arith", "-m", "mine", "-y", "--steps", "1", "--group-size", "2"),
    "eval": ("arith", "-m", "mine"),
    "evals": ("mine",),
    "preflight": ("arith", "-m", "mine"),
    "checkpoints": ("mine",),
    "export": ("mine", "-o", "FOLDER/out.csv"),
    "report": ("mine", "-o", "FOLDER/report"),
    "protect": ("mine",),
    "sweep": ("nothing",),
    "serve": ("--port", "0", "--engine", "nothing", "--data-dir", "FOLDER/serve"),
    "init-env": ("small",),
    "traces": ("mine",),
    "watch": ("mine",),
}
"""Words of commands that want some; a command that is not listed here is tried alone."""
TOLD = {
    "fork": "done: fork → another (hud-tui log lists it). But stdout",
    "run": "done: submit → job",
    "eval": "done: evaluate",
    "export": "done: write FOLDER/out.csv. But stdout",
    "report": "done: write FOLDER/report",
    "protect": "done: protect mine",
    "init-env": "done: write small/",
}
"""What is told of a change that was made."""
CODES = {0, 1, 2, 3, 4, 5, 6, 7, NOT_PRINTED, READER_LEFT}


@pytest.mark.parametrize(
    ("closed", "headless"), [("full", True), ("full", False), ("pipe", True), ("descriptor", False)]
)
async def test_a_command_that_cannot_print_says_what_it_did(
    served: Served,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    closed: str,
    headless: bool,
) -> None:
    """Every command there is, so that a new one is tried at once; without a reader, those that
    change something: what the others do then is as on a full disk."""
    point_at(monkeypatch, served.url, served.api_key)
    monkeypatch.setenv("HUD_TUI_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    async with over_socket(served) as client:
        source = (await client.models())[0].model_name
        await fork_of(client, "mine")
    named = {"SOURCE": source, "FOLDER": str(tmp_path)}
    for verb, command in COMMANDS.items():
        if closed == "pipe" and verb not in TOLD:
            continue
        words = [_named(word, named) for word in WORDS.get(verb, ())]
        argv = [*(["--headless"] if headless else []), verb, *words]
        args = build_parser().parse_args(argv) if verb in WORDS else None
        if not headless and command.view and not (args and needs_no_app(args)):
            continue  # it opens the app
        capsys.readouterr()
        with unwritable(closed) as stdout, monkeypatch.context() as patched:
            patched.setattr(sys, "stdout", stdout)
            code = await asyncio.to_thread(main, argv)
        err = capsys.readouterr().err
        assert "Traceback" not in err, (argv, err)
        assert "bug" not in err, (argv, err)
        assert code in CODES, argv
        if verb in TOLD:
            told = _named(TOLD[verb], named)
            assert (code, told in err) == (NOT_PRINTED, True), (argv, err)
            assert err.count("stdout cannot be written") == 1, (argv, err)


async def test_a_sweep_that_cannot_be_printed_says_how_it_goes_on(
    served: Served,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    point_at(monkeypatch, served.url, served.api_key)
    monkeypatch.setenv("HUD_TUI_STATE_DIR", str(tmp_path))
    async with over_socket(served) as client:
        await fork_of(client, "mine")
    for argv, told in (
        (
            "run arith -m mine --steps 1,2 --group-size 2 -y",
            "begin mine-sweep, no run yet (hud-tui",
        ),
        ("sweep mine-sweep --resume -y", "resume mine-sweep"),
        ("sweep mine-sweep --cancel -y", "cancel mine-sweep"),
    ):
        with unwritable("full") as stdout, monkeypatch.context() as patched:
            patched.setattr(sys, "stdout", stdout)
            code = await asyncio.to_thread(main, ["--headless", *argv.split()])
        err = capsys.readouterr().err
        assert (code, f"hud-tui: done: {told}" in err) == (NOT_PRINTED, True), err


def _named(word: str, named: Mapping[str, str]) -> str:
    for name, text in named.items():
        word = word.replace(name, text)
    return word


@contextmanager
def unwritable(closed: str) -> Iterator[IO[str] | None]:
    if closed == "descriptor":
        yield None
        return
    if closed == "full":
        writer = os.open("/dev/full", os.O_WRONLY)
    else:
        reader, writer = os.pipe()
        os.close(reader)
    stream = os.fdopen(writer, "w")
    yield stream
    with suppress(OSError):  # what is left in its buffer
        stream.close()


class Interrupting(io.TextIOWrapper):
    """A stream that Ctrl+C reaches once: in a write that waits for a reader, or right after one."""

    interrupted = False

    def flush(self) -> None:
        waits = not select([], [self], [], 0)[1]
        if not waits:
            super().flush()
        if not self.interrupted:
            self.interrupted = True
            signal.raise_signal(signal.SIGINT)


async def changing() -> None:
    changed("forked m")
    print("a document", flush=True)


def test_one_interrupt_ends_a_write_that_waits_for_its_reader(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reader, writer = filled_pipe()
    before = signal.getsignal(signal.SIGINT)
    stdout = Interrupting(os.fdopen(writer, "wb"))
    monkeypatch.setattr(sys, "stdout", stdout)
    with streams() as results:
        with pytest.raises(KeyboardInterrupt):
            asyncio.run(changing())
        with pytest.raises(StdoutFailed):  # nothing more waits for that reader
            results.flush()
        assert results.unprinted == ["forked m"]
    assert signal.getsignal(signal.SIGINT) == before
    os.close(reader)
    with suppress(OSError):  # what is left in its buffer
        stdout.close()


def test_an_interrupt_after_a_write_does_not_call_it_unprinted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reader, writer = os.pipe()
    with Interrupting(os.fdopen(writer, "wb")) as stdout, monkeypatch.context() as patched:
        patched.setattr(sys, "stdout", stdout)
        with streams() as results:
            with pytest.raises(KeyboardInterrupt):
                asyncio.run(changing())
            results.flush()
            assert not results.unprinted
    assert os.read(reader, 100) == b"a document\n"
    os.close(reader)


@pytest.mark.parametrize("name", ["stdout", "stderr"])
def test_an_interrupt_after_a_write_cancels_what_writes(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """It ends as it does anywhere else: with what it has to say of its end."""
    ends: list[str] = []

    async def writing() -> None:
        try:
            print("begun", file=getattr(sys, name), flush=True)
            await asyncio.sleep(PATIENCE_S)
        except asyncio.CancelledError:
            ends.append("cancelled")
            raise

    reader, writer = os.pipe()
    with Interrupting(os.fdopen(writer, "wb")) as stream, monkeypatch.context() as patched:
        patched.setattr(sys, name, stream)
        with streams(), pytest.raises(KeyboardInterrupt):
            asyncio.run(writing())
    assert ends == ["cancelled"]
    assert os.read(reader, 100) == b"begun\n"
    os.close(reader)


@pytest.mark.parametrize("interrupt", [signal.default_int_handler, signal.SIG_IGN])
def test_sigterm_ends_a_command_as_sigint_does(
    monkeypatch: pytest.MonkeyPatch, interrupt: signal.Handlers
) -> None:
    ends = []

    async def waiting(client: object, args: object) -> int:
        try:
            signal.raise_signal(signal.SIGTERM)
            await asyncio.sleep(PATIENCE_S)
        finally:
            ends.append("cleaned up")
        return 0

    monkeypatch.setattr("hud_tui.cli.status.status", waiting)
    point_at(monkeypatch, "http://127.0.0.1:1", "a-key")
    before = signal.signal(signal.SIGINT, interrupt)
    try:
        assert main(["--headless", "status"]) == 143
    finally:
        signal.signal(signal.SIGINT, before)
    assert ends == ["cleaned up"]
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_what_was_cancelled_waits_for_no_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    async def printing() -> None:
        signal.raise_signal(signal.SIGINT)
        print("a document", flush=True)

    reader, full = filled_pipe()
    with os.fdopen(full, "w") as stdout, monkeypatch.context() as patched:
        patched.setattr(sys, "stdout", stdout)
        with streams(), pytest.raises(KeyboardInterrupt):
            asyncio.run(printing())
        os.close(reader)


def filled_pipe() -> tuple[int, int]:
    """Its reader and its writer, which has no room."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    with suppress(BlockingIOError):
        while True:
            os.write(writer, b"x" * 4096)
    os.set_blocking(writer, True)
    return reader, writer


async def until_ended(client: HudClient, job_id: str) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while is_active((await client.job_status(job_id)).status):  # noqa: ASYNC110 - over HTTP
            await asyncio.sleep(0.02)


async def test_one_interrupt_ends_watch_whose_reader_does_not_read(
    served: Served, client: HudClient, tmp_path: Path
) -> None:
    model = await fork_of(client, "mine")
    run = await run_of(client, model, steps=60, group_size=2)
    reader, writer = filled_pipe()
    dirs = {f"HUD_TUI_{name}_DIR": str(tmp_path / name) for name in ("CONFIG", "STATE", "DATA")}
    job_id = (await client.runs.submit(run)).job_id
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "hud_tui", "--headless", "watch", "mine", "--until", "step=900"),
        stdout=writer,
        stderr=STDOUT,
        env=os.environ | dirs | pointed_at(served.url, served.api_key),
    )
    try:
        os.read(reader, 4096)  # room for one page
        await until(lambda: not select([], [writer], [], 0)[1])
        await until_ended(client, job_id)
        process.send_signal(signal.SIGINT)
        async with asyncio.timeout(PATIENCE_S):
            assert await process.wait() == INTERRUPTED
    finally:
        os.close(reader)
        os.close(writer)
        if process.returncode is None:
            process.kill()
            await process.wait()


@pytest.mark.parametrize("encoding", ["ascii", "iso8859-2"])
def test_what_a_locale_cannot_write_is_a_question_mark(
    monkeypatch: pytest.MonkeyPatch, encoding: str
) -> None:
    """Arrows and dashes of texts for people; documents are ASCII."""
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding=encoding))
    assert main(["keys", "live"]) == 0
    assert b"live.move" in written.getvalue()
    assert b" ? " in written.getvalue()


@pytest.mark.parametrize("unbuffered", ["", "1"])
async def test_a_process_ends_with_the_code_of_what_it_did(
    served: Served, tmp_path: Path, unbuffered: str
) -> None:
    """As a shell sees it: also what is left in buffers when the process exits."""
    async with over_socket(served) as client:
        source = (await client.models())[0].model_name
    environ = os.environ | pointed_at(served.url, served.api_key)
    environ |= {"HUD_TUI_STATE_DIR": str(tmp_path), "PYTHONUNBUFFERED": unbuffered}

    async def ran(*words: str) -> tuple[int, str]:
        command = [sys.executable, "-m", "hud_tui", "--headless", *words]
        with unwritable("full") as full:
            process = await asyncio.create_subprocess_exec(
                *command, env=environ, stdout=full, stderr=PIPE
            )
            _, err = await process.communicate()
        return process.returncode or 0, err.decode()

    fork = ("fork", source, "--name", "another", "-y")
    code, err = await ran(*fork)
    assert (code, err.count("\n")) == (NOT_PRINTED, 1), err
    assert "done: fork → another" in err
    code, err = await ran(*fork)
    assert (code, "exists already" in err, err.count("\n")) == (1, True, 1), "refused is refused"


@pytest.mark.parametrize(
    ("word", "stderr", "code"),
    [
        ("keys", PIPE, READER_LEFT),
        ("--help", PIPE, READER_LEFT),
        ("nonsense", STDOUT, 2),  # an error that nobody reads has its code
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
        await process.stdout.readline()
        leave(process)
        err = await process.stderr.read()
        assert await process.wait() == READER_LEFT
        assert b"Traceback" not in err
        assert len(await client.jobs(5)) == 1
