"""Memory that the service shares with its engine's processes: a file without a name.

The service decides what lies where; the processes read and write there (`worker.Mapped`). The file
is freed with the last of them, however that ends.
"""

import mmap
import os
import weakref
from bisect import insort
from collections import deque
from contextlib import suppress
from tempfile import TemporaryFile
from threading import Lock

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
        self._returned: deque[tuple[int, int]] = deque()
        """What is free and not among the gaps yet."""
        self._changing = Lock()
        """Held while the gaps change."""
        self._unused = 0
        """Bytes that were freed since all gaps were given back to the system."""

    def take(self, size: int) -> Region:
        """A region of at least so many bytes, whose content is undefined."""
        size = _whole_pages(size)
        with self._changing:
            self._take_back()
            return Region(self, self._place(size), size)

    def free(self, start: int, size: int) -> None:
        """Take back what a region no longer needs. The garbage collector may call it at any moment,
        in any thread: if the gaps are being changed, whoever does that takes it back."""
        self._returned.append((start, size))
        while self._returned and self._changing.acquire(blocking=False):
            try:
                self._take_back()
            finally:
                self._changing.release()

    def _place(self, size: int) -> int:
        """Start of a gap of so many bytes, which is none any more."""
        for number, (start, room) in enumerate(self._free):
            if room >= size:
                rest = [(start + size, room - size)] if room > size else []
                self._free[number : number + 1] = rest
                return start
        start, self._size = self._size, self._size + size
        os.ftruncate(self.descriptor, self._size)
        return start

    def _take_back(self) -> None:
        while self._returned:
            self._add(*self._returned.popleft())

    def _add(self, start: int, size: int) -> None:
        """Make a gap, and one of those that touch."""
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
