"""Setting a machine up, whatever breaks meanwhile, and undoing it."""

import asyncio
import json
import os
import signal
import socket
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from hud_tui import patience
from hud_tui.errors import HudUsage
from hud_tui.processes import alive
from hud_tui.remote.engines import ENGINES, Engine, Wish, _same, describe, name_of
from hud_tui.remote.jobs import poll_job
from hud_tui.remote.machines import Machine, Machines
from hud_tui.remote.setup import Setup, StepReport, secret_values, weight_bytes
from hud_tui.remote.ssh import Address, ScriptFailed
from tests.conftest import bearer, until
from tests.remote.far import Far, cut_line

FAR = Address("far")


PYTHON = f'#!/bin/sh\\nexec {sys.executable} "$@"\\n'
UV_VENV = f"""\
echo "$UV_CACHE_DIR" >> "$HOME/uv-cache"
[ "$1" = venv ] || exit 1; echo once >> "$HOME/environments"; for last; do :; done
mkdir -p "$last/bin"; printf '{PYTHON}' > "$last/bin/python"; chmod +x "$last/bin/python"
"""
"""In place of uv: an environment out of the tests' own, as there is no network."""


@pytest.fixture(autouse=True)
def counted(far: Far, light: Engine, monkeypatch: pytest.MonkeyPatch) -> Engine:
    """How often packages are installed is counted."""
    install = 'echo installing; echo once >> "$HOME/installs"; sleep 0.1; : > "$R/installed"'
    engine = replace(light, installed='[ -f "$R/installed" ]', install=install)
    monkeypatch.setitem(ENGINES, "hud-tui", engine)
    monkeypatch.setattr("hud_tui.remote.ssh.backoff", lambda failures: 0.01)
    far.tool("uv", UV_VENV)
    return engine


async def machine_of(machines: Machines, **wish: str) -> Machine:
    return await describe(machines, FAR, Wish(**{"name": "box", "engine": "hud-tui", **wish}))


@asynccontextmanager
async def begun(
    machines: Machines, tell: Callable[[StepReport], object] = lambda said: None, **wish: str
) -> AsyncIterator[Setup]:
    """A set-up that is about to run; what it made is undone where the block ends."""
    setup = Setup(machines, await machine_of(machines, **wish), tell)
    try:
        yield setup
    finally:
        await setup.undo()
        await setup.aclose()


@asynccontextmanager
async def set_up(machines: Machines) -> AsyncIterator[Setup]:
    async with begun(machines) as setup:
        await setup.run({})
        yield setup


def environment_of(pid: str) -> list[bytes]:
    return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")


def states(said: list[StepReport]) -> list[tuple[str, str]]:
    return [(one.step, one.state) for one in said if one.state not in ("check", "log")]


async def answers(setup: Setup, machines: Machines) -> int:
    """The status of the server there, asked with its key."""
    url = f"http://127.0.0.1:{await setup.port()}/v2/models"
    async with httpx.AsyncClient(headers=bearer(machines.key("box")), verify=False) as http:
        return (await http.get(url)).status_code


async def test_from_nothing_to_a_server_that_answers_and_back(machines: Machines, far: Far) -> None:
    said: list[StepReport] = []
    async with begun(machines, said.append) as setup:
        assert (await setup.run({})).ready
        assert await answers(setup, machines) == 200
        assert states(said) == [
            *(("folder", "do"), ("folder", "done"), ("files", "do"), ("files", "done")),
            *(("uv", "there"), ("python", "do"), ("python", "done")),
            *(("engine", "do"), ("engine", "done"), ("server", "do"), ("server", "done")),
            *(("health", "do"), ("health", "done")),
        ]
        assert [one.text for one in said if one.step == "engine"][-2:] == ["installing"] * 2
        pulse = await setup.pulse()
        assert (pulse["running"], pulse["port"]) == (True, setup.machine.port)
        assert machines.get("box") == setup.machine
        log = (machines.folder_of("box") / "setup.log").read_text()
        assert "installing" in log
        assert machines.key("box") not in log
        said.clear()
        again = Setup(machines, await machine_of(machines), said.append)
        assert {step.name for step, there in await again.plan() if not there} == {"files", "health"}
        await again.run({})
        assert {step for step, state in states(said) if state == "do"} == {"files", "health"}
        assert (far.home / "installs").read_text() == "once\n", "a second time it is there"
        assert await answers(setup, machines) == 200
    assert not (far.home / ".hud-tui").exists(), "nothing is left there"


async def test_secrets_go_into_one_file_and_nowhere_else(machines: Machines, far: Far) -> None:
    values = secret_values(["HF_TOKEN"], {"HF_TOKEN": "hf_it's$me"})
    async with begun(machines) as setup:
        await setup.run(values)
        file = far.home / ".hud-tui/box/secrets"
        assert file.stat().st_mode & 0o777 == 0o600
        [server] = (far.home / ".hud-tui/box/server.pid").read_text().split()
        assert b"HF_TOKEN=hf_it's$me" in environment_of(server)
        for place in (far.home, machines.folder):
            held = [one for one in place.rglob("*") if one.is_file() and one != file]
            assert not [one for one in held if b"hf_it" in one.read_bytes()]
        assert machines.get("box").secrets == ("HF_TOKEN",)


@pytest.mark.parametrize(
    ("names", "variables", "why"),
    [
        (["AWS_SECRET"], {"AWS_SECRET": "x"}, "is not sent"),
        (["HF_TOKEN"], {}, "not set here"),
        (["HF_TOKEN"], {"HF_TOKEN": "a\nb"}, "not set here"),
    ],
)
def test_what_may_not_be_sent(names: list[str], variables: dict[str, str], why: str) -> None:
    with pytest.raises(HudUsage, match=why):
        secret_values(names, variables)


async def test_a_line_that_breaks_in_every_step(machines: Machines, far: Far) -> None:
    """Wherever it does; each step is still done once, and one server runs."""
    cut_in = Counter[str]()

    def cut(said: StepReport) -> None:
        if said.state in ("check", "do") and said.text != "again":
            line.lengths = [500, 1000, 2200, 2600]
            line.cut()
        if said.state == "log" and "trying again" in said.text:
            cut_in[said.step] += 1

    async with cut_line(far.port) as line:
        far.lead_to(line.port)
        async with begun(machines, cut) as setup:
            await setup.run({})
            line.lengths = []
            assert {*cut_in} == {"folder", "files", "uv", "python", "engine", "server", "health"}
            assert cut_in.total() >= 25
            assert (far.home / "installs").read_text() == "once\n"
            assert (far.home / "environments").read_text() == "once\n"
            assert await answers(setup, machines) == 200
            assert list((far.home / ".hud-tui/box/jobs").iterdir()) == []


async def test_a_set_up_that_was_killed_goes_on_with_its_job(machines: Machines, far: Far) -> None:
    """Another program takes over what the first had started there."""
    doing = asyncio.Event()
    setup = Setup(
        machines,
        await machine_of(machines),
        lambda said: doing.set() if (said.step, said.state) == ("engine", "log") else None,
    )
    first = asyncio.create_task(setup.run({}))
    await doing.wait()
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    assert machines.get("box").job.keys() == {"engine"}
    async with begun(machines) as again:
        assert (await again.run({})).ready
        assert (far.home / "installs").read_text() == "once\n"


async def test_a_job_that_was_killed_there_is_begun_anew(
    machines: Machines, far: Far, counted: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where the machine was started anew in the middle of it."""
    hangs = (
        '[ -e "$HOME/killed" ] && { : > "$R/installed"; exit 0; }; echo $$ > "$HOME/pid"; sleep 99'
    )
    monkeypatch.setitem(ENGINES, "hud-tui", replace(counted, install=hangs))
    async with begun(machines) as setup:
        going = asyncio.create_task(setup.run({}))
        pid = far.home / "pid"
        await until(lambda: pid.exists() and bool(pid.read_text().strip()))
        (far.home / "killed").touch()
        os.killpg(os.getpgid(int(pid.read_text())), signal.SIGKILL)
        assert (await going).ready


async def test_a_halt_is_no_silence_of_a_job(
    machines: Machines, far: Far, counted: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A step may be silent for a minute; this process is halted for longer."""
    go, ran, looks = far.home / "go", patience.monotonic, 0

    def poll(id_: str, offset: int) -> str:
        nonlocal looks
        looks += id_.startswith("python")
        if looks > 1:
            go.touch()
        return poll_job(id_, offset)

    far.tool("uv", f'while [ ! -e "{go}" ]; do sleep 0.05; done; {UV_VENV}')
    monkeypatch.setattr("hud_tui.remote.setup.poll_job", poll)
    monkeypatch.setattr(patience, "monotonic", lambda: ran() + (180.0 if looks else 0.0))
    async with begun(machines) as setup:
        assert (await setup.run({})).ready


async def test_a_disk_that_is_full_there(
    machines: Machines, far: Far, counted: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    fills = replace(counted, install="echo fetching; cat /etc/passwd > /dev/full")
    monkeypatch.setitem(ENGINES, "hud-tui", fills)
    setup = Setup(machines, await machine_of(machines))
    with pytest.raises(ScriptFailed, match="No space left on device") as caught:
        await setup.run({})
    assert "disk is full" in caught.value.hint
    assert "engine" not in machines.get("box").done
    monkeypatch.setitem(ENGINES, "hud-tui", counted)  # somebody made room
    async with begun(machines) as again:
        assert (await again.run({})).ready


async def test_too_little_room_is_said_before_anything_is_done(
    machines: Machines, far: Far
) -> None:
    far.tool("df", "printf 'Filesystem 1024-blocks Used Available\\n/dev/x 9 9 1000 1%% /\\n'")
    setup = Setup(machines, await machine_of(machines))
    with pytest.raises(HudUsage, match=r"disk free for .*/\.hud-tui/box, and about"):
        await setup.plan()
    assert not (far.home / ".hud-tui").exists()
    await setup.aclose()


@pytest.mark.parametrize("made", [False, True])
async def test_the_room_that_counts_is_that_of_the_root(
    machines: Machines, far: Far, tmp_path: Path, made: bool
) -> None:
    """A small home is no reason to refuse; uv's packages do not go there either."""
    disk = tmp_path / "large disk"
    disk.mkdir()
    root = disk / "work/hud-tui"
    far.tool(
        "df",
        "for last; do :; done\n"
        f'free=1000; case $last in "{disk}"*) free=900000000 ;; esac\n'
        'echo "$last" >> "$HOME/asked"; echo Filesystem; echo "/dev/x 9 9 $free 1% /"',
    )
    if made:
        root.mkdir(parents=True)
    asked = far.home / "asked"
    async with begun(machines, root=str(root)) as setup:
        assert await setup.plan()
        assert {*asked.read_text().splitlines()} == {str(root if made else disk)}
        assert (await setup.run({})).ready
        jobs = (far.home / "uv-cache").read_text().split("\n")
        assert {*jobs} == {f"{root}/uv/cache", ""}
    again = await machine_of(machines)
    assert again.facts.free_bytes == 900_000_000 * 1024, "a known machine's root is remembered"


async def test_a_root_in_the_home_and_one_that_is_nonsense(machines: Machines, far: Far) -> None:
    far.tool("df", 'for last; do :; done; echo "$last" >> "$HOME/asked"; exit 1')
    asked = far.home / "asked"
    for root in ("", "~/a/b", "relative/x", "/none/x"):
        with suppress(HudUsage):
            await machine_of(machines, root=root)
    home = str(far.home)
    assert asked.read_text().splitlines() == [home, home, home, "/"]


async def test_a_server_that_died_or_whose_port_is_taken_comes_back(
    machines: Machines, far: Far
) -> None:
    async with set_up(machines) as setup:
        file = far.home / ".hud-tui/box/server.pid"
        pid = file.read_text()
        os.kill(int(pid), signal.SIGKILL)
        await until(lambda: file.exists() and file.read_text() not in (pid, ""))
        await setup.run({})
        assert await answers(setup, machines) == 200
        assert "ended with exit code 137" in await setup.log(50)
        port = await setup.port()
        await setup.stop()
        assert (far.home / ".hud-tui/box/stop").exists()
        with socket.create_server(("127.0.0.1", port)):
            await setup.start()
            await setup.run({})
        assert await setup.port() != port
        assert setup.machine.port == await setup.port()
        assert await answers(setup, machines) == 200


async def test_a_server_whose_loop_was_killed_goes_on(machines: Machines, far: Far) -> None:
    """A second one would find the port taken, and its data in use."""
    root = far.home / ".hud-tui/box"
    async with set_up(machines) as setup:
        server, port = int((root / "server.pid").read_text()), await setup.port()
        await kill(loop_of(root))
        await setup.start()
        assert (await setup.pulse())["running"]
        assert (int((root / "server.pid").read_text()), await setup.port()) == (server, port)
        assert await answers(setup, machines) == 200
        os.kill(server, signal.SIGKILL)
        await until(lambda: (root / "server.pid").read_text().strip() not in ("", str(server)))
        server = int((root / "server.pid").read_text())
        await kill(loop_of(root))
        await setup.stop()
        await until(lambda: not alive(server))


async def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
    await until(lambda: not alive(pid))


def loop_of(root: Path) -> int:
    return int(os.readlink(root / "loop").partition("@")[0])


async def test_a_folder_that_is_not_ours_is_not_removed(machines: Machines, far: Far) -> None:
    (far.home / "work").mkdir()
    (far.home / "work/thesis.tex").touch()
    setup = Setup(machines, await machine_of(machines, root=str(far.home / "work")))
    with pytest.raises(ScriptFailed, match="not made by hud-tui"):
        await setup.undo()
    assert (far.home / "work/thesis.tex").exists()
    await setup.aclose()


async def test_a_server_that_never_answers_is_shown_with_its_log(
    machines: Machines, far: Far, counted: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = replace(
        counted, serve=lambda machine: "sh -c 'echo the weights are broken; sleep 60'", start_s=1
    )
    monkeypatch.setitem(ENGINES, "hud-tui", broken)
    async with begun(machines) as setup:
        with pytest.raises(ScriptFailed, match="the weights are broken"):
            await setup.run({})
        assert "the weights are broken" in await setup.log(10)


async def test_a_machine_keeps_what_it_was_set_up_with_and_a_gpu_engine_needs_a_gpu(
    machines: Machines,
) -> None:
    with pytest.raises(HudUsage, match="needs an NVIDIA GPU"):
        await machine_of(machines, engine="skyrl-gpu")
    machines.write(await machine_of(machines))
    for wish in ({"engine": "skyrl-cpu"}, {"root": "/elsewhere"}, {"model": "m"}):
        with pytest.raises(HudUsage, match="already"):
            await machine_of(machines, **wish)
    with pytest.raises(HudUsage, match="box is far already"):
        _same(machines.get("box"), Address("elsewhere"), Wish("box"))


def test_what_is_unreadable_is_left_and_said(machines: Machines) -> None:
    file = machines.folder_of("box") / "machine.json"
    file.parent.mkdir(parents=True)
    for text in ("{", "[]", '{"version": 9}', json.dumps({"version": 1, "name": "box"})):
        file.write_text(text)
        with pytest.raises(HudUsage, match="not what hud-tui wrote"):
            machines.get("box")
        assert file.read_text() == text
    with pytest.raises(HudUsage, match="not a machine's name"):
        machines.get("../box")


@pytest.mark.parametrize(
    ("host", "name"),
    [("me@gpubox.lab", "gpubox"), ("10.0.0.7", "10.0.0.7"), ("far", "far"), ("m_1.x", "m_1")],
)
def test_names_of_machines(host: str, name: str) -> None:
    assert name_of(Address(host)) == name


@pytest.mark.parametrize(
    ("model", "size"), [("Qwen/Qwen3-4B-Instruct-2507", 8.8e9), ("Qwen/Qwen3-0.6B", 1.32e9)]
)
def test_sizes_of_weights(model: str, size: float) -> None:
    assert weight_bytes(model) == pytest.approx(size)
