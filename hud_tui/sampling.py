"""Sampling an evaluation: the same rules wherever its rollouts are made.

A `Maker` makes rollouts, and a `Ledger` stores them. Each part is stored as soon as it is graded,
while the next one is made; whatever is killed, only what is not stored is made again.

`SampledAhead` has the batches of a run that are sampled while another one is trained on.
"""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import aclosing
from contextvars import Context
from typing import Any, Generic, Protocol, TypeVar

from hud_tui.rl.loop import Sample
from hud_tui.rl.plan import MissingRollouts, Splittable, missing_of

T = TypeVar("T", bound=Splittable)
R_co = TypeVar("R_co", covariant=True)
R_contra = TypeVar("R_contra", contravariant=True)
R = TypeVar("R")


class Maker(Protocol, Generic[T, R_co]):
    """Makes rollouts, and grades them."""

    def make(self, missing: Sequence[MissingRollouts[T]]) -> AsyncGenerator[R_co, None]:
        """Make these rollouts; yields each part of them as soon as it is graded.

        A rollout that fails ends nothing: it stays missing. Raises Exception: what ended the making
        early; see `recover`.
        """
        ...

    async def recover(self, error: Exception, losses: int) -> None:
        """Prepare for making what is still missing, after `make` or the ledger raised an error.
        `losses`: consecutive errors without a part in between, this one included. Raises Exception:
        the error, if trying again does not help."""
        ...


class Ledger(Protocol[R_contra]):
    """Stores the rollouts of one evaluation."""

    async def made(self) -> Mapping[str, int]:
        """The number of stored rollouts, by task."""
        ...

    async def keep(self, part: R_contra) -> None:
        """Store a part, whole or not at all."""
        ...


async def sample_missing(
    tasks: Sequence[T], samples: int, maker: Maker[T, R], ledger: Ledger[R]
) -> None:
    """Make and store what is missing of an evaluation; rollouts that fail are tried once. Raises
    Exception: of the maker, or of the ledger, if it does not pass."""
    losses = 0
    while missing := missing_of(tasks, samples, await ledger.made()):
        keeping: asyncio.Future[None] | None = None
        try:
            async with aclosing(maker.make(missing)) as parts:
                try:
                    async for part in parts:
                        if keeping is not None:
                            await keeping
                        keeping = asyncio.ensure_future(ledger.keep(part))
                        losses = 0
                finally:
                    if keeping is not None:
                        await keeping
            return
        except Exception as error:
            losses += 1
            await maker.recover(error, losses)


B = TypeVar("B")


class SampledAhead(Generic[B]):
    """Batches that are sampled while another one is trained on: one after the other, each from the
    weights that are newest when it begins."""

    def __init__(self, sample: Callable[[Sample], Awaitable[B]]) -> None:
        self._sample = sample
        self._batches = deque[tuple[int, asyncio.Task[B]]]()
        """Each with its iteration, which are consecutive."""

    def fill(self, wanted: Callable[[int], Sample | None]) -> None:
        """Begin the batches that `wanted`, given how many there are, still asks for."""
        while (action := wanted(len(self._batches))) is not None:
            before = self._batches[-1][1] if self._batches else None
            self.begin(action.iteration, self._after(before, action))

    def begin(
        self, iteration: int, batch: Coroutine[Any, Any, B], context: Context | None = None
    ) -> None:
        """Begin the batch of an iteration, which follows those that there are. `context`: in which;
        None for that of the caller."""
        task = asyncio.create_task(batch, name="sampling ahead", context=context)
        self._batches.append((iteration, task))

    async def _after(self, before: asyncio.Task[B] | None, action: Sample) -> B:
        if before is not None:
            await asyncio.wait({before})
        return await self._sample(action)

    async def take(self, iteration: int) -> B | None:
        """The batch of an iteration, as soon as it is sampled; None if it is not sampled ahead.
        Raises Exception: what ended its sampling."""
        if not self._batches or self._batches[0][0] != iteration:
            await self.drop()
            return None
        return await self._batches.popleft()[1]

    async def settled(self) -> None:
        """Wait until all batches are sampled."""
        if self._batches:
            await asyncio.wait({task for _, task in self._batches})

    async def drop(self) -> list[B]:
        """Forget all batches, and stop those that are being sampled; returns those that were."""
        tasks = [task for _, task in self._batches]
        self._batches.clear()
        for task in tasks:
            task.cancel()
        ended = await asyncio.gather(*tasks, return_exceptions=True)
        return [batch for batch in ended if not isinstance(batch, BaseException)]
