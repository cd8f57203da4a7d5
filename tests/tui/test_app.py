"""The app's frame: connecting, opening on the right view, leaving, losing the service."""

import asyncio

import pytest
from textual.widgets import Input

from hud_tui.cli.parser import COMMANDS
from hud_tui.errors import HudUnreachable
from hud_tui.events import JobChanged
from hud_tui.rl.progress import State
from hud_tui.settings import Start
from hud_tui.tui.screens.connect import ConnectScreen
from hud_tui.tui.screens.dialogs import Dialog
from hud_tui.tui.workspace import READING
from hud_tui.wire import JobStatus
from tests.conftest import Served, on_socket, until
from tests.tui.conftest import (
    Connector,
    Opened,
    forked,
    opened,
    status,
    trained,
    training,
)

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


@pytest.mark.parametrize("key", ["q", "ctrl+c", "ctrl+q"])
async def test_it_can_be_left_before_it_is_connected(key: str) -> None:
    async with opened(Connector(None, DOWN)) as app:
        await app.press(key)
        assert app.app._exit


@pytest.mark.parametrize(
    ("command", "own", "view"),
    [
        ("status", False, "models"),
        ("status", True, "live"),
        ("run", True, "launch"),
        ("head", True, "checkpoints"),
        ("traces", False, "jobs"),
    ],
)
async def test_a_command_opens_its_view(served: Served, command: str, own: bool, view: str) -> None:
    if own:
        await forked(served)
    async with opened(Connector(served), Start(command)) as app:
        await app.until_view(view)
        assert (app.run.model is not None) is own


def test_commands_of_one_view() -> None:
    views = {name: one.view for name, one in COMMANDS.items() if one.view}
    assert views["preflight"] == views["run"] == "launch"
    assert views["checkpoints"] == views["head"] == "checkpoints"
    assert views["jobs"] == views["traces"] == "jobs"


async def _is(served: Served, job_id: str, wanted: str) -> bool:
    return await status(served, job_id) == wanted


@pytest.mark.parametrize("start", [Start("status", model="nobody"), Start("status", ref="nobody")])
async def test_a_name_that_nothing_has_is_told(served: Served, start: Start) -> None:
    async with opened(Connector(served), start) as app:
        await app.until_view("models")
        await app.until(lambda: app.told)


async def test_it_follows_the_model_of_the_newest_job_or_of_the_one_that_is_named(
    served: Served,
) -> None:
    model_id, job_id = await trained(served)
    await forked(served, "a later fork")
    for start in (Start(), Start("status", ref=job_id)):
        async with opened(Connector(served), start) as app:
            await app.until_view("live")
            assert app.run.model.id == model_id
            await app.until(lambda app=app: app.run.job is not None)


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
            app.app.clear_notifications()
            app.app.notify("a long one", timeout=15)
            app.app.notify("a failure", severity="error", timeout=10)
            await app.until(lambda: len(app.notices) == 2)
            assert [one.timeout for one in app.app._notifications] == seconds


async def test_nobody_is_asked_twice_about_a_run_that_was_cut_short(served: Served) -> None:
    async with opened(Connector(served), Start("models")) as app:
        await app.until_view("models")
        cut = JobChanged(job=JobStatus(id="j1", status="interrupted", step=1, steps=2))
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
            for size in ((80, 24), (40, 12), (20, 6), (1, 1), (200, 60), (80, 24)):
                await app.pilot.resize_terminal(*size)
                await app.pilot.pause()
        assert app.app._exception is None


async def test_a_lost_service_is_told_and_found_again(served: Served) -> None:
    """The service ends and another, on another port, takes its place."""
    model_id, _ = await trained(served, steps=2)
    async with on_socket(served.service) as url:
        connector = Connector(Served(url, served.api_key, served.service))
        start = Start("checkpoints", model=model_id)
        app = opened(connector, start)
        one = await app.__aenter__()
        await one.until_view("checkpoints")
        await one.until(lambda: one.app.workspace.session.freshness.state is State.LIVE)
    try:
        await one.until(lambda: one.app.workspace.session.freshness.state is State.RECONNECTING)
        await one.until(lambda: "service gone · ^r starts it" in one.said("TopLine"))
        assert not one.told
        await one.press("1", "4")
        assert one.run.head is not None
        connector.served = served
        await one.press("ctrl+r")
        await one.until_notice("reconnected")
        await one.until(lambda: one.app.workspace.session.freshness.state is State.LIVE)
        assert one.run.head is not None
    finally:
        await app.__aexit__(None, None, None)
    await asyncio.sleep(0)


@pytest.mark.parametrize("view", ["models", "preflight", "checkpoints", "jobs"])
async def test_reconnecting_while_a_read_is_retried(served: Served, view: str) -> None:
    """What reads from the old client is ended with it, and reads from the new one."""
    model_id, _ = await trained(served)
    async with on_socket(served.service) as url:
        connector = Connector(Served(url, served.api_key, served.service))
        app = opened(connector, Start(view, model=model_id))
        one = await app.__aenter__()
        await one.until(lambda: one.app.workspace.session.freshness.state is State.LIVE)
        await one.until(lambda: not reading(one))
    try:
        await one.press("r")
        await one.until(lambda: reading(one))
        connector.served = served
        old = one.app.workspace.session.client
        await one.press("ctrl+r")
        await one.until_notice("reconnected")
        assert old.wire.http.is_closed
        await one.until(
            lambda: not reading(one) and one.app.workspace.session.freshness.state is State.LIVE
        )
        assert not [notice for notice in one.told if not notice.startswith("starting ")]
    finally:
        await app.__aexit__(None, None, None)


def reading(app: Opened) -> bool:
    return any(worker.group in READING and worker.is_running for worker in app.app.workers)
