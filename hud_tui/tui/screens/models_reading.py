"""ModelsReading: what the catalog's view has read, and when it reads again."""

from __future__ import annotations

from asyncio import Semaphore, gather

from textual import work
from textual.reactive import reactive

from hud_tui.errors import HudError
from hud_tui.rl.catalog import own
from hud_tui.rl.run import Run
from hud_tui.rl.tree import Tree
from hud_tui.tui.model_rows import Facts
from hud_tui.tui.screens.base import HudScreen
from hud_tui.wire import Model

AT_ONCE = 4
"""Checkpoint trees that are read at the same time."""
QUEUE_S = 5.0
"""Between two looks at a server's queue."""


class ModelsReading(HudScreen):
    models: reactive[tuple[Model, ...] | None] = reactive(None, init=False)
    """The catalog; None until it was read."""
    first_start: reactive[bool] = reactive(False)
    """On the embedded service, before there is a model of one's own."""

    def __init__(self) -> None:
        super().__init__()
        self.facts: dict[str, Facts] = {}
        """What is known of trees, by model id."""

    def on_mount(self) -> None:
        self.set_interval(QUEUE_S, self._read_queue)

    def on_screen_resume(self) -> None:
        super().on_screen_resume()
        self.read()

    @property
    def on_server(self) -> bool:
        """Whether models live on a Tinker server."""
        return any(one.engine and one.engine.server for one in self.models or ())

    def _read_queue(self) -> None:
        """Where models live on a server, its queue changes without a word: look again."""
        if self.is_current and self.on_server:
            self.read()

    @work(exclusive=True, group="read")
    async def read(self) -> None:
        """Read the catalog, then what the trees of one's own models say, a few at a time."""
        models = await self.attempt(self.client.models())
        if models is None:
            if self.hud.freshness.offline:
                self.models = self.models or self.hud.catalog or None
            return
        self.models = self.hud.catalog = tuple(models)
        self.first_start = self.client.settings.local and not own(models)
        turn = Semaphore(AT_ONCE)
        await gather(*(self._read_tree(model, turn) for model in own(models)))

    async def _read_tree(self, model: Model, turn: Semaphore) -> None:
        if model.checkpoint_count == 0 or self._is_followed(model):
            return
        async with turn:
            try:
                self.facts[model.id] = Facts.of(Tree.of(await self.client.checkpoints(model.id)))
            except HudError:
                return  # the row says so by staying empty; reading the catalog did tell
        self.show_rows()

    def _is_followed(self, model: Model) -> bool:
        return self.run.loaded and self.run.model is not None and self.run.model.id == model.id

    def watch_run(self, before: Run, run: Run) -> None:
        if run.model is not None and run.loaded and run.tree is not before.tree:
            self.facts[run.model.id] = Facts.of(run.tree)
        if run.tree is not before.tree or run.model is not before.model:
            self.show_rows()

    def show_rows(self) -> None:
        """Draw the catalog as it is known now."""
