"""Alarms in documents, judged by the limits of the config file."""

import os
from typing import Any

from hud_tui.config import config_dir, read_config
from hud_tui.headless.output import plain
from hud_tui.rl.alarms.alarm import Alarm, Report
from hud_tui.rl.alarms.lookout import Lookout
from hud_tui.rl.alarms.thresholds import Thresholds
from hud_tui.rl.job_words import is_active
from hud_tui.rl.tree import Tree
from hud_tui.wire import JobStatus


def thresholds() -> Thresholds:
    """Those of the config file.

    Raises:
        HudUsage: The file cannot be used.
    """
    return read_config(config_dir(os.environ)).alarms or Thresholds()


def alarm_document(alarm: Alarm) -> dict[str, Any]:
    """One alarm as documents have it."""
    document: dict[str, Any] = plain(alarm)
    return {"id": alarm.id, **document}


def report_documents(report: Report) -> dict[str, Any]:
    """All alarms, and the detectors that were skipped with what they need."""
    skipped = [{"name": one.name, "needs": one.needs} for one in report.skipped]
    return {"alarms": [alarm_document(alarm) for alarm in report.alarms], "skipped": skipped}


def judge(tree: Tree, job: JobStatus | None, silent_s: float | None, limits: Thresholds) -> Report:
    """What the detectors say of a tree's head.

    Args:
        silent_s: Seconds since anything came of the run.
        limits: What they go by.
    """
    lookout = Lookout(limits)
    lookout.follow(tree, job)
    running = job is not None and is_active(job.status)
    return lookout.report(silent_s if running else None)
