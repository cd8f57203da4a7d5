"""What a submission sends, and all of it in words, to be agreed to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.text import Text

from hud_tui.rl.counts import spaced
from hud_tui.rl.disk import check_room, where_stored
from hud_tui.rl.preflight import Finding
from hud_tui.rl.run_form import Cost, Value, max_tokens, parameters, write
from hud_tui.rl.tasks import Task
from hud_tui.rl.text import one_line
from hud_tui.tui.widgets.top_line import duration
from hud_tui.wire import JobConfig, JobDataset, Model, SubmitJob

LABEL = 18


def job_of(model: Model, tasks: Sequence[Task], values: Mapping[str, Value]) -> SubmitJob:
    """The request, as it is sent."""
    return SubmitJob(
        model_id=model.id,
        dataset=JobDataset(tasks=[task.row() for task in tasks]),
        config=JobConfig(parameters=parameters(values)),
    )


def what_is_sent(
    model: Model,
    source: str,
    tasks: Sequence[Task],
    values: Mapping[str, Value],
    size: Cost | None,
    warnings: Sequence[Finding],
) -> list[Text]:
    """Everything that a submission sends and starts, for the dialog."""
    train = sum(not task.heldout for task in tasks)
    held = f", {len(tasks) - train} held out to measure" if train < len(tasks) else ""
    lines = [
        _line("model", one_line(model.model_name, 60)),
        _line("taskset", f"{one_line(source, 60)}: {train} tasks to train on{held}"),
        *(_line(key.replace("_", " "), write(value)) for key, value in values.items()),
    ]
    if size is not None:
        lines.append(_line("rollouts", spaced(size.rollouts) + about(size)))
    steps = values.get("steps")
    count = steps if isinstance(steps, int) else None
    most = None if size is None else size.rollouts
    lines += [_line(*one) for one in where_stored(model, count, most, max_tokens(model, values))]
    room = check_room(model, count)  # for the steps of the form, which preflight does not know
    told = [one for one in warnings if not room or one.check != "disk"]
    told += [one for one in room if one.level != "ok"]
    return lines + [Text(f"⚠ {one.message}", style="bold") for one in told]


def about(size: Cost) -> str:
    """How long it takes, as far as that is known; begins with a separator."""
    if size.seconds is None:
        return " · time unknown"
    return f" · about {duration(size.seconds)}" + (" to sample alone" if size.sampling else "")


def _line(label: str, value: str) -> Text:
    return Text.assemble((f"{label:<{LABEL}}", "dim"), value)
