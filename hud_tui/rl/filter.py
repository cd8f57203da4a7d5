"""A filter typed by hand: words of a name, and comparisons such as ``reward>.6``.

Terms are separated by spaces and all must hold; ``!`` before one inverts it:

    step-0001          the name or the id contains it
    reward>=.6         a number: reward, step, lr, traces, datums, tokens, or a metric
    kl<.01             a metric whose key contains it
    loss=ppo           a text: loss, job, name, id; = contains, != does not
"""

import operator
import re
from bisect import bisect_right
from collections.abc import Callable, Mapping

from hud_tui.errors import HudUsage
from hud_tui.rl.rows import Kind, Row
from hud_tui.rl.series import metrics_of
from hud_tui.rl.text import one_line
from hud_tui.rl.tree import Tree
from hud_tui.wire import Checkpoint

Predicate = Callable[[Checkpoint], bool]

COMPARE: Mapping[str, Callable[[float, float], bool]] = {
    "<=": operator.le,
    ">=": operator.ge,
    "!=": operator.ne,
    "=": operator.eq,
    "==": operator.eq,
    "<": operator.lt,
    ">": operator.gt,
}
NUMBERS = {
    "reward": "mean_reward",
    "step": "step",
    "lr": "learning_rate",
    "traces": "num_traces",
    "datums": "num_datums",
    "tokens": "num_tokens",
}
TEXTS = {"loss": "loss_fn", "loss_fn": "loss_fn", "job": "job_id", "name": "name", "id": "id"}
_TERM = re.compile(r"(!?)([^\s<>=!]+)(<=|>=|!=|==?|<|>)(\S+)")


def parse(expression: str) -> Predicate:
    """Read a filter.

    Raises:
        HudUsage: A comparison with what is not a number; the message shows the term.
    """
    terms = [_term(word) for word in expression.split()]
    return lambda checkpoint: all(term(checkpoint) for term in terms)


def _term(word: str) -> Predicate:
    match = _TERM.fullmatch(word)
    if match is None:
        invert, wanted = word.startswith("!"), word.removeprefix("!").casefold()
        return lambda c: (wanted in f"{c.name or ''} {c.id}".casefold()) != invert
    invert, key, compare, value = bool(match[1]), match[2].casefold(), match[3], match[4]
    if key in TEXTS:
        return _text(word, TEXTS[key], compare, value.casefold(), invert)
    return _number(word, key, compare, value, invert)


def _text(word: str, field: str, compare: str, value: str, invert: bool) -> Predicate:
    if compare not in ("=", "==", "!="):
        raise HudUsage(f"{one_line(word, 40)}: {field} is text", "compare it with = or !=")
    absent = invert != (compare == "!=")
    return lambda c: (value in str(getattr(c, field) or "").casefold()) != absent


def _number(word: str, key: str, compare: str, value: str, invert: bool) -> Predicate:
    try:
        bound = float(value)
    except ValueError as error:
        raise HudUsage(
            f"{one_line(word, 40)}: {one_line(value, 20)} is not a number", "as in reward>.6"
        ) from error
    test = COMPARE[compare]

    def holds(checkpoint: Checkpoint) -> bool:
        number = _value(checkpoint, key)
        return number is not None and test(number, bound) != invert

    return holds


def _value(checkpoint: Checkpoint, key: str) -> float | None:
    """A field or metric by the name that a person types; None where there is none."""
    if key in NUMBERS:
        value = getattr(checkpoint, NUMBERS[key])
        return None if value is None else float(value)
    metrics = metrics_of(checkpoint)
    if key in metrics:
        return metrics[key]
    return next((value for name, value in metrics.items() if key in name.casefold()), None)


class Matches:
    """The checkpoints that a filter lets through, as rows without lanes, newest first.

    It answers as `hud_tui.rl.lanes.Lanes` does; a step that is added is tested once.
    """

    def __init__(self, keep: Predicate) -> None:
        self.tree = Tree()
        self.keep = keep
        self._served: set[int] = set()
        self._found: list[int] = []

    def show(self, tree: Tree) -> None:
        """Follow the tree to a later version; it must extend the one shown."""
        for position in range(len(self.tree), len(tree)):
            if self.keep(tree[position]):
                self._found.append(position)
        if tree.head is not None and tree.parent(tree.head) == self.tree.head:
            self._served.add(tree.head)
        elif tree.head != self.tree.head:
            self._served = set(tree.lineage(tree.head))
        self.tree = tree

    def __len__(self) -> int:
        return len(self._found)

    def row(self, number: int) -> Row:
        """One row, numbered from 0 at the top.

        Raises:
            IndexError: There is no such row.
        """
        if not 0 <= number < len(self):
            raise IndexError(number)
        position = self._found[-1 - number]
        return Row(Kind.NODE, "●", (position in self._served,), position, position)

    def row_of(self, position: int) -> int:
        """The row of a checkpoint; of one that does not match, the next older one's, or 0."""
        rank = max(0, bisect_right(self._found, position) - 1)
        return max(0, len(self) - 1 - rank)

    def select(self, position: int | None) -> None:
        """Every row is shown already."""

    def unfold(self, number: int) -> bool:
        """There is nothing to unfold."""
        return False

    def fold(self, position: int) -> bool:
        """There is nothing to fold."""
        return False

    def unfold_all(self) -> None:
        """There is nothing to unfold."""

    def fold_all(self) -> None:
        """There is nothing to fold."""
