"""Training on another machine through a tunnel that a process of its own keeps."""

import asyncio
import itertools
import os
import signal
import socket
from argparse import Namespace
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from time import time
from typing import Any

import httpx
import pytest

from hud_tui import local_service
from hud_tui.cli.connect import paths_of
from hud_tui.client.client import HudClient
from hud_tui.client.transport import Failures
from hud_tui.errors import BY_ITSELF, START_AGAIN
from hud_tui.processes import alive
from hud_tui.remote import keeper
from hud_tui.remote.engines import Engine, Wish, describe
from hud_tui.remote.machines import Machine, Machines
from hud_tui.remote.setup import Setup
from hud_tui.remote.ssh import Address
from hud_tui.service_file import machine_of, used_machine, with_machine
from hud_tui.settings import Paths, local_settings, read_paths
from hud_tui.tinker_options import read_options
from hud_tui.wire_runs import JobConfig, JobDataset, JobParameters, SubmitJob
from tests.conftest import until
from tests.remote.far import Far, cut_line
from tests.service.headless import Command

pytestmark = pytest.mark.usefixtures("near")


async def connected() -> HudClient:
    return await local_service.connect_local(with_machine(read_paths()), lambda text: None)


async def run_there(client: HudClient, steps: int) -> str:
    """Fork a model there and submit a run; the job's id."""
    base = next(model for model in await client.models() if model.model_name == "tiny/arith-0.2M")
    model = await client.fork(base.id, "there")
    tasks = (await client.tasks.taskset("arith")).tasks
    body = SubmitJob(
        model_id=model.id,
        dataset=JobDataset(tasks=tasks),
        config=JobConfig(parameters=JobParameters(steps=steps)),
    )
    return (await client.runs.submit(body)).job_id


async def test_use_train_and_come_back(
    hud: Command, machines: Machines, box: Machine, far: Far
) -> None:
    used = await hud("remote", "use", "box")
    assert (used.code, used.data["name"], used.data["used"]) == (0, "box", True), used.err
    forked = await hud("--local", "fork", "tiny/arith-0.2M", "--name", "there", "-y")
    assert forked.code == 0, forked.err
    run = await hud("--local", "run", "arith", "-m", "there", "--steps", "2", "-y", "--follow")
    assert run.data["status"]["status"] == "succeeded"
    assert (await hud("--local", "status", "there")).data["service"]["label"] == "hud @ box · CPU"
    assert list((far.home / ".hud-tui/box/state/checkpoints").glob("*/*"))
    line = (await hud("remote", "list")).data["machines"][0]["line"]
    assert (line["state"], line["breaks"], line["latency_s"] > 0) == ("up", 0, True)
    kept_by = machines.line("box")["pid"]
    off = await hud("remote", "use", "--off")
    assert (off.code, off.data) == (0, {"name": None})
    assert not machines.busy("box", "keeper"), "with its environment of then"
    await until(lambda: not alive(kept_by))
    with socket.create_server(("127.0.0.1", box.local_port)):
        pass  # its tunnel is closed
    here = await hud("--local", "models")
    assert [one["model_name"] for one in here.data["models"] if one["model_name"] == "there"] == []
    assert (await hud("stop")).data["stopped"]


async def test_a_run_goes_on_where_the_line_breaks(
    hud: Command, machines: Machines, box: Machine, far: Far
) -> None:
    async with cut_line(far.port) as line:
        far.lead_to(line.port)
        assert (await hud("remote", "use", "box")).code == 0

        client = await connected()
        job = await run_there(client, 400)
        line.lengths = [100, 2000, 3000, 100]
        line.cut()
        await until(lambda: machines.line("box").get("state") == "broken")
        assert "the line broke" in machines.line("box")["why"]
        await until(lambda: machines.line("box").get("state") == "up")
        assert machines.line("box")["breaks"] >= 1
        assert machines.line("box")["latency_s"] > 0
        assert (await client.job_status(job)).status in ("running", "succeeded")
        await client.cancel_job(job)
        await client.aclose()
        far.lead_to(far.port)  # the fixture stops the server there, over a line of its own


async def test_a_server_that_is_killed_in_a_run_comes_back_with_what_it_saved(
    hud: Command, machines: Machines, box: Machine, far: Far
) -> None:
    assert (await hud("remote", "use", "box")).code == 0
    client = await connected()
    job = await run_there(client, 400)

    async def stepped() -> bool:
        return ((await client.job_status(job)).step or 0) >= 2

    await until(stepped)
    pid = int((far.home / ".hud-tui/box/server.pid").read_text())
    os.killpg(pid, signal.SIGKILL)
    await client.aclose()
    again = await connected()
    status = await again.job_status(job)
    assert (status.status, (status.step or 0) >= 2) == ("interrupted", True)
    await again.aclose()


async def test_a_port_that_changed_there_is_followed(
    hud: Command, machines: Machines, box: Machine, far: Far
) -> None:
    assert (await hud("remote", "use", "box")).code == 0
    setup = Setup(machines, box)
    await setup.stop()
    with socket.create_server(("127.0.0.1", box.port)):
        await until(lambda: machines.line("box")["pulse"].get("port") not in (box.port, None))
        client = await connected()
        assert await client.models()
        await client.aclose()
    await setup.aclose()


async def test_what_an_earlier_tunnel_said_is_not_said_again(
    hud: Command, machines: Machines, known: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hud_tui.remote.keeper.USE_S", 0.0)
    monkeypatch.setattr("hud_tui.remote.keeper.keep_line", lambda paths, name: None)
    machines.set_line("box", {"state": "broken", "why": "box: no key"})
    refused = await hud("remote", "use", "box")
    assert refused.error["message"] == "box: opening the tunnel, for up to 0 s"


async def test_a_wall_clock_that_goes_back_does_not_prolong_the_wait(
    hud: Command, machines: Machines, known: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hud_tui.remote.keeper.USE_S", 0.3)
    monkeypatch.setattr("hud_tui.remote.keeper.keep_line", lambda paths, name: None)
    clock = itertools.count(time(), -3600.0)
    monkeypatch.setattr("hud_tui.remote.keeper.time", lambda: next(clock))
    assert (await asyncio.wait_for(hud("remote", "use", "box"), 60)).code == 3


@pytest.mark.parametrize(
    ("name", "hint"), [("hud @ far", BY_ITSELF), ("", f"{START_AGAIN}hud-tui --local")]
)
def test_a_service_behind_a_tunnel_is_not_to_be_started(name: str, hint: str) -> None:
    settings = replace(local_settings("http://h", "k", "http://h/t", "/d"), name=name)
    error = Failures(settings).unreachable("GET", "http://h/v2", httpx.ConnectError("refused"))
    assert error.hint == hint


async def test_a_port_that_is_taken_here_is_said(
    hud: Command, machines: Machines, light: Engine, box: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def looks(pause_s: float, patience_s: float) -> AsyncIterator[float]:
        """Until it is said, and once more."""
        while "is taken" not in machines.line("box").get("why", ""):
            yield 0.0
            await asyncio.sleep(pause_s)
        yield 0.0

    monkeypatch.setattr(keeper, "Looks", looks)
    with socket.create_server(("127.0.0.1", box.local_port)):
        refused = await hud("remote", "use", "box")
    assert (refused.code, refused.error["type"]) == (3, "unreachable")
    assert f"port {box.local_port} of this machine is taken" in refused.error["message"]
    assert machines.used() is None


async def test_a_machine_without_its_set_up_cannot_be_used(
    hud: Command, machines: Machines, near: None
) -> None:
    machines.write(await describe(machines, Address("far"), Wish("box", "hud-tui")))
    refused = await hud("remote", "use", "box")
    assert (refused.code, refused.error["message"]) == (2, "box is not set up")
    assert (await hud("remote", "use")).data == {"name": None}
    assert (await hud("remote", "use", "box", "--off")).code == 2


async def test_what_is_used_is_unreadable(hud: Command, near: None, machines: Machines) -> None:
    file = machines.folder / "used.json"
    machines.folder.mkdir(parents=True)
    file.write_text('{"name": "../../etc"}')
    refused = await hud("--local", "models")
    assert (refused.code, refused.error["type"]) == (2, "usage")
    assert "hud-tui remote use --off" in refused.error["hint"]
    assert (await hud("remote", "use", "--off")).code == 0
    assert not file.exists()


def test_the_service_here_is_started_for_the_machine(tmp_path: Path) -> None:
    """With its own data directory, by its key, and by the name that people know."""
    machines = Machines(tmp_path / "state")
    machine = Machine("box", Address("box"), "skyrl-gpu", local_port=4711)
    key = machines.key("box")
    machines.use(machine, "tinker")
    paths = with_machine(Paths(tmp_path, tmp_path / "state", tmp_path / "data"))
    assert paths.data == tmp_path / "data/remotes/box"
    used = machine_of(paths)
    assert used is not None
    assert (used.url, used.key, used.label) == ("http://127.0.0.1:4711", key, "box · CPU")
    assert key not in (tmp_path / "state/remotes/used.json").read_text() + repr(used)
    assert machine_of(Paths(tmp_path, tmp_path / "state", tmp_path / "data")) is None
    assert with_machine(paths) == paths
    flags = Namespace(state_dir=str(tmp_path / "state"), data_dir=str(tmp_path / "other"))
    assert machine_of(paths_of(flags)) == used, "--data-dir trains there too"
    assert paths_of(flags).data == tmp_path / "other/remotes/box"
    environment: dict[str, Any] = {"TINKER_BASE_URL": used.url, "HUD_TUI_TINKER_PLACE": used.label}
    assert read_options(environment).place == "box · CPU"
    machines.use(None)
    assert used_machine(tmp_path / "state") is None
