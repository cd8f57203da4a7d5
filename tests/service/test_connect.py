"""The embedded service here, by itself and as `serve`: started, found, shared, stopped."""

import asyncio
import fcntl
import json
import os
import re
import shutil
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from pathlib import Path
from types import SimpleNamespace

import httpx
import pytest
import uvicorn

from hud_tui import __version__, build, local_service
from hud_tui.cli.doctor import find_service
from hud_tui.cli.main import main
from hud_tui.errors import HudUnreachable, HudUsage
from hud_tui.local_service import connect_local, stop
from hud_tui.processes import alive, holding
from hud_tui.service.__main__ import main as serve_main
from hud_tui.service.data_dir import Unusable, examine, load_key
from hud_tui.service.entrance import Entrance
from hud_tui.service.service import Service
from hud_tui.service.serving import Listening, _serve
from hud_tui.service_file import ServiceReady, forget, offer, read_ready, register
from hud_tui.settings import Paths, read_paths
from tests.conftest import PATIENCE_S, fork, serve_process, submit, until
from tests.service.calls import reach, resume, status_of
from tests.service.clients import documents, fork_of, run_of
from tests.toy_engine import ToyEngine


@pytest.fixture
async def paths(tmp_path: Path) -> AsyncIterator[Paths]:
    """Directories of their own, and no service left behind."""
    paths = Paths(tmp_path / "config", tmp_path / "state", tmp_path / "data")
    yield paths
    await stop(paths)


async def connected(paths: Paths, file: Path | None = None) -> ServiceReady:
    """What a file, or else the state directory's, names, after connecting and asking it."""
    client = await connect_local(paths, lambda text: None)
    assert client.settings.label == "HUD local"
    await client.whoami()
    await client.aclose()
    ready = read_ready(file or paths.service_file)
    assert ready is not None
    assert ready.url == client.settings.api_url
    return ready


async def found(paths: Paths) -> ServiceReady:
    """The service of a data directory, by its own file."""
    return await connected(paths, paths.serving_file)


async def test_it_is_started_once_then_found_then_stopped(paths: Paths) -> None:
    ready = await connected(paths)
    made = [place for top in (paths.state, paths.data) for place in (top, *top.rglob("*"))]
    assert {stat.S_IMODE(one.stat().st_mode) for one in made if one.is_dir()} == {0o700}
    assert {stat.S_IMODE(one.stat().st_mode) for one in made if one.is_file()} == {0o600}
    assert paths.service_log in made
    assert await connected(paths) == ready
    assert os.getsid(ready.pid) != os.getsid(0)
    serving = await hud(paths, "serve")
    _, err = await serving.communicate()
    assert serving.returncode == 1
    assert f"is served by another process, {ready.pid}: use that one" in err.decode()
    assert await stop(paths) == ready.pid
    assert not alive(ready.pid)
    assert not paths.service_file.exists()
    assert await stop(paths) is None


async def test_programs_that_start_at_once_end_with_one_service(paths: Paths) -> None:
    code = (
        "import asyncio, sys\n"
        "from pathlib import Path\n"
        "from hud_tui.local_service import connect_local\n"
        "from hud_tui.settings import Paths\n"
        "paths = Paths(*map(Path, sys.argv[1:]))\n"
        "async def main():\n"
        "    client = await connect_local(paths, lambda text: None)\n"
        "    print(client.settings.api_url)\n"
        "    await client.aclose()\n"
        "asyncio.run(main())\n"
    )
    programs = [
        await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", code, str(paths.config), str(state), str(paths.data)),
            stdout=asyncio.subprocess.PIPE,
        )
        for state in (paths.state, paths.state, paths.state.with_name("another"))
    ]
    urls = [(await program.communicate())[0] for program in programs]
    assert [program.returncode for program in programs] == [0, 0, 0]
    assert len(set(urls)) == 1


async def test_a_killed_one_is_replaced(paths: Paths) -> None:
    """Where state and data share a directory, as they do by default on macOS."""
    paths = Paths(paths.config, paths.data, paths.data)
    first = await connected(paths)
    os.kill(first.pid, signal.SIGKILL)
    await until(lambda: not alive(first.pid))
    second = await connected(paths)
    assert second.pid != first.pid
    assert second.api_key == first.api_key


@pytest.mark.parametrize("left", ["", "{", '{"url": "http://127.0.0.1:9"}', "[" * 9999])
@pytest.mark.parametrize("place", ["state", "data"])
async def test_a_file_that_no_service_wrote_is_refused_by_name(
    paths: Paths, place: str, left: str
) -> None:
    file = paths.service_file if place == "state" else paths.serving_file
    file.parent.mkdir()
    file.touch(0o600)
    file.write_text(left)
    for act in (connect_local(paths, lambda text: None), stop(paths)):
        with pytest.raises(
            HudUsage, match=r"service\.json: not written by a hud-tui service"
        ) as no:
            await act
        assert str(file) in no.value.message
        assert "remove it" in no.value.hint
    assert file.read_text() == left
    file.unlink()


def test_a_process_or_an_address_that_none_can_be_is_left_alone(tmp_path: Path) -> None:
    """0 and -1 would be this program's group, or every process there is."""
    paths = Paths(tmp_path, tmp_path, tmp_path)
    ready = ready_of(1, paths)
    addresses = ("", "http://", "http://[red]:1", "http://x:99999", "ftp://127.0.0.1", "http://x:0")
    for wrong in (
        *({"pid": pid} for pid in (0, -1, 2**31, 10**30)),
        *({"url": url} for url in addresses),
    ):
        register(paths.service_file, ready.model_copy(update=wrong))
        with pytest.raises(HudUsage, match="not written by a hud-tui service"):
            read_ready(paths.service_file)


async def test_a_file_that_names_a_process_of_something_else_is_replaced(
    paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hud_tui.client.transport.retry_delay", lambda *asked: None)
    register(paths.service_file, ready_of(os.getpid(), paths))
    assert (await connected(paths)).pid != os.getpid()


async def test_one_that_runs_is_neither_trusted_in_the_open_nor_forgotten_when_silent(
    paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    ready = await connected(paths)
    for file in (paths.service_file, paths.serving_file):
        file.chmod(0o640)
        with pytest.raises(HudUsage, match=r"others can access it .mode 0640, not 0600") as refused:
            await connect_local(paths, lambda text: None)
        assert refused.value.hint.startswith(f"chmod 600 {file}")
        file.chmod(0o600)
        assert await connected(paths) == ready
    os.kill(ready.pid, signal.SIGSTOP)
    try:
        with monkeypatch.context() as impatient:
            impatient.setattr(local_service, "ANSWER_S", 0.5)
            for act in (stop(paths), connect_local(paths, lambda text: None)):
                with pytest.raises(HudUnreachable, match=f"process {ready.pid}, does not answer"):
                    await act
    finally:
        os.kill(ready.pid, signal.SIGCONT)
    assert read_ready(paths.service_file) == ready
    assert await stop(paths) == ready.pid


async def test_each_data_directory_has_its_own(paths: Paths) -> None:
    """The state directory's file names the first; the second is found all the same, also where it
    runs in the foreground and began before."""
    other = Paths(paths.config, paths.state, paths.data.with_name("other"))
    serving = await hud(other, "serve", state=False)
    assert serving.stdout is not None
    said = ServiceReady.model_validate_json(await serving.stdout.readline())
    assert not paths.service_file.exists()
    assert await found(other) == said
    first = await connected(paths)
    assert (first.pid != said.pid, await found(other)) == (True, said)
    assert await stop(other, anywhere=False) == said.pid
    await serving.communicate()
    assert not other.serving_file.exists()
    second = await found(other)
    assert (second.pid != first.pid, Path(second.data_dir)) == (True, other.data)
    assert await found(other) == second
    assert await found(paths) == first
    assert read_ready(paths.service_file) == first
    assert await stop(other, anywhere=False) == second.pid
    assert await stop(other, anywhere=False) is None
    assert await found(paths) == first
    assert await stop(other) == first.pid


async def test_one_that_cannot_start_says_what_it_logged_and_no_more(paths: Paths) -> None:
    """The data directory is held by a process that is no service, so nobody finds it."""
    paths.data.mkdir()
    paths.state.mkdir()
    paths.service_log.write_text("what an earlier one said\n")
    with (paths.data / "service.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(HudUnreachable) as error:
            await connect_local(paths, lambda text: None)
    assert error.value.message.count("is served by another process") == 1
    assert "earlier" not in error.value.message
    assert f"hud-tui --local --data-dir {paths.data}" in error.value.message
    assert str(paths.service_log) in error.value.hint


async def test_leaving_while_it_starts_leaves_none_behind(
    paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []
    connecting = asyncio.create_task(connect_local(paths, told.append))
    await until(lambda: bool(told))
    connecting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await connecting
    assert read_ready(paths.service_file) is None
    await until(lambda: is_free(paths.data / "service.lock"))
    await connected(paths)


def test_offering_does_not_displace_one_that_runs(tmp_path: Path) -> None:
    paths = read_paths(str(tmp_path), str(tmp_path / "data"), environ={"HUD_TUI_CONFIG_DIR": "/c"})
    paths.data.mkdir()
    other = Paths(paths.config, paths.state, Path("/other"))
    register(paths.service_file, ready_of(os.getpid(), paths))
    with holding(paths.data / "service.lock"):
        offer(paths.service_file, ready_of(1, other))
    assert read_ready(paths.service_file) == ready_of(os.getpid(), paths)
    offer(paths.service_file, ready_of(1, other))  # only its id is there: another program has it
    assert read_ready(paths.service_file) == ready_of(1, other)
    register(paths.service_file, ready_of(os.getpid(), paths))
    forget(paths.service_file, pid=1)
    assert read_ready(paths.service_file) is not None
    forget(paths.service_file, pid=os.getpid())
    assert read_ready(paths.service_file) is None


def is_free(lock: Path) -> bool:
    if not lock.exists():
        return True
    with lock.open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True


def ready_of(pid: int, paths: Paths) -> ServiceReady:
    return ServiceReady(
        url="http://127.0.0.1:9",
        api_key="k",
        telemetry_url="http://127.0.0.1:9/t",
        pid=pid,
        data_dir=str(paths.data),
    )


async def hud(paths: Paths, *argv: str, state: bool = True) -> asyncio.subprocess.Process:
    """A command in a process of its own, with these directories; the state's by flag or not."""
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "hud_tui", *argv, "--data-dir", str(paths.data)),
        *(("--state-dir", str(paths.state)) if state else ()),
        env={**os.environ, "HUD_TUI_STATE_DIR": str(paths.state)},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )


def test_serve_says_which_directory_cannot_be_used(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "state").touch()
    places = ("--state-dir", str(tmp_path / "state" / "x"), "--data-dir", str(tmp_path / "data"))
    assert main(["serve", "--headless", *places]) == 2
    out, err = capsys.readouterr()
    [said] = documents(out)
    assert said["error"]["type"] == "usage"
    assert f"{tmp_path / 'state' / 'x'}: " in said["error"]["message"]
    assert "Traceback" not in err


async def test_serve_in_the_foreground_is_found_by_local_until_it_ends(
    paths: Paths, capsys: pytest.CaptureFixture[str]
) -> None:
    serving = await hud(paths, "serve")
    assert serving.stdout is not None
    said = ServiceReady.model_validate_json(await serving.stdout.readline())
    assert said == await connected(paths)
    says(paths, version="0.0.1")
    async with aclosing(await connect_local(paths, lambda text: None)) as client:
        assert "another version" in client.settings.label
    assert serving.returncode is None, "one in somebody's foreground is not ended for its version"
    for file in (paths.serving_file, paths.service_file):
        register(file, said)
    places = ("--state-dir", str(paths.state), "--data-dir", str(paths.data))
    assert await asyncio.to_thread(main, ["--headless", "--local", "status", *places]) == 0
    assert await asyncio.to_thread(main, ["stop", "--headless", *places]) == 0
    status, stopped = documents(capsys.readouterr().out)
    assert status["data"]["service"] == {"label": "HUD local", "url": said.url}
    assert stopped["data"] == {"stopped": True, "pid": said.pid}
    rest, _ = await serving.communicate()
    assert (serving.returncode, rest) == (0, b"")
    assert not paths.service_file.exists()


def says(paths: Paths, **other: object) -> ServiceReady:
    """Have the running service's files say what another hud-tui would have written."""
    ready = read_ready(paths.serving_file)
    assert ready is not None
    assert not ready.is_other
    ready = ready.model_copy(update=other)
    for file in (paths.serving_file, paths.service_file):
        register(file, ready)
    return ready


OTHERS = (
    {"version": "0.0.1"},
    {"version": "", "build": "", "package": "", "began": 0.0},
    {"build": "0123456789ab", "package": "/elsewhere/hud_tui"},
)
"""An older version, one that did not say which it is, and one with other files."""


async def test_a_service_of_another_version_is_restarted_where_nothing_trains(paths: Paths) -> None:
    ready = await found(paths)
    assert all(ready.model_copy(update=other).is_other for other in OTHERS)
    old = says(paths, **OTHERS[1])
    told: list[str] = []
    async with aclosing(await connect_local(paths, told.append)) as client:
        assert (await client.whoami()).version == __version__
        assert client.settings.label == "HUD local"
    new = read_ready(paths.serving_file)
    assert new is not None
    assert (new.pid != old.pid, new.is_other, alive(old.pid)) == (True, False, False)
    assert told[0] == "another version of the embedded service runs: it is restarted"
    assert (await found(paths)).pid == new.pid


async def test_a_service_of_another_version_that_trains_is_left_and_named(
    paths: Paths, capsys: pytest.CaptureFixture[str]
) -> None:
    async with aclosing(await connect_local(paths, lambda text: None)) as client:
        model = await fork_of(client, "m")
        await client.runs.submit(await run_of(client, model, steps=9000))
        old = says(paths, version="0.0.1")
        told: list[str] = []
        async with aclosing(await connect_local(paths, told.append)) as other:
            assert other.settings.label == "HUD local: another version, restart it"
        assert told == [
            "another version of the embedded service runs. When it has nothing to do: hud-tui stop"
            " ends it, and the next hud-tui --local starts this version"
        ]
        assert alive(old.pid)
        ready, finding = find_service(paths)
        assert (ready, finding.level) == (old, "warning")
        assert f"version 0.0.1, this is {__version__}" in finding.message
        [job] = await client.jobs()
        await client.cancel_job(job.id)


def test_a_build_is_its_files() -> None:
    now = time.time() + 60
    package = build.PACKAGE
    assert not build.is_other(__version__, "not read", package, now)
    assert build.is_other(__version__, "not this", package, 0.0), "a file is newer than the service"
    assert not build.is_other(__version__, build.digest(), "/elsewhere", 0.0)


def test_the_same_build_is_known_in_a_checkout_and_in_an_installed_wheel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A wheel has the styles in its package, a checkout beside it."""
    here = build.digest()
    installed = tmp_path / "hud_tui"
    shutil.copytree(build.PACKAGE, installed, ignore=shutil.ignore_patterns("__pycache__"))
    styles = installed / "styles"
    shutil.copytree(Path(__file__).parents[2] / "styles", styles, dirs_exist_ok=True)
    monkeypatch.setattr(build, "PACKAGE", str(installed))
    assert build.digest.__wrapped__() == here
    (installed / "wire.py").write_bytes(b"")
    assert build.digest.__wrapped__() != here


async def test_an_interrupt_while_following_exits_130_and_leaves_the_run(paths: Paths) -> None:
    client = await connect_local(paths, lambda text: None)
    await fork_of(client, "m")
    following = await hud(
        paths, "--headless", "--local", "run", "arith", "--steps", "9000", "-y", "--follow"
    )
    assert following.stdout is not None
    assert json.loads(await following.stdout.readline())["kind"] == "event"
    following.send_signal(signal.SIGINT)
    _, err = await following.communicate()
    assert following.returncode == 130
    assert b"Traceback" not in err
    [job] = await client.jobs()
    assert job.status == "running"
    await client.cancel_job(job.id)
    await client.aclose()


async def test_a_start_that_takes_too_long_is_given_up(
    paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_service, "START_S", 0)
    with pytest.raises(HudUnreachable, match="not ready after"):
        await connect_local(paths, lambda text: None)


async def test_a_start_has_time_to_rewrite_a_large_database(
    paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_service, "START_S", 0)
    paths.data.mkdir(parents=True)
    with (paths.data / "service.db").open("wb") as file:
        file.truncate(30 * local_service.REWRITTEN)
    with pytest.raises(HudUnreachable, match="exited before it was ready"):
        await connect_local(paths, lambda text: None)


async def test_a_start_on_a_full_disk_says_so(
    paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its log cannot be written either."""
    free = SimpleNamespace(free=0)
    monkeypatch.setattr("shutil.disk_usage", lambda folder: free)
    monkeypatch.setattr("hud_tui.local_service.daemon", lambda *started, **named: exits_at_once())
    with pytest.raises(HudUnreachable, match=r"the disk of .* is full") as refused:
        await connect_local(paths, lambda text: None)
    assert "--data-dir" in refused.value.hint


def exits_at_once() -> subprocess.Popen[bytes]:
    return subprocess.Popen(["true"], stdout=subprocess.PIPE, start_new_session=True)


Refused = Callable[..., str]


@pytest.fixture
def refused(capsys: pytest.CaptureFixture[str]) -> Refused:
    """Serve with such flags, which cannot be: what it says of that."""

    def serve(*flags: str) -> str:
        assert serve_main([*flags]) == 1
        out, err = capsys.readouterr()
        assert out == ""
        return err

    return serve


async def test_it_says_how_it_can_be_called_and_stops_cleanly(tmp_path: Path) -> None:
    data = tmp_path / "deep" / "data"
    async with serve_process(data) as process, process.client() as http:
        assert process.ready.pid == process.process.pid
        assert process.ready.data_dir == str(data)
        assert process.ready.telemetry_url == process.ready.url + "/telemetry/v3/api"
        model = await fork(http)
        job_id = await submit(http, model["id"], steps=5000)
        await reach(http, job_id)
        async with http.stream("GET", f"/v1/models/{model['id']}/train/events") as stream:
            assert await anext(stream.aiter_lines()) == ": open"
            process.process.send_signal(signal.SIGTERM)
            code = await asyncio.wait_for(process.process.wait(), PATIENCE_S)
        assert code == 0
        assert process.process.stdout is not None
        assert await process.process.stdout.read() == b""
    (data / "service.db").chmod(0o644)
    async with serve_process(data) as process, process.client() as http:
        status = await status_of(http, job_id)
        assert (status["status"], status["error"]["code"]) == ("interrupted", "interrupted")
        assert (await resume(http, job_id)).status_code == 200
        files = [data / name for name in ("service.db", "service.db-wal", "service.db-shm")]
        assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}
        process.process.send_signal(signal.SIGINT)
        assert await asyncio.wait_for(process.process.wait(), PATIENCE_S) == 0


def test_what_cannot_be_served_is_said_and_left_alone(refused: Refused, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        for port in ("-1", "70000", str(taken.getsockname()[1])):
            said = refused("--data-dir", str(tmp_path / "new"), "--port", port)
            assert said.startswith(f"hud-tui serve: cannot listen on 127.0.0.1:{port}: ")
    (tmp_path / "file").write_text("x")
    assert "cannot use" in refused("--data-dir", str(tmp_path / "file" / "data"))
    foreign = tmp_path / "others" / "checkpoints" / "my-llama" / "weights"
    foreign.parent.mkdir(parents=True)
    foreign.write_text("x")
    assert "has no service.db beside it" in refused("--data-dir", str(tmp_path / "others"))
    assert foreign.read_text() == "x"
    assert not (tmp_path / "others" / "service.db").exists()
    (tmp_path / "odd").mkdir()
    os.mkfifo(tmp_path / "odd" / "service.db")
    said = refused("--data-dir", str(tmp_path / "odd"))
    assert "service.db" in said
    assert "a FIFO, not a regular file" in said


def test_a_key_file_with_something_else_is_refused_by_name(tmp_path: Path) -> None:
    for body in (
        b"",
        b"short",
        b"x" * 42,
        b"hud-local-" + b"x" * 31,
        b"a\nb",
        b"x" * 9999,
        b"\xff\xfe\x00",
    ):
        file = tmp_path / "service.key"
        file.touch(0o600)
        file.write_bytes(body)
        with pytest.raises(Unusable, match=re.escape(str(file))):
            load_key(file)
        assert file.read_bytes() == body


@pytest.mark.parametrize("kind", ["a link", "a FIFO", "a directory", "others can access it"])
def test_a_key_file_that_is_no_private_file_is_refused_by_name(tmp_path: Path, kind: str) -> None:
    file = tmp_path / "service.key"
    key = load_key(tmp_path / "own.key")
    if kind == "a link":
        file.symlink_to(tmp_path / "own.key")
    elif kind == "a FIFO":
        os.mkfifo(file)
    elif kind == "a directory":
        file.mkdir()
    else:
        file.write_text(key)
        file.chmod(0o644)
    with pytest.raises(Unusable, match=f"{re.escape(str(file))}: {kind}") as refused:
        load_key(file)
    assert key not in str(refused.value)
    [finding] = examine(tmp_path)
    assert finding.level == "failure"
    assert f"would not start: {file}: {kind}" in finding.message


async def test_an_idle_connection_outlives_a_clients(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []

    async def served(server: uvicorn.Server, sockets: object) -> None:
        seen.append(server.config.timeout_keep_alive)

    monkeypatch.setattr(uvicorn.Server, "serve", served)
    with socket.create_server(("127.0.0.1", 0)) as bound:
        await _serve(Listening(bound), Entrance(), Service(tmp_path, ToyEngine()), [])
    [kept_s] = seen
    assert kept_s > 2 * (httpx.Limits().keepalive_expiry or 0) > 0


def test_the_key_is_the_users_alone(tmp_path: Path) -> None:
    path = tmp_path / "service.key"
    key = load_key(path)
    assert len(key) > 30
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert load_key(path) == key
