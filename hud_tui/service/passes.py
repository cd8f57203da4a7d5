"""Passes: what was answered to gradient passes that carried a key.

They live as long as the gradients: in memory while these wait, and in the transaction of
the step that takes them. A restart forgets both, so asking again then does it anew.
"""

from collections import OrderedDict
from dataclasses import replace

from hud_tui.service.store.replies import KEPT, Kept


class Passes:
    def __init__(self) -> None:
        self._kept: OrderedDict[str, Kept] = OrderedDict()

    def keep(self, kept: Kept) -> None:
        """A pass was done; its gradients wait."""
        self._kept[kept.asked.key] = kept
        while len(self._kept) > KEPT:
            self._kept.popitem(last=False)

    def find(self, key: str) -> Kept | None:
        """What was answered to a key, if its pass was since the last step."""
        return self._kept.get(key)

    def waiting(self) -> list[Kept]:
        """Those whose gradients wait."""
        return [kept for kept in self._kept.values() if not kept.dropped]

    def stepped(self) -> None:
        """A step took the gradients, and the store has their replies."""
        for kept in self.waiting():
            del self._kept[kept.asked.key]

    def dropped(self) -> None:
        """The gradients are gone without a step."""
        for key, kept in self._kept.items():
            self._kept[key] = replace(kept, dropped=True)
