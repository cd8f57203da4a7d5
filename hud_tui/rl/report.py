"""A run as a Markdown report with SVG charts.

Every text from the service is put into a code span or escaped, so that it cannot act as a link,
heading or table cell.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf, isfinite

from hud_tui.rl.alarms.alarm import Alarm
from hud_tui.rl.axes import roomiest, step_marks
from hud_tui.rl.chart import y_range
from hud_tui.rl.checkpoint_tree import ROOT, Tree, label
from hud_tui.rl.compare import ChartView
from hud_tui.rl.curves import Curve, Sign
from hud_tui.rl.evaluation import EvaluationResult, evaluation_results, figures, sample_size
from hud_tui.rl.groups import AT_ONCE, Waste
from hud_tui.rl.metrics import (
    METRICS,
    are_equal,
    chosen_text,
    estimate_text,
    healthy,
    metric,
    most_of,
    ranked,
    short,
    title,
)
from hud_tui.rl.names import code, escaped, plain_name
from hud_tui.rl.own_numbers import HELDOUT, REWARD
from hud_tui.rl.plot import Flag, Layer, Plot, Shape, svg
from hud_tui.rl.reflog import reflog
from hud_tui.rl.run import Run
from hud_tui.rl.text import counted, duration, moment, percent, seconds, spaced
from hud_tui.rl.time_report import FILE as TIME_FILE
from hud_tui.rl.time_report import reason_rows, report_rows, time_picture
from hud_tui.rl.timeline import account_all, time_sentence
from hud_tui.rl.tree_layout import Segments
from hud_tui.rl.work import is_active, reason
from hud_tui.wire import Evaluation
from hud_tui.wire_time import RunTime

# The charts of a report and their files.


MOST_CHARTS = 60
"""Maximum number of charts; further metrics are in the table only."""


MOST_POINTS = 330
"""Maximum points of a line: one per two pixels."""
WEIGHT = 0.8
"""Weight of the moving average."""
SMOOTHED_FROM = 20
"""Number of values from which a line is smoothed."""
ROWS = 13
"""Heights that the ticks of the y axis are chosen from."""
LAYERS = ("a", "b")
"""Names of the metrics' layers."""


@dataclass(frozen=True)
class Picture:
    """One chart as a file."""

    file: str
    alt: str
    """Title, escaped for Markdown."""
    svg: str


def pictures(run: Run) -> list[Picture]:
    """One chart per metric that changes; reward and held-out reward first, in one chart."""
    keys = [key for key in ranked(run.series.keys) if _changes(run, key)]
    if REWARD in keys and HELDOUT in keys:
        keys.remove(HELDOUT)
    by_name: dict[str, Picture] = {}
    for key in keys[:MOST_CHARTS]:
        file, number = f"{plain_name(key)}.svg", 2
        while file.lower() in by_name:  # file names may be case-insensitive
            file, number = f"{plain_name(key)}-{number}.svg", number + 1
        shown = [key, HELDOUT] if key == REWARD and _changes(run, HELDOUT) else [key]
        alt = escaped(title(key)) if key in METRICS else plain_name(key)
        by_name[file.lower()] = Picture(file, alt, picture(run, shown))
    return list(by_name.values())


def picture(run: Run, keys: Sequence[str]) -> str:
    """One or two metrics over the same steps as SVG: the moving average over the range of the raw
    values. A metric that few steps report is not smoothed."""
    length = run.series.length
    columns = max(1, min(length, MOST_POINTS))
    layers: list[Layer] = []
    for name, key in zip(LAYERS, keys, strict=False):
        column = run.series.values(key)
        smoothed = sum(map(isfinite, column)) >= max(SMOOTHED_FROM, length / 2)
        curve = Curve(column, WEIGHT if smoothed else 0.0, key)
        curve.follow(length, curve.ema.weight)
        buckets = curve.buckets(range(1, length + 1), 1, max(length, 1), columns)
        layers = [Layer(name, buckets, Shape.LINE), *layers, Layer(name, buckets, Shape.RANGE)]
    drawn = [bucket for layer in layers for bucket in layer.buckets]
    low, high = y_range(drawn, ChartView(), key=keys[0])
    scale = roomiest(low, high, False, ROWS, most_of(keys[0], high))
    wide = max(1, length - 1)
    ticks = step_marks(run.series.step_at, 1, length, 8)
    flags = [
        Flag(
            round(alarm.row / wide * (columns - 1)),
            Sign.ALARM,
            "alarm",
            f"{alarm.title} since step {alarm.onset}",
        )
        for alarm in run.alarms.warnings
        if alarm.row < length
    ]
    plot = Plot(scale, columns, layers, [((x - 1) / wide, text) for x, text in ticks], flags)
    chosen = "" if run.head is None or keys[0] != REWARD else chosen_text(run.head.draw)
    names = [(name, title(key)) for name, key in zip(LAYERS, keys, strict=False)]
    return svg(
        plot, f"{title(keys[0])}{chosen}", metric(keys[0]).meaning, names if len(names) > 1 else []
    )


def _changes(run: Run, key: str) -> bool:
    if key not in run.series.keys:
        return False
    finite = [value for value in run.series.values(key) if isfinite(value)]
    return bool(finite) and not are_equal(key, min(finite), max(finite))


# The checkpoint tree as a table: one row per segment without forks.


MOST = 60
"""Maximum number of segments listed; the newest are."""


def lineage_parts(tree: Tree) -> Iterator[str]:
    """A Markdown table of segments, oldest first, after a note of what it leaves out."""
    segments = Segments()
    for position in range(len(tree)):
        segments.add(tree.parent(position))
    order = sorted(range(len(segments.nodes)), key=lambda segment: segments.nodes[segment][0])
    serving = {segment for segment, _ in segments.lineage(tree.head)}
    if len(order) > MOST:
        yield f"{len(order) - MOST} of {len(order)} segments omitted."
    rows = []
    for segment in order[-MOST:]:
        nodes, below = segments.nodes[segment], segments.below[segment]
        parent = "the base" if below == ROOT else code(label(tree[segments.nodes[below][-1]]), 40)
        first, last = (code(label(tree[position]), 40) for position in (nodes[0], nodes[-1]))
        notes = "; ".join(_lineage_notes(tree, nodes, segment in serving))
        rewards = " → ".join(short(tree.reward(position)) for position in (nodes[0], nodes[-1]))
        rows.append((parent, first, last, str(len(nodes)), rewards, notes))
    yield table(("from", "first", "last", "steps", "own reward", ""), rows)


def _lineage_notes(tree: Tree, nodes: list[int], serving: bool) -> Iterator[str]:
    held = frozenset(nodes)
    if tree.head in held and tree.head is not None:
        yield f"▶ the head is {code(label(tree[tree.head]), 40)}"
    elif serving:
        yield "in the head's lineage"
    if tree.best in held and tree.choice is not None:
        yield f"{tree.choice.glyph} {code(label(tree.node(tree.best)), 40)}"
    if pins := len(held & tree.pinned):
        yield f"{pins} pinned"


# Markdown: sections, tables, numbers and times.


def section(name: str, parts: Iterable[str]) -> str:
    """A heading and its paragraphs; empty without any."""
    paragraphs = list(parts)
    return "\n\n".join([f"## {name}", *paragraphs]) if paragraphs else ""


def table(names: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table; the cells must be escaped already."""
    lines = [names, ["---"] * len(names), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def scored(tree: Tree, position: int | None) -> str:
    """A checkpoint's name with its own rewards."""
    if position is None:
        return "the base weights"
    own = tree.own(position)
    sampled = counted(own.sampled, "rollout") if own.sampled else ""
    parts = [f"held-out {_of(own.heldout, own.over)}"] if own.heldout is not None else []
    parts += [f"reward {_of(own.reward, sampled)}"] if own.reward is not None else []
    return f"{code(label(tree[position]), 60)} ({', '.join(parts) or 'not sampled yet'})"


def _of(value: float, over: str) -> str:
    """A mean and its sample, if known."""
    return f"{number(value)} of {over}" if over else number(value)


def number(value: float) -> str:
    """A number with five digits."""
    if abs(value) == inf:
        return "∞" if value > 0 else "-∞"
    return f"{value:.5g}"


# Sections on evaluations, waste, alarms, moves of the head, notes and pins.


WORST = 10
"""Maximum number of tasks listed under waste."""
MOST_LISTED = 100
"""Maximum number of alarms, moves and notes listed; the others are only counted."""


def evaluations_part(run: Run) -> str:
    """The results of evaluations."""
    results = evaluation_results(list(run.tree), list(run.evaluations.values()))
    evaluations = [result.evaluation for result in results]
    named = {each.tasks_digest: each.name for each in evaluations if each.name}
    listed: dict[tuple[object, ...], tuple[str, ...]] = {}
    for number, result in enumerate(results):
        row, evaluation = _evaluation_row(result, named), result.evaluation
        # without a seed two evaluations are never the same one
        how = (evaluation.seed, evaluation.temperature, evaluation.max_tokens)
        listed[(*row, *how) if evaluation.seed is not None else (number,)] = row
    names = ("checkpoint", "split", "tasks", "size", "mean reward", "pass@1", "pass@K")
    intro = (
        "Each task was rolled out K times from exactly these weights. Intervals are 95 %, over "
        "tasks. An evaluation repeated with the same seed is listed once."
    )
    rows = list(listed.values())[-MOST_LISTED:]
    return section("Evaluations", [intro, table(names, rows)] if rows else [])


def _evaluation_row(
    result: EvaluationResult, named: Mapping[str | None, str | None]
) -> tuple[str, ...]:
    evaluation = result.evaluation
    labels = "mean reward", "pass@1", f"pass@{evaluation.samples}"
    return (
        *(code(result.name, 60), escaped(evaluation.split, 20), _tasks_of(evaluation, named)),
        sample_size(evaluation),
        *(_estimated(evaluation, label) for label in labels),
    )


def _tasks_of(evaluation: Evaluation, named: Mapping[str | None, str | None]) -> str:
    """The tasks of an evaluation: one that a run made on its own held-out tasks has no name, but
    perhaps the digest of one that has."""
    name = evaluation.name or (
        named.get(evaluation.tasks_digest) if evaluation.tasks_digest else None
    )
    return code(name, 60) if name else "the run's own"


def _estimated(evaluation: Evaluation, label: str) -> str:
    estimate = next((f.estimate for f in figures(evaluation) if f.label == label), None)
    return "–" if estimate is None else estimate_text(estimate)


def waste_part(run: Run) -> str:
    """Rollouts and tokens without gradient, and the tasks they are spent on."""
    waste = Waste()
    while not waste.follow(run, AT_ONCE):
        pass
    total, tasks = waste.total(), [task for task in waste.tasks() if task.idle]
    if not total.rollouts:
        return ""
    about = "" if waste.exact else "about "
    of_tokens = f"{about}{percent(total.token_share, 1)} of {total.tokens:.0f} tokens"
    intro = (
        f"{percent(total.share, 1)} of {total.rollouts:.0f} rollouts and {of_tokens} had no"
        " gradient: their groups had zero variance"
        + (f", or they were discarded ({total.discarded:.0f})." if total.discarded else ".")
    )
    rows = [
        (
            *(code(task.task_slug, 80), percent(task.share), f"{task.idle} of {task.rollouts}"),
            *(f"{task.idle_tokens:.0f}", str(task.all_solved), str(task.all_failed)),
        )
        for task in tasks[:WORST]
    ]
    names = ("task", "no gradient", "rollouts", "tokens", "groups all solved", "groups all failed")
    worst = (
        [f"The {len(rows)} most affected of {len(tasks)} tasks:", table(names, rows)]
        if rows
        else []
    )
    return section("Waste", [intro, *worst])


def time_part(told: RunTime | None) -> str:
    """Where the time of the newest steps went, and why rollouts were discarded."""
    if told is None or not told.steps:
        return ""
    shares = table(("part", "share", "per step", "under way"), report_rows(told))
    parts = [
        f"Of {counted(told.taken, 'step')}: {escaped(time_sentence(account_all(told.steps)))}",
        "What was done at once shares its time; it was under way for longer than its share.",
        shares,
        f"![time]({TIME_FILE})",
    ]
    if told.discarded:
        rows = [(escaped(reason, 40), number, text) for reason, number, text in reason_rows(told)]
        parts += ["Rollouts that no step was trained on:", table(("reason", "rollouts", ""), rows)]
    return section("Time", parts)


def alarms_part(run: Run) -> str:
    """Alarms with evidence and advice."""
    report = run.alarms
    listed = [*report.alarms, *report.left]
    parts = [_alarm(run, alarm, alarm in report.left) for alarm in listed[:MOST_LISTED]]
    if len(listed) > MOST_LISTED:
        parts.append(f"And {len(listed) - MOST_LISTED} more.")
    if not listed:
        parts.append(f"None in {counted(report.steps, 'step')}.")
    if report.skipped:
        names = ", ".join(f"{code(d.name)} ({escaped(d.needs, 80)})" for d in report.skipped)
        parts.append(f"Not evaluated, metric not reported: {names}.")
    return section("Alarms", parts)


def _alarm(run: Run, alarm: Alarm, left: bool) -> str:
    until = f", until {run.holds_until(alarm)}"
    where = ", on steps no longer in the head's lineage" if left else until
    return (
        f"### {alarm.level.word}: {escaped(alarm.title, 80)}\n\n"
        f"Began at step {alarm.onset}, detected at {alarm.raised}{where}. "
        f"{escaped(alarm.evidence_text)}.\n\n"
        f"{escaped(alarm.meaning)}\n\n→ {escaped(alarm.advice)}"
    )


def history_part(run: Run) -> str:
    """Moves of the head, steps and evaluations."""
    lines = reflog(run)
    more = [f"{counted(len(lines) - MOST_LISTED, 'older line')} omitted."]
    rows = [
        (
            *(moment(line.at), line.what, code(line.before) if line.before else ""),
            *(code(line.after), escaped(line.by, 100)),
        )
        for line in lines[-MOST_LISTED:]
    ]
    listed = [table(("when", "what", "from", "to", "by"), rows)] if rows else []
    intro = f"Moves of the head: {run.history.completeness}."
    return section("History", [intro, *more * (len(lines) > MOST_LISTED), *listed])


def kept_part(run: Run, notes: Mapping[str, str]) -> str:
    """The user's notes and pins, by checkpoint."""
    tree = run.tree
    rows = [
        (scored(tree, position), "pinned" if position in tree.pinned else "", escaped(note))
        for position in range(len(tree))
        if (note := notes.get(tree[position].id, "")) or position in tree.pinned
    ]
    more = [f"And {len(rows) - MOST_LISTED} more."] if len(rows) > MOST_LISTED else []
    listed = table(("checkpoint", "", "note"), rows[:MOST_LISTED])
    return section("Notes and pins", [listed, *more] if rows else [])


FILE = "report.md"
BY_STEP = (
    "By step. Metrics of a step's rollouts (rewards, entropy, KL, lengths) were sampled before its "
    "update, so they describe the checkpoint before it."
)


@dataclass(frozen=True)
class LocalFacts:
    """Facts about a run that only this machine has."""

    service: str = ""
    """Display name of the service, e.g. ``HUD local``."""
    notes: Mapping[str, str] = field(default_factory=dict)
    """The user's notes, by checkpoint id."""
    time: RunTime | None = None
    """Where the time of its steps went; None if the service does not say."""


def report_files(run: Run, local: LocalFacts, now: float) -> dict[str, str]:
    """The files of a report by name: `FILE` and its charts.

    Args:
        now: Unix seconds.
    """
    drawn = pictures(run)
    parts = [
        _head(run, local, now),
        _configuration(run),
        _summary(run),
        evaluations_part(run),
        section("Charts", (f"![{chart.alt}]({chart.file})" for chart in drawn)),
        waste_part(run),
        time_part(local.time),
        alarms_part(run),
        history_part(run),
        kept_part(run, local.notes),
        section("Lineage", lineage_parts(run.tree) if len(run.tree) else ()),
    ]
    files = {FILE: "\n\n".join(part for part in parts if part) + "\n"}
    if local.time is not None and local.time.steps:
        files[TIME_FILE] = time_picture(local.time)
    return files | {chart.file: chart.svg for chart in drawn}


def _head(run: Run, local: LocalFacts, now: float) -> str:
    model, tree = run.model, run.tree
    name = "base" if model is None else model.model_name
    rows = [
        ("model", code(name)),
        ("id", code(None if model is None else model.id)),
        ("base", code(None if model is None else model.base_model)),
        ("forked from", code(None if model is None else model.forked_from)),
        ("head", scored(tree, tree.head)),
        ("best", escaped("; ".join(tree.choice_sentences), 400) or "–"),
        ("checkpoints", str(len(tree))),
        ("steps of the head's lineage", str(run.series.length)),
        *_job(run),
        ("time from first to last step of the lineage", _span(run)),
    ]
    as_of = f"As of {moment(now)}" + (
        f", from {escaped(local.service, 60)}." if local.service else "."
    )
    return f"# Run of {code(name, 80)}\n\n{as_of}\n\n" + table(("", ""), rows)


def _job(run: Run) -> Iterator[tuple[str, str]]:
    job = run.job
    if job is None:
        return
    yield "job", f"{code(job.name or job.id)} {escaped(job.status, 40)}"
    if why := reason(job):
        yield "reason", escaped(why)
    yield "steps", f"{job.step if job.step is not None else '–'} of {job.steps or '–'}"
    if job.created_at is not None:
        end = job.finished_at
        took = f", took {duration(end - job.created_at)}" if end is not None else ""
        yield "submitted", moment(job.created_at) + took
    if job.trained_tokens is not None:
        yield "trained tokens", spaced(job.trained_tokens)
    if is_active(job.status):
        yield "note", "The run was still active when this report was written."


def _configuration(run: Run) -> str:
    parameters = (run.job.parameters if run.job is not None else None) or {}
    rows = [(code(name, 60), code(value)) for name, value in parameters.items()]
    return section("Configuration", [table(("parameter", "value"), rows)] if rows else [])


def _summary(run: Run) -> str:
    rows = [_metric(run, key) for key in ranked(run.series.keys)]
    rows_table = table(("metric", "first", "last", "best", "at step", "healthy"), rows)
    return section("Metrics", [BY_STEP, rows_table] if rows else ["No step has been taken."])


def _metric(run: Run, key: str) -> tuple[str, ...]:
    definition, values = metric(key), run.series.values(key)
    finite = [(value, row) for row, value in enumerate(values) if isfinite(value)]
    name = escaped(title(key)) if key in METRICS else code(key, 80)
    if not finite:
        return name, "–", "–", "–", "–", healthy(definition)
    best, step = "", ""
    if definition.better > 0:
        value, row = max(finite, key=lambda pair: (pair[0], -pair[1]))
        best, step = number(value), str(run.series.step_at(row))
    return name, number(finite[0][0]), number(finite[-1][0]), best, step, healthy(definition)


def _span(run: Run) -> str:
    path = run.tree.path(run.tree.head)
    stamps = [seconds(run.tree[p].created_at) for p in (path[0], path[-1])] if path else []
    times = [stamp for stamp in stamps if stamp is not None]
    return duration(times[1] - times[0]) if len(times) == 2 else "–"
