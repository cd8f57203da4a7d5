"""The shared async client: every request this program makes goes through here."""

import sys

# httpx's own command line imports click, rich and pygments where they are installed: 35 ms
# for something nobody calls here. httpx falls back on its own when the import fails.
sys.modules.setdefault("httpx._main", None)  # type: ignore[arg-type]
