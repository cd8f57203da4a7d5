"""OfflineLine: how old everything is, while the service does not answer."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from textual.content import Content
from textual.reactive import reactive
from textual.widgets import Static

from hud_tui.rl.progress import Liveness, State

OLDER_S = 10.0
"""Seconds between two looks at the clock."""


class OfflineLine(Static):
    """Not there while all is well."""

    freshness: reactive[Liveness] = reactive(
        Liveness(State.CONNECTING, "connecting", None), repaint=False
    )

    def __init__(self, clock: Callable[[], float]) -> None:
        """`clock` gives Unix seconds."""
        super().__init__("", markup=False)
        self._clock = clock

    def on_mount(self) -> None:
        self.set_interval(OLDER_S, self._say)

    def watch_freshness(self, before: Liveness, now: Liveness) -> None:
        if before.offline != now.offline or before.as_of != now.as_of:
            self._say()
            self.screen.set_class(now.offline, "-offline")

    def _say(self) -> None:
        if self.freshness.offline:
            text = offline_said(self.freshness.as_of, self._clock())
            self.update(Content.styled(text, "bold"))


def offline_said(at: float | None, now: float) -> str:
    """E.g. ``offline, as of 14:02, 12 min ago · nothing can be changed``, in local time."""
    if at is None:
        return "offline: nothing is known yet"
    then, today = datetime.fromtimestamp(at), datetime.fromtimestamp(now)
    moment = then.strftime("%H:%M" if then.date() == today.date() else "%Y-%m-%d %H:%M")
    return f"offline, as of {moment}, {_ago(now - at)} ago · nothing can be changed"


def _ago(seconds: float) -> str:
    whole = max(0, int(seconds))
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "min")):
        if whole >= size:
            return f"{whole // size} {unit}"
    return f"{whole} s"
