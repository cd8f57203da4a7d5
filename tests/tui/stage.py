"""Stage: the app on its Live view, with a run put there by hand and no service behind it."""

from collections.abc import Callable
from typing import cast

from hud_tui.client.client import HudClient
from hud_tui.rl.progress import Liveness, State
from hud_tui.rl.run import Run
from hud_tui.settings import Start
from hud_tui.storage import JsonStore
from hud_tui.tui.app import HudApp
from hud_tui.tui.screens.live import LiveScreen

LIVE = Liveness(State.LIVE, "stream", 0.0)


async def nobody(mode: str, key: str | None, say: Callable[[str], None]) -> HudClient:
    raise AssertionError("the stage has no service")


class Stage(HudApp):
    """The Live view of a run; `play` shows a newer one."""

    def __init__(
        self,
        run: Run,
        freshness: Liveness = LIVE,
        client: object = None,
        shelf: JsonStore | None = None,
    ) -> None:
        super().__init__(nobody, None, Start(), clock=lambda: 1_780_000_400.0, shelf=shelf)
        self.client = cast(HudClient | None, client)
        self.scene, self.fresh = run, freshness
        self.live = LiveScreen()

    def get_default_screen(self) -> LiveScreen:  # type: ignore[override]
        return self.live

    @property
    def run_now(self) -> Run:
        return self.scene

    @property
    def freshness(self) -> Liveness:
        return self.fresh

    @property
    def read_only(self) -> None:
        """What stands for a client here refuses nothing."""
        return None

    def play(self, run: Run, freshness: Liveness | None = None) -> None:
        self.scene, self.fresh = run, freshness or self.fresh
        self.live.run, self.live.freshness = self.scene, self.fresh
