"""Task rows completed from the lock file beside them, which is read only if a row needs it."""

from functools import cached_property
from pathlib import Path
from typing import Any

from hud_tui.older.lock_file import load_lock
from hud_tui.older.mcp import infer_servers

CALLS = ("setup_tool", "evaluate_tool")


class Completion:
    """Gives v4 rows without MCP servers those of the lock file's image."""

    def __init__(self, lock: Path | None) -> None:
        self._lock = lock
        self.used = 0
        """Rows that were completed."""

    def __call__(self, row: Any) -> Any:
        """A row as it should have been written; others as they are.

        Raises:
            HudUsage: The lock file is needed and cannot be read.
        """
        if self._lock is None or not isinstance(row, dict) or row.get("mcp_config"):
            return row
        if not row.get("prompt") or not any(row.get(key) for key in CALLS):
            return row
        if self.servers is None:
            return row
        self.used += 1
        return {**row, "mcp_config": self.servers}

    @cached_property
    def servers(self) -> dict[str, Any] | None:
        return infer_servers(load_lock(self._lock)) if self._lock else None
