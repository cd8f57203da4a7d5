"""ModelsScreen: the catalog; select a model, or fork one.

On a first start it explains how to get to a first run, and Enter forks the base under the cursor
without asking: its name is on the screen.
"""

from __future__ import annotations

from asyncio import Semaphore, gather
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from textual import on, work
from textual.content import Content
from textual.reactive import reactive
from textual.widget import Widget
from textual.widgets import Input, Static

from hud_tui.errors import HudError
from hud_tui.keys import key, keyed
from hud_tui.rl.checkpoint_tree import Kind, Tree, free_name, kind, label, origin, own_models
from hud_tui.rl.disk import retention_text
from hud_tui.rl.export import Sheet, models_sheet
from hud_tui.rl.metrics import short
from hud_tui.rl.own_numbers import NONE, Own, reward_of
from hud_tui.rl.run import Run
from hud_tui.rl.run_columns import COLUMNS as COLUMNS_OF_RUNS
from hud_tui.rl.runs import silent_s
from hud_tui.rl.settings import setting_label
from hud_tui.rl.text import age, counted, one_line, seconds, size, spaced
from hud_tui.rl.work import Work
from hud_tui.tui.keys import Need
from hud_tui.tui.screens.base import HudScreen, ViewContext
from hud_tui.tui.screens.fork import ask_fork
from hud_tui.tui.theme import LOCK, RAMP, eighth, ramp_index, reward_bar
from hud_tui.tui.widgets.form import FilterField
from hud_tui.tui.widgets.lines import labelled
from hud_tui.tui.widgets.table import DIM, Column, Row, RowList, item_row
from hud_tui.wire import Model
from hud_tui.wire_access import ADMIN_KEY

# About a model: what a base can do; where it is, its queue, and how long checkpoints are kept.


def about(model: Model | None) -> Content:
    """Where a model on a server is; what a base on this machine can do, and what it learned."""
    if model is None:
        return Content()
    if (state := model.engine) is None or state.server is None:
        base = kind(model) is Kind.BASE
        return Content.styled(one_line(model.description or "", 600) if base else "", "$text-muted")
    server = f"{one_line(state.engine, 20)} on {one_line(state.server, 60)} · "
    queue = ("queue active", "$text-muted")
    if state.queue != "active":
        queue = (f"⚠ {one_line(state.queue, 100)}", "bold $warning")
    slots = f" · {counted(state.slots, 'adapter slot')} in use"
    kept = f"{slots} · checkpoints kept {retention_text(state.ttl_s)}"
    return Content.assemble((server, "$text-muted"), queue, (kept, "$text-muted"))


ROOMY = 45
"""Rows of a view from which on facts of a model are shown below the list."""
CURVE = 60
"""Most cells of the curve of a model's rewards."""


def facts_of(model: Model, facts: Facts, run: Work | None, now: float) -> Iterator[Content]:
    """What is known of a model, a line each. `run`: the one that trains it; `now`: Unix seconds."""
    yield _fact("model", one_line(model.model_name, 80))
    created = f"{age(model.created_at, now)} ago" if model.created_at else ""
    by = f"by {one_line(model.by, 40)}" if model.by not in (None, ADMIN_KEY) else ""
    if from_ := " · ".join(filter(None, (_other_base(model), origin(model), created, by))):
        yield _fact("from", from_)
    if model.protected_by is not None:
        by = one_line(model.protected_by, 40)
        yield _fact("protected", f"by {by}: one proposes its head, another approves")
    if model.context_length is not None:
        yield _fact("context", f"{spaced(model.context_length)} tokens, prompt and answer together")
    if kind(model) is Kind.OWN:
        yield from _trained(model, facts)
    if run is not None:
        yield _fact("run", one_line(run.name or "", 80))
    if model.training_defaults is not None:
        usual = model.training_defaults.model_dump().items()
        yield _fact("defaults", " · ".join(f"{setting_label(k)} {short(v)}" for k, v in usual))


def _trained(model: Model, facts: Facts) -> Iterator[Content]:
    """A fork's checkpoints, what was sampled from its head, and its rewards."""
    disk, own, rewards = model.disk, facts.own, facts.rewards
    each = f", {size(disk.checkpoint_bytes)} each" if disk is not None and facts.steps else ""
    head = f" · ▶ {facts.head}" if facts.head else ""
    yield _fact("checkpoints", f"{facts.steps}{each}{head}")
    if own.known:
        heldout, sampled = (own.heldout, own.over_briefly), (own.reward, str(own.sampled or ""))
        pairs = (("held-out", *heldout), ("reward", *sampled))
        texts = (f"{name} {short(value)} of {over}" for name, value, over in pairs if over)
        yield _fact("sampled", " · ".join(texts))
    if len(rewards) > 1:
        top = max(1.0, *rewards)
        bars = Content("").join(reward_bar(reward, top) for reward in rewards)
        ends = f"  {short(rewards[0])} → {short(rewards[-1])}"
        yield _fact("batches", "") + bars + Content.styled(ends, DIM)


_fact = partial(labelled, 14)


# Suggestions: where the cursor begins, and what Enter does to a model.


FIRST_BASE = "mixed"
"""On a first start the cursor begins on the base with this word in its name."""
WELCOME = """\
[b]Welcome.[/b] This machine now runs a small embedded service, which samples and trains a tiny \
language model on the CPU. Nothing leaves this machine, and nothing costs anything.
"""
WELCOME_ON_SERVER = """\
[b]Welcome.[/b] This machine now runs a small embedded service, which samples and trains \
language models on a Tinker server. Prompts and completions go there, and it may cost money.
"""
WELCOME_ON_MACHINE = """\
[b]Welcome.[/b] This machine now runs a small embedded service, which samples and trains \
language models on {machine}. Prompts and completions go there; {{app.machines}} lists what it \
costs.
"""
NO_MATCH = "no model matches · {models.leave} shows all"
WAY = """
[b $accent]1[/]  {^models.choose} forks a base: your own copy to train            \
[$text-muted]you are here[/]
[b]2[/]  {^launch.choose} checks the tasks to train on, and shows the run
[b]3[/]  {^launch.choose} submits the run; watch the reward rise"""


def first_choice(models: Sequence[Model]) -> Model | None:
    bases = [model for model in models if kind(model) is Kind.BASE]
    first = [model for model in bases if FIRST_BASE in model.model_name]
    return next(iter([*own_models(models), *first, *bases]), None)


def enter_does(model: Model | None, models: Sequence[Model], first_start: bool) -> Content:
    """What Enter does to the model under the cursor, in one line; None if no model matches the
    filter. `first_start`: whether Enter forks without asking."""
    if model is None:
        return Content(keyed(NO_MATCH) if models else "no models")
    name, enter = one_line(model.model_name, 50), key("models.choose")
    match kind(model):
        case Kind.OWN:
            origin_text = one_line(origin(model), 100)
            began = (f"   {origin_text}", "$text-muted") if origin_text else ""
            return Content.assemble((enter, "bold"), f"  selects {name}", began)
        case Kind.BASE if first_start:
            forks = Content.assemble((enter, "bold $accent"), f"  forks {name} as ")
            new = (free_name(model.model_name, models), "bold")
            return Content.assemble(
                forks, new, "   ", (key("models.fork"), "bold"), "  another name"
            )
        case Kind.BASE:
            return Content.assemble((enter, "bold"), f"  forks {name}: a copy to train")
        case Kind.SERVED:
            return Content(f"{name} is served, but cannot be trained or forked")


# The catalog's rows: the user's models first, then bases, then models that are only served.


HEADINGS = {
    Kind.OWN: "your models",
    Kind.BASE: "bases to fork",
    Kind.SERVED: "served, not trainable",
}


@dataclass(frozen=True)
class Facts:
    """Numbers from a model's tree for its row."""

    head: str
    steps: int
    own: Own
    rewards: Sequence[float] = ()
    """Rewards of the head's lineage, oldest first, at most CURVE of them."""

    @classmethod
    def of(cls, tree: Tree) -> Facts:
        own = NONE if tree.head is None else tree.own(tree.head)
        trained = [reward_of(tree[position]) for position in tree.path(tree.head)]
        rewards = [reward for reward in trained if reward is not None]
        thin = rewards[:: -(-len(rewards) // CURVE) or 1]
        return cls(one_line(label(tree.served), 40), len(tree), own, thin)

    @classmethod
    def unread(cls, model: Model) -> Facts:
        """Of a model whose tree was not read: without a checkpoint it serves its base weights."""
        if model.checkpoint_count == 0 and kind(model) is Kind.OWN:
            return cls.of(Tree.of(()))
        return cls("", model.checkpoint_count or 0, NONE)


def model_rows(
    models: Iterable[Model],
    facts: Mapping[str, Facts],
    followed: str | None,
    text: str,
    now: float,
    protected: Collection[str],
    going: Mapping[str, Work],
) -> list[Row]:
    """Rows, with a heading for each kind; only of models with each word of `text` in a name, base
    or provider. `facts` and `going`, the runs that train, are by model id; `now` is in Unix
    seconds."""
    words = text.casefold().split()

    def matches(model: Model) -> bool:
        provider = model.provider.name if model.provider is not None else ""
        names = f"{model.model_name} {model.name} {_base(model)} {provider}".casefold()
        return all(word in names for word in words)

    shown = sorted(
        filter(matches, models), key=lambda model: seconds(model.created_at) or 0.0, reverse=True
    )
    rows: list[Row] = []
    for group, heading in HEADINGS.items():
        members = [model for model in shown if kind(model) is group]
        if group is Kind.BASE:
            members.reverse()
        if members and rows:
            rows.append(Row(f"gap {group}", (), heading=True))
        if members:
            rows.append(Row(f"heading {group}", (Content(heading),), heading=True))
        for model in members:
            line = ModelLine(
                model,
                facts.get(model.id) or Facts.unread(model),
                is_followed=model.id == followed,
                is_protected=model.id in protected,
                run=going.get(model.id),
                now=now,
            )
            rows.append(item_row(COLUMNS, model.id, line))
    return rows


@dataclass(frozen=True)
class ModelLine:
    """A model in the list, and what is known of it."""

    model: Model
    facts: Facts
    is_followed: bool
    is_protected: bool
    run: Work | None
    now: float
    """Unix seconds."""

    @property
    def is_own(self) -> bool:
        return kind(self.model) is Kind.OWN


def _name(line: ModelLine) -> Content:
    style = "bold" if line.is_followed else ""
    lock = f" {LOCK}" if line.is_protected else ""
    return Content.assemble((one_line(line.model.model_name, 80), style), (lock, "$warning"))


def _heldout(line: ModelLine) -> Content:
    own, head = line.facts.own, line.facts.head
    return reward(own.heldout, head, own.over_briefly) if line.is_own else Content()


def _reward(line: ModelLine) -> Content:
    own, head = line.facts.own, line.facts.head
    return reward(own.reward, head, str(own.sampled or "")) if line.is_own else Content()


def _going(line: ModelLine) -> Content:
    """How far its run is and the time left, e.g. ``12/60 3m20s``; or that it stalled."""
    run = line.run
    if run is None:
        return Content()
    steps, left = (COLUMNS_OF_RUNS[key].text(run, line.now) for key in ("steps", "eta"))
    return Content.assemble(steps, (f"  {left}" if left != "–" else "", "$text-muted"))


def reward(value: float | None, head: str, over: str) -> Content:
    """A reward as everywhere: a cell filled and coloured on the scale 0 to 1, the number, and how
    many rollouts it is of; a dash where there is a head that nobody sampled yet."""
    if value is None:
        return Content.styled("–" if head else "", "$text-muted")
    mark = (eighth(value), RAMP[ramp_index(value, 0.0, 1.0)])
    return Content.assemble(mark, f"{short(value):>6}", (f" {over:>5}", "$text-muted"))


def _base(model: Model) -> str:
    provider = model.provider.name if model.provider is not None else None
    return one_line(model.base_model or provider or "", 40)


def _other_base(model: Model) -> str:
    """Its base; empty if that is its own name."""
    base = _base(model)
    return "" if base == model.model_name else base


COLUMNS: Sequence[Column[ModelLine]] = (
    Column("", 1, lambda line: "●" if line.is_followed else " ", "$accent"),
    Column("model", 0, _name),
    Column("trainable", 9, lambda line: "✔" if line.model.is_trainable else "–", DIM, rank=8),
    Column("head", 13, lambda line: line.facts.head and f"▶ {line.facts.head}", "$accent", rank=3),
    Column("steps", 6, lambda line: str(line.facts.steps) * line.is_own, right=True, rank=1),
    Column("held-out", 15, _heldout, right=True, rank=2),
    Column("reward", 13, _reward, right=True, rank=5),
    Column("run, ETA", 14, _going, rank=4),
    Column("age", 5, lambda line: age(line.model.created_at, line.now), DIM, right=True, rank=6),
    Column("base", 16, lambda line: _other_base(line.model), DIM, rank=7),
)

AT_ONCE = 4
"""Checkpoint trees that are read at the same time."""
GOING_S = 2.0
"""Seconds between two looks at the runs that train."""
LOOK_S = 6.0
"""The same where none does."""
QUEUE_S = 5.0
"""Seconds between two reads of a server's queue."""


class ModelsScreen(HudScreen):
    models: reactive[tuple[Model, ...] | None] = reactive(None, init=False)
    """The catalog; None until it was read."""
    first_start: reactive[bool] = reactive(False)
    """With the embedded service, before the user has a model."""
    VIEW = "models"

    def __init__(self, context: ViewContext) -> None:
        super().__init__(context)
        self.rows = RowList(COLUMNS, id="models", least=28, most=48)
        self.filter_field = FilterField("filter by name, base or provider", "filter", self.rows)
        self.facts: dict[str, Facts] = {}
        """Numbers of trees, by model id."""
        self._going: dict[str, Work] = {}
        """The runs that train, managed or not, by model id."""
        self._going_read_at = 0.0
        self._shown_error = ""
        """The last error about protected models, so that it is shown once."""
        self._begun_for: str | None = None
        """Id of the model that was selected when the cursor was placed."""

    def resume(self) -> None:
        if any(row.key == self.run.model_id for row in self.rows.rows):
            self._begin()  # now, since a key may move the cursor before the read is answered
        self.read()
        self._read_going()

    @property
    def on_server(self) -> bool:
        return any(model.engine and model.engine.server for model in self.models or ())

    @work(exclusive=True, group="going")
    async def _read_going(self) -> None:
        self._going_read_at = self.context.clock()
        rows = (await self.session.runs()).values()
        going = {row.model_id or "": row for row in rows if row.is_active}
        silent = any(silent_s(row, self.context.clock()) is not None for row in going.values())
        if (going != self._going or silent) and self.is_built:
            self._going = going
            self.show_rows()

    def _refresh_going(self) -> None:
        due = self._going or self.context.clock() - self._going_read_at >= LOOK_S
        if due and self.is_current and not self.session.freshness.offline:
            self._read_going()

    def _read_queue(self) -> None:
        """Refresh models on a server: its queue changes without an event. A slow read goes on."""
        reads = any(worker.node is self and worker.group == "read" for worker in self.workers)
        if self.is_current and self.on_server and not reads:
            self.read()

    @work(exclusive=True, group="read")
    async def read(self) -> None:
        """Read the catalog, then the trees of the user's models, a few at a time."""
        models = await self.attempt(self.client.models())
        if models is None:
            if self.session.freshness.offline:
                self.models = self.models or self.session.catalog or None
            return
        self.models = self.session.catalog = tuple(models)
        self.first_start = self.client.settings.embedded and not own_models(models)
        turn = Semaphore(AT_ONCE)
        await gather(*(self._read_tree(model, turn) for model in own_models(models)))

    async def _read_tree(self, model: Model, turn: Semaphore) -> None:
        is_followed = self.run.loaded and self.run.model_id == model.id
        if model.checkpoint_count == 0 or is_followed:
            return
        async with turn:
            try:
                self.facts[model.id] = Facts.of(Tree.of(await self.client.checkpoints(model.id)))
            except HudError:
                return  # its row stays empty; errors were shown for the catalog
        self.show_rows()

    def watch_run(self, before: Run, run: Run) -> None:
        if run.model is not None and run.loaded and run.tree is not before.tree:
            self.facts[run.model.id] = Facts.of(run.tree)
        grown = run.tree is not before.tree or run.job is not before.job
        if grown or run.model is not before.model:
            self.show_rows()

    # The view: what it holds, and what its keys do.

    def body(self) -> Iterable[Widget]:
        yield Static(WELCOME + keyed(WAY), id="welcome")
        yield self.filter_field
        yield self.rows
        yield Static("", id="about", markup=False)
        yield Static("reading the catalog …", id="note", markup=False)

    @property
    def chosen(self) -> Model | None:
        return next((m for m in self.models or () if m.id == self.rows.key), None)

    # Reading, and when it is repeated.

    def on_mount(self) -> None:
        self.rows.focus()
        self.watch_models()
        self.set_interval(QUEUE_S, self._read_queue)
        self.set_interval(GOING_S, self._refresh_going)

    def watch_models(self) -> None:
        if self.models is None or not self.query("#note"):  # it was read before the view was built
            return
        if machine := self.session.machine:
            welcome = keyed(WELCOME_ON_MACHINE.format(machine=machine) + WAY)
            self.query_one("#welcome", Static).update(welcome)
        elif self.on_server:
            self.query_one("#welcome", Static).update(WELCOME_ON_SERVER + keyed(WAY))
        self.show_rows()
        self._begin()
        self.go_to_requested()

    def _begin(self) -> None:
        """Move the cursor to the selected model if another one was selected when it was placed."""
        followed = self.run.model_id or ""
        if followed != self._begun_for:
            self._begun_for = followed
            first = self.run.model or first_choice(self.models or ())
            self.rows.select(first.id if first is not None else "")

    def reach(self, name: str) -> bool:
        if not any(model.id == name for model in self.models or ()):
            return False
        if self.rows.line_of(name) is None:
            self.filter_field.fill("")
            self.show_rows()
        self.rows.select(name)
        return True

    def watch_first_start(self, first: bool) -> None:
        self.query("#welcome").set_class(first, "shown")

    def show_rows(self) -> None:
        if self.models is None or not self.query("#note"):
            return
        followed = self.run.model_id
        text, now = self.filter_field.value, self.context.clock()
        shut = self._protected()
        going = {id_: self.session.at_newest(run) for id_, run in self._going.items()}
        rows = model_rows(self.models, self.facts, followed, text, now, shut, going)
        self.rows.show(rows)
        self._note()

    def _protected(self) -> Collection[str]:
        """Ids of the protected models; empty if the file is unreadable: then nothing is sent."""
        try:
            return self.client.wire.guard.protected.keys()
        except HudError as error:
            if error.message != self._shown_error:
                self._shown_error = error.message
                self.show_error(error)
            return ()

    def _note(self) -> None:
        note = enter_does(self.chosen, self.models or (), self.first_start)
        self.query_one("#note", Static).update(note)
        pane, model = self.query_one("#about", Static), self.chosen
        text = about(model)
        if model is not None and self.size.height >= ROOMY:
            facts = self.facts.get(model.id) or Facts.unread(model)
            run = self._going.get(model.id)
            lines = [*facts_of(model, facts, run, self.context.clock()), *([text] if text else [])]
            text = Content("\n").join([*lines, Content()])  # apart from what Enter does
        pane.update(text)
        pane.display = bool(text)

    NEEDS: ClassVar[Mapping[str, Need[ModelsScreen]]] = {
        **dict.fromkeys(
            ("choose", "fork"),
            Need(lambda view: view.chosen and kind(view.chosen) is not Kind.SERVED),
        ),
        "protect": Need(lambda view: view.chosen and kind(view.chosen) is Kind.OWN),
        "copy": Need(lambda view: view.chosen),
        "leave": Need(lambda view: view.filter_field.value),
    }

    @on(RowList.Moved)
    def _cursor_moved(self) -> None:
        self._note()
        self.renew_hints()

    @on(RowList.Opened)
    def action_choose(self) -> None:
        if (model := self.chosen) is not None:
            self.open(model)

    def open(self, model: Model) -> None:
        """Select the user's own model; fork a base."""
        self.models = self.models or self.session.catalog or None
        match kind(model):
            case Kind.OWN:
                self.follow(model)
            case Kind.BASE if not self.context.writes.may_change():
                return
            case Kind.BASE if self.first_start:
                self.fork_first(model)
            case Kind.BASE:
                self.fork_from(model)
            case Kind.SERVED:
                hint = enter_does(model, self.models or (), self.first_start)
                self.notice(hint.plain)

    def action_fork(self) -> None:
        model = self.chosen
        if model is None or kind(model) is Kind.SERVED:
            self.notice("choose a trainable model to fork", "warning")
        else:
            self.fork_from(model)

    @work(exclusive=True, group="act")
    async def follow(self, model: Model) -> None:
        self.session.choose(model)
        facts = self.facts.get(model.id)
        steps = facts.steps if facts is not None else model.checkpoint_count or 0
        await self.app.switch_mode("live" if steps else "launch")

    @work(exclusive=True, group="act")
    async def fork_first(self, source: Model) -> None:
        """Fork on a first start, under a free name, and go to Launch."""
        models = await self.attempt(self.client.models())
        if models is None:
            return
        name = free_name(source.model_name, models)
        model = await self.attempt(self.client.fork(source.id, name))
        if model is not None:
            self.session.first_fork = model.id
            self.session.choose(model)
            await self.app.switch_mode("launch")

    @work(exclusive=True, group="act")
    async def fork_from(self, source: Model) -> None:
        """Ask for a name, fork, and go on to a run of the new model."""
        model = await ask_fork(self.app, self.session, source)
        if model is None:
            self.read()
            return
        if self.first_start:
            self.session.first_fork = model.id
        self.session.choose(model)
        await self.app.switch_mode("launch")

    def sheet(self) -> Sheet:
        heads = {id_: (fact.head, fact.steps, fact.own) for id_, fact in self.facts.items()}
        sheet = models_sheet(self.models or (), heads)
        if not self.filter_field.value:
            return sheet
        return sheet.only({row.key for row in self.rows.rows if not row.heading})

    @work(exclusive=True, group="act")
    async def action_protect(self) -> None:
        model = self.chosen
        if model is None or kind(model) is not Kind.OWN:
            self.notice("choose a model of yours to protect", "warning")
            return
        protection = self.client.wire.guard.protection
        try:
            was = protection.models.get(model.id)
            if was is not None and not await self.context.writes.type_name(was, "unprotect it"):
                return
            protection.protect(model.id, model.model_name, was is None)
        except HudError as error:
            self.show_error(error)
        else:
            shut = "protected: changes ask for its name" if was is None else "no longer protected"
            self.notice(f"{one_line(model.model_name, 60)} is {shut}")
        self.show_rows()

    def lay_out(self) -> None:
        self.filter_field.fill(self.context.layout.now.models_filter)

    @on(Input.Changed, "#filter")
    def _filter(self) -> None:
        self.context.layout.arrange(models_filter=self.filter_field.value)
        self.show_rows()

    def action_refresh(self) -> None:
        self.read()

    def action_copy(self) -> None:
        if self.chosen is not None:
            self.copy(self.chosen.model_name)
