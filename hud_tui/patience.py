"""Waiting: for an answer, until something is so, and before the next attempt."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from math import inf
from random import random
from time import monotonic
from typing import TypeVar

T = TypeVar("T")
E = TypeVar("E", bound=Exception)

FIRST_S, LONGEST_S = 0.5, 8.0
"""Shortest and longest wait before the next attempt, seconds."""


def backoff(failures: int, longest_s: float | None = None) -> float:
    """Seconds to wait after so many failures in a row, at least 1: doubled each time, less up to a
    quarter at random, so that not all who wait come at once. `longest_s`: None for LONGEST_S."""
    longest_s = LONGEST_S if longest_s is None else longest_s  # as it is now, not at import
    return min(longest_s, FIRST_S * 2.0 ** min(failures - 1, 16)) * (1 - 0.25 * random())


async def retried(
    call: Callable[[], Awaitable[T]], kind: type[E], pause: Callable[[E, int], float | None]
) -> T:
    """Repeat a repeatable call until it succeeds.

    Args:
        pause: Given the exception and the number of failures so far, at least 1, the seconds until
            the next attempt; None to give up.

    Raises:
        E: The last one, once it was given up.
    """
    failures = 0
    while True:
        try:
            return await call()
        except kind as error:
            failures += 1
            pause_s = pause(error, failures)
            if pause_s is None:
                raise
        await asyncio.sleep(pause_s)


class Patience:
    """Seconds of waiting, counted from look to look.

    Between two looks at most `look_s` count: a halt of this process, or a sleep of the machine, is
    no time in which an answer could have come.
    """

    def __init__(self, seconds: float = inf, look_s: float | None = None) -> None:
        """`seconds`: limit; `look_s` None: a quarter of it."""
        self._seconds, self._look_s = seconds, seconds / 4 if look_s is None else look_s
        self._waited_s, self._looked_at = 0.0, monotonic()

    def count(self) -> float:
        """Count the time since the last look; returns all that was counted, seconds."""
        now = monotonic()
        self._waited_s += min(now - self._looked_at, self._look_s)
        self._looked_at = now
        return self._waited_s

    def is_over(self) -> bool:
        """`count`; whether the limit is reached."""
        return self.count() >= self._seconds

    def renew(self) -> None:
        """Count from 0 again: there was an answer."""
        self._waited_s, self._looked_at = 0.0, monotonic()


class Looks:
    """Moments to look whether something is so: now, and after each pause until time is over.

    ``async for`` gives the seconds passed; what follows the loop is for when time was over, as of
    `Patience`.
    """

    def __init__(self, pause_s: float, patience_s: float = inf) -> None:
        self._pause_s = pause_s
        self._patience = Patience(patience_s, max(pause_s, patience_s / 4))
        self._began: float | None = None

    def __aiter__(self) -> "Looks":
        return self

    async def __anext__(self) -> float:
        if self._began is None:
            self._began = monotonic()
            self._patience.renew()
            return 0.0
        if self._patience.is_over():
            raise StopAsyncIteration
        await asyncio.sleep(self._pause_s)
        return monotonic() - self._began


OUTCOME_PAUSES_S = (0.0, 0.5, 1.0, 2.0)
"""Pause before each look for the outcome of a call whose answer was lost, seconds."""


async def outcome_looks() -> AsyncIterator[None]:
    """Moments to look for the outcome of a call whose answer was lost."""
    for pause_s in OUTCOME_PAUSES_S:
        await asyncio.sleep(pause_s)
        yield


async def in_time(
    answer: Awaitable[T], seconds: int, waited: Callable[[int], object] = lambda seconds: None
) -> T:
    """Await an answer for a limited time; it is cancelled at the end.

    Args:
        seconds: Limit, counted only while this process runs: after the machine slept, or this
            process was stopped, the answer gets the remaining time.
        waited: Called after each second with the seconds waited.

    Raises:
        TimeoutError: No answer within the limit.
    """
    task = asyncio.ensure_future(answer)
    try:
        for passed in range(seconds):
            if (await asyncio.wait({task}, timeout=1))[0]:
                return task.result()
            waited(passed + 1)
        raise TimeoutError(f"did not answer for {seconds} s")
    finally:
        task.cancel()


async def rest(seconds: float, ends: asyncio.Event) -> bool:
    """Wait so long, or until an event; whether it came."""
    try:
        async with asyncio.timeout(seconds):
            return await ends.wait()
    except TimeoutError:
        return False
