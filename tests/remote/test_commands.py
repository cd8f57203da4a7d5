"""``hud-tui remote``, as scripts and as people use it."""

import asyncio
import shlex
import sys
from dataclasses import replace
from pathlib import Path
from time import time

import pytest

from hud_tui.cli.main import main
from hud_tui.errors import HudUsage
from hud_tui.remote.engines import Wish, _same, has_env
from hud_tui.remote.machines import Machine, Machines
from hud_tui.remote.ssh import Address
from tests.remote.far import Far
from tests.service.headless import Command

pytestmark = pytest.mark.usefixtures("near", "light")
ADD = ("remote", "add", "far", "--engine", "hud-tui", "--env", sys.prefix, "-y")


async def test_add_list_status_log_remove(hud: Command, machines: Machines, far: Far) -> None:
    added = await hud(*ADD)
    assert (added.code, added.kind) == (0, "remote"), added.err
    assert {document["kind"] for document in added.documents} == {"setup", "remote"}
    assert added.data["ready"]
    assert f"folder  {far.home}/.hud-tui/far" in added.err
    key = machines.key("far")
    [known] = (await hud("remote", "list")).data["machines"]
    assert (known["name"], known["address"], known["gpus"]) == ("far", "far", "CPU")
    status = await hud("remote", "status", "far")
    assert (status.data["server"]["running"], status.data["facts"]["os"]) == (True, "Linux")
    setup = await hud("remote", "log", "far", "--setup")
    assert "[health] done" in setup.data["lines"][-1]
    assert (await hud("remote", "log", "far", "--lines", "3")).code == 0
    removed = await hud("remote", "remove", "far", "-y")
    assert (removed.code, removed.data["removed"], removed.data["was_used"]) == (0, True, False)
    assert (await hud("remote")).data == {"machines": []}
    assert not (far.home / ".hud-tui/far").exists()
    told = [*added.documents, *status.documents, *setup.documents]
    assert key not in f"{told}{added.err}{status.err}"


async def test_what_fails_is_said_with_what_to_do(hud: Command, machines: Machines) -> None:
    failed = await hud("remote", "add", "far", "--engine", "skyrl-gpu", "-y")
    assert (failed.code, failed.error["type"]) == (2, "usage")
    assert "skyrl-cpu" in failed.error["hint"]
    failed = await hud(*ADD[:5], "--env", "venv", "-y")
    assert failed.error["type"] == "usage"
    failed = await hud("remote", "add", "far", "--engine", "hud-tui", "--env", "/tmp", "-y")
    assert (failed.code, failed.error["type"]) == (1, "script_failed")
    assert "go on with: hud-tui remote add far" in failed.error["hint"]
    [known] = (await hud("remote", "list")).data["machines"]
    assert (known["ready"], known["done"]) == (False, ["folder", "files"])
    again = await hud(*ADD)
    assert (again.code, again.data["ready"]) == (0, True), "another environment may be tried"
    refused = await hud(*ADD[:5], "--env", "/tmp", "-y")
    assert refused.error["message"] == f"far has the env {sys.prefix} already"
    assert (await hud("remote", "remove", "far", "-y")).data["removed"]
    assert machines.names() == []


async def test_a_set_up_without_internet_is_gone_on_with_as_it_was_typed(
    hud: Command, far: Far
) -> None:
    far.tool("uv", "exit 1")
    far.tool("curl", "exit 6")
    package = "/wheels/hud_tui.whl"
    failed = await hud(*ADD[:5], "--package", package, "-y")
    assert failed.code == 1
    assert f"hud-tui remote add far --name far --package={package}" in failed.error["hint"]
    again = await hud(*ADD)
    assert (again.code, again.data["ready"]) == (0, True), again.err


async def test_a_hint_works_in_a_shell_without_the_ssh_config(
    hud: Command, far: Far, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the first step on the machine is known with the ssh_config that reaches it."""
    far.tool("mkdir", "exit 1")
    failed = await hud(*ADD)
    assert failed.code == 1
    _, _, command = failed.error["hint"].partition("go on with: hud-tui ")
    monkeypatch.delenv("HUD_TUI_SSH_CONFIG")
    (far.home / "bin/mkdir").unlink()
    again = await hud(*command.split(), "-y")
    assert (again.code, again.data["ready"]) == (0, True), again.err
    assert (await hud("remote", "remove", "far", "-y")).code == 0


def test_an_environment_that_is_made_is_kept() -> None:
    made = Machine("far", Address("far"), "hud-tui", root="/r", done=("folder", "python"))
    assert has_env(made)
    assert not has_env(replace(made, done=("folder", "files", "uv")))
    with pytest.raises(HudUsage, match="far makes its own Python environment already"):
        _same(made, made.address, Wish("far", env="/venv"))


async def test_people_get_lines(capsys: pytest.CaptureFixture[str]) -> None:
    assert await asyncio.to_thread(main, [*ADD[:-1], "--name", "box", "-y"]) == 0
    out = capsys.readouterr().out
    assert "box is ready: hud-tui remote use box" in out
    assert "\x1b" not in out
    assert await asyncio.to_thread(main, ["remote", "list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].split() == ["box", "far", "CPU", "hud-tui", "–", "ready"]
    assert await asyncio.to_thread(main, ["remote", "status", "box"]) == 0
    assert "server  runs at port" in capsys.readouterr().out
    assert await asyncio.to_thread(main, ["remote", "remove", "box", "-y"]) == 0


async def test_nothing_is_done_without_consent_and_what_would_be_is_said(
    hud: Command, machines: Machines, far: Far
) -> None:
    refused = await hud(*ADD[:-1])
    assert (refused.code, refused.error["hint"]) == (2, "add -y")
    assert "remote add needs confirmation" in refused.error["message"]
    refused = await hud("--read-only", *ADD)
    assert refused.error["type"] == "read_only"
    said = await hud(*ADD[:-1], "--dry-run")
    assert (said.code, said.kind, said.data["name"]) == (0, "plan", "far")
    steps = {"folder": False, "files": False, "engine": True, "server": False, "health": False}
    assert [(step["step"], step["done"]) for step in said.data["steps"]] == [*steps.items()]
    assert "the same with -y in place of --dry-run does it" in said.err
    assert not (far.home / ".hud-tui").exists()
    assert machines.names() == []
    for action in ("status", "log", "remove"):
        answer = await hud("remote", action, "nope", *(["-y"] if action == "remove" else []))
        assert (answer.code, answer.error["message"]) == (2, "no machine named nope")


async def test_a_machine_that_is_used_is_not_forgotten_in_silence(
    hud: Command,
    machines: Machines,
    known: Machine,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    machines.use(known, "hud")
    since = {"state": "broken", "since": time() - 125, "why": "the line broke: no route"}
    machines.set_line("box", since)
    assert await asyncio.to_thread(main, ["remote", "list"]) == 0
    out = capsys.readouterr().out
    assert "broken for 2 m: the line broke: no route" in out
    assert "* is used: hud-tui --local trains there" in out
    data = tmp_path / "hud_tui_data_dir/remotes/box"
    data.mkdir(parents=True)
    (data / "service.db").touch()
    gone = await hud("remote", "remove", "box", "--forget", "-y")
    assert gone.data["was_used"]
    assert "box was used: from now on --local trains on this machine" in gone.err
    assert f"stays in {data}" in gone.err
    assert machines.used() is None


async def test_what_was_done_is_in_the_command_log(hud: Command, machines: Machines) -> None:
    """As the command that does it again."""
    flags = ("--engine", "hud-tui", "--env", sys.prefix, "-y")
    assert (await hud("remote", "add", "far", "--name", "box", *flags)).code == 0
    assert (await hud("remote", "remove", "box", "-y")).code == 0
    log = (await hud("log")).data["entries"]
    added = f"hud-tui --headless remote add far --name=box --engine=hud-tui --env={sys.prefix} -y"
    commands = [added, "hud-tui --headless remote remove box -y"]
    assert sorted(one["commands"]["hud_tui"] for one in log) == commands
    assert (await hud(*shlex.split(commands[0])[2:])).code == 0, "it can be run"
    assert (await hud(*shlex.split(commands[1])[2:])).code == 0
