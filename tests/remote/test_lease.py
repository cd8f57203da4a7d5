"""What another client uses on a machine is not removed."""

import os
from collections.abc import AsyncIterator
from pathlib import Path
from time import time

import pytest

from hud_tui.errors import HudUsage
from hud_tui.remote.engines import Wish, describe
from hud_tui.remote.lease import MachineInUse, client_id, read_use
from hud_tui.remote.machines import Machines
from hud_tui.remote.setup import Setup
from hud_tui.remote.ssh import Address
from tests.conftest import until
from tests.remote.far import Far
from tests.remote.test_commands import ADD
from tests.service.headless import Command

pytestmark = pytest.mark.usefixtures("light")
A, B = "a" * 16, "b" * 16


@pytest.fixture
async def others(machines: Machines, far: Far, tmp_path: Path) -> AsyncIterator[Setup]:
    """Another client that has set the machine up."""
    there = Machines(tmp_path / "other", far.config)
    setup = Setup(there, await describe(there, Address("far"), Wish("far", "hud-tui", env=ADD[6])))
    await setup.run({})
    yield setup
    await setup.undo(force=True)
    await setup.aclose()


def root(far: Far) -> Path:
    return far.home / ".hud-tui/far"


def age_all(far: Far, name: str, seconds: float) -> None:
    for file in root(far).glob(name):
        if file.parent.name == "leases":  # of another boot, of which only the date is known
            file.write_text(f"{file.read_text().splitlines()[0]}\nanother 1\n")
        os.utime(file, (time() - seconds,) * 2)


async def test_what_another_client_uses_is_not_removed(
    hud: Command, machines: Machines, far: Far, others: Setup
) -> None:
    assert (await hud(*ADD)).code == 0
    (root(far) / "state/checkpoints/m").mkdir(parents=True)
    for name in ("1.tar.gz", "2.tar.gz"):
        (root(far) / "state/checkpoints/m" / name).write_bytes(bytes(3_000_000))
    refused = await hud("remote", "remove", "far", "-y")
    assert (refused.code, refused.error["type"]) == (2, "in_use")
    assert "far is used by " in refused.error["message"]
    assert f"@{os.uname().nodename}, " in refused.error["message"]
    goes = "its service, which runs, models and checkpoints (2 checkpoints), 6"
    assert (
        f"hud-tui remote remove far --force removes it all the same: with {goes}"
        in (refused.error["hint"])
    )
    assert (await others.pulse())["running"]
    assert machines.names() == ["far"]
    age_all(far, "leases/*", 25 * 3600)
    age_all(far, "used", 3600)
    age_all(far, "state/*-wal", 3600)
    assert (await hud("remote", "remove", "far", "-y")).code == 0
    assert not root(far).exists()


async def test_force_says_what_goes_and_does_it(
    hud: Command, machines: Machines, far: Far, others: Setup
) -> None:
    assert (await hud(*ADD)).code == 0
    removed = await hud("remote", "remove", "far", "--force", "-y")
    assert (removed.code, removed.data["removed"]) == (0, True)
    assert f"@{os.uname().nodename}, " in removed.err
    assert "its service, which runs" in removed.err
    assert "models and checkpoints, " in removed.err
    assert not root(far).exists()


async def test_a_lease_is_renewed_by_who_uses_the_machine_and_not_by_who_asks(
    hud: Command, machines: Machines, far: Far, others: Setup
) -> None:
    age_all(far, "leases/*", 25 * 3600)
    await others.pulse()
    assert (await hud(*ADD)).code == 0
    await hud("remote", "status", "far")
    setup = Setup(machines, machines.get("far"))
    assert (await setup.use()).others == ()
    await others.pulse(using=True)
    [holder] = (await setup.use()).others
    assert holder.endswith("s ago")
    with pytest.raises(MachineInUse):
        await setup.undo()
    assert (await setup.pulse())["running"]
    await setup.aclose()


async def test_somebody_who_trains_without_a_lease(
    hud: Command, machines: Machines, far: Far, others: Setup
) -> None:
    """As an older client does, or an SDK on the machine itself."""
    assert (await hud(*ADD)).code == 0
    (root(far) / "used").touch()
    age_all(far, "leases/*", 25 * 3600)
    refused = await hud("remote", "remove", "far", "-y")
    assert refused.error["type"] == "in_use"
    assert "somebody else trains on far: its server was called" in refused.error["message"]


async def test_another_model_in_a_folder_that_somebody_uses(
    machines: Machines, far: Far, others: Setup
) -> None:
    names = root(far) / "names"
    names.write_text(names.read_text().replace("MODEL=''", "MODEL=Qwen/Qwen3-0.6B"))
    machine = await describe(machines, Address("far"), Wish("far", "hud-tui", env=ADD[6]))
    setup = Setup(machines, machine)
    with pytest.raises(HudUsage, match=r"serves Qwen/Qwen3-0\.6B, and is used by") as caught:
        await setup.plan()
    assert caught.value.hint == "choose a --name"
    age_all(far, "leases/*", 25 * 3600)
    assert await setup.plan()
    await setup.aclose()


def test_leases_that_make_no_sense() -> None:
    lines = [
        *("now=100000", f"lease={A} 99990 me@here", f"lease={B} 99000 \x1b[2Jann@desk"),
        *("lease=", f"lease={B}", f"lease={B} x y", "lease=../x 1 y", "\xff\0=", "used=²"),
        *("state=9", "hf=many", "saved=-1", "running=no"),
    ]
    use = read_use("\n".join(lines), A)
    assert use.others == ("␛[2Jann@desk, 16 m ago",)
    assert (use.called, use.goes) == ("", ("models and checkpoints, 9.2 kB",))
    assert read_use("now=100000\nused=99999", A).called == "1 s ago"
    assert read_use(f"now=100000\nused=99999\nlease={A} 99800 me", A).called == ""
    assert read_use("", A).others == ()


@pytest.mark.parametrize("ahead", [-86_400, 0, 366 * 86_400])
def test_a_lease_is_as_old_as_its_machine_has_run_since(ahead: int) -> None:
    lines = [
        *(f"now={100_000_000 + ahead}", "boot=x", "up=50000", f"lease={B} 100000000 ann@desk"),
        f"renewed={B} x 49000",
    ]
    assert read_use("\n".join(lines), A).others == ("ann@desk, 16 m ago",)
    for renewed in (f"{B} x 60000", f"{B} x", f"{B}", f"{B} y 49000", f"{B} x ²"):
        others = read_use("\n".join([*lines[:-1], f"renewed={renewed}"]), A).others
        assert others == (() if ahead > 0 else ("ann@desk, 0 s ago",)), renewed


def test_a_client_keeps_its_id(tmp_path: Path) -> None:
    first = client_id(tmp_path)
    assert client_id(tmp_path) == first
    (tmp_path / "owner").write_bytes(b"\xff" * 200)
    assert client_id(tmp_path) not in (first, "")


async def test_who_keeps_a_tunnel_uses_the_machine(
    hud: Command, machines: Machines, far: Far, others: Setup
) -> None:
    assert (await hud(*ADD)).code == 0
    mine = root(far) / f"leases/{client_id(machines.folder)}"
    age_all(far, "leases/*", 25 * 3600)
    used = await hud("remote", "use", "far")
    try:
        assert used.code == 0, used.err
        await until(lambda: time() - mine.stat().st_mtime < 3600)
    finally:
        await hud("remote", "use", "--off")
    with pytest.raises(MachineInUse):
        (await others.use()).check("far")
