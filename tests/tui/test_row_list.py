"""Lists that fold or draw only what is seen, and the JSON viewer."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
from textual.app import App, ComposeResult
from textual.content import Content
from textual.pilot import Pilot

from hud_tui.rl.json_tree import Line
from hud_tui.tui.screens.json import JsonScreen, JsonView, content_of
from hud_tui.tui.start import Start
from hud_tui.tui.widgets.table import Column, Row, RowList, fold, item_row
from tests.conftest import Served, fork, submit
from tests.conftest import ended as run_ended
from tests.tui.conftest import Connector, Opened, caller, forked, opened

COLUMNS: Sequence[Column[int]] = (
    Column("", 1, lambda number: "*"),
    Column("name", 0, lambda number: f"row {number}"),
    Column("far", 20, lambda number: "x", rank=2),
    Column("number", 6, lambda number: "7", right=True, rank=1),
)


@pytest.mark.parametrize(
    ("width", "titles", "flexible"),
    [
        (80, ["", "name", "far", "number"], 45),
        (40, ["", "name", "number"], 27),
        (20, ["", "name"], 15),
        (5, ["", "name"], 1),
    ],
)
def test_columns_fold_from_the_least_important(
    width: int, titles: list[str], flexible: int
) -> None:
    shown = fold(COLUMNS, width, 12)
    assert [column.title for column, _, _ in shown] == titles
    assert next(size for column, size, _ in shown if column.title == "name") == flexible


class Shown(App[None]):
    CSS = "RowList .rows--cursor { background: red; }"
    opened = ""

    def on_table_opened(self, event: RowList.Opened) -> None:
        self.opened += event.key

    def compose(self) -> ComposeResult:
        yield RowList(COLUMNS)


def row(number: int) -> Row:
    return item_row(COLUMNS, str(number), number)


@asynccontextmanager
async def listed(*shown: Row, height: int = 6) -> AsyncIterator[tuple[RowList, Pilot[None]]]:
    """A focused list of these rows."""
    app = Shown()
    async with app.run_test(size=(60, height)) as pilot:
        rows = app.query_one(RowList)
        rows.focus()
        rows.show(shown)
        await pilot.pause()
        yield rows, pilot


async def test_the_cursor_scrolls_many_rows_keeps_its_own_and_passes_headings() -> None:
    async with listed(*(row(n) for n in range(20_000)), height=10) as (rows, pilot):
        await pilot.press("end")
        assert rows.key == "19999"
        await pilot.pause()
        assert "row 19999" in rows.render_line(9).text
        await pilot.press("home", "pagedown")
        assert rows.key == "8"

        heading = Row("h", (Content("heading"),), heading=True)
        rows.show([])
        rows.show([heading, row(1), heading, row(2)])
        assert rows.key == "1"
        await pilot.press("down")
        assert rows.key == "2"
        rows.show([heading, row(9), row(1), heading, row(2)])
        assert rows.key == "2"
        rows.show([row(9)])
        assert rows.key == "9"
        rows.show([])
        assert rows.key is None
        await pilot.press("down", "up", "end", "home", "pageup")


async def test_a_row_may_take_several_lines() -> None:
    blank = Content()
    more = Row("2", (blank, Content("its second line"), blank, blank), continues=True)
    async with listed(row(1), row(2), more, row(3), row(4), row(5)) as (rows, pilot):
        await pilot.press("down")
        assert rows.key == "2"
        marked = rows.get_component_rich_style("rows--cursor").bgcolor
        grounds = [[part.style.bgcolor for part in rows.render_line(y)] for y in range(6)]
        assert [marked in each for each in grounds] == [False, False, True, True, False, False]
        await pilot.press("down")
        assert rows.key == "3"
        await pilot.click(RowList, offset=(5, 3))
        assert rows.key == "2"


async def test_a_row_that_changes_its_style_alone_is_drawn_again() -> None:
    async with listed(row(1), row(2)) as (rows, _):
        before = rows.render_line(2)
        rows.show([row(1), replace(row(2), cells=(*row(2).cells[:3], Content.styled("7", "bold")))])
        after = rows.render_line(2)
        assert before.text == after.text
        assert [*before] != [*after]


async def test_a_list_that_was_hidden_shows_what_came_meanwhile() -> None:
    async with listed(row(1)) as (rows, pilot):
        rows.display = False
        await pilot.pause()
        rows.show([row(2), row(3)])
        rows.select("3")
        rows.display = True
        await pilot.pause()
        assert "row 2" in rows.render_line(1).text


async def test_rows_that_come_above_leave_what_was_scrolled_to_in_sight() -> None:
    async with listed(*map(row, range(20))) as (rows, pilot):
        await pilot.press("down")
        rows.show([row(n) for n in (*range(50, 60), *range(20))])
        assert rows.in_sight, "the cursor was"
        rows.scroll_to(y=20, animate=False)
        rows.show([row(n) for n in (*range(40, 60), *range(20))])
        assert (rows.key, rows.scroll_offset.y) == ("1", 20), "the user scrolled away from it"


async def test_two_clicks_open_a_row() -> None:
    async with listed(row(1), row(2)) as (rows, pilot):
        await pilot.click(RowList, offset=(5, 2), times=2)
        await pilot.pause()
        assert (rows.key, rows.app.opened) == ("2", "2")


def keys(app: Opened) -> list[object]:
    return [line.path[-1] for line in app.screen.query_one(JsonView).tree_of.lines]


async def test_a_job_s_status_is_folded_searched_and_copied(served: Served) -> None:
    async with caller(served) as http:
        model = await fork(http, "arith rl")
        job_id = await submit(http, model["id"], steps=2, group_size=2)
        await run_ended(http, job_id)
    start = Start("status", ref=job_id, verbose=True)
    async with opened(Connector(served), start) as app:
        await app.until_screen(JsonScreen)
        assert keys(app) == ["job", "model", "checkpoints"]
        assert job_id in app.said("#json-title")
        await app.press("enter")
        assert "trained_tokens" in keys(app)
        assert "estimated_finish" in keys(app)
        await app.press("left")
        assert keys(app) == ["job", "model", "checkpoints"]
        await app.press("/", *"loss_fn", "enter")
        await app.until(lambda: app.said("#json-path").strip() == "job.parameters.loss_fn")
        await app.press("n", "n", "n", "N")
        assert app.said("#json-path").strip() == "checkpoints[0].loss_fn"
        assert "3 of 4 matches" in app.said("#json-title")
        await app.press("y")
        assert app.app.clipboard == "checkpoints[0].loss_fn"
        await app.press("Y")
        assert app.app.clipboard == "importance_sampling"
        await app.press("h", "Y")
        assert '"loss_fn": "importance_sampling"' in app.app.clipboard
        await app.press("escape", then="live")


async def test_the_followed_model_is_shown_from_any_view(served: Served) -> None:
    await forked(served, "arith rl")
    async with opened(Connector(served), Start("models", model="arith rl")) as app:
        await app.until_view("models")
        await app.until(lambda: app.run.model is not None)
        await app.open(JsonScreen, "J")
        await app.press("down", "a")
        assert "model_name" in keys(app)
        await app.until_notice("no match for", "/", *"nowhere to be found", "enter")
        await app.press("end", "q", then="models")


def test_what_a_server_says_cannot_act() -> None:
    text = content_of(Line(("a\x1b[2J", "[b]x[/b]"), "\x1b]0;title\x07[red]"))
    assert isinstance(text, Content)
    assert "\x1b" not in text.plain
    assert "[red]" in text.plain
