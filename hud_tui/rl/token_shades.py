"""How the tokens of an answer are shaded: by logprob, by ratio or by advantage.

Each token has a value in the measure's own unit and a place on the ramp, 0 … 1, which a
legend explains. A token whose value is not known has none.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import exp, log

SURE = 6.0
"""A logprob this far below 0, in nats, is as unlikely as the ramp shows."""
TWOFOLD = log(2.0)
"""Log of the ratio at the ramp's end: twice as likely now as when it was sampled."""


class Shade(StrEnum):
    """What tokens are shaded by."""

    LOGPROB = "logprob"
    RATIO = "ratio"
    ADVANTAGE = "advantage"


@dataclass(frozen=True)
class Shaded:
    """An answer's tokens, shaded."""

    by: Shade
    values: Sequence[float | None]
    """One a token: nats, a ratio, or a reward's unit."""
    places: Sequence[float | None]
    """Where each lies on the ramp, 0 … 1."""
    ends: tuple[str, str]
    """What the ramp's two ends stand for."""


def by_logprob(logprobs: Sequence[float]) -> Shaded:
    """How sure the policy was of each token when it sampled it."""
    places = [None if p != p else 1.0 - min(SURE, -min(0.0, p)) / SURE for p in logprobs]
    return Shaded(Shade.LOGPROB, logprobs, places, (f"-{SURE:.0f}", "0"))


def by_ratio(now: Sequence[float | None], sampled: Sequence[float]) -> Shaded:
    """How much likelier each token is under the policy of now than when it was sampled.

    Args:
        now: Logprobs by now, shape (T,); None where they are not known.
        sampled: Logprobs when it was sampled, shape (T,).
    """
    logs = [None if a is None or a != a or b != b else a - b for a, b in zip(now, sampled)]  # noqa: B905
    values = [None if each is None else exp(max(-50.0, min(50.0, each))) for each in logs]
    places = [
        None if each is None else 0.5 + max(-TWOFOLD, min(TWOFOLD, each)) / TWOFOLD / 2
        for each in logs
    ]
    return Shaded(Shade.RATIO, values, places, (".5", "2"))


def by_advantage(advantage: float | None, most: float, tokens: int) -> Shaded:
    """What each token is pushed by: its rollout's advantage, the same for all of them.

    Args:
        advantage: In the reward's unit; None where it is not trained on.
        most: The largest of the group by amount, at the ramp's ends.
        tokens: How many there are.
    """
    place = None if advantage is None or not most > 0 else 0.5 + advantage / most / 2
    ends = f"-{most:.2g}", f"+{most:.2g}"
    return Shaded(Shade.ADVANTAGE, [advantage] * tokens, [place] * tokens, ends)
