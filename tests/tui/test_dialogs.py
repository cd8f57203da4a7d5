"""What is asked fits the screen, says what each button does, and leaves the buttons in sight."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from textual.geometry import Region
from textual.notifications import Notification
from textual.strip import Strip
from textual.widgets import Button, Input
from textual.widgets._toast import Toast

from hud_tui.keys import VIEWS
from hud_tui.tui.app import HudApp
from hud_tui.tui.screens.dialogs import ConfirmDialog, DialogLine, HelpScreen
from hud_tui.tui.start import Start
from hud_tui.tui.widgets.checkpoint_tree import CheckpointTree
from hud_tui.tui.widgets.form import RunForm
from hud_tui.tui.widgets.table import RowList
from tests.conftest import Served, until
from tests.tui.conftest import Connector, Opened, cancel, helped, opened, status, training
from tests.tui.hand import Hand
from tests.tui.still import standing
from tests.tui.test_app import in_training
from tests.tui.test_launch import launch

SIZES = [(80, 24), (40, 12)]


TIME_LEFT = Notification.time_left


@pytest.fixture
def notices_go(_notices_stay: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """When their time is over, as usual."""
    monkeypatch.setattr(Notification, "time_left", TIME_LEFT)


def labels(app: Opened) -> list[str]:
    return [str(button.label) for button in app.screen.query(Button)]


async def test_the_fork_s_dialog_shows_its_buttons_and_the_slug(served: Served) -> None:
    async with opened(Connector(served), Start("models")) as app:
        for number, size in enumerate(SIZES):
            await app.pilot.resize_terminal(*size)
            await app.press("1", then="models")
            await app.until(lambda: "forks" in app.said("#note") or app.run.model)
            await app.ask("end", "F")
            await app.press("ctrl+u", *f"My Own {number}")
            slug = f"my-own-{number}"
            await app.until(lambda slug=slug: f"slug: {slug}" in " ".join(app.drawn.split()))
            for label in ("Cancel", "Fork  (enter)"):
                assert label in app.drawn
            await app.press("enter", then="launch")
            assert app.run.model.model_name == slug


async def test_leaving_and_cancelling_a_run_say_what_each_button_does(served: Served) -> None:
    _, job_id = await training(served)
    async with opened(Connector(served)) as app:
        await in_training(app)
        await app.ask("X")
        assert labels(app) == ["Keep training", "Cancel run  (y)"]
        await app.press("enter", then="live")
        assert await status(served, job_id) == "running"
        for said in ("one", "two", "a long word " * 16):
            app.app.notify(said, timeout=60, markup=False)
        for size in SIZES:
            await app.pilot.resize_terminal(*size)
            await app.ask("q")
            await app.until(lambda: "a long word" in app.drawn)
            assert labels(app) == ["Stay", "Cancel run", "Keep training  (y)"]
            for label in (*labels(app), "esc cancel"):
                await app.until(lambda label=label: label in app.drawn)
            await app.press("escape", then="live")
        await app.agree("q")
        await app.until(lambda: app.app._exit)
    assert await status(served, job_id) == "running"
    await cancel(served, job_id)


async def test_a_run_that_ended_meanwhile_keeps_nobody_from_quitting(served: Served) -> None:
    _, job_id = await training(served)
    async with opened(Connector(served)) as app:
        await in_training(app)
        await app.ask("q")
        await cancel(served, job_id)
        app.screen.query_one("#cancel-run", Button).press()
        await app.until(lambda: app.app._exit)


@asynccontextmanager
async def checked_run(served: Served, size: tuple[int, int]) -> AsyncIterator[Opened]:
    """Launch with a taskset that is checked."""
    async with launch(served, size=size) as app:
        await app.until(lambda: app.screen.sources.key == "mixed")
        await app.press("enter")
        await app.until(lambda: "rollouts" in app.said("#summary"))
        yield app


async def test_lines_beyond_the_screen_can_be_read(served: Served) -> None:
    async with checked_run(served, (40, 12)) as app:
        await app.ask("enter")
        assert "Submit  (y)" in app.drawn
        assert "defaults  " not in app.drawn
        await app.press(*["pagedown"] * 8)
        await app.until(lambda: "defaults  " in app.drawn)


async def test_what_does_not_fit_beside_a_label_goes_on_below_the_value() -> None:
    words = ("word " * 20).strip()
    async with standing() as (app, pilot):
        app.push_screen(ConfirmDialog("It", [f"rent    {words}", words, "short  one"], "Do"))
        await until(lambda: isinstance(app.screen, ConfirmDialog))
        await pilot.pause()
        lines = app.screen.query(DialogLine)
        rows = ["".join(s.text for s in strip) for line in lines for strip in still_rows(line)]
        starts = [len(row) - len(row.lstrip()) for row in rows]
        assert starts == [0, 8, 0, 0, 0]
        assert rows[0].startswith("rent    word")
        assert sum(row.count("word") for row in rows) == 40, "all of it is in sight"


def still_rows(line: DialogLine) -> list[Strip]:
    return [line.render_line(y) for y in range(line.size.height)]


async def test_a_notice_leaves_the_buttons_of_a_long_dialog_in_sight(served: Served) -> None:
    async with checked_run(served, SIZES[0]) as app:
        for size in (*SIZES, (80, 20)):
            await app.pilot.resize_terminal(*size)
            await app.ask("enter")
            app.app.show_notice("a long word " * 16)
            await app.until(lambda: any(region.area for region in seen(app.app)))
            await app.until(lambda: "Submit  (y)" in app.drawn and "Cancel" in app.drawn)
            await app.press("escape", then="launch")
            app.app.clear_notifications()


async def test_no_toast_covers_a_button_or_the_keys(served: Served) -> None:
    async with launch(served, size=(40, 12)) as app:
        for view in ("launch", "live", "checkpoints"):
            await app.press(str(VIEWS.index(view) + 1), then=view)
            app.app.show_notice("something happened")
            await app.until(lambda: seen(app.app) and seen(app.app)[-1].area)
            toast = seen(app.app)[-1]
            keys = app.screen.query_one("KeyLine").region
            assert toast.y >= 1
            assert not toast.overlaps(keys)
            if view == "launch":
                assert not toast.overlaps(app.screen.query_one("#submit").region)


async def test_what_needs_no_key_does_not_talk_of_one() -> None:
    async with opened(Connector(None), mode=None) as app:
        assert "HUD_API_KEY" in app.drawn
        app.app.connect_screen.wait("starting the embedded service … 1 s")
        await app.until(lambda: "starting" in app.drawn)
        assert "KEY" not in app.drawn
        assert "quit" in app.drawn


async def test_notices_leave_the_head_in_sight_and_do_not_pile_up() -> None:
    async with standing() as (app, _):
        for said in ("one", "two", "three", "three", "four", "five", "four"):
            app.show_notice(said)
        await until(lambda: told(app) == ["four"])
        await until(lambda: [str(toast.render()) for toast in app.screen.query(Toast)] == told(app))
        app.show_notice("a long word " * 16)
        await until(lambda: len(told(app)[-1]) > 100 and len(app.screen.query(Toast)) == 1)
        await until(lambda: all(toast.region.height for toast in app.screen.query(Toast)))
        view = app.screen
        below = view.query_one("#tree-note").region
        for toast in view.query(Toast):
            assert toast.region.y > view.query_one(CheckpointTree).region.y + 5
            assert not toast.region.overlaps(below)
            assert toast.region.width <= 50


def seen(app: HudApp) -> list[Region]:
    """Where the notices are, as far as they are in sight."""
    drawn = app.screen._compositor.visible_widgets  # with the part of the screen each may draw in
    places = [drawn[toast] for toast in app.screen.query(Toast) if toast in drawn]
    return [region.intersection(clip) for region, clip in places]


OVER = (
    ("4", "b", "#dialog"),
    ("4", "e", "#dialog"),
    ("4", "V", "#panel"),
    ("3", "a", "#charts"),
    ("3", "c", "#overlays"),
    ("3", "question_mark", "#help"),
)
"""A view, the key of a dialog, and the dialog's box."""


@pytest.mark.parametrize("size", SIZES)
async def test_a_notice_covers_nothing_of_a_dialog(size: tuple[int, int]) -> None:
    async with standing(size=size) as (app, pilot):
        for view, key, box in OVER:
            app.clear_notifications()
            await pilot.press(view)
            await until(lambda: app.shown_view is not None and app.shown_view.focused is not None)
            await pilot.press(key)
            await until(lambda box=box: app.screen.is_modal and bool(app.screen.query(box)))
            app.show_notice("something happened")
            app.show_notice("a long word " * 16)
            await until(lambda: [one[:6] for one in told(app)] == ["a long"])
            await until(lambda: len(app.screen.query(Toast)) == 1)
            await until(lambda: any(region.area for region in seen(app)))
            assert all(region.y >= 1 for region in seen(app) if region.area), "over the top line"
            inside = app.screen.query_one(box).region
            assert inside.area > 0
            assert not any(region.overlaps(inside) for region in seen(app) if region.area)
            assert any(region.area for region in seen(app))
            assert all(app.screen.region.contains_region(region) for region in seen(app))
            assert all(inside.contains_region(one.region) for one in app.screen.query(Button))
            await pilot.press("escape")
            await until(lambda: not app.screen.is_modal)


@pytest.mark.usefixtures("notices_go")
async def test_a_notice_leaves_the_field_that_is_typed_in(served: Served) -> None:
    async with checked_run(served, (80, 24)) as app:
        screen = app.screen
        app.app.show_notice("a long word " * 16)
        await app.until(lambda: screen.query(Toast))
        await app.press("e")
        for field in screen.query(RunForm).first().query(Input):
            if not field.display or not field.region.area:
                continue
            field.focus()
            await app.until(lambda field=field: screen.focused is field)
            await app.until(
                lambda field=field: not any(one.overlaps(field.region) for one in seen(app.app))
            )


async def test_help_is_paged_while_one_types_a_search() -> None:
    async with standing() as (app, pilot):
        await pilot.press("question_mark")
        await until(lambda: isinstance(app.screen, HelpScreen) and app.screen.is_mounted)
        keys = app.screen.query_one(RowList)
        await until(lambda: keys.cursor == 0)
        for key, moved in (("pagedown", True), ("pageup", False), ("end", True), ("home", False)):
            await pilot.press(key)
            await until(lambda moved=moved: (keys.cursor != 0) is moved)
            if key != "pagedown":  # the last row in sight comes first
                await until(lambda moved=moved: (keys.scroll_offset.y > 0) is moved)
        hand = Hand(app, pilot)
        await hand.wheel(Hand.cell(keys, 5, 5), 3)
        await until(lambda: keys.scroll_offset.y > 0)
        await pilot.press(*"head", "end")
        assert app.screen.query_one(Input).value == "head"
        shown = helped(app.screen)
        await until(lambda: keys.key == keys.rows[-1].key != keys.rows[0].key)
        assert all("head" in each.casefold() for each in shown)
        await hand.click(Hand.cell(keys, 5, 0))
        await until(lambda: not isinstance(app.screen, HelpScreen))


def told(app: HudApp) -> list[str]:
    return [notice.message for notice in app._notifications]


async def test_no_notice_covers_the_row_under_the_cursor(served: Served) -> None:
    async with checked_run(served, (80, 24)) as app:
        screen = app.screen

        def covered(rows: RowList) -> bool:
            line = Region(0, rows.region.y + (rows.cursor_y or 0), app.app.size.width, 1)
            return any(toast.overlaps(line) for toast in seen(app.app))

        screen.tasks.focus()
        await app.press("G")
        app.app.show_notice("something happened, and it takes some words to say what it was, " * 3)
        for rows in (screen.tasks, screen.sources, screen.tasks):
            rows.focus()
            await app.until(lambda rows=rows: rows.has_focus and seen(app.app))
            await app.until(lambda rows=rows: not covered(rows))
            assert all(region.y >= 2 for region in seen(app.app)), "below the view's header"
