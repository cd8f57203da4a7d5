"""Files of ours that are not as we wrote them, there and here: an error that names the file."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from hud_tui.errors import HudError, HudMalformed, HudUsage
from hud_tui.remote.engines import ENGINES, Engine, Wish, describe
from hud_tui.remote.facts import BOOT_CLOCK, read_facts
from hud_tui.remote.jobs import poll_job, read_poll
from hud_tui.remote.machines import Machines
from hud_tui.remote.setup import ALIVE, Setup
from hud_tui.remote.ssh import Address, ScriptFailed, quote
from tests.remote.far import Far
from tests.service.headless import Command

pytestmark = pytest.mark.usefixtures("near")
FAR = Address("far")
ID = "engine.0badcafe"


@pytest.fixture(autouse=True)
def installs(light: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine is installed by a job in the environment of the tests."""
    engine = replace(light, installed='[ -f "$R/installed" ]', install=': > "$R/installed"')
    monkeypatch.setitem(ENGINES, "hud-tui", engine)


async def set_up(machines: Machines, far: Far) -> Setup:
    """A set-up whose engine a job of this id installs."""
    env = far.home / ".hud-tui/box/env/bin"
    env.mkdir(parents=True)
    (env / "python").write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    (env / "python").chmod(0o755)
    far.tool("uv", "exit 0")
    machine = await describe(machines, FAR, Wish("box", "hud-tui"))
    (far.home / ".hud-tui/box/jobs").mkdir()
    (far.home / ".hud-tui/box/state").mkdir()
    return Setup(machines, machines.write(replace(machine, job={"engine": ID})))


def fifo(file: Path) -> None:
    os.mkfifo(file)


SPOILT: list[tuple[str, Callable[[Path], object]]] = [
    ("/rc", lambda file: file.write_bytes(bytes(range(256)))),
    ("/rc", lambda file: file.write_text("")),
    ("/rc", lambda file: file.write_text("-1\n")),
    ("/rc", lambda file: file.write_text("9" * 5_000_000)),
    ("/rc", lambda file: file.mkdir()),
    ("/rc", fifo),
    ("/log", lambda file: file.mkdir()),
    ("/log", fifo),
    ("/job", lambda file: file.symlink_to(f"-{os.getpgrp()}@{boot()}")),
    ("/job", lambda file: file.symlink_to("nonsense")),
    ("/job", lambda file: file.mkdir()),
]


def boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


@pytest.mark.parametrize(("name", "spoil"), SPOILT)
def test_a_job_s_files_are_garbage(
    tmp_path: Path, name: str, spoil: Callable[[Path], object]
) -> None:
    folder = tmp_path / "jobs" / ID
    folder.mkdir(parents=True)
    spoil(folder / name[1:])
    script = f"R={quote(tmp_path)}\n{BOOT_CLOCK}{ALIVE}\n{poll_job(ID, 0)}"
    done = subprocess.run(["sh", "-c", script], stdout=subprocess.PIPE, timeout=60, check=True)
    with pytest.raises(HudMalformed, match=f"^{name}$") as no:
        read_poll(done.stdout.decode("utf-8", "replace"))
    assert "starts the step again" in no.value.hint


async def test_a_job_s_folder_is_a_file_and_its_log_is_not_text(
    machines: Machines, far: Far
) -> None:
    setup = await set_up(machines, far)
    folder = far.home / f".hud-tui/box/jobs/{ID}"
    folder.write_text("a file")
    with pytest.raises(HudMalformed, match=f"jobs/{ID}, on box, is not") as no:
        await setup.run({})
    assert "starts the step again" in no.value.hint
    assert machines.get("box").job == {}
    folder.unlink()
    folder.mkdir()
    (folder / "log").write_bytes(os.urandom(700_000) + b"\n\xff the end\n")
    (folder / "rc").write_text("7\n")
    machines.write(replace(machines.get("box"), job={"engine": ID}))
    setup = Setup(machines, machines.get("box"))
    with pytest.raises(ScriptFailed, match="the end"):
        await setup.run({})
    assert (await setup.run({})).ready
    await setup.undo()
    await setup.aclose()


@pytest.mark.parametrize("text", ["-1", "1", "0", "01", "", "nonsense", "9" * 40, "\0\xff", "2 3"])
def test_what_is_no_process_s_id(tmp_path: Path, text: str) -> None:
    """Some would signal a group, or all processes: so nothing is signalled here."""
    file = tmp_path / "pid"
    file.write_text(text)
    command = ["sh", "-c", f'{ALIVE}\npid_in "$1"', "sh", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    file.write_text("4711\n")
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "4711\n"


@pytest.fixture
def other(far: Far) -> Iterator[subprocess.Popen[bytes]]:
    """Somebody else's process, in a group of its own."""
    with subprocess.Popen(["sleep", "600"], start_new_session=True) as process:
        yield process
        process.kill()


async def test_garbage_in_the_server_s_files_ends_nobody_s_process(
    machines: Machines, far: Far, other: subprocess.Popen[bytes]
) -> None:
    setup = await set_up(machines, far)
    await setup.run({})
    root = far.home / ".hud-tui/box"
    job = root / "jobs/x.00000000/job"
    job.parent.mkdir()
    job.symlink_to(f"-{other.pid}@{boot()}")
    for text in (f"-{other.pid}", "", "nonsense", "9" * 10_000, "\0\xff"):
        (root / "server.pid").write_text(text)
        await setup.stop()
        assert other.poll() is None
        await setup.start()
        assert (await setup.pulse())["running"]
    for port in ("nonsense", "99999999", "\0", ""):
        (root / "port").write_text(port)
        with pytest.raises(HudMalformed, match="holds no port"):
            await setup.port()
        await setup.pulse()
    await setup.stop()
    (root / "port").unlink()
    (root / "port").mkdir()
    with pytest.raises(ScriptFailed, match=r"/\.hud-tui/box/port is not what hud-tui wrote there"):
        await setup.start()
    with pytest.raises(HudMalformed, match=r"/\.hud-tui/box/port on box holds no port"):
        await setup.port()
    await setup.undo()
    await setup.aclose()


def test_a_process_is_known_by_its_start_too(
    tmp_path: Path, other: subprocess.Popen[bytes]
) -> None:
    """Within one start of the machine, an id may be another program's by now."""
    link = tmp_path / "loop"

    def shell(script: str) -> subprocess.CompletedProcess[str]:
        command = ["sh", "-c", f"{BOOT_CLOCK}{ALIVE}\n{script}", "sh", str(link), str(other.pid)]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    mark = shell('mark "$2"').stdout.strip()
    begun = Path(f"/proc/{other.pid}/stat").read_text().rpartition(")")[2].split()[19]
    assert mark == f"{other.pid}@{boot()}@{begun}"
    for target, runs in (
        (mark, True),
        (f"{other.pid}@{boot()}", False),
        (f"{other.pid}@{boot()}@{int(begun) - 1}", False),
        (f"{other.pid}@another@{begun}", False),
    ):
        link.unlink(missing_ok=True)
        link.symlink_to(target)
        assert (shell('alive "$1"').returncode == 0) is runs, target


async def test_another_program_s_id_is_no_server_and_no_job(
    machines: Machines, far: Far, other: subprocess.Popen[bytes]
) -> None:
    setup = await set_up(machines, far)
    await setup.run({})
    root = far.home / ".hud-tui/box"
    await setup.stop()
    reused = f"{other.pid}@{boot()}@1"
    (root / "loop").symlink_to(reused)
    (root / "server.pid").write_text(f"{other.pid}\n")
    assert not (await setup.pulse())["running"]
    (root / f"jobs/{ID}").mkdir()
    (root / f"jobs/{ID}/job").symlink_to(reused)
    machines.write(replace(machines.get("box"), job={"health": ID}))
    setup = Setup(machines, machines.get("box"))
    await setup.start()
    assert (await setup.run({})).ready
    assert (await setup.pulse())["running"]
    await setup.undo()
    assert other.poll() is None
    await setup.aclose()


def test_facts_of_a_machine_that_answers_nonsense() -> None:
    facts = read_facts(f"cores=²\nmemory_kb={'9' * 10_000}\nfree_kb=٣\ngpu=x,y,²,1,2")
    assert (facts.cores, facts.memory_bytes, facts.free_bytes) == (None, None, None)


UNFIT = (
    *(("name", "other"), ("local_port", "abc"), ("port", None), ("done", [1]), ("done", "x")),
    *(("job", []), ("job", {"engine": "$(reboot)"}), ("job", {"engine": 7}), ("facts", [])),
    *(("facts", {"gpus": [{"name": 1}]}), ("facts", {"cores": "many"}), ("address", "far")),
    *(("address", {"host": "-oProxyCommand=x"}), ("secrets", None), ("version", 2)),
)


async def test_a_machine_s_file_here_is_garbage(
    hud: Command, machines: Machines, near: None
) -> None:
    machines.write(await describe(machines, FAR, Wish("box", "hud-tui")))
    file = machines.folder_of("box") / "machine.json"
    fit = json.loads(file.read_text())
    for field, value in UNFIT:
        text = json.dumps({**fit, field: value})
        file.write_text(text)
        for command in ("list", "status box", "log box", "use box", "remove box -y"):
            refused = await hud("remote", *command.split())
            assert (refused.code, refused.error["type"]) == (2, "usage")
            assert f"{file} is not what hud-tui wrote: {field}" in refused.error["message"]
        assert file.read_text() == text
    for body in (b"\xff\0", b'{"version": 1', b"[" * 100_000, b"", b"1"):
        file.write_bytes(body)
        with pytest.raises(HudUsage, match="is not what hud-tui wrote"):
            machines.get("box")


async def test_a_log_here_that_is_no_file(hud: Command, machines: Machines, near: None) -> None:
    machines.write(await describe(machines, FAR, Wish("box", "hud-tui")))
    file = machines.folder_of("box") / "setup.log"
    file.mkdir()
    refused = await hud("remote", "log", "box", "--setup")
    assert (refused.code, refused.error["type"]) == (2, "usage")
    assert str(file) in refused.error["message"]
    with pytest.raises(HudError, match=str(file)):
        await Setup(machines, machines.get("box")).run({})
