"""Rows of tasksets and of their tasks."""

import json
from collections.abc import Iterable, Sequence

from textual.content import Content

from hud_tui.rl.tasks import Task
from hud_tui.rl.text import one_line
from hud_tui.tui.trial import Trial
from hud_tui.tui.trial_rows import COLUMNS, trial_row
from hud_tui.tui.widgets.row_list import Column, Row
from hud_tui.wire import Taskset

MOST = 1000
"""Tasks that are listed; the others are counted."""
TASKSET_COLUMNS = (
    Column("taskset", 14),
    Column("tasks", 6, right=True),
    Column("about", rank=1),
)
TASK_COLUMNS = (
    Column("slug", 24),
    Column("scenario", 18, rank=2),
    Column("split", 7, rank=3),
    Column("args"),
)


def taskset_rows(tasksets: Iterable[Taskset], chosen: str | None) -> list[Row]:
    """A row a taskset; `chosen` is the name of the one that is checked."""
    return [
        Row(
            one.name,
            (
                Content.styled(one_line(one.name, 60), "bold" if one.name == chosen else ""),
                Content("" if one.task_count is None else f"{one.task_count}"),
                Content.styled(one_line(one.description or "", 200), "$text-muted"),
            ),
        )
        for one in tasksets
    ]


def task_rows(tasks: Sequence[Task], trial: Trial) -> list[Row]:
    """The first rows of a taskset as the trial orders them, and how many more there are."""
    make = trial_row if trial.signals or trial.left_out else _task_row
    rows = [make(place, tasks[place], trial) for place in trial.order(tasks)[:MOST]]
    if len(tasks) > MOST:
        more = Content.styled(f"… and {len(tasks) - MOST} more", "$text-muted")
        rows.append(Row("more", (more,), heading=True))
    return rows


def task_columns(trial: Trial) -> Sequence[Column]:
    """The columns of those rows."""
    return COLUMNS if trial.signals or trial.left_out else TASK_COLUMNS


def _task_row(number: int, task: Task, trial: Trial) -> Row:
    args = json.dumps(task.args, ensure_ascii=False) if task.args else task.more.get("prompt", "")
    return Row(
        str(number),
        (
            Content(one_line(task.slug, 120)),
            Content.styled(
                f"{one_line(task.env, 40)}:{one_line(task.scenario, 40)}", "$text-muted"
            ),
            Content.styled(one_line(task.columns.get("split", ""), 20), "$text-muted"),
            Content(one_line(args, 400)),
        ),
    )
