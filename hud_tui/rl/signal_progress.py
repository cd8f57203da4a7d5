"""What is rolled out for the signal of a taskset, and how far that is."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from hud_tui.rl.signal import TaskSignal
from hud_tui.rl.signal_report import Pace
from hud_tui.rl.tasks import Task


@dataclass(frozen=True)
class Asked:
    """What is rolled out."""

    model_id: str
    model: str
    """Its slug."""
    checkpoint: str | None
    """The head; None for the base weights."""
    group_size: int
    groups: int
    """Of different tasks as long as there are any; then again from the first."""
    sampling: dict[str, Any] = field(default_factory=dict)
    """completion_kwargs, e.g. max_tokens and temperature."""


@dataclass(frozen=True)
class Progress:
    """How far it is."""

    done: int
    total: int
    signals: tuple[TaskSignal, ...]
    """Of the tasks that have ended rollouts, so far."""
    pace: Pace
    trouble: str = ""
    """Why the last rollout failed that did."""


def choose(tasks: Sequence[Task], groups: int) -> list[Task]:
    """The tasks that are rolled out, one group each: the same again for the same taskset.

    Args:
        tasks: Those held out and those up to v4 are left out.
        groups: How many; more than there are tasks begin again from the first.
    """
    able = [task for task in tasks if not task.heldout and not task.is_older]
    Random(0).shuffle(able)
    return [able[number % len(able)] for number in range(groups)] if able else []
