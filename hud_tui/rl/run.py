"""An immutable snapshot of one model's training, updated by events; the status."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile

from hud_tui.events import (
    CheckpointAdded,
    EvaluationsRead,
    Event,
    HeadMoved,
    MovesRead,
    RolloutDone,
    StepTaken,
    TreeRead,
    WorkChanged,
)
from hud_tui.rl.alarms.alarm import Alarm, Report
from hud_tui.rl.checkpoint_tree import ROOT, Tree, label, origin, reread
from hud_tui.rl.history import History
from hud_tui.rl.metrics import Series, idle_share, short
from hud_tui.rl.own_numbers import of_base, with_results
from hud_tui.rl.text import counted, seconds
from hud_tui.rl.work import has_ended, is_active, reason, title_of
from hud_tui.wire import Checkpoint, Evaluation, Group, Model, WorkState


def starting_point(run: "Run") -> str:
    """What the run's first step started from: a checkpoint, or what the model was forked from.

    For a run without steps, the head. Empty if the service does not report which run took a step.
    """
    tree, job = run.tree, run.job
    own = (p for p in range(len(tree)) if job is not None and tree[p].job_id == job.id)
    first = next(own, None)
    if first is None and job is not None and job.step:
        return ""
    before = tree.head if first is None else tree.parent(first)
    if before is None or before == ROOT:
        return origin(run.model) if run.model is not None and origin(run.model) else "base weights"
    return label(tree[before])


EVALUATIONS = 1000
LOG = 200
"""Maximum number of lines in the event log."""


@dataclass(frozen=True)
class Entry:
    """One line of the event log."""

    at: float
    """Unix seconds by the service's clock; 0 if unknown."""
    text: str


@dataclass(frozen=True, eq=False)
class Run:
    """An immutable snapshot of one model's training."""

    model: Model | None = None
    tree: Tree = field(default_factory=Tree)
    series: Series = field(default_factory=Series)
    """The metrics of the head's lineage."""
    job: WorkState | None = None
    """The model's current managed run, or the last one."""
    rollouts: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    """Rewards of the step being sampled, by task slug, in order of arrival."""
    rollout_ids: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Trace ids, in the order of `rollouts`."""
    rollouts_step: int | None = None
    """The step that `rollouts` are sampled for."""
    rollouts_attempt: int | None = None
    """Attempt at that step, from 1; None if the service does not report it."""
    log: tuple[Entry, ...] = ()
    """Newest last, at most LOG entries."""
    loaded: bool = False
    """Whether the tree has been read."""
    evaluations: Mapping[str, WorkState] = field(default_factory=dict)
    """The newest evaluations, at most EVALUATIONS, by id, oldest first."""
    history: History = field(default_factory=History)
    """Moves of the head that somebody made."""
    alarms: Report = field(default_factory=Report)
    """Alarms on the head's lineage, as far as it has been evaluated."""

    @property
    def model_id(self) -> str | None:
        return None if self.model is None else self.model.id

    @property
    def head(self) -> Checkpoint | None:
        """The checkpoint being served; None while the base weights are served."""
        return self.tree.served

    @property
    def training(self) -> bool:
        """Whether a managed run is active."""
        return self.job is not None and is_active(self.job.status)

    def holds_until(self, alarm: Alarm) -> str:
        """When an alarm of the head's lineage ended. One that never did holds until now while the
        run may go on, else until the run's end, or the head where that was set back."""
        if not alarm.active:
            return "–" if alarm.ended is None else f"step {alarm.ended}"
        if self.job is None or not has_ended(self.job.status):
            return "now"
        last = self.alarms.steps if self.head is None else self.head.step or self.alarms.steps
        rolled_back = self.tree.head not in (None, len(self.tree) - 1)
        end = "the head" if rolled_back else "the run's end"
        return f"{end} at step {last}"

    @property
    def waits(self) -> str:
        """What the managed run waits for; empty if nothing."""
        return (self.job.waits or "") if self.job is not None and self.training else ""

    @property
    def groups(self) -> Sequence[Group]:
        """The newest step's groups on the head's lineage; empty if the service reports none."""
        return [] if self.head is None else self.head.groups

    def evaluations_of(self, position: int) -> Sequence[Evaluation]:
        """Results of a checkpoint's evaluations, oldest first; ROOT stands for the weights that the
        model started from."""
        tree = self.tree
        return tree.base_evaluations if position == ROOT else tree[position].evaluations

    def row_of(self, checkpoint_id: str | None) -> int | None:
        """A checkpoint's row in `series`; None if it is not in the head's lineage."""
        position = self.tree.find(checkpoint_id)
        row = -1 if position is None else self.tree.depth(position) - 1
        is_there = 0 <= row < self.series.length and self.series.id_at(row) == checkpoint_id
        return row if is_there else None

    def fold(self, event: Event) -> "Run":
        """The snapshot after an event. Applying an event twice changes nothing, except for rollouts
        without an index: each of them is appended."""
        match event:
            case TreeRead(checkpoints=received):
                checkpoints = with_results(received, self.evaluations.values())
                renewed = reread(self.tree, checkpoints) if self.loaded else None
                if renewed is not None:
                    return self._with_tree(renewed)
                tree = Tree.of(checkpoints, self.tree.base_evaluations)
                series = Series.of(tree[position] for position in tree.path(tree.head))
                return replace(self, tree=tree, series=series, loaded=True)
            case CheckpointAdded(checkpoint=told_of):
                [checkpoint] = with_results([told_of], self.evaluations.values())
                return self._with_tree(self.tree.add(checkpoint))
            case HeadMoved():
                return self._move_head(event)
            case MovesRead(moves=moves, since=since):
                return replace(self, history=History(self.history.moves, since).with_moves(moves))
            case RolloutDone():
                return self.with_rollouts([event])
            case StepTaken():
                return self._step(event)
            case WorkChanged(work=work):
                return self._with_work(work, event.at)
            case EvaluationsRead(evaluations=listed):
                news = [each for each in listed if _is_news(self.evaluations.get(each.id), each)]
                return self._with_evaluations(news)

    def _with_tree(self, tree: Tree) -> "Run":
        if tree is self.tree:
            return self
        return replace(self, tree=tree, series=_follow(self.series, self.tree, tree))

    def _move_head(self, event: HeadMoved) -> "Run":
        run = self._with_tree(fold_tree(self.tree, event))
        if event.cause == "set" and event.checkpoint_id not in (None, event.previous):
            run = replace(run, history=run.history.with_moves([event]))
        if event.cause == "step" or (run.head and run.head.id) != event.checkpoint_id:
            return run
        return run._log(event.at, f"head set to {label(run.head)}")

    def with_rollouts(self, events: Sequence[RolloutDone]) -> "Run":
        """The snapshot after several rollouts, in order of arrival."""
        graded = [e for e in events if not e.heldout and None not in (e.reward, e.task_slug)]
        if not graded:
            return self
        sampled = self.rollouts_step, self.rollouts_attempt
        rollouts, ids = dict(self.rollouts), dict(self.rollout_ids)
        for event in graded:
            if (event.step, event.attempt) != sampled:
                sampled, rollouts, ids = (event.step, event.attempt), {}, {}
            slug, reward = event.task_slug or "", event.reward or 0.0
            rewards, named = rollouts.get(slug, ()), ids.get(slug, ())
            index = len(rewards) if event.rollout is None else min(event.rollout, len(rewards))
            before, after = slice(index), slice(index + 1, None)  # a repeated one replaces itself
            rollouts[slug] = (*rewards[before], reward, *rewards[after])
            ids[slug] = (*named[before], event.trace_id, *named[after])
        step, attempt = sampled
        return replace(
            self,
            rollouts=rollouts,
            rollout_ids=ids,
            rollouts_step=step,
            rollouts_attempt=attempt,
        )

    def _step(self, event: StepTaken) -> "Run":
        zero = round(idle_share(event.metrics) * len(event.groups))
        reward = event.metrics.get("reward_mean")
        node = self.tree.node(self.tree.find(event.checkpoint_id))
        stamp = event.at or (node and seconds(node.created_at)) or 0.0
        parts = [
            f"step {event.step}" if node is None else label(node),
            f"reward {short(reward)}" if reward is not None else "",
            counted(len(event.groups), "group") if event.groups else "",
            f"{zero} zero-variance" if zero else "",
        ]
        return self._log(stamp, "  ".join(part for part in parts if part))

    def _with_work(self, work: WorkState, stamp: float) -> "Run":
        if not work.is_evaluation:
            return self._with_job(work, stamp)
        before = self.evaluations.get(work.id)
        run = self._with_evaluations([work])
        if before is not None and before.status == work.status:
            return run
        of = work.checkpoint or "base"
        return run._log(stamp, f"evaluation of {of} {work.status}")

    def _with_job(self, job: WorkState, stamp: float) -> "Run":
        before = self.job
        run = replace(self, job=job)
        stamp = stamp or (job.finished_at if has_ended(job.status) else job.created_at) or 0.0
        if before is not None and (before.id, before.status) == (job.id, job.status):
            return run._log_trouble(before, job, stamp)
        why = reason(job)
        what = f"{title_of(None, job.id)} {job.status}"
        return run._log(stamp, f"{what}: {why}" if why else what)

    def _with_evaluations(self, new: Sequence[WorkState]) -> "Run":
        if not new:
            return self
        # oldest first, as are those that are known
        listed = {evaluation.id: evaluation for evaluation in new}
        if not self.evaluations.keys() <= listed.keys():
            listed = {**self.evaluations, **listed}
        ordered = list(listed.values())
        tree = self.tree
        nodes = {evaluation.checkpoint_id for evaluation in new if evaluation.result is not None}
        for position in (p for p in map(tree.find, nodes) if p is not None):
            [node] = with_results([tree[position]], new)
            tree = tree.add(node)
        if None in nodes:
            tree = tree.with_base(of_base(ordered))
        run = self._with_tree(tree)
        newest = ordered[-EVALUATIONS:]
        return replace(run, evaluations={evaluation.id: evaluation for evaluation in newest})

    def _log_trouble(self, before: WorkState, job: WorkState, stamp: float) -> "Run":
        """Log what the run waits for, and its notes.

        A note about a zero-variance batch is left out: the new attempt is shown instead.
        """
        run = self
        if job.waits and job.waits != before.waits:
            run = run._log(stamp, f"waits: {job.waits}")
        if job.note and job.note != before.note and job.attempt == before.attempt:
            run = run._log(stamp, job.note)
        return run

    def _log(self, stamp: float, text: str) -> "Run":
        entry = Entry(stamp, text)
        if self.log and self.log[-1] == entry:
            return self
        return replace(self, log=(*self.log[-LOG + 1 :], entry))


def _is_news(old: WorkState | None, new: WorkState) -> bool:
    """Whether what was read of an evaluation is newer than what is known: events may have overtaken
    the read."""
    return old is None or (not has_ended(old.status) and new.done >= old.done)


def fold_tree(tree: Tree, event: Event) -> Tree:
    """The tree after an event; the same object if it changes nothing."""
    match event:
        case TreeRead(checkpoints=checkpoints):
            return Tree.of(checkpoints)
        case CheckpointAdded(checkpoint=checkpoint):
            return tree.add(checkpoint)
        case HeadMoved(checkpoint_id=to, cause=cause):
            return tree if cause == "step" and _is_past(tree, to) else tree.with_head(to)
        case _:
            return tree


def _is_past(tree: Tree, checkpoint_id: str | None) -> bool:
    """Whether the head already descends from it, because a read overtook the event."""
    position = tree.find(checkpoint_id)
    return position is not None and tree.is_ancestor(position, tree.head)


def _follow(series: Series, before: Tree, after: Tree) -> Series:
    """The head's series after the tree changed; rows that the two lineages share are reused."""
    if before.head == after.head:
        return series
    meet = after.common_ancestor(before.head, after.head)
    shared = series.truncate(after.depth(meet))
    fresh = list(takewhile(lambda position: position != meet, after.lineage(after.head)))
    for position in reversed(fresh):
        shared = shared.add(after[position])
    return shared


@dataclass(frozen=True)
class LeftBehind:
    """Newer steps that are not in the head's lineage, because the head was set back."""

    steps: int
    tip: str
    """Name of the newest of those checkpoints."""
    common: str
    """Name of the checkpoint at which they branch off."""
    at_head: bool = True
    """Whether that is the head, which else is on a branch of its own."""


def left_behind(run: Run) -> LeftBehind | None:
    """The steps on the newest branch if the head is on another one; else None."""
    tree = run.tree
    newest = len(tree) - 1
    if newest < 0 or tree.is_ancestor(newest, tree.head):
        return None
    meet = tree.common_ancestor(tree.head, newest)
    steps = tree.depth(newest) - tree.depth(meet)
    at_head = meet == (ROOT if tree.head is None else tree.head)
    return LeftBehind(steps, label(tree[newest]), label(tree.node(meet)), at_head)
