"""``ship``: which of a few candidates to serve, and rollouts spent until that is clear."""

import argparse
from collections.abc import Sequence
from typing import Any

from hud_tui.cli.connect import paths_of
from hud_tui.cli.evaluate import Evaluating, followed
from hud_tui.cli.models import named_checkpoint, read_tree
from hud_tui.cli.output import aligned, emit, print_notice
from hud_tui.cli.which_model import choose_model
from hud_tui.client.client import HudClient
from hud_tui.client.selection import Entry, Selection, Selector
from hud_tui.errors import HudGate, HudUsage
from hud_tui.rl.checkpoint_tree import Tree
from hud_tui.rl.ship import COLUMNS, FEWEST, MOST, Ranking, Standing, rounds_text, usual_candidates
from hud_tui.rl.text import counted, one_line
from hud_tui.rollouts.control import works_of
from hud_tui.wire import Model


async def ship(client: HudClient, args: argparse.Namespace) -> int:
    """Compare candidates, and with a budget sample them round by round. Raises HudError: the
    service does not answer, or refuses; or a name is unknown."""
    model = await choose_model(client, args)
    state = paths_of(args).state
    selector = Selector(works_of(client, state), state)
    entries = await _entries(client, selector, model, args)
    reference = await _reference(client, model, entries, args.reference)
    selection = await selector.newest(entries)
    if args.budget is not None:
        asked = await Evaluating(client, args).asked(model)
        selection = await selector.begin(entries, reference, asked, args.budget)
        rounds, tasks = rounds_text(selection.rounds), counted(selection.num_tasks, "task")
        print_notice(f"{counted(selection.planned, 'rollout')} on {tasks}: {rounds}")
        await _spend(client, selector, selection)
    elif args.resume:
        if selection is None:
            raise HudUsage("no selection among these candidates was begun", "--budget begins one")
        await _spend(client, selector, selection)
    ranking = await selector.ranking(entries, reference, selection)
    document = _document(model, entries, ranking, selection)
    if args.headless:
        emit("ship", document)
    else:
        print("\n".join(one_line(line, 300) for line in [*_lines(ranking), _more(selection)]))
    failed = args.fail_if_undecided and not ranking.is_decided
    return HudGate.exit_code if failed else 0


async def _entries(
    client: HudClient, selector: Selector, model: Model, args: argparse.Namespace
) -> list[Entry]:
    """The candidates. Raises HudUsage: too few, too many, or an unknown one."""
    tree = await read_tree(client, model)
    if args.candidates is not None:
        entries = [await _named(client, model, tree, ref) for ref in args.candidates]
    elif args.budget is not None:
        entries = [Entry.of(model, tree.node(position)) for position in usual_candidates(tree)]
    else:
        entries = await selector.usual(model, tree, trained_since=args.resume)
    distinct = list({entry.key: entry for entry in entries}.values())
    if not FEWEST <= len(distinct) <= MOST:
        what = counted(len(distinct), "candidate")
        raise HudUsage(what, f"name {FEWEST} to {MOST} checkpoints with --candidates")
    return distinct


async def _named(client: HudClient, model: Model, tree: Tree, ref: str) -> Entry:
    """A candidate by its name: of the model, or ``MODEL:NAME`` of another one."""
    other, colon, name = ref.rpartition(":")
    named = name if colon else ref
    if colon:
        model = await client.model(other)
        tree = await read_tree(client, model)
    return Entry.of(model, named_checkpoint(named, tree), bool(colon))


async def _reference(
    client: HudClient, model: Model, entries: Sequence[Entry], ref: str | None
) -> int:
    """Position of the candidate that the others are shown beside: the named one, else the base,
    else the first. Raises HudUsage: it is no candidate."""
    keys = [entry.key for entry in entries]
    if ref is None:
        bases = [number for number, entry in enumerate(entries) if entry.checkpoint_id is None]
        return bases[0] if bases else 0
    named = await _named(client, model, await read_tree(client, model), ref)
    if named.key not in keys:
        raise HudUsage(f"{named.name} is no candidate", "name it with --candidates, too")
    return keys.index(named.key)


async def _spend(client: HudClient, selector: Selector, selection: Selection) -> None:
    names = [f"{e.model}:{e.name.rpartition(':')[2]}" for e in selection.entries]
    words = ["ship", selection.entries[0].model, "--candidates", *names, "--resume"]
    await followed(selector.spend(selection), client.settings.command(*words))


def _candidate(entry: Entry, standing: Standing) -> dict[str, Any]:
    scores, over = standing.scores, standing.over
    sampled: dict[str, Any] = {"tasks": 0, "rollouts": 0, "reward": None, "pass_at": {}}
    if scores is not None:
        sampled["tasks"], sampled["rollouts"] = len(scores.tasks), scores.rollouts
        sampled["reward"], sampled["pass_at"] = scores.mean, scores.pass_at
    return {
        "model": entry.model,
        "checkpoint_id": entry.checkpoint_id,
        "name": entry.name,
        **sampled,
        "over_reference": None if over is None else over.reward,
        "improved": [] if over is None else [change.slug for change in over.better],
        "regressed": [] if over is None else [change.slug for change in over.worse],
        "is_worse": standing.verdict == "worse",
    }


def _document(
    model: Model, entries: Sequence[Entry], ranking: Ranking, selection: Selection | None
) -> dict[str, Any]:
    names = [entry.name for entry in entries]
    return {
        "model": model.model_name,
        "reference": names[ranking.reference],
        "candidates": [
            _candidate(entries[standing.position], standing) for standing in ranking.standings
        ],
        "may_be_best": [names[position] for position in ranking.contenders],
        "decided": ranking.is_decided,
        "more_rollouts": ranking.more_rollouts,
        "summary": ranking.sentences(),
        "budget": None if selection is None else selection.budget,
        "selection": None if selection is None else selection.id,
        "complete": None if selection is None else selection.is_complete,
    }


def _lines(ranking: Ranking) -> list[str]:
    """A table of the candidates, best first, and the verdict."""
    titles = tuple(column.title for column in COLUMNS)
    rows = [tuple(column.text(each) for column in COLUMNS) for each in ranking.standings]
    right = [number for number, column in enumerate(COLUMNS) if column.right]
    reference = f"reference: {ranking.candidates[ranking.reference].name}"
    return [*aligned([titles, *rows], right), "", reference, *ranking.sentences(), ""]


def _more(selection: Selection | None) -> str:
    """What the rollouts were sampled for, and the flag that samples more."""
    if selection is None:
        return "By the evaluations there are; --budget N samples fresh rollouts of all."
    if selection.is_complete:
        return selection.spent_text
    return f"Cut short of {selection.spent_text} --resume goes on."
