"""A run as a page of Markdown with its charts beside it, for people who were not there.

Every text of the service's stands in a code span or is escaped, so that a name can be
neither a link nor a heading nor a cell.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite

from hud_tui.rl.ages import seconds
from hud_tui.rl.counts import spaced
from hud_tui.rl.export.charts import charts
from hud_tui.rl.export.lineage import lineage_lines
from hud_tui.rl.export.names import code, escaped
from hud_tui.rl.export.pages import duration, moment, number, scored, section, table
from hud_tui.rl.export.report_parts import alarms_part, kept_part, moves_part, waste_part
from hud_tui.rl.job_words import is_active
from hud_tui.rl.metrics import healthy, metric, ranked, title
from hud_tui.rl.moves import Move
from hud_tui.rl.run import Run, reason
from hud_tui.rl.vocabulary import METRICS

FILE = "report.md"
BY_STEP = (
    "By step. What a step reports of its rollouts (rewards, entropy, KL, lengths) was sampled "
    "before its update, so it tells of the checkpoint before."
)


@dataclass(frozen=True)
class Kept:
    """What the service does not know."""

    service: str = ""
    """What it is called, e.g. ``HUD local``."""
    notes: Mapping[str, str] = field(default_factory=dict)
    """The user's, by the checkpoint's id."""
    moves: Sequence[Move] = ()
    """Where the head was set, oldest first, as far as this machine knows."""


def report_files(run: Run, kept: Kept, now: float) -> dict[str, str]:
    """The files of a report, by name: `FILE`, and its charts.

    Args:
        run: The run, judged by the detectors.
        kept: What this machine knows beside it.
        now: Unix seconds.
    """
    pictures = charts(run)
    parts = [
        _head(run, kept, now),
        _configuration(run),
        _summary(run),
        section("Charts", (f"![{chart.alt}]({chart.file})" for chart in pictures)),
        waste_part(run),
        alarms_part(run),
        moves_part(run, kept.moves),
        kept_part(run, kept.notes),
        section("Lineage", ["\n".join(lineage_lines(run.tree))] if len(run.tree) else []),
    ]
    files = {FILE: "\n\n".join(part for part in parts if part) + "\n"}
    return files | {chart.file: chart.svg for chart in pictures}


def _head(run: Run, kept: Kept, now: float) -> str:
    model, tree = run.model, run.tree
    name = "base" if model is None else model.model_name
    rows = [
        ("model", code(name)),
        ("id", code(None if model is None else model.id)),
        ("base", code(None if model is None else model.base_model)),
        ("forked from", code(None if model is None else model.forked_from)),
        ("head", scored(tree, tree.head)),
        (f"best by {title(tree.best_by)}", "–" if tree.best is None else scored(tree, tree.best)),
        ("checkpoints", str(len(tree))),
        ("steps of the head's lineage", str(run.series.length)),
        *_job(run),
        ("from the lineage's first step to its last", _span(run)),
    ]
    said = f"As of {moment(now)}" + (
        f", from {escaped(kept.service, 60)}." if kept.service else "."
    )
    return f"# Run of {code(name, 80)}\n\n{said}\n\n" + table(("", ""), rows)


def _job(run: Run) -> Iterator[tuple[str, str]]:
    job = run.job
    if job is None:
        return
    yield "job", f"{code(job.name or job.id)} {escaped(job.status, 40)}"
    if why := reason(job):
        yield "why", escaped(why)
    yield "steps", f"{job.step if job.step is not None else '–'} of {job.steps or '–'}"
    if job.created_at is not None:
        end = job.finished_at
        took = f", took {duration(end - job.created_at)}" if end is not None else ""
        yield "submitted", moment(job.created_at) + took
    if job.trained_tokens is not None:
        yield "trained tokens", spaced(job.trained_tokens)
    if is_active(job.status):
        yield "note", "The run was going on when this was written."


def _configuration(run: Run) -> str:
    given = (run.job.parameters if run.job is not None else None) or {}
    rows = [(code(name, 60), code(value)) for name, value in given.items()]
    return section("Configuration", [table(("parameter", "value"), rows)] if rows else [])


def _summary(run: Run) -> str:
    rows = [_metric(run, key) for key in ranked(run.series.keys)]
    rows_table = table(("metric", "first", "last", "best", "at step", "healthy"), rows)
    return section("Metrics", [BY_STEP, rows_table] if rows else ["No step has been taken."])


def _metric(run: Run, key: str) -> tuple[str, ...]:
    known, values = metric(key), run.series.values(key)
    finite = [(value, row) for row, value in enumerate(values) if isfinite(value)]
    name = escaped(title(key)) if key in METRICS else code(key, 80)
    if not finite:
        return name, "–", "–", "–", "–", healthy(known)
    best, at = "", ""
    if known.better > 0:
        value, row = max(finite, key=lambda one: (one[0], -one[1]))
        best, at = number(value), str(row + 1)
    return name, number(finite[0][0]), number(finite[-1][0]), best, at, healthy(known)


def _span(run: Run) -> str:
    path = run.tree.path(run.tree.head)
    stamps = [seconds(run.tree[p].created_at) for p in (path[0], path[-1])] if path else []
    known = [stamp for stamp in stamps if stamp is not None]
    return duration(known[1] - known[0]) if len(known) == 2 else "–"
