"""Alarms in documents, with the thresholds of the config file."""

import os
from time import time
from typing import Any

from hud_tui.cli.output import plain
from hud_tui.config import config_dir, read_config
from hud_tui.rl.alarms.alarm import Alarm, Report
from hud_tui.rl.alarms.monitor import AlarmMonitor, usual_thresholds
from hud_tui.rl.alarms.thresholds import Thresholds
from hud_tui.rl.checkpoint_tree import Tree
from hud_tui.rl.text import seconds
from hud_tui.rl.work import is_active
from hud_tui.wire import Checkpoint, WorkState


def thresholds() -> Thresholds:
    """Thresholds of the config file. Raises HudUsage: the file is invalid."""
    return read_config(config_dir(os.environ)).alarms or usual_thresholds()


def alarm_document(alarm: Alarm) -> dict[str, Any]:
    document: dict[str, Any] = plain(alarm)
    return {"id": alarm.id, **document}


def report_documents(report: Report) -> dict[str, Any]:
    """All alarms, and the detectors without their metric."""
    missing = [{"name": detector.name, "needs": detector.needs} for detector in report.skipped]
    return {"alarms": [alarm_document(alarm) for alarm in report.alarms], "not_evaluated": missing}


def alarm_report(
    tree: Tree, job: WorkState | None, silent_s: float | None, limits: Thresholds
) -> Report:
    """Evaluate the detectors on the lineage of a tree's head. `silent_s`: seconds since the run's
    last event."""
    monitor = AlarmMonitor(limits)
    monitor.follow(tree, job)
    running = job is not None and is_active(job.status)
    return monitor.report(silent_s if running else None)


def silent_s(tree: list[Checkpoint], job: WorkState | None) -> float | None:
    """Seconds since the newest step, or since the job began; None if neither is known."""
    stamps = [seconds(tree[-1].created_at) if tree else None, job and job.created_at]
    times = [stamp for stamp in stamps if stamp]
    return time() - max(times) if times else None
