"""The ways through the code that docs/architecture.md writes down, and a trace that follows one."""

import asyncio
import re
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from hud_tui.service.service import Service

PAGE = Path(__file__).parents[1] / "docs/architecture.md"
Function = tuple[str, str]
"""A function's file in the package, and its name."""


class Way:
    """A table of functions, and what a traced program called of them."""

    def __init__(self, title: str, apart: frozenset[Function] = frozenset()) -> None:
        """
        Args:
            title: The heading of its section.
            apart: Functions of the table that others call, too: what leads to them is not followed.
        """
        text = PAGE.read_text()
        self._section = text.split(f"## {title}\n", 1)[1].split("\n## ", 1)[0]
        rows = re.findall(r"^\| `([\w.]+)` \| (\S+) \|", self._section, re.M)
        self.functions = [(file, name.rpartition(".")[2]) for name, file in rows]
        self.called: set[Function] = set()
        self._apart = apart
        self._between: set[str] = set()

    def note(self, frame: FrameType, event: str, _: object) -> None:
        """For `sys.setprofile`. What is called after the last of the table is not followed."""
        if event != "call" or len(self.called) == len(set(self.functions)):
            return
        function = _function(frame)
        if function in self.functions:
            self.called.add(function)
            if function not in self._apart:
                self._between.update(self._leading_to(frame))

    @contextmanager
    def traced(self) -> Iterator[None]:
        """Follow what this thread calls."""
        sys.setprofile(self.note)
        try:
            yield
        finally:
            sys.setprofile(None)

    @property
    def not_called(self) -> list[Function]:
        return [function for function in self.functions if function not in self.called]

    @property
    def not_named(self) -> set[str]:
        """Functions that were called between two of the table, and are not in its section."""
        return {name for name in self._between if f"`{name}`" not in self._section}

    @property
    def length(self) -> int:
        """How many functions a reader opens: those of the table, and those between them."""
        return len(self.functions) + len(self._between - {name for _, name in self.functions})

    def _leading_to(self, frame: FrameType) -> set[str]:
        """What was called from one function of the table on to the call of another; empty if none
        of them leads here."""
        between: set[str] = set()
        above = frame.f_back
        while above is not None:
            function = _function(above)
            if function in self.functions:
                return between
            if function is not None and not function[1].startswith("<"):
                between.add(function[1])
            above = above.f_back
        return set()


def _function(frame: FrameType) -> Function | None:
    """The function of a frame, if it is one of the package."""
    _, package, file = frame.f_code.co_filename.partition("/hud_tui/")
    return (file, frame.f_code.co_name) if package else None


async def follow_threads(service: Service, way: Way) -> None:
    """Follow what the store's thread and those of `asyncio.to_thread` call, too."""
    await service.parts.store.read(lambda _: sys.setprofile(way.note))
    threads = ThreadPoolExecutor(initializer=sys.setprofile, initargs=(way.note,))
    asyncio.get_running_loop().set_default_executor(threads)


def assert_is_whole(way: Way, most: int) -> None:
    assert way.not_called == [], way.not_called
    assert way.not_named == set(), sorted(way.not_named)
    assert way.length <= most
