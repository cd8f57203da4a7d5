"""FileSuggester: completes the path of a task file from what lies on the disk."""

from asyncio import to_thread
from os.path import expanduser
from pathlib import Path

from textual.suggester import Suggester

SUFFIXES = (".json", ".jsonl")
MOST = 5000
"""Entries of a directory that are looked at."""


class FileSuggester(Suggester):
    """Directories and task files, the first that begins as typed."""

    def __init__(self) -> None:
        super().__init__(use_cache=False, case_sensitive=True)

    async def get_suggestion(self, value: str) -> str | None:
        return await to_thread(complete, value) if value else None


def complete(typed: str) -> str | None:
    """The first path that begins with what was typed; None where none does."""
    folder, _, begun = typed.rpartition("/")
    root = Path(expanduser(folder + "/" if "/" in typed else "."))
    try:
        names = sorted(
            entry.name + ("/" if entry.is_dir() else "")
            for entry, _ in zip(root.iterdir(), range(MOST), strict=False)
            if entry.name.startswith(begun) and (entry.is_dir() or entry.suffix in SUFFIXES)
        )
    except OSError:
        return None
    hidden = begun.startswith(".")
    shown = [name for name in names if hidden or not name.startswith(".")]
    return typed + shown[0][len(begun) :] if shown else None
