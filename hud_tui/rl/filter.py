"""A filter typed by hand: words of a name, and comparisons such as ``reward>.6``.

Terms are separated by spaces and all must hold; ``!`` before one inverts it:

    step-0001          the name or the id contains it
    reward>=.6         a number: reward, sampled, step, lr, traces, datums, tokens, or a metric
    kl<.01             a metric whose key contains it
    step_reward>.6     the same of the step that made it, not of its own rollouts
    step:100..200      a range, both ends included; either end may be left out
    loss:ppo           a text contains it: loss, job, name, id, state, note; = does too
    is:pinned          pinned, noted, alarm, expired, damaged, weights, head

What tells of weights (reward, heldout, entropy, kl …) is the checkpoint's own, see
`hud_tui.rl.own_numbers`; one that nobody sampled yet has none and does not match.
"""

import operator
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from hud_tui.errors import HudUsage
from hud_tui.rl.checkpoint_tree import Tree
from hud_tui.rl.metrics import metrics_of, of_weights
from hud_tui.rl.own_numbers import HELDOUT, REWARD, Own
from hud_tui.rl.text import one_line
from hud_tui.wire import Checkpoint

Predicate = Callable[[Tree, int], bool]
"""Whether a filter lets through the checkpoint of a tree at a position."""
Test = Callable[[Checkpoint], bool]

COMPARE: Mapping[str, Callable[[float, float], bool]] = {
    "<=": operator.le,
    ">=": operator.ge,
    "!=": operator.ne,
    "=": operator.eq,
    "==": operator.eq,
    ":": operator.eq,
    "<": operator.lt,
    ">": operator.gt,
}
NUMBERS = {
    "step": "step",
    "lr": "learning_rate",
    "traces": "num_traces",
    "datums": "num_datums",
    "tokens": "num_tokens",
}
TEXTS = {
    "loss": "loss_fn",
    "loss_fn": "loss_fn",
    "job": "job_id",
    "name": "name",
    "id": "id",
    "state": "state",
}
NOTE = "note"
IS = "is"
OWN_NUMBERS: Mapping[str, Callable[[Own], float | None]] = {
    "reward": lambda own: own.reward,
    "heldout": lambda own: own.heldout,
    HELDOUT: lambda own: own.heldout,
    "sampled": lambda own: own.sampled,
}
STEP = "step_"
"""Before a metric's name: as the step that made the checkpoint reports it."""
TRAITS: Mapping[str, Test] = {
    "pinned": lambda c: c.pinned,
    "head": lambda c: c.is_active,
    "expired": lambda c: c.state == "expired",
    "damaged": lambda c: c.state == "damaged",
    "weights": lambda c: c.state == "weights",
}
_TERM = re.compile(r"(!?)([^\s<>=!:]*)(<=|>=|!=|==?|<|>|:)(\S*)")
_RANGE = "step:100..200"
_EXAMPLE = "as in reward>.6"


@dataclass(frozen=True)
class Beside:
    """What is known of checkpoints beside what the service says, by their ids."""

    notes: Mapping[str, str]
    onsets: Collection[str]


def parse(
    expression: str,
    metrics: Collection[str] | None = None,
    notes: Mapping[str, str] | None = None,
    onsets: Collection[str] = (),
) -> Predicate:
    """Read a filter.

    Args:
        expression: What was typed.
        metrics: Keys that the tree has, to tell a misspelt one; None to let any pass.
        notes: Notes by the checkpoint's id.
        onsets: Ids of the checkpoints that alarms began with.

    Raises:
        HudUsage: A term that says nothing; the message shows it.
    """
    beside = Beside(notes or {}, onsets)
    terms = [_term(word, metrics, beside) for word in expression.split()]
    return lambda tree, position: all(term(tree, position) for term in terms)


def _term(word: str, metrics: Collection[str] | None, beside: Beside) -> Predicate:
    if word.startswith('"'):
        return _word(word.strip('"'), False)
    match = _TERM.match(word)
    if match is None:
        return _word(word.removeprefix("!"), word.startswith("!"))
    invert, key, compare, value = bool(match[1]), match[2].casefold(), match[3], match[4]
    if not key or not value:
        missing = "a name before it is missing" if not key else "what to compare with is missing"
        raise HudUsage(f"{one_line(word, 40)}: {missing}", _EXAMPLE)
    if key == IS:
        return _trait(word, value.casefold(), invert != (compare == "!="), beside)
    if key in TEXTS or key == NOTE:
        return _text(word, key, compare, value.casefold(), invert, beside)
    if metrics is not None and not _is_number(key, metrics):
        raise _unknown(word, key, metrics or ())
    if compare in (":", "=") and ".." in value:
        return _range(word, key, value, invert)
    return _number(word, key, compare, value, invert)


def _is_number(key: str, metrics: Collection[str]) -> bool:
    """Whether a checkpoint can have such a number."""
    name = key.removeprefix(STEP)
    known = (*NUMBERS, *OWN_NUMBERS)
    return name in known or any(name in metric.casefold() for metric in metrics)


def _of_node(test: Test) -> Predicate:
    return lambda tree, position: test(tree[position])


def _word(wanted: str, invert: bool) -> Predicate:
    wanted = wanted.casefold()
    return _of_node(lambda c: (wanted in f"{c.name or ''} {c.id}".casefold()) != invert)


def _trait(word: str, value: str, invert: bool, beside: Beside) -> Predicate:
    ids = {"noted": beside.notes, "alarm": beside.onsets}.get(value)
    if ids is not None:
        return _of_node(lambda c: (c.id in ids) != invert)
    if value not in TRAITS:
        there = ", ".join(sorted([*TRAITS, "alarm", "noted"]))
        raise HudUsage(f"{one_line(word, 40)}: unknown", f"there are {there}")
    trait = TRAITS[value]
    return _of_node(lambda c: trait(c) != invert)


def _text(word: str, key: str, compare: str, value: str, invert: bool, beside: Beside) -> Predicate:
    if compare not in (":", "=", "==", "!="):
        raise HudUsage(f"{one_line(word, 40)}: {key} is text", "compare it with : or !=")
    absent = invert != (compare == "!=")
    if key == NOTE:
        return _of_node(lambda c: (value in beside.notes.get(c.id, "").casefold()) != absent)
    field = TEXTS[key]
    return _of_node(lambda c: (value in str(getattr(c, field) or "").casefold()) != absent)


def _number(word: str, key: str, compare: str, value: str, invert: bool) -> Predicate:
    bound, test = _float(word, value), COMPARE[compare]

    def holds(tree: Tree, position: int) -> bool:
        number = _value(tree, position, key)
        return number is not None and test(number, bound) != invert

    return holds


def _range(word: str, key: str, value: str, invert: bool) -> Predicate:
    first, _, last = value.partition("..")
    if not first and not last:
        raise HudUsage(f"{one_line(word, 40)}: a range needs an end", f"as in {_RANGE}")
    low = _float(word, first) if first else float("-inf")
    high = _float(word, last) if last else float("inf")

    def holds(tree: Tree, position: int) -> bool:
        number = _value(tree, position, key)
        return number is not None and (low <= number <= high) != invert

    return holds


def _float(word: str, value: str) -> float:
    try:
        return float(value)
    except ValueError as error:
        raise HudUsage(
            f"{one_line(word, 40)}: {one_line(value, 20)} is not a number", _EXAMPLE
        ) from error


def _unknown(word: str, key: str, metrics: Collection[str]) -> HudUsage:
    from hud_tui.rl.names import close_names  # only a mistake needs it

    there = [*OWN_NUMBERS, *NUMBERS, *TEXTS, *sorted(metrics)]
    return HudUsage(
        f"{one_line(word, 40)}: no checkpoint has {one_line(key, 20)}", close_names(key, there)
    )


def _value(tree: Tree, position: int, key: str) -> float | None:
    """A number by the name that a person types; None where there is none."""
    node = tree[position]
    if key in NUMBERS:
        value = getattr(node, NUMBERS[key])
        return None if value is None else float(value)
    if key in OWN_NUMBERS:
        return OWN_NUMBERS[key](tree.own(position))
    step = metrics_of(node)
    if key.startswith(STEP):
        name = key.removeprefix(STEP)
        return _named(step, REWARD if name == "reward" else name)
    told = {metric: value for metric, value in step.items() if not of_weights(metric)}
    return _named({**tree.own_metrics(position), **told}, key)


def _named(metrics: Mapping[str, float], key: str) -> float | None:
    """The metric of this name, else the first whose name has it."""
    if key in metrics:
        return metrics[key]
    return next((value for name, value in metrics.items() if key in name.casefold()), None)
