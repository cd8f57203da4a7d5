"""Sampling an evaluation, given a maker of rollouts and a ledger."""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hud_tui.rl.plan import MissingRollouts, in_parts
from hud_tui.sampling import sample_missing


@dataclass(frozen=True)
class Named:
    slug: str
    heldout: bool = False


Rollout = tuple[str, int]


class Broken(Exception):
    """What ends the making of rollouts."""


@dataclass
class Maker:
    """Makes rollouts in parts; those of its calls that break do so after so many parts."""

    breaks: list[int] = field(default_factory=list)
    most: int = 4
    """Rollouts per part."""
    patience: int = 3
    """Consecutive failures after which it gives up."""
    fails: frozenset[Rollout] = frozenset()
    """Rollouts that fail."""
    tried: list[Rollout] = field(default_factory=list)
    losses: list[int] = field(default_factory=list)

    async def make(
        self, missing: Sequence[MissingRollouts[Named]]
    ) -> AsyncGenerator[list[Rollout], None]:
        left = self.breaks.pop(0) if self.breaks else None
        for part in in_parts(missing, self.most):
            if left is not None:
                left -= 1
                if left < 0:
                    raise Broken
            rollouts = [(one.task.slug, j) for one in part for j in one.indices]
            self.tried += rollouts
            yield [rollout for rollout in rollouts if rollout not in self.fails]

    async def recover(self, error: Exception, losses: int) -> None:
        self.losses.append(losses)
        if losses > self.patience:
            raise error


@dataclass
class Kept:
    stored: list[Rollout] = field(default_factory=list)
    error: Exception | None = None
    """What the next part meets."""

    async def made(self) -> Mapping[str, int]:
        return Counter(slug for slug, _ in self.stored)

    async def keep(self, part: list[Rollout]) -> None:
        await asyncio.sleep(0)
        if self.error is not None:
            error, self.error = self.error, None
            raise error
        self.stored += part


TASKS = [Named(str(number)) for number in range(6)]
EVERY = [(task.slug, j) for task in TASKS for j in range(3)]


@given(st.lists(st.integers(0, 6), max_size=3), st.integers(1, 8))
async def test_wherever_it_breaks_each_rollout_is_made_and_stored_once(
    breaks: list[int], most: int
) -> None:
    maker, kept = Maker(list(breaks), most), Kept()
    await sample_missing(TASKS, 3, maker, kept)
    assert sorted(maker.tried) == sorted(kept.stored) == sorted(EVERY)


async def test_it_gives_up_after_losses_without_a_part_in_between() -> None:
    maker, kept = Maker([1] * 5, most=3), Kept()
    await sample_missing(TASKS, 3, maker, kept)
    assert maker.losses == [1] * 5
    maker, kept = Maker([1, 0, 0, 0, 0], most=3), Kept()
    with pytest.raises(Broken):
        await sample_missing(TASKS, 3, maker, kept)
    assert maker.losses == [1, 2, 3, 4]
    assert kept.stored == EVERY[:3], "what was made before is stored"


async def test_a_part_that_cannot_be_stored_is_made_again() -> None:
    maker, kept = Maker(), Kept(error=Broken())
    await sample_missing(TASKS, 3, maker, kept)
    assert sorted(kept.stored) == sorted(EVERY)
    assert maker.losses == [1]


async def test_a_rollout_that_fails_is_tried_once_and_stays_missing() -> None:
    maker, kept = Maker(fails=frozenset({("2", 1), ("5", 0)})), Kept()
    await sample_missing(TASKS, 3, maker, kept)
    assert sorted(maker.tried) == sorted(EVERY)
    assert sorted(kept.stored) == sorted({*EVERY} - maker.fails)


async def test_a_part_is_stored_while_the_next_is_made_and_one_that_was_graded_is_never_lost() -> (
    None
):
    """Also if whoever waits for it is cancelled then."""
    begun, kept = asyncio.Event(), Kept()

    class Slow(Maker):
        async def make(
            self, missing: Sequence[MissingRollouts[Named]]
        ) -> AsyncGenerator[list[Rollout], None]:
            async for part in super().make(missing):
                yield part
                begun.set()
                await asyncio.Event().wait()

    sampling = asyncio.ensure_future(sample_missing(TASKS, 3, Slow(), kept))
    await begun.wait()
    sampling.cancel()
    await asyncio.gather(sampling, return_exceptions=True)
    assert kept.stored == EVERY[:3]
