"""Follower: one model's events, folded into one snapshot and shown once a frame."""

from __future__ import annotations

from asyncio import sleep, to_thread
from collections.abc import Callable
from dataclasses import replace
from math import floor
from time import monotonic, time
from typing import TYPE_CHECKING

from hud_tui.events import TreeRead
from hud_tui.keys import keyed
from hud_tui.rl.progress import Liveness, State, liveness, reading_said, step_seconds
from hud_tui.rl.run import Run

if TYPE_CHECKING:
    from hud_tui.client.client import HudClient
    from hud_tui.events import Event
    from hud_tui.rl.head import Journal
    from hud_tui.tui.alarms import AlarmWatch
    from hud_tui.wire import Model


FRAME_S = 0.1
"""Events are shown together, at most this often."""
IDLE_S = 10
"""While nothing trains, the age of the service's last word is told in steps of so many seconds:
a keep-alive comes sooner, so a terminal is sent nothing while nothing happens."""
TURN_S = 0.002
"""Longest work on events between two looks for keys; a key takes several turns to its answer."""
MANY = 1000
"""Checkpoints of a tree that takes longer to take in than a key may wait."""
BEHIND_S = 5.0
"""What comes later than that is said to: the line carries less than the run says."""
LOST_S = 2.0
"""A line that breaks and comes back sooner needs no key."""
GONE = "service gone · {app.reconnect} starts it"
UNREACHABLE = "unreachable · retrying · {app.reconnect} tries now"
CONNECTING = Liveness(State.CONNECTING, "connecting", None)


class Follower:
    """What is known of the model that is followed, and how fresh that is."""

    def __init__(
        self,
        client: HudClient,
        run: Run,
        model: Model,
        journal: Journal,
        alarms: AlarmWatch,
        known_at: float | None = None,
        clock: Callable[[], float] = time,
    ) -> None:
        """
        Args:
            client: The service.
            run: What is known already; of the same model it stays on the screen meanwhile.
            model: The model to follow.
            journal: Where its head was set so far.
            alarms: The detectors that judge its run.
            known_at: Unix seconds that `run` is as of, where it was kept from another session
                because the service does not answer; else None.
            clock: Unix seconds.
        """
        known = run.model is not None and run.model.id == model.id
        self.run = replace(run, model=model) if known else Run(model=model)
        self.freshness = CONNECTING
        self.journal, self.alarms = journal, alarms
        self._known_at, self._clock = known_at, clock
        self._lost_at: float | None = None
        """`time.monotonic()` since when the service does not answer; None while it does."""
        self._gone = keyed(GONE if client.settings.local else UNREACHABLE)
        self._feed = client.feed(model.id)
        self._latest = self.run
        self._event_at: float | None = None
        self._aside = False
        """Whether a large tree is being taken in, which what was known is no part of yet."""

    async def follow(self, hear: Callable[[Event], None]) -> None:
        """Fold events for ever; tell of each.

        Raises:
            HudUnauthorized: The key is not accepted any more.
            HudNotFound: The model is gone.
        """
        turn = monotonic()
        async for event in self._feed:
            if isinstance(event, TreeRead) and len(event.checkpoints) > MANY:
                await self._fold_aside(event)
            else:
                self.fold(event)
            self._event_at = monotonic()
            hear(event)
            if self._event_at - turn > TURN_S:  # many came at once: a key goes before the next
                await sleep(0)
                turn = monotonic()

    def fold(self, event: Event) -> Run:
        """Take in an event; the next frame shows it."""
        self._latest = self._latest.fold(event)
        return self._latest

    async def _fold_aside(self, event: TreeRead) -> None:
        """Take in a large tree while keys are answered."""
        self._aside, before = True, self._latest
        try:
            run = await to_thread(before.fold, event)
        finally:
            self._aside = False
        self._latest = run if self._latest is before else self._latest.fold(event)

    def frame(self) -> bool:
        """Take what has come since the last frame; whether there is anything to repaint."""
        self.judge()
        run, freshness = self._latest, self._judge(monotonic())
        news = run is not self.run or freshness != self.freshness
        self.run, self.freshness = run, freshness
        return news

    def judge(self) -> None:
        """Let the detectors read on; the next frame shows what they say."""
        if self._aside:
            return
        report = self.alarms.look(self._latest, _whole(self._silent_s))
        if report is not self._latest.alarms:
            self._latest = replace(self._latest, alarms=report)

    @property
    def _silent_s(self) -> float | None:
        """Seconds of training in which the service spoke, but of no event. A line on which
        nothing comes at all says nothing of the run."""
        if self._event_at is None or not self._latest.training:
            return None
        return max(0.0, (self._feed.heard_at or self._event_at) - self._event_at)

    def _judge(self, now: float) -> Liveness:
        """Ages in whole seconds: a screen that shows them repaints once a second at most."""
        feed, run, silent = self._feed, self._latest, self._silent_s
        judged = liveness(
            feed.source,
            _whole(
                None if feed.heard_at is None else now - feed.heard_at,
                1 if run.training or feed.trouble or feed.reading else IDLE_S,
            ),
            feed.trouble,
            _whole(None if feed.retry_at is None else feed.retry_at - now),
            silent,
            step_seconds(run) if silent else None,
        )
        self._lost_at = (self._lost_at or now) if judged.state is State.RECONNECTING else None
        if feed.reading is not None:
            judged = replace(judged, reading=reading_said(*feed.reading))
        if feed.behind_s >= BEHIND_S:
            judged = replace(judged, behind_s=_whole(feed.behind_s) or 0)
        kept = self._known_at is not None and feed.heard_at is None
        if kept or (self._lost_at is not None and now - self._lost_at > LOST_S):
            return self._offline(judged.source, now)
        return replace(judged, age_s=_whole(silent)) if judged.state is State.STALLED else judged

    def _offline(self, source: str, now: float) -> Liveness:
        heard = self._feed.heard_at
        at = self._known_at if heard is None else floor(self._clock() - (now - heard))
        at = self.freshness.as_of if self.freshness.as_of and self.freshness.offline else at
        trouble = self._feed.trouble
        return Liveness(State.RECONNECTING, source, None, trouble, advice=self._gone, as_of=at)


def _whole(seconds: float | None, step: int = 1) -> float | None:
    return None if seconds is None else max(0, floor(seconds) // step * step)
