"""CheckpointDetails: all that is known of the checkpoint under the cursor."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from textual.content import Content

from hud_tui.keys import keyed
from hud_tui.rl.ages import age
from hud_tui.rl.compare import group_pairs, moved
from hud_tui.rl.counts import counted, spaced
from hud_tui.rl.lanes import Lanes
from hud_tui.rl.metrics import change, metric, ranked, short, signed
from hud_tui.rl.run import Run
from hud_tui.rl.segments import ROOT
from hud_tui.rl.series import metrics_of
from hud_tui.rl.text import one_line
from hud_tui.rl.tree import HELDOUT, label
from hud_tui.tui.widgets.palette import RAMP, eighth, ramp_index
from hud_tui.tui.widgets.text_pane import TextPane
from hud_tui.tui.widgets.tree_lines import base_name, curve
from hud_tui.wire import Checkpoint

TITLE = 8
"""Cells of a line's title."""
METRIC = 18
"""Cells of a metric's title."""
COLUMN = 36
"""Cells of one column of lines; a pane with room for two has two."""
STATES = {
    "full": "whole state",
    "weights": "◐ weights only",
    "expired": "◌ expired",
    "damaged": "✘ damaged: its file is missing or corrupted",
}
GROUPS_MOST = 6
"""Groups that are named, of those that fell and of those that rose."""
GROUP_NAME = 18
"""Cells of a group's name."""
IN_LINES = frozenset(
    {
        "reward_mean",
        "reward_std",
        "reward_min",
        "reward_max",
        "learning_rate",
        "num_traces",
        "num_datums",
        "num_tokens",
    }
)
"""Metrics that the lines above the table say already."""


class CheckpointDetails(TextPane):
    """The details pane; Tab goes to it, and it scrolls."""


def details(
    run: Run, lanes: Lanes, position: int, now: float, width: int, note: str = ""
) -> list[Content]:
    """A checkpoint's details, as lines of `width` cells; ROOT is the base weights."""
    if position == ROOT:
        return _base(run)
    lines = [_title(run, position)]
    if note:
        lines += Content.styled(f"✎ {one_line(note, 400)}", "$warning").wrap(max(8, width))
    for line in _alarms(run, run.tree[position].id):
        lines += line.wrap(max(8, width))
    lines += [*_columns(list(_facts(run, position, now)), width)]
    lines += [*_lineage(run, lanes, position, 1, width), Content()]
    lines += _columns(list(_metrics(run, position)), width)
    lines += [*_groups(run, position), Content(), _line("id", one_line(run.tree[position].id, 60))]
    return lines


def fold_details(run: Run, lanes: Lanes, newest: int, oldest: int, width: int) -> list[Content]:
    """What a folded run holds, and how to see it."""
    tree = run.tree
    first, last = tree[oldest], tree[newest]
    steps = tree.depth(newest) - tree.depth(oldest) + 1
    return [
        Content.styled(f"{counted(steps, 'step')}, folded", "bold"),
        _line("from", f"{_name(first)}   {short(first.mean_reward)}"),
        _line("to", f"{_name(last)}   {short(last.mean_reward)}"),
        *_lineage(run, lanes, newest, tree.depth(oldest), width),
        Content(),
        Content.assemble(
            (keyed("{checkpoints.toggle_fold}"), "bold"), (" unfolds them", "$text-muted")
        ),
    ]


def _base(run: Run) -> list[Content]:
    served = run.tree.head is None
    title = Content.assemble(("base weights", "bold"), ("   ▶ served", "$accent") if served else "")
    about = "What the first step started from.", "Only a step's weights can be the head."
    lines = [title, _line("model", base_name(run) or "–")]
    return [*lines, *(Content.styled(line, "$text-muted") for line in about)]


def _title(run: Run, position: int) -> Content:
    parts = [Content.styled(_name(run.tree[position]), "bold")]
    if position == run.tree.head:
        parts.append(Content.styled("   ▶ served", "$accent"))
    if position == run.tree.best:
        by = "held-out reward" if run.tree.best_by == HELDOUT else "reward"
        parts.append(Content(f"   ★ best {by}"))
    return Content("").join(parts)


def _alarms(run: Run, checkpoint_id: str) -> Iterator[Content]:
    """The alarms that began with this step."""
    for alarm in (*run.alarms.alarms, *run.alarms.left):
        if alarm.checkpoint_id == checkpoint_id:
            over = (
                "" if alarm.active else f", until step {alarm.ended}" if alarm.ended else ", over"
            )
            yield Content.styled(f"⚑ {alarm.title}{over}: {alarm.said}", "$warning")


def _facts(run: Run, position: int, now: float) -> Iterator[Content]:
    """The lines that every checkpoint has."""
    tree, node = run.tree, run.tree[position]
    known = metrics_of(node)
    parent = tree.parent(position)
    yield _line("parent", "base weights" if parent == ROOT else _name(tree[parent]))
    yield _line("reward", _reward(node.mean_reward, known))
    yield _line("change", _change(run, position))
    yield _line("loss", one_line(node.loss_fn or "–", 24))
    yield _line("rate", short(node.learning_rate))
    yield _line("datums", f"{_count(node.num_datums)} of {_count(node.num_traces)} traces")
    yield _line("tokens", _count(node.num_tokens))
    job = f"   job {one_line(node.job_id[:8], 8)}" if node.job_id else ""
    yield _line("made", f"{age(node.created_at, now)} ago{job}")
    yield _line("step", f"{node.step or '–'}   {counted(tree.depth(position), 'step')} from base")
    if node.state is not None:
        pinned = "   ◆ pinned" if node.pinned else ""
        yield _line("kept", f"{STATES.get(node.state, one_line(node.state, 20))}{pinned}")


def _reward(reward: float | None, known: Mapping[str, float]) -> str:
    spread = f" ± {short(known['reward_std'])}" if "reward_std" in known else ""
    ends = [f"{word} {short(known[f'reward_{word}'])}" for word in ("min", "max")
            if f"reward_{word}" in known]  # fmt: skip
    return "   ".join([f"{short(reward)}{spread}", *ends])


def _change(run: Run, position: int) -> str:
    parent = f"{signed(run.tree.delta(position)) or '–'} parent"
    own, head = run.tree[position].mean_reward, run.head
    if head is None or head.mean_reward is None or own is None or position == run.tree.head:
        return parent
    return f"{parent}  {signed(change(head.mean_reward, own))} ▶"


def _count(number: int | None) -> str:
    return "–" if number is None else spaced(number)


def _lineage(run: Run, lanes: Lanes, newest: int, first: int, width: int) -> Iterator[Content]:
    """The reward along the way there, in the ramp's colours."""
    rewards = curve(run, lanes, newest, first, max(8, width - TITLE))
    top = max(1.0, run.tree.peak)
    if len(rewards) < 2:
        return
    bars = [Content.styled("lineage".ljust(TITLE), "$text-muted")]
    for reward in rewards:
        colour = RAMP[ramp_index(reward, 0.0, top)]
        bars.append(Content.styled(eighth(max(reward, 1e-6) / top), colour))
    yield Content("").join(bars)


def _metrics(run: Run, position: int) -> Iterator[Content]:
    """Every other metric, and how far it is from the head's."""
    own = metrics_of(run.tree[position])
    served = {} if run.head is None or position == run.tree.head else metrics_of(run.head)
    keys = [key for key in ranked(list(own)) if key not in IN_LINES]
    if keys:
        against = "vs ▶" if served else ""
        yield Content.styled(f"{'metric':<{METRIC}}{'value':>7}   {against}", "$text-muted")
    for key in keys:
        delta = signed(change(served[key], own[key])) if key in served else ""
        title = one_line(metric(key).title, METRIC - 1)
        yield Content.assemble(
            (f"{title:<{METRIC}}", "$text-muted"),
            f"{short(own[key]):>7}",
            (f"   {delta}", "$text-muted"),
        )


def _groups(run: Run, position: int) -> Iterator[Content]:
    """Groups whose mean reward differs from the head's; of the head, from its parent's."""
    tree = run.tree
    other = tree.parent(position) if position == tree.head else tree.head
    if other is None or other == ROOT:
        return
    older, newer = (other, position) if position == tree.head else (position, other)
    rose, fell = moved(group_pairs(tree[older].groups, tree[newer].groups))
    where = f"since {_name(tree[other])}" if position == tree.head else "from here to ▶"
    for word, pairs in (("fell", fell), ("rose", rose)):
        if pairs:
            yield Content()
            yield Content.styled(f"groups that {word} {where}", "$text-muted")
        for pair in pairs[:GROUPS_MOST]:
            means = f"{short(pair.left):>7} → {short(pair.right):<7}"
            name = Content(one_line(pair.task_slug, 200)).truncate(GROUP_NAME, ellipsis=True)
            name = name.pad_right(GROUP_NAME - name.cell_length)
            yield name + Content(f"{means}{signed(pair.delta)}")


def _columns(lines: list[Content], width: int) -> list[Content]:
    """Lines in two columns where there is room, read downwards."""
    if width < 2 * COLUMN + 2:
        return lines
    half = -(-len(lines) // 2)
    column = (width + 2) // 2
    left = [
        line.truncate(column - 2).pad_right(max(0, column - line.cell_length)) for line in lines
    ]
    right = [*lines[half:], Content()]
    return [left[i] + right[i] for i in range(half)]


def _line(title: str, text: str) -> Content:
    return Content.assemble((title.ljust(TITLE), "$text-muted"), text)


def _name(node: Checkpoint) -> str:
    return one_line(label(node), 40)
