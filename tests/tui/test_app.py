"""The app's frame: its start, a stranger's first minute, leaving, losing the service."""

import asyncio
import gc
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest
from textual.widgets import Input

from hud_tui.cli.commands import COMMANDS
from hud_tui.client.client import HudClient
from hud_tui.errors import HudError, HudUnreachable
from hud_tui.events import WorkChanged
from hud_tui.keys import VIEWS
from hud_tui.processes import holding
from hud_tui.rl.checkpoint_tree import own_models
from hud_tui.rl.progress import State
from hud_tui.service.engines.base import About
from hud_tui.service_file import LOCK, ServiceReady, register
from hud_tui.tui import session as live_session
from hud_tui.tui import workspace
from hud_tui.tui.app import COLLECT_EVERY, Options, settle
from hud_tui.tui.screens.connect import ConnectScreen
from hud_tui.tui.screens.dialogs import Dialog
from hud_tui.tui.start import Elsewhere, Start
from hud_tui.tui.workspace import READING
from hud_tui.wire import WorkState
from tests.conftest import Served, on_socket, until
from tests.toy_engine import ToyEngine
from tests.tui import runs
from tests.tui.conftest import Connector, Opened, forked, opened, status, trained, training
from tests.tui.still import StillClient, still

PROGRAM = """
import os, sys
from hud_tui.tui.start import Start
from hud_tui.tui.app import HudApp

HEAVY = {"httpx", "numpy", "plotext", "pydantic", "starlette", "tinker", "hud_tui.wire"}

async def connect(mode, key, progress):
    raise AssertionError("nobody asked")

class Once(HudApp):
    def on_mount(self):
        self.call_after_refresh(self.report)

    def report(self):
        said = str(self.screen.query_one("#connect-text").render())
        told = "Which service?" in said, sorted(HEAVY & set(sys.modules))
        print(*told, file=sys.__stdout__, flush=True)
        os._exit(0)

Once(connect, None, Start()).run(headless=True)
"""


def test_the_first_frame_imports_neither_the_client_nor_the_wire() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stdout == "True []\n", done.stderr


async def test_it_is_said_once_when_every_view_is_loaded() -> None:
    loaded: list[bool] = []
    views = [f"hud_tui.tui.screens.{name}" for name in VIEWS]
    options = Options(settle=lambda: loaded.append(all(view in sys.modules for view in views)))
    app = still(StillClient(runs.checkpoints(3)), options=options)
    async with app.run_test():
        await until(lambda: app.shown_view is not None)
    assert loaded == [True]


def test_then_it_collects_but_not_what_is_there() -> None:
    gc.disable()
    usual = gc.get_threshold()
    try:
        settle()
        assert gc.isenabled()
        assert gc.get_freeze_count() > 10_000
        assert gc.get_threshold()[0] == COLLECT_EVERY
    finally:
        gc.set_threshold(*usual)
        gc.enable()
        gc.unfreeze()


async def test_three_keystrokes_to_a_moving_reward(served: Served) -> None:
    async with opened(Connector(served), size=(40, 12)) as app:
        await app.until_view("models")
        await app.until(lambda: "forks toy/four as four-rl" in app.said("#note"))
        await app.press("enter", then="launch")
        await app.until(lambda: "Step 2 of 3" in app.said("#lead"))
        await app.until(lambda: app.screen.query_one("#tasksets").key == "mixed")
        await app.press("enter")
        await app.until(lambda: "rollouts" in app.said("#summary"))
        assert "Step 3 of 3" in app.said("#lead")
        await app.press("enter", then="live")
        await app.until(lambda: app.run.series.length >= 2)
        assert app.net.sent == ["POST /v2/models/fork", "POST /v1/training/jobs"]
        assert app.run.head.mean_reward is not None


@pytest.mark.parametrize("withdrawn", [False, True])
async def test_impatient_keystrokes_do_the_same_unless_escape_withdraws_them(
    served: Served, withdrawn: bool
) -> None:
    """Enter on the button while the checks still run submits once they have passed."""
    async with opened(Connector(served)) as app:
        await app.until_view("models")
        await app.until(lambda: "forks" in app.said("#note"))
        await app.press("enter", then="launch")
        screen = app.screen
        await app.until(lambda: screen.sources.key == "mixed")
        screen.action_choose()
        screen.action_submit()
        if withdrawn:
            screen.action_leave()
            await app.until(lambda: "rollouts" in app.said("#summary"))
            assert app.net.sent == ["POST /v2/models/fork"]
        else:
            assert "once the checks pass" in app.said("#summary")
            await app.until_view("live")
            await app.until(lambda: app.run.head)


async def test_it_explains_itself_once_and_the_first_fork_can_be_named(served: Served) -> None:
    async with opened(Connector(served)) as app:
        await app.until_view("models")
        await app.until(lambda: app.screen.query_one("#welcome").display)
        said = app.said("#welcome")
        for line in ("Welcome", "Enter forks", "Enter checks", "Enter submits"):
            assert line in said
        await app.until(lambda: "forks" in app.said("#note"))
        await app.ask("F")
        await app.press(*"my own", "enter", then="launch")
        assert app.run.model.name == "my own"
        assert app.app.workspace.session.first_fork == app.run.model.id
    async with opened(Connector(served)) as app:
        await app.until_view("live")
        await app.press("1")
        await app.until(lambda: getattr(app.screen, "models", None))
        assert not app.screen.query_one("#welcome").display
        assert len(own_models(app.screen.models)) == 1


async def test_it_does_not_promise_that_nothing_leaves_where_a_server_trains(
    served: Served, engine: ToyEngine
) -> None:
    engine.place = About("tinker", "http://trainer:8000")
    async with opened(Connector(served)) as app:
        await app.until_view("models")
        await app.until(lambda: "on a Tinker server" in app.said("#welcome"))
        assert "Nothing leaves" not in app.said("#welcome")
        assert "Enter forks" in app.said("#welcome")


class SlowConnector(Connector):
    """Answers once `answers` is set."""

    def __init__(self, served: Served | None, *errors: HudError) -> None:
        super().__init__(served, *errors)
        self.answers = asyncio.Event()

    async def __call__(
        self, mode: str, key: str | None, progress: Callable[[str], None]
    ) -> HudClient:
        await self.answers.wait()
        return await super().__call__(mode, key, progress)


async def test_what_is_typed_before_the_first_view_is_done_there(served: Served) -> None:
    await forked(served)
    connector = SlowConnector(served)
    async with opened(connector, Start("models")) as app:
        await app.press("2", "ctrl+o", *"abc", "escape", "4", "exclamation_mark")
        assert isinstance(app.screen, ConnectScreen)
        connector.answers.set()
        await app.until_view("alarms")
        await app.press("2", then="launch")
        assert app.screen.query_one("#path", Input).value == "abc"


async def test_what_is_typed_before_the_first_view_changes_nothing(served: Served) -> None:
    connector = SlowConnector(served)
    async with opened(connector, Start("run")) as app:
        await app.press("ctrl+s", "4")
        connector.answers.set()
        await app.until(lambda: any("before there was a view" in told for told in app.told))
        await app.pilot.pause()
        assert app.app.shown_view.VIEW == "launch", "what came after it is forgotten"
        assert app.net.sent == []
        await app.press("ctrl+s")
        await app.until(lambda: any("no model selected" in told for told in app.told))


async def test_what_is_typed_before_a_failure_is_forgotten_and_the_keys_that_leave_are_not_held(
    served: Served,
) -> None:
    connector = SlowConnector(served, DOWN)
    async with opened(connector) as app:
        await app.press("4", "h", "e", "enter")
        connector.answers.set()
        await app.until(lambda: app.app.connect_screen.state == "failed")
        await app.pilot.pause()
        assert isinstance(app.screen, ConnectScreen)
        assert len(connector.asked) == 1
    async with opened(SlowConnector(served)) as app:
        await app.press("4", "q")
        await app.until(lambda: app.app._exit)


DOWN = HudUnreachable("no answer from http://x: [/refused]", "start it again")


@pytest.mark.parametrize("key", ["enter", "l"])
async def test_without_a_mode_it_asks_which_service(served: Served, key: str) -> None:
    async with opened(Connector(served), mode=None) as app:
        assert isinstance(app.screen, ConnectScreen)
        assert "Which service?" in app.said("#connect-text")
        assert "HUD_API_KEY" in app.said("#connect-keys")
        await app.press("1", "r", key, then="models")
        assert app.connector.asked == [("local", None)]


async def test_a_typed_key_is_used_and_never_shown(served: Served) -> None:
    async with opened(Connector(served), mode=None) as app:
        await app.ask("h")
        await app.press("s", "k", "-", "4", "2")
        assert app.screen.query_one(Input).password
        assert "sk-42" not in app.app.export_screenshot()
        await app.press("enter", then="models")
        assert app.connector.asked == [("hud", "sk-42")]
        assert "sk-42" not in app.app.export_screenshot()


@pytest.mark.parametrize(("key", "mode"), [("r", "hud"), ("ctrl+r", "hud"), ("l", "local")])
async def test_a_failure_says_what_to_do_and_is_tried_again_or_another_service_is_taken(
    served: Served, key: str, mode: str
) -> None:
    async with opened(Connector(served, DOWN), mode="hud") as app:
        await app.until(lambda: app.app.connect_screen.state == "failed")
        said = app.said("#connect-text")
        assert "[/refused]" in said
        assert "start it again" in said
        await app.press(key, then="models")
        assert app.connector.asked == [("hud", None), (mode, None)]


async def test_the_url_of_a_host_that_does_not_answer_is_corrected(served: Served) -> None:
    elsewhere = Elsewhere("https://gpu:8443")
    options = Options(elsewhere=elsewhere)
    async with opened(Connector(served, DOWN), mode="host", options=options) as app:
        await app.until(lambda: app.app.connect_screen.state == "failed")
        assert "https://gpu:8443" in app.said("#connect-keys"), "what retry connects to"
        await app.ask("e")
        field = app.screen.query_one(Input)
        assert field.value == "https://gpu:8443"
        field.value = "ftp://gpu"
        await app.until(lambda: "is not an http or https URL" in app.said("#dialog-problem"))
        field.value = "gpu2:8443"
        await app.press("enter", then="models")
        assert elsewhere.url == "https://gpu2:8443"
        assert app.connector.asked == [("host", None)] * 2


@pytest.mark.parametrize("key", ["q", "ctrl+c", "ctrl+q"])
async def test_it_can_be_left_before_it_is_connected(key: str) -> None:
    async with opened(Connector(None, DOWN)) as app:
        await app.press(key)
        assert app.app._exit


def test_commands_of_one_view() -> None:
    views = {name: one.view for name, one in COMMANDS.items() if one.view}
    assert views["preflight"] == views["run"] == "launch"
    assert views["checkpoints"] == views["head"] == "checkpoints"
    assert views["jobs"] == views["traces"] == "jobs"


async def _is(served: Served, job_id: str, wanted: str) -> bool:
    return await status(served, job_id) == wanted


async def test_a_name_that_nothing_has_is_told(served: Served) -> None:
    async with opened(Connector(served), Start("status", model="nobody")) as app:
        await app.until_view("models")
        await app.until(lambda: app.told)


async def in_training(app: Opened) -> None:
    await app.until_view("live")
    await app.until(lambda: app.run.training)


async def test_q_asks_while_a_run_trains_and_ctrl_c_twice_leaves_whatever_is_asked(
    served: Served,
) -> None:
    _, job_id = await training(served)
    async with opened(Connector(served)) as app:
        await in_training(app)
        assert "in the background" in await app.ask("q")
        assert app.screen.focused.id == "cancel"
        await app.press("escape", then="live")
        assert not app.app._exit
        await app.ask("ctrl+c")
        await app.press("ctrl+c")
        assert app.app._exit
    assert await status(served, job_id) == "running"
    async with opened(Connector(served)) as app:
        await in_training(app)
        await app.ask("q")
        await app.press("right", "enter")
        await app.until(lambda: app.app._exit)
    await until(lambda: _is(served, job_id, "cancelled"))
    async with opened(Connector(served), Start("models")) as app:
        await app.until_view("models")
        await app.press("q")  # nothing trains
        await app.until(lambda: app.app._exit)


async def test_a_notice_leaves_sooner_where_it_covers_the_rows(served: Served) -> None:
    async with opened(Connector(served), Start("models")) as app:
        await app.until_view("models")
        for lines, seconds in ((24, [5.0, 7.0]), (40, [15.0, 10.0])):
            await app.pilot.resize_terminal(80, lines)
            await app.until(lambda lines=lines: app.app.size.height == lines)
            for severity, asked_s, given_s in zip(
                ("information", "error"), (15, 10), seconds, strict=True
            ):
                app.app.notify(said := f"{severity} on {lines}", severity=severity, timeout=asked_s)
                await app.until(lambda said=said: app.notices == [said])
                assert [one.timeout for one in app.app._notifications] == [given_s]


async def test_nobody_is_asked_twice_about_a_run_that_was_cut_short(served: Served) -> None:
    async with opened(Connector(served), Start("models")) as app:
        await app.until_view("models")
        cut = WorkChanged(work=WorkState(id="j1", status="interrupted", step=1, steps=2))
        app.app.workspace.session._reconnected = True
        app.app.workspace.session._on_event(cut)
        assert "It continues" in await app.until_dialog()
        await app.press("escape", then="models")
        app.app.workspace.session._reconnected = True
        app.app.workspace.session._on_event(cut)
        await app.pilot.pause()
        assert not isinstance(app.screen, Dialog)
        await app.until(lambda: "forks" in app.said("#note"))
        await app.ask("F")
        await app.press("ctrl+r")  # from a field of a dialog
        await app.until_notice("reconnected")
        assert len(app.connector.asked) == 2


async def test_any_size_does(served: Served) -> None:
    await trained(served, steps=3)
    async with opened(Connector(served)) as app:
        await app.until_view("live")
        for view in "12345":
            await app.press(view)
            for size in ((1, 1), (80, 24)):
                await app.pilot.resize_terminal(*size)
                await app.pilot.pause()
        assert app.app._exception is None


def is_live(app: Opened) -> bool:
    return app.app.workspace.session.freshness.state is State.LIVE


@asynccontextmanager
async def left_by_its_service(
    served: Served, start: Start, is_shown: Callable[[Opened], object], data_dir: str = ""
) -> AsyncIterator[Opened]:
    """The app over a service that has ended since the view was shown."""
    async with AsyncExitStack() as stack:
        async with on_socket(served.service) as url:
            connector = Connector(Served(url, served.api_key, served.service))
            connector.data_dir = data_dir
            app = await stack.enter_async_context(opened(connector, start))
            await app.until(lambda: app.app.workspace is not None and is_live(app))
            await app.until(lambda: is_shown(app))
        yield app


async def test_a_lost_service_is_told_and_found_again(served: Served) -> None:
    """The service ends and another, on another port, takes its place."""
    model_id, _ = await trained(served, steps=2)
    start = Start("checkpoints", model=model_id)
    async with left_by_its_service(served, start, lambda app: app.run.loaded) as app:
        await app.until(lambda: app.app.workspace.session.freshness.state is State.RECONNECTING)
        await app.until(lambda: "service gone · ^r starts it" in app.said("TopLine"))
        assert not app.told
        await app.press("1", "4")
        assert app.run.head is not None
        app.connector.served = served
        await app.press("ctrl+r")
        await app.until_notice("reconnected")
        await app.until(lambda: is_live(app))
        assert app.run.head is not None


async def test_a_service_that_another_program_started_again_is_found(
    served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workspace, "SERVICE_S", 0.05)
    monkeypatch.setattr(live_session, "LOST_S", 0.2)
    model_id, _ = await trained(served, steps=1)
    start = Start("checkpoints", model=model_id)
    async with left_by_its_service(served, start, is_live, str(tmp_path)) as app:
        app.connector.served = served
        again = ServiceReady(
            url=served.url,
            api_key="hud-local-" + "k" * 32,
            telemetry_url=served.url,
            pid=os.getpid(),
            data_dir=str(tmp_path),
        )
        register(tmp_path / "service.json", again)
        await app.until(lambda: "service gone" in app.said("TopLine"))
        assert len(app.connector.asked) == 1, "nobody holds the lock: the file is of a dead one"
        with holding(tmp_path / LOCK):
            await app.until_notice("reconnected")
        await app.until(lambda: is_live(app))
        assert len(app.connector.asked) == 2


@pytest.mark.parametrize("view", ["models", "checkpoints"])
async def test_reconnecting_while_a_read_is_retried(served: Served, view: str) -> None:
    """What reads from the old client is ended with it, and reads from the new one."""
    model_id, _ = await trained(served)
    start = Start(view, model=model_id)
    async with left_by_its_service(served, start, lambda app: not reading(app)) as app:
        await app.press("r")
        await app.until(lambda: reading(app))
        app.connector.served = served
        old = app.app.workspace.session.client.wire
        await app.press("ctrl+r")
        await app.until_notice("reconnected")
        assert old.http.is_closed
        await app.until(lambda: not reading(app) and is_live(app))
        assert not [notice for notice in app.told if not notice.startswith("starting ")]


def reading(app: Opened) -> bool:
    return any(worker.group in READING and worker.is_running for worker in app.app.workers)
