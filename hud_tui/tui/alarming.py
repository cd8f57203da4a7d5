"""AlarmingApp: the followed run is judged, and new alarms are told on any view."""

from __future__ import annotations

from asyncio import sleep
from typing import TYPE_CHECKING

from textual import work

from hud_tui.rl.text import clean
from hud_tui.tui.following import FollowingApp

if TYPE_CHECKING:
    from hud_tui.rl.alarms.alarm import Alarm
    from hud_tui.tui.alarm_watch import AlarmWatch
    from hud_tui.tui.follow import Follower

REST_S = 0.01
"""Between two slices of a long run, for keys and repaints."""


class AlarmingApp(FollowingApp):
    def __init__(self) -> None:
        super().__init__()
        self._judging: Follower | None = None
        """Whose long run is being judged."""

    @property
    def alarms(self) -> AlarmWatch:
        """The detectors of the followed model, and what was said to them."""
        assert self._follower is not None
        return self._follower.alarms

    def renew_alarms(self) -> None:
        """Show at once what the user said to an alarm."""
        self.alarms.renew()
        self.catch_up()

    def framed(self, follower: Follower) -> None:
        """Judge what a long run has left to be judged, and tell of new alarms."""
        if follower.alarms.behind and self._judging is not follower:
            self._judging = follower
            self.judge(follower)
        for alarm in follower.alarms.news():
            self.raise_alarm(alarm)

    @work(exclusive=True, group="judge")
    async def judge(self, follower: Follower) -> None:
        """Judge a long run slice by slice, until its newest step is judged."""
        while follower.alarms.behind:
            follower.judge()
            await sleep(REST_S)
        self._judging = None

    def raise_alarm(self, alarm: Alarm) -> None:
        """Show an alarm that has just been raised."""
        from hud_tui.rl.alarms.alarm import Level

        text = f"⚑ {alarm.title} since step {alarm.onset}\n{alarm.said}\n6 shows what to do"
        self.notify(
            clean(text, 400),
            severity="error" if alarm.level is Level.CRITICAL else "warning",
            markup=False,
            timeout=10,
        )

    async def action_alarms(self) -> None:
        """Show what the detectors say of the run."""
        await self.switch_mode("alarms")
