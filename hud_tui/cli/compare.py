"""``compare``: what changed between two checkpoints or runs, by the rollouts that are stored."""

import argparse
from collections.abc import Sequence
from typing import Any

from hud_tui.cli.connect import paths_of
from hud_tui.cli.evaluate import comparison_lines, difference_document
from hud_tui.cli.models import named_position, read_tree
from hud_tui.cli.output import aligned, emit, plain
from hud_tui.client.changed import ChangeReader, sides_of_runs
from hud_tui.client.client import HudClient
from hud_tui.errors import HudUsage
from hud_tui.rl.changed import (
    Comparison,
    HeldoutRollouts,
    heldout_sentences,
    made_sentences,
    relation,
    training_sentences,
)
from hud_tui.rl.checkpoint_tree import ROOT
from hud_tui.rl.metrics import metric, reading, short
from hud_tui.rl.runs import find_run
from hud_tui.rl.sides import Side
from hud_tui.rl.text import counted, one_line
from hud_tui.rl.work import Work
from hud_tui.rollouts.control import works_of
from hud_tui.wire import Checkpoint

LISTED = 12
"""Most metrics in the text; a document has all."""


async def compare(client: HudClient, args: argparse.Namespace) -> int:
    """Print what changed, as text or with ``--headless`` as a document. Raises HudError: the
    service does not answer, or a name is unknown."""
    works = works_of(client, paths_of(args).state)
    runs: Sequence[Work] | None = None
    if args.model is not None:
        left, right = await _checkpoints(client, args)
    else:
        if len(args.ref) != 2:
            raise HudUsage("name two runs", "with -m MODEL: one or two of its checkpoints")
        rows = await works.runs.read()
        first, second = (find_run(name, rows) for name in args.ref)
        left, right = await sides_of_runs(client, works.runs, (first, second))
        runs = [first, second]
    if left.tree is right.tree and left.position == right.position:
        raise HudUsage(f"both are {left.name}", "name two that differ")
    both = await ChangeReader(client, works.evaluations).compare(left, right, runs)
    document = _document(both)
    if args.headless:
        emit("compare", document)
    else:
        print("\n".join(one_line(line, 300) for line in _lines(both, plain(document))))
    return 0


async def _checkpoints(client: HudClient, args: argparse.Namespace) -> tuple[Side, Side]:
    """The two that are named; of one, its parent and itself. Raises HudUsage: more are named."""
    if len(args.ref) > 2:
        raise HudUsage(f"{len(args.ref)} checkpoints", "name one or two")
    model = await client.model(args.model)
    tree = await read_tree(client, model)
    positions = [named_position(name, tree) for name in args.ref]
    if len(positions) == 1:
        if positions[0] == ROOT:
            raise HudUsage("nothing is before the base weights", "name two checkpoints")
        positions.insert(0, tree.parent(positions[0]))
    before, after = (Side(tree, position, model.id) for position in positions)
    return before, after


def _document(both: Comparison) -> dict[str, Any]:
    names, heldout = (both.left.name, both.right.name), both.heldout
    of_heldout = of_training = None
    if heldout is not None:
        of_heldout = {
            "before": _heldout(both.left, heldout.before),
            "after": _heldout(both.right, heldout.after),
            **difference_document(heldout.difference, *names),
        }
    if both.tasks is not None:
        sides = zip(("before", "after"), (both.left, both.right), both.sampled, strict=True)
        of_training = {
            key: {"checkpoints": [_id(side, position) for position in sampled.positions]}
            for key, side, sampled in sides
        } | difference_document(both.tasks, *names)
    settings = both.settings
    return {
        "before": _side(both.left),
        "after": _side(both.right),
        "relation": relation(both),
        "heldout": of_heldout,
        "training": of_training,
        "between": [
            {"title": batches.title, "steps": [_step(step) for step in batches.steps]}
            for batches in both.batches
        ],
        "metrics": [
            {"key": pair.key, "before": pair.left, "after": pair.right, "compares": pair.compares}
            for pair in (*both.metrics, *both.steps)
        ],
        "parameters": None
        if settings is None
        else {
            key: list(values)
            for key, *values in zip(settings.keys, *(row for _, row in settings.rows), strict=True)
        },
        "one_run": both.is_of_one_run,
        "summary": [*made_sentences(both), *heldout_sentences(both), *training_sentences(both)],
    }


def _side(side: Side) -> dict[str, Any]:
    return {"checkpoint_id": _id(side, side.position), "name": side.name, "model_id": side.model_id}


def _id(side: Side, position: int) -> str | None:
    node = side.tree.node(position)
    return None if node is None else node.id


def _heldout(side: Side, rollouts: HeldoutRollouts) -> dict[str, Any]:
    evaluation = rollouts.evaluation
    return {
        "checkpoint_id": _id(side, rollouts.position),
        "evaluation": None if evaluation is None else evaluation.id,
    }


def _step(step: Checkpoint) -> dict[str, Any]:
    groups = [group.model_dump(mode="json") for group in step.groups]
    return {
        "checkpoint_id": step.id,
        "name": step.name,
        "metrics": dict(step.metrics),
        "groups": groups,
    }


def _lines(both: Comparison, document: dict[str, Any]) -> list[str]:
    """Details first, the conclusions last, where a terminal's output ends."""
    lines = []
    rows = [
        (metric(pair.key).title, reading(pair.key, pair.left), reading(pair.key, pair.right))
        for pair in both.metrics[:LISTED]
    ]
    if rows:
        lines += [*aligned([("sampled from each", "A", "B"), *rows]), ""]
    for batches in both.batches:
        lines.append(f"{counted(len(batches.steps), 'step')} {batches.title}")
        steps = [
            (step.name or step.id[:8], counted(len(step.groups), "task"), short(step.mean_reward))
            for step in batches.steps[-LISTED:]
        ]
        lines += [*aligned([("step", "batch", "reward"), *steps]), ""]
    for title, named in (("heldout", "held-out"), ("training", "training")):
        if document[title] is not None:
            lines += [f"{named} tasks", *comparison_lines(document[title] | {"summary": []})[:-1]]
    lines += [f"A {both.left.name}, B {both.right.name}. {' '.join(made_sentences(both))}"]
    lines += [f"held-out: {said}" for said in heldout_sentences(both)]
    return [*lines, *(f"training: {said}" for said in training_sentences(both))]
