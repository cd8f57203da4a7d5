"""Measuring the signal of a taskset with groups rolled out by the service.

The service's environments sample and grade with the model to be trained, pinned to the checkpoint
that was its head at the start.

Source: the ``hud`` SDK 0.6.21 (HostedRuntime) submits a rollout under an id of its own and reads
the trace until it has ended.
"""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import astuple, dataclass, replace
from datetime import UTC, datetime
from math import inf
from pathlib import Path
from random import Random
from time import monotonic
from typing import Any
from uuid import uuid4

from hud_tui.client.client import HudClient
from hud_tui.client.feed import plain_id
from hud_tui.client.transport import together
from hud_tui.errors import HudError, HudRefused, HudUnauthorized, HudUnclear, HudUsage
from hud_tui.patience import Patience
from hud_tui.rl.checkpoint_tree import Tree
from hud_tui.rl.json_tree import parse
from hud_tui.rl.tasks.signal import Outcome, Pace, Progress, Size, TaskSignal
from hud_tui.rl.tasks.task import Task, digest
from hud_tui.rl.text import one_line
from hud_tui.storage import change_atomic, read_regular
from hud_tui.wire import Model
from hud_tui.wire_rollouts import JobEnter, RolloutAgent, SubmitRollout, Trace
from hud_tui.wire_runs import JobParameters

# Outcomes of rollouts on the service: new ones, and recorded ones.


JOBS = 20
"""Maximum number of a taskset's jobs that are read."""


async def recorded(
    client: HudClient, taskset_id: str, model: Model, tasks: Sequence[Task]
) -> dict[str, TaskSignal]:
    """Outcomes that the service has of a model on a taskset, by slug; empty if there are none.

    They may be of earlier heads, because traces do not name the checkpoint. Raises HudUnauthorized:
    the key is refused.
    """
    by_slug = {task.slug: task for task in tasks}
    traces_of: dict[str, list[Trace]] = {}
    try:
        for job in await client.jobs(JOBS, taskset_id):
            for trace in await client.rollouts.job_traces(job.id):
                if trace.task_slug in by_slug and _is_of(trace, model):
                    traces_of.setdefault(trace.task_slug, []).append(trace)
    except HudUnauthorized:
        raise
    except HudError:
        return {}  # recorded outcomes are optional
    return {slug: _signal(by_slug[slug], traces) for slug, traces in traces_of.items()}


def outcome_of(trace: Trace) -> Outcome:
    """A trace with a reward as an outcome."""
    assert trace.reward is not None
    return Outcome(
        reward=trace.reward,
        tokens=trace.num_tokens,
        seconds=_seconds(trace),
        truncated=trace.stop_reason == "length",
    )


def _is_of(trace: Trace, model: Model) -> bool:
    sampled_by = (trace.model_extra or {}).get("inference_llm_model_id")
    return sampled_by == model.id and trace.status == "completed" and trace.reward is not None


def _signal(task: Task, traces: Sequence[Trace]) -> TaskSignal:
    outcomes = tuple(outcome_of(trace) for trace in traces)
    newest = max(trace.created_at or "" for trace in traces)
    return TaskSignal(task.slug, outcomes, task.where, basis="recorded", at=newest)


def _seconds(trace: Trace) -> float | None:
    """Duration in seconds; None if the service does not report its end."""
    ended = (trace.model_extra or {}).get("ended_at")
    try:
        start, end = (datetime.fromisoformat(str(time)) for time in (trace.created_at, ended))
        return max(0.0, (end - start).total_seconds())
    except (TypeError, ValueError):
        return None


AT_ONCE = 64
"""Maximum number of open rollouts."""
CALLS = 8
"""Maximum number of concurrent submissions."""
LOOK_S, FAR_LOOK_S = 0.15, 3.0
"""Seconds between two reads of the job: on the embedded service, and on others."""
ROWS_S = 2000
"""Maximum rows read per second: long jobs are read less often."""
PATIENCE_S = 600.0
"""Seconds without a finished rollout after which open ones are cancelled."""
ENDED = frozenset({"completed", "error", "cancelled"})


@dataclass(frozen=True)
class SampleRequest:
    model_id: str
    model: str
    """The model's slug."""
    checkpoint: str | None
    """Id of the head; None for the base weights."""
    group_size: int
    groups: int
    """Number of groups, one per task; if more than tasks, it starts over with the first."""
    sampling: dict[str, Any]
    """completion_kwargs of the request, e.g. max_tokens and temperature."""


async def sample(
    client: HudClient,
    chosen: Sequence[Task],
    asked: SampleRequest,
    job_id: str | None = None,
    name: str | None = None,
) -> AsyncGenerator[Progress, None]:
    """Roll out a group of each chosen task; ends when all rollouts have ended.

    A rollout that fails counts as an error of its task. If the generator is closed or cancelled
    early, the service is told to cancel open rollouts.

    Args:
        client: The service, which samples and grades.
        chosen: One task for each group.
        job_id: The job of the rollouts; None for a new one.

    Raises:
        HudUnauthorized: The key is refused.
        HudUnreachable: The service does not answer.
    """
    sampling = _Sampling(client, chosen, asked, job_id or str(uuid4()), name)
    try:
        await sampling.enter()
        async for progress in sampling.run():
            yield progress
    finally:
        await sampling.stop()


class _Sampling:
    def __init__(
        self,
        client: HudClient,
        chosen: Sequence[Task],
        asked: SampleRequest,
        job_id: str,
        name: str | None,
    ) -> None:
        self._client, self._asked = client, asked
        self._job_id, self._name = job_id, name or f"preflight on {asked.model}"
        self._waiting = [
            (task, group)
            for task, group in ((t, str(uuid4())) for t in chosen)
            for _ in range(asked.group_size)
        ][::-1]
        self._total = len(self._waiting)
        self._open: dict[str, Task] = {}
        self._signals: dict[str, TaskSignal] = {}
        self._began, self._patience = monotonic(), Patience(PATIENCE_S)
        self._trouble = ""
        self._done = 0

    async def enter(self) -> None:
        """Name the job, if the service keeps jobs."""
        with suppress(HudRefused, HudUnclear):
            body = JobEnter(name=self._name, group=self._asked.group_size)
            await self._client.rollouts.enter_job(self._job_id, body)

    async def run(self) -> AsyncIterator[Progress]:
        look_s = LOOK_S if self._client.settings.local else FAR_LOOK_S
        while self._waiting or self._open:
            await self._submit()
            await self._poll()
            yield self._progress()
            if self._patience.is_over() and self._open:
                for task in self._open.values():
                    self._note(task, None, "no answer came")
                return
            if self._open:
                await asyncio.sleep(max(look_s, self._done / ROWS_S))
        yield self._progress()

    async def stop(self) -> None:
        """Cancel open rollouts; errors are ignored, so that they do not hide the original one."""
        if self._open:
            with suppress(HudError, TimeoutError):
                async with asyncio.timeout(5):
                    await asyncio.shield(self._client.cancel_job(self._job_id))

    async def _submit(self) -> None:
        """Submit rollouts until AT_ONCE are open."""
        line = asyncio.Semaphore(CALLS)

        async def send(task: Task, group: str) -> None:
            async with line:
                await self._send(task, group)

        room = min(AT_ONCE - len(self._open), len(self._waiting))
        batch = [self._waiting.pop() for _ in range(room)]
        async with together() as calls:
            for task, group in batch:
                calls.create_task(send(task, group))

    async def _send(self, task: Task, group: str) -> None:
        trace_id = str(uuid4())
        self._open[plain_id(trace_id)] = task
        try:
            await self._client.rollouts.submit_rollout(self._body(task, group, trace_id))
        except HudUnauthorized:
            raise
        except (HudRefused, HudUnclear) as error:
            del self._open[plain_id(trace_id)]
            self._note(task, None, one_line(error.message, 300))

    def _body(self, task: Task, group: str, trace_id: str) -> SubmitRollout:
        config = {
            "model": self._asked.model,
            "checkpoint": self._asked.checkpoint,
            "completion_kwargs": self._asked.sampling,
            **task.more.get("agent_config", {}),
        }
        return SubmitRollout(
            trace_id=trace_id,
            job_id=self._job_id,
            env=task.env,
            task=task.scenario,
            slug=task.slug,
            args=task.args,
            agent=RolloutAgent(type="openai_compatible", config=config),
            group_id=group,
            runtime_config=task.more.get("runtime_config"),
            verifier=task.more.get("verifier"),
        )

    async def _poll(self) -> None:
        """Collect the finished rollouts."""
        for trace in await self._client.rollouts.job_traces(self._job_id):
            if trace.status in ENDED and plain_id(trace.id) in self._open:
                task = self._open.pop(plain_id(trace.id))
                self._patience.renew()
                usable = trace.status == "completed" and trace.reward is not None
                problem = one_line(trace.error or f"a rollout was {trace.status}", 300)
                self._note(task, trace if usable else None, problem)

    def _note(self, task: Task, trace: Trace | None, trouble: str) -> None:
        key = task.slug
        signal = self._signals.get(key) or TaskSignal(key, (), task.where)
        self._done += 1
        now = datetime.now(UTC).isoformat(timespec="seconds")
        if trace is None:
            self._trouble = trouble
            self._signals[key] = replace(signal, errors=signal.errors + 1, at=now)
        else:
            outcomes = (*signal.outcomes, outcome_of(trace))
            self._signals[key] = replace(signal, outcomes=outcomes, at=now)

    def _progress(self) -> Progress:
        made = sum(len(signal.outcomes) for signal in self._signals.values())
        pace = Pace(made, monotonic() - self._began)
        signals = tuple(self._signals.values())
        return Progress(self._done, self._total, signals, pace, self._trouble)


# Cache of outcomes: one file per head, by task. A checkpoint's weights never change, so its
# outcomes on a task stay valid.


FILES = 50
"""Maximum number of heads in the cache; the least recently used are dropped."""
PACE = "pace"
"""Key of the entry with the speed of rollouts; the other keys are hashes of tasks."""
MAX_BYTES = 64 * 1024 * 1024


class SignalCache:
    def __init__(self, folder: Path, fresh: bool = False) -> None:
        """`folder` is created with the first write; `fresh`: cached outcomes are ignored, and new
        ones still written."""
        self._folder = folder
        self._fresh = fresh

    def read(self, asked: SampleRequest, tasks: Iterable[Task]) -> dict[str, TaskSignal]:
        """Cached outcomes of these tasks, by slug; empty if the file is unreadable."""
        stored = {} if self._fresh else self._load(self._file(asked))
        signals = {}
        for task in tasks:
            signal = _kept_signal(stored.get(_key(task)), task)
            if signal is not None:
                signals[task.slug] = signal
        return signals

    def pace(self, asked: SampleRequest) -> Pace | None:
        """Speed of the last rollouts; None if unknown."""
        stored: Any = {} if self._fresh else self._load(self._file(asked)).get(PACE)
        try:
            pace = Pace(int(stored["rollouts"]), float(stored["seconds"]), str(stored["at"]))
        except (KeyError, TypeError, ValueError, OverflowError):
            return None
        return pace if pace.rollouts > 0 and 0 < pace.seconds < inf else None

    def write(
        self, asked: SampleRequest, tasks: Iterable[Task], signals: Iterable[TaskSignal], pace: Pace
    ) -> None:
        """Add new outcomes; write errors are ignored."""
        file, added = self._file(asked), _rows({t.slug: t for t in tasks}, signals, pace)
        with suppress(OSError):
            change_atomic(file, lambda: json.dumps({**self._load(file), **added}))
            self._forget()

    def _load(self, file: Path) -> dict[str, Any]:
        try:
            value = parse(read_regular(file, MAX_BYTES).decode("utf-8")).value
        except (OSError, UnicodeDecodeError):
            return {}
        return value if isinstance(value, dict) else {}

    def _forget(self) -> None:
        files = sorted(self._folder.glob("*.json"), key=lambda file: -file.stat().st_mtime)
        for file in files[FILES:]:
            file.unlink(missing_ok=True)

    def _file(self, asked: SampleRequest) -> Path:
        named = digest([asked.model_id, asked.checkpoint, asked.sampling])
        return self._folder / f"{named}.json"


def _key(task: Task) -> str:
    """Hash of everything that a task's rollouts depend on."""
    return digest([task.env, task.scenario, task.args, task.more])


def _rows(slugs: Mapping[str, Task], signals: Iterable[TaskSignal], pace: Pace) -> dict[str, Any]:
    """Entries of the file for sampled outcomes."""
    rows: dict[str, Any] = {}
    for signal in signals:
        if signal.outcomes and signal.basis == "sampled":
            outcomes = [list(astuple(outcome)) for outcome in signal.outcomes]
            rows[_key(slugs[signal.slug])] = {"at": signal.at, "outcomes": outcomes}
    if pace.rollouts:
        time = pace.at or datetime.now(UTC).isoformat(timespec="seconds")
        rows[PACE] = {"rollouts": pace.rollouts, "seconds": pace.seconds, "at": time}
    return rows


def _kept_signal(stored: object, task: Task) -> TaskSignal | None:
    if not isinstance(stored, dict):
        return None
    try:
        outcomes = tuple(_outcome(*outcome) for outcome in stored["outcomes"])
        return TaskSignal(task.slug, outcomes, task.where, basis="cached", at=str(stored["at"]))
    except (KeyError, TypeError, ValueError, OverflowError):
        return None


def _outcome(reward: Any, tokens: Any, seconds: Any, truncated: Any) -> Outcome:
    return Outcome(
        float(reward),
        None if tokens is None else int(tokens),
        None if seconds is None else float(seconds),
        bool(truncated),
    )


# Measuring the signal: from the cache, from recorded traces, and by sampling.


GROUP_SIZE = 8
MOST = 100_000
"""Maximum number of rollouts of one measurement."""
NOT_SAMPLED = "rows up to v4 and held-out ones are not sampled"


async def ask_of(
    client: HudClient, model: Model, parameters: JobParameters, groups: int
) -> SampleRequest:
    """The rollouts to make, with the run's parameters and the model's current head. Raises
    HudUsage: too many rollouts."""
    defaults = model.training_defaults
    size = parameters.group_size or (defaults.group_size if defaults else GROUP_SIZE)
    if groups * size > MOST:
        what = f"{groups} groups of {size} rollouts are more than {MOST} rollouts"
        raise HudUsage(what, "sample fewer groups")
    head = Tree.of(await client.checkpoints(model.id)).served
    longest = parameters.max_tokens or (defaults.max_tokens if defaults else None)
    sampling = {
        "max_tokens": None if parameters.reasoning_effort else longest,
        "reasoning_effort": parameters.reasoning_effort,
        "temperature": parameters.temperature or 1.0,
    }
    chosen = {name: value for name, value in sampling.items() if value is not None}
    return SampleRequest(
        model.id, model.model_name, head.id if head else None, size, groups, chosen
    )


def size_of(
    model: Model, parameters: JobParameters, asked: SampleRequest, tasks: Sequence[Task]
) -> Size:
    """Size of the run from its parameters, else the model's defaults."""
    defaults = model.training_defaults
    return Size(
        group_size=asked.group_size,
        tasks_per_step=parameters.tasks_per_step or (defaults.tasks_per_step if defaults else None),
        steps=parameters.steps or (defaults.steps if defaults else None),
        train_tasks=sum(not task.heldout for task in tasks),
        substeps=parameters.substeps or 1,
    )


def choose(tasks: Sequence[Task], groups: int) -> list[Task]:
    """The tasks to roll out, one per group; always the same ones for a taskset.

    Args:
        tasks: Held-out tasks and rows up to v4 are skipped.
        groups: Number of groups; if more than tasks, it starts over with the first.
    """
    able = [task for task in tasks if not task.heldout and not task.is_legacy]
    Random(0).shuffle(able)
    return [able[number % len(able)] for number in range(groups)] if able else []


async def measure(
    client: HudClient,
    tasks: Sequence[Task],
    model: Model,
    asked: SampleRequest,
    cache: SignalCache | None = None,
    taskset_id: str | None = None,
) -> AsyncGenerator[Progress, None]:
    """Measure a taskset's signal; the last progress is the result.

    Args:
        cache: Outcomes of this head; new ones are added. None: no cache.
        taskset_id: A taskset of the platform, whose recorded traces are used too.

    Raises:
        HudUsage: No task can be rolled out.
        HudError: The service does not answer.
    """
    chosen = choose(tasks, asked.groups)
    if not chosen:
        raise HudUsage("no task to roll out", NOT_SAMPLED)
    signals = {} if cache is None else cache.read(asked, chosen)
    if taskset_id is not None and not client.settings.embedded:
        signals = await recorded(client, taskset_id, model, chosen) | signals
    enough = _enough(signals, chosen, asked.group_size)
    missing = [task for task in chosen if task.slug not in enough]
    before = last = _before(enough, len(missing), asked, cache)
    yield last
    if not missing:
        return
    try:
        async with aclosing(sample(client, missing, asked)) as sampled:
            async for now in sampled:
                last = _added(before, now)
                yield last
    finally:
        if cache is not None:
            cache.write(asked, chosen, _whole(last.signals, asked), last.pace)


def _enough(
    signals: Mapping[str, TaskSignal], chosen: Sequence[Task], group_size: int
) -> dict[str, TaskSignal]:
    """Signals by slug that have an outcome for each chosen rollout."""
    groups = Counter(task.slug for task in chosen)
    return {
        slug: signal
        for slug, signal in signals.items()
        if len(signal.outcomes) >= groups[slug] * group_size
    }


def _whole(signals: Sequence[TaskSignal], asked: SampleRequest) -> list[TaskSignal]:
    return [signal for signal in signals if len(signal.outcomes) >= asked.group_size]


def _before(
    signals: Mapping[str, TaskSignal], missing: int, asked: SampleRequest, cache: SignalCache | None
) -> Progress:
    """Progress before sampling; `missing` groups remain."""
    pace = cache.pace(asked) if cache is not None else None
    total, left = asked.groups * asked.group_size, missing * asked.group_size
    return Progress(total - left, total, tuple(signals.values()), pace or Pace(0, 0.0))


def _added(before: Progress, now: Progress) -> Progress:
    """The known outcomes together with those sampled so far."""
    signals = (*before.signals, *now.signals)
    return replace(now, done=before.done + now.done, total=before.total, signals=signals)
