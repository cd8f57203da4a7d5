"""Handles: which policies are open in an engine's process, as the service knows them."""

from collections.abc import Callable
from typing import Generic, TypeVar

from hud_tui.service.engines.base import CLOSED, LOST, EngineError, EngineLost, Handle

Opened = TypeVar("Opened")


class Handles(Generic[Opened]):
    """What the service knows of the policies that an engine's process has open.

    All of them are lost with that process. They are forgotten then, with the memory that they hold;
    but whoever has such a handle is told each time that it is lost, so that the weights are opened
    again, and never that it is closed, which would be a mistake of the service's own.
    """

    def __init__(self, engine: str, pid: Callable[[], int | None]) -> None:
        """`pid`: the id of the present process; None if none runs."""
        self._engine, self._pid = engine, pid
        self._opened: dict[Handle, tuple[int | None, Opened]] = {}
        """With the id of its process."""
        self._count = self._lost = 0
        """Number of handles made so far, and up to which one they were lost."""

    def __len__(self) -> int:
        return len(self._opened)

    def new(self) -> Handle:
        """A handle that was never given to anybody."""
        self._count += 1
        return f"{self._engine}-{self._count}"

    def keep(self, handle: Handle, pid: int | None, opened: Opened) -> None:
        """Keep what is known of a policy that a process has open, or had: None if it has ended."""
        self._opened[handle] = pid, opened
        self._forget_lost()

    def find(self, handle: Handle) -> Opened | None:
        """What is known of a policy; None if it is closed or lost."""
        self._forget_lost()
        return self._opened[handle][1] if handle in self._opened else None

    def known(self, handle: Handle) -> Opened:
        """As `find`. Raises EngineLost: its process has ended; EngineError: it is closed."""
        opened = self.find(handle)
        if opened is not None:
            return opened
        raise EngineLost(LOST) if self._number(handle) <= self._lost else EngineError(CLOSED)

    def pop(self, handle: Handle) -> Opened | None:
        """`find`, and forget it."""
        opened = self.find(handle)
        self._opened.pop(handle, None)
        return opened

    def _forget_lost(self) -> None:
        present = self._pid()
        for handle, (pid, _) in list(self._opened.items()):
            if pid is None or pid != present:
                del self._opened[handle]
                self._lost = max(self._lost, self._number(handle))

    def _number(self, handle: Handle) -> int:
        """That of a handle that `new` made; of any other, one that it has not made yet."""
        number = handle.removeprefix(f"{self._engine}-")
        return int(number) if number.isdecimal() else self._count + 1
