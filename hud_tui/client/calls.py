"""Calls: what every area of the client has in hand."""

from collections.abc import Mapping
from typing import TypeVar
from urllib.parse import quote

from hud_tui.client.http import Connection
from hud_tui.errors import HudMalformed
from hud_tui.settings import Settings
from hud_tui.wire import Page

T = TypeVar("T")


class Calls:
    """Base of the areas; paths are in them and nowhere else."""

    settings: Settings
    wire: Connection

    def api(self, path: str, *names: str) -> str:
        """A URL of the platform; ``{}`` in the path takes the names, quoted."""
        return self.settings.api_url + _fill(path, names)

    def rl(self, path: str, *names: str) -> str:
        """A URL of the training service."""
        return self.settings.rl_url + _fill(path, names)

    async def pages(
        self,
        url: str,
        row: type[T],
        size: int = 100,
        most: int | None = None,
        params: Mapping[str, str | int] | None = None,
    ) -> list[T]:
        """All rows of a paged collection, to its true total, or the first `most`.

        Raises:
            HudMalformed: An empty page came before the total was reached.
        """
        rows: dict[str, T] = {}
        offset = 0
        while True:
            asked = {**(params or {}), "limit": size, "offset": offset}
            page: Page[T] = await self.wire.get(url, Page[row], asked)  # type: ignore[valid-type]
            rows |= {
                getattr(item, "id", str(offset + i)): item for i, item in enumerate(page.items)
            }
            offset += len(page.items)
            if offset >= (page.total if most is None else min(most, page.total)):
                return list(rows.values())[:most]
            if not page.items:
                raise HudMalformed(
                    f"GET {url}: {offset} of {page.total} rows came, then an empty page",
                    "try again: the list may be changing",
                )


def _fill(path: str, names: tuple[str, ...]) -> str:
    return path.format(*(quote(name, safe="") for name in names))
