"""How fresh the screen is said to be."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from time import monotonic
from types import SimpleNamespace
from typing import Any, cast

import pytest

from hud_tui.client.client import HudClient
from hud_tui.events import CheckpointAdded, Event, JobChanged, TreeRead
from hud_tui.rl.head import Journal
from hud_tui.rl.progress import State
from hud_tui.rl.run import Run
from hud_tui.storage import JsonStore
from hud_tui.tui.alarms import AlarmBook, AlarmWatch
from hud_tui.tui.session import MANY, Follower
from hud_tui.wire import Checkpoint
from tests.tui import runs


@dataclass
class Heard:
    """A feed that was heard of so many seconds ago."""

    ago_s: float
    trouble: str = ""
    source = "stream"
    retry_at: Any = None
    reading: Any = None
    behind_s: float = 0.0

    @property
    def heard_at(self) -> float:
        return monotonic() - self.ago_s


def follower(feed: Heard, status: str) -> Follower:
    client = SimpleNamespace(settings=SimpleNamespace(local=True), feed=lambda model_id: feed)
    watch = AlarmWatch(None, AlarmBook(JsonStore(), "m1"))
    made = Follower(cast(HudClient, client), Run(), runs.MODEL, Journal(), watch)
    made.fold(JobChanged(job=runs.job(20, 400, status)))
    made.frame()
    return made


@pytest.mark.parametrize(
    ("status", "ago_s", "trouble", "said"),
    [
        ("running", 7.5, "", 7),
        ("succeeded", 7.5, "", 0),
        ("succeeded", 27.5, "", 20),
        ("succeeded", 7.5, "no answer", 7),
    ],
)
def test_while_nothing_trains_the_age_changes_seldom(
    status: str, ago_s: float, trouble: str, said: float
) -> None:
    one = follower(Heard(ago_s, trouble), status)
    assert one.freshness.age_s == said
    assert not one.frame(), "nothing new, and it is to be drawn again"


@pytest.mark.parametrize(
    ("spoke", "state"), [(True, State.STALLED), (False, State.LIVE)], ids=["run", "line"]
)
def test_a_silent_line_does_not_mean_that_the_run_has_stalled(spoke: bool, state: State) -> None:
    feed = Heard(0.0 if spoke else 60.0)
    one = follower(feed, "running")
    one._event_at = monotonic() - 60.0
    one.frame()
    assert one.freshness.state is state
    assert ((one.alarms._silent_s or 0.0) >= 59.0) == spoke


@pytest.mark.parametrize(("behind_s", "said"), [(4.9, 0), (40.7, 40)])
def test_what_comes_late_is_said_to_in_whole_seconds(behind_s: float, said: float) -> None:
    one = follower(Heard(0.0, behind_s=behind_s), "running")
    assert one.freshness.behind_s == said


async def test_a_large_tree_is_taken_in_beside_the_keys_and_what_comes_meanwhile_is_kept() -> None:
    nodes = tuple(Checkpoint(id=f"c{n}", prev_model_checkpoint_id=f"c{n - 1}") for n in range(MANY))
    last = Checkpoint(id="last", prev_model_checkpoint_id=nodes[-1].id, is_active=True)
    one = follower(Heard(0.0), "running")
    one._feed = cast(
        Any, Told([TreeRead(checkpoints=(*nodes, last)), CheckpointAdded(checkpoint=last)])
    )
    reading = asyncio.create_task(one.follow(lambda event: None))
    turns = 0
    while not one.run.loaded:
        await asyncio.sleep(0)
        if not turns:
            one.fold(JobChanged(job=runs.job(21, 400)))
        turns += 1
        one.frame()
    await reading
    assert turns > 1
    assert (len(one.run.tree), one.run.series.length) == (MANY + 1, MANY + 1)
    assert one.run.job.step == 21


@dataclass
class Told:
    """A feed of these events."""

    events: Sequence[Event]
    source, trouble, retry_at, heard_at, reading = "stream", "", None, None, None
    behind_s = 0.0

    async def __aiter__(self) -> AsyncIterator[Event]:
        for event in self.events:
            yield event
