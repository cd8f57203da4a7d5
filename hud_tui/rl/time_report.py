"""Where the time of a run went, as a document, as tables, and as a section of a report."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from hud_tui.rl.export import Cell, Sheet
from hud_tui.rl.plot import svg
from hud_tui.rl.text import percent, spaced
from hud_tui.rl.time_plot import (
    DISCARDED,
    DONE,
    EVALUATED,
    TRAINED_ON,
    WAITING,
    Timeline,
    lasts_text,
)
from hud_tui.rl.timeline import (
    LOOP_PARTS,
    REASONS,
    WAITS,
    Account,
    account_all,
    account_of,
    time_sentence,
)
from hud_tui.wire_time import Discarded, RunTime, StepTime

DRAWN = 6
"""Steps of the report's picture."""
PICTURE = (330, 22)
"""Half cells, and rows, of it."""
FILE = "timeline.svg"
MARGIN = 110
"""Room at its left for the names of the lanes, pixels."""
TIME = (
    *("step", "checkpoint_id", "run_id", "started_at", "ended_at", "seconds", "accounted"),
    *("waiting", "at_once", "slowest_tenth", "rollouts", "discarded"),
    *(f"{kind}_s" for kind in LOOP_PARTS),
)
DISCARDS = (
    *("trace_id", "reason", "step", "attempt", "task_slug", "rollout", "reward", "tokens"),
    *("seconds", "ended_at", "error"),
)


def account_document(spent: Account) -> dict[str, Any]:
    """How the time was spent: shares add up to 1 with `idle`; `busy` counts what was done at once
    for each of it."""
    return {
        "seconds": spent.seconds,
        "sentence": time_sentence(spent),
        "shares": {kind: spent.share(kind) for kind in spent.parts},
        "busy": {kind: spent.of_time(seconds) for kind, seconds in spent.busy.items()},
        "waiting": spent.waiting,
        "waits": spent.waits,
        "idle": spent.of_time(spent.idle),
        "accounted": spent.accounted,
        "at_once": spent.of_time(spent.at_once),
        "slowest_tenth": spent.of_time(spent.tail),
        "rollouts": spent.rollouts,
        "discarded": dict(spent.discarded),
        "no_gradient": spent.no_gradient,
        "outside": spent.is_outside,
    }


def time_document(told: RunTime) -> dict[str, Any]:
    """The time of some steps of a run: of all together, and of each."""
    return {
        "run": told.run_id,
        "total": told.total,
        "discarded": told.discarded,
        "all": account_document(account_all(told.steps)),
        "steps": [
            {
                "step": step.step,
                "checkpoint_id": step.checkpoint_id,
                "started_at": step.start,
                "ended_at": step.end,
                **account_document(account_of(step)),
            }
            for step in told.steps
        ],
    }


def time_sheet(told: RunTime) -> Sheet:
    """One row per step, oldest first."""
    return Sheet("time", TIME, map(_row, told.steps), {"run_id": told.run_id})


def _row(step: StepTime) -> Sequence[Cell]:
    spent = account_of(step)
    return (
        *(step.step, step.checkpoint_id, step.run_id, step.start, step.end, spent.seconds),
        *(spent.accounted, spent.waiting, spent.of_time(spent.at_once)),
        *(spent.of_time(spent.tail), spent.rollouts, sum(spent.discarded.values())),
        *(spent.parts.get(kind, 0.0) for kind in LOOP_PARTS),
    )


def discarded_sheet(run_id: str, discarded: Iterable[Discarded]) -> Sheet:
    """One row per rollout that no step was trained on, newest first."""
    rows = (
        (
            *(item.trace_id, item.reason, item.step, item.attempt, item.task_slug, item.rollout),
            *(item.reward, item.num_tokens, item.seconds, item.ended_at, item.error),
        )
        for item in discarded
    )
    return Sheet("discarded", DISCARDS, rows, {"run_id": run_id})


# The section of a report.


def report_rows(told: RunTime) -> list[tuple[str, str, str, str]]:
    """The parts of the loop: title, share, seconds per step, and share in which it was
    under way, alone or beside others."""
    spent = account_all(told.steps)
    kinds = sorted(spent.parts, key=lambda kind: (kind in WAITS, -spent.parts[kind]))
    rows = [
        (
            f"waits for {LOOP_PARTS[kind].title}" if kind in WAITS else LOOP_PARTS[kind].title,
            percent(spent.share(kind)),
            lasts_text(spent.parts[kind] / told.taken),
            percent(spent.of_time(spent.busy[kind])),
        )
        for kind in kinds
    ]
    if spent.idle:
        name = "outside the service" if spent.is_outside else "unknown"
        idle = spent.idle / told.taken
        rows.append((name, percent(spent.of_time(spent.idle)), lasts_text(idle), ""))
    return rows


def reason_rows(told: RunTime) -> list[tuple[str, str, str]]:
    """Discarded rollouts of the run: reason, number and meaning, most first."""
    counts = sorted(told.discarded.items(), key=lambda pair: -pair[1])
    return [(reason, spaced(number), REASONS.get(reason, "")) for reason, number in counts]


LAYERS = {DISCARDED: "b", TRAINED_ON: "a", WAITING: "b", EVALUATED: "a", DONE: "a"}
"""The colour of each layer in a picture."""


def time_picture(told: RunTime) -> str:
    """The timeline of the newest steps as SVG."""
    columns, rows = PICTURE
    plot = Timeline(tuple(told.steps[-DRAWN:])).plot(columns // 2, rows)
    layers = [
        replace(layer, name=LAYERS[layer.name]) for layer in plot.layers if layer.name in LAYERS
    ]
    names = [("a", "done, trained on"), ("b", "waiting, discarded")]
    about = "The parts of the loop over the time of the newest steps, and the rollouts below."
    return svg(replace(plot, layers=layers), "time", about, names, MARGIN)
