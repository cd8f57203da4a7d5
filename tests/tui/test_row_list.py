"""Columns that fold, and a list of many rows that draws only what is seen."""

import pytest
from textual.app import App, ComposeResult
from textual.content import Content

from hud_tui.tui.widgets.row_list import Column, Row, RowList, fold

COLUMNS = (
    Column("", 1),
    Column("name"),
    Column("far", 20, rank=2),
    Column("number", 6, right=True, rank=1),
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
    def compose(self) -> ComposeResult:
        yield RowList(COLUMNS)


def row(number: int) -> Row:
    return Row(str(number), (Content("*"), Content(f"row {number}"), Content("x"), Content("7")))


async def test_the_cursor_scrolls_many_rows_keeps_its_own_and_passes_headings() -> None:
    app = Shown()
    async with app.run_test(size=(60, 10)) as pilot:
        rows = app.query_one(RowList)
        rows.focus()
        rows.show([row(n) for n in range(20_000)])
        await pilot.press("end")
        assert rows.key == "19999"
        await pilot.pause()
        assert "row 19999" in rows.render_line(9).text
        await pilot.press("home", "pagedown")
        assert rows.key == "8"

        heading = Row("h", (Content("heading"),), heading=True)
        rows.show([heading, row(1), heading, row(2)])
        await pilot.press("home")
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


async def test_two_clicks_open_a_row() -> None:
    opened: list[str] = []

    class Clicked(Shown):
        def on_row_list_opened(self, event: RowList.Opened) -> None:
            opened.append(event.key)

    app = Clicked()
    async with app.run_test(size=(60, 10)) as pilot:
        rows = app.query_one(RowList)
        rows.show([row(1), row(2)])
        await pilot.click(RowList, offset=(5, 2), times=2)
        await pilot.pause()
        assert rows.key == "2"
        assert opened == ["2"]
