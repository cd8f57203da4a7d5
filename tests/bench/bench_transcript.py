"""Reading a rollout of 10 000 turns, and one with a turn of 5 MB: opening, unfolding, scrolling.

Measured on a screen of 120 × 40: from the bytes that the service answers to the drawn lines; from
a key to the drawn lines. What Textual then does with the lines is not ours. Garbage is collected
as in the app.
"""

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass
from time import thread_time
from typing import Any

from hud_tui.rl.outcome import Outcome
from hud_tui.rl.transcript import transcript_of
from hud_tui.tui.app import settle
from hud_tui.tui.widgets.transcript import TranscriptView
from hud_tui.tui.widgets.transcript_blocks import Side
from hud_tui.wire_training import TraceEvents
from tests.bench.timing import KEY, Goal, best_s, missed
from tests.tui import reading, runs
from tests.tui.stage import staged

TURNS, LONG = 10_000, 5_000_000
OPEN = Goal(300.0, 55.0)
"""From the answer to what is read."""
SIZE = (120, 40)


def many_turns() -> list[dict[str, Any]]:
    """A conversation of TURNS turns, half of them of a policy that calls a tool."""
    events: list[dict[str, Any]] = []
    for number in range(TURNS // 2):
        events.append({"kind": "user_message", "text": f"turn {number}: what now? " + "word " * 40})
        calls = reading.call("stock", n=number)
        events.append(reading.said(f"I think {number} is fine " + "and so on " * 20, calls))
        events.append(reading.tool("stock", {"n": number}, f'{{"stock": {number}}}'))
    return events


def long_turn(text: str) -> list[dict[str, Any]]:
    """A conversation in which a tool answers with LONG characters."""
    result = (text * (LONG // len(text) + 1))[:LONG]
    return [
        {"kind": "user_message", "text": "read it"},
        reading.said("I look.", reading.call("read", file=1)),
        reading.tool("read", {"file": 1}, result),
        reading.said("done"),
    ]


def answer(events: Sequence[dict[str, Any]]) -> bytes:
    numbered = [{"id": str(seq), "seq": seq, **event} for seq, event in enumerate(events)]
    return json.dumps({"events": numbered}).encode()


@dataclass(frozen=True)
class Reader:
    """A reader of a rollout, in a running app."""

    view: TranscriptView
    body: bytes

    def open(self) -> float:
        """Read the answer, show it, draw what is in sight; how long that took, seconds."""
        self.view.show([], True)
        start = thread_time()
        events = TraceEvents.model_validate_json(self.body).events
        self.view.show([Side(transcript_of(events), Outcome(1.0))], True)
        self.view.redraw()
        return thread_time() - start

    def compare(self) -> float:
        """Show it beside one with a turn more in the middle; how long that took, seconds."""
        events = TraceEvents.model_validate_json(self.body).events
        middle = len(events) // 2
        more = [*events[:middle], events[0].model_copy(update={"text": "more"}), *events[middle:]]
        sides = [Side(transcript_of(each), Outcome(1.0)) for each in (events, more)]
        self.view.show([], True)
        start = thread_time()
        self.view.show(sides, True)
        self.view.redraw()
        return thread_time() - start

    def unfold(self) -> None:
        """Unfold everything, for the first time."""
        for block in self.view.blocks:
            block.passages = block.rows = None
            block.is_open = False
        self.view.fold_all()
        self.view.all_open = False

    def scroll(self) -> None:
        """A page down, or to the top again: all lines in sight are others."""
        view, top = self.view, self.view.scroll_offset.y + self.view.page
        if top + view.size.height > view.count:
            top = 0
        view.cursor = top
        view.scroll_to(y=top, animate=False, immediate=True)
        for y in range(view.size.height):
            view.render_line(y)

    def find(self) -> None:
        self.view.search_text = ""
        self.view.find("nowhere")


async def measure(
    view: TranscriptView, events: Sequence[dict[str, Any]], repeats: int
) -> dict[str, float]:
    reader = Reader(view, answer(events))
    timed = {"open": min(reader.open() for _ in range(repeats))}
    if view.count > view.size.height:
        timed["page, folded"] = best_s(reader.scroll, 60, thread_time)
    if len(events) > 1000:
        timed["beside another"] = min(reader.compare() for _ in range(repeats))
        reader.open()
    timed["unfold all"] = best_s(reader.unfold, repeats, thread_time)
    view.action_first()
    timed["page, unfolded"] = best_s(reader.scroll, 60, thread_time)
    timed["a letter of a search"] = best_s(reader.find, repeats, thread_time)
    return timed


async def all_measured() -> list[tuple[str, float, Goal]]:
    found = []
    rollouts = {
        f"{TURNS} turns": many_turns(),
        "a turn of 5 MB": long_turn("lorem ipsum dolor sit amet "),
        "a turn of 5 million characters, not ASCII": long_turn("löwe īpsum — sit amet "),
        "a turn of 5 MB in one word": long_turn("abcdefghij"),
    }
    async with staged(runs.run_of(3), size=SIZE) as (app, pilot):
        view = TranscriptView()
        await app.screen.mount(view)
        view.styles.dock, view.styles.width, view.styles.height = "top", SIZE[0], SIZE[1]
        await pilot.pause()
        assert view.width > 100, view.size
        settle()
        for name, events in rollouts.items():
            for what, seconds in (await measure(view, events, 5)).items():
                goal = KEY if what.startswith("page") else OPEN
                if what == "unfold all" and "turns" in name:
                    goal = Goal(1000.0, 185.0)
                found.append((f"{name}: {what}", seconds, goal))
    return found


def main() -> int:
    return missed(asyncio.run(all_measured()))
