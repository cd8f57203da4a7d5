"""Filter expressions for checkpoints: words of a name, and comparisons such as ``reward>.6``.

Terms are separated by spaces and all must hold; ``!`` before one inverts it, and words in quotes
belong together:

    step-0001          the name or the id contains it
    reward>=.6         a number: reward, eval, sampled, step, lr, traces, datums, tokens, a metric
    kl<.01             a metric whose key contains it
    step_reward>.6     the reward of the step that made it, instead of its own
    step:100..200      a range, both ends included; either end may be left out
    loss:ppo           a text contains it: loss, job, name, id, state, note
    loss=ppo           a text is this, upper and lower case alike; != is any other
    is:pinned          pinned, noted, alarm, evaluated, expired, damaged, weights, head

The same grammar filters all lists. `Fields` describes what can be filtered by: `_fields` below for
checkpoints, `hud_tui.rl.run_columns` for runs.

Metrics of the weights (reward, heldout, entropy, kl …) are the checkpoint's own, see
`hud_tui.rl.own_numbers`; a checkpoint without rollouts has none and does not match.
"""

import operator
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, ParamSpec, TypeVar

from hud_tui.errors import HudUsage
from hud_tui.rl.checkpoint_tree import Tree
from hud_tui.rl.metrics import metrics_of, of_weights
from hud_tui.rl.names import close_names
from hud_tui.rl.own_numbers import HELDOUT, REWARD, Own
from hud_tui.rl.text import one_line
from hud_tui.wire import Checkpoint

V = TypeVar("V")
P = ParamSpec("P")
"""Arguments of a predicate: a run; or a tree and a position in it."""

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
UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0, "k": 1e3, "M": 1e6}
"""Suffixes of numbers: seconds, minutes, hours, days; thousands and millions."""
_TERM = re.compile(r"(!?)([^\s<>=!:]*)(<=|>=|!=|==?|<|>|:)(\"[^\"]*\"?|\S*)")
_TERMS = re.compile(r'!?[^\s<>=!:"]+(?:!?==?|:)"[^"]*"?|"[^"]*"?|[^\s"]\S*')
_EXAMPLE = "as in reward>.6"


@dataclass(frozen=True)
class Fields(Generic[P]):
    """What the items of one list can be filtered by."""

    thing: str
    """Word for one item, for errors: ``checkpoint``."""
    words: Callable[P, str]
    """The text that a bare word is searched in."""
    texts: Mapping[str, Callable[P, str]]
    """Text fields by name."""
    traits: Mapping[str, Callable[P, bool]]
    """Yes-or-no properties by name, for ``is:``."""
    number: Callable[[str], Callable[P, float | None] | None]
    """The getter of a number by name; None if no item has that number."""
    numbers: Sequence[str] = ()
    """Names of numbers, suggested for a misspelt one."""


def parse_terms(expression: str, fields: Fields[P]) -> Callable[P, bool]:
    """Parse a filter into a predicate.

    Raises:
        HudUsage: An invalid term; the message names it.
    """
    terms = [_term(word, fields) for word in terms_of(expression)]

    def holds(*args: P.args, **kwargs: P.kwargs) -> bool:
        return all(term(*args, **kwargs) for term in terms)

    return holds


def terms_of(expression: str) -> list[str]:
    """The terms of a filter: words, but what is in quotes belongs together."""
    return _TERMS.findall(expression)


def compared_name(term: str) -> str:
    """The name that a term compares, e.g. ``reward``; empty for a word to look for."""
    match = None if term.startswith('"') else _TERM.match(term)
    return "" if match is None else match[2].casefold()


def bare_words(expression: str) -> list[str]:
    """The words of a filter that texts are to contain."""
    words = (term for term in terms_of(expression) if not compared_name(term))
    return [word.strip('"') for word in words if not word.startswith("!")]


def _term(word: str, fields: Fields[P]) -> Callable[P, bool]:
    if word.startswith('"'):
        return _contains(fields.words, word.strip('"').casefold(), False)
    match = _TERM.match(word)
    if match is None:
        needle = word.removeprefix("!").casefold()
        return _contains(fields.words, needle, word.startswith("!"))
    invert, key, compare, value = bool(match[1]), match[2].casefold(), match[3], match[4].strip('"')
    if not key or not value:
        missing = "no name before the operator" if not key else "no value after the operator"
        raise HudUsage(f"{one_line(word, 40)}: {missing}", _EXAMPLE)
    if key == "is":
        trait = fields.traits.get(value.casefold())
        if trait is None:
            hint = f"there are {', '.join(sorted(fields.traits))}"
            raise HudUsage(f"{one_line(word, 40)}: unknown", hint)
        return _holds(trait, bool, invert != (compare == "!="))
    if key in fields.texts:
        if compare not in (":", "=", "==", "!="):
            raise HudUsage(f"{one_line(word, 40)}: {key} is text", "compare it with :, = or !=")
        if compare == ":":
            return _contains(fields.texts[key], value.casefold(), invert)
        whole = value.casefold()
        is_other = invert != (compare == "!=")
        return _holds(fields.texts[key], lambda actual: actual.casefold() == whole, is_other)
    number = fields.number(key)
    if number is None:
        message = f"{one_line(word, 40)}: no {fields.thing} has {one_line(key, 20)}"
        raise HudUsage(message, close_names(key, [*fields.numbers, *fields.texts]))
    if compare in (":", "=") and ".." in value:
        return _holds(number, _range_test(word, value), invert)
    bound, compares = _float(word, value), COMPARE[compare]
    return _holds(number, lambda actual: compares(actual, bound), invert)


def _holds(
    value: Callable[P, V | None], test: Callable[[V], bool], invert: bool
) -> Callable[P, bool]:
    """Whether the value of an item passes a test; an item without the value never does."""

    def holds(*args: P.args, **kwargs: P.kwargs) -> bool:
        actual = value(*args, **kwargs)
        return actual is not None and test(actual) != invert

    return holds


def _contains(text: Callable[P, str], needle: str, invert: bool) -> Callable[P, bool]:
    return _holds(text, lambda actual: needle in actual.casefold(), invert)


def _range_test(word: str, value: str) -> Callable[[float], bool]:
    first, _, last = value.partition("..")
    if not first and not last:
        raise HudUsage(f"{one_line(word, 40)}: a range needs an end", "as in step:100..200")
    low = _float(word, first) if first else float("-inf")
    high = _float(word, last) if last else float("inf")
    return lambda actual: low <= actual <= high


def _float(word: str, value: str) -> float:
    unit = UNITS.get(value[-1:], 1.0)
    try:
        return float(value[:-1] if value[-1:] in UNITS else value) * unit
    except ValueError as error:
        raise HudUsage(
            f"{one_line(word, 40)}: {one_line(value, 20)} is not a number", _EXAMPLE
        ) from error


# Checkpoints of a tree.


Predicate = Callable[[Tree, int], bool]
"""Whether a filter accepts the checkpoint at a position of a tree."""
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
OWN_NUMBERS: Mapping[str, Callable[[Own], float | None]] = {
    "reward": lambda own: own.reward,
    "heldout": lambda own: own.heldout,
    HELDOUT: lambda own: own.heldout,
    "sampled": lambda own: own.sampled,
}
STEP = "step_"
"""Prefix of a metric's name for its value in the step that made the checkpoint."""
TRAITS: Mapping[str, Callable[[Checkpoint], bool]] = {
    "pinned": lambda c: c.pinned,
    "expired": lambda c: c.state == "expired",
    "damaged": lambda c: c.state == "damaged",
    "weights": lambda c: c.state == "weights",
    "evaluated": lambda c: bool(c.evaluations),
}
EVALUATION = "eval"
"""Name of the mean reward of a checkpoint's held-out evaluation."""


def parse(
    expression: str,
    metrics: Collection[str] | None = None,
    notes: Mapping[str, str] | None = None,
    onsets: Collection[str] = (),
) -> Predicate:
    """Parse a filter of checkpoints.

    Args:
        metrics: Known metric keys, to reject misspelt ones; None accepts any.
        onsets: Ids of the checkpoints at which alarms began.

    Raises:
        HudUsage: An invalid term; the message names it.
    """
    return parse_terms(expression, _fields(metrics, notes or {}, onsets))


def _fields(
    metrics: Collection[str] | None, notes: Mapping[str, str], onsets: Collection[str]
) -> Fields[[Tree, int]]:
    def text(field: str) -> Callable[[Tree, int], str]:
        return lambda tree, position: str(getattr(tree[position], field) or "")

    def trait(test: Callable[[Checkpoint], bool]) -> Callable[[Tree, int], bool]:
        return lambda tree, position: test(tree[position])

    def number(key: str) -> Callable[[Tree, int], float | None] | None:
        if metrics is not None and not _is_number(key, metrics):
            return None
        return lambda tree, position: _value(tree, position, key)

    traits = {name: trait(test) for name, test in TRAITS.items()}
    traits |= {"noted": trait(lambda c: c.id in notes), "alarm": trait(lambda c: c.id in onsets)}
    traits["head"] = lambda tree, position: position == tree.head
    texts = {name: text(field) for name, field in TEXTS.items()}
    texts["note"] = lambda tree, position: notes.get(tree[position].id, "")
    return Fields(
        "checkpoint",
        lambda tree, position: f"{tree[position].name or ''} {tree[position].id}",
        texts,
        traits,
        number,
        [*OWN_NUMBERS, EVALUATION, *NUMBERS, *sorted(metrics or ())],
    )


def _is_number(key: str, metrics: Collection[str]) -> bool:
    """Whether a checkpoint can have a number of this name."""
    name = key.removeprefix(STEP)
    numbers = (*NUMBERS, *OWN_NUMBERS, EVALUATION)
    return name in numbers or any(name in metric.casefold() for metric in metrics)


def _value(tree: Tree, position: int, key: str) -> float | None:
    """A number by its name in a filter; None if the checkpoint does not have it."""
    node = tree[position]
    if key in NUMBERS:
        value = getattr(node, NUMBERS[key])
        return None if value is None else float(value)
    if key == EVALUATION:
        evaluation = tree.evaluation(position)
        return None if evaluation is None else evaluation.mean_reward
    if key in OWN_NUMBERS:
        return OWN_NUMBERS[key](tree.own(position))
    step = metrics_of(node)
    if key.startswith(STEP):
        name = key.removeprefix(STEP)
        return _named(step, REWARD if name == "reward" else name)
    reported = {metric: value for metric, value in step.items() if not of_weights(metric)}
    return _named({**tree.own_metrics(position), **reported}, key)


def _named(metrics: Mapping[str, float], key: str) -> float | None:
    """The metric of this name, else the first whose name contains it."""
    if key in metrics:
        return metrics[key]
    return next((value for name, value in metrics.items() if key in name.casefold()), None)
