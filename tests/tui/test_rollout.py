"""The reader: folding, calls, the environment apart, the group, colours, a search, side by side."""

import json
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import replace
from math import inf
from operator import is_
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pytest
from textual.pilot import Pilot
from textual.widgets import Static

from hud_tui.client.client import HudClient
from hud_tui.rl.groups import PLAIN
from hud_tui.rl.rollouts import Shade, known_group
from hud_tui.rl.run import Run
from hud_tui.rl.transcript import GRADING, EnvironmentPart, Transcript
from hud_tui.settings import local_settings
from hud_tui.tui.keys import KeyLine
from hud_tui.tui.screens import rollout
from hud_tui.tui.screens.dialogs import Dialog, PlayRollout
from hud_tui.tui.screens.rollout import RolloutScreen, counterpart
from hud_tui.tui.start import Start
from hud_tui.tui.widgets import passages
from hud_tui.tui.widgets.passages import Alternative
from hud_tui.tui.widgets.transcript_blocks import Side, blocks_of, rows_of
from hud_tui.wire import Group
from hud_tui.wire_rollouts import JobEnter, Trace, TraceEnter, TraceExit
from tests.conftest import Served, on_socket, until
from tests.tui import reading
from tests.tui.cockpit import cockpit
from tests.tui.hand import Hand
from tests.tui.stage import Bare, bare


@asynccontextmanager
async def reader_of(
    shelf: reading.Shelf, first: str = "a", size: tuple[int, int] = (100, 30), **more: Any
) -> AsyncIterator[tuple[RolloutScreen, Hand]]:
    """The reader over these rollouts, once it has read the first."""
    evaluated = more.pop("evaluated", False)
    groups = more.pop("groups", None) or shelf.groups(None if evaluated else PLAIN)
    async with bare(size) as hand:
        screen = RolloutScreen(shelf, groups, first, **more)
        await hand.app.push_screen(screen)
        await hand.until(lambda: screen.transcript is not None or screen.view.failure)
        await hand.pilot.pause()
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
        assert "enter fold  a unfold all" in hand.lines[-1], "the reward is unfolded"
        assert "details" not in [action.name for action in screen.query_one(KeyLine).actions]

        await hand.press(*"jjjj", "j", "j", "j", "j")
        assert screen.view.block is screen.view.blocks[4]
        assert "enter unfold  a unfold all" in hand.lines[-1]
        assert "details" in [action.name for action in screen.query_one(KeyLine).actions]
        await hand.press("enter")
        assert "enter fold  a unfold all" in hand.lines[-1]
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
        assert "enter fold  a fold all" in hand.lines[-1]
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
        assert facts.strip().startswith("advantage +.200  ·  trained on at step 12  ·  stopped")
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

        await hand.press("g")
        await hand.until_notice("This block has no tokens", "d")
        assert not shelf.asked
        await hand.press("G", "k", "d")
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


def test_a_turn_without_an_improbable_token_says_so() -> None:
    turn, sample = SimpleNamespace(pieces=["a"]), SimpleNamespace(output_logprobs=[-0.01])
    said = passages._alternatives(turn, sample, [])
    assert said.text == "No token of this turn was improbable."
    sample.output_logprobs = [-5.0]
    said = passages._alternatives(turn, sample, [])
    assert said.text == "The service gives no alternatives for this turn."
    told = [Alternative(0, [("b", -0.1), ("a", -5.0)])]
    said = passages._alternatives(turn, sample, told)
    assert "alternatives: “b” .905" in said.text
    assert "“a” .00" not in said.text, "it is what was sampled"


async def test_without_the_weights_that_sampled_it_there_are_no_alternatives() -> None:
    shelf = reading.stock_group()
    shelf.is_expired = True
    async with reader_of(shelf) as (screen, hand):
        await hand.press("G", "k", "v", "d")
        gone = "No alternatives: the weights that sampled this rollout are deleted."
        await hand.until(lambda: gone in shown(screen))
        assert "␣makes     -0.010" in shown(screen), "its tokens are listed"
        await hand.press("d", "d")
        assert gone in shown(screen)
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
        screen._listed = frozenset({"b"})  # as from a list with a filter: the group is gone through
        await hand.press("right")
        await hand.until(lambda: screen.beside == "c")
        await hand.press("c")
        assert screen.beside is None
        assert "│" not in shown(screen)


async def test_a_turn_that_one_of_two_has_stands_beside_a_gap() -> None:
    shelf = reading.stock_group()
    shelf.known["b"] = shelf.known["b"][0], reading.told(reading.stock_twice())
    for first, beside in (("a", "b"), ("b", "a")):
        async with reader_of(shelf, first, (120, 40), beside=beside) as (screen, hand):
            await hand.until(lambda screen=screen: screen.view.first_difference == 5)
            missing = first == "b"
            assert [block.sources[missing] is None for block in screen.view.blocks] == [
                *(number == 5 for number in range(8))
            ]
            row = screen.view.line_text(screen.view._starts[5]).split("│")
            assert row[missing].strip("▎ ").startswith("–")
            assert "assistant" in row[not missing]
            assert "≠ first difference" in row[1]


async def test_keys_act_on_the_rollout_that_has_the_cursor() -> None:
    shelf = reading.stock_group()
    async with reader_of(shelf, size=(120, 40), beside="b") as (screen, hand):
        await hand.until(lambda: screen.view.first_difference is not None)
        played: list[str] = []
        monkeypatched = screen.post_message

        def post(message: Any) -> bool:
            if isinstance(message, PlayRollout):
                played.append(message.trace_id)
                return True
            return monkeypatched(message)

        screen.post_message = post
        for keys, active, number in (("", "a", 1), ("tab", "b", 2)):
            await hand.press(*filter(None, [keys]))
            await hand.until(lambda number=number: f"rollout {number} of 4" in hand.lines[0])
            await hand.press("ctrl+t", "G", "k", "d")
            await hand.until(lambda active=active: bool(screen._alternatives.get(active)))
            assert played[-1] == active
            await hand.press("y")
            await hand.until_screen(Dialog)
            assert f"Copy rollout {number} of 4 as" in "\n".join(hand.lines)
            await hand.press("enter")
            reward = ".600" if active == "a" else "1"
            copied = f"stock-7, step 12, reward {reward}"
            await hand.until(lambda copied=copied: hand.app.clipboard.startswith(copied))
        assert screen._detailed == {"a": {1}, "b": {1}}
        marks = [line.index("▎") for line in hand.lines if "▎" in line]
        assert marks == [] or marks[0] > 60
        await hand.press("tab")
        assert screen.list.has_focus
        await hand.press("tab")
        assert screen.active == "a"
        await hand.click((90, 12))
        assert screen.active == "b"
        await hand.press("c")
        assert (screen.beside, screen.active) == (None, "a")


async def test_a_running_rollout_is_read_on_and_the_place_stays(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(rollout, "backoff", lambda failures: 0.01)
    shelf = reading.stock_group()
    trace, events = shelf.known["a"]
    unknown = dict.fromkeys(("reward", "stop_reason", "evaluation_result"))
    running = trace.model_copy(update={"status": "running", **unknown})
    shelf.known["a"] = running, events[:4]
    async with reader_of(shelf, size=(100, 16)) as (screen, hand):
        assert "still running: new turns are added" in shown(screen)
        assert "reward –" in hand.lines[0]
        await hand.press("a", "g", "j", "j", "j", "j")
        key, top = screen.view.key, texts(hand)
        shelf.known["a"] = running, events[:5]
        await hand.until(lambda: '← {"stock": 12}' in shown(screen))
        assert (screen.view.key, texts(hand)) == (key, top), "the place stays"
        await hand.press("G")
        shelf.known["a"] = running, events[:7]
        await hand.until(lambda: "That makes 19" in shown(screen))
        assert screen.view.cursor == screen.view.count - 1, "at the end what is new is shown"
        await hand.press(*"kkkk")
        key, top = screen.view.key, texts(hand)
        assert "reward" not in "".join(top)
        shelf.known["a"] = trace, events
        await hand.until(lambda: "reward .600" in hand.lines[0])
        await hand.until(lambda: "stopped: end of turn" in shown(screen))
        assert (screen.view.key, texts(hand)) == (key, top), "although the outcome has grown"
        await hand.until(lambda: not following(screen))


def texts(hand: Hand) -> list[str]:
    """What is shown of the turns on a screen of 100 × 16, without the scrollbar."""
    return [line[:98] for line in hand.lines[2:15]]


def following(screen: RolloutScreen) -> bool:
    return any(w.group == "follow" and w.is_running for w in screen.workers if w.node is screen)


async def test_a_new_turn_is_as_the_one_above_it() -> None:
    shelf = reading.stock_group()
    trace, events = shelf.known["a"]
    shelf.known["a"] = trace, events[:6]
    async with reader_of(shelf, size=(100, 16)) as (screen, hand):
        await hand.press("G")
        for opens in ("", "enter"):
            shelf.known["a"] = trace, events[:6]
            await hand.press("r")
            await hand.until(lambda: len(screen.view.blocks) == 5)
            await hand.press("G", *filter(None, [opens]))
            kept = screen.view.blocks[1:4]
            shelf.known["a"] = trace, events
            await hand.press("r")
            await hand.until(lambda: len(screen.view.blocks) == 7)
            assert [block.is_open for block in screen.view.blocks[4:]] == [
                *(bool(opens), bool(opens), False)
            ]
            assert all(map(is_, kept, screen.view.blocks[1:4])), "what is the same stays laid out"


async def test_a_rollout_is_read_on_over_a_socket_also_after_a_reconnect(
    served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rollout, "backoff", lambda failures: 0.02)
    monkeypatch.setattr(rollout, "LATE_LOOKS", inf)  # a busy machine may tell of the end too late
    trace_id, job_id = uuid4().hex, uuid4().hex
    settings = local_settings(served.url, served.api_key, f"{served.url}/telemetry/v3/api")
    leaving = AsyncExitStack()
    url = await leaving.enter_async_context(on_socket(served.service))
    start = Start("jobs", view="jobs")
    async with aclosing(HudClient(settings)) as client:

        async def tell(number: int, **payload: Any) -> None:
            span = {
                "name": "step.agent",
                "span_id": f"{number:016x}",
                "start_time": f"2026-01-01T00:00:{number:02}Z",
                "attributes": {"hud.payload": payload},
            }
            await client.rollouts.upload_spans(trace_id, [span])

        await client.rollouts.enter_job(job_id, JobEnter(name="mine", group=1))
        await client.rollouts.enter_trace(trace_id, TraceEnter(job_id=job_id, task_slug="two"))
        await tell(1, content="the first turn")
        async with cockpit(
            replace(served, url=url), start, state=lambda: tmp_path / "state"
        ) as flown:
            view: Any = flown.view
            await flown.until(lambda: bool(view.jobs))
            await flown.press("enter")
            await flown.until(lambda: view.part is not None)
            await flown.press("enter")
            await flown.until(lambda: getattr(flown.screen, "transcript", None) is not None)
            screen: Any = flown.screen
            assert "the first turn" in shown(screen)
            await tell(2, content="the second turn")
            await flown.until(lambda: "the second turn" in shown(screen))
            await leaving.aclose()
            flown.connector.served = served
            await flown.press("ctrl+r")
            await flown.until_notice("reconnected")
            await tell(3, content="the third turn")
            await flown.until(lambda: "the third turn" in shown(screen))
            await client.rollouts.exit_trace(trace_id, TraceExit(reward=0.25, stop_reason="done"))
            await flown.until(lambda: ".250" in shown(screen))
            await tell(4, content="uploaded after its end")
            await flown.until(lambda: "uploaded after its end" in shown(screen))
            monkeypatch.setattr(rollout, "LATE_LOOKS", 0)
            await flown.until(lambda: not following(screen))


async def test_a_rollout_without_others_or_without_texts_says_so() -> None:
    shelf = reading.Shelf({"a": (Trace(id="a", task_slug="t", reward=1.0), [])})
    async with reader_of(shelf) as (screen, hand):
        assert "no conversation" in shown(screen)
        await hand.until_notice("has no other rollout", "c")
        await hand.until_notice("This block has no tokens", "d")
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
        screen = RolloutScreen(shelf, shelf.groups(), "a")
        await pilot.app.push_screen(screen)
        await until(lambda: screen.transcript is not None)
        await pilot.press(*keys)
        await until(lambda: keys != "c" or screen.view.first_difference is not None)
        if keys == "vG":
            await pilot.press("k", "enter")
        await pilot.pause()

    assert snap_compare(Bare(Run()), run_before=ready, terminal_size=size)


def test_what_only_one_environment_did_stands_alone() -> None:
    judged, counted = EnvironmentPart(GRADING, "judge"), EnvironmentPart(GRADING, "count")
    told = Transcript(grading=(judged, counted)), Transcript(grading=(counted,))
    blocks = blocks_of([Side(each) for each in told], rows_of(told))
    assert [block.sources for block in blocks] == [[judged, None], [counted, counted]]
