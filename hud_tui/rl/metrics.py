"""What the metrics are called, what they mean, and how their numbers are written.

Keys are an open set: any key that arrives is drawn, known or not.
"""

from dataclasses import dataclass
from math import isfinite, isinf


@dataclass(frozen=True)
class Metric:
    """One metric of a training step."""

    key: str
    title: str
    meaning: str
    better: int = 0
    """1 where higher is better, −1 where lower is, 0 where neither."""


_TABLE = (
    Metric("reward_mean", "mean reward", "Mean over the step's rollouts.", 1),
    Metric("heldout_reward", "held-out reward", "Mean on tasks that are never trained on.", 1),
    Metric("reward_std", "reward spread", "Standard deviation over the step's rollouts."),
    Metric("reward_min", "reward min", "Lowest reward of the step."),
    Metric("reward_max", "reward max", "Highest reward of the step."),
    Metric("loss:sum", "loss", "Sum over tokens; in GRPO not a sign of progress."),
    Metric(
        "kl_sample_train",
        "kl sample-train",
        "Nats a token between the policy that sampled and the one trained; healthy below .01.",
        -1,
    ),
    Metric("ratio_max", "ratio max", "Largest importance ratio of a token; 1 is on-policy."),
    Metric(
        "clip_fraction",
        "clip frac",
        "Share of ratios beyond the loss's clip bounds; healthy .05–.15.",
    ),
    Metric("entropy", "entropy", "Nats a token; falling towards 0 means exploring no more."),
    Metric("grad_norm", "grad norm", "Euclidean norm of the accumulated gradient."),
    Metric("learning_rate", "learning rate", "Adam's step size."),
    Metric(
        "frac_groups_zero_spread",
        "zero-spread",
        "Share of groups whose rewards are all equal: they teach nothing.",
        -1,
    ),
    Metric("frac_groups_all_good", "all good", "Share of groups solved every time: too easy."),
    Metric("frac_groups_all_bad", "all bad", "Share of groups never solved: too hard."),
    Metric("completion_length_mean", "length mean", "Generated tokens a rollout."),
    Metric("completion_length_max", "length max", "Longest rollout of the step, in tokens."),
    Metric("truncated_share", "truncated", "Share of rollouts cut off at max_tokens.", -1),
    Metric("sampling_logprob_mean", "sampling logprob", "Mean logprob of the sampled tokens."),
    Metric("tokens", "tokens", "Tokens trained on in the step."),
    Metric("tokens_per_s", "tokens/s", "Generated tokens a second while sampling.", 1),
    Metric("rollout_s", "rollout s", "Seconds the step spent on rollouts."),
    Metric("train_s", "train s", "Seconds the step spent on training."),
    Metric("num_traces", "traces", "Rollouts of the step."),
    Metric("num_datums", "datums", "Turns that carried a gradient."),
    Metric("num_tokens", "tokens", "Generated tokens of the step."),
)
METRICS = {metric.key: metric for metric in _TABLE}
ORDER = {key: rank for rank, key in enumerate(METRICS)}


def metric(key: str) -> Metric:
    """What is known of a key; an unknown one is its own title."""
    return METRICS.get(key) or Metric(key, key, "A metric of the service's own.")


def ranked(keys: list[str]) -> list[str]:
    """Known metrics first, in the table's order; then the others as they arrived."""
    return sorted(keys, key=lambda key: ORDER.get(key, len(ORDER)))


def short(value: float | None) -> str:
    """A number in at most 6 characters, e.g. ``.847``, ``1.21``, ``41k``, ``3.1e-4``."""
    if value is None or value != value:
        return "–"
    if isinf(value):
        return "∞" if value > 0 else "-∞"
    size = abs(value)
    if size >= 1000:
        return _thousands(value)
    if size >= 100 or value == int(value):
        return f"{value:.0f}"
    if size >= 10:
        return f"{value:.1f}"
    if size >= 0.9995:
        return f"{value:.2f}"
    if size >= 0.01:
        return f"{value:.3f}".replace("0.", ".", 1)
    return f"{value:.1e}".replace("e-0", "e-").replace(".0e", "e")


def signed(value: float | None) -> str:
    """A change with its sign and arrow first, e.g. ``▲+.021``."""
    if value is None or not isfinite(value):
        return ""
    if value == 0:
        return "=0"
    return f"{'▲+' if value > 0 else '▼-'}{short(abs(value))}"


def _thousands(value: float) -> str:
    if abs(value) >= 1e15:
        return f"{value:.0e}".replace("e+", "e")
    for suffix, unit in (("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if abs(value) >= unit:
            scaled = value / unit
            return f"{scaled:.0f}{suffix}" if abs(scaled) >= 10 else f"{scaled:.1f}{suffix}"
    return f"{value:.0f}"
