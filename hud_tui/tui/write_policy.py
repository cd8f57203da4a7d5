"""WritePolicy: blocks writes in read-only mode and says why; has the names of protected models
typed before they are changed.

The client refuses such requests by itself. This is for people: they are told before a dialog
has asked them anything.
"""

from __future__ import annotations

from collections.abc import Callable, Set
from functools import partial

from textual.actions import ActionParseResult, parse
from textual.app import App
from textual.dom import DOMNode

from hud_tui.client.guard import Guard
from hud_tui.config import ReadOnly
from hud_tui.keys import WRITES
from hud_tui.rl.text import one_line
from hud_tui.tui.screens.dialogs import InputDialog
from hud_tui.tui.theme import LOCK


class WritePolicy:
    """What may be changed now."""

    def __init__(self, app: App[None], guard: Callable[[], Guard]) -> None:
        """
        Args:
            app: Shows notices and dialogs.
            guard: The present client's.
        """
        self._app, self._guard = app, guard

    @property
    def read_only(self) -> ReadOnly | None:
        """Why nothing is changed; None where everything may be."""
        return self._guard().shut

    def may_change(self) -> bool:
        """Whether the service may be changed; where it may not, that is said."""
        said = self.read_only
        if said is not None:
            text = f"{said.kind}: {said.why}\n{said.cure}"
            self._app.notify(text, severity="warning", markup=False)
        return said is None

    def blocks(self, action: str | ActionParseResult, where: DOMNode) -> bool:
        """Whether an action would change the service and may not, which is said."""
        if self.read_only is None:
            return False
        namespace, name, parameters = parse(action) if isinstance(action, str) else action
        node = self._app.screen if namespace == "screen" else where
        writes = f"{getattr(node, 'VIEW', '')}.{name}" in WRITES
        return bool(writes and node.check_action(name, parameters)) and not self.may_change()

    async def confirm_name(self, model_id: str | None, what: str) -> bool:
        """Have the name of a protected model typed before it is changed. From a worker.

        Args:
            model_id: The model's; None where none is known.
            what: What would be done, e.g. ``set its head``.

        Returns:
            Whether the next change of it is meant, or it is not protected.

        Raises:
            HudUsage: Nobody knows which models are protected.
        """
        guard = self._guard()
        if model_id is None or model_id not in guard.protected:
            return True
        if not await self.type_name(guard.protected[model_id], what):
            return False
        guard.allow(model_id)
        return True

    async def type_name(self, name: str, what: str) -> bool:
        """Have a protected model's name typed; whether it was. From a worker."""
        shown = one_line(name, 100).strip()
        lines = [f"{shown} is protected on this machine.", f"To {what}, type its name."]
        wrong = f"type {shown}, or leave with esc"
        check = partial(_other, {shown, name.strip()}, wrong)
        dialog = InputDialog(f"{LOCK} {shown}", lines, "Go on", check=check)
        return await self._app.push_screen_wait(dialog) is not None


def _other(names: Set[str], wrong: str, text: str) -> str:
    return "" if text in names else wrong
