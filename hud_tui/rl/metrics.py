"""Metrics: names, meanings, units, order on the screen, and values in columns.

Keys are an open set: any key that arrives is drawn, known or not.
"""

import re
from array import array
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from math import inf, isclose, isfinite, isinf, nan

from hud_tui.wire import Checkpoint, Estimate

# Every known metric: title, meaning, healthy range, and its names in other trainers.
#
# Source of the names: the documentation and code of TRL (`grpo_trainer.py`), verl
# (`metric_utils.py`), tinker-cookbook, prime-rl and OpenRLHF. Of the ranges: tinker-cookbook
# and prime-rl for the KL between sampler and trainer, TRL and prime-rl for zero-variance
# groups, common practice for the rest.


@dataclass(frozen=True)
class Metric:
    key: str
    """Canonical key: the embedded service's name for it."""
    title: str
    meaning: str
    better: int = 0
    """1 if higher is better, −1 if lower is, 0 if neither."""
    names: tuple[str, ...] = ()
    """Names in other trainers; if a step reports several of them, the first wins."""
    healthy: tuple[float, float] | None = None
    """Lowest and highest healthy value; None if unknown."""


TABLE = (
    Metric(
        "reward_mean", "mean reward",
        "Mean over the step's rollouts, sampled before its update.", 1,
        ("reward", "critic/score/mean", "critic/rewards/mean", "env/all/reward/total", "return"),
    ),
    Metric(
        "heldout_reward", "held-out reward",
        "The run's own mean on tasks that are never trained on, sampled before the update.", 1,
        ("eval_reward", "test/env/all/reward/total", "eval/reward/mean"),
    ),
    Metric("reward_std", "reward std", "Standard deviation over the step's rollouts."),
    Metric(
        "reward_min", "min reward", "Lowest reward of the step.", 0,
        ("critic/score/min", "critic/rewards/min"),
    ),
    Metric(
        "reward_max", "max reward", "Highest reward of the step.", 0,
        ("critic/score/max", "critic/rewards/max"),
    ),
    Metric(
        "loss:sum", "loss", "Sum over tokens; in GRPO not a sign of progress.", 0,
        ("loss", "policy_loss", "actor/pg_loss", "loss/mean"),
    ),
    Metric(
        "kl_sample_train", "KL (sampler ‖ trainer)",
        "Nats per token between sampling and trained policy at the update, over all sampled tokens"
        " (in a training loop of your own: all tokens sent); healthy below .01.", -1,
        ("optim/kl_sample_train_v1", "kl_sample_train_v1", "mismatch_kl/all/mean",
         "sampling/sampling_logp_difference/mean", "actor/ppo_kl", "ppo_kl", "vllm_kl"),
        (-0.01, 0.01),
    ),
    Metric(
        "kl_reference", "KL to reference",
        "Nats per token from the reference policy; healthy below .5.", -1,
        ("kl", "actor/kl_loss", "kl_policy_base", "ref_kl/mean"), (-0.5, 0.5),
    ),
    Metric(
        "ratio_max", "max ratio",
        "Largest importance ratio of a sampled token at the update; 1 is on-policy.", 0,
        ("sampling/importance_sampling_ratio/max",),
    ),
    Metric(
        "clip_fraction", "clip fraction",
        "Share of sampled tokens that the loss clips at the update: ppo drops the gradient of those"
        " whose importance ratio left the bounds on the advantage's side; healthy below .2.", 0,
        ("clip_ratio/region_mean", "actor/pg_clipfrac", "ppo_clip_ratio"), (0.0, 0.2),
    ),
    Metric(
        "ratio_outside", "ratios outside",
        "Share of sampled tokens whose importance ratio is outside the loss's clip bounds at the"
        " update (outside .8 – 1.2 if the loss does not clip), on either side; healthy below .2.",
        0,
        (), (0.0, 0.2),
    ),
    Metric(
        "clip_fraction_low", "clip fraction low", "Share of ratios below the lower bound.", 0,
        ("clip_ratio/low_mean", "actor/pg_clipfrac_lower"),
    ),
    Metric(
        "clip_fraction_high", "clip fraction high", "Share of ratios above the upper bound.", 0,
        ("clip_ratio/high_mean",),
    ),
    Metric(
        "entropy", "entropy",
        "Nats per token of the policy before the step, over all sampled tokens (in a training loop"
        " of your own: all tokens sent); near 0: no exploration. On tinker: mean of −logprob.", 0,
        ("optim/entropy", "actor/entropy", "entropy/all/mean", "entropy_loss"),
    ),
    Metric(
        "grad_norm", "grad norm", "Euclidean norm of the accumulated gradient.", 0,
        ("actor/grad_norm", "optim/grad_norm"),
    ),
    Metric(
        "learning_rate", "learning rate", "Adam's step size.", 0,
        ("actor/lr", "optim/lr", "actor_lr"),
    ),
    Metric(
        "frac_reward_zero_std", "zero-variance",
        "Share of groups whose rewards are all equal: no gradient; healthy below .5.", -1,
        (), (0.0, 0.5),
    ),
    Metric(
        "frac_groups_all_solved", "all solved", "Share of groups solved every time: too easy.", 0,
        ("env/all/by_group/frac_all_good",),
    ),
    Metric(
        "frac_groups_all_failed", "all failed", "Share of groups never solved: too hard.", 0,
        ("env/all/by_group/frac_all_bad",),
    ),
    Metric(
        "frac_groups_mixed", "mixed groups", "Share of groups whose rewards differ.", 1,
        ("env/all/by_group/frac_mixed", "is_trainable/mean"), (0.1, 1.0),
    ),
    Metric(
        "tasks_solved", "tasks solved",
        "Training tasks whose last groups were solved every time: nothing left to learn.", 1,
    ),
    Metric(
        "tasks_learnable", "tasks learnable",
        "Training tasks whose last groups have rewards that differ: they have a gradient.",
    ),
    Metric(
        "tasks_out_of_reach", "tasks out of reach",
        "Training tasks whose last groups were never solved, with equal rewards.", -1,
    ),
    Metric("tasks_unseen", "tasks unseen", "Training tasks that the run has not sampled yet."),
    Metric(
        "completion_length_mean", "mean length", "Generated tokens per rollout.", 0,
        ("completions/mean_length", "response_length/mean", "ac_tokens_per_turn",
         "num_total_tokens/mean", "response_length"),
    ),
    Metric(
        "completion_length_max", "max length", "Longest rollout of the step, in tokens.", 0,
        ("completions/max_length", "response_length/max"),
    ),
    Metric(
        "truncated_share", "truncated",
        "Share of rollouts cut off at max_tokens; healthy below .05.", -1,
        ("completions/clipped_ratio", "response_length/clip_ratio", "is_truncated/mean",
         "stop/length", "truncated"), (0.0, 0.05),
    ),
    Metric(
        "errored_share", "errored", "Share of rollouts that failed; healthy below .05.", -1,
        ("has_error/mean", "response/aborted_ratio"), (0.0, 0.05),
    ),
    Metric(
        "turns_mean", "turns", "Turns per rollout.", 0,
        ("num_turns/mean", "turns_per_episode"),
    ),
    Metric(
        "tool_calls_mean", "tool calls", "Tool calls per rollout.", 0,
        ("tools/call_frequency", "tool_call_counts/mean"),
    ),
    Metric(
        "tool_failures", "tool failures", "Share of tool calls that failed.", -1,
        ("tools/failure_frequency",),
    ),
    Metric(
        "staleness_mean", "staleness", "Steps between sampling and training; healthy up to 4.", -1,
        ("async/staleness_mean", "off_policy/mean"), (0.0, 4.0),
    ),
    Metric(
        "staleness_max", "max staleness", "Staleness of the oldest rollout; healthy up to 8.", -1,
        ("async/staleness_max", "off_policy/max"), (0.0, 8.0),
    ),
    Metric("sampling_logprob_mean", "mean logprob", "Mean logprob of the sampled tokens."),
    Metric("tokens", "tokens trained", "Tokens with a gradient in the step."),
    Metric(
        "trained/entropy", "trained entropy",
        "Entropy over the tokens with a gradient only; often few late in a run.",
    ),
    Metric(
        "trained/kl_sample_train", "trained KL",
        "KL between sampler and trainer over the tokens with a gradient only.", -1,
    ),
    Metric(
        "trained/ratio_max", "trained ratio max",
        "Largest importance ratio of a token with a gradient.",
    ),
    Metric(
        "trained/clip_fraction", "trained clip fraction",
        "Clip fraction over the tokens with a gradient only.",
    ),
    Metric(
        "trained/ratio_outside", "trained ratios outside",
        "Ratios outside over the tokens with a gradient only.",
    ),
    Metric(
        "tokens_per_s", "tokens/s", "Generated tokens per second while sampling.", 1,
        ("perf/throughput",),
    ),
    Metric(
        "step_s", "step time (s)", "Seconds of the whole step.", -1,
        ("step_time", "time/total", "time/step", "timing_s/step"),
    ),
    Metric(
        "rollout_s", "sampling time (s)", "Seconds the step spent on rollouts.", -1,
        ("timing_s/gen", "time/sampling_time_mean"),
    ),
    Metric("train_s", "training time (s)", "Seconds the step spent on training.", -1),
    Metric(
        "wait_share", "waiting",
        "Share of the step in which nothing of the loop's own was done; healthy below .5.", -1,
        ("time/wait_share",), (0.0, 0.5),
    ),
    Metric("mfu", "MFU", "Model FLOPs utilisation: share of the hardware's peak FLOP/s.", 1,
           ("perf/mfu/actor", "perf/mfu")),
    Metric("cost_usd", "cost ($)", "Cost of the step in US dollars.", -1, ("cost/step_usd",)),
    Metric(
        "cost_total_usd", "total cost ($)", "Cost of the run so far in US dollars.", -1,
        ("cost/cumulative_usd",),
    ),
    Metric("num_traces", "traces", "Rollouts of the step."),
    Metric("num_heldout_traces", "held-out traces", "Rollouts of the held-out reward."),
    Metric("num_datums", "datums", "Turns that carried a gradient."),
    Metric("num_tokens", "tokens", "Generated tokens of the step."),
)  # fmt: skip
SIZES = frozenset({"num_traces", "num_heldout_traces"})
"""Counts that a run sets: two equal ones are constant, and an average would hide a change."""
REWARDS = frozenset({"reward_mean", "heldout_reward", "reward_min", "reward_max"})
OF_WEIGHTS = frozenset(
    {
        *("reward_mean", "heldout_reward", "reward_std", "reward_min", "reward_max"),
        *("kl_sample_train", "kl_reference", "entropy", "sampling_logprob_mean"),
        *("frac_reward_zero_std", "frac_groups_mixed"),
        *("frac_groups_all_solved", "frac_groups_all_failed"),
        *("completion_length_mean", "completion_length_max", "truncated_share", "errored_share"),
        *("turns_mean", "tool_calls_mean", "tool_failures"),
    }
)
"""Metrics of a step's rollouts. They describe the policy that sampled them, which is the one
before the step. All other metrics describe the step itself: its update (gradient norm, clip
fraction, loss), the staleness of its rollouts, its cost."""


# Canonical keys: one key for the names that different trainers use.
#
# An unknown key keeps its name and is drawn like any other.
METRICS = {metric.key: metric for metric in TABLE}
_PREFIXES = ("tinker.", "tinker/")
"""Prefixes that HUD adds to the metrics of the trainer behind it."""
_PATTERNS = (
    (re.compile(r"train/agg/effective/[^/]+/reward/mean"), "reward_mean"),
    (re.compile(r"eval/[^/]+/effective/[^/]+/avg@\d+"), "heldout_reward"),
    (re.compile(r"val-core/.+/acc/mean@\d+"), "heldout_reward"),
)
"""Names that contain a part chosen by the run."""


_OWN = re.compile(
    r"wait/[a-z]+|steps_taken|trained_tokens"
    r"|(eval/[^/]+/)?((mean_reward|pass@\d+)(_low|_high)?|tasks|rollouts)"
)
"""Names that this program gives to causes of waiting, to evaluations and to a run's end."""


def is_known(key: str) -> bool:
    """Whether it is known what a canonical key means."""
    return key in METRICS or _OWN.fullmatch(key) is not None


def _ranked() -> dict[str, tuple[str, int]]:
    """Canonical key and rank of every known name; the canonical key itself has the lowest rank."""
    names = {entry.key: (entry.key, -1) for entry in TABLE}
    for entry in TABLE:
        for rank, name in enumerate(entry.names):
            names.setdefault(name, (entry.key, rank))
    return names


_NAMES = _ranked()


def canonical(key: str) -> str:
    """The canonical key of a trainer's metric name; an unknown name is returned unchanged."""
    return _place(key)[0]


def translate(metrics: Mapping[str, float]) -> dict[str, float]:
    """A step's metrics under canonical keys.

    If several names map to one key, the one with the lowest rank gets it and the others keep their
    own names, so that nothing is dropped.
    """
    return dict(zip(_translated(tuple(metrics)), metrics.values(), strict=True))


@lru_cache(256)
def spelling(keys: tuple[str, ...], key: str) -> str | None:
    """The name under which a step reports the canonical `key`; None if it does not."""
    meant = _translated(keys)
    return keys[meant.index(key)] if key in meant else None


@lru_cache(256)
def _translated(keys: tuple[str, ...]) -> Sequence[str]:
    best: dict[str, str] = {}
    for key in sorted(keys, key=lambda key: _place(key)[1]):
        best.setdefault(_place(key)[0], key)
    return [name if best[name := _place(key)[0]] == key else key for key in keys]


@lru_cache(4096)
def _place(key: str) -> tuple[str, float]:
    """Canonical key and rank of a name; a lower rank wins."""
    for prefix in ("", *_PREFIXES):
        bare = key.removeprefix(prefix)
        if bare in _NAMES and key.startswith(prefix):
            return _NAMES[bare]
    names = (name for pattern, name in _PATTERNS if pattern.fullmatch(key))
    return next(names, key), inf


_REWARD_PART = re.compile(r"(?:rewards?|reward_component|critic/rewards)/.+")
ORDER = {key: rank for rank, key in enumerate(METRICS)}


def metric(key: str) -> Metric:
    """The metric of a key in any trainer's spelling; an unknown key becomes its own title."""
    return METRICS.get(canonical(key)) or Metric(key, key, "Reported by the service.")


@lru_cache(4096)
def of_weights(key: str) -> bool:
    """Whether a metric describes the policy that sampled a step's rollouts, which is the parent's
    weights. All others, and unknown ones, describe the step itself."""
    return canonical(key) in OF_WEIGHTS or _REWARD_PART.fullmatch(key) is not None


def most_of(key: str, high: float) -> float:
    """Upper limit of a metric's axis: 1 for rewards if all of them are at most 1, else infinite.

    Args:
        high: Its largest value.
    """
    return 1.0 if canonical(key) in REWARDS and high <= 1 else inf


def ranked(keys: list[str]) -> list[str]:
    """Known metrics first, in the table's order; then the others in their order of arrival."""
    return sorted(keys, key=lambda key: ORDER.get(key, len(ORDER)))


def title(key: str) -> str:
    """Display title of a canonical key; an unknown key is its own title."""
    return METRICS[key].title if key in METRICS else key


def healthy(entry: Metric) -> str:
    """The healthy range as text, e.g. ``≤.01``; empty if unknown."""
    if entry.healthy is None:
        return ""
    low, high = entry.healthy
    if low == -high or low == 0:
        return f"≤{short(high)}"
    return f"≥{short(low)}" if high == 1 else f"{short(low)}–{short(high)}"


def outside(entry: Metric, value: float) -> bool:
    """Whether a value is outside the metric's healthy range; False for NaN."""
    return entry.healthy is not None and not (
        value != value or entry.healthy[0] <= value <= entry.healthy[1]
    )


RESIDUE, NOTHING = 1e-9, 1e-14
"""Relative and absolute differences up to which two values are equal except for rounding."""


TASK_COUNTS = ("tasks_solved", "tasks_learnable", "tasks_out_of_reach", "tasks_unseen")
"""The number of training tasks of each kind, by their last groups."""
RESOLUTION = {
    **{"loss:sum": 1e-9, "kl_sample_train": 1e-5, "kl_reference": 1e-5, "ratio_max": 5e-3},
    **dict.fromkeys(TASK_COUNTS, 5e-3),
}
"""Differences below which a metric counts as constant, where rounding of its parts exceeds NOTHING:
a KL of 1e-8 is float32's, not the policy's. The moving average of a count never quite arrives."""


@lru_cache(4096)
def resolution(key: str) -> float:
    """Absolute difference below which two values of a metric are equal."""
    return RESOLUTION.get(canonical(key).removeprefix("trained/"), NOTHING)


def are_equal(key: str, before: float, after: float) -> bool:
    """Whether two values of a metric differ by nothing but rounding: the rule of what counts as a
    change in charts, deltas and arrows."""
    return isclose(before, after, rel_tol=RESIDUE, abs_tol=resolution(key))


def reading(key: str, value: float | None) -> str:
    """A metric's value as text; 0 below its resolution."""
    if value is not None and key not in SIZES and abs(value) < resolution(key):
        return "0"
    return short(value)


SIGNAL = "signal"
"""The draw that chooses a batch's tasks by what they are expected to teach."""


def chosen_text(draw: object) -> str:
    """What a mean reward is of, after its number, e.g. `` of tasks chosen by signal``; empty if the
    tasks were not chosen. `draw`: as in `Checkpoint`, or in a run's parameters."""
    return f" of tasks chosen by {SIGNAL}" if draw == SIGNAL else ""


def finite(value: float | None) -> float | None:
    """The value; None for NaN and infinities."""
    return value if value is not None and isfinite(value) else None


ZERO_VARIANCE = (
    *("frac_reward_zero_std", "frac_groups_all_solved", "frac_groups_all_failed"),
    "frac_groups_mixed",
)
"""Metrics of a step that give its share of zero-variance groups."""


def flat_share(metrics: Mapping[str, float | None]) -> float | None:
    """The share of zero-variance groups, from any of `ZERO_VARIANCE`, from 0 to 1; None if none
    gives it."""
    flat, solved, failed, mixed = (finite(metrics.get(key)) for key in ZERO_VARIANCE)
    if flat is None and solved is not None and failed is not None:
        flat = solved + failed
    if flat is None and mixed is not None:
        flat = 1 - mixed
    return None if flat is None else min(1.0, max(0.0, flat))


def idle_share(metrics: Mapping[str, float]) -> float:
    """`flat_share`, or 0 if no metric gives it."""
    return flat_share(metrics) or 0.0


def short(value: float | None) -> str:
    """A number in at most 6 characters, e.g. ``.847``, ``.0031``, ``1.21``, ``41k``, ``3.1e-4``."""
    if value is None or value != value:
        return "–"
    if isinf(value):
        return "∞" if value > 0 else "-∞"
    size = abs(value)
    if size < NOTHING:
        return "0"
    if size >= 1000:
        return _thousands(value)
    if size >= 100 or value == int(value):
        return f"{value:.0f}"
    if size >= 10:
        return f"{value:.1f}"
    if size >= 0.9995:
        return f"{value:.2f}"
    if size >= 0.00995:
        return f"{value:.3f}".replace("0.", ".", 1)
    if size >= 0.000995:
        return f"{value:.2g}".replace("0.", ".", 1)
    return f"{value:.1e}".replace("e-0", "e-").replace(".0e", "e")


def interval_text(low: float | None, high: float | None) -> str:
    """An interval, e.g. ``[.66, .76]``; empty if there is none."""
    return "" if low is None or high is None else f"[{short(low)}, {short(high)}]"


def estimate_text(mean: Estimate) -> str:
    """A mean with its interval, if there is one, e.g. ``.71 [.66, .76]``."""
    return f"{short(mean.value)} {interval_text(mean.low, mean.high)}".rstrip()


def with_sign(value: float) -> str:
    """A number with its sign, e.g. an advantage: ``+.339``, ``-.524`` or ``0``."""
    return f"{'+' * (value > 0)}{short(value)}"


def gain_text(gain: Estimate) -> str:
    """A difference with its sign and its interval, e.g. ``+.05 [.01, .09]``."""
    return f"{'+' * (gain.value >= 0)}{estimate_text(gain)}"


SLIGHT = 0.01
"""Relative difference up to which values that print alike count as equal."""


def change(before: float, after: float, key: str = "") -> float:
    """`after` − `before` of a metric; 0 if they are equal, print alike, or differ by less than
    three decimals show and by less than SLIGHT; NaN if either is unknown."""
    if not (isfinite(before) and isfinite(after)):
        return nan
    still = are_equal(key, before, after)
    close = isclose(before, after, rel_tol=SLIGHT)
    alike = abs(after - before) < LEAST_DECIMAL or short(before) == short(after)
    return 0.0 if still or (close and alike) else after - before


LEAST_DECIMAL = 5e-4
"""Smallest distance with three decimals; below it has a power of ten."""


def distance(size: float) -> str:
    """How far two values are apart, e.g. ``.008``, to be read beside values of three decimals."""
    return f"{size:.3f}"[1:] if LEAST_DECIMAL <= size < 0.01 else short(size)


def signed(value: float | None) -> str:
    """A change with its arrow, e.g. ``▲ .021``; empty if unknown."""
    if value is None or not isfinite(value):
        return ""
    size = abs(value)
    if size < NOTHING:
        return "=0"
    return f"{'▲' if value > 0 else '▼'} {distance(size)}"


def _thousands(value: float) -> str:
    if abs(value) >= 1e15:
        return f"{value:.0e}".replace("e+", "e")
    for suffix, unit in (("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if abs(value) >= unit:
            scaled = value / unit
            return f"{scaled:.0f}{suffix}" if abs(scaled) >= 10 else f"{scaled:.1f}{suffix}"
    return f"{value:.0f}"


# Series: every metric of one lineage, step by step, in columns.
#
# 100 000 steps of 20 metrics are 17 MB as arrays of doubles and 230 MB as dicts. A step
# that lacks a metric holds NaN there, which charts draw as a gap. Versions share their
# columns as `hud_tui.rl.checkpoint_tree.Tree` does: a version is the number of rows it sees.


FIELDS = ("mean_reward", "learning_rate", "num_tokens", "num_traces", "num_datums")
"""Checkpoint fields that are metrics too, unless `metrics` already has them."""
ALIASES = {"mean_reward": "reward_mean"}


@dataclass(frozen=True, eq=False)
class Series:
    """Rows 0 … length-1, oldest first; row i is the (i+1)th step of the lineage."""

    length: int = 0
    _columns: dict[str, "array[float]"] = field(default_factory=dict, repr=False)
    _tips: list[str] = field(default_factory=list, repr=False)
    """Checkpoint id of each row."""
    _numbers: "array[int]" = field(default_factory=lambda: array("q"), repr=False)
    """Step number of each row."""

    @classmethod
    def of(cls, lineage: Iterable[Checkpoint]) -> "Series":
        """The series of a lineage, given oldest first."""
        series = cls()
        for checkpoint in lineage:
            series = series.add(checkpoint)
        return series

    @property
    def keys(self) -> list[str]:
        """Metric keys in the order they first arrived."""
        return list(self._columns)

    @property
    def tip(self) -> str | None:
        """Checkpoint id of the last row."""
        return self._tips[self.length - 1] if self.length else None

    def id_at(self, row: int) -> str:
        if not 0 <= row < self.length:
            raise IndexError(row)
        return self._tips[row]

    def step_at(self, row: int) -> int:
        """The number of a row's step, as its checkpoint's name has it: after a rollback numbers
        go on from the newest step of the model, not of the lineage. Beyond the last row: of the
        steps to come."""
        last = self.length - 1
        return row + 1 if last < 0 else self._numbers[min(row, last)] + max(0, row - last)

    def column(self, key: str) -> "array[float]":
        """A metric's values, shape (≥ length,); the caller must not read beyond `length`.

        The array is shared with newer versions and must not be changed. For an unknown metric all
        values are NaN.
        """
        return self._columns.get(key) or array("d", [nan]) * self.length

    def values(self, key: str) -> "array[float]":
        """A copy of a metric's values, shape (length,)."""
        return self.column(key)[: self.length]

    def last(self, key: str) -> float:
        """A metric's newest value that is not NaN; NaN if there is none."""
        column = self._columns.get(key)
        if column is None:
            return nan
        rows = range(min(self.length, len(column)) - 1, -1, -1)
        return next((column[row] for row in rows if column[row] == column[row]), nan)

    def same_rows(self, other: "Series") -> bool:
        """Whether both share their columns, so that the rows they have in common are equal."""
        return self._columns is other._columns

    def add(self, checkpoint: Checkpoint) -> "Series":
        """The version with one more step."""
        series, rows = self, self.length
        if rows < len(self._tips):  # another version has grown: this one's columns become its own
            columns = {key: column[:rows] for key, column in self._columns.items()}
            series = Series(rows, columns, self._tips[:rows], self._numbers[:rows])
        metrics = metrics_of(checkpoint)
        for key in metrics:
            if key not in series._columns:
                series._columns[key] = array("d", [nan]) * rows
        for key, column in series._columns.items():
            column.append(metrics.get(key, nan))
        series._tips.append(checkpoint.id)
        series._numbers.append(step_number(checkpoint, rows))
        return replace(series, length=rows + 1)

    def truncate(self, length: int) -> "Series":
        """The version with only the first rows."""
        return replace(self, length=min(length, self.length))


# The order of a run's charts; constant metrics need no chart.


FEW = 5
"""Fewest values for a metric to count as constant; two of `SIZES`."""


@dataclass(frozen=True)
class ChartOrder:
    """A run's metrics in the order of their charts."""

    charted: tuple[str, ...] = ()
    """Metrics of alarms first, the most severe alarm's before the others; then those that vary."""
    constant: tuple[str, ...] = ()
    """Metrics that never changed and have no alarm."""

    @property
    def keys(self) -> list[str]:
        return [*self.charted, *self.constant]


def order_charts(
    keys: Sequence[str], alarmed: Sequence[str], moved: Collection[str], kept: str = ""
) -> ChartOrder:
    """Decide which metrics get a chart, and in which order.

    Args:
        keys: The displayed metrics, in the user's order.
        alarmed: The metrics of alarms, most severe first.
        moved: The metrics that are not constant, see `Movement`.
        kept: A metric that gets a chart in any case, because the user has selected it.
    """
    first = [key for key in dict.fromkeys(alarmed) if key in keys]
    rest = [key for key in keys if key not in first]
    drawn = [key for key in rest if key in moved or key == kept]
    return ChartOrder((*first, *drawn), tuple(key for key in rest if key not in drawn))


class Movement:
    """Finds the metrics of a growing series that are not constant; reads each row once."""

    def __init__(self) -> None:
        self._series = Series()
        self._moved: set[str] = set()
        self._still: dict[str, tuple[int, int, float]] = {}
        """For each constant metric: rows read, values among them, and the first value."""

    def of(self, series: Series) -> Collection[str]:
        """The metrics that have changed, or have too few values to tell."""
        if not series.same_rows(self._series) or series.length < self._series.length:
            self._moved, self._still = set(), {}
        self._series = series
        few = []
        for key in series.keys:
            if key not in self._moved and self._moves(key, series):
                self._moved.add(key)
            elif key in self._still and self._still[key][1] < (2 if key in SIZES else FEW):
                few.append(key)
        return self._moved.union(few) if few else self._moved

    def _moves(self, key: str, series: Series) -> bool:
        rows, numbers, value = self._still.get(key, (0, 0, nan))
        fresh = series.column(key)[rows : series.length]
        if fresh.count(value) < len(fresh):  # counting is fast while the metric is constant
            for here in fresh:
                if isfinite(here):
                    value = value if numbers else here
                    numbers += 1
                    if not are_equal(key, here, value):
                        self._still.pop(key, None)
                        return True
        else:
            numbers += len(fresh)
        self._still[key] = series.length, numbers, value
        return False


def step_number(checkpoint: Checkpoint, row: int) -> int:
    """The number of the step that made a checkpoint; its place in the lineage if the service
    reports none. `row`: its index in the lineage."""
    return checkpoint.step or row + 1


def metrics_of(checkpoint: Checkpoint) -> Mapping[str, float]:
    """A checkpoint's metrics under canonical keys, including its numeric fields."""
    metrics = translate(checkpoint.metrics)
    for name in FIELDS:
        value = getattr(checkpoint, name)
        if value is not None:
            metrics.setdefault(ALIASES.get(name, name), float(value))
    return metrics
