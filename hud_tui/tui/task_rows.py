"""Rows of tasksets and of tasks, tried or not, as Launch lists them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from textual.content import Content

from hud_tui.rl.tasks.signal import TaskSignal, histogram
from hud_tui.rl.tasks.task import Task
from hud_tui.rl.text import one_line
from hud_tui.tui.run_draft import Trial
from hud_tui.tui.theme import eighth
from hud_tui.tui.widgets.row_list import Column, Row
from hud_tui.wire import Taskset

if TYPE_CHECKING:
    pass


# Rows of tasks that were tried: their rewards, how far they spread, and what that means.


BINS = 8
COLUMNS = (
    Column("task", 22),
    Column("rewards", BINS),
    Column("mean", 5, right=True, rank=1),
    Column("spread", 6, right=True),
    Column("flat", 5, right=True, rank=2),
    Column("cut", 5, right=True, rank=4),
    Column("tokens", 6, right=True, rank=5),
    Column("verdict", 9),
    Column("args", rank=3),
)
"""``flat`` is the expected share of groups without gradient, ``cut`` of truncated rollouts."""
STYLES = {"teaches": "$success", "failed": "$error", "": "$text-disabled"}


def trial_row(number: int, task: Task, trial: Trial) -> Row:
    """A task's row; `number` is its place in the taskset."""
    signal, label = trial.signals.get(task.slug), trial.label(task.slug)
    out = task.slug in trial.left_out
    name = Content.styled(
        f"{'✘ ' if out else ''}{one_line(task.slug, 120)}", "$text-disabled" if out else ""
    )
    word = "left out" if out else "held out" if task.heldout and not label else label
    args = json.dumps(task.args, ensure_ascii=False) if task.args else ""
    figures = [Content("")] * 6 if signal is None else _figures(signal, trial.group_size)
    said = Content.styled(word, "$text-disabled" if out else STYLES.get(label, "$warning"))
    return Row(str(number), (name, *figures, said, Content(one_line(args, 400))))


def _figures(signal: TaskSignal, group_size: int) -> list[Content]:
    flat = signal.zero_gradient(group_size)
    return [
        bars(signal.rewards),
        Content(_decimal(signal.mean)),
        Content(_decimal(signal.spread)),
        Content("" if flat is None else f"{flat:.0%}"),
        Content("" if signal.truncated is None else f"{signal.truncated:.0%}"),
        Content("" if signal.tokens is None else f"{signal.tokens:.0f}"),
    ]


def bars(rewards: list[float]) -> Content:
    """Rewards from 0, or the least, to 1, or the largest, as BINS bars."""
    if not rewards:
        return Content("")
    counts = histogram(rewards, BINS, min(0.0, *rewards), max(1.0, *rewards))
    return Content("".join(eighth(count / max(counts)) for count in counts))


def _decimal(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}".replace("0.", ".", 1)


# Rows of tasksets and of their tasks.


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
