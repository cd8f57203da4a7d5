"""The columns of the checkpoint tree: which of them fit, and what they say of a node."""

from collections.abc import Sequence
from dataclasses import dataclass

from rich.cells import cell_len, set_cell_size
from rich.segment import Segment
from rich.style import Style

from hud_tui.rl.ages import age
from hud_tui.rl.metrics import of_weights, short, signed
from hud_tui.rl.own import own_metric
from hud_tui.rl.text import one_line
from hud_tui.rl.tree import Tree, label
from hud_tui.tui.widgets.palette import EIGHTHS, eighth, reward_style

GAP = 2
"""Cells between two columns."""
MARKS = 4
"""Cells at the left: marked, served, best, and pinned or noted."""
LANES_MOST = 24
"""Cells that lanes may take; deeper ones are cut at the left."""


@dataclass(frozen=True)
class Column:
    """One column after the lanes."""

    title: str
    width: int
    rank: int
    """The column of the highest rank is the first to go where the screen is narrow."""
    right: bool = True
    """Whether it is aligned to the right, as numbers are."""
    key: str = ""
    """The metric that it shows, where it shows one."""

    def pad(self, text: str) -> str:
        """A text brought to the column's width in cells."""
        if (space := self.width - cell_len(text)) >= 0:
            return " " * space + text if self.right else text + " " * space
        return set_cell_size(text, self.width - 1) + "…"


NAME = Column("checkpoint", 12, 0, right=False)
REWARD = Column("reward", 8, 1)
"""Its own: of rollouts that its weights sampled."""
DELTA = Column("Δ", 8, 2)
HELDOUT = Column("held-out", 8, 4)
NOTE = Column("note", 19, 5, right=False)
"""Where there is any note, it comes before how the step was trained."""
LOSS = Column("loss", 19, 6, right=False)
RATE = Column("lr", 6, 7)
TRACES = Column("traces", 6, 8)
AGE = Column("age", 5, 3)
MORE = (
    Column("spread", 7, 9, key="reward_std"),
    Column("kl", 7, 10, key="kl_sample_train"),
    Column("entropy", 7, 11, key="entropy"),
    Column("zero-spread", 11, 12, key="frac_groups_zero_spread"),
    Column("clip", 7, 13, key="clip_fraction"),
    Column("length", 7, 14, key="completion_length_mean"),
)
"""What a wide screen has room for."""
COLUMNS = (NAME, REWARD, DELTA, HELDOUT, NOTE, LOSS, RATE, TRACES, *MORE, AGE)
PLAIN = Style()


def lanes_width(lanes: int) -> int:
    """Cells that a drawing of this many lanes takes, of LANES_MOST at most."""
    return min(2 * lanes - 1, LANES_MOST)


def fit(width: int, lanes: int, noted: bool = False) -> list[Column]:
    """The columns that a line of `width` cells has room for, in order; always the name.

    `noted` says whether there is any note to show.
    """
    room = width - MARKS - lanes_width(lanes)
    kept: list[Column] = []
    offered = [column for column in COLUMNS if noted or column is not NOTE]
    for column in sorted(offered, key=lambda column: column.rank):
        room -= GAP + column.width
        if room < 0 and kept:
            break
        kept.append(column)
    return [column for column in COLUMNS if column in kept]


def cell(
    column: Column, tree: Tree, position: int, now: float, top: float, dim: Style
) -> list[Segment]:
    """What a column says of a checkpoint, at the column's width.

    Args:
        now: Unix seconds, for its age.
        top: The reward that is drawn brightest.
        dim: The style of what matters less.
    """
    node = tree[position]
    if column is REWARD:
        return reward_cell(tree.reward(position), top, dim)
    if column is DELTA:
        delta = tree.delta(position)
        better = delta is not None and delta > 0
        return [Segment(column.pad(signed(delta)), PLAIN if better else dim)]
    if column is NAME:
        return [Segment(column.pad(one_line(label(node), 40)))]
    if column is HELDOUT:
        return [Segment(column.pad(short(tree.own(position).heldout)), dim)]
    if column.key:
        return [Segment(column.pad(short(_metric(column.key, tree, position))), dim)]
    text = {
        LOSS.title: one_line(node.loss_fn or "–", 40),
        RATE.title: short(node.learning_rate),
        TRACES.title: "–" if node.num_traces is None else str(node.num_traces),
        AGE.title: age(node.created_at, now),
    }[column.title]
    return [Segment(column.pad(text), dim)]


def _metric(key: str, tree: Tree, position: int) -> float | None:
    """A checkpoint's own, where the metric tells of weights; else its step's."""
    if of_weights(key):
        return own_metric(tree.steps(position), key)
    return tree[position].metrics.get(key)


def reward_cell(reward: float | None, top: float, dim: Style) -> list[Segment]:
    """A reward behind a bar whose height and colour say the same, REWARD.width cells."""
    if reward is None or reward != reward:
        return [Segment(REWARD.pad("–"), dim)]
    bar = Segment(eighth(max(reward, 1e-6) / top), reward_style(reward, 0.0, top))
    return [bar, Segment(f"{short(reward):>{REWARD.width - 1}}", PLAIN)]


def spark(values: Sequence[float], top: float) -> list[Segment]:
    """Rewards as a row of bars, one cell each, in the colours of the ramp; NaN is a gap."""
    return [
        Segment(eighth(max(value, 1e-6) / top), reward_style(value, 0.0, top))
        if value == value
        else Segment(EIGHTHS[0])
        for value in values
    ]
