"""The Machines screen: what it shows of hosts and pods, and what its keys do."""

import getpass
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import datetime
from functools import partial
from pathlib import Path
from time import time

import pytest
from textual.content import Content
from textual.widgets import Input, Static

from hud_tui.audit_log import AuditEntry, CommandLog, as_hud_tui
from hud_tui.errors import HudError
from hud_tui.keys import VIEWS
from hud_tui.remote.engines import Engine
from hud_tui.remote.machines import Machines
from hud_tui.service_file import read_rentals, use_machine, write_rental
from hud_tui.settings import Paths
from hud_tui.tui.screens.dialogs import ConfirmDialog, InputDialog
from hud_tui.tui.screens.machines import MachinesScreen, aside, gpu_use
from hud_tui.tui.start import Start
from tests.conftest import Served
from tests.prime_server import KEY, PrimeServer, offer, serving
from tests.remote.conftest import far, kept, light
from tests.remote.far import Far
from tests.tui import scene_data as data
from tests.tui.conftest import Connector, Opened, opened
from tests.tui.stage import bare

__all__ = ["far", "kept", "light"]
LINE = {key: value for key, value in data.LINE.items() if key != "since"}


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HUD_TUI_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path / "state"


@asynccontextmanager
async def shown(
    served: Served, state: Path, width: int = 120, open_on: str = ""
) -> AsyncIterator[Opened]:
    """The screen, opened by its key, in an app on that machine's service; empty: on this one's."""
    connector = Connector(served)
    connector.data_dir = f"{state.parent}/data/remotes/{open_on}" if open_on else ""
    start = Start("models", view="models")
    async with opened(connector, start, size=(width, 30), state=lambda: state) as app:
        await app.until_view("models")
        await app.until(lambda: app.screen.focused)
        await app.press("8", then="machines")
        await app.until(lambda: app.screen._entries is not None)
        yield app


@asynccontextmanager
async def listed(state: Path, width: int = 120) -> AsyncIterator[Opened]:
    """The screen without a service."""
    async with bare((width, 30), state=lambda: state) as app:
        app.app.workspace.show_machines()
        await app.until_view("machines")
        await app.until(lambda: app.screen._entries is not None)
        yield app


def rows(app: Opened) -> list[list[str]]:
    return [[cell.plain for cell in row.cells] for row in app.screen.list.rows]


def use_box(state: Path, **line: object) -> Machines:
    machines = Machines(state)
    machines.write(data.HOST)
    machines.key("gpubox")
    machines.use(data.HOST, "tinker")
    machines.set_line("gpubox", {**LINE, "since": time(), **line})
    return machines


async def test_hosts_and_pods_with_their_use_and_cost(served: Served, state: Path) -> None:
    use_box(state)
    write_rental(state, replace(data.POD, at=time() - 7200))
    async with shown(served, state) as app:
        assert rows(app) == [
            ["▶", "gpubox", "2×H100", "used, up", "85 %, 60 of 160 GB", "Qwen/Qwen3-4B", "", ""],
            [" ", "hud-a100-1", "1×A100", "not set up", "", "", "1.50", "3.00"],
        ]
        assert "$3.00 at $1.50/h to " in app.said("#machines-title")
        assert " · unguarded" in app.said("#machines-title")
        assert "23 ms, 1 break" in app.said("#machines-text")
        assert "enter train here" in app.said("KeyLine")
        await app.press("down")
        await app.until(lambda: "enter finish set-up" in app.said("KeyLine"))
        await app.until(lambda: "at most $6.00" in app.said("#machines-text"))
        await app.press("escape", then="models")


async def test_the_top_line_says_where_and_what_costs(served: Served, state: Path) -> None:
    machines = use_box(state)
    said = aside(state, time(), "gpubox")
    assert said.machine == "tinker @ gpubox · 2×H100"
    assert said.load == "23 ms · 85 %, 60 of 160 GB · 819 GB free"
    assert aside(state, time()).machine == "", "on HUD nothing is trained there"
    assert said.warning == ""
    machines.set_line("gpubox", {**LINE, "state": "broken", "since": time() - 60})
    write_rental(state, replace(data.POD, at=time() - 3600))
    said = aside(state, time(), "gpubox")
    assert said.load == ""
    assert said.warning.startswith("⚠ broken 1 m · $1.50 at $1.50/h to ")
    assert said.guard == "unguarded"
    [rental] = read_rentals(state)
    write_rental(state, rental, heard_at=time() - 12)
    assert aside(state, time()).guard.startswith("guard pod 1")
    write_rental(state, rental, hours=240.0, dollars=0.0)
    day = datetime.fromtimestamp(rental.at + 240 * 3600).strftime("%d %b %H:%M")
    assert aside(state, time()).warning.endswith(f"/h to {day}")
    write_rental(state, rental, hours=rental.hours, dollars=rental.dollars)
    write_rental(state, rental, heard_at=time() - 12)
    async with shown(served, state, width=80, open_on="gpubox") as app:
        await app.press("escape")
        for number, view in enumerate(VIEWS, 1):
            machines.set_line("gpubox", {**LINE, "state": "broken"})
            await app.press(str(number), then=view)
            await app.until(partial(_says, app, "⚠ broken ", " $1.50/h to "))
        use_box(state)
        await app.until(partial(_says, app, " at $1.50/h to "))


async def test_pages_over_a_view_say_what_costs_too(served: Served, state: Path) -> None:
    """At 80 columns, with a title that does not fit beside it."""
    machines = use_box(state)
    machines.set_line("gpubox", {**LINE, "state": "broken", "since": time() - 60})
    write_rental(state, replace(data.POD, at=time() - 3600, heard_at=time() - 12))
    long = AuditEntry(time(), *["x" * 100] * 8, method="POST", url="https://x")
    CommandLog(state, "app").add(long)
    async with shown(served, state, width=80, open_on="gpubox") as app:
        await app.press("C", then="log")
        for page in ("#log-title", "#json-title"):
            await app.until(partial(_shows, app, page, "⚠ broken", " $1.50/h to ", "guard pod"))
            await app.press("enter")
        assert "xxx…" in app.said("#json-title")


def _shows(app: Opened, selector: str, *parts: str) -> bool:
    line = app.said(selector)
    return all(part in line for part in parts)


def _says(app: Opened, *parts: str) -> bool:
    line = app.said("TopLine")
    return all(part in line for part in (" @ gpubox ", " guard pod ", *parts))


async def test_the_top_line_names_the_machine_that_is_open(served: Served, state: Path) -> None:
    """Not the one that another terminal has put in use meanwhile."""
    machines = use_box(state)
    use_machine(state, None)
    async with shown(served, state) as app:
        machines.use(data.HOST, "tinker")
        write_rental(state, replace(data.POD, at=time()))
        await app.press("escape")
        await app.until(lambda: " at $1.50/h" in app.said("TopLine"))
        assert "gpubox" not in app.said("TopLine")


async def test_the_first_start_on_a_machine_promises_nothing_about_this_one(
    served: Served, state: Path
) -> None:
    use_box(state)
    async with shown(served, state, open_on="gpubox") as app:
        await app.press("escape", then="models")
        await app.until(lambda: "language models on gpubox" in app.said("#welcome"))
        assert "8 lists what it costs" in app.said("#welcome")
        assert "Nothing leaves" not in app.said("#welcome")


async def test_a_key_of_a_view_leaves_the_pages_over_it(served: Served, state: Path) -> None:
    async with shown(served, state) as app:
        await app.press("1", then="models")
        await app.press("8", then="machines")
        await app.press("4", then=VIEWS[3])
        await app.press("1", then="models")
        await app.press("8", then="machines")
        await app.press("C", then="log")
        await app.press("1", then="models")
        assert len(app.app.screen_stack) == 1


async def test_leaving_says_what_runs_on(served: Served, state: Path) -> None:
    write_rental(state, replace(data.POD, at=time() - 3600))
    async with shown(served, state) as app:
        said = await app.ask("escape", "q")
        assert "hud-a100-1: $1.50 per hour, $1.5" in said
        assert " so far, until " in said
        await app.press("escape", then="models")
        await app.agree("q")
        await app.until(lambda: app.app._exit)


async def test_details_and_logs(state: Path) -> None:
    machines = use_box(state)
    write_rental(state, replace(data.POD, at=time() - 7200, provider="runpod", idle_min=60))
    (machines.folder_of("gpubox") / "setup.log").write_text("[engine] log: fetched 1\x1b[2J\n")
    async with listed(state) as app:
        said = app.said("#machines-text")
        assert "2 breaks" not in said
        assert "trains   skyrl-ray Qwen/Qwen3-4B" in said
        assert "fetched 1␛[2J" in said
        await app.press("v")
        await app.until(lambda: "the set-up's log" in app.said("#machines-text"))
        await app.press("v", "v", "down")
        await app.until(lambda: "1×A100 at runpod" in app.said("#machines-text"))
        said = app.said("#machines-text")
        assert "or after 60 min if its set-up is not continued" in said
        assert "; guarded by nothing" in said
        assert "⚠ not set up" in said
        [rental] = read_rentals(state)
        write_rental(state, rental, watched=True)
        await app.until(lambda: "or after 60 min without use" in app.said("#machines-text"))


@pytest.mark.parametrize("height", [24, 30])
async def test_what_happens_now_is_in_sight_with_costs(state: Path, height: int) -> None:
    """The pane is half the screen: what does not fit there is what was known before."""
    write_rental(state, replace(data.POD, at=time() - 7200, provider="runpod", idle_min=60))
    async with listed(state, width=80) as app:
        await app.pilot.resize_terminal(80, height)
        for number in range(12):
            app.screen._set_ups.add_line(data.POD.name, f"… {number}/12 fetch: {'file ' * 12}")
        await app.until(lambda: "11/12 fetch" in app.said("#machines-text"))
        said = app.said("#machines-text")
        assert "of at most $6.00" in said
        pane = app.screen.query_one("#machines-text")
        rows = sum(len(Content(line).wrap(76)) for line in said.splitlines())
        assert rows <= pane.size.height, "none is cut"


async def test_a_set_up_that_fails_says_why_once_and_what_it_costs(state: Path) -> None:
    """Above the messages of its steps, which scroll."""
    write_rental(state, replace(data.POD, at=time()))
    async with listed(state) as app:
        set_ups, [rental] = app.screen._set_ups, read_rentals(state)
        for text in ("✔ 1/2 folder: /root/x", "✘ 2/2 uv: no uv there"):
            set_ups.add_line(rental.name, text)
        app.app.run_worker(set_ups._offer_to_terminate(rental, HudError("no uv there")))
        await app.until(lambda: isinstance(app.screen, ConfirmDialog))
        said = [str(line.content) for line in app.screen.query(".dialog-line").results(Static)]
        assert said == ["no uv there", "hud-a100-1 costs $1.50 per hour.", "✔ 1/2 folder: /root/x"]
        await app.press("escape", then="machines")


async def test_columns_are_as_wide_as_what_is_in_them(state: Path) -> None:
    use_box(state)
    async with listed(state, width=80) as app:
        text = str(app.screen.list.render_line(1).text)
        assert "Qwen/Qwen3-4B" in text
        assert "85 %, 60 of 160 GB" in text
        assert [column.title for column in app.screen.list.columns][-1] == "model"


def test_gpus_that_say_nonsense() -> None:
    assert gpu_use({"gpus": ["[N/A], 1, 2", "x", 3]}) == ""
    assert gpu_use({"gpus": ["5, 1024, 2048", "broken"]}) == "5 %, 1 of 2 GB"


async def test_use_it_and_not(served: Served, state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It acts at once: the service there is opened, in the view that was open."""
    keeping: list[str] = []
    monkeypatch.setattr(
        "hud_tui.remote.keeper.keep_line", lambda paths, name: keeping.append(str(paths.data))
    )
    machines = use_box(state)
    use_machine(state, None)
    async with shown(served, state) as app:
        first = app.app.workspace
        await app.press("enter")
        await app.until(lambda: machines.used() == "gpubox" and keeping)
        assert keeping[0].endswith("data/remotes/gpubox")
        await app.until(lambda: app.app.workspace not in (None, first))
        await app.until_view("models")
        second = app.app.workspace
        await app.press("8", then="machines")
        await app.until(lambda: app.screen._entries and rows(app)[0][0] == "▶")
        await app.press("enter")
        await app.until(lambda: machines.used() is None)
        await app.until(lambda: app.app.workspace not in (None, second))
        await app.until_view("models")
    commands = [as_hud_tui(one) for one in CommandLog(state).read()[0]]
    assert commands == [
        "hud-tui --headless remote use gpubox",
        "hud-tui --headless remote use --off",
    ]


async def test_a_machine_that_does_not_answer_is_not_used(
    state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machines = use_box(state)

    def refused(paths: Paths, name: str) -> None:
        line = {"state": "broken", "why": "Connection refused"}
        machines.set_line(name, {**LINE, **line})

    monkeypatch.setattr("hud_tui.remote.keeper.keep_line", refused)
    monkeypatch.setattr("hud_tui.remote.keeper.USE_S", 0.0)
    use_machine(state, None)
    async with listed(state) as app:
        first = app.app.workspace
        await app.until_notice("Connection refused", "enter")
        assert (machines.used(), app.app.workspace) == (None, first)


async def test_set_up_a_machine_step_by_step_and_remove_it(
    state: Path, far: Far, light: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HUD_TUI_SSH_CONFIG", str(far.config))
    python = f'#!/bin/sh\\nexec {sys.executable} "$@"\\n'
    far.tool(
        "uv",
        f'for last; do :; done; mkdir -p "$last/bin"; printf \'{python}\' > "$last/bin/python"\n'
        'chmod +x "$last/bin/python"',
    )
    monkeypatch.setattr("hud_tui.remote.engines.choose_engine", lambda facts: "hud-tui")
    async with listed(state) as app:
        await app.open(InputDialog, "i")
        field = app.screen.query_one(Input)
        assert field.placeholder == "gpubox, me@10.0.0.7 -p 2222, or 1xH100"
        await app.open(ConfirmDialog, *"far", "enter")
        await app.press("y", then="machines")
        await app.until(lambda: rows(app) and rows(app)[0][3] == "ready")
        steps = app.screen._set_ups.lines["far"]
        assert any("7/7 health" in step or "health" in step for step in steps)
        await app.until(lambda: "health" in app.said("#machines-text"))
        await app.open(ConfirmDialog, "K")
        await app.press("y", then="machines")
        await app.until(lambda: not rows(app))
    assert not (far.home / ".hud-tui").exists()


async def test_a_pod_is_terminated_by_name_where_it_is_protected(
    state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_rental(state, replace(data.POD, at=time()))
    keys = ("name", "providerType", "type", "createdAt", "gpuName", "gpuCount", "socket")
    pod = dict.fromkeys((*keys, "priceHr", "userId", "teamId"))
    with serving(
        PrimeServer([offer("H100_80GB", 1, 2.0)], pods={"pod1": {**pod, "id": "pod1"}})
    ) as prime:
        monkeypatch.setenv("PRIME_API_BASE_URL", prime.url)
        monkeypatch.setenv("PRIME_API_KEY", KEY)
        async with listed(state) as app:
            await app.press("P")
            await app.until(lambda: read_rentals(state)[0].protected)
            await app.until(lambda: "protected" in app.said("#machines-text"))
            await app.open(InputDialog, "K")
            await app.press(*"hud-a100-1", "enter")
            await app.until(lambda: not rows_or_none(app))
        assert prime.pods == {}
    assert not read_rentals(state)[0].runs


def rows_or_none(app: Opened) -> list[list[str]] | None:
    return rows(app) if isinstance(app.screen, MachinesScreen) else [[]]


async def test_what_is_unreadable_is_said(state: Path) -> None:
    (state / "remotes").mkdir(parents=True)
    (state / "remotes/rentals.json").write_text("{")
    assert aside(state, time()).warning == "⚠ machines: a file is unreadable"
    async with listed(state) as app:
        await app.until(lambda: "is not a list of rentals" in app.said("#machines-text"))


async def test_a_renting_that_was_cut_goes_on_by_a_key(
    served: Served,
    state: Path,
    far: Far,
    light: Engine,
    kept: list[object],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rental = replace(data.POD, at=time(), key=str(far.place / "near/id"))
    wish = {"engine": light.name, "env": sys.prefix}
    write_rental(state, replace(rental, wish=wish))
    running = {**dict.fromkeys(POD_FIELDS, ""), "gpuCount": 1, "priceHr": 1.5, "status": "ACTIVE"}
    pod = {**running, "id": "pod1", "name": data.POD.name, "installationFailure": None}
    pod |= dict.fromkeys(("installationProgress", "ip", "primePortMapping"))
    there = f"{getpass.getuser()}@127.0.0.1 -p {far.port}"
    offers = [offer("H100_80GB", 1, 2.0)]
    monkeypatch.setattr("hud_tui.remote.pods.POLL_S", 0.02)
    with serving(PrimeServer(offers, pods={"pod1": pod}, ssh=there, polls=0)) as prime:
        monkeypatch.setenv("PRIME_API_BASE_URL", prime.url)
        monkeypatch.setenv("PRIME_API_KEY", KEY)
        async with shown(served, state) as app:
            assert rows(app)[0][3:] == ["not set up", "1.50", "0.00"]
            assert "; guarded by nothing" in app.said("#machines-text")
            await app.open(InputDialog, "i")
            said = await app.ask(*"1xH100", "enter")
            assert "hud-a100-1 (1×A100) is rented already, and not set up." in said
            await app.press("y", then="machines")
            await app.until(lambda: read_rentals(state)[0].done)
            await app.until(lambda: "ready" in rows(app)[0])
            assert "; guards: pod " in app.said("#machines-text")
        assert prime.created == []
        assert kept, "its budget is kept while the app is open"


POD_FIELDS = ("providerType", "createdAt", "gpuName", "socket", "sshConnection")
