"""ConnectScreen: shown until there is a connection.

It asks which service to use unless the command line says so, shows what is being waited for, and
after a failure says what to do next. It needs nothing but Textual, so it is painted at once.
"""

from __future__ import annotations

from typing import Literal

from textual import work
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.message import Message
from textual.widgets import Static

from hud_tui.errors import HudError, HudUsage
from hud_tui.keys import key
from hud_tui.rl.text import clean
from hud_tui.tui.keys import ClickableText, clicked
from hud_tui.tui.screens.dialogs import InputDialog, Viewed
from hud_tui.tui.start import Elsewhere

TITLE, ABOUT = "hud-tui", "reinforcement learning, from the terminal"
ROOMY = 76
"""Width from which the keys are explained, columns."""
HEIGHTS = [(0, "-short"), (20, "-tall")]
ASK = (
    ("connect.begin", "the embedded service", "a tiny model, trained here: no key"),
    ("connect.key", "HUD, with a key", "typed in; kept for this session only"),
    ("app.quit", "quit", "set HUD_API_KEY to skip this question"),
)
WAIT = (("app.quit", "quit", ""),)
EDIT = ("connect.edit", "another URL", "typed in; kept for this session only")
AGAIN = (
    ("connect.retry", "retry", ""),
    ("connect.local", "the embedded service", "a tiny model, trained here: no key"),
    ("connect.key", "HUD, with a key", "typed in; kept for this session only"),
    ("app.quit", "quit", ""),
)


class ConnectScreen(Viewed[None]):
    VIEW = "connect"
    VERTICAL_BREAKPOINTS = HEIGHTS

    state: Literal["asking", "waiting", "failed"] = "asking"
    _keys: tuple[tuple[str, str, str], ...] = ()

    class Chosen(Message):
        """A service was chosen; without a mode, the previous one is tried again."""

        def __init__(self, mode: str | None = None, key: str | None = None) -> None:
            """`mode` is ``local``, ``host`` or ``hud``; `key` was typed."""
            super().__init__()
            self.mode, self.key = mode, key

    def __init__(self, asks: bool, elsewhere: Elsewhere | None = None) -> None:
        """`asks`: whether the user has to choose a service; else one is being waited for."""
        super().__init__()
        self._asks, self.elsewhere = asks, elsewhere or Elsewhere()
        self.state = "asking" if asks else "waiting"
        # Created here, not when composed: the app may update them before that.
        self._text = Static(id="connect-text")
        self._choices = ClickableText(id="connect-keys")

    def compose(self) -> ComposeResult:
        with Vertical(id="connect"):
            yield Static(Content.styled(TITLE, "bold"), id="connect-title")
            yield Static(ABOUT, id="connect-about")
            yield self._text
            yield self._choices

    def on_mount(self) -> None:
        if self._asks:
            self._show("asking", Content("Which service?"), ASK)
        else:
            self.wait("connecting…")

    def wait(self, text: str) -> None:
        self._show("waiting", Content(clean(text, 200)), WAIT)

    def fail(self, error: HudError) -> None:
        text = Content.assemble(
            (f"⚠ {clean(error.message, 400)}", "$warning"), f"\n{clean(error.hint, 400)}"
        )
        retry, *others = AGAIN
        if url := clean(self.elsewhere.url, 200):
            retry, others = (*retry[:2], url), [EDIT, *others]
        self._show("failed", text, (retry, *others))

    def _show(
        self,
        state: Literal["asking", "waiting", "failed"],
        text: Content,
        keys: tuple[tuple[str, str, str], ...],
    ) -> None:
        self.state, self._keys = state, keys
        self._text.update(text)
        self.on_resize()
        self.refresh_bindings()

    def on_resize(self) -> None:
        """Show the keys, with their meaning if there is room."""
        roomy = self.app.size.width >= ROOMY
        rows = [
            clicked(
                Content.assemble(
                    (f"{key(id_):>5}  ", "bold $accent"),
                    f"{what:<22}",
                    (says * roomy, "$text-muted"),
                ),
                id_,
            )
            for id_, what, says in self._keys
        ]
        self._choices.update(Content("\n").join(rows))

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool:
        if action == "edit":
            return self.state == "failed" and bool(self.elsewhere.url)
        if action == "retry":
            return self.state == "failed"
        return action not in ("begin", "local", "key") or self.state != "waiting"

    def action_begin(self) -> None:
        if self.state == "failed":
            self.action_retry()
        else:
            self.action_local()

    def action_local(self) -> None:
        self.post_message(self.Chosen("local"))

    def action_retry(self) -> None:
        self.post_message(self.Chosen())

    @work(exclusive=True)
    async def action_edit(self) -> None:
        """Correct the URL of the service elsewhere, and connect."""
        from hud_tui.hosts import usable_host

        def wrong(text: str) -> str:
            try:
                usable_host(text, "this")
            except HudUsage as error:
                return f"{error.message}: {error.hint}"
            return ""

        url = await self.app.push_screen_wait(
            InputDialog(
                "A service elsewhere",
                ["Its URL. Its key is the one that hud-tui login stored for it."],
                "Connect",
                value=self.elsewhere.url,
                check=wrong,
            )
        )
        if url is not None:
            self.elsewhere.url = usable_host(url)
            self.post_message(self.Chosen("host"))

    @work(exclusive=True)
    async def action_key(self) -> None:
        key = await self.app.push_screen_wait(
            InputDialog(
                "HUD API key",
                ["Your key is used for this session only and is never shown or stored."],
                "Connect",
                check=lambda text: "" if text else "type or paste the key",
                password=True,
            )
        )
        if key is not None:
            self.post_message(self.Chosen("hud", key))
