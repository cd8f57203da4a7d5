"""Runs of other trainers, from what they logged to Weights & Biases: prime-rl, verl, TRL, Tinker's
cookbook, and others under their own names.

Metrics get the names of `hud_tui.rl.metrics`; unknown ones keep theirs. Rows of one step, e.g. of
the trainer and of its evaluation, become one step.

Source of the names of parameters and step counters: TRL (`GRPOConfig`, transformers' W&B callback),
verl (`ppo_trainer.yaml`), prime-rl (`configs/`), tinker-cookbook (`rl/train.py`).
"""

from collections import ChainMap
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from itertools import islice, pairwise
from math import isfinite
from statistics import fmean, median
from typing import Any

from pydantic import Field

from hud_tui.rl.compare import RunSeries
from hud_tui.rl.metrics import METRICS, ZERO_VARIANCE, canonical, flat_share, is_known, translate
from hud_tui.rl.own_numbers import HELDOUT, REWARD
from hud_tui.rl.runs import steps_at_ends, thinned
from hud_tui.rl.text import one_line
from hud_tui.rl.wandb_file import LoggedRun
from hud_tui.rl.work import IMPORTED, Work
from hud_tui.wire import Body, bounded, no_items

COUNTERS = (
    *("train/global_step", "training/global_step", "trainer/global_step", "global_step"),
    *("step", "progress/batch", "_step"),
)
"""Columns with the number of a row's step; the first that a row has counts."""
TRAINERS = {
    "hud-tui": ("checkpoint_id",),
    "prime-rl": ("train/agg/", "mismatch_kl/", "off_policy/"),
    "tinker-cookbook": ("env/all/", "optim/kl_sample_train", "progress/batch"),
    "verl": ("actor/", "critic/", "response_length/", "training/global_step"),
    "TRL": ("train/global_step", "completions/", "train/completions/"),
}
"""Beginnings of names by which a trainer is recognized."""
PARAMETERS = {
    "learning_rate": ("learning_rate", "actor_rollout_ref.actor.optim.lr", "optim.lr"),
    "group_size": (
        *("group_size", "num_generations", "actor_rollout_ref.rollout.n"),
        *("rollouts_per_example", "orchestrator.rollouts_per_example"),
    ),
    "seed": ("seed", "data.seed"),
    "steps": ("steps", "max_steps", "trainer.total_training_steps"),
    "model": (
        *("model", "model_name", "model_name_or_path", "_name_or_path", "model.name"),
        "actor_rollout_ref.model.path",
    ),
    "loss_fn": ("loss_fn", "loss_type", "actor_rollout_ref.actor.policy_loss.loss_mode"),
    "max_tokens": ("max_tokens", "max_completion_length", "data.max_response_length"),
    "temperature": ("temperature", "actor_rollout_ref.rollout.temperature", "sampling.temperature"),
    "kl_coef": ("kl_coef", "beta", "actor_rollout_ref.actor.kl_loss_coef", "kl_penalty_coef"),
}
"""Names of parameters in other trainers, by ours."""
OURS = "parameters."
"""Beginning of the parameters' names in what this program logs."""
MOST_PARAMETERS = 400
RECENT = 20
"""Steps whose median is a run's time per step."""
TEXT_MOST = 200


class ImportedRun(Body):
    """A run of another trainer; its steps in columns."""

    id: str
    name: str
    project: str = ""
    trainer: str = ""
    """A key of `TRAINERS`; empty if it is not recognized."""
    parameters: dict[str, Any] = Field(default_factory=dict)
    """By our names where those are known, else by the trainer's own, nested ones joined by dots."""
    status: str = "interrupted"
    created_at: float | None = None
    """Unix seconds."""
    numbers: list[int] = Field(default_factory=no_items)
    """The number of each step, ascending, shape (N,)."""
    at: list[float | None] = Field(default_factory=no_items)
    """When each was logged, Unix seconds, shape (N,)."""
    metrics: dict[str, list[float | None]] = Field(default_factory=dict)
    """Shape (N,) each; None where a step has no such number."""

    @property
    def unknown(self) -> list[str]:
        """Its metrics that are not in our vocabulary."""
        return [key for key in self.metrics if not is_known(key)]

    @property
    def work(self) -> Work:
        """Its row in the table of runs."""
        given, times = self.parameters, [at for at in self.at if at is not None]
        gaps = [after - before for before, after in pairwise(times)]
        rewards = self._values(REWARD)
        ends = steps_at_ends(len(rewards))
        return Work(
            id=self.id,
            kind=IMPORTED,
            name=self.name,
            status=self.status,
            model=one_line(given.get("model") or "", 100),
            done=self.numbers[-1] if self.numbers else 0,
            total=_whole(given.get("steps")),
            taskset=one_line(self.project, 100),
            parameters={k: v for k, v in given.items() if k not in ("model", "steps")},
            loss=one_line(given.get("loss_fn") or "", 40),
            lr=_number(given.get("learning_rate")),
            group_size=_whole(given.get("group_size")),
            seed=_whole(given.get("seed")),
            engine=self.trainer,
            reward_first=_mean(rewards[:ends]),
            reward=_mean(rewards[-ends:]),
            points=tuple(thinned(rewards)) if rewards else (),
            heldout=_last(self._values(HELDOUT)),
            no_gradient=_mean(self._shares_without_gradient()),
            duration_s=times[-1] - times[0] if times else None,
            step_s=median(gaps[-RECENT:]) if gaps else None,
            created_at=self.created_at,
            stepped_at=_last(times),
        )

    @property
    def series(self) -> RunSeries:
        """Its steps, for charts and comparisons."""
        series = RunSeries()
        for row, number in enumerate(self.numbers):
            metrics = {key: column[row] for key, column in self.metrics.items()}
            series.add(f"{self.id}:{number}", self.at[row], 0, metrics, number)
        return series

    def _shares_without_gradient(self) -> list[float]:
        """Of each step that reports it, the share of its groups."""
        columns = {key: column for key, column in self.metrics.items() if key in ZERO_VARIANCE}
        steps = (
            dict(zip(columns, step, strict=True)) for step in zip(*columns.values(), strict=False)
        )
        return [share for step in steps if (share := flat_share(step)) is not None]

    def _values(self, key: str) -> list[float]:
        return [value for value in self.metrics.get(key, ()) if value is not None]


def imported_runs(logged: Iterable[LoggedRun]) -> Iterator[ImportedRun]:
    """The runs in files, oldest first; files of one run, e.g. of one that was resumed, are one. One
    without a step is left out."""
    by_run: dict[tuple[str, str], list[LoggedRun]] = {}
    for part in logged:
        by_run.setdefault((part.project, part.run_id), []).append(part)
    for (project, run_id), parts in by_run.items():
        parts.sort(key=lambda part: part.started_at or 0.0)
        if (run := _imported(project, run_id, parts)).numbers:
            yield run


def _imported(project: str, run_id: str, parts: Sequence[LoggedRun]) -> ImportedRun:
    """A run from its files, oldest first."""
    steps = _steps(row for part in parts for row in part.history)
    numbers = sorted(steps)
    rows = [steps[number] for number in numbers]
    return ImportedRun(
        id=_id_of(project, run_id),
        name=one_line(next((p.name for p in reversed(parts) if p.name), run_id), TEXT_MOST),
        project=one_line(project, TEXT_MOST),
        trainer=_trainer({name for row in rows for name in row}),
        parameters=_parameters(ChainMap(*(dict(part.config) for part in reversed(parts)))),
        status=_status(parts[-1].exit_code),
        created_at=parts[0].started_at,
        numbers=numbers,
        at=[_number(row.get("_timestamp")) for row in rows],
        metrics=_columns([translate(_scalars(row)) for row in rows]),
    )


def _id_of(project: str, run_id: str) -> str:
    """Its id there, if that is one here, too; else a digest."""
    if 0 < len(run_id) <= 64 and run_id.isascii() and run_id.replace("-", "").isalnum():
        return run_id
    return digest_of(project, run_id)


def digest_of(project: str, run_id: str) -> str:
    """An id of its own: those there are unique within a project."""
    return sha256(f"{project}/{run_id}".encode()).hexdigest()[:32]


def _status(exit_code: int | None) -> str:
    if exit_code is None:
        return "interrupted"
    return "failed" if exit_code else "succeeded"


def _columns(rows: Sequence[Mapping[str, float]]) -> dict[str, list[float | None]]:
    """The metrics of steps, by name, shape (N,) each."""
    keys = dict.fromkeys(key for row in rows for key in row)
    return {key: [row.get(key) for row in rows] for key in keys}


def _mean(values: Sequence[float]) -> float | None:
    return fmean(values) if values else None


def _last(values: Sequence[float]) -> float | None:
    return values[-1] if values else None


def _steps(rows: Iterable[Mapping[str, Any]]) -> dict[int, dict[str, Any]]:
    """What was logged of each step, by its number; rows of no number, and those of nothing but
    texts, are left out."""
    steps: dict[int, dict[str, Any]] = {}
    for row in rows:
        number = next((n for key in COUNTERS if (n := _whole(row.get(key))) is not None), None)
        if number is not None and _scalars(row):
            steps.setdefault(number, {}).update(row)
    return steps


def _scalars(row: Mapping[str, Any]) -> dict[str, float]:
    """The numbers of a row, without counters and what the SDK adds."""
    media = {key.rpartition(".")[0] for key in row if key.endswith("._type")}
    return {
        _bare(key): number
        for key, value in row.items()
        if key[:1] != "_" and key not in COUNTERS and key.rpartition(".")[0] not in media
        if (number := _number(value)) is not None
    }


def _bare(key: str) -> str:
    """A name without the prefix that transformers' callback adds, where our vocabulary knows it."""
    for prefix, instead in (("train/", ""), ("eval/", "eval_")):
        bare = instead + key.removeprefix(prefix)
        if key.startswith(prefix) and canonical(key) not in METRICS and canonical(bare) in METRICS:
            return bare
    return key


def _trainer(names: Collection[str]) -> str:
    found = (t for t, starts in TRAINERS.items() if any(name.startswith(starts) for name in names))
    return next(found, "")


def _parameters(config: Mapping[str, Any]) -> dict[str, Any]:
    flat = {name.removeprefix(OURS): value for name, value in _flat(config)}
    ours: dict[str, Any] = {}
    for name, names in PARAMETERS.items():
        theirs = next((other for other in names if flat.get(other) not in (None, "", -1)), None)
        if theirs is not None:
            ours[name] = flat.pop(theirs)
    return dict(islice({**ours, **flat}.items(), MOST_PARAMETERS))


def _flat(config: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    """The values of nested tables, by names joined with dots; long texts are cut."""
    for name, value in config.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{above}{name}.")
        elif isinstance(value, bool | int | float):
            yield f"{above}{name}", value
        elif isinstance(value, str):
            yield f"{above}{name}", one_line(value, TEXT_MOST)


def _number(value: object) -> float | None:
    """A finite number, bounded; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return bounded(float(value)) if isfinite(value) else None
    except OverflowError:
        return None


def _whole(value: object) -> int | None:
    number = _number(value)
    return int(number) if number is not None and abs(number) < 2**53 else None
