"""AlarmingApp: the followed run is judged, and new alarms are told on any view."""

from __future__ import annotations

from asyncio import sleep
from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING

from textual import work

from hud_tui.keys import keyed
from hud_tui.rl.text import clean, one_line
from hud_tui.tui.following import FollowingApp
from hud_tui.tui.telling import ALARM

if TYPE_CHECKING:
    from hud_tui.rl.alarms.alarm import Alarm
    from hud_tui.tui.alarm_watch import AlarmWatch
    from hud_tui.tui.follow import Follower
    from hud_tui.tui.notifying import Notifier

REST_S = 0.01
"""Between two slices of a long run, for keys and repaints."""


class AlarmingApp(FollowingApp):
    def __init__(self) -> None:
        super().__init__()
        self._judging: Follower | None = None
        """Whose long run is being judged."""
        self.make_notifier: Callable[[], Notifier] | None = None
        """Makes `notifier` when there is something to tell; None tells nobody."""
        self._trained: str | None = None
        """Id of the job that was training in the last frame."""
        self._unshown: list[tuple[Follower, Alarm]] = []
        """Raised while a dialog is open: a toast would lie over its buttons."""

    @cached_property
    def notifier(self) -> Notifier | None:
        """Tells somebody who does not look."""
        return None if self.make_notifier is None else self.make_notifier()

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
            self._unshown.append((follower, alarm))
            if self.notifier is not None:
                self.send(self.notifier.alarm(alarm, _name(follower)))
        if self.shown_view is not None and not self.screen.is_modal:  # the app may be ending
            shown, self._unshown = self._unshown, []
            for source, alarm in shown:
                if source is follower:
                    self.show_alarm(alarm)
        self._tell_end(follower)

    def _tell_end(self, follower: Follower) -> None:
        """Tell once that the run that was training has ended."""
        run, before = follower.run, self._trained
        job = run.job
        self._trained = job.id if job is not None and run.training else None
        if job is None or before is None or job.id != before or run.training:
            return
        if self.notifier is not None:
            self.send(self.notifier.ended(job, _name(follower)))

    @work(exclusive=True, group="judge")
    async def judge(self, follower: Follower) -> None:
        """Judge a long run slice by slice, until its newest step is judged."""
        while follower.alarms.behind:
            follower.judge()
            await sleep(REST_S)
        self._judging = None

    def show_alarm(self, alarm: Alarm) -> None:
        """Show an alarm on whatever view there is."""
        from hud_tui.rl.alarms.alarm import Level

        what = keyed("{app.alarms} shows what to do")
        text = f"{ALARM} {alarm.title} since step {alarm.onset}\n{alarm.said}\n{what}"
        self.notify(
            clean(text, 400),
            severity="error" if alarm.level is Level.CRITICAL else "warning",
            markup=False,
            timeout=10,
        )

    @work(group="webhook")
    async def send(self, document: dict[str, object] | None) -> None:
        """POST a document to the webhook; a failure is said once."""
        if document is None or self.notifier is None:
            return
        from hud_tui.client.webhook import post

        why = await post(self.notifier.notify.webhook, document)
        if why and (said := self.notifier.failed(why)):
            self.say(said)

    def write_terminal(self, text: str) -> None:
        """Write to the terminal itself, past the screen."""
        if self._driver is not None:
            self._driver.write(text)

    async def action_alarms(self) -> None:
        """Show what the detectors say of the run."""
        await self.switch_mode("alarms")


def _name(follower: Follower) -> str:
    """What the followed model is called."""
    model = follower.run.model
    return "" if model is None else one_line(model.model_name, 80)
