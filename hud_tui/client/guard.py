"""Guard: every request that is not a read passes here, and nowhere else, before it is sent."""

from collections.abc import Callable, Mapping
from functools import cached_property

from hud_tui.errors import HudProtected, HudReadOnly
from hud_tui.protection import Protection
from hud_tui.rl.safety import ReadOnly
from hud_tui.rl.text import one_line
from hud_tui.rl.written import Change

GUARDED = frozenset(
    {
        *("set head", "submit", "cancel", "resume", "unpin"),
        *("forward-backward", "backward", "optim step"),
    }
)
"""What changes a model that is there. Forks leave their source as it is; pins only keep."""


class Guard:
    """Refuses what may not be sent. A client has one of its own that refuses nothing."""

    def __init__(
        self,
        find: Callable[[], ReadOnly | None] = lambda: None,
        protection: Protection | None = None,
        confirmed: str | None = None,
    ) -> None:
        """
        Args:
            find: Says why nothing may be changed; it is asked once, when that matters.
            protection: Says which models are protected; None protects for the session.
            confirmed: The name of a protected model that may be changed all the same.
        """
        self._find, self.protection = find, protection or Protection()
        self._confirmed = confirmed
        self._allowed: set[str] = set()
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

    @property
    def protected(self) -> Mapping[str, str]:
        """Names of protected models, by id.

        Raises:
            HudUsage: Nobody knows which are.
        """
        return self.protection.models

    def allow(self, model_id: str) -> None:
        """Let the next change of a protected model through: somebody has typed its name."""
        self._allowed.add(model_id)

    def check(self, what: str, change: Change | None = None) -> None:
        """Let a request through, e.g. ``PUT /v2/models/m/head``.

        Raises:
            HudReadOnly: Nothing but reads is sent.
            HudProtected: It changes a protected model, and nobody has typed its name.
            HudUsage: Nobody knows which models are protected.
        """
        if self.shut is not None:
            raise HudReadOnly(self.shut.why, what, self.shut.cure)
        if change is None or change.verb not in GUARDED:
            return
        name = self.protected.get(change.model)
        if name is None or self._confirmed in (name, change.model):
            return
        if change.model in self._allowed:
            self._allowed.remove(change.model)
            return
        raise HudProtected(one_line(name, 100), change.verb)
