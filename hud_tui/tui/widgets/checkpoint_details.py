"""CheckpointDetails: everything known about the checkpoint under the cursor."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import islice

from textual.content import Content

from hud_tui.keys import keyed
from hud_tui.rl.checkpoint_tree import ROOT, label
from hud_tui.rl.evaluation import Paired, Scores, difference, figures, sample_size
from hud_tui.rl.metrics import (
    change,
    chosen_text,
    interval_text,
    metric,
    metrics_of,
    of_weights,
    ranked,
    reading,
    short,
    signed,
)
from hud_tui.rl.own_numbers import HELDOUT, HELDOUT_TRACES, REWARD
from hud_tui.rl.run import Run
from hud_tui.rl.text import age, command_line, counted, one_line, spaced
from hud_tui.rl.tree_layout import Lanes
from hud_tui.tui.theme import reward_bar
from hud_tui.tui.widgets.checkpoint_tree import base_name, curve
from hud_tui.tui.widgets.lines import TextPane, fit_text, labelled
from hud_tui.wire import Checkpoint, Evaluation
from hud_tui.wire_access import ADMIN_KEY

TITLE = 9
METRIC = 18
FIGURE = 14
"""Width of an evaluation's figure's name, cells: its interval fits in one of two columns."""
COLUMN = 36
"""Width of one column of lines, cells; a pane wide enough has two columns."""
STATES = {
    "full": "full (weights + optimizer)",
    "weights": "◐ weights only",
    "expired": "◌ expired",
    "damaged": "✘ damaged: its file is missing or corrupted",
}
GROUPS_MOST = 6
"""Most regressed tasks, and most improved ones, that are listed."""
GROUP_NAME = 18
IN_LINES = frozenset(
    {
        *(REWARD, HELDOUT, HELDOUT_TRACES, "learning_rate"),
        *("num_traces", "num_datums", "num_tokens"),
    }
)
"""Metrics that the lines above the tables show already."""
UNSAMPLED = "not sampled yet"
SPLITS = {"heldout": "held-out", "train": "training"}
"""How splits of tasks are called in lines."""
EVALUATIONS_MOST = 3
"""Evaluations of one checkpoint that are shown in full, the newest."""
NEAR = 5
"""Checkpoints of the head's lineage searched for own numbers to compare with."""


_line = partial(labelled, TITLE)


class CheckpointDetails(TextPane):
    """The details pane; Tab goes to it, and it scrolls."""


Beside = Sequence[tuple[str, Paired]]
"""What a checkpoint is compared with, and the paired differences of their evaluations."""


def details(
    run: Run,
    lanes: Lanes,
    position: int,
    now: float,
    width: int,
    note: str = "",
    beside: Beside = (),
    read_only: bool = False,
    program: str = "hud-tui",
) -> list[Content]:
    """A checkpoint's details, as lines of `width` cells; ROOT is the base weights. Where it is
    read-only, no key is offered that would change something. `program`: how commands for this
    service begin."""
    width = max(8, width)
    evaluations = _evaluations(run, position, now, width, beside, read_only, program)
    standing = [
        line
        for sentence in _standing(run, position)
        for line in Content.styled(sentence, "$text-muted").wrap(width)
    ]
    if position == ROOT:
        told = (line.truncate(width) for line in evaluations)
        return [*_base(run), *standing, Content(), *told]
    lines = [_title(run, position)]
    if note:
        lines += Content.styled(f"✎ {one_line(note, 400)}", "$warning").wrap(width)
    for line in _alarms(run, run.tree[position].id):
        lines += line.wrap(width)
    lines += [*standing, *_columns(list(_facts(run, position, now)), width)]
    lines += [*_lineage(run, lanes, position, 1, width), Content()]
    lines += [*evaluations, Content()]
    lines += _columns(list(_metrics(run, position)), width)
    lines += [*_groups(run, position), Content(), _line("id", one_line(run.tree[position].id, 60))]
    return [line.truncate(width, ellipsis=True) for line in lines]


def fold_details(run: Run, lanes: Lanes, newest: int, oldest: int, width: int) -> list[Content]:
    tree = run.tree
    first, last = tree[oldest], tree[newest]
    steps = tree.depth(newest) - tree.depth(oldest) + 1
    return [
        Content.styled(f"{counted(steps, 'step')}, folded", "bold"),
        _line("from", f"{_name(first)}   {short(tree.reward(oldest))}"),
        _line("to", f"{_name(last)}   {short(tree.reward(newest))}"),
        *_lineage(run, lanes, newest, tree.depth(oldest), width),
        Content(),
        Content.assemble((keyed("{checkpoints.open}"), "bold"), (" unfold", "$text-muted")),
    ]


def _base(run: Run) -> list[Content]:
    served = run.tree.head is None
    title = Content.assemble(("base weights", "bold"), ("   ▶ served", "$accent") if served else "")
    about = "What training starts from.", "Only a checkpoint can be the head."
    lines = [title, _line("model", base_name(run) or "–"), *_own(run, ROOT)]
    return [*lines, *(Content.styled(line, "$text-muted") for line in about)]


def _title(run: Run, position: int) -> Content:
    parts = [Content.styled(_name(run.tree[position]), "bold")]
    if position == run.tree.head:
        parts.append(Content.styled("   ▶ served", "$accent"))
    if position == run.tree.best and run.tree.choice is not None:
        worth = "best" if run.tree.choice.is_confirmed else "candidate"
        parts.append(Content(f"   {run.tree.choice.glyph} {worth}"))
    return Content("").join(parts)


def _standing(run: Run, position: int) -> Iterator[str]:
    """Whether it is the best, and how sure that is."""
    choice = run.tree.choice
    if choice is None or position != choice.position:
        return
    yield from run.tree.choice_sentences
    if choice.star is not None and not choice.is_confirmed:
        yield keyed("{checkpoints.evaluate} samples fresh rollouts to confirm it")


def _alarms(run: Run, checkpoint_id: str) -> Iterator[Content]:
    for alarm in (*run.alarms.alarms, *run.alarms.left):
        if alarm.checkpoint_id == checkpoint_id:
            ended = f", until step {alarm.ended}" if alarm.ended else ", ended"
            over = "" if alarm.active else ended
            yield Content.styled(f"⚑ {alarm.title}{over}: {alarm.summary}", "$warning")


def _facts(run: Run, position: int, now: float) -> Iterator[Content]:
    tree, node = run.tree, run.tree[position]
    metrics = metrics_of(node)
    parent = tree.parent(position)
    yield _line("parent", "base weights" if parent == ROOT else _name(tree[parent]))
    yield from _own(run, position)
    if change := _change(run, position):
        yield _line("change", change)
    yield _line("step", f"{node.step or '–'}   {counted(tree.depth(position), 'step')} from base")
    spread = f" ± {short(metrics['reward_std'])}" if "reward_std" in metrics else ""
    spread = chosen_text(node.draw) or spread
    yield _line("batch", f"reward {short(node.mean_reward)}{spread}")
    yield _line("loss", one_line(node.loss_fn or "–", 24))
    yield _line("lr", short(node.learning_rate))
    yield _line("datums", f"{_count(node.num_datums)} from {_count(node.num_traces)} traces")
    yield _line("tokens", _count(node.num_tokens))
    job = f"   job {one_line(node.job_id[:8], 8)}" if node.job_id else ""
    yield _line("created", f"{age(node.created_at, now)} ago{job}")
    if node.state is not None:
        state = STATES.get(node.state, one_line(node.state, 20))
        if node.pinned:
            # the key of a service of one's own is nobody's in particular
            is_named = node.pinned_by not in (None, "", ADMIN_KEY)
            by = f" by {one_line(node.pinned_by, 20)}" if is_named else ""
            kept = f"{node.state} state" if node.state in STATES else state
            state = f"◆ pinned{by}, {kept}"
        yield _line("state", state)


def _own(run: Run, position: int) -> Iterator[Content]:
    """Means of rollouts sampled from it, and their number where that is known."""
    own = run.tree.own(position)
    of = counted(own.sampled, "rollout") if own.sampled else ""
    if not own.known:
        yield _line("reward", UNSAMPLED)
    for title, mean, over in (("reward", own.reward, of), ("held-out", own.heldout, own.over)):
        if mean is not None:
            yield _line(title, f"{short(mean)}   {over}".rstrip())


def _evaluations(
    run: Run, position: int, now: float, width: int, beside: Beside, read_only: bool, program: str
) -> Iterator[Content]:
    """Its evaluations, newest first, and the comparisons."""
    evaluations = run.evaluations_of(position)[::-1]
    if not evaluations:
        offer = "" if read_only else keyed(" · {checkpoints.evaluate} evaluates it")
        yield _line("eval", f"not evaluated{offer}")
    for name, paired in beside:
        for sentence in paired.difference.sentences(one_line(name, 40), "this"):
            yield from Content(sentence).wrap(width)
    for evaluation in evaluations[:EVALUATIONS_MOST]:
        named = f", {one_line(evaluation.name, 40)}" if evaluation.name else ""
        ago = f"  {age(evaluation.created_at, now)}" if evaluation.created_at else ""
        split = SPLITS.get(evaluation.split) or one_line(evaluation.split, 20)
        yield _line("eval", f"{split}, {sample_size(evaluation)}{named}{ago}")
        yield from _columns(list(_figures(evaluation)), width)
    if len(evaluations) > EVALUATIONS_MOST:
        model = run.model.model_name if run.model is not None else "MODEL"
        listed = command_line(program, "eval", "-m", model, "--list")
        more = f"and {len(evaluations) - EVALUATIONS_MOST} more: {listed}"
        yield from Content.styled(more, "$text-muted").wrap(width)


def _figures(evaluation: Evaluation) -> Iterator[Content]:
    for figure in figures(evaluation):
        estimate = figure.estimate
        ends = interval_text(estimate.low, estimate.high)
        yield _valued(figure.label, short(estimate.value), ends and f"   {ends}", FIGURE)


def _change(run: Run, position: int) -> str:
    tree = run.tree
    above = tree.parent(position)
    parent, parts = signed(tree.delta(position)), []
    if parent:
        is_other = above != ROOT and not tree.on_same_tasks(above, position)
        parts.append(f"{parent} vs parent{' (other tasks)' * is_other}")
    head = None if tree.head in (None, position) else tree.head
    if head is not None and (served := tree.difference(head, position)) is not None:
        parts.append(f"{signed(served)} vs ▶")
    return "   ".join(parts)


def _reference(run: Run, position: int) -> int | None:
    """The checkpoint to compare with: the head, or while it has no own numbers, the newest before
    it that has; for that one itself, its parent."""
    tree = run.tree
    line = islice(tree.lineage(tree.head), NEAR)
    reference = next((p for p in line if tree.own(p).known), None)
    if reference == position:
        reference = tree.parent(position)
    return None if reference is None or reference in (ROOT, position) else reference


def _called(run: Run, position: int) -> str:
    return "▶" if position == run.tree.head else _name(run.tree[position])


def _count(number: int | None) -> str:
    return "–" if number is None else spaced(number)


def _lineage(run: Run, lanes: Lanes, newest: int, first: int, width: int) -> Iterator[Content]:
    rewards = curve(run, lanes, newest, first, max(8, width - TITLE))
    top = max(1.0, run.tree.peak)
    if len(rewards) < 2:
        return
    bars = (reward_bar(reward, top) for reward in rewards)
    yield _line("lineage", "") + Content("").join(bars)


def _metrics(run: Run, position: int) -> Iterator[Content]:
    tree, other = run.tree, _reference(run, position)
    against = "" if other is None else f"vs {_called(run, other)}"
    own = tree.own_metrics(position)
    alike = other is not None and tree.on_same_tasks(other, position)
    beside = tree.own_metrics(other) if other is not None and alike else {}
    if any(key not in IN_LINES for key in own):
        yield from _table("sampled from it", own, beside, against)
    step = {k: v for k, v in metrics_of(tree[position]).items() if not of_weights(k)}
    steps = {} if other is None else metrics_of(tree[other])
    yield from _table("training batch", step, steps, against)


def _table(
    name: str, shown: Mapping[str, float], beside: Mapping[str, float], against: str
) -> Iterator[Content]:
    keys = [key for key in ranked(list(shown)) if key not in IN_LINES]
    heading = against if any(key in beside for key in keys) else ""
    yield Content.styled(f"{name:<{METRIC}}{'value' if keys else '':>7}   {heading}", "$text-muted")
    for key in keys:
        delta = signed(change(beside[key], shown[key], key)) if key in beside else ""
        title = fit_text(one_line(metric(key).title, 200), METRIC - 1)
        yield _valued(title, reading(key, shown[key]), f"   {delta}")


def _valued(title: str, value: str, more: str, width: int = METRIC) -> Content:
    return labelled(width, title, f"{value:>7}", (more, "$text-muted"))


def _groups(run: Run, position: int) -> Iterator[Content]:
    """Tasks whose own mean reward differs from the head's by more than noise."""
    tree, other = run.tree, _reference(run, position)
    if other is None:
        return
    older, newer = sorted((other, position))
    groups = (tree.own_groups(position) for position in (older, newer))
    changed = difference(*map(Scores.of, groups))
    if changed is None:
        return
    where = f"{'from here to' if other > position else 'since'} {_called(run, other)}"
    for word, tasks in (("regressed", changed.worse), ("improved", changed.better)):
        if tasks:
            yield Content()
            yield Content.styled(f"tasks that {word} {where}", "$text-muted")
        for task in tasks[:GROUPS_MOST]:
            means = f"{short(task.before.mean):>7} → {short(task.after.mean):<7}"
            name = fit_text(one_line(task.slug, 200), GROUP_NAME)
            yield Content(f"{name}{means}{signed(task.delta)}")


def _columns(lines: list[Content], width: int) -> list[Content]:
    """Lines in two columns if there is room, read downwards."""
    if width < 2 * COLUMN + 2:
        return lines
    half = -(-len(lines) // 2)
    column = (width + 2) // 2
    cut = [line.truncate(column - 2, ellipsis=True) for line in lines]
    left = [line.pad_right(column - line.cell_length) for line in cut]
    right = [*lines[half:], Content()]
    return [left[i] + right[i] for i in range(half)]


def _name(node: Checkpoint) -> str:
    return one_line(label(node), 40)
