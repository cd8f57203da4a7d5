"""Over: a screen that lies over a view. A click beside its box leaves it, as Esc does."""

from __future__ import annotations

from typing import ClassVar, TypeVar

from textual.events import Click
from textual.screen import ModalScreen

T = TypeVar("T")


class Over(ModalScreen[T]):
    LEAVE: ClassVar[str] = "leave"
    """The action of the key that leaves it."""

    async def on_click(self, event: Click) -> None:
        if event.widget is self:
            await self.run_action(self.LEAVE)
