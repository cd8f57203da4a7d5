"""Requests under way at once, of which the first failure is told as it is."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

from hud_tui.errors import HudError


@asynccontextmanager
async def together() -> AsyncIterator[asyncio.TaskGroup]:
    """A task group; when requests in it fail, the others are cancelled.

    A plain ``except`` on purpose: what leaves an ``except*`` is wrapped in a group again by
    Python 3.11.0 to 3.11.3 (https://github.com/python/cpython/issues/103590).

    Raises:
        HudError: The first failure, where nothing but requests failed.
        BaseExceptionGroup: Something else failed too.
    """
    try:
        async with asyncio.TaskGroup() as tasks:
            yield tasks
    except BaseExceptionGroup as failures:
        errors = [error for error in _flat(failures) if isinstance(error, HudError)]
        if not errors or failures.split(HudError)[1] is not None:
            raise
        raise errors[0] from None


def _flat(failures: BaseExceptionGroup[BaseException]) -> Iterator[BaseException]:
    for error in failures.exceptions:
        if isinstance(error, BaseExceptionGroup):
            yield from _flat(error)
        else:
            yield error
