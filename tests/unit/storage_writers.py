"""Writers of a state directory, each a program of its own: ``python -m … WHAT FILE NAME``."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from hud_tui.client.guard import Protection
from hud_tui.notebook import Notebook
from hud_tui.storage import JsonStore, write_atomic

NOTES = 50
LONG = 2_000_000
"""Characters of a file that takes a while to write."""


def take_notes(file: Path, name: str) -> None:
    book = Notebook(file)
    for number in range(NOTES):
        book.write(f"{name}-{number}", f"note {number} of {name}")


def protect(file: Path, name: str) -> None:
    Protection(lambda: file.parent).protect(name, f"model {name}", True)


def choose(file: Path, name: str) -> None:
    store = JsonStore(lambda: file.parent)
    for number in range(NOTES):
        store.write(file.stem, {f"{name}-{number}": number})


def rewrite(file: Path, name: str) -> None:
    """Until it is killed; says when it has begun."""

    def pieces(letter: str) -> Iterator[str]:
        for _ in range(LONG // 1000):
            yield letter * 1000

    for letter in name * 10_000:
        write_atomic(file, pieces(letter))
        print(letter, flush=True)


WRITERS: dict[str, Callable[[Path, str], None]] = {
    "notes": take_notes,
    "protect": protect,
    "choose": choose,
    "rewrite": rewrite,
}

if __name__ == "__main__":
    WRITERS[sys.argv[1]](Path(sys.argv[2]), sys.argv[3])
