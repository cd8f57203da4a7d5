"""Guard: every request that is not a read passes here, and nowhere else, before it is sent."""

from collections.abc import Callable
from functools import cached_property

from hud_tui.errors import HudReadOnly
from hud_tui.rl.safety import ReadOnly


class Guard:
    """Refuses what may not be sent. A client has one of its own that refuses nothing."""

    def __init__(self, find: Callable[[], ReadOnly | None] = lambda: None) -> None:
        """`find` says why nothing may be changed; it is asked once, when that matters."""
        self._find = find
        self.offline: ReadOnly | None = None
        """What to say while the service does not answer; None while it does."""

    @cached_property
    def read_only(self) -> ReadOnly | None:
        """Why nothing is sent but what reads; None where everything may be sent."""
        return self._find()

    @property
    def shut(self) -> ReadOnly | None:
        """Why nothing is sent now: told so from the start, or because nobody would answer."""
        return self.read_only or self.offline

    def check(self, what: str) -> None:
        """Let a request through, e.g. ``PUT /v2/models/m/head``.

        Raises:
            HudReadOnly: Nothing but reads is sent.
        """
        if self.shut is not None:
            raise HudReadOnly(self.shut.why, what, self.shut.cure)
