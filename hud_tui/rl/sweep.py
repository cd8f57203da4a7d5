"""Sweeps: several runs that differ in some parameters, each on its own fork.

A managed run trains one model, so each combination gets a fork, named after its parameters, and all
forks start at the same checkpoint. A limited number of runs is active at the same time; the others
wait.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from typing import Any

from pydantic import Field

from hud_tui.errors import HudUsage
from hud_tui.parameters import RUNS_AT_ONCE
from hud_tui.rl.cost import (
    EVALUATES,
    UNPRICED,
    Prices,
    RunSize,
    evaluation_facts,
    run_size,
    tokens_text,
)
from hud_tui.rl.disk import where_stored
from hud_tui.rl.run_columns import value_text
from hud_tui.rl.settings import Value, setting_label, short_label, write
from hud_tui.rl.tasks.task import Task, split_text
from hud_tui.rl.text import counted, dollars, duration, one_line, spaced
from hud_tui.rl.work import SUCCEEDED, Work, has_ended, is_lost
from hud_tui.wire import Body, Model

MOST = 200
"""Maximum number of runs in a sweep."""
WAITING = "waiting"
AGAIN = frozenset({"cancelled", "interrupted", "refused"})
"""States in which a run of a sweep may end that a resumed sweep runs again."""
LONGEST_NAME = 100
"""Maximum characters of a model's name. Source: `hud_tui.wire_changes.Fork`."""


class Member(Body):
    """A run of a sweep."""

    name: str
    """Name of its fork."""
    differs: dict[str, Any]
    """Its values of the swept parameters."""
    model_id: str = ""
    job_id: str = ""
    status: str = WAITING
    """waiting, forking, submitting or refused; afterwards the job's status."""
    error: str = ""

    @property
    def ended(self) -> bool:
        """Whether it is over: its job has ended, or it was refused."""
        return self.status == "refused" or has_ended(self.status)

    @property
    def running(self) -> bool:
        """Whether its job is active."""
        return bool(self.job_id) and not self.ended and self.status != WAITING

    def with_status(self, now: str) -> "Member":
        """With the status of its job; a run that waits to be resumed, or whose resumption was
        refused, stays so unless it runs or has succeeded."""
        waits = self.status in (WAITING, "refused") and is_lost(now)
        return self if waits else self.model_copy(update={"status": now})

    @property
    def values_text(self) -> str:
        """Its values as text, e.g. ``lr 3e-4 · group 8``."""
        return " · ".join(f"{short_label(k)} {value_text(v)}" for k, v in self.differs.items())


class Sweep(Body):
    """A sweep and the state of its runs."""

    id: str
    name: str
    service: str
    """Where it was started: id of the embedded service's data directory, or HUD's URL."""
    model_id: str
    """The model that the forks are made from."""
    model: str
    checkpoint_id: str | None = None
    """Id of the checkpoint that the runs start at, or `BASE`; None on HUD, which forks at the head
    of the moment."""
    start: str = ""
    """Name of those weights."""
    source: str
    """Where the tasks come from: a path or a taskset."""
    digest: str
    """Hash of the tasks' rows; a resumed sweep must train on the same tasks."""
    left_out: tuple[str, ...] = ()
    """Slugs of the source's tasks that are not used."""
    parameters: dict[str, Any] = Field(default_factory=dict)
    """Parameters that all runs have in common."""
    at_once: int = RUNS_AT_ONCE.usual
    members: tuple[Member, ...]
    cancelled: bool = False
    created_at: float = 0.0
    """Unix seconds."""

    @property
    def runs(self) -> list[dict[str, Any]]:
        """The parameters of each run."""
        return [{**self.parameters, **member.differs} for member in self.members]

    @property
    def progress_text(self) -> str:
        """Its progress, e.g. ``arith-rl-sweep: 2 running, 1 queued, 1 ended``."""
        ended = sum(member.ended for member in self.members)
        waits = "not started" if self.cancelled else "queued"
        counts = ((self.running, "running"), (self.waiting, waits), (ended, "ended"))
        parts = [f"{count} {what}" for count, what in counts if count]
        return f"{self.name}: {', '.join(parts)}"

    @property
    def running(self) -> int:
        return sum(member.running for member in self.members)

    @property
    def made_text(self) -> str:
        """What was made of it so far, e.g. ``2 of 4 forks were made, 1 run was submitted``."""
        forks = sum(bool(member.model_id) for member in self.members)
        runs = sum(bool(member.job_id) for member in self.members)
        what = f"{forks} of {counted(len(self.members), 'fork')} were made"
        return f"{self.name}: {what}, {counted(runs, 'run')} submitted"

    @property
    def waiting(self) -> int:
        """Number of runs that are still to be started or resumed."""
        return sum(not (member.ended or member.running) for member in self.members)

    @property
    def status(self) -> str:
        """cancelled, running, waiting (no program is driving it), succeeded or failed."""
        if self.cancelled:
            return "cancelled"
        if any(not member.ended for member in self.members):
            return "running" if self.running else WAITING
        return "succeeded" if all(m.status in SUCCEEDED for m in self.members) else "failed"

    @property
    def may_cancel(self) -> bool:
        """Whether one of its runs is active, or waits to be started."""
        return any(m.running or not (m.ended or self.cancelled) for m in self.members)

    @property
    def may_resume(self) -> bool:
        """Whether one of its runs was cancelled, interrupted or refused, or waits."""
        return any(m.status in AGAIN or not (m.ended or m.running) for m in self.members)

    def with_statuses(self, statuses: Mapping[str, str]) -> "Sweep":
        """The sweep with the present statuses of its jobs, by their ids."""
        members = tuple(m.with_status(statuses.get(m.job_id, m.status)) for m in self.members)
        return self.model_copy(update={"members": members})

    def with_member(self, index: int, member: Member) -> "Sweep":
        members = (*self.members[:index], member, *self.members[index + 1 :])
        return self.model_copy(update={"members": members})


def combinations(swept: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    """Every combination of the values; the last parameter changes fastest.

    Raises:
        HudUsage: A value is given twice, or there are more than MOST combinations.
    """
    total = 1
    for key, values in swept.items():
        if len(set(values)) < len(values):
            raise HudUsage(f"{key}: a value comes twice", "say each once")
        total *= len(values)
    if total > MOST:
        raise HudUsage(f"{total} combinations: at most {MOST} in one sweep", "sweep fewer values")
    return [dict(zip(swept, values, strict=True)) for values in product(*swept.values())]


def sweep_name(model: str, taken: Sequence[str]) -> str:
    """Name for a sweep of a model: ``arith-rl-sweep``, or with the first free number."""
    base = f"{model.rpartition('/')[2][:40]}-sweep"
    folded = [name.casefold() for name in taken]
    number, name = 1, base
    while any(_is_of(other, name) for other in folded):
        number += 1
        name = f"{base}-{number}"
    return name


def _is_of(taken: str, sweep: str) -> bool:
    """Whether a name is that of a sweep or of one of its forks; ``sweep-2-lr3e-4`` belongs to
    another one."""
    rest = taken.removeprefix(sweep.casefold())
    return rest != taken and (not rest or (rest[0] == "-" and not rest[1:2].isdigit()))


def member_name(sweep: str, differs: Mapping[str, Any]) -> str:
    """Name of a fork: ``arith-rl-sweep-lr3e-4-group8``."""
    named = ((short_label(key).replace(" ", "-"), value) for key, value in differs.items())
    return "-".join([sweep, *(f"{key}{value_text(value)}" for key, value in named)])[:LONGEST_NAME]


def members_of(name: str, swept: Mapping[str, Sequence[Any]]) -> tuple[Member, ...]:
    """The runs of a sweep, all waiting. Raises HudUsage, see `combinations`."""
    members = [
        Member(name=member_name(name, values), differs=values) for values in combinations(swept)
    ]
    names = [member.name for member in members]
    if len(set(names)) == len(names):
        return tuple(members)
    cut = LONGEST_NAME - 5
    return tuple(
        member.model_copy(update={"name": f"{member.name[:cut]}-{number}"})
        for number, member in enumerate(members, 1)
    )


@dataclass(frozen=True)
class SweepSize:
    """The cost of a sweep."""

    runs: int
    at_once: int
    each: tuple[RunSize, ...] = ()
    """Size of each run; empty if the service decides how long runs are."""
    seconds: float | None = None
    """Estimated time for all runs; None if no comparable run is known."""
    basis: str = ""
    """Name of the run that the estimate is based on."""
    prices: Prices = UNPRICED

    @property
    def steps(self) -> int | None:
        """Optimizer steps of all runs. None if the service decides; so are all properties below."""
        return sum(run.steps for run in self.each) if self.each else None

    @property
    def rollouts(self) -> int | None:
        """Training rollouts of all runs."""
        return sum(run.rollouts for run in self.each) if self.each else None

    @property
    def evaluated(self) -> int | None:
        """Rollouts of all evaluations and baselines."""
        return sum(run.evaluated for run in self.each) if self.each else None

    @property
    def trained_tokens(self) -> int | None:
        """Maximum tokens trained on, if every rollout has the maximum length."""
        return self._tokens(lambda run: run.rollouts)

    @property
    def sampled_tokens(self) -> int | None:
        """Maximum tokens sampled, including evaluations."""
        return self._tokens(lambda run: run.sampled)

    def _tokens(self, rollouts: Callable[[RunSize], int]) -> int | None:
        if not self.each or any(run.max_tokens is None for run in self.each):
            return None
        return sum(rollouts(run) * (run.max_tokens or 0) for run in self.each)

    @property
    def dollars(self) -> float | None:
        """Maximum cost of all tokens but those of prompts; None if it is not known."""
        if self.prices.tokens is None or self.sampled_tokens is None:
            return None
        prices = self.prices.tokens
        return sum(run.dollars(prices, 0, run.max_tokens or 0) for run in self.each)

    @property
    def machine_dollars(self) -> float | None:
        """About what the rented machine costs meanwhile; None if none is in use, or the time is
        unknown."""
        if not self.prices.hourly or self.seconds is None:
            return None
        return self.prices.machine(self.seconds)

    @property
    def document(self) -> dict[str, Any]:
        keys = ("runs", "at_once", "steps", "rollouts", "evaluated", "sampled_tokens")
        more = ("trained_tokens", "seconds", "basis", "dollars", "machine_dollars")
        return {key: getattr(self, key) for key in (*keys, *more)} | {
            "each": [asdict(run) for run in self.each]
        }

    @property
    def time(self) -> str:
        """The estimated time as text, after its label."""
        if not self.each:
            return "the service decides how long each is"
        if self.seconds is None:
            return "unknown: nothing like it was run here yet"
        told = f"about {duration(self.seconds)}, estimated from {self.basis}"
        machine = self.prices.machine_text(self.seconds)
        return f"{told}; {machine}" if machine else told

    @property
    def summary(self) -> str:
        """In one line, e.g. ``4 runs, 2 at once · 240 steps · 23 040 training rollouts · …``."""
        parts = [f"{counted(self.runs, 'run')}, {min(self.runs, self.at_once)} at once"]
        if self.steps is not None:
            parts.append(counted(self.steps, "step"))
        if self.rollouts is not None:
            parts.append(f"{spaced(self.rollouts)} training rollouts")
        if self.evaluated:
            parts.append(f"{spaced(self.evaluated)} evaluation rollouts")
        if self.sampled_tokens is not None:
            parts.append(f"at most {spaced(self.sampled_tokens)} tokens sampled")
        is_unknown = bool(self.each) and self.seconds is None
        return " · ".join([*parts, f"time {self.time}" if is_unknown else self.time])


def size_of_runs(
    parameters: Sequence[Mapping[str, Value]],
    at_once: int,
    model: Model,
    tasks: Sequence[Task],
    like: Work | None = None,
    prices: Prices = UNPRICED,
) -> SweepSize:
    """The size of one run, or of several.

    Args:
        parameters: Of each run.
        like: A run whose seconds per rollout are used for the estimate, see `paced_like`.
        prices: What they are charged.
    """
    sizes = [run_size(model, run, tasks) for run in parameters]
    each = tuple(run for run in sizes if run is not None)
    if len(each) < len(sizes):
        return SweepSize(len(parameters), at_once)
    pace = None if like is None else rollout_seconds(like)
    return SweepSize(
        len(parameters),
        at_once,
        each,
        None if pace is None else pace * sum(run.rollouts + run.evaluated for run in each),
        "" if like is None else like.name or like.id[:8],
        prices,
    )


MOST_LISTED = 12
"""Maximum number of runs listed before a sweep is submitted."""


def sweep_facts(
    sweep: Sweep, size: SweepSize, model: Model, tasks: Sequence[Task]
) -> list[tuple[str, str]]:
    """Everything that a sweep forks, submits and costs, per run and in total: labels and texts."""
    held = sum(task.heldout for task in tasks)
    parameters = [
        (setting_label(key), write(value))
        for key, value in sweep.parameters.items()
        if key not in UNLISTED
    ]
    runs = [("", member.values_text) for member in sweep.members[:MOST_LISTED]]
    if len(sweep.members) > MOST_LISTED:
        runs.append(("", f"and {len(sweep.members) - MOST_LISTED} more"))
    return [
        ("forks of", one_line(sweep.model, 60)),
        ("start from", one_line(sweep.start, 60)),
        ("taskset", f"{one_line(sweep.source, 60)}: {split_text(tasks)}"),
        *_evaluations(sweep, size, held),
        *_costs(size),
        ("time", size.time),
        ("sweep", one_line(sweep.name, 60)),
        *runs,
        *parameters,
        *where_stored(model, size.steps),
    ]


UNLISTED = ("sweep", *EVALUATES)
"""Parameters of a sweep that are part of other lines."""


def _evaluations(sweep: Sweep, size: SweepSize, held: int) -> list[tuple[str, str]]:
    """Lines about evaluations as for a single run; if the runs differ in them, each variant
    once."""
    pairs = zip(size.each, sweep.runs, strict=False)  # no sizes are known on HUD
    lines = [evaluation_facts(run, parameters, held) for run, parameters in pairs]
    ways = list(dict.fromkeys(fact for facts in lines for fact in facts))
    labels = list(dict.fromkeys(label for label, _ in ways))
    return [(label, "; or ".join(text for of, text in ways if of == label)) for label in labels]


def _costs(size: SweepSize) -> list[tuple[str, str]]:
    """Steps, rollouts and tokens per run and in total."""
    many = f"{counted(size.runs, 'run')}, {min(size.runs, size.at_once)} at once"
    if not size.each:
        return [("in total", many)]
    rows = (
        ("step{s}", [run.steps for run in size.each]),
        ("training rollout{s}", [run.rollouts for run in size.each]),
        ("evaluation rollout{s}", [run.evaluated for run in size.each]),
    )
    nonzero = [(what, counts) for what, counts in rows if any(counts)]
    lines = [
        ("per run", " · ".join(_of(_span(counts), what) for what, counts in nonzero)),
        (
            "in total",
            " · ".join([many, *(_of(spaced(sum(counts)), what) for what, counts in nonzero)]),
        ),
        *_heldout(size),
    ]
    if size.sampled_tokens is None or size.trained_tokens is None:
        return lines
    return [*lines, ("tokens", _tokens(size, size.sampled_tokens, size.trained_tokens))]


def _tokens(size: SweepSize, all_sampled: int, all_trained: int) -> str:
    """Tokens per run and in total, and what they cost."""
    sampled = _span([run.sampled * (run.max_tokens or 0) for run in size.each])
    trained = _span([run.rollouts * (run.max_tokens or 0) for run in size.each])
    all_ = f"{spaced(all_sampled)} and {spaced(all_trained)}"
    cost = "" if size.dollars is None else f", {dollars(size.dollars)}"
    tokens = f"per run at most {sampled} sampled, {trained} trained; in total {all_}{cost}"
    return f"{tokens}; plus prompts"


def _of(count: str, what: str) -> str:
    """A count of something whose plural ending is marked ``{s}``."""
    return f"{count} {what.format(s='' if count == '1' else 's')}"


def _heldout(size: SweepSize) -> list[tuple[str, str]]:
    """The rollouts of held-out tasks, with which steps report a held-out reward."""
    counts = [run.heldout for run in size.each]
    if not any(counts):
        return []
    of_each = " per run" * (len(counts) > 1)
    often = _span([run.heldout_every for run in size.each])
    often = "every step" if often == "1" else f"every {often} steps"
    text = f"{_span(counts)} rollouts{of_each}, {often}"
    return [("held-out reward", text + (f"; {spaced(sum(counts))} in total" if of_each else ""))]


def run_costs(size: SweepSize) -> list[tuple[str, str]]:
    """Rollouts, tokens and time of a single run: labels and texts. Only the time if the service
    decides the run's size."""
    lines = []
    for run in size.each:
        rows = ((run.rollouts, "training"), (run.evaluated, "evaluation"))
        text = " · ".join(f"{spaced(many)} {what}" for many, what in rows if many)
        lines.append(("rollouts", text))
    lines += _heldout(size)
    if size.sampled_tokens is not None and size.trained_tokens is not None:
        text = tokens_text(size.sampled_tokens, size.trained_tokens, size.dollars)
        lines.append(("tokens", text))
    return [*lines, ("time", size.time)]


def _span(counts: Sequence[int]) -> str:
    low, high = min(counts), max(counts)
    return spaced(low) if low == high else f"{spaced(low)} to {spaced(high)}"


def rollout_seconds(row: Work) -> float | None:
    """Seconds per rollout of a run, including training; None if unknown."""
    wide, step_s = row.parameters.get("tasks_per_step"), row.step_s
    if step_s is None and row.duration_s is not None and row.step:
        step_s = row.duration_s / row.step  # of one step there is no time between steps
    if step_s is None or not row.group_size or not isinstance(wide, int):
        return None
    return step_s / (row.group_size * wide)


def paced_like(rows: Sequence[Work], model: Model, taskset: str) -> Work | None:
    """The newest run with a known pace: of the same model, else of the same taskset on the same
    engine; none whose rollouts an environment made, which has a pace of its own. Runs at the same
    time share one machine, so together they are assumed to be no faster."""
    ours = (row for row in rows if "rollout_timeout" not in row.parameters)
    paced = [row for row in ours if rollout_seconds(row) is not None]
    engine = model.engine.engine if model.engine is not None else None
    own = (row for row in paced if row.model_id == model.id)
    like = (row for row in paced if row.engine == engine and row.taskset == taskset)
    return next(own, None) or next(like, None)
