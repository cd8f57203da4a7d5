"""The reader: folding, calls, the environment apart, the group, colours, a search, side by side."""

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from textual.pilot import Pilot
from textual.widgets import Static

from hud_tui.rl.groups import PLAIN
from hud_tui.rl.rollouts import Shade, known_group
from hud_tui.tui.screens.dialogs import Dialog
from hud_tui.tui.screens.rollout import RolloutScreen, counterpart
from hud_tui.wire import Group
from hud_tui.wire_rollouts import Trace
from tests.conftest import until
from tests.tui import reading, runs
from tests.tui.hand import Hand
from tests.tui.stage import Stage, staged


@asynccontextmanager
async def reader_of(
    shelf: reading.Shelf, first: str = "a", size: tuple[int, int] = (100, 30), **more: Any
) -> AsyncIterator[tuple[RolloutScreen, Hand]]:
    """The reader over these rollouts, once it has read the first."""
    evaluated = more.pop("evaluated", False)
    groups = more.pop("groups", None) or shelf.groups(None if evaluated else PLAIN)
    async with staged(runs.run_of(3), size=size, notifications=True) as (app, pilot):
        screen = RolloutScreen(shelf, groups, first, **more)  # type: ignore[arg-type]
        await app.push_screen(screen)
        hand = Hand(app, pilot)
        await hand.until(lambda: screen.transcript is not None or screen.view.failure)
        await pilot.pause()
        yield screen, hand


def heads(screen: RolloutScreen) -> list[str]:
    """The lines of turns, and of what is around them."""
    return [line for line in screen.view.plain.split("\n") if line[:1] in ("▸", "▾")]


def shown(screen: RolloutScreen) -> str:
    return screen.view.plain


async def test_each_turn_is_a_line_until_it_is_unfolded_and_a_call_stands_once() -> None:
    async with reader_of(reading.stock_group()) as (screen, hand):
        lines = heads(screen)
        labels = [line[2:14].strip() for line in lines]
        assert labels == [
            "reward", "environment", "system", "user", "assistant", "assistant", "environment",
        ]  # fmt: skip
        assert [line[0] for line in lines] == [*"▾▸▸▸▸▸▸"]
        folded = lines[4]
        assert "I will look" in folded
        assert "→ stock" in folded
        assert "12 tok  1.2 s" in folded
        assert "reasoning" not in shown(screen)

        await hand.press(*"jjjj", "j", "j", "j", "j")
        assert screen.view.block is screen.view.blocks[4]
        await hand.press("enter")
        text = shown(screen)
        assert text.count("→ stock") == 2, "once each, not as requested and as made"
        assert '→ stock {"warehouse": "north", "sku": "SKU-7"}\n  ← {"stock": 12}\n' in text
        assert '"shelf": "A-12",\n' in text
        assert "reasoning\n  The question names two" in text
        assert heads(screen)[4].startswith("▾ assistant")
        await hand.press("space")
        assert heads(screen) == lines


async def test_one_key_unfolds_everything_and_the_next_rollout_is_unfolded_too() -> None:
    async with reader_of(reading.stock_group()) as (screen, hand):
        await hand.press("a")
        assert all(block.is_open for block in screen.view.blocks)
        assert "setup" in shown(screen)
        await hand.press("right")
        await hand.until(lambda: screen.transcript is not None)
        assert screen.trace_id == "b"
        assert all(block.is_open for block in screen.view.blocks)
        await hand.press("a")
        assert [block.is_open for block in screen.view.blocks] == [True, *[False] * 6]


async def test_what_fits_is_unfolded_at_once() -> None:
    async with reader_of(reading.stock_group(), size=(120, 60)) as (screen, _):
        opened = [block.is_open for block in screen.view.blocks]
        assert opened == [True, False, True, True, True, True, False], "but for the environment"


async def test_the_reward_its_parts_and_what_became_of_the_rollout_are_at_the_top() -> None:
    async with reader_of(reading.stock_group(), size=(140, 20)) as (screen, _):
        first, expected, facts, found, *_ = shown(screen).split("\n")
        assert ".600  =  number 1 × .600 + verdict 0 × .400" in first
        assert expected.strip() == "expected   19 yes"
        assert facts.strip().startswith("advantage ▲ .200  ·  trained on at step 12  ·  stopped")
        assert found.strip() == "found   19"


async def test_an_evaluation_speaks_of_no_advantage_and_colours_by_surprise_alone() -> None:
    async with reader_of(reading.stock_group(evaluated=True), evaluated=True) as (screen, hand):
        await hand.press("tab")
        text = "\n".join([*hand.lines, shown(screen)])
        for word in ("advantage", "gradient", "trained", " adv "):
            assert word not in text
        assert "evaluated" in text
        await hand.press("tab", "v")
        assert screen.shade is Shade.SURPRISE
        await hand.press("v")
        assert screen.shade is None


async def test_an_error_of_a_tool_is_marked_folded_and_unfolded() -> None:
    async with reader_of(reading.stock_group(), "c", (100, 20)) as (screen, hand):
        assert heads(screen)[4].startswith("▸ assistant   ⚠ I will look")
        await hand.press("a")
        assert "  ⚠ error warehouse south is closed\n" in shown(screen)
        assert shown(screen).count("is closed") == 1


async def test_the_group_is_a_strip_of_rewards_or_a_list_on_a_key() -> None:
    async with reader_of(reading.stock_group()) as (screen, hand):
        strip = hand.lines[1]
        assert "▸▅█▁▁" in strip
        assert ".400 ± .424" in strip
        await hand.click((hand.lines[1].index("█"), 1))
        await hand.until(lambda: screen.trace_id == "b")
        assert not screen.list.display
        await hand.press("tab", "j")
        await hand.until(lambda: screen.trace_id == "c")
        assert screen.list.has_focus
        await hand.press("tab")
        assert screen.view.has_focus
        assert not screen.list.display


async def test_surprise_is_a_colour_on_demand_with_alternatives() -> None:
    shelf = reading.stock_group()
    async with reader_of(shelf) as (screen, hand):
        legend = screen.query_one("#rollout-legend", Static)
        assert not legend.display
        await hand.press("G", "k", "v", "enter")
        assert legend.display
        assert "surprise" in str(legend.render())
        line = next(n for n, text in enumerate(shown(screen).split("\n")) if "makes 19" in text)
        styles = {
            part.text.strip(): part.style
            for part in screen.view._drawn_line(line, 100)
            if part.style
        }
        tones = {name: screen.view.tone(name).color for name in ("faint", "plain", "warm", "hot")}
        assert styles["makes"].color == tones["faint"]
        assert styles["it"].color == tones["hot"]

        await hand.press("d")
        await hand.until(lambda: "alternatives: “7” .819   “19” .150" in shown(screen))
        [asked] = shelf.asked
        assert (asked.model, asked.checkpoint, asked.logprobs) == ("clerk-rl", "base", 5)
        assert asked.prompt[0] == [1, 2, 3, 0, 1]
        assert "␣makes     -0.010" in shown(screen)
        await hand.press("d")
        assert "alternatives" not in shown(screen)
        await hand.press("d")
        assert "alternatives" in shown(screen)
        assert len(shelf.asked) == 1


async def test_a_search_unfolds_where_it_finds_something() -> None:
    async with reader_of(reading.stock_group()) as (screen, hand):
        await hand.until_notice("starts one", "n")
        await hand.press("slash", *"SHELF")
        await hand.until(lambda: "1 of 1 found" in hand.lines[0])
        assert screen.view.blocks[4].is_open
        y = next(y for y, line in enumerate(hand.lines) if '"shelf"' in line)
        assert screen.view.cursor_y == y - screen.view.region.y
        await hand.press(*["backspace"] * 5, *"stock", "enter")
        hits = len(screen.view.hits)
        assert hits > 3
        hit = screen.view.hit
        await hand.press("n", "n", "N")
        number = (hit + 1) % hits + 1
        await hand.until(lambda: f"{number} of {hits} found" in hand.lines[0])
        await hand.press("escape")
        assert screen.view.hits == []
        await hand.press("slash", *"qqqq", "enter")
        await hand.until_notice("No match in this rollout", "n")


async def test_two_rollouts_are_side_by_side_from_their_first_difference() -> None:
    async with reader_of(reading.stock_group(), size=(120, 40)) as (screen, hand):
        await hand.press("right")
        await hand.until(lambda: screen.trace_id == "b" and screen.transcript is not None)
        await hand.press("c")
        await hand.until(lambda: screen.view.first_difference is not None)
        assert screen.beside == "c", "whose reward differs most"
        await hand.press("left")
        await hand.until(lambda: screen.beside == "a" and screen.view.first_difference == 5)
        assert "≠ first difference" in heads(screen)[5]
        _, right = next(line.split("│") for line in shown(screen).split("\n") if "so it is" in line)
        assert "it is not enough" in right
        block = screen.view.blocks[5]
        assert (
            block.texts(screen.view.sides)[0][0]
            .text[screen.view._place_of_difference[1] :]
            .startswith("so it")
        )
        y = next(y for y, line in enumerate(hand.lines) if "so it is" in line)
        reversed_ = [p.text for p in screen.view.render_line(y - screen.view.region.y)
                     if p.style and p.style.reverse]  # fmt: skip
        assert reversed_ == ["s", "i"]
        await hand.press("c")
        assert screen.beside is None
        assert "│" not in shown(screen)


async def test_a_rollout_without_others_or_without_texts_says_so() -> None:
    shelf = reading.Shelf({"a": (Trace(id="a", task_slug="t", reward=1.0), [])})
    async with reader_of(shelf) as (screen, hand):
        assert "no conversation" in shown(screen)
        await hand.until_notice("has no other rollout", "c")
        await hand.until_notice("No turn with tokens", "d")
        await hand.until_notice("last rollout", "right")
    gone = reading.Shelf({})
    groups = [known_group(Group(task_slug="t", rewards=[1.0], trace_ids=["x"]), PLAIN)]
    async with reader_of(gone, "x", groups=groups) as (screen, _):
        assert "Cannot be read: no such trace" in shown(screen)


async def test_y_copies_as_text_markdown_json_or_the_answer() -> None:
    begins = (
        "stock-7, step 12, reward .600\nreward .600  =  number",
        "## stock-7",
        "{",
        "That makes",
    )
    async with reader_of(reading.stock_group()) as (screen, hand):
        for number, begin in enumerate(begins):
            await hand.press("y")
            await hand.until_screen(Dialog)
            await hand.until(lambda: hand.app.screen.focused)
            await hand.press(*"l" * number, "enter")
            await hand.until(lambda begin=begin: hand.app.clipboard.startswith(begin))
            await hand.until(lambda: hand.app.screen is screen)
            if begin == "{":
                assert len(json.loads(hand.app.clipboard)["events"]) == 8


async def test_it_fits_every_size() -> None:
    async with reader_of(reading.stock_group(), size=(200, 60)) as (screen, hand):
        await hand.press("v", "a", "c")
        await hand.until(lambda: screen.view.first_difference is not None)
        for size in ((200, 60), (80, 24), (40, 12)):
            await hand.pilot.resize_terminal(*size)
            for y in range(screen.view.size.height):
                assert screen.view.render_line(y).cell_length == screen.view.size.width
            assert max(map(len, shown(screen).split("\n"))) <= size[0]


def test_the_counterpart_is_of_the_other_side() -> None:
    group = Group(task_slug="t", rewards=[0.0, 1.0, 0.2], trace_ids=["a", "b", "c"])
    [known] = [known_group(group, None, sides=[("A", 2), ("B", 1)])]
    assert counterpart(known, known.rollouts[0]) == "c"
    assert [known.side_of(n) for n in range(4)] == ["A", "A", "B", ""]
    assert counterpart(known_group(group, PLAIN), known.rollouts[0]) == "b"


@pytest.mark.parametrize("size", [(80, 24), (120, 40)], ids=["80x24", "120x40"])
@pytest.mark.parametrize("keys", ["", "c", "vG"], ids=["folded", "side-by-side", "surprise"])
def test_the_reader_looks(
    keys: str, size: tuple[int, int], snap_compare: Callable[..., bool]
) -> None:
    shelf = reading.stock_group()

    async def ready(pilot: Pilot[None]) -> None:
        screen = RolloutScreen(shelf, shelf.groups(), "a")  # type: ignore[arg-type]
        await pilot.app.push_screen(screen)
        await until(lambda: screen.transcript is not None)
        await pilot.press(*keys)
        await until(lambda: keys != "c" or screen.view.first_difference is not None)
        if keys == "vG":
            await pilot.press("k", "enter")
        await pilot.pause()

    assert snap_compare(Stage(runs.run_of(3)), run_before=ready, terminal_size=size)
