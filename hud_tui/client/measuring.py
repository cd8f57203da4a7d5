"""Measuring a taskset's signal: from what is kept, from what is on record, and by sampling."""

from collections import Counter
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import TYPE_CHECKING

from hud_tui.client.outcomes import recorded
from hud_tui.client.signal import sample
from hud_tui.client.signal_cache import SignalCache
from hud_tui.errors import HudUsage
from hud_tui.rl.signal import TaskSignal
from hud_tui.rl.signal_progress import Asked, Progress, choose
from hud_tui.rl.signal_report import Pace, Size
from hud_tui.rl.tasks import Task
from hud_tui.rl.tree import Tree
from hud_tui.wire import JobParameters, Model

if TYPE_CHECKING:
    from hud_tui.client.client import HudClient

GROUP_SIZE = 8
"""Where neither the run nor the model says another."""
MOST = 100_000
"""Rollouts of one measurement."""
NOT_SAMPLED = "rows up to v4 and held-out ones are not sampled"


async def ask_of(
    client: "HudClient", model: Model, parameters: JobParameters, groups: int
) -> Asked:
    """What is to be rolled out: as the run would, with the model's head as it is now.

    Raises:
        HudUsage: Too many rollouts.
    """
    defaults = model.training_defaults
    size = parameters.group_size or (defaults.group_size if defaults else GROUP_SIZE)
    if groups < 1 or groups * size > MOST:
        raise HudUsage(
            f"{groups} groups of {size} rollouts", f"from 1 group to {MOST} rollouts can be sampled"
        )
    head = Tree.of(await client.checkpoints(model.id)).served
    longest = parameters.max_tokens or (defaults.max_tokens if defaults else None)
    sampling = {
        "max_tokens": None if parameters.reasoning_effort else longest,
        "reasoning_effort": parameters.reasoning_effort,
        "temperature": parameters.temperature or 1.0,
    }
    given = {name: value for name, value in sampling.items() if value is not None}
    return Asked(model.id, model.model_name, head.id if head else None, size, groups, given)


def size_of(model: Model, parameters: JobParameters, asked: Asked, tasks: Sequence[Task]) -> Size:
    """The run's size, as the form or the flags have it, else as the model's defaults do."""
    defaults = model.training_defaults
    return Size(
        group_size=asked.group_size,
        tasks_per_step=parameters.tasks_per_step or (defaults.tasks_per_step if defaults else None),
        steps=parameters.steps or (defaults.steps if defaults else None),
        train_tasks=sum(not task.heldout for task in tasks),
    )


async def measure(
    client: "HudClient",
    tasks: Sequence[Task],
    model: Model,
    asked: Asked,
    cache: SignalCache | None = None,
    taskset_id: str | None = None,
) -> AsyncGenerator[Progress, None]:
    """Measure a taskset's signal; the last progress has all of it.

    Args:
        tasks: All of the taskset.
        model: The one that is to be trained.
        asked: What is to be rolled out.
        cache: Outcomes of this head that are kept; what is sampled now is added. None
            samples everything.
        taskset_id: Of a taskset of the platform, whose recorded traces are used.

    Raises:
        HudUsage: There is no task that could be rolled out.
        HudError: The service cannot be asked.
    """
    chosen = choose(tasks, asked.groups)
    if not chosen:
        raise HudUsage("there is no task to roll out", NOT_SAMPLED)
    found = {} if cache is None else cache.read(asked, chosen)
    if taskset_id is not None and not client.settings.local:
        found = await recorded(client, taskset_id, model, chosen) | found
    known = _enough(found, chosen, asked.group_size)
    missing = [task for task in chosen if task.slug not in known]
    before = last = _before(known, len(missing), asked, cache)
    yield last
    if not missing:
        return
    try:
        async with aclosing(sample(client, missing, asked)) as sampled:
            async for now in sampled:
                last = _added(before, now)
                yield last
    finally:
        if cache is not None:
            cache.write(asked, chosen, _whole(last.signals, asked), last.pace)


def _enough(
    found: Mapping[str, TaskSignal], chosen: Sequence[Task], group_size: int
) -> dict[str, TaskSignal]:
    """The signals, by slug, with an outcome for each rollout that was chosen."""
    groups = Counter(task.slug for task in chosen)
    return {
        slug: signal
        for slug, signal in found.items()
        if len(signal.outcomes) >= groups[slug] * group_size
    }


def _whole(signals: Sequence[TaskSignal], asked: Asked) -> list[TaskSignal]:
    return [signal for signal in signals if len(signal.outcomes) >= asked.group_size]


def _before(
    known: Mapping[str, TaskSignal], missing: int, asked: Asked, cache: SignalCache | None
) -> Progress:
    """What there is before anything is sampled; `missing` groups are to be."""
    pace = cache.pace(asked) if cache is not None else None
    total, left = asked.groups * asked.group_size, missing * asked.group_size
    return Progress(total - left, total, tuple(known.values()), pace or Pace(0, 0.0))


def _added(before: Progress, now: Progress) -> Progress:
    """What was known before anything was sampled, and what has been sampled by now."""
    signals = (*before.signals, *now.signals)
    return replace(now, done=before.done + now.done, total=before.total, signals=signals)
