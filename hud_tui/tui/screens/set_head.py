"""HeadDialog: previews a move of the head, updated while it is open; and the move itself."""

from __future__ import annotations

from asyncio import timeout
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from textual import on, work
from textual.binding import BindingType
from textual.content import Content
from textual.widget import Widget
from textual.widgets import Button, Static

from hud_tui.errors import HudConflict, HudError, HudUnclear, HudUsage
from hud_tui.events import Act, HeadMoved, TreeRead
from hud_tui.keys import key, keyed
from hud_tui.rl.checkpoint_tree import ROOT
from hud_tui.rl.head import (
    WEIGHTS,
    HeadChange,
    HeadMove,
    Outcome,
    Relation,
    head_change,
    moved_note,
    name,
    named,
    only_trained,
    outcome,
    refusal,
)
from hud_tui.rl.metrics import interval_text, metric, ranked, reading, short, signed
from hud_tui.rl.own_numbers import HELDOUT, REWARD
from hud_tui.rl.reflog import ReflogLine, reflog
from hud_tui.rl.run import Run
from hud_tui.rl.text import age, clean, counted, one_line
from hud_tui.tui.keys import bindings
from hud_tui.tui.screens.base import HudScreen
from hud_tui.tui.screens.dialogs import HINTS, ConfirmDialog, Panel
from hud_tui.tui.screens.evaluate import Evaluated, ask_evaluation
from hud_tui.tui.widgets.lines import labelled
from hud_tui.tui.widgets.table import DIM, Column, RowList, item_row
from hud_tui.wire import BASE, Checkpoint, Evaluation, Model
from hud_tui.wire_access import Proposal, Propose, Role

# The preview: the present and the new head side by side, and the consequences.


COMPARED = 6
"""Most own metrics that are compared, in addition to the rewards."""
LEFT_OUT = frozenset(
    {
        *("num_traces", "num_heldout_traces", "num_datums", "num_tokens", "tokens"),
        *("tokens_per_s",),
        *("rollout_s", "train_s", "loss:sum", "reward_min", "reward_max"),
        *("ratio_max", "sampling_logprob_mean", REWARD, HELDOUT),
    }
)
"""Metrics that do not compare weights, or have rows of their own."""
UNSAMPLED = "not sampled"

Compared = tuple[str, str, str, str]
"""(metric, value now, value after, difference)."""


def preview(
    change: HeadChange,
    note: str,
    now: float,
    narrow: bool,
    compared: int,
    differs: Sequence[str],
) -> Content:
    """Preview of a move, as lines. `note` is shown first, as a warning; `narrow`: whether there is
    no room for a table; `compared`: most metrics besides the reward; `differs`: what the
    evaluations of both tell, in sentences."""
    rows = [("checkpoint", name(change.now), name(change.then), "")]
    rows.append(("created", _age(change.now, now), _age(change.then, now), ""))
    rows += [*_evaluated(change), *_rewards(change), *_metrics(change, compared)]
    warning = [Content.styled(f"⚠ {note}\n", "bold $warning")] if note else []
    text = Content("\n".join([*unevaluated(change), *differs, *consequences(change)]))
    if narrow:
        head, *rest = _narrow(rows)
        return Content("\n").join([*warning, head, text, *rest])
    return Content("\n").join([*warning, *_wide(rows), Content(), text])


def _wide(rows: list[Compared]) -> Iterator[Content]:
    yield Content.styled(f"{'served now':>32}{'will be served':>18}", "$text-muted")
    for number, (title, before, after, delta) in enumerate(rows):
        tone = "" if number else "bold $accent"
        yield labelled(16, title, f"{before:>16}", (f"{after:>18}", tone), f"   {delta}")


def _narrow(rows: list[Compared]) -> Iterator[Content]:
    _, now, then, _ = rows[0]
    yield Content.assemble((now, ""), (" → ", "$text-muted"), (then, "bold $accent"))
    for title, before, after, delta in rows[2:]:
        yield labelled(12, title[:11], f"{before}→{after} {delta}")


def consequences(change: HeadChange) -> list[str]:
    """The consequences for the tree and for a run in progress, in words."""
    leaving, joining = counted(change.leaving, "step"), counted(change.joining, "step")
    moved = {
        Relation.SAME: "This is the head already.",
        Relation.ANCESTOR: f"Rolls back {leaving}. No checkpoint is deleted.",
        Relation.DESCENDANT: f"Moves the head forward {joining}.",
        Relation.BRANCH: f"Switches branch at {name(change.common)}: "
        f"{leaving} back, {joining} forward. No checkpoint is deleted.",
    }
    lines = [moved[change.relation]]
    if change.then.state == WEIGHTS:
        lines.append("Weights only: training from it starts with fresh Adam moments.")
    if change.training is not None:
        job = one_line((change.training.id or "")[:8], 8)
        lines.append(f"Job {job} is training: its next step branches from {name(change.then)}.")
    return lines


def _evaluated(change: HeadChange) -> Iterator[Compared]:
    now, then = change.evaluated_now, change.evaluated_then
    if now is None and then is None:
        return
    delta = "" if now is None or then is None else signed(then.mean_reward - now.mean_reward)
    yield "evaluation", _mean(now), _mean(then), delta
    yield "95 % interval", _interval(now), _interval(then), ""


def _mean(evaluation: Evaluation | None) -> str:
    if evaluation is None:
        return "none yet"
    size = f"{evaluation.num_tasks}×{evaluation.samples_per_task}"
    return f"{short(evaluation.mean_reward)}, {size}"


def _interval(evaluation: Evaluation | None) -> str:
    mean = None if evaluation is None else evaluation.mean
    return "–" if mean is None else interval_text(mean.low, mean.high) or "–"


def unevaluated(change: HeadChange) -> list[str]:
    """Which of both has no evaluation, and the key for one."""
    pairs = ((change.then, change.evaluated_then), (change.now, change.evaluated_now))
    missing = [name(node) for node, evaluation in pairs if evaluation is None]
    if not missing:
        return []
    has, both = ("have", "them") if len(missing) > 1 else ("has", "it")
    sentence = f"{' and '.join(missing)} {has} no evaluation yet"
    return [f"{sentence}: {key('head.evaluate')} evaluates {both}."]


def _rewards(change: HeadChange) -> Iterator[Compared]:
    """Own rewards of both; "not sampled" if there are none."""
    now, then = change.own_now, change.own_then
    delta = change.deltas.get
    unknown = "–" if change.now is None else UNSAMPLED
    for title, measure in (("held-out", HELDOUT), ("reward", REWARD)):
        before, after = change.before.get(measure), change.after.get(measure)
        are_evaluated = change.evaluated_now is not None and change.evaluated_then is not None
        if measure == HELDOUT and (are_evaluated or (before is None and after is None)):
            continue
        of = [str(own.sampled or "") for own in (now, then)]
        if measure == HELDOUT:
            of = [now.over_briefly, then.over_briefly]
        yield title, _own(before, of[0], unknown), _own(after, of[1]), signed(delta(measure))
    if change.now is not None and None in (now.reward, then.reward):
        yield "batch reward", short(change.now.mean_reward), short(change.then.mean_reward), ""


def _own(mean: float | None, over: str, unknown: str = UNSAMPLED) -> str:
    if mean is None:
        return unknown
    return f"{short(mean)}, {over}" if over else short(mean)


def _metrics(change: HeadChange, compared: int) -> list[Compared]:
    before, after = change.before, change.after
    keys = [key for key in ranked(list(change.deltas)) if key not in LEFT_OUT]
    return [
        (
            Content(one_line(metric(key).title, 200)).truncate(15, ellipsis=True).plain,
            reading(key, before.get(key)),
            reading(key, after[key]),
            signed(change.deltas[key]),
        )
        for key in keys[:compared]
    ]


def _age(checkpoint: Checkpoint | None, now: float) -> str:
    return "–" if checkpoint is None else f"{age(checkpoint.created_at, now)} ago"


FRAME = 20
"""Lines of a screen that the dialog needs, without the compared metrics."""
LOW = 18
"""On a screen with fewer lines, the dialog has no margins."""
NARROW = 70
"""On a screen with fewer columns, there is no table."""
READING = "reading the tree …"


SET = "Set head"
"""Label of the button, unless another person has a say."""
COMPARE_S = 3.0
"""Longest wait for the comparison of evaluations, seconds; the head can be set without it."""


class HeadDialog(ConfirmDialog):
    """Asks before set_head. While it is open it shows the present head.

    It opens at once with the known tree, and can be confirmed after the tree has been read. `shown`
    is the displayed run, so that the caller knows what the user confirmed.
    """

    BINDINGS: ClassVar[list[BindingType]] = bindings("head")
    hints = f"{{head.evaluate}} evaluate · {HINTS}"

    def __init__(
        self,
        view: HudScreen,
        move: HeadMove,
        read: Callable[[], Awaitable[str | Outcome]],
        ask_consent: Callable[[], Awaitable[Consent]],
    ) -> None:
        """`view` is the one below, whose run it follows; `read` reads the tree, and returns a note
        for the user, or an outcome if there is nothing to ask; `ask_consent` reads what another
        person has to say of it."""
        self.VERTICAL_BREAKPOINTS = [(0, "-low"), (LOW, "-high")]
        self.view, self.target, self.read = view, move.target, read
        self.change: HeadChange | None = None
        """The previewed move; None if the target is unknown."""
        self.current = False
        """Whether the tree has been read, so that it can be confirmed."""
        self.instead: Outcome | HudError | None = None
        """Why there was nothing to ask, after it has closed."""
        self.shown = view.run
        self._note = self._moved = ""
        self._differs: list[str] = []
        """Conclusions from the evaluations of both."""
        model = view.run.model
        title = f"Set the head of {one_line(model.model_name, 60) if model else 'the model'}"
        position = self.shown.tree.find(self.target)
        if position is not None and position != self.shown.tree.head:
            self.change = head_change(self.shown, self.target)
        self.consent, self._ask_consent = Consent(), ask_consent
        super().__init__(title, [READING], SET)

    def on_mount(self) -> None:
        self._update()
        self.query_one("#confirm", Button).disabled = True
        self.watch(self.view, "run", self._run_changed, init=False)
        self._begin()

    @work
    async def _begin(self) -> None:
        try:
            note = await self.read()
            self.consent = await self._ask_consent()
        except HudError as error:
            self.instead = error
        else:
            if isinstance(note, str):
                self.query_one("#confirm", Button).label = f"{self.consent.label}  (y)"
                with suppress(HudError, TimeoutError):
                    await self._compare()
                self._preview(note)
                return
            self.instead = note
        self.dismiss(False)

    async def _compare(self) -> None:
        """Read the paired difference of the target's and the head's evaluations."""
        run = self.view.run
        target, head = run.tree.find(self.target), run.tree.head
        if target is None:
            return
        before = run.evaluations_of(ROOT if head is None else head)
        async with timeout(COMPARE_S):
            paired = await self.view.session.evaluations.paired(before, run.evaluations_of(target))
        if paired is not None:
            told = paired.difference.sentences(name(run.head), name(run.tree[target]))
            self._differs = [f"{sentence}." for sentence in told]

    def action_evaluate(self) -> None:
        """Leave the head as it is, and ask how to evaluate the target."""
        change, view = self.change, self.view
        if change is None:
            return
        both = [change.then, change.now]
        evaluated = change.evaluated_then, change.evaluated_now
        missing = [node for node, score in zip(both, evaluated, strict=True) if score is None]
        offered = {" and ".join(map(name, of)): of for of in (missing or both, [change.then], both)}
        choices = [Evaluated(label, tuple(of)) for label, of in offered.items()]
        self.dismiss(False)
        view.run_worker(
            ask_evaluation(view.app, view.session, choices), exclusive=True, group="evaluate"
        )

    def _preview(self, note: str) -> None:
        self._note, self.shown, self.current = note, self.view.run, True
        self.change = head_change(self.shown, self.target)
        self.query_one("#confirm", Button).disabled = False
        self.refresh_bindings()
        self._update()

    def _run_changed(self, run: Run) -> None:
        """Show moves of the head; warn if training did not cause them."""
        if not self.current or run.tree.find(self.target) is None:
            return
        before, self.change = self.change, head_change(run, self.target)
        if not only_trained(self.shown, run):
            self._moved = moved_note(self.shown, run, self.view.context.clock())
        self.shown = run
        if before != self.change:
            self._update()

    def _update(self) -> None:
        for line in self.query(".dialog-line").results(Static):
            line.update(self._text(self.change))

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool:
        return action != "confirm" or self.current

    def _text(self, change: HeadChange | None) -> Content | str:
        if change is None:
            return READING
        narrow = self.view.size.width < NARROW
        note = " ".join(filter(None, (self.consent.note, self._note, self._moved)))
        taken = FRAME + 2 * len(self._differs) + (2 if change.evaluated_then else 0)
        compared = max(1, min(COMPARED, self.view.size.height - taken))
        now = self.view.context.clock()
        text = preview(change, note, now, narrow, compared, self._differs)
        if self.current:
            return text
        return Content("\n").join([text, Content.styled(READING, "$text-muted")])


def columns_at(now: float) -> Sequence[Column[ReflogLine]]:
    """Of the history, at a time in Unix seconds."""
    return (
        Column("when", 6, lambda line: age(line.at or None, now), right=True),
        Column("what", 14, lambda line: line.what),
        Column("from", 12, lambda line: line.before, DIM, rank=1),
        Column("checkpoint", 12, lambda line: line.after, "bold"),
        Column("by", 0, lambda line: line.by),
    )


NO_HISTORY = "No step has been taken yet, and the head has not been set."
MOST_LINES = 1_000
"""Lines of the history that are listed, the newest."""


class HistoryPanel(Panel[str]):
    """The history of the head; closes with the id of a checkpoint in it."""

    BINDINGS: ClassVar[list[BindingType]] = bindings("history")
    FOOT = "{history.choose} set head   {panel.close} back"

    def __init__(self, run: Run, now: float) -> None:
        super().__init__(f"Head history · {run.history.completeness}")
        columns = columns_at(now)
        self.rows = RowList(columns, id="history", least=26)
        self.lines = reflog(run)[: -MOST_LINES - 1 : -1]
        self._shown = [item_row(columns, str(n), line) for n, line in enumerate(self.lines)]

    def body(self) -> Iterable[Widget]:
        if self._shown:
            yield self.rows
        else:
            yield Static(NO_HISTORY, id="history-empty", markup=False)

    def on_mount(self) -> None:
        if self._shown:
            self.rows.show(self._shown)
            self.rows.focus()

    @on(RowList.Opened)
    def action_choose(self) -> None:
        if self.rows.key is not None:
            self.dismiss(self.lines[int(self.rows.key)].checkpoint_id or BASE)


# Setting the head, and reporting the outcome.
#
# The tree is read before asking, again before sending, and afterwards. If somebody else moved the
# head meanwhile, the user is asked again; steps of training are no reason to. The request is sent
# once: after an unclear outcome the tree tells what happened.


STEERS = "steer"
"""Group of the worker that moves the head."""


def move_head(
    view: HudScreen, wish: Callable[[], HeadMove], show: Callable[[Content], object]
) -> None:
    """Start the head move that `wish` returns, unless one is in progress or no changes are allowed;
    `show` as in `steer`."""
    why, app = "", view.app
    if not view.context.writes.may_change(Role.STEER, "move a head"):
        return
    if view.run.model is None:
        why = keyed("No model selected: press {app.view.models} to choose one.")
    elif any(worker.group == STEERS and not worker.is_finished for worker in app.workers):
        why = "A head change is in progress: wait for the service to confirm it."
    else:
        try:
            view.run_worker(steer(view, wish(), show), group=STEERS)
        except HudUsage as error:
            why = error.message
    if why:
        show(Content.styled(f"⚠ {why}", "$warning"))


async def steer(view: HudScreen, move: HeadMove, show: Callable[[Content], object]) -> None:
    """Preview, ask, set the head once, read the tree; `show` the progress, then the outcome."""
    try:
        became = await _until_set(view, move, show)
    except HudError as error:
        view.show_error(error)
        became = Outcome(False, f"refused: the head is {name(view.run.head)}")
    if became is not None:
        mark, style = ("✔", "$accent") if became.done else ("⚠", "bold $warning")
        show(Content.styled(f"{mark} {became.text}", style))
        view.take_back = partial(show, Content()) if became.done else None
    view.renew_hints()  # what can be undone and redone has changed


async def _until_set(
    view: HudScreen, move: HeadMove, show: Callable[[Content], object]
) -> Outcome | None:
    """The outcome; None if the user left. Raises HudError."""
    seen = view.run
    while True:
        read = partial(_preview, view, move, seen)
        dialog = HeadDialog(view, move, read, partial(_consent, view, move))
        if not await view.app.push_screen_wait(dialog):
            if isinstance(dialog.instead, HudError):
                raise dialog.instead
            return dialog.instead
        consent = dialog.consent
        if consent.is_needed and consent.proposal is None:
            return await _propose(view, move)
        model = view.run.model
        if model is None or not await view.context.writes.confirm_name(model.id, "set its head"):
            return None
        seen = dialog.shown
        show(Content(f"setting the head to {named(seen, move.target)} …"))
        run = await read_tree(view)
        if not only_trained(seen, run):
            show(Content())
            continue
        try:
            return await _send(view, run, move, consent.proposal)
        except HudConflict:
            if only_trained(seen, await read_tree(view)):
                raise
            show(Content())


async def read_tree(view: HudScreen) -> Run:
    """Read the tree now, and show it in every view. Raises HudError: it cannot be read, or another
    model was selected meanwhile."""
    model = view.run.model
    if model is None:
        raise HudUsage("No model selected.", keyed("press {app.view.models} to choose one"))
    size = len(view.session.catch_up().tree)
    checkpoints = await view.client.checkpoints(model.id)
    now = view.session.catch_up()
    if now.model is None or now.model.id != model.id:
        raise HudUsage("Another model was selected meanwhile.", "check its tree, then try again")
    last = len(checkpoints) - 1
    is_part = last < 0 or now.tree.find(checkpoints[last].id) == last
    if size <= len(checkpoints) < len(now.tree) and is_part:
        # events arrived while the request was in progress: the answer must not undo them
        return now
    return view.session.fold(TreeRead(checkpoints=tuple(checkpoints)))


async def _preview(view: HudScreen, move: HeadMove, seen: Run) -> str | Outcome:
    """Read the tree; returns a note for the user, or an outcome if there is nothing to ask."""
    run = await read_tree(view)
    position = run.tree.find(move.target)
    if position is None:
        return Outcome(False, "that checkpoint is no longer in the tree")
    if position == run.tree.head:
        return Outcome(False, f"{name(run.head)} is the head already")
    if why := refusal(run.tree[position]):
        return Outcome(False, why)
    if only_trained(seen, run):
        return move.note
    moved = moved_note(seen, run, view.context.clock())
    return f"{move.note} {moved}".strip()


@dataclass(frozen=True)
class Consent:
    """What another person has to say of a move: nothing, unless the model is protected for all."""

    note: str = ""
    label: str = SET
    """Of the button."""
    is_needed: bool = False
    proposal: Proposal | None = None
    """What another proposed, so that the user may agree; None: the user proposes."""


async def _consent(view: HudScreen, move: HeadMove) -> Consent:
    """What a move needs. Raises HudError."""
    model, who = view.run.model, view.context.writes.identity
    if model is None or who is None:
        return Consent()
    protection = await view.client.access.proposals(model.id)
    if protection.protected_by is None:
        return Consent()
    others = (p for p in protection.open if p.checkpoint_id == move.target and p.by != who.key)
    proposal = next(others, None)
    by = f"Protected by {one_line(protection.protected_by, 40)}"
    if proposal is None:
        return Consent(f"{by}: another person has to approve it.", "Propose", True)
    why = f" ({clean(one_line(proposal.note, 200), 120)})" if proposal.note else ""
    proposed = f"{by}, proposed by {one_line(proposal.by, 40)}{why}."
    return Consent(proposed, "Approve", True, proposal)


async def proposed(view: HudScreen, model: Model) -> str | None:
    """What others propose for the head of a model, and how to agree; empty if nothing; None if that
    cannot be read, which its dialog says, too."""
    who = view.context.writes.identity
    if who is None:
        return ""
    try:
        protection = await view.client.access.proposals(model.id)
    except HudError:
        return None
    for asked in reversed(protection.open):
        if asked.by != who.key and protection.protected_by is not None:
            what = f"{one_line(asked.by, 40)} proposes {one_line(asked.checkpoint, 40)}"
            may = view.context.writes.why_not(Role.STEER, "move a head") is None
            return f"{what}: {key('checkpoints.set_head')} on it approves" if may else what
    return ""


async def _propose(view: HudScreen, move: HeadMove) -> Outcome:
    model = view.run.model
    assert model is not None
    asked = await view.client.access.propose(model.id, Propose(checkpoint_id=move.target))
    how = f"{key('checkpoints.set_head')} on it, by another person, approves it"
    return Outcome(True, f"proposed {one_line(asked.checkpoint, 40)}: {how}")


async def _send(
    view: HudScreen, before: Run, move: HeadMove, approved: Proposal | None = None
) -> Outcome:
    """Send the request once, then read the tree to verify it. `approved`: what it agrees to."""
    session, model, target = view.session, view.run.model, move.target
    assert model is not None
    moved, refused = None, None
    was = None if before.head is None else before.head.id
    seen = {"seen": was} if view.client.settings.embedded else {}
    session.sent_to = target
    try:
        if approved is not None:
            await view.client.access.approve(approved)
        else:
            moved = await view.client.set_head(model.id, target, was=was, act=move.act, **seen)
    except HudUnclear:
        pass
    except HudError as error:
        session.sent_to, refused = None, error
    is_answered = moved is not None or (approved is not None and refused is None)
    try:
        run = await read_tree(view)
    except HudError as error:
        if refused is not None:
            raise refused from error
        told = "the head was set" if is_answered else "no answer"
        again = f"{key('checkpoints.refresh')} refreshes it"
        why = clean(error.message, 80)
        return Outcome(False, f"{told}, and the tree cannot be read ({why}): {again}")
    if refused is not None:
        return _refused(run, target, refused)
    became = outcome(before, run, target, is_answered)
    if not became.done:
        return became
    await _keep(view, moved, HeadMoved(checkpoint_id=target, previous=was, act=move.act))
    back = "redo" if move.act is Act.UNDO else "undo"
    return Outcome(True, f"{became.text} · {key(f'checkpoints.{back}')} {back}")


async def _keep(view: HudScreen, moved: HeadMoved | None, sent: HeadMoved) -> None:
    """Add a move to the history. Without an answer the service may tell of it; else it is as it
    was sent."""
    session = view.session
    if moved is None:
        await session.read_history()
        moves = session.run.history.moves
        if moves and moves[-1].checkpoint_id == sent.checkpoint_id:
            return
        as_sent = {"at": view.context.clock(), "cause": "set", "by": view.client.actor}
        moved = sent.model_copy(update=as_sent)
    session.fold(moved)


def _refused(run: Run, target: str, error: HudError) -> Outcome:
    """Turn a 410 for a checkpoint that expired meanwhile into an outcome."""
    position = run.tree.find(target)
    why = "" if position is None or error.status != 410 else refusal(run.tree[position])
    if not why:
        raise error
    return Outcome(False, f"{why} The head is still {name(run.head)}.")
