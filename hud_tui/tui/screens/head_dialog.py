"""HeadDialog: what is served now, what will be, and what that means, before it is done."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from typing import TYPE_CHECKING

from textual import work
from textual.content import Content
from textual.widgets import Button, Static

from hud_tui.errors import HudError
from hud_tui.rl.ages import age
from hud_tui.rl.counts import counted
from hud_tui.rl.head import (
    WEIGHTS,
    HeadChange,
    Outcome,
    Relation,
    head_change,
    name,
    only_trained,
)
from hud_tui.rl.metrics import metric, ranked, short, signed
from hud_tui.rl.run import Run
from hud_tui.rl.series import metrics_of
from hud_tui.rl.text import one_line
from hud_tui.tui.moves import moved_note
from hud_tui.tui.screens.dialogs import ConfirmDialog

if TYPE_CHECKING:
    from hud_tui.tui.moves import Wanted
    from hud_tui.tui.screens.base import HudScreen
    from hud_tui.wire import Checkpoint

COMPARED = 6
"""Metrics that are compared, after the reward, where both have them."""
FRAME = 20
"""Lines of a screen that the dialog needs for all but the compared metrics."""
LOW = 18
"""Lines of a screen where the dialog goes without margins."""
NARROW = 70
"""Columns of a screen without room for the table."""
LEFT_OUT = frozenset(
    {
        *("num_traces", "num_datums", "num_tokens", "tokens", "tokens_per_s"),
        *("rollout_s", "train_s", "loss:sum", "reward_min", "reward_max"),
        *("ratio_max", "sampling_logprob_mean"),
    }
)
"""Metrics that say nothing of which weights are better."""


READING = "reading the tree …"


class HeadDialog(ConfirmDialog):
    """Ask before set_head. While it is open it shows the head as it is at the moment.

    It opens at once with what was known, and can be agreed to when the tree has been read.
    `shown` is the run that it shows, so that the caller can tell what was agreed to.
    """

    def __init__(
        self, view: HudScreen, wanted: Wanted, read: Callable[[], Awaitable[str | Outcome]]
    ) -> None:
        """
        Args:
            view: The view under it, whose run it follows.
            wanted: The checkpoint that will be served.
            read: Reads the tree: what the user should know first, or why there is nothing
                to ask.
        """
        self.VERTICAL_BREAKPOINTS = [(0, "-low"), (LOW, "-high")]
        self.view, self.target, self.read = view, wanted.target, read
        self.change: HeadChange | None = None
        """What it previews; None where nothing was known of the target."""
        self.current = False
        """Whether the tree has been read, so that it can be agreed to."""
        self.instead: Outcome | HudError | None = None
        """Why there was nothing to ask, after it has closed."""
        self.shown = view.run
        self._note = self._moved = ""
        model = view.run.model
        title = f"Set the head of {one_line(model.model_name, 60) if model else 'the model'}"
        if self._known(self.shown):
            self.change = head_change(self.shown, self.target)
        super().__init__(title, [READING], "Set head")

    def on_mount(self) -> None:
        self._update()
        self.query_one("#confirm", Button).disabled = True
        self.watch(self.view, "run", self._run_changed, init=False)
        self._begin()

    @work
    async def _begin(self) -> None:
        try:
            said = await self.read()
        except HudError as error:
            self.instead = error
        else:
            if isinstance(said, str):
                self._preview(said)
                return
            self.instead = said
        self.dismiss(False)

    def _preview(self, note: str) -> None:
        self._note, self.shown, self.current = note, self.view.run, True
        self.change = head_change(self.shown, self.target)
        self.query_one("#confirm", Button).disabled = False
        self.refresh_bindings()
        self._update()

    def _run_changed(self, run: Run) -> None:
        """Show the head as it moves; warn where it moved otherwise than by training."""
        if not self.current or run.tree.find(self.target) is None:
            return
        before, self.change = self.change, head_change(run, self.target)
        if not only_trained(self.shown, run):
            hud = self.view.hud
            self._moved = moved_note(self.shown, run, hud.journal, hud.clock())
        self.shown = run
        if before != self.change:
            self._update()

    def _update(self) -> None:
        """Say what it previews, if the dialog is still there."""
        for line in self.query(".dialog-line").results(Static):
            line.update(self._text(self.change))

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool:
        return action != "confirm" or self.current

    def _text(self, change: HeadChange | None) -> Content | str:
        if change is None:
            return READING
        narrow = self.view.size.width < NARROW
        note = f"{self._note} {self._moved}".strip()
        compared = max(1, min(COMPARED, self.view.size.height - FRAME))
        known = preview(change, note, self.view.hud.clock(), narrow, compared)
        if self.current:
            return known
        return Content("\n").join([known, Content.styled(READING, "$text-muted")])

    def _known(self, run: Run) -> bool:
        position = run.tree.find(self.target)
        return position is not None and position != run.tree.head


Compared = tuple[str, str, str, str]
"""What is compared, served now, will be served, the difference."""


def preview(
    change: HeadChange, note: str, now: float, narrow: bool = False, compared: int = COMPARED
) -> Content:
    """What setting the head will do, as lines.

    Args:
        note: Shown first, in a warning's colour; may be empty.
        now: Unix seconds, for the checkpoints' ages.
        narrow: Whether there is no room for a table.
        compared: Metrics to compare at most, beside the reward.
    """
    rows = [("checkpoint", name(change.now), name(change.then), "")]
    rows.append(("made", _age(change.now, now), _age(change.then, now), ""))
    rows += _metrics(change, compared)
    warning = [Content.styled(f"⚠ {note}\n", "bold $warning")] if note else []
    said = Content("\n".join(consequences(change)))
    if narrow:
        head, *rest = _narrow(rows)
        return Content("\n").join([*warning, head, said, *rest])
    return Content("\n").join([*warning, *_wide(rows), Content(), said])


def _wide(rows: list[Compared]) -> Iterator[Content]:
    yield Content.styled(f"{'served now':>32}{'will be served':>18}", "$text-muted")
    for number, (title, before, after, delta) in enumerate(rows):
        yield Content.assemble(
            (f"{title:<16}", "$text-muted"),
            f"{before:>16}",
            (f"{after:>18}", "" if number else "bold $accent"),
            f"   {delta}",
        )


def _narrow(rows: list[Compared]) -> Iterator[Content]:
    _, now, then, _ = rows[0]
    yield Content.assemble((now, ""), (" → ", "$text-muted"), (then, "bold $accent"))
    for title, before, after, delta in rows[2:]:
        yield Content.assemble((f"{title[:11]:<12}", "$text-muted"), f"{before}→{after} {delta}")


def consequences(change: HeadChange) -> list[str]:
    """What it means for the tree and for a run that trains, in words."""
    leaving, joining = counted(change.leaving, "step"), counted(change.joining, "step")
    said = {
        Relation.SAME: "This is the head already.",
        Relation.ANCESTOR: f"An ancestor: {leaving} out of service; nothing leaves the tree.",
        Relation.DESCENDANT: f"A descendant: {joining} more in service.",
        Relation.BRANCH: f"On another branch, parted at {name(change.parted)}: "
        f"{leaving} out of service, {joining} in; nothing leaves the tree.",
    }
    lines = [said[change.relation]]
    if change.then.state == WEIGHTS:
        lines.append("Only its weights are kept: training from it starts with fresh Adam moments.")
    if change.training is not None:
        job = one_line((change.training.id or "")[:8], 8)
        lines.append(f"Job {job} is training: its next step branches from {name(change.then)}.")
    return lines


def _metrics(change: HeadChange, compared: int) -> list[Compared]:
    after = metrics_of(change.then)
    before = {} if change.now is None else metrics_of(change.now)
    keys = [key for key in ranked(list(after)) if key not in LEFT_OUT]
    if change.now is not None:
        keys = [key for key in keys if key in change.deltas]
    return [
        (
            one_line(metric(key).title, 15),
            short(before.get(key)),
            short(after[key]),
            signed(change.deltas.get(key)),
        )
        for key in keys[: compared + 1]
    ]


def _age(checkpoint: Checkpoint | None, now: float) -> str:
    return "–" if checkpoint is None else f"{age(checkpoint.created_at, now)} ago"
