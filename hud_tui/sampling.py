"""Sampling an evaluation: the same rules wherever its rollouts are made.

A `Maker` makes rollouts, and a `Ledger` stores them. Each part is stored as soon as it is graded,
while the next one is made; whatever is killed, only what is not stored is made again.
"""

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from typing import Generic, Protocol, TypeVar

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
