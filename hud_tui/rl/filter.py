"""A filter typed by hand: words of a name, and comparisons such as ``reward>.6``.

Terms are separated by spaces and all must hold; ``!`` before one inverts it:

    step-0001          the name or the id contains it
    reward>=.6         a number: reward, step, lr, traces, datums, tokens, or a metric
    kl<.01             a metric whose key contains it
    step:100..200      a range, both ends included; either end may be left out
    loss:ppo           a text contains it: loss, job, name, id, state, note; = does too
    is:pinned          pinned, noted, alarm, expired, damaged, weights, head
"""

import operator
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from hud_tui.errors import HudUsage
from hud_tui.rl.series import metrics_of
from hud_tui.rl.text import one_line
from hud_tui.wire import Checkpoint

Predicate = Callable[[Checkpoint], bool]

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
    "reward": "mean_reward",
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
TRAITS: Mapping[str, Predicate] = {
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
class Own:
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
    own = Own(notes or {}, onsets)
    terms = [_term(word, metrics, own) for word in expression.split()]
    return lambda checkpoint: all(term(checkpoint) for term in terms)


def _term(word: str, metrics: Collection[str] | None, own: Own) -> Predicate:
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
        return _trait(word, value.casefold(), invert != (compare == "!="), own)
    if key in TEXTS or key == NOTE:
        return _text(word, key, compare, value.casefold(), invert, own)
    known = metrics is None or key in NUMBERS or any(key in name.casefold() for name in metrics)
    if not known:
        raise _unknown(word, key, metrics or ())
    if compare in (":", "=") and ".." in value:
        return _range(word, key, value, invert)
    return _number(word, key, compare, value, invert)


def _word(wanted: str, invert: bool) -> Predicate:
    wanted = wanted.casefold()
    return lambda c: (wanted in f"{c.name or ''} {c.id}".casefold()) != invert


def _trait(word: str, value: str, invert: bool, own: Own) -> Predicate:
    ids = {"noted": own.notes, "alarm": own.onsets}.get(value)
    if ids is not None:
        return lambda c: (c.id in ids) != invert
    if value not in TRAITS:
        there = ", ".join(sorted([*TRAITS, "alarm", "noted"]))
        raise HudUsage(f"{one_line(word, 40)}: unknown", f"there are {there}")
    trait = TRAITS[value]
    return lambda c: trait(c) != invert


def _text(word: str, key: str, compare: str, value: str, invert: bool, own: Own) -> Predicate:
    if compare not in (":", "=", "==", "!="):
        raise HudUsage(f"{one_line(word, 40)}: {key} is text", "compare it with : or !=")
    absent = invert != (compare == "!=")
    if key == NOTE:
        return lambda c: (value in own.notes.get(c.id, "").casefold()) != absent
    field = TEXTS[key]
    return lambda c: (value in str(getattr(c, field) or "").casefold()) != absent


def _number(word: str, key: str, compare: str, value: str, invert: bool) -> Predicate:
    bound, test = _float(word, value), COMPARE[compare]

    def holds(checkpoint: Checkpoint) -> bool:
        number = _value(checkpoint, key)
        return number is not None and test(number, bound) != invert

    return holds


def _range(word: str, key: str, value: str, invert: bool) -> Predicate:
    first, _, last = value.partition("..")
    if not first and not last:
        raise HudUsage(f"{one_line(word, 40)}: a range needs an end", f"as in {_RANGE}")
    low = _float(word, first) if first else float("-inf")
    high = _float(word, last) if last else float("inf")

    def holds(checkpoint: Checkpoint) -> bool:
        number = _value(checkpoint, key)
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

    there = [*NUMBERS, *TEXTS, *sorted(metrics)]
    return HudUsage(
        f"{one_line(word, 40)}: no checkpoint has {one_line(key, 20)}", close_names(key, there)
    )


def _value(checkpoint: Checkpoint, key: str) -> float | None:
    """A field or metric by the name that a person types; None where there is none."""
    if key in NUMBERS:
        value = getattr(checkpoint, NUMBERS[key])
        return None if value is None else float(value)
    metrics = metrics_of(checkpoint)
    if key in metrics:
        return metrics[key]
    return next((value for name, value in metrics.items() if key in name.casefold()), None)
