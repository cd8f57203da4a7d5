"""The process that keeps a tunnel: paused, killed, and taken for another by its id."""

import asyncio
import json
import os
import signal
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from hud_tui.processes import Process, alive, boot_s, holder, process, read_process
from hud_tui.remote.keeper import UNNEEDED, Keeper
from hud_tui.remote.machines import Machine, Machines
from hud_tui.remote.ssh import HostKeyChanged, Tunnel
from hud_tui.service_file import guard_line, keep_line, keeper_lock, line_text, with_machine
from hud_tui.settings import Paths, read_paths
from tests.conftest import PATIENCE_S, until
from tests.remote.conftest import keeping
from tests.remote.far import Far
from tests.service.headless import Command

pytestmark = pytest.mark.usefixtures("near", "light")


@pytest.fixture
def foreign() -> Iterator[int]:
    """The id of a process that is none of ours."""
    other = subprocess.Popen(["sleep", "600"])
    yield other.pid
    other.kill()
    other.wait()


@pytest.fixture
async def paths(hud: Command, box: Machine, machines: Machines) -> AsyncIterator[Paths]:
    """The directories of a machine in use, whose tunnel is up and is guarded."""
    used = await hud("remote", "use", "box")
    assert used.code == 0, used.err
    paths = with_machine(read_paths())
    guarding = asyncio.create_task(guard_line(paths, "box"))
    yield paths
    guarding.cancel()


def keeper(machines: Machines) -> Process:
    found = holder(keeper_lock(machines.state, "box"))
    assert found is not None
    return found


def is_up(machines: Machines, since: float) -> bool:
    """Whether something has come through the tunnel since then."""
    line = machines.line("box")
    return line.get("state") == "up" and line["heard"] > since


async def test_what_keeps_a_tunnel_goes_on_whatever_happens_to_it(
    machines: Machines, paths: Paths, foreign: int
) -> None:
    """One machine and its tunnel, through one trouble after another."""
    await a_keeper_that_is_killed_is_started_again_and_leaves_no_ssh(machines)
    await an_id_that_is_another_s_by_now_blocks_nothing(machines, foreign)
    await a_keeper_goes_on_after_any_pause(machines)
    await an_ssh_that_hangs_is_replaced_or_goes_on(machines)


async def a_keeper_that_is_killed_is_started_again_and_leaves_no_ssh(machines: Machines) -> None:
    killed, ssh = keeper(machines), read_process(machines.line("box")["ssh"])
    assert ssh is not None
    killed.send(signal.SIGKILL)
    await until(lambda: not ssh.runs)
    now = boot_s()
    await until(lambda: is_up(machines, now))
    assert keeper(machines) != killed
    assert machines.line("box")["breaks"] == 0, "the port was free"


async def an_id_that_is_another_s_by_now_blocks_nothing(machines: Machines, foreign: int) -> None:
    killed = keeper(machines)
    line = machines.line("box")
    os.kill(killed.pid, signal.SIGSTOP)  # so that the files are as they are left
    machines.set_line("box", {**line, "pid": foreign, "ssh": f"{foreign} 1"})
    keeper_lock(machines.state, "box").write_text(f"{foreign} 1\n")
    os.kill(killed.pid, signal.SIGKILL)
    now = boot_s()
    await until(lambda: is_up(machines, now))
    assert process(foreign).runs, "nothing was done to it"


async def a_keeper_goes_on_after_any_pause(machines: Machines) -> None:
    paused = keeper(machines)
    paused.send(signal.SIGSTOP)
    try:
        await asyncio.sleep(UNNEEDED + 3)
    finally:
        paused.send(signal.SIGCONT)
    now = boot_s()
    await until(lambda: is_up(machines, now))
    assert keeper(machines) == paused


async def an_ssh_that_hangs_is_replaced_or_goes_on(machines: Machines) -> None:
    ssh = read_process(machines.line("box")["ssh"])
    assert ssh is not None
    ssh.send(signal.SIGSTOP)
    try:
        await until(lambda: machines.line("box")["state"] == "silent")
    finally:
        ssh.send(signal.SIGCONT)
    now = boot_s()
    await until(lambda: is_up(machines, now))


async def test_the_tunnel_of_a_machine_that_was_removed_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also by a service that has trained through it and serves on."""
    kept: list[str] = []
    monkeypatch.setattr("hud_tui.service_file.keep_line", lambda paths, name: kept.append(name))
    monkeypatch.setattr("hud_tui.service_file.GUARD_S", 0.001)
    folder = tmp_path / "state/remotes/box"
    folder.mkdir(parents=True)
    paths = Paths(tmp_path, tmp_path / "state", tmp_path / "data")
    guarding = asyncio.create_task(guard_line(paths, "box", for_good=True))
    await until(lambda: len(kept) > 1)
    folder.rmdir()
    await asyncio.sleep(0.1)
    kept.clear()
    await asyncio.sleep(0.1)
    guarding.cancel()
    assert kept == []


def test_up_is_what_answered_lately(machines: Machines, known: Machine) -> None:
    up = {"state": "up", "latency_s": 0.02, "since": 1.0}
    machines.set_line("box", up)
    assert line_text(machines.line("box"), 2.0) == "up, 20 ms"
    machines.set_line("box", {**up, "heard": boot_s() - 60})
    assert line_text(machines.line("box"), 2.0).startswith("silent for")
    file = machines.folder_of("box") / "line.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "boot": "another", **up}))
    assert "nothing keeps it" in line_text(machines.line("box"), 2.0), "it was said before a reboot"
    file.write_text('{"state": "up", "beat": 0.5, "since": 1.0}')
    assert "nothing keeps it" in line_text(machines.line("box"), 2.0)


async def test_an_ssh_that_a_killed_keeper_left_is_ended_first(
    machines: Machines, box: Machine, hud: Command
) -> None:
    left = await asyncio.create_subprocess_exec("sleep", "600")
    machines.set_line("box", {"state": "up", "ssh": str(process(left.pid))})
    assert (await hud("remote", "use", "box")).code == 0
    assert await asyncio.wait_for(left.wait(), 60) == -signal.SIGKILL
    keep_line(with_machine(read_paths()), "box")  # one is enough


async def test_an_ssh_that_hangs_before_the_first_answer_is_replaced(
    machines: Machines, box: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """E.g. while it logs in, for which ssh has no time limit."""
    monkeypatch.setattr("hud_tui.remote.keeper.HUNG_S", 3.0)
    monkeypatch.setattr("hud_tui.remote.keeper.ANSWER_S", 0.5)
    started: list[int] = []

    def forwarding(keeper: Keeper, pid: int) -> None:
        if not started:
            os.kill(pid, signal.SIGSTOP)
        started.append(pid)

    monkeypatch.setattr(Keeper, "_forwarding", forwarding)
    machines.use(box, "hud")
    async with keeping(machines):
        assert len(started) == 2
        assert not alive(started[0])


async def test_a_server_that_takes_its_time_is_no_reason_to_open_the_tunnel_anew(
    machines: Machines, box: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its ssh answers for the tunnel, however long the server is silent."""
    monkeypatch.setattr("hud_tui.remote.keeper.HUNG_S", 1.0)
    monkeypatch.setattr("hud_tui.remote.keeper.ANSWER_S", 0.3)
    works, looks = Tunnel.works, []

    async def is_working(tunnel: Tunnel, wait_s: float) -> bool:
        looks.append(await works(tunnel, PATIENCE_S))
        return looks[-1]

    monkeypatch.setattr(Tunnel, "works", is_working)
    served_by = process(int((Path(box.root) / "server.pid").read_text()))
    served_by.send(signal.SIGSTOP)
    machines.use(box, "hud")
    keeping = asyncio.create_task(Keeper(machines, machines.state, "box").run())
    try:
        await until(lambda: machines.line("box").get("state") == "silent")
        ssh, before = machines.line("box")["ssh"], len(looks)
        await until(lambda: len(looks) > before + 4)  # longer than HUNG_S
        assert (machines.line("box")["ssh"], machines.line("box")["breaks"]) == (ssh, 0)
    finally:
        served_by.send(signal.SIGCONT)
    await until(lambda: machines.line("box").get("state") == "up")
    assert machines.line("box")["ssh"] == ssh
    keeping.cancel()
    await asyncio.gather(keeping, return_exceptions=True)


async def test_a_host_key_that_changes_is_said_and_ends_nothing_that_is_open(
    hud: Command, machines: Machines, box: Machine, far: Far, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is open ends where the key was checked; each new connection is refused."""
    monkeypatch.setattr("hud_tui.remote.keeper.POLL_S", 0.2)
    machines.use(box, "hud")
    async with keeping(machines):
        ssh = machines.line("box")["ssh"]
        far.new_host_key()
        refused = await hud("remote", "status", "box")
        assert refused.error["type"] == "host_key"
        assert "ssh-keygen" in refused.error["hint"]
        shared = machines.ssh(box)
        await shared.aclose()
        with pytest.raises(HostKeyChanged):
            await shared.run("true")
        now = boot_s()
        await until(lambda: is_up(machines, now + 1))
        assert (machines.line("box")["ssh"], machines.line("box")["breaks"]) == (ssh, 0)
    (far.place / "near/known_hosts").unlink()  # the machine is to be left as any other
