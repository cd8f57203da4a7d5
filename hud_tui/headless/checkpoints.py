"""``checkpoints`` and ``head``."""

import argparse
import asyncio
from typing import Any

from hud_tui.client.client import HudClient
from hud_tui.client.lookup import LOOKS_S
from hud_tui.errors import HudConflict, HudError, HudUnclear, HudUsage
from hud_tui.headless.consent import changes, confirm, require_consent
from hud_tui.headless.output import emit, plain, tell
from hud_tui.rl.names import find_checkpoint
from hud_tui.rl.tree import Tree, label
from hud_tui.wire import Checkpoint, Model


async def checkpoints(client: HudClient, args: argparse.Namespace) -> int:
    """The tree, oldest first."""
    model = await client.model(args.model)
    tree = Tree.of(await client.checkpoints(model.id))
    rows = [checkpoint_document(tree, position) for position in range(len(tree))]
    emit("checkpoints", {"model": model, "checkpoints": rows})
    return 0


def checkpoint_document(tree: Tree, position: int | None) -> dict[str, Any] | None:
    """A checkpoint as documents have it; None for the base weights.

    The wire's fields tell what its step was trained on; ``own_reward``, ``own_heldout_reward``
    and ``sampled`` (rollouts) what its own weights scored, null and 0 where nobody sampled it.
    """
    if position is None:
        return None
    own = tree.own(position)
    document: dict[str, Any] = plain(tree[position])
    scored = {"own_reward": own.reward, "own_heldout_reward": own.heldout}
    return {**document, **scored, "sampled": own.sampled}


async def head(client: HudClient, args: argparse.Namespace) -> int:
    """The head; with ``--set`` or ``--back``, another one, verified by reading the tree again."""
    if changes(args):
        require_consent(args, client)
    model = await client.model(args.model)
    tree = Tree.of(await client.checkpoints(model.id))
    if not changes(args):
        emit("head", {"model": model.model_name, "head": checkpoint_document(tree, tree.head)})
        return 0
    target = _target(tree, args)
    await confirm(args, _question(model, tree, target))
    if not args.yes:
        await _same_head(client, model, tree)
    served = await _serve(client, model, tree, target)
    _report(model, tree, target, served)
    return 0


def _target(tree: Tree, args: argparse.Namespace) -> Checkpoint:
    if args.checkpoint is not None:
        return find_checkpoint(args.checkpoint, list(tree))
    if args.back < 1:
        raise HudUsage(f"--back {args.back}: expected 1 or more")
    lineage = list(tree.lineage(tree.head))
    if args.back >= len(lineage):
        behind = max(0, len(lineage) - 1)
        hint = "the base weights are not a checkpoint and cannot be set"
        raise HudUsage(f"--back {args.back}: the head has {behind} steps behind it", hint)
    return tree[lineage[args.back]]


def _question(model: Model, tree: Tree, target: Checkpoint) -> str:
    return f"{model.model_name}: serve {label(target)} instead of {label(tree.served)}?"


async def _same_head(client: HudClient, model: Model, tree: Tree) -> None:
    """While somebody thought about the question, a step may have landed.

    Raises:
        HudConflict: The head moved.
    """
    now = Tree.of(await client.checkpoints(model.id))
    if _id(now.served) != _id(tree.served):
        moved = f"the head moved meanwhile from {label(tree.served)} to {label(now.served)}"
        raise _conflict(f"{moved}; nothing was sent", "look again, then decide")


async def _serve(client: HudClient, model: Model, tree: Tree, target: Checkpoint) -> Tree | None:
    """Set the head once, and read the tree that results, whatever the answer was.

    Returns:
        None where the service says that it was set, and the tree cannot be read.

    Raises:
        HudUnclear: No answer says whether it was set, and the tree does not show it.
        HudError: It was not.
    """
    try:
        if _id(tree.served) != target.id:
            await client.set_head(model.id, target.id, _id(tree.served))
    except HudUnclear as error:
        return await _look(client, model, tree, target, error)
    try:
        return Tree.of(await client.checkpoints(model.id))
    except HudError as error:
        tell(f"the head was set, but the tree cannot be read now: {error.message}")
        return None


async def _look(
    client: HudClient, model: Model, tree: Tree, target: Checkpoint, failure: HudUnclear
) -> Tree:
    """The tree once it shows the head that was set without an answer.

    Raises:
        HudUnclear: The failure, where it never does.
    """
    seen = "the tree cannot be read now"
    for wait_s in LOOKS_S:
        await asyncio.sleep(wait_s)
        try:
            after = Tree.of(await client.checkpoints(model.id))
        except HudError:
            break
        if _took(tree, after, target):
            return after
        seen = f"the service says the head is {label(after.served)}"
    again = f"hud-tui --headless head {model.model_name}"
    failure.hint = f"{seen}; look once more before you set it again: {again}"
    raise failure


def _report(model: Model, before: Tree, target: Checkpoint, after: Tree | None) -> None:
    data = {"model": model.model_name, "previous": _id(before.served)}
    if after is None:
        known = checkpoint_document(before, before.find(target.id)) or {}
        emit("head", {**data, "head": {**known, "is_active": True}, "verified": False})
        return
    if not _took(before, after, target):
        now, wanted = label(after.served), label(target)
        hint = f"somebody else moves it: hud-tui --headless head {model.model_name}"
        moved = _conflict(f"the head is {now}, not {wanted}: it moved meanwhile", hint)
        moved.outcome = "done"
        raise moved
    emit("head", {**data, "head": checkpoint_document(after, after.head), "verified": True})


def _took(before: Tree, after: Tree, target: Checkpoint) -> bool:
    """Whether the head is the target, or steps that have been trained from it since."""
    known = {checkpoint.id for checkpoint in before}
    for position in after.lineage(after.head):
        if after[position].id == target.id:
            return True
        if after[position].id in known:
            return False
    return False


def _conflict(message: str, hint: str) -> HudConflict:
    """A conflict that was seen here; no server answered so."""
    error = HudConflict(409, message, hint)
    error.message, error.status = message, None
    return error


def _id(checkpoint: Checkpoint | None) -> str | None:
    return None if checkpoint is None else checkpoint.id
