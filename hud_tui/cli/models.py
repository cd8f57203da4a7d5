"""``models``, ``fork``, ``checkpoints``, ``head``, ``protect`` and ``status``."""

from __future__ import annotations

import argparse
import asyncio
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from hud_tui.cli.connect import client_of, command_of, connector_of, paths_of, run_command
from hud_tui.cli.output import aligned, changes, confirm, emit, print_notice, require_consent, show
from hud_tui.cli.streams import changed
from hud_tui.client.client import HudClient
from hud_tui.client.guard import Protection
from hud_tui.errors import (
    HudConflict,
    HudError,
    HudProtected,
    HudRefused,
    HudUnclear,
    HudUsage,
    refuse_beyond,
)
from hud_tui.patience import outcome_looks
from hud_tui.rl.checkpoint_tree import ROOT, Tree, label, name_problem, own_models
from hud_tui.rl.names import find_checkpoint, is_shared
from hud_tui.rl.own_numbers import of_base
from hud_tui.rl.text import counted, moment, one_line
from hud_tui.wire import BASE, Checkpoint, Model

if TYPE_CHECKING:
    from hud_tui.client.starting import StartingPoint


async def checkpoints(client: HudClient, args: argparse.Namespace) -> int:
    """The tree, oldest first."""
    model = await client.model(args.model)
    tree = await read_tree(client, model)
    rows = [checkpoint_document(tree, position) for position in range(len(tree))]
    emit("checkpoints", {"model": model, "checkpoints": rows, "best": best_document(tree)})
    return 0


async def read_tree(client: HudClient, model: Model) -> Tree:
    """A model's tree, with the evaluations of the weights that it started from."""
    if model.training_defaults is None:  # HUD makes no evaluations
        return Tree.of(await client.checkpoints(model.id))
    nodes, evaluations = await asyncio.gather(
        client.checkpoints(model.id), client.evaluations(model.id)
    )
    return Tree.of(nodes, of_base(evaluations or ()))


def best_document(tree: Tree) -> dict[str, Any] | None:
    """The most likely best of the checkpoints and the base; None while no reward is known.

    ``reward`` is shrunk to what it is worth; ``stands_out`` says whether it has a star, and
    ``confirmed`` whether fresh rollouts have confirmed it.
    """
    choice = tree.choice
    if choice is None:
        return None
    node = tree.node(choice.position)
    return {
        "checkpoint_id": None if node is None else node.id,
        "name": label(node),
        "metric": choice.by,
        "reward": choice.value,
        "compared": choice.compared,
        "rollouts": choice.rollouts,
        "fresh_rollouts": choice.fresh,
        "stands_out": choice.star is not None,
        "confirmed": choice.is_confirmed,
        "text": "; ".join(tree.choice_sentences),
    }


def checkpoint_document(tree: Tree, position: int | None) -> dict[str, Any] | None:
    """A checkpoint in documents; None for the base weights.

    The wire's fields describe its step. ``own_reward`` of ``sampled`` rollouts, and
    ``own_heldout_reward`` of ``own_heldout_tasks`` and ``own_heldout_rollouts``, describe its own
    weights: null and 0 if nothing was sampled from them, or if the numbers are unknown.
    """
    if position is None:
        return None
    own = tree.own(position)
    document = tree[position].model_dump()
    scored = {
        "own_reward": own.reward,
        "sampled": own.sampled,
        "own_heldout_reward": own.heldout,
        "own_heldout_tasks": own.heldout_tasks,
        "own_heldout_rollouts": own.heldout_rollouts,
        "is_best": position == tree.best,
    }
    return {**document, **scored}


async def head(client: HudClient, args: argparse.Namespace) -> int:
    """Show the head, or its history; with ``--set`` or ``--back`` move it, verified by reading the
    tree again."""
    if changes(args):
        require_consent(args, client)
    model = await client.model(args.model)
    if args.history:
        return await _history(client, model, args)
    if args.approve or args.withdraw:
        from hud_tui.cli.access import decide

        return await decide(client, args, model)
    tree = await read_tree(client, model)
    if args.propose is not None:
        return await _propose(client, model, args, tree)
    if args.dry_run and (args.checkpoint is not None or args.back is not None):
        from hud_tui.cli.access import refuse_move

        target = _target(tree, args)
        await refuse_move(client, model, target.name or target.id)
        would = f"would serve {label(target)} instead of {label(tree.served)}"
        heads = {"head": _id(tree.served), "would_be": _id(target)}
        show(args, "head", {"dry_run": True, "model": model.model_name, **heads}, would)
        return 0
    if not changes(args):
        head: dict[str, Any] = {"model": model.model_name}
        head["head"] = checkpoint_document(tree, tree.head)
        if model.protected_by is not None:
            proposals = (await client.access.proposals(model.id)).open
            head |= {"protected_by": model.protected_by, "proposals": proposals}
        emit("head", head)
        return 0
    target = _target(tree, args)
    served = f"{label(target)} instead of {label(tree.served)}"
    await confirm(args, f"{model.model_name}: serve {served}?")
    if not args.yes:
        now = Tree.of(await client.checkpoints(model.id))
        if _id(now.served) != _id(tree.served):
            moved = f"the head moved meanwhile from {label(tree.served)} to {label(now.served)}"
            raise _conflict(f"{moved}; nothing was sent", "check the head, then try again")
    replaced, after = await _serve(client, model, tree, target)
    show(args, "head", *_outcome(client, model, tree, target, after, replaced))
    return 0


async def _propose(client: HudClient, model: Model, args: argparse.Namespace, tree: Tree) -> int:
    from hud_tui.cli.access import propose

    target = _named_target(args.propose, tree)
    served = f"{label(target)} instead of {label(tree.served)}"
    if args.dry_run:
        heads = {"head": _id(tree.served), "proposed": target.id}
        checked = await client.access.check_proposal(model.id, target.id)
        data = {"dry_run": True, "model": model.model_name, **heads, "proposal": checked.proposal}
        is_new = checked.proposal is None
        would = f"would propose to serve {served}" if is_new else f"{served} is proposed already"
        show(args, "proposal", data, would)
        return 0
    await confirm(args, f"{model.model_name}: propose to serve {served}?")
    return await propose(client, args, model, target.id)


async def _history(client: HudClient, model: Model, args: argparse.Namespace) -> int:
    """Print the moves of the head, the steps between them, and evaluations."""
    from hud_tui.client.history import read_moves
    from hud_tui.events import EvaluationsRead, TreeRead
    from hud_tui.rl.reflog import reflog
    from hud_tui.rl.run import Run

    tree, evaluations, moves = await asyncio.gather(
        client.checkpoints(model.id),
        client.evaluations(model.id),
        read_moves(client, model.id, paths_of(args).state),
    )
    run = Run(model=model).fold(TreeRead(checkpoints=tuple(tree)))
    run = run.fold(EvaluationsRead(evaluations=tuple(evaluations or ()))).fold(moves)
    lines, history = reflog(run), run.history
    cells = [(moment(line.at), line.what, line.before, line.after, line.by) for line in lines]
    table = [] if not cells else aligned([("when", "what", "from", "checkpoint", "by"), *cells])
    data = {"model": model.model_name, "complete": history.since == 0, "since": history.since}
    summary = f"moves of the head: {history.completeness}"
    show(args, "head_history", {**data, "lines": lines}, *table, summary)
    return 0


def _target(tree: Tree, args: argparse.Namespace) -> Checkpoint:
    if args.checkpoint is not None:
        return _named_target(args.checkpoint, tree)
    refuse_beyond("--back", args.back, {"ge": 1})
    lineage = list(tree.lineage(tree.head))
    if args.back >= len(lineage):
        behind = max(0, len(lineage) - 1)
        hint = "the base weights cannot be the head"
        only = f"only {counted(behind, 'checkpoint')} before the head"
        raise HudUsage(f"--back {args.back}: {only}", hint)
    return tree[lineage[args.back]]


def _named_target(name: str, tree: Tree) -> Checkpoint:
    checkpoint = named_checkpoint(name, tree)
    if checkpoint is None:
        raise HudUsage("the base weights cannot be the head")
    return checkpoint


def named_checkpoint(name: str, tree: Tree) -> Checkpoint | None:
    """A checkpoint by id or name, or ``head``, ``best`` or ``base`` (None, the weights that the
    model started from). Raises HudUsage: there is none."""
    match name:
        case "head":
            return tree.served
        case "base":
            return None
        case "best" if tree.choice is not None:
            print_notice("; ".join(tree.choice_sentences))
            return tree.node(tree.choice.position)
        case "best":
            raise HudUsage("no checkpoint is the best yet", "none has a reward of its own")
    return find_checkpoint(name, list(tree))


def named_position(name: str, tree: Tree) -> int:
    """The position of a `named_checkpoint`; `ROOT` for the base weights."""
    checkpoint = named_checkpoint(name, tree)
    position = ROOT if checkpoint is None else tree.find(checkpoint.id)
    assert position is not None
    return position


async def _serve(
    client: HudClient, model: Model, tree: Tree, target: Checkpoint
) -> tuple[str | None, Tree | None]:
    """Set the head once, then read the tree, whatever the answer.

    Returns:
        Id of the head that was replaced, and the tree; None if the head was set but the tree cannot
        be read.

    Raises:
        HudUnclear: The outcome is unknown, and the tree does not show the move.
        HudError: The head was not set.
    """
    replaced = _id(tree.served)
    try:
        if replaced != target.id:
            moved = await client.set_head(model.id, target.id, replaced, was=replaced)
            replaced = moved.previous
    except HudUnclear as error:
        return replaced, await _await_move(client, model, tree, target, error)
    try:
        return replaced, Tree.of(await client.checkpoints(model.id))
    except HudError as error:
        print_notice(f"the head was set, but the tree could not be read: {error.message}")
        return replaced, None


async def _await_move(
    client: HudClient, model: Model, tree: Tree, target: Checkpoint, failure: HudUnclear
) -> Tree:
    """The tree, once it shows the move. Raises HudUnclear: `failure`, if it does not."""
    seen = "the tree could not be read"
    async for _ in outcome_looks():
        try:
            after = Tree.of(await client.checkpoints(model.id))
        except HudError:
            break
        if _took(tree, after, target):
            return after
        seen = f"the service says the head is {label(after.served)}"
    again = client.settings.command("--headless", "head", model.model_name)
    failure.hint = f"{seen}; check again before you retry: {again}"
    raise failure


def _outcome(
    client: HudClient,
    model: Model,
    before: Tree,
    target: Checkpoint,
    after: Tree | None,
    replaced: str | None,
) -> tuple[dict[str, Any], str]:
    """The document and the text. Raises HudConflict: the head is another one."""
    data = {"model": model.model_name, "previous": replaced}
    position = (after or before).find(replaced)
    left = label(None if position is None else (after or before)[position])
    served = label(target)
    if after is not None and _id(after.served) != target.id:
        served = f"{label(after.served)}, trained on from {served},"
    moved = f"{model.model_name} serves {served} instead of {left}"
    if after is None:
        shown = checkpoint_document(before, before.find(target.id)) or {}
        document = {**data, "head": {**shown, "is_active": True}, "verified": False}
        return document, f"{moved}; not verified"
    if not _took(before, after, target):
        now, requested = label(after.served), label(target)
        command = client.settings.command("--headless", "head", model.model_name)
        hint = f"it was moved meanwhile: {command}"
        conflict = _conflict(f"the head is {now}, not {requested}: it moved meanwhile", hint)
        conflict.outcome = "done"
        raise conflict
    if _id(before.served) == target.id:
        moved = f"{model.model_name} serves {label(target)} already"
    document = {**data, "head": checkpoint_document(after, after.head), "verified": True}
    return document, f"{moved}; verified"


def _took(before: Tree, after: Tree, target: Checkpoint) -> bool:
    """Whether the head is the target, or descends from it by steps taken since."""
    position = after.find(target.id)
    if position is None:
        return False
    return after.head == position or after.grew_from(position, len(before))


def _conflict(message: str, hint: str) -> HudConflict:
    """A conflict detected by this client."""
    error = HudConflict(409, message, hint)
    error.status = None
    return error


def _id(checkpoint: Checkpoint | None) -> str | None:
    return None if checkpoint is None else checkpoint.id


async def models(client: HudClient, args: argparse.Namespace) -> int:
    """The catalog, all pages."""
    emit("models", {"models": await client.models()})
    return 0


async def fork(client: HudClient, args: argparse.Namespace) -> int:
    """Fork a model and print the new one."""
    if changes(args):
        require_consent(args, client)
    if args.if_not_exists and (model := await _existing(client, args.name)) is not None:
        return _show_existing(args, model)
    if problem := name_problem(args.name, ()):  # the service refuses names that are taken
        raise HudUsage(f"the name {one_line(args.name, 40)!r}: {problem}")
    source = await client.model(args.source)
    start = await _start(client, source, args.checkpoint)
    where = "" if is_shared(source) else f" at {start.name}"
    if args.dry_run:
        would = {"source": source.model_name, "start": start.ref, "name": args.name}
        what = f"would fork {source.model_name}{where} as {args.name}"
        show(args, "fork", {"dry_run": True, **would}, what)
        return 0
    await confirm(args, f"fork {source.model_name}{where} as {args.name}?")
    try:
        model = await client.fork(source.id, args.name, start.ref)
    except HudRefused:  # another program may have forked it meanwhile
        other = await _existing(client, args.name) if args.if_not_exists else None
        if other is None:
            raise
        return _show_existing(args, other)
    train = client.settings.command("run", "TASKS", "-m", model.model_name)
    made = f"forked {source.model_name}{where} as {model.model_name}; train it: {train}"
    show(args, "model", {"model": model}, made)
    return 0


def _show_existing(args: argparse.Namespace, model: Model) -> int:
    show(args, "model", {"model": model}, f"there is a model named {model.model_name} already")
    return 0


async def _existing(client: HudClient, name: str) -> Model | None:
    """The user's model of this name."""
    named = (model for model in own_models(await client.models()))
    return next((model for model in named if name in (model.name, model.model_name)), None)


async def _start(client: HudClient, source: Model, ref: str | None) -> StartingPoint:
    """Where a fork starts: at the head, unless `ref` is given. Raises HudUsage: no such checkpoint;
    or the service forks at the head only."""
    from hud_tui.client.starting import StartingPoint, read_start

    if ref is None:
        return await read_start(client, source)
    if source.training_defaults is None:  # it is not the embedded service
        raise HudUsage("HUD forks a model at its head", "set the head first, then fork")
    if ref == BASE:
        return StartingPoint.of_head(None, source)
    checkpoint = find_checkpoint(ref, await client.checkpoints(source.id))
    return StartingPoint.of_head(checkpoint, source)


# ``protect``: models whose changes need their name typed.


def protect(args: argparse.Namespace) -> int:
    """Protect a model, unprotect it, or list protected models.

    Raises:
        HudError: The service does not answer, or has no such model.
        HudProtected: Unprotecting without ``--confirm NAME``.
    """
    if args.for_all:
        from hud_tui.cli.access import protect_for_all

        return run_command(protect_for_all, args, connector_of(args))
    protection = Protection(lambda: paths_of(args).state)
    if args.model is not None:
        asyncio.run(_change(args, protection))
    elif args.off:
        raise HudUsage("no model given", f"{command_of(args, 'protect')} lists protected models")
    models = [{"id": id_, "name": name} for id_, name in protection.models.items()]
    lines = [f"{one_line(model['name'], 100)}  {model['id']}" for model in models]
    none = "no model is protected on this machine"
    show(args, "protect", {"protected": models}, *(lines or [none]))
    return 0


async def _change(args: argparse.Namespace, protection: Protection) -> None:
    async with aclosing(await client_of(args)) as client:
        id_, name = await _named(client, args, protection)
    if args.off and id_ in protection.models and args.confirm not in (protection.models[id_], id_):
        raise HudProtected(one_line(protection.models[id_], 100), "remove its protection")
    protection.protect(id_, name, not args.off)
    changed(f"{'unprotect' if args.off else 'protect'} {one_line(name, 100)}")


async def _named(
    client: HudClient, args: argparse.Namespace, protection: Protection
) -> tuple[str, str]:
    """Id and name of a model; a deleted one is looked up among the protected ones."""
    if args.off and args.model in protection.models:
        return args.model, protection.models[args.model]
    model = await client.model(args.model)
    return model.id, model.model_name
