"""The search in all rollouts of a step or a job, from the reader and from Jobs."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from textual.widgets import Static

from hud_tui.client import rollout_search
from hud_tui.tui.screens import rollout_search as screen
from hud_tui.tui.screens.rollout import RolloutScreen
from hud_tui.tui.screens.rollout_search import MATCHES, RolloutSearch
from hud_tui.tui.widgets.table import Row, item_row
from tests.tui import reading
from tests.tui.hand import Hand
from tests.tui.stage import bare


@asynccontextmanager
async def searching(
    shelf: reading.Shelf, text: str = "", size: tuple[int, int] = (100, 30)
) -> AsyncIterator[tuple[RolloutSearch, Hand]]:
    """The search, opened from the reader of step 12; `text` is in the reader's own search."""
    async with bare(size) as hand:
        reader = RolloutScreen(shelf, shelf.groups(), "a", search=text)
        await hand.app.push_screen(reader)
        await hand.until(lambda: reader.transcript is not None)
        await hand.press("backslash")
        search = await hand.until_screen(RolloutSearch)
        yield search, hand


async def ask(search: RolloutSearch, hand: Hand, text: str) -> None:
    """Fill the field, and search."""
    search.filter_field.focus()
    search.filter_field.value = text
    await hand.press("enter")


def said(search: RolloutSearch) -> str:
    return str(search.query_one("#search-said", Static).render())


def ids(search: RolloutSearch) -> list[str]:
    return [row.key for row in search.list.rows]


async def test_all_rollouts_of_the_step_are_searched_then_those_of_the_run() -> None:
    async with searching(reading.two_steps()) as (search, hand):
        await ask(search, hand, "tool:stock error reward<.2")
        await hand.until(lambda: said(search) == "1 of 4 rollouts")
        assert ids(search) == ["c"]
        row = "  ".join(cell.plain for cell in search.list.rows[0].cells)
        assert "turn 1" in row
        assert "warehouse south is closed" in row
        await hand.press("v")
        await hand.until(lambda: said(search) == "2 of 8 rollouts")
        assert ids(search) == ["c11", "c"]
        await hand.press("G", "enter")
        reader = await hand.until_screen(RolloutScreen)
        await hand.until(lambda: reader.view.hits)
        assert reader.trace_id == "c"
        assert reader.filter_field.value == "error"
        assert len(reader.group.rollouts) == 4, "the group is whole"
        view = reader.view
        await hand.until(lambda: view.blocks[view.hits[view.hit].block].is_open)
        await hand.press("escape", "left", "escape")
        assert hand.screen is search
        assert search.list.key == "c11", "the reader went through what was found"
        await hand.press("y")
        assert hand.app.clipboard == "c11"


async def test_what_is_found_is_added_to_the_list_and_its_number_is_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(rollout_search, "AT_ONCE", 1)
    made: list[str] = []

    def counted(columns: Any, key: str, item: Any) -> Row:
        made.append(key)
        return item_row(columns, key, item)

    monkeypatch.setattr(screen, "item_row", counted)
    shelf = reading.stock_group()
    for id_, (trace, events) in shelf.known.items():  # as of an environment of one's own
        shelf.known[id_] = trace.model_copy(update={"rollout": None}), events
    async with searching(shelf) as (search, hand):
        await ask(search, hand, "warehouse")
        await hand.until(lambda: said(search) == "4 of 4 rollouts")
        assert made == ids(search) == ["a", "b", "c", "d"], "a row is made once"
        column = [each.title for each in MATCHES].index("#")
        assert [row.cells[column].plain for row in search.list.rows] == ["1", "2", "3", "4"]
        await ask(search, hand, "rollout>2")
        await hand.until(lambda: said(search) == "2 of 4 rollouts")
        assert ids(search) == ["c", "d"]


async def test_what_a_row_decides_needs_no_conversation() -> None:
    shelf = reading.two_steps()
    async with searching(shelf) as (search, hand):
        shelf.unread = set(shelf.known)
        await ask(search, hand, "reward>.5 is:trained")
        await hand.until(lambda: said(search) == "2 of 4 rollouts")
        await hand.press("slash")
        assert search.filter_field.has_focus
        await ask(search, hand, "reward>.5 is:trained twelve")
        await hand.until(lambda: "2 rollouts could not be read" in said(search))
        shelf.unread.clear()
        await hand.press("r")
        await hand.until(lambda: said(search) == "2 of 4 rollouts")


async def test_the_reader_s_own_search_goes_on_in_all() -> None:
    async with searching(reading.two_steps(), "enough") as (search, hand):
        await hand.until(lambda: said(search) == "4 of 4 rollouts")
        await ask(search, hand, "zebra")
        await hand.until(lambda: said(search) == "No match. 0 of 4 rollouts")


async def test_a_wrong_filter_is_told_while_it_is_typed() -> None:
    async with searching(reading.two_steps()) as (search, hand):
        await hand.press(*"rewrad<1")
        await hand.until(lambda: "no rollout has rewrad; did you mean reward?" in said(search))
        await hand.press("enter")
        await hand.until(lambda: "no rollout has rewrad" in said(search))
        assert ids(search) == []
        await hand.press("escape")
        assert isinstance(hand.screen, RolloutScreen)


async def test_of_very_many_rollouts_the_newest_are_searched(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(rollout_search, "MOST_ROLLOUTS", 4)
    async with searching(reading.two_steps()) as (search, hand):
        await ask(search, hand, "is:trained")
        await hand.press("v")
        await hand.until(lambda: "4 of 4 rollouts  ·  only the newest of 8" in said(search))
        assert ids(search) == ["a", "b", "c", "d"]


async def test_an_evaluation_s_rollouts_have_no_advantage() -> None:
    shelf = reading.stock_group()
    shelf.kind = "evaluation"
    searched = await rollout_search.read_searched(shelf, "job", None)
    assert {rollout.advantage for rollout in searched.rollouts} == {None}
