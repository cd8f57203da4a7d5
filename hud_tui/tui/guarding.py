"""GuardingApp: a key that would change the service says why it does not, where it may not.

The client refuses such requests by itself. This is for people: they are told before a
dialog has asked them anything.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from functools import partial
from typing import TYPE_CHECKING, Any

from textual.actions import parse

from hud_tui.keys import WRITES
from hud_tui.rl.text import one_line
from hud_tui.tui.alarming import AlarmingApp
from hud_tui.tui.widgets.palette import LOCK

if TYPE_CHECKING:
    from textual.actions import ActionParseResult
    from textual.dom import DOMNode

    from hud_tui.rl.safety import ReadOnly


class GuardingApp(AlarmingApp):
    @property
    def read_only(self) -> ReadOnly | None:
        """Why nothing is changed; None where everything may be."""
        return None if self.client is None else self.client.wire.guard.shut

    def may_change(self) -> bool:
        """Whether the service may be changed; where it may not, that is said."""
        said = self.read_only
        if said is not None:
            text = f"{said.kind}: {said.why}\n{said.cure}"
            self.notify(text, severity="warning", markup=False)
        return said is None

    async def confirm_name(self, model_id: str | None, what: str) -> bool:
        """Have the name of a protected model typed before it is changed.

        Args:
            model_id: The model's; None where none is known.
            what: What would be done, e.g. ``set its head``.

        Returns:
            Whether the next change of it is meant, or it is not protected.

        Raises:
            HudUsage: Nobody knows which models are protected.
        """
        guard = self.connected.wire.guard
        if model_id is None or model_id not in guard.protected:
            return True
        if not await self.type_name(guard.protected[model_id], what):
            return False
        guard.allow(model_id)
        return True

    async def type_name(self, name: str, what: str) -> bool:
        """Have a protected model's name typed; whether it was."""
        from hud_tui.tui.screens.dialogs import InputDialog

        shown = one_line(name, 100).strip()
        lines = [f"{shown} is protected on this machine.", f"To {what}, type its name."]
        wrong = f"type {shown}, or leave with esc"
        check = partial(_other, {shown, name.strip()}, wrong)
        dialog = InputDialog(f"{LOCK} {shown}", lines, "Go on", check=check)
        return await self.push_screen_wait(dialog) is not None

    async def run_action(
        self,
        action: str | ActionParseResult,
        default_namespace: DOMNode | None = None,
        namespaces: Mapping[str, DOMNode] | None = None,
    ) -> bool:
        """Do what a key, the palette or the help says, unless it may not be done."""
        if self.read_only is not None:
            asked: tuple[str, str, tuple[Any, ...]]
            asked = parse(action) if isinstance(action, str) else action
            where = self.screen if asked[0] == "screen" else default_namespace or self
            id_ = f"{getattr(where, 'VIEW', '')}.{asked[1]}"
            if id_ in WRITES and where.check_action(*asked[1:]):
                return not self.may_change()
        return await super().run_action(action, default_namespace, namespaces)


def _other(names: Set[str], wrong: str, text: str) -> str:
    return "" if text in names else wrong
