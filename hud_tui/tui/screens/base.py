"""HudScreen: a view with the top line and the footer, that survives a failed call."""

from __future__ import annotations

from asyncio import CancelledError
from collections.abc import Awaitable, Iterable
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from textual import work
from textual.app import ComposeResult
from textual.reactive import reactive
from textual.screen import Screen
from textual.widget import Widget
from textual.widgets import Input

from hud_tui.errors import HudError
from hud_tui.rl.progress import Liveness, State
from hud_tui.rl.run import Run
from hud_tui.rl.safety import OFFLINE
from hud_tui.tui.widgets.form import Picker
from hud_tui.tui.widgets.key_line import KeyLine
from hud_tui.tui.widgets.offline_line import OfflineLine
from hud_tui.tui.widgets.top_line import TopLine

if TYPE_CHECKING:
    from hud_tui.client.client import HudClient
    from hud_tui.rl.export.sheet import Sheet
    from hud_tui.tui.app import HudApp

T = TypeVar("T")
WIDTHS = [(0, "-slim"), (60, "-narrow"), (110, "-wide")]
HEIGHTS = [(0, "-short"), (20, "-tall")]
"""The class a view has from so many columns and lines on, for its style sheet."""


def make_way(screen: Screen[Any]) -> None:
    """Have notices come at the top of a screen while one types in its lower half."""
    field = screen.focused
    low = isinstance(field, Input | Picker) and 2 * field.region.y >= screen.size.height
    screen.set_class(low, "-typing-low")


class HudScreen(Screen[None]):
    """One of the six views. `run` and `freshness` follow the app's while it is shown."""

    VIEW: ClassVar[str]
    HORIZONTAL_BREAKPOINTS = WIDTHS
    VERTICAL_BREAKPOINTS = HEIGHTS

    run: reactive[Run] = reactive(Run, repaint=False)
    freshness: reactive[Liveness] = reactive(
        Liveness(State.CONNECTING, "connecting", None), repaint=False
    )
    """Neither repaints the screen itself: that would draw every line of every pane again."""

    _edition = 0
    """Of the layout that is shown."""

    def compose(self) -> ComposeResult:
        said = self.hud.read_only
        told = said is not None and said.kind != OFFLINE  # that has a line of its own, and ends
        top = TopLine(self.VIEW, self.hud.service, told)
        yield top.data_bind(HudScreen.run, HudScreen.freshness)
        yield OfflineLine(self.hud.clock).data_bind(HudScreen.freshness)
        yield from self.body()
        yield KeyLine(self.VIEW)

    def body(self) -> Iterable[Widget]:
        """The view's own widgets, between the top line and the footer."""
        return ()

    @property
    def hud(self) -> HudApp:
        """The app, typed."""
        from hud_tui.tui.app import HudApp

        assert isinstance(self.app, HudApp)
        return self.app

    @property
    def client(self) -> HudClient:
        """The one client; views are shown only once it is there."""
        return self.hud.connected

    @property
    def is_built(self) -> bool:
        """Whether its widgets are all there: not while they are composed, nor once the app ends."""
        return self.is_mounted and self.is_attached and self.app.is_running

    def hear(self, run: Run, freshness: Liveness) -> None:
        """Show the news. Those that come before the view is built wait until it is resumed."""
        if self.is_built:
            self.run, self.freshness = run, freshness

    def watch_focused(self) -> None:
        self.call_after_refresh(make_way, self)

    def on_resize(self) -> None:
        self.call_after_refresh(make_way, self)

    def on_mount(self) -> None:
        """Called after that of the classes that build on this one."""
        self._edition = self.hud.layout_edition
        self.lay_out()

    def lay_out(self) -> None:
        """Show panes and filters as they were left: when it is built, and when that is reset."""

    def follow_layout(self) -> None:
        """Show what is new of the layout."""
        if self.is_mounted and self._edition != self.hud.layout_edition:
            self._edition = self.hud.layout_edition
            self.lay_out()

    def on_screen_resume(self) -> None:
        self.hud.arrange(view=self.VIEW)
        self.follow_layout()
        self.hear(self.hud.run_now, self.hud.freshness)

    async def attempt(self, call: Awaitable[T]) -> T | None:
        """Await a client call in a worker; tell the user of a failure and return None.

        An answer to a view that is gone has nowhere to be shown: the worker ends with it.
        """
        try:
            answer = await call
        except HudError as error:
            self.tell(error)
            answer = None
        if self.is_mounted and not self.is_built:
            raise CancelledError
        return answer

    def tell(self, error: HudError) -> None:
        """Show a failure with what to do next."""
        self.hud.tell(error)

    def sheet(self) -> Sheet | None:
        """What the view has, as a table; None where it has none."""
        return None

    @work(exclusive=True, group="export")
    async def action_export(self) -> None:
        """Write what is on the screen to a new file."""
        from hud_tui.tui.exporting import export

        await export(self)

    def copy(self, text: str) -> None:
        """Copy what is selected, else this id, name or text."""
        self.app.copy_to_clipboard(self.get_selected_text() or text)
