"""How fresh the screen is said to be."""

from dataclasses import dataclass
from time import monotonic
from types import SimpleNamespace
from typing import Any, cast

import pytest

from hud_tui.client.client import HudClient
from hud_tui.events import JobChanged
from hud_tui.rl.run import Run
from hud_tui.tui.alarm_book import AlarmBook
from hud_tui.tui.alarm_watch import AlarmWatch
from hud_tui.tui.follow import Follower
from hud_tui.tui.journal import Journal
from hud_tui.tui.shelf import Shelf
from tests.tui import runs


@dataclass
class Heard:
    """A feed that was heard of so many seconds ago."""

    ago_s: float
    trouble: str = ""
    source = "stream"
    retry_at: Any = None

    @property
    def heard_at(self) -> float:
        return monotonic() - self.ago_s


def follower(feed: Heard, status: str) -> Follower:
    client = SimpleNamespace(settings=SimpleNamespace(local=True), feed=lambda model_id: feed)
    watch = AlarmWatch(None, AlarmBook(Shelf(), "m1"))
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
