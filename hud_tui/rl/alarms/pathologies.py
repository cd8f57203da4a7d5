"""Pathologies: runs that go wrong in ways that have names, as curves.

Each is healthy until its onset, and trips the detectors that it names.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from hud_tui.rl.alarms import faults
from hud_tui.rl.alarms.curves import STEP_S, healthy
from hud_tui.rl.alarms.rows import Row

Curves = Callable[[int], Mapping[str, float]]
"""A step, from 1, to what differs from a healthy run in it; NaN where that is meant."""
BEGAN = 1_780_000_000.0
"""When the runs begin, Unix seconds."""


@dataclass(frozen=True)
class Pathology:
    """One way to go wrong."""

    name: str
    about: str
    """What happens, in a sentence."""
    trips: tuple[str, ...]
    """The detectors that must go off; others may follow."""
    onset: int
    """The step at which it begins."""
    differs: Curves
    steps: int = 300
    silent_from: int | None = None
    """The step after which nothing comes any more."""

    def metrics(self, step: int) -> dict[str, float]:
        """A step's metrics, from 1."""
        return healthy(step) | dict(self.differs(step))

    def rows(self, steps: int | None = None) -> list[Row]:
        """The run as detectors read it."""
        count = steps or self.steps
        return [row(step, self.metrics(step)) for step in range(1, count + 1)]


def row(step: int, metrics: Mapping[str, float]) -> Row:
    return Row(step - 1, metrics, step, f"c{step}", BEGAN + step * STEP_S)


_ALL = (
    Pathology(
        "entropy-collapse",
        "Entropy falls to nothing and the reward stands still.",
        ("entropy_collapse",),
        150,
        faults.entropy_collapse,
    ),
    Pathology(
        "zero-spread",
        "More and more groups are never solved, so they teach nothing.",
        ("zero_spread",),
        120,
        faults.zero_spread,
    ),
    Pathology(
        "saturation",
        "Nearly all groups are solved every time.",
        ("zero_spread",),
        100,
        faults.saturation,
    ),
    Pathology(
        "kl-blowup",
        "The policy runs away from its reference.",
        ("kl_reference",),
        140,
        faults.kl_blow_up,
    ),
    Pathology(
        "off-policy",
        "Rollouts grow stale, ratios drift, and the clip cuts most of them.",
        ("kl_sampler", "staleness", "clip_fraction"),
        130,
        faults.off_policy,
    ),
    Pathology(
        "length-hack",
        "Rollouts grow because length is paid, until they are cut off.",
        ("length_blow_up", "truncation"),
        110,
        faults.length_hack,
    ),
    Pathology(
        "reward-hacking",
        "The training reward rises while the held-out reward falls.",
        ("heldout_gap",),
        130,
        faults.reward_hacking,
    ),
    Pathology(
        "gradient-explosion",
        "The gradient doubles every step or two, and the reward with it falls.",
        ("grad_norm",),
        170,
        faults.gradient_explosion,
    ),
    Pathology(
        "nan-loss", "The loss becomes NaN.", ("non_finite", "grad_norm"), 179, faults.nan_loss
    ),
    Pathology(
        "dead-reward",
        "Every rollout gets 0 from one step on: the grader is broken.",
        ("zero_spread", "zero_gradient", "reward_collapse"),
        100,
        faults.dead_reward,
    ),
    Pathology(
        "forgetting",
        "What is not trained on is forgotten.",
        ("heldout_collapse",),
        150,
        faults.forgetting,
    ),
    Pathology(
        "reward-collapse",
        "The reward falls back to where it began.",
        ("reward_collapse",),
        180,
        faults.reward_collapse,
    ),
    Pathology(
        "format-dominates",
        "The format bonus is most of what tells rollouts apart.",
        ("component_dominance",),
        1,
        faults.format_dominates,
    ),
    Pathology(
        "broken-environment",
        "Rollouts end in errors.",
        ("errored_rollouts",),
        140,
        faults.broken_environment,
    ),
    Pathology("plateau", "The reward stands still early.", ("reward_plateau",), 60, faults.plateau),
    Pathology(
        "slow-steps", "Steps take three times as long.", ("throughput",), 150, faults.slow_steps
    ),
    Pathology(
        "stall",
        "A run that is said to run says nothing any more.",
        ("stall",),
        200,
        lambda step: {},
        silent_from=200,
    ),
)
PATHOLOGIES = {pathology.name: pathology for pathology in _ALL}
HEALTHY = Pathology("healthy", "A run that goes well.", (), 1, lambda step: {})
