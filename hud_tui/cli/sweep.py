"""Sweeps: several runs at once out of one ``run``, and ``sweep``: list, look at, cancel, resume."""

import argparse
import asyncio
import sys
from collections.abc import Sequence
from time import time
from typing import Any
from uuid import uuid4

from hud_tui.cli.connect import connector_of, paths_of, run_connected
from hud_tui.cli.output import confirm, emit, require_consent, tell
from hud_tui.cli.parser import parameters, swept
from hud_tui.client.client import HudClient
from hud_tui.client.preflight import load_source
from hud_tui.client.runs import RunList
from hud_tui.client.submit import SweepDriver, SweepFiles, cancel_sweep, refreshed, revived
from hud_tui.errors import HudUsage
from hud_tui.rl.checkpoint_tree import Tree
from hud_tui.rl.names import is_shared
from hud_tui.rl.sweep import (
    AT_ONCE,
    Member,
    Sweep,
    SweepSize,
    members_of,
    paced_like,
    size_of,
    sweep_name,
)
from hud_tui.rl.tasks.task import Task, digest
from hud_tui.rl.text import age, one_line
from hud_tui.wire import Model

KIND, MEMBER = "sweep", "sweep_run"
MOST_AT_ONCE = 64


async def begin(
    client: HudClient,
    args: argparse.Namespace,
    model: Model,
    tasks: Sequence[Task],
    name: str,
) -> int:
    """Say what a sweep costs, then fork and submit; returns the exit code.

    Args:
        client: Of the service.
        args: The command line, with several values of some parameters.
        model: What the forks are made from.
        tasks: That were checked.
        name: What they are called.
    """
    files = SweepFiles(paths_of(args).state)
    sweep = await _planned(client, args, model, tasks, files)
    like = None
    if model.training_defaults is not None:  # HUD has no list to ask at once
        like = paced_like(await RunList(client).read(), model, name)
    size = size_of(sweep, model, tasks, like)
    _say(sweep, size)
    said = _document(sweep) | {"size": vars(size), "sent": not args.dry_run}
    if args.dry_run:
        emit(KIND, said)
        return 0
    many = len(sweep.members)
    await confirm(args, f"fork {model.model_name} {many} times and train on {name}?")
    files.keep(sweep, cancelled=False)
    emit(KIND, said)
    return await _drive(client, sweep, tasks, files, args.follow, headless=True)


async def _planned(
    client: HudClient,
    args: argparse.Namespace,
    model: Model,
    tasks: Sequence[Task],
    files: SweepFiles,
) -> Sweep:
    """The sweep that is meant, none of it sent. Raises HudUsage: too large, or a value twice."""
    values = swept(args)
    taken = [name for m in await client.models() for name in (m.name, m.model_name) if name]
    name = sweep_name(model.model_name, [*taken, *(known.name for known in files.all())])
    given = {key: value for key, value in parameters(args).items() if key not in values}
    start = None
    if model.training_defaults is not None:
        given["sweep"] = name
        if not is_shared(model):
            head = Tree.of(await client.checkpoints(model.id)).served
            start = None if head is None else head.id
    return Sweep(
        id=uuid4().hex,
        name=name,
        service=client.settings.api_url,
        model_id=model.id,
        model=model.model_name,
        checkpoint_id=start,
        source=args.source,
        digest=digest([task.row() for task in tasks]),
        parameters=given,
        at_once=_at_once(args) or AT_ONCE,
        members=members_of(name, values),
        created_at=time(),
    )


def _at_once(args: argparse.Namespace) -> int | None:
    if args.at_once is not None and not 1 <= args.at_once <= MOST_AT_ONCE:
        raise HudUsage(f"--at-once {args.at_once}: expected 1 to {MOST_AT_ONCE}")
    at_once: int | None = args.at_once
    return at_once


def _say(sweep: Sweep, size: SweepSize) -> None:
    """What it is and costs, on stderr."""
    tell(f"sweep {sweep.name}: {size.said}")
    for member in sweep.members[:20]:
        print(f"  {one_line(member.name, 80)}  {member.said}", file=sys.stderr)
    if len(sweep.members) > 20:
        print(f"  and {len(sweep.members) - 20} more", file=sys.stderr, flush=True)


async def _drive(
    client: HudClient,
    sweep: Sweep,
    tasks: Sequence[Task],
    files: SweepFiles,
    follow: bool,
    headless: bool,
) -> int:
    def told(now: Sweep, member: Member) -> None:
        if headless:
            emit(MEMBER, {"sweep": now.name, **_member(member)})
        else:
            print(_line(member), flush=True)

    driver = SweepDriver(client, sweep, tasks, files, told)
    try:
        ended = await driver.run(follow)
    except asyncio.CancelledError:
        tell(f"{sweep.name}: its runs continue; start the others with {_again(client, sweep)}")
        raise
    if headless:
        emit(KIND, _document(ended))
    refused = any(member.status == "refused" for member in ended.members)
    bad = ended.status in ("failed", "cancelled") if follow else refused
    return 1 if bad else 0


def _again(client: HudClient, sweep: Sweep) -> str:
    local = " --local" if client.settings.local else ""
    return f"hud-tui{local} sweep {sweep.name} --resume -y"


# ``sweep``.


def sweep(args: argparse.Namespace) -> int:
    """List the sweeps; show, cancel or resume one; returns the exit code.

    Raises:
        HudUsage: There is no such sweep, or its tasks are others by now.
        HudError: The service cannot be asked, or refuses.
    """
    files = SweepFiles(paths_of(args).state)
    if args.sweep is None:
        if args.cancel or args.resume:
            raise HudUsage("say which sweep", "see hud-tui sweep")
        return _list(args, files.all())
    found = files.find(args.sweep)

    async def work(client: HudClient, args: argparse.Namespace) -> int:
        return await _work(client, args, found, files)

    return asyncio.run(run_connected(work, args, connector_of(args)))


async def _work(
    client: HudClient, args: argparse.Namespace, found: Sweep, files: SweepFiles
) -> int:
    if found.service != client.settings.api_url and not client.settings.local:
        where = one_line(found.service, 100)
        raise HudUsage(f"{found.name} was started on {where}", "connect to that service")
    if args.cancel or args.resume:
        require_consent(args, client)
        what = "cancel" if args.cancel else "resume"
        await confirm(args, f"{what} {found.name}, {len(found.members)} runs?")
    if args.resume:
        return await _resume(client, args, found, files)
    found = await refreshed(client, found)
    if args.cancel:
        found = await cancel_sweep(client, found, files)
    _show(args, found)
    return 0


async def _resume(
    client: HudClient, args: argparse.Namespace, found: Sweep, files: SweepFiles
) -> int:
    tasks, _ = await load_source(client, found.source)
    if digest([task.row() for task in tasks]) != found.digest:
        what = f"{one_line(found.source, 200)} has other tasks than when {found.name} was started"
        raise HudUsage(what, "put them back, or start another sweep")
    going = revived(await refreshed(client, found))
    at_once = _at_once(args)
    if at_once is not None:
        going = going.model_copy(update={"at_once": at_once})
    kept = files.keep(going, cancelled=False)
    if all(member.ended for member in kept.members):
        tell(f"nothing to resume: every run of {kept.name} has ended")
        _show(args, kept)
        return 0
    return await _drive(client, going, tasks, files, args.follow, args.headless)


def _list(args: argparse.Namespace, known: Sequence[Sweep]) -> int:
    if args.headless:
        emit("sweeps", {"sweeps": [_document(one) for one in known]})
        return 0
    for one in known:
        ended = f"{sum(member.ended for member in one.members)}/{len(one.members)} ended"
        when = age(one.created_at, time())
        print(one_line(f"{one.name}  {one.status}  {ended}  {one.model}  {when}", 200))
    if not known:
        print("no sweeps on this machine; start one: hud-tui run … --lr 1e-4,3e-4")
    return 0


def _show(args: argparse.Namespace, found: Sweep) -> None:
    if args.headless:
        emit(KIND, _document(found))
        return
    print(one_line(f"{found.name}  {found.status}  {found.model}  {found.source}", 300))
    for member in found.members:
        print(_line(member))


def _line(member: Member) -> str:
    why = f"  {member.error}" if member.error else ""
    return one_line(f"  {member.status:<11} {member.name}  {member.said}{why}", 400)


def _member(member: Member) -> dict[str, Any]:
    return member.model_dump(mode="json")


def _document(one: Sweep) -> dict[str, Any]:
    return {**one.model_dump(mode="json"), "status": one.status}
