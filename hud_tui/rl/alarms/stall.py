"""Stall: a run that has gone silent. It is judged by the clock, not by the rows."""

from hud_tui.rl.alarms.alarm import Alarm, Evidence, Level
from hud_tui.rl.alarms.rows import Row
from hud_tui.rl.alarms.statistics import grade
from hud_tui.rl.alarms.thresholds import Stall

MEANING = "The run is said to be running, and nothing has come from it for far longer than usual."
ADVICE = (
    "Look at the job's state and its newest rollouts; if they hang, cancel the run and resume it."
)


def stall(last: Row | None, silent_s: float, step_s: float | None, tuning: Stall) -> Alarm | None:
    """The alarm of a run without news; None while all is well.

    Args:
        last: The newest step; None before the first.
        silent_s: Seconds since the run's last event.
        step_s: Its usual step; None before two steps.
        tuning: From when on it is said.
    """
    if not tuning.enabled or silent_s < tuning.floor_s:
        return None
    severity = grade(silent_s / step_s, tuning) if step_s else 0.0
    if silent_s >= tuning.critical_s:
        severity = 3.0
    if severity < 2:
        return None
    place, step = (0, 0) if last is None else (last.place, last.step)
    known = None if last is None else last.checkpoint_id
    evidence = [Evidence("seconds without an event", silent_s)]
    if step_s:
        evidence.append(Evidence("usual step, seconds", step_s))
        evidence.append(Evidence("ratio", silent_s / step_s, tuning.warn))
    return Alarm(
        name="stall",
        title="stalled",
        level=Level.CRITICAL if severity >= 3 else Level.WARN,
        active=True,
        row=place,
        onset=step,
        checkpoint_id=known,
        before_id=known,
        shown=step,
        shown_id=known,
        raised=step,
        ended=None,
        evidence=tuple(evidence),
        meaning=MEANING,
        advice=ADVICE,
    )
