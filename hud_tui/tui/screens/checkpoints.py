"""CheckpointsScreen: the checkpoint tree; set the head, roll back, undo, compare."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import ClassVar

from textual import on, work
from textual.containers import Container, Vertical
from textual.content import Content
from textual.widget import Widget
from textual.widgets import Input, Static

from hud_tui.client.selection import Entry, Selector
from hud_tui.client.starting import StartingPoint
from hud_tui.errors import HudError, HudUsage
from hud_tui.events import CheckpointAdded
from hud_tui.keys import key, keyed
from hud_tui.rl.bisect import before_damage
from hud_tui.rl.checkpoint_tree import EXPIRED, ROOT, origin
from hud_tui.rl.evaluation import Paired, mean_text
from hud_tui.rl.export import Sheet, tree_sheet
from hud_tui.rl.filter import Predicate, parse
from hud_tui.rl.head import (
    FOLDED,
    HeadMove,
    name,
    refusal,
    to_known,
    to_parent,
    to_redo,
    to_selected,
    to_undo,
)
from hud_tui.rl.metrics import metrics_of, short
from hud_tui.rl.own_numbers import HELDOUT
from hud_tui.rl.run import Run
from hud_tui.rl.ship import FEWEST, MOST
from hud_tui.rl.sides import Side
from hud_tui.rl.text import counted, one_line, spaced
from hud_tui.rl.tree_layout import Lanes
from hud_tui.rl.work import Work, weights_name
from hud_tui.tui.job_actions import Ask, act, ask_cancel, ask_resume, to_cancel, to_resume
from hud_tui.tui.keys import OPENS, Need
from hud_tui.tui.screens.base import HudScreen, ViewContext
from hud_tui.tui.screens.bisect import bisect_and_serve
from hud_tui.tui.screens.compare import show_changed
from hud_tui.tui.screens.dialogs import ConfirmDialog, InputDialog
from hud_tui.tui.screens.evaluate import ask_evaluation, weights_to_evaluate
from hud_tui.tui.screens.fork import ask_fork
from hud_tui.tui.screens.set_head import HistoryPanel, move_head, proposed, read_tree
from hud_tui.tui.screens.ship import ShipPanel
from hud_tui.tui.screens.try_prompt import Tried, TryPanel
from hud_tui.tui.widgets.checkpoint_details import Beside, CheckpointDetails, details, fold_details
from hud_tui.tui.widgets.checkpoint_tree import CheckpointTree, EvaluationProgress, Marks
from hud_tui.tui.widgets.form import FilterField
from hud_tui.wire import BASE, Checkpoint, WorkState

EMPTY = "No checkpoints yet: the first step makes one. Press {app.view.launch} to launch a run."
NO_MODEL = "No model selected. Press {app.view.models} to choose or fork one."
READING = "reading the tree …"
NARROW = 60
"""Width below which the number of branches is not shown, columns."""
OLDER_S = 1.0
"""Seconds between two updates of the ages in the details."""
PROPOSALS_S = 20.0
"""Seconds between two reads of what others propose, of which no event tells."""


LIVE_FILTER = 5000
"""Up to this many checkpoints the filter applies while it is typed; above, on Enter."""


MODELS = 20
"""Models whose folds are stored."""
RUNS = 200
"""Unfolded runs stored per model, the newest."""


AT_HEAD = (
    "HUD forks a model at its head: set the head here first ({checkpoints.set_head}), then fork."
)


NO_CANDIDATES = "The base is the only candidate yet: mark two or more with {checkpoints.mark}."
NEED_TWO = (
    "Mark two checkpoints ({checkpoints.mark}), or put the cursor on one that is not the head."
)


class CheckpointsScreen(HudScreen):
    """The layout is restored once the model's tree is read: a filter may use its metrics."""

    VIEW = "checkpoints"

    def __init__(self, context: ViewContext) -> None:
        super().__init__(context)
        self.tree_list = CheckpointTree(lambda: self.context.clock(), id="tree")
        self.details_pane = CheckpointDetails(id="details")
        words = "name, or reward>.6 loss:ppo step:100..200"
        self.filter_field = FilterField(words, "tree-filter", self.tree_list)
        self.cursor = CheckpointTree.Moved(ROOT, ROOT, False)
        self._note_line = Static("", id="tree-note", markup=False)
        self._under_way = EvaluationProgress()
        self._empty = Static(READING, id="tree-empty", markup=False)
        self._message = Content()
        """The current message; cleared when the cursor moves, and with the model."""
        self._proposed = Content()
        """What another proposes for the head, shown where there is no message."""

        self.marked: tuple[str, ...] = ()
        """Ids of the checkpoints marked for comparison, A first; BASE stands for the base."""
        self._misread = False
        """Whether the message is a filter syntax error."""
        self._good: Predicate | None = None
        """The last filter that matched anything."""
        self._arranged_for: str | None = None
        """Id of the model whose tree has its stored layout."""
        self._folds: tuple[Lanes | None, int] = (None, 0)
        """The lanes, and the edition of their folds that is stored."""
        self._beside: dict[int, Beside] = {}
        """Comparisons of the checkpoint under the cursor, by its position."""

    @property
    def selected(self) -> Checkpoint | None:
        """The checkpoint under the cursor; None on a folded run, on the base weights, and before
        the tree of another model has its layout."""
        cursor, tree = self.cursor, self.run.tree
        if cursor.folded or cursor.position == ROOT or cursor.position >= len(tree):
            return None
        return tree[cursor.position]

    @property
    def marked_positions(self) -> list[int]:
        """Of the marked ones that are in the tree, A first."""
        return [p for p in map(self.run.tree.find_weights, self.marked) if p is not None]

    @property
    def is_at_base(self) -> bool:
        """Whether the cursor is on the weights that the model started from."""
        return self.cursor.position == ROOT and not self.cursor.folded

    def body(self) -> Iterable[Widget]:
        with Container(id="tree-panes"):
            with Vertical(id="tree-pane"):
                yield self.filter_field
                yield self.tree_list.data_bind(HudScreen.run)
                yield self._empty
            yield self.details_pane
        yield self._under_way
        yield self._note_line

    def watch_run(self, before: Run, run: Run) -> None:
        if not self.is_mounted:
            return
        other = run.model_id != before.model_id
        if other or self.cursor.position >= len(run.tree):  # the list has not read this tree yet
            self.cursor, self._beside = CheckpointTree.Moved(ROOT, ROOT, False), {}
        if run.alarms.onsets != before.alarms.onsets:
            self.show_marks()
        if run.evaluations is not before.evaluations:
            self.show_evaluations()
            if self._show_ended(before, run):
                self._beside = {}
                self.show_marks()
                self._compare_evaluations(self.cursor.position)
        if run.tree is before.tree and run.model is before.model:
            return
        if other:
            self.marked = ()
            self._message = self._proposed = Content()
            self.show_marks()
        if other or run.tree.head != before.tree.head:
            self._show_proposals()
        self._show_state()

    def show_marks(self) -> None:
        onsets = self.run.alarms.onsets
        own = (job for job in self.run.evaluations.values() if job.job_id == job.id)
        evaluated = frozenset(job.checkpoint_id or "" for job in own if job.result is not None)
        self.tree_list.mark(Marks(self.session.notebook.notes, self.marked, onsets, evaluated))
        self.show_details(self.cursor)

    def resume(self) -> None:
        self._show_state()
        self.show_evaluations()
        self._show_proposals()
        self.call_after_refresh(self._go_to_crosshair)

    def _go_to_crosshair(self) -> None:
        position = self.run.tree.find(self.session.checkpoint_id)
        if position is not None and position != self.cursor.position:
            self.tree_list.go(position)

    def on_resize(self) -> None:
        self.show_note()

    def _show_state(self) -> None:
        """Show the tree, or its empty state, and the counts below it."""
        run = self.run
        empty = keyed(NO_MODEL if run.model is None else EMPTY if run.loaded else READING)
        came = one_line(origin(run.model), 100) if run.model is not None and run.loaded else ""
        self.set_class(not len(run.tree), "-empty")
        if len(run.tree) and self.focused is None:  # a hidden widget cannot have the focus
            self.call_after_refresh(self.tree_list.focus)
        self._empty.update(Content(f"{empty}\nThe model is {came}." if came else empty))
        self.show_note()
        if self._requested is not None:
            self.call_after_refresh(self.go_to_requested)

    def show_note(self, message: Content | None = None) -> None:
        if message is not None:
            self._message, self.take_back = message, None
        left = self._message or self._proposed
        right = Content.styled(" · ".join(self._held()), "$text-muted")
        room = self.size.width - 2 - left.cell_length - right.cell_length
        if room < 2 and left:
            right, room = Content(), 0
        is_long = left.cell_length > self.size.width - 2
        self._note_line.set_class(is_long, "-long")
        self._note_line.update(left + Content(" " * room) + right, layout=is_long)

    def warn(self, text: str) -> None:
        self.show_note(Content.styled(f"⚠ {text}", "$warning"))

    def _tell(self, text: str) -> None:
        self.show_note(Content.styled(f"✔ {text}", "$accent"))

    def _held(self) -> list[str]:
        tree = self.tree_list
        steps, branches = len(self.run.tree), tree.lanes.branches
        if not steps:
            return []
        held = [counted(steps, "checkpoint")]
        if tree.cursor.matches is not None:
            held = [f"{spaced(len(tree.rows))} of {held[0]}"]
        if self.size.width > NARROW:
            held += [f"{branches} branches"] * (branches > 1)
            held.append(self._ranked_by)
        return [*held, "following ▶" if tree.follow else keyed("{checkpoints.follow} follow ▶")]

    @property
    def _ranked_by(self) -> str:
        """What the best checkpoint is worth, and by which metric."""
        choice = self.run.tree.choice
        if choice is None:
            return "no reward yet"
        if choice.star is None:
            return "no clear best"
        by = "held-out" if choice.by == HELDOUT else "reward"
        return f"{choice.glyph} {by} {short(choice.value.value)}"

    @on(CheckpointTree.Moved)
    def _cursor_moved(self, cursor: CheckpointTree.Moved) -> None:
        if cursor.position >= len(self.run.tree):  # sent before another model was selected
            return
        grown = cursor.folded and self.cursor.folded and cursor.oldest == self.cursor.oldest
        moved = cursor.position != self.cursor.position and not (grown or self.tree_list.follow)
        self.cursor = cursor
        if moved or cursor.position not in self._beside:
            self._beside = {cursor.position: ()}
            if not cursor.folded:
                self._compare_evaluations(cursor.position)
        if moved and not cursor.by_run:
            node = None if cursor.position == ROOT else self.run.tree[cursor.position]
            self.session.checkpoint_id = None if node is None else node.id
        self.show_note(Content() if moved and self.focused is not self.filter_field else None)
        self.show_details(cursor)
        self.renew_hints()

    @on(CheckpointDetails.Resized)
    def _laid_out(self) -> None:
        self.show_details(self.cursor)

    def _grow_older(self) -> None:
        if self.is_current:
            self.show_details(self.cursor)

    def show_details(self, cursor: CheckpointTree.Moved) -> None:
        pane = self.details_pane
        if pane.display and len(self.run.tree):
            pane.show(self.details_of(cursor, pane.width))

    def details_of(self, cursor: CheckpointTree.Moved, width: int) -> list[Content]:
        lanes = self.tree_list.lanes
        if cursor.folded:
            return fold_details(self.run, lanes, cursor.position, cursor.oldest, width)
        notes = self.session.notebook.notes
        note = "" if cursor.position == ROOT else notes.get(self.run.tree[cursor.position].id, "")
        now, beside = self.context.clock(), self._beside.get(cursor.position, ())
        shut, program = self.context.writes.read_only is not None, self.client.settings.program
        return details(self.run, lanes, cursor.position, now, width, note, beside, shut, program)

    @work(exclusive=True, group="paired")
    async def _compare_evaluations(self, position: int) -> None:
        """Read the differences of a checkpoint's evaluations from the head's and the base's."""
        own, beside = self.run.evaluations_of(position), list[tuple[str, Paired]]()
        for mark, other in (("▶", self.run.tree.head), ("base", ROOT)) if own else ():
            if other is None or other == position:
                continue
            with suppress(HudError):  # nothing is shown for evaluations that no longer exist
                evaluations = self.run.evaluations_of(other)
                paired = await self.session.evaluations.paired(evaluations, own)
                beside += [] if paired is None else [(mark, paired)]
        if beside and self.is_built:
            self._beside = {position: beside}
            self.show_details(self.cursor)

    # Filtering the tree.

    def action_leave(self) -> None:
        """Esc: leave the filter's input, then the filter, then the message."""
        typing, text = self.filter_field.has_focus, self.filter_field.value
        if text and not typing:
            self.filter_field.fill("")
            self._filter()
        elif not self.filter_field.leave():
            self.show_note(Content())

    @on(Input.Changed, "#tree-filter")
    def _typed(self) -> None:
        if len(self.run.tree) <= LIVE_FILTER:
            self._filter()

    @on(Input.Submitted, "#tree-filter")
    def _submitted(self) -> None:
        if not self._filter():
            self.filter_field.focus()

    def _filter(self) -> bool:
        """Apply the filter; on a syntax error, show it and keep the last good filter."""
        self.context.layout.arrange(tree_filter=self.filter_field.value)
        text, tree = self.filter_field.value.strip(), self.tree_list
        try:
            keep = self._read(text) if text else None
        except HudUsage as error:
            self._misread = True
            tree.filter(self._good)
            self.warn(f"{error.message}; {error.hint}")
            return False
        tree.filter(keep)
        if keep is None or len(tree.rows):
            self._good = keep
        self.show_note(Content() if self._misread else None)
        self._misread = False
        return True

    def _read(self, text: str) -> Predicate:
        tree = self.run.tree
        newest = metrics_of(tree[len(tree) - 1]) if len(tree) else {}
        metrics = {*self.run.series.keys, *newest}
        return parse(text, metrics, self.session.notebook.notes, self.run.alarms.onsets)

    # The filter and the folds are stored.

    def lay_out(self) -> None:
        self._show_details_pane()
        self._arranged_for = None
        self._arrange()

    @work(exclusive=True, group="proposals")
    async def _show_proposals(self, message: Content | None = None) -> None:
        """Read what others propose, and show it; else a message, if there is one. It begins anew
        with each model, so an answer is of the one that is shown."""
        model = self.run.model
        said = "" if model is None else await proposed(self, model)
        if not self.is_built:
            return
        if said is not None:
            self._proposed = Content.styled(said, "$accent")
        self.show_note(Content() if said and message else message)

    @on(CheckpointTree.Moved)
    def _arrange(self) -> None:
        """Restore the layout of a new tree; store the folds of a known one."""
        model = self.run.model
        lanes = self.tree_list.lanes
        if model is None or not len(lanes.tree):
            return
        if self._arranged_for != model.id or lanes is not self._folds[0]:
            self._arranged_for = model.id
            layout = self.context.layout.now
            self.filter_field.fill(layout.tree_filter)
            self._filter()
            self.tree_list.unfold_only(layout.unfolded.get(model.id))
            self._folds = (lanes, lanes.unfolded.edition)
        elif self._folds[1] != lanes.unfolded.edition:
            self._folds = (lanes, lanes.unfolded.edition)
            others = self.context.layout.now.unfolded.items()
            newest = [(id_, runs) for id_, runs in others if id_ != model.id][1 - MODELS :]
            if lanes.by_hand or self.tree_list.cursor.unfolded:
                newest.append((model.id, tuple(self.tree_list.cursor.unfolded)[-RUNS:]))
            self.context.layout.arrange(unfolded=dict(newest))

    def action_details(self) -> None:
        self.context.layout.arrange(details=not self.details_pane.display)
        self._show_details_pane()
        self.tree_list.focus()

    def _show_details_pane(self) -> None:
        shown = self.context.layout.now.details
        self.set_class(shown is True, "-details")
        self.set_class(shown is False, "-no-details")

    # Forking a model from any checkpoint.

    @work(exclusive=True, group="fork")
    async def action_fork(self) -> None:
        """Fork at the checkpoint under the cursor, or at the weights that the model started
        from."""
        node, source = self.selected, self.run.model
        if source is None:
            return
        start = StartingPoint.of_head(node, source)
        at = start if self.client.settings.embedded else None
        forked = await ask_fork(self.app, self.session, source, at)
        if forked is not None:
            notice = f"{one_line(forked.model_name, 40)} starts at {one_line(start.name, 60)}"
            self._tell(f"{notice} · {key('app.view.models')} selects it")

    def _why_no_fork(self) -> str:
        if self.selected is None and not self.is_at_base:
            return keyed(FOLDED)
        why = "" if self.selected is None else refusal(self.selected)
        if not why and not self._is_head() and not self.client.settings.embedded:
            return keyed(AT_HEAD)
        return why

    # Evaluating checkpoints: marked ones, the one under the cursor, the head or the base.

    @work(exclusive=True, group="evaluate")
    async def action_evaluate(self) -> None:
        letters = {id_: self.tree_list.marks.letter(id_) for id_ in self.marked}
        choices = weights_to_evaluate(self.run, letters, self.selected, self.is_at_base)
        begun = await ask_evaluation(self.app, self.session, choices)
        if begun:
            of = " and ".join(one_line(weights_name(job), 40) for job in begun)
            self._tell(f"evaluating {of}")

    def show_evaluations(self) -> None:
        self._under_way.show(self.run)
        self.renew_hints()

    def _show_ended(self, before: Run, run: Run) -> bool:
        """Show the result of an evaluation that has just ended; returns whether there is one."""
        older = before.evaluations
        news = [
            evaluation
            for id_, evaluation in run.evaluations.items()
            if evaluation.result is not None and (id_ not in older or older[id_].result is None)
        ]
        for job in news:
            if job.id in older and job.result is not None:
                self._tell(
                    f"{one_line(weights_name(job), 40)}: mean reward {mean_text(job.result)}"
                )
        return bool(news)

    def action_cancel_evaluation(self) -> None:
        """Cancel the evaluation of the checkpoint under the cursor, else the newest."""
        self._act(to_cancel(self.run, self.selected), ask_cancel)

    def action_resume_evaluation(self) -> None:
        """Resume the interrupted evaluation of the checkpoint under the cursor, else the newest."""
        self._act(to_resume(self.run, self.selected), ask_resume)

    @work(exclusive=True, group="act")
    async def _act(self, evaluation: WorkState | None, ask: Ask) -> None:
        if evaluation is not None:
            await act(self, ask, Work.of(evaluation))

    # Marked checkpoints: two compared, and tried on the same prompt; up to eight as candidates.

    def action_mark(self) -> None:
        node = self.selected
        marked = BASE if node is None else node.id
        if marked in self.marked:
            self.marked = tuple(id_ for id_ in self.marked if id_ != marked)
        elif len(self.marked) == MOST:
            self.warn(keyed(f"{MOST} are marked: {{checkpoints.unmark}} removes the marks."))
            return
        else:
            self.marked = (*self.marked, marked)
        self.show_marks()
        self.renew_hints()

    @work(exclusive=True, group="ship")
    async def action_ship(self) -> None:
        """Show which of the marked ones to ship, or of the usual candidates."""
        model, tree = self.run.model, self.run.tree
        if model is None:
            return
        marked = self.marked_positions
        entries = [Entry.of(model, tree.node(position)) for position in marked]
        if len(marked) < FEWEST:
            selector = Selector(self.session.works, self.session.store.directory)
            usual = await self.attempt(selector.usual(model, tree))
            entries = usual or []
        if len(entries) < FEWEST:
            self.warn(keyed(NO_CANDIDATES))
            return
        panel = ShipPanel(self.session, self.context.writes, model, entries)
        chosen = await self.app.push_screen_wait(panel)
        if chosen is not None:
            id_ = chosen.checkpoint_id or ""
            self._move_head(lambda: to_known(self.run, id_))

    @work(exclusive=True, group="bisect")
    async def action_bisect(self) -> None:
        """Find the step that did the damage, between the marked two, or up to the one under the
        cursor, or to the head."""
        tree = self.run.tree
        marked = self.marked_positions
        if len(marked) > 2:
            self.warn(keyed("Mark the good and the bad one only: {checkpoints.unmark} unmarks."))
            return
        bad = tree.head if self.selected is None else self.cursor.position
        if len(marked) == 2:
            good, bad = sorted(marked, key=tree.depth)
        elif bad is not None:
            good = marked[0] if marked else before_damage(tree, bad)
        if bad is None or good == bad:
            self.warn("Move to a checkpoint after the damage, and mark one before it.")
            return
        await bisect_and_serve(self, good, bad, self.show_note, is_asked=len(marked) == 2)

    def pair(self) -> tuple[int, int] | None:
        """The checkpoints to compare, or one and the base: the marked two; else the marked one, or
        the head, and the one under the cursor. None if they are not two."""
        marked = self.marked_positions
        if len(self.marked) > 1:
            return (marked[0], marked[1]) if len(self.marked) == len(marked) == 2 else None
        is_one = self.is_at_base or self.selected is not None
        here = self.cursor.position if is_one else None
        others = [position for position in (*marked, self.run.tree.head) if position != here]
        return None if here is None or not others or others[0] is None else (others[0], here)

    @work(exclusive=True, group=OPENS)
    async def action_compare(self) -> None:
        model, tree, pair = self.run.model, self.run.tree, self.pair()
        if len(self.marked) > 2:
            self.action_ship()
        elif model is not None and pair is not None:
            before, after = (Side(tree, position, model.id) for position in pair)
            await show_changed(self.app, self.session, before, after)

    def action_try(self) -> None:
        pair, model = self.pair(), self.run.model
        if pair is None or model is None:
            return
        nodes = [self.run.tree[position] for position in pair]
        why = next((why for why in map(refusal, nodes) if why), "")
        if why:
            self.warn(why)
            return
        left, right = (
            Tried(node, mark, position == self.run.tree.head)
            for node, mark, position in zip(nodes, "AB", pair, strict=True)
        )
        self.app.push_screen(TryPanel(self.client, model, left, right))

    def action_unmark(self) -> None:
        self.marked = ()
        self.show_marks()
        self.renew_hints()

    # Notes on checkpoints, and pinning.

    @work(exclusive=True, group="keep")
    async def action_note(self) -> None:
        node, notebook = self.selected, self.session.notebook
        if node is None:
            return
        lines = ["The note stays on this machine. Leave it empty to remove it."]
        dialog = InputDialog(
            f"A note on {name(node)}", lines, "Save", value=notebook.notes.get(node.id, "")
        )
        text = await self.app.push_screen_wait(dialog)
        if text is None:
            return
        if unkept := notebook.keep(node.id, text):
            self.warn(unkept)
        self.show_marks()

    def _why_no_pin(self) -> str:
        node = self.selected
        if node is None:
            return "Only a checkpoint can be pinned: select one."
        if not self.client.settings.embedded:
            return "HUD keeps every checkpoint: only the embedded service has pins."
        if node.state == EXPIRED and not node.pinned:
            return f"{name(node)} has expired: no state is left to pin."
        return ""

    @work(exclusive=True, group="keep")
    async def action_pin(self) -> None:
        node, model, writes = self.selected, self.run.model, self.context.writes
        if node is None:
            return
        pin, what = "Pin", "keeps its full state whatever the disk limit, until it is unpinned."
        if node.pinned:
            pin, what = "Unpin", "may be thinned like any other once the disk limit is reached."
        dialog = ConfirmDialog(f"{pin} a checkpoint", [f"{name(node)} {what}"], pin)
        if model is None or not await self.app.push_screen_wait(dialog):
            return
        if node.pinned and not await writes.confirm_name(model.id, "unpin its checkpoint"):
            return
        row = await self.attempt(self.client.pin(model.id, node.id, not node.pinned))
        if row is None:
            return
        if self.session.run.model_id == model.id:
            self.session.fold(CheckpointAdded(checkpoint=row))
        self._tell(f"{name(row)} {'pinned' if row.pinned else 'unpinned'}")

    # The head: each key opens the preview first.

    def action_set_head(self) -> None:
        self._move_head(lambda: to_selected(self.run, self.cursor.position, self.cursor.folded))

    def action_roll_back(self) -> None:
        self._move_head(lambda: to_parent(self.run))

    def action_undo(self) -> None:
        self._move_head(lambda: to_undo(self.session.catch_up()))

    def action_redo(self) -> None:
        self._move_head(lambda: to_redo(self.session.catch_up()))

    @work(exclusive=True, group="history")
    async def action_history(self) -> None:
        """Show the head's history; choosing a line previews setting the head there again."""
        await self.session.read_history()
        panel = HistoryPanel(self.session.catch_up(), self.context.clock())
        chosen = await self.app.push_screen_wait(panel)
        if chosen is not None:
            self._move_head(lambda: to_known(self.run, chosen))

    def _move_head(self, wish: Callable[[], HeadMove]) -> None:
        move_head(self, wish, self.show_note)

    # The view: widgets, cursor, copying.

    def can(self, action: str) -> bool:
        return self.run.model is not None and super().can(action)

    def _is_to_serve(self) -> bool:
        """Whether the checkpoint under the cursor can become the head."""
        node = self.selected
        return node is not None and not (self._is_head() or refusal(node))

    def _is_head(self) -> bool:
        return self.cursor.position == self.run.tree.head

    def _has_step_before(self) -> bool:
        tree = self.run.tree
        return tree.head is not None and tree.parent(tree.head) != ROOT

    def _has_other_best(self) -> bool:
        choice = self.run.tree.choice
        return choice is not None and self.cursor.position != choice.position

    NEEDS: ClassVar[Mapping[str, Need[CheckpointsScreen]]] = {
        **dict.fromkeys(("jump", "filter", "ship", "bisect"), Need(lambda view: view.run.tree)),
        "open": Need(lambda view: len(view.tree_list.rows)),
        "unmark": Need(lambda view: view.marked),
        "leave": Need(lambda view: view.filter_field.value),
        "set_head": Need(_is_to_serve),
        "roll_back": Need(_has_step_before),
        "undo": Need(lambda view: view.run.history.to_undo),
        "redo": Need(lambda view: view.run.history.to_redo),
        "best": Need(_has_other_best),
        "copy": Need(
            lambda view: view.cursor.position != ROOT, "The base weights have no checkpoint id."
        ),
        "mark": Need(
            lambda view: view.selected is not None or (view.is_at_base and view.run.tree),
            FOLDED,
        ),
        "note": Need(
            lambda view: view.selected is not None, "A note belongs to a checkpoint: select one."
        ),
        "pin": Need(lambda view: not view._why_no_pin(), _why_no_pin),
        "fork": Need(lambda view: not view._why_no_fork(), _why_no_fork),
        "compare": Need(lambda view: view.pair() is not None or len(view.marked) > 2, NEED_TWO),
        "try": Need(lambda view: ROOT not in (view.pair() or (ROOT,)), NEED_TWO),
        "cancel_evaluation": Need(
            lambda view: to_cancel(view.run, view.selected), "No evaluation is running."
        ),
        "resume_evaluation": Need(
            lambda view: to_resume(view.run, view.selected), "No evaluation was cut short."
        ),
    }

    def on_mount(self) -> None:
        self.tree_list.focus()
        self.set_interval(OLDER_S, self._grow_older)
        self.set_interval(PROPOSALS_S, lambda: self.is_current and self._show_proposals())

    def sheet(self) -> Sheet:
        return tree_sheet(self.run, self.session.notebook.notes)

    @on(CheckpointTree.Opened)
    def action_open(self) -> None:
        if not self.tree_list.toggle():
            self.action_details()

    def action_fold(self) -> None:
        self.tree_list.fold()

    def action_unfold(self) -> None:
        self.tree_list.unfold()

    def action_fold_all(self) -> None:
        self.tree_list.fold_all()

    def action_follow(self) -> None:
        tree = self.tree_list
        if tree.follow:
            tree.follow = False
        else:
            tree.go_to_head()
            tree.follow = True
            self.session.checkpoint_id = None
        self.show_note()

    def action_best(self) -> None:
        choice = self.run.tree.choice
        if choice is None:
            self.warn("No checkpoint has a reward yet.")
            return
        self._go(choice.position)
        if choice.star is None:
            said = self.run.tree.choice_sentences[0]
            self.warn(f"{said[0].upper()}{said[1:]}.")

    def action_jump(self) -> None:
        """Go to the head; from there to the best checkpoint, then to the newest alarm's onset."""
        tree = self.run.tree
        onsets = [tree.find(onset) for onset in self.run.alarms.onsets]
        positions = [ROOT if tree.head is None else tree.head, tree.best]
        positions.append(max((p for p in onsets if p is not None), default=None))
        stops = list(dict.fromkeys(position for position in positions if position is not None))
        is_at_stop = self.cursor.position in stops and not self.cursor.folded
        here = stops.index(self.cursor.position) if is_at_stop else -1
        self._go(stops[(here + 1) % len(stops)])

    def go_to(self, name: str) -> None:
        self.session.checkpoint_id = name
        super().go_to(name)

    def reach(self, name: str) -> bool:
        position = self.run.tree.find(name)
        if position is not None:
            self._go(position)
        return position is not None

    def _go(self, position: int) -> None:
        """Move the cursor to a checkpoint; a filter that hides it is cleared."""
        cursor = self.tree_list.cursor
        if cursor.matches is not None and not cursor.matches.has(position):
            self.filter_field.fill("")
            self._filter()
        self.tree_list.go(position)

    def action_copy(self) -> None:
        self.copy(self.run.tree[self.cursor.position].id)

    @work(exclusive=True, group="read")
    async def action_refresh(self) -> None:
        if self.run.model is not None and await self.attempt(read_tree(self)) is not None:
            self._show_proposals(Content("tree refreshed"))
