"""Memory that the service shares with its engine's processes: a file without a name.

The service decides what lies where; the processes read and write there (`worker.Mapped`). The file
is freed with the last of them, however that ends.
"""

import mmap
import os
import weakref
from bisect import insort
from contextlib import suppress
from tempfile import TemporaryFile

PAGE = mmap.ALLOCATIONGRANULARITY
KEPT = 16 << 20
"""Most bytes of free memory that the system is not given back: those that are taken again and again
cost no page faults."""


class Region:
    """Some bytes of a memory, which are free again when nobody refers to them."""

    def __init__(self, memory: "Memory", start: int, size: int) -> None:
        self._memory = memory
        self.start = start
        """A multiple of the page size."""
        self.size = size

    def trim(self, size: int) -> None:
        """Keep the first bytes only."""
        size = _whole_pages(size)
        if size < self.size:
            self._memory.free(self.start + size, self.size - size)
            self.size = size

    def __del__(self) -> None:
        self._memory.free(self.start, self.size)


class Memory:
    """A file without a name, and which parts of it are free. It takes memory where it was written
    to."""

    def __init__(self) -> None:
        self.descriptor = _nameless_file()
        """For processes of ours to inherit."""
        weakref.finalize(self, os.close, self.descriptor).atexit = False
        self._size = 0
        self._free: list[tuple[int, int]] = []
        """Start and size of each gap, in order; no two of them touch."""
        self._unused = 0
        """Bytes that were freed since all gaps were given back to the system."""

    def take(self, size: int) -> Region:
        """A region of at least so many bytes, whose content is undefined."""
        size = _whole_pages(size)
        for number, (start, room) in enumerate(self._free):
            if room >= size:
                rest = [(start + size, room - size)] if room > size else []
                self._free[number : number + 1] = rest
                return Region(self, start, size)
        start, self._size = self._size, self._size + size
        os.ftruncate(self.descriptor, self._size)
        return Region(self, start, size)

    def free(self, start: int, size: int) -> None:
        """Take back what a region no longer needs."""
        self._unused += size
        insort(self._free, (start, size))
        number = self._free.index((start, size))
        if number + 1 < len(self._free) and start + size == self._free[number + 1][0]:
            size += self._free.pop(number + 1)[1]
            self._free[number] = (start, size)
        if number and sum(self._free[number - 1]) == start:
            before = self._free.pop(number - 1)
            self._free[number - 1] = (before[0], before[1] + size)
        if self._unused > KEPT:
            self._unused = 0
            for gap in self._free:
                _discard(self.descriptor, *gap)


def _whole_pages(size: int) -> int:
    return -(-max(size, 1) // PAGE) * PAGE


def _nameless_file() -> int:
    """Descriptor of a new file without a name: in memory on Linux, else of temporary files, which
    are kept in memory as long as there is room."""
    if hasattr(os, "memfd_create"):
        with suppress(OSError):  # a system that is too old, or a sandbox
            return os.memfd_create("hud-tui engine")
    with TemporaryFile(buffering=0) as file:
        return os.dup(file.fileno())


def _discard(descriptor: int, start: int, size: int) -> None:
    """Give the memory behind some bytes back to the system, where it takes it (Linux)."""
    advice = getattr(mmap, "MADV_REMOVE", None)
    if advice is not None:
        with suppress(OSError, ValueError), mmap.mmap(descriptor, size, offset=start) as pages:
            pages.madvise(advice)
