"""The list of all runs, kept up to date from either kind of service.

The embedded service has such a list, and reports what changed since a revision. HUD does not: rows
are assembled from the list of jobs, each job's raw status and its model's tree, within a budget of
requests. Marked runs are read first, then active ones, then the newest; a row whose steps were not
read yet has `Work.whole` False.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from math import inf
from time import monotonic
from typing import TYPE_CHECKING

from hud_tui.client.imported import ImportedFiles
from hud_tui.errors import HudNotFound, HudRefused
from hud_tui.rl.runs import run_of, run_of_job
from hud_tui.rl.text import seconds
from hud_tui.rl.work import Work
from hud_tui.wire import Checkpoint, Job, Model, WorkState

if TYPE_CHECKING:
    from hud_tui.client.client import HudClient
    from hud_tui.rl.compare import RunSeries

PER_MINUTE = 30
"""Maximum requests per minute for the table, on a service without a list of runs."""
PAGE = 100
FIRST_JOBS = 1000
"""Number of newest jobs read at first, on a service without a list of runs; later the newest
PAGE."""
CATALOG_S = 60.0
"""Maximum age of the catalog, seconds."""


class Budget:
    """A token bucket of requests: `per_minute` are added each minute, and at most as many are
    saved."""

    def __init__(self, per_minute: int, clock: Callable[[], float]) -> None:
        self.per_minute = per_minute
        self._clock, self._left, self._at = clock, float(per_minute), clock()

    def take(self, requests: int = 1) -> bool:
        """Whether this many requests may be sent now; if so, they are taken from the budget."""
        now = self._clock()
        grown = self._left + (now - self._at) * self.per_minute / 60
        self._left, self._at = min(float(self.per_minute), grown), now
        if self._left < requests:
            return False
        self._left -= requests
        return True


class RunList:
    """All runs that the service has, newest first."""

    def __init__(
        self,
        client: HudClient,
        notes: Callable[[], Mapping[str, str]] = dict,
        sweeps: Callable[[], Mapping[str, str]] = dict,
        clock: Callable[[], float] = monotonic,
        imported: ImportedFiles | None = None,
    ) -> None:
        """
        Args:
            notes: Returns the user's notes by run id.
            sweeps: Returns names of sweeps started on this machine, by the ids of their runs.
            imported: Runs of other trainers, which are in the list, too.
        """
        self.rows: tuple[Work, ...] = ()
        """As of the last read; the same tuple object while nothing changes."""
        self._client, self._notes, self._sweeps = client, notes, sweeps
        self._imported = imported or ImportedFiles(None)
        self._imported_ids: frozenset[str] = frozenset()
        self._known: dict[str, Work] = {}
        self._revision = 0
        self._polled: _Polled | None = None
        self._own: tuple[dict[str, str], dict[str, str]] = {}, {}
        """Notes and sweeps as of the last read."""
        self._budget = Budget(PER_MINUTE, clock)
        self._clock = clock
        self._reading = asyncio.Lock()
        self._series: dict[str, tuple[RunSeries, frozenset[str]]] = {}

    @property
    def polls(self) -> bool:
        """Whether rows are assembled here, because the service has no list of runs."""
        return self._polled is not None

    @property
    def source_text(self) -> str:
        """How rows are read, e.g. ``polls · ≤ 30 requests/min · 12 of 80 runs read``."""
        if not self.polls:
            return "list"
        read = sum(run.whole for run in self.rows)
        most = self._budget.per_minute
        return f"polls · ≤ {most} requests/min · {read} of {len(self.rows)} runs read"

    async def read(self, marked: Collection[str] = ()) -> tuple[Work, ...]:
        """Read what has changed; return all rows. `marked`: ids of runs to read first, if rows are
        assembled here. Raises HudError: the request failed; the rows stay as they were."""
        async with self._reading:
            if self._polled is None:
                try:
                    changed = await self._follow()
                except HudRefused as error:
                    if error.status not in (404, 405):
                        raise
                    self._polled = _Polled(self._client, self._budget, self._clock)
            if self._polled is not None:
                changed = {}
                if await self._polled.read(marked):
                    changed = {run.id: run for run in self._polled.rows()}
                    self._known = {id_: r for id_, r in self._known.items() if id_ in changed}
            self._take(self._with_imported(changed))
            return self.rows

    def _with_imported(self, changed: Mapping[str, Work]) -> dict[str, Work]:
        """Rows that may have changed, with the imported ones; those that are gone are removed."""
        imported = self._imported.works()
        for id_ in self._imported_ids - imported.keys():
            self._known.pop(id_, None)
            self._series.pop(id_, None)
        self._imported_ids = frozenset(imported)
        return {**imported, **changed}

    def _take(self, changed: Mapping[str, Work]) -> None:
        """Merge rows that may have changed, and changed notes and sweeps."""
        own = dict(self._notes()), dict(self._sweeps())
        whole = own != self._own
        self._own = own
        fresh = {**self._known, **changed} if whole else changed
        rows = {id_: self._with_own(run) for id_, run in fresh.items()}
        rows = {id_: run for id_, run in rows.items() if self._known.get(id_) != run}
        if not rows and len(self._known) == len(self.rows):
            return
        begun = {id_: run for id_, run in rows.items() if id_ not in self._known}
        self._known = begun | self._known | rows
        listed = self._known.values()
        is_in_order = self._polled is None and not self._imported_ids
        self.rows = tuple(listed if is_in_order else newest_first(listed))

    def _with_own(self, run: Work) -> Work:
        """The row with its note and sweep from this machine."""
        notes, sweeps = self._own
        note, sweep = notes.get(run.id, ""), run.sweep or sweeps.get(run.id, "")
        if (note, sweep) == (run.note, run.sweep):
            return run
        return replace(run, note=note, sweep=sweep)

    async def series(self, run_id: str, keys: Collection[str]) -> RunSeries:
        """A run's steps so far, with these metrics; a further call reads only new steps. Raises
        HudNotFound: no such run, or its model is unknown."""
        from hud_tui.rl.compare import RunSeries

        if run_id in self._imported_ids and (run := self._imported.get(run_id)) is not None:
            return run.series
        if self._polled is not None:
            return RunSeries.of(await self._polled.steps(run_id))
        series, read = self._series.get(run_id, (RunSeries(), frozenset(keys)))
        if not read >= set(keys):
            series, read = RunSeries(), read | set(keys)
        metric_keys = sorted(read)
        while True:
            part = await self._client.runs.run_steps(run_id, len(series), metric_keys)
            for position, id_ in enumerate(part.checkpoint_id):
                values = {
                    key: part.metrics[key][position] for key in metric_keys if key in part.metrics
                }
                series.add(id_, part.at[position], part.tokens[position], values)
            series.score(part.evaluations)
            if not part.checkpoint_id or len(series) >= part.total:
                break
        self._series[run_id] = series, read
        return series

    async def _follow(self) -> dict[str, Work]:
        """Rows that have changed since the last call, by run id."""
        changed: dict[str, Work] = {}
        since, offset, revision = self._revision, 0, None
        while True:
            page = await self._client.runs.run_page(since, offset)
            if page.revision < since:  # the service has another database now: start over
                self._known, self._series = {}, {}
                changed, since, offset, revision = {}, 0, 0, None
                continue
            revision = page.revision if revision is None else revision
            changed |= {record.id: run_of(record) for record in page.items}
            offset += len(page.items)
            if not page.items or offset >= page.total:
                break
        self._revision = revision
        return changed


def newest_first(rows: Iterable[Work]) -> list[Work]:
    """Sorted by creation time; rows without one come last."""
    return sorted(rows, key=lambda run: -(run.created_at or 0.0))


class _Polled:
    """Rows assembled from jobs, their raw statuses and their models' trees."""

    def __init__(self, client: HudClient, budget: Budget, clock: Callable[[], float]) -> None:
        self._client, self._budget, self._clock = client, budget, clock
        self._jobs: dict[str, Job] = {}
        self._statuses: dict[str, WorkState | None] = {}
        """Raw status of each job that was asked for; None if the job is not a managed run."""
        self._names: dict[str, Model] = {}
        """The catalog by id, slug and name."""
        self._starts: dict[str, list[float]] = {}
        """Start times of each model's runs, ascending."""
        self._models_at: float | None = None
        self._trees: dict[str, tuple[Checkpoint, ...]] = {}
        self._read_as: dict[str, str | None] = {}
        """Status of each job at the time when its tree was read."""

    async def read(self, marked: Collection[str]) -> bool:
        """Read as much as the budget allows; return whether anything was read."""
        asked = await self._list()
        for job in self._due(marked):
            asked = await self._read_status(job) or asked
        self._order()
        return asked

    def rows(self) -> list[Work]:
        """All runs, without jobs that are known not to be runs."""
        return [self._row(job) for job in self._jobs.values() if self._is_run(job)]

    async def steps(self, run_id: str) -> Sequence[Checkpoint]:
        """The checkpoints that a run made, oldest first. Raises HudNotFound: no such run, or its
        model is unknown."""
        job = self._jobs.get(run_id) or await self._client.job(run_id)
        self._jobs[job.id] = job
        if job.id not in self._statuses:
            self._statuses[job.id] = await self._client.known_job(job.id)
        model = self._model(job)
        if model is None:
            raise HudNotFound(404, f"run {run_id[:40]}: nobody says which model it trains")
        self._trees[model.id] = await self._client.tree(model.id)
        self._order()
        return self._steps(job, model)[0]

    async def _list(self) -> bool:
        now = self._clock()
        limit = PAGE if self._jobs else FIRST_JOBS
        if not self._budget.take():
            return False
        self._jobs |= {job.id: job for job in await self._client.jobs(limit)}
        self._budget.take(max(0, min(len(self._jobs), limit) - 1) // PAGE)
        if (self._models_at is None or now - self._models_at > CATALOG_S) and self._budget.take():
            models = await self._client.models()
            named = ((name, m) for m in models for name in (m.name, m.model_name, m.id) if name)
            self._names = dict(named)
            self._models_at = now
        return True

    def _due(self, marked: Collection[str]) -> list[Job]:
        """Jobs to read: marked ones first, then active ones, then the newest."""
        stale = [job for job in self._jobs.values() if self._read_as.get(job.id, "") != job.status]
        active = [
            job
            for job in self._jobs.values()
            if job.id in self._read_as and self._row(job).is_active and self._is_run(job)
        ]
        due = {job.id: job for job in (*stale, *active) if self._is_run(job)}

        def rank(job: Job) -> tuple[bool, bool, float]:
            going = job.id in self._read_as and self._row(job).is_active
            return job.id not in marked, not going, -(seconds(job.created_at) or 0.0)

        return sorted(due.values(), key=rank)

    async def _read_status(self, job: Job) -> bool:
        """Read a job's raw status and its model's tree; False if the budget is used up."""
        if not self._budget.take():
            return False
        self._statuses[job.id] = await self._client.known_job(job.id)
        model = self._model(job)
        if self._statuses[job.id] is not None and model is not None:
            if not self._budget.take():
                return True
            self._trees[model.id] = await self._client.tree(model.id)
        self._read_as[job.id] = job.status
        return True

    def _is_run(self, job: Job) -> bool:
        return self._statuses.get(job.id, ...) is not None

    def _model(self, job: Job) -> Model | None:
        """The model that a job trains, from its row or its raw status; None if unknown."""
        status = self._statuses.get(job.id)
        model = self._names.get(Work.of(job).model_id or "")
        if model is not None or status is None:
            return model
        names = (status.model_id, status.fine_tuned_model, status.model)
        shown = (self._names[name] for name in names if name is not None and name in self._names)
        return next(shown, None)

    def _row(self, job: Job) -> Work:
        model, status = self._model(job), self._statuses.get(job.id)
        if model is None or model.id not in self._trees:
            return run_of_job(job, model, status)
        steps, parent = self._steps(job, model)
        return run_of_job(job, model, status, steps, parent)

    def _steps(self, job: Job, model: Model) -> tuple[list[Checkpoint], Checkpoint | None]:
        """The checkpoints that a job made, and the parent of the first one. If the service does not
        report jobs of checkpoints, those made between this job and the model's next one."""
        tree = self._trees[model.id]
        if any(node.job_id for node in tree):
            made = [node for node in tree if node.job_id == job.id]
        else:
            low, high = seconds(job.created_at) or 0.0, self._next(job, model)
            made = [node for node in tree if low <= (seconds(node.created_at) or 0.0) < high]
        parent = made[0].prev_model_checkpoint_id if made else None
        return made, next((node for node in tree if node.id == parent), None)

    def _next(self, job: Job, model: Model) -> float:
        """Start of the model's next run, Unix seconds; infinite if there is none."""
        starts = self._starts.get(model.id, [])
        position = bisect_right(starts, seconds(job.created_at) or 0.0)
        return starts[position] if position < len(starts) else inf

    def _order(self) -> None:
        """Update the start times of each model's runs."""
        times: dict[str, list[float]] = {}
        for job in self._jobs.values():
            model = self._model(job) if self._statuses.get(job.id) is not None else None
            if model is not None:
                times.setdefault(model.id, []).append(seconds(job.created_at) or 0.0)
        self._starts = {id_: sorted(starts) for id_, starts in times.items()}
