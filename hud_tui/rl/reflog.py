"""The reflog of a model: moves of its head, the steps between them, and evaluations."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from hud_tui.events import Act, HeadMoved
from hud_tui.rl.head import name, named
from hud_tui.rl.history import who
from hud_tui.rl.metrics import short
from hud_tui.rl.own_numbers import is_of_run
from hud_tui.rl.run import Run
from hud_tui.rl.text import counted, seconds
from hud_tui.rl.work import title_of


@dataclass(frozen=True)
class ReflogLine:
    """One line of the reflog."""

    at: float
    """Unix seconds; 0 if unknown."""
    what: str
    before: str
    """Name of the checkpoint that was the head; empty for an evaluation."""
    after: str
    checkpoint_id: str | None
    """The checkpoint called `after`; None for the base weights."""
    by: str


def reflog(run: Run) -> list[ReflogLine]:
    """What became of the head, and of evaluations, oldest first."""
    lines = [*_moves_and_steps(run), *_evaluations(run)]
    return sorted(lines, key=lambda line: line.at)


def _moves_and_steps(run: Run) -> Iterator[ReflogLine]:
    """Moves, and between them the steps of each run as one line."""
    tree = run.tree
    taken = [(seconds(tree[p].created_at) or 0.0, p, None) for p in range(len(tree))]
    made = [(move.at, len(tree), move) for move in run.history.moves]
    steps: list[int] = []
    for _, position, move in sorted([*taken, *made], key=lambda entry: entry[:2]):
        goes_on = move is None and (not steps or _follows(run, steps[-1], position))
        if steps and not goes_on:
            yield _steps_line(run, steps)
            steps = []
        if move is None:
            steps.append(position)
        else:
            yield _move_line(run, move)
    if steps:
        yield _steps_line(run, steps)


def _follows(run: Run, before: int, position: int) -> bool:
    tree = run.tree
    return tree.parent(position) == before and tree[position].job_id == tree[before].job_id


def _steps_line(run: Run, steps: Sequence[int]) -> ReflogLine:
    tree, last = run.tree, run.tree[steps[-1]]
    before = name(tree.node(tree.parent(steps[0])))
    by = title_of(None, last.job_id) if last.job_id else ""
    stamp = seconds(last.created_at) or 0.0
    what = counted(len(steps), "step")
    return ReflogLine(stamp, what, before, name(last), last.id, by)


def _move_line(run: Run, move: HeadMoved) -> ReflogLine:
    what = "head set" if move.act is Act.SET else f"head set, {move.act}"
    names = named(run, move.previous), named(run, move.checkpoint_id)
    return ReflogLine(move.at, what, *names, move.checkpoint_id, who(move.by))


def _evaluations(run: Run) -> Iterator[ReflogLine]:
    """Those that were asked for; one that a run makes is part of the run."""
    for evaluation in run.evaluations.values():
        if evaluation.result is None or is_of_run(evaluation):
            continue
        what = f"evaluated {short(evaluation.result.mean_reward)}"
        id_, stamp = evaluation.checkpoint_id, evaluation.finished_at or 0.0
        yield ReflogLine(stamp, what, "", named(run, id_), id_, "")
