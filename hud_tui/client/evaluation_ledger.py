"""Evaluations that this program makes: their rollouts are stored, and the service is told.

On HUD this program requests every rollout; on an environment of the user's own, a process on this
machine makes them; `EvaluationLedger` stores both.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from time import monotonic
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol

from hud_tui.client.evaluation_files import EvaluationFiles, StoredEvaluation
from hud_tui.errors import HudError, HudNotFound, HudUnreachable
from hud_tui.processes import this_process
from hud_tui.rl.tasks.formats import read_rows
from hud_tui.rl.tasks.task import Task
from hud_tui.rl.text import one_line
from hud_tui.rl.work import has_ended
from hud_tui.sampling import Maker, sample_missing
from hud_tui.wire import WorkState
from hud_tui.wire_runs import KeepEvaluation

if TYPE_CHECKING:
    from hud_tui.client.client import HudClient

Graded = tuple[str, float]
"""A rollout's task and reward."""


async def known_rewards(
    client: "HudClient",
    evaluation_id: str,
    samples: int,
    stored: Mapping[str, Sequence[float]] = MappingProxyType({}),
) -> dict[str, list[float]]:
    """Rewards by task of an evaluation's rollouts: the stored ones, or those that the service has
    of a task if they are more, as after a kill; at most `samples` per task."""
    rewards: dict[str, list[float]] = {}
    with suppress(HudNotFound):
        for trace in await client.rollouts.job_traces(evaluation_id):
            if trace.status == "completed" and trace.reward is not None and trace.task_slug:
                rewards.setdefault(trace.task_slug, []).append(trace.reward)
    for slug, row in stored.items():
        if len(row) >= len(rewards.get(slug, ())):
            rewards[slug] = list(row)
    return {slug: row[:samples] for slug, row in rewards.items()}


# Making one.


class RolloutMaker(Maker[Task, Sequence[Graded]], Protocol):
    """Makes rollouts of an evaluation for `EvaluationLedger`."""

    @property
    def trouble(self) -> str:
        """Error of the last rollout that failed."""
        ...


Call = Callable[[Callable[["HudClient"], Awaitable[Any]]], Awaitable[Any]]
"""Asks the service, perhaps repeatedly."""


class EvaluationLedger:
    """Stores an evaluation's rollouts in its file."""

    def __init__(self, files: EvaluationFiles, stored: StoredEvaluation, call: Call) -> None:
        self.stored = stored
        self.news = asyncio.Event()
        """Set whenever `stored` changes."""
        self.is_told = False
        """Whether the service lists it, and is told of its beginning and end."""
        self.has_begun = False
        """Whether its beginning was told, if the service is told."""
        self._files, self._call = files, call
        self._spent, self._began = stored.evaluation.seconds or 0.0, monotonic()

    async def fill(self, maker: RolloutMaker) -> None:
        """Make what is missing, and store the outcome, in `ending`. Raises HudError."""
        await self.made()
        await self.tell()
        tasks, samples = read_rows(self.stored.tasks), self.stored.evaluation.samples
        await sample_missing(tasks, samples, maker, self)
        await self._end(self.stored.over(maker.trouble))

    @asynccontextmanager
    async def ending(self) -> AsyncIterator[None]:
        """Store how the block ends if it does so early: cancelled if it is cancelled, interrupted
        if the service does not answer, failed for another HudError."""
        try:
            yield
        except BaseException as error:
            if not has_ended(self.stored.evaluation.status):  # else its end could not be told
                await asyncio.shield(self._end_early(error))
            raise

    async def _end_early(self, error: BaseException) -> None:
        match error:
            case HudUnreachable():
                self.write(self.stored.ended("interrupted", one_line(error.message, 300)))
            case HudError():
                await self._end(self.stored.ended("failed", one_line(error.message, 300)))
            case _:  # e.g. cancelled, because nobody follows it any more
                await self._end(self.stored.ended("cancelled"))

    async def made(self) -> Mapping[str, int]:
        evaluation, stored = self.stored.evaluation, self.stored.rewards
        rewards = await self._call(
            lambda c: known_rewards(c, evaluation.id, evaluation.samples, stored)
        )
        self.write(self.stored.scored(rewards, status="running"))
        return {slug: len(row) for slug, row in rewards.items()}

    async def keep(self, part: Sequence[Graded]) -> None:
        rewards = self.stored.rewards
        for slug, reward in part:
            rewards.setdefault(slug, []).append(reward)
        took = self._spent + monotonic() - self._began
        self.write(self.stored.scored(rewards, seconds=took))

    def write(self, stored: StoredEvaluation) -> None:
        self._files.write(stored)
        self.stored = stored
        self.news.set()

    async def tell(self) -> None:
        """Tell the service how it stands."""
        if self.is_told:
            with suppress(HudUnreachable):  # the state is in the file already
                await self._call(partial(tell, evaluation=self.stored.evaluation))
                self.has_begun = True

    async def _end(self, stored: StoredEvaluation) -> None:
        self.write(stored)
        await self.tell()


async def tell(client: "HudClient", evaluation: WorkState) -> None:
    """Tell the embedded service how an evaluation stands that this program makes. Raises
    HudError."""
    fields = evaluation.model_dump(include=set(KeepEvaluation.model_fields), exclude_none=True)
    body = KeepEvaluation.model_validate(fields | {"driver": this_process()})
    await client.runs.keep_evaluation(evaluation.id, body)


class Drivers(Protocol):
    """Processes on this machine that carry out runs and evaluations on environments of the user's
    own, and go on when whoever began them ends."""

    def is_active(self, work_id: str) -> bool:
        """Whether a process carries it out, or waits for its turn."""
        ...

    async def stop(self, work_id: str) -> None:
        """Have the process store its end, and wait for that; nothing if there is none."""
        ...

    async def start(self, client: "HudClient", evaluation_id: str) -> None:
        """Start the process of a queued evaluation. Raises HudError: it did not begin."""
        ...

    async def state(self, client: "HudClient", run_id: str) -> WorkState | None:
        """How a run that was begun here stands; None: it was not. Raises HudError."""
        ...

    async def resume(self, client: "HudClient", run_id: str) -> WorkState | None:
        """Resume a run that was begun here; None: it was not. Raises HudError."""
        ...
