"""Sentry: hears a run's events, says its alarms as they come, and may fail on them."""

from time import monotonic

from hud_tui.errors import HudAlarm
from hud_tui.events import CheckpointAdded, Event, HeadMoved, JobChanged, TreeRead
from hud_tui.headless.alarms import alarm_document
from hud_tui.headless.output import emit
from hud_tui.rl.alarms.alarm import Alarm, Level, Report
from hud_tui.rl.alarms.lookout import Lookout
from hud_tui.rl.alarms.thresholds import Thresholds
from hud_tui.rl.job_words import is_active
from hud_tui.rl.tree import Tree
from hud_tui.wire import JobStatus


class Sentry:
    """Hears a run's events, prints an ``alarm`` document for each new alarm, and may fail."""

    def __init__(self, limits: Thresholds, fail_on: str | None) -> None:
        """`fail_on` is the level from which on an alarm is a failure; None for no level."""
        self.report = Report()
        self.tree = Tree()
        self.job: JobStatus | None = None
        self._fail_on = None if fail_on is None else Level(fail_on)
        self._lookout = Lookout(limits)
        self._told: dict[str, Level] = {}
        self._heard_at = monotonic()

    def begin(self, event: Event, news: bool) -> None:
        """Take in the first event, the tree as it is.

        Args:
            event: A feed's first.
            news: Whether what is wrong already is to be printed, and failed on.
        """
        self._take(event)
        if not news:
            self._told = {alarm.id: alarm.level for alarm in self.report.alarms}
        self._tell()

    def hear(self, event: Event) -> None:
        """Take in an event, and print what alarms it raised or made worse.

        Raises:
            HudAlarm: One of them is as bad as the command is to fail on.
        """
        self._heard_at = monotonic()
        self._take(event)
        self._tell()

    def wait(self) -> None:
        """Nothing came for a while: the run may be stalled. Raises as `hear` does."""
        self._judge()
        self._tell()

    @property
    def silent_s(self) -> float | None:
        """Seconds since the last event of a run under way; None where none is."""
        running = self.job is not None and is_active(self.job.status)
        return monotonic() - self._heard_at if running else None

    def _take(self, event: Event) -> None:
        match event:
            case TreeRead():
                self.tree = Tree.of(event.checkpoints)
            case CheckpointAdded():
                self.tree = self.tree.add(event.checkpoint)
            case HeadMoved():
                self.tree = self.tree.with_head(event.checkpoint_id)
            case JobChanged():
                self.job = event.job
            case _:
                return
        self._judge()

    def _judge(self) -> None:
        self._lookout.follow(self.tree, self.job)
        self.report = self._lookout.report(self.silent_s)

    def _tell(self) -> None:
        """Print what is new or worse, then fail if it must."""
        news = [alarm for alarm in self.report.alarms if self._is_news(alarm)]
        for alarm in news:
            self._told[alarm.id] = alarm.level
            emit("alarm", alarm_document(alarm))
        for alarm in news:
            if self._fail_on is not None and alarm.level.rank >= self._fail_on.rank:
                what = f"{alarm.level}: {alarm.title} since step {alarm.onset}: {alarm.said}"
                raise HudAlarm(what, f"{alarm.advice} A run goes on until it is cancelled.")

    def _is_news(self, alarm: Alarm) -> bool:
        told = self._told.get(alarm.id)
        return told is None or alarm.level.rank > told.rank
