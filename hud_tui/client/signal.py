"""The signal of a taskset: groups rolled out by the service, watched until all have ended.

The service's own environments sample and grade, with the model that is to be trained,
pinned to the checkpoint that was its head when this began.

Source: the ``hud`` SDK 0.6.21 (HostedRuntime) submits a rollout under ids of its own and
reads the trace until it has ended.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from time import monotonic
from typing import TYPE_CHECKING
from uuid import uuid4

from hud_tui.client.groups import plain_id
from hud_tui.client.outcomes import outcome_of
from hud_tui.client.together import together
from hud_tui.errors import HudError, HudRefused, HudUnauthorized, HudUnclear
from hud_tui.rl.signal import TaskSignal
from hud_tui.rl.signal_progress import Asked, Progress
from hud_tui.rl.signal_report import Pace
from hud_tui.rl.tasks import Task
from hud_tui.rl.text import one_line
from hud_tui.wire import JobEnter, RolloutAgent, SubmitRollout, Trace

if TYPE_CHECKING:
    from hud_tui.client.client import HudClient

AT_ONCE = 64
"""Rollouts under way."""
CALLS = 8
"""Submissions under way."""
LOOK_S, FAR_LOOK_S = 0.15, 3.0
"""Seconds between two looks at the job: on this machine, and elsewhere."""
ROWS_S = 2000
"""Rows of a job that are read a second: a long one is looked at less often."""
PATIENCE_S = 600.0
"""Without any rollout ending for so long, those that are open are given up."""
ENDED = frozenset({"completed", "error", "cancelled"})


async def sample(
    client: "HudClient", chosen: Sequence[Task], asked: Asked
) -> AsyncGenerator[Progress, None]:
    """Roll out a group of each chosen task; ends when all have ended.

    A rollout that fails is counted as an error of its task. Where this is closed or cancelled
    before its end, the service is told to stop what it has.

    Raises:
        HudUnauthorized: The key may not.
        HudUnreachable: The service is gone.
    """
    sampling = _Sampling(client, chosen, asked)
    try:
        await sampling.enter()
        async for progress in sampling.run():
            yield progress
    finally:
        await sampling.stop()


class _Sampling:
    def __init__(self, client: "HudClient", chosen: Sequence[Task], asked: Asked) -> None:
        self._client, self._asked = client, asked
        self._job_id = str(uuid4())
        self._waiting = [
            (task, group)
            for task, group in ((t, str(uuid4())) for t in chosen)
            for _ in range(asked.group_size)
        ][::-1]
        self._total = len(self._waiting)
        self._open: dict[str, Task] = {}
        self._signals: dict[str, TaskSignal] = {}
        self._began = self._heard = monotonic()
        self._trouble = ""
        self._done = 0

    async def enter(self) -> None:
        """Give the job a name, where the service keeps jobs."""
        name = f"preflight on {self._asked.model}"
        with suppress(HudRefused, HudUnclear):
            body = JobEnter(name=name, group=self._asked.group_size)
            await self._client.enter_job(self._job_id, body)

    async def run(self) -> AsyncIterator[Progress]:
        look_s = LOOK_S if self._client.settings.local else FAR_LOOK_S
        while self._waiting or self._open:
            await self._submit()
            await self._look()
            yield self._progress()
            if self._open and monotonic() - self._heard > PATIENCE_S:
                self._fail_open("no answer came")
                return
            if self._open:
                await asyncio.sleep(max(look_s, self._done / ROWS_S))
        yield self._progress()

    async def stop(self) -> None:
        """Tell the service to stop what it still has; never in the way of what ended this."""
        if self._open:
            with suppress(HudError, TimeoutError):
                async with asyncio.timeout(5):
                    await asyncio.shield(self._client.cancel_job(self._job_id))

    async def _submit(self) -> None:
        """Keep AT_ONCE under way."""
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
            await self._client.submit_rollout(self._body(task, group, trace_id))
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

    async def _look(self) -> None:
        """Take in the rollouts that have ended."""
        for trace in await self._client.job_traces(self._job_id):
            if trace.status in ENDED and plain_id(trace.id) in self._open:
                task = self._open.pop(plain_id(trace.id))
                self._heard = monotonic()
                usable = trace.status == "completed" and trace.reward is not None
                said = one_line(trace.error or f"a rollout was {trace.status}", 300)
                self._note(task, trace if usable else None, said)

    def _note(self, task: Task, trace: Trace | None, trouble: str) -> None:
        key = task.slug
        known = self._signals.get(key) or TaskSignal(key, (), task.where)
        self._done += 1
        at = datetime.now(UTC).isoformat(timespec="seconds")
        if trace is None:
            self._trouble = trouble
            self._signals[key] = replace(known, errors=known.errors + 1, at=at)
        else:
            outcomes = (*known.outcomes, outcome_of(trace))
            self._signals[key] = replace(known, outcomes=outcomes, at=at)

    def _fail_open(self, why: str) -> None:
        for task in self._open.values():
            self._note(task, None, why)

    def _progress(self) -> Progress:
        made = sum(len(signal.outcomes) for signal in self._signals.values())
        pace = Pace(made, monotonic() - self._began)
        signals = tuple(self._signals.values())
        return Progress(self._done, self._total, signals, pace, self._trouble)
