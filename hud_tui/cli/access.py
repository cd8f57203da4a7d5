"""``access``: the keys of a service that several people use; and what of it other commands show:
the service's log, protection for all, proposals for heads."""

from __future__ import annotations

import argparse
import re
from contextlib import aclosing
from time import time

from pydantic import ValidationError

from hud_tui.audit_log import short_id
from hud_tui.change import Change
from hud_tui.cli.connect import command_of, progress, run_command
from hud_tui.cli.connect import connector_of as connector
from hud_tui.cli.output import aligned, changes, confirm, emit, require_consent, show
from hud_tui.client.client import HudClient
from hud_tui.errors import HudUnauthorized, HudUsage, refuse_beyond
from hud_tui.rl.text import age, counted, moment, one_line, size, spaced
from hud_tui.settings import read_size
from hud_tui.wire import Identity, Model
from hud_tui.wire_access import AccessKey, LogLine, NewKey, Proposal, Propose, Role, why_not

_TIME = re.compile(r"(\d+(?:\.\d+)?)\s*([mhdw])", re.IGNORECASE)
_UNIT_S = {"m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}


def access(args: argparse.Namespace) -> int:
    """List the keys, make or revoke one; returns the exit code."""
    return run_command(_access, args, connector(args))


async def _access(client: HudClient, args: argparse.Namespace) -> int:
    if args.action is None:
        return await _list(client, args)
    if args.name is None:
        example = command_of(args, "access", args.action, "ana")
        raise HudUsage(f"access {args.action}: no name given", f"e.g. {example}")
    if changes(args):
        require_consent(args, client)
    return await (_add if args.action == "add" else _revoke)(client, args)


async def _list(client: HudClient, args: argparse.Namespace) -> int:
    keys, now = await client.access.keys(), time()
    documents = [key.model_dump() | {"state": key.state(now)} for key in keys]
    head = ("name", "role", "state", "made", "by", "work", "disk", "calls")
    rows = [_row(key, now) for key in keys]
    add = command_of(args, "access", "add", "NAME", "--role", "train")
    table = aligned([head, *rows]) if rows else [f"only the admin's key: {add} makes another"]
    show(args, "keys", {"keys": documents}, *table)
    return 0


def _row(key: AccessKey, now: float) -> tuple[str, ...]:
    state: str = key.state(now)
    if state == "valid" and key.expires_at is not None:
        state = f"valid until {moment(key.expires_at)}"
    work = f"{key.work} of {key.max_work}" if key.max_work else str(key.work)
    disk = f"{size(key.disk)} of {size(key.max_disk)}" if key.max_disk else size(key.disk)
    made = f"{age(key.created_at, now)} ago"
    return key.name, key.role, state, made, key.by, work, disk, str(key.max_calls or "")


async def _add(client: HudClient, args: argparse.Namespace) -> int:
    if args.role is None:
        raise HudUsage("access add: no --role given", "read, train, steer or admin")
    for flag, value in (("--runs", args.runs), ("--calls", args.calls)):
        refuse_beyond(flag, value, {"ge": 1, "le": 1000})
    try:
        new = NewKey(
            name=args.name,
            role=args.role,
            expires_s=None if args.expires is None else read_time(args.expires, "--expires"),
            max_work=args.runs,
            max_disk=None if args.disk is None else read_size(args.disk, "--disk"),
            max_calls=args.calls,
        )
    except ValidationError as error:
        raise HudUsage(*_misfit(error, args)) from error
    await confirm(args, f"make a key for {new.name} with the role {new.role}?")
    made = await client.access.add(new)
    until = "" if made.expires_at is None else f", until {moment(made.expires_at)}"
    lines = [f"key of {made.name} ({made.role}{until}); it is shown this once:", made.key]
    show(args, "key", {"key": made}, *lines)
    return 0


def _misfit(error: ValidationError, args: argparse.Namespace) -> tuple[str, str]:
    field = str(error.errors()[0]["loc"][0])
    if field == "name":
        what = f"{one_line(args.name, 60)!r} is no name of a key"
        return what, "small letters, digits, dots, dashes; at most 40"
    flag = {"expires_s": "--expires", "max_disk": "--disk"}.get(field, field)
    return f"{flag} is out of bounds", "at most ten years, and 1 EB"


def read_time(text: str, flag: str) -> float:
    """A length of time in seconds, e.g. ``30d`` or ``12h``. Raises HudUsage: it is none."""
    match = _TIME.fullmatch(text.strip())
    if match is None:
        raise HudUsage(f"{flag} is no length of time: {text[:40]!r}", "e.g. 30d, 12h, 90m or 2w")
    return float(match[1]) * _UNIT_S[match[2].lower()]


async def _revoke(client: HudClient, args: argparse.Namespace) -> int:
    await confirm(args, f"revoke the key of {one_line(args.name, 60)}?")
    row = await client.access.revoke(args.name)
    going = f"; its {counted(row.work, 'run')} continue{'s' * (row.work == 1)}" * bool(row.work)
    show(args, "key", {"key": row}, f"the key of {row.name} is revoked{going}")
    return 0


# The service's log.


PAGE = 1000
"""Lines of the log that one answer has at most."""


async def server_log(client: HudClient, args: argparse.Namespace) -> int:
    """Print the newest lines of the service's log, or of those that match, oldest first."""
    refuse_beyond("--limit", args.limit, {"ge": 1})
    words = (args.text or "").casefold().split()
    lines, searched, is_incomplete = list[LogLine](), 0, False
    tell, is_told = progress(), False
    most = PAGE if words else min(args.limit, PAGE)
    async with aclosing(client.access.log_pages(most)) as pages:
        async for page in pages:
            lines += (
                line for line in page.lines if all(word in _text(line).casefold() for word in words)
            )
            searched += len(page.lines)
            is_incomplete |= page.incomplete
            if len(lines) >= args.limit:
                break
            if len(page.lines) == most:
                back = moment(page.lines[-1].at)
                tell(f"{spaced(searched)} lines of the log searched, back to {back}")
                is_told = True
    if is_told:
        tell("")
    lines = lines[: args.limit][::-1]
    if args.headless:
        emit("server_log", {"lines": lines, "searched": searched, "incomplete": is_incomplete})
        return 0
    table = aligned([_cells(line) for line in lines], most=80)
    older = ["older lines were rotated away"] * is_incomplete
    show(args, "server_log", {}, *older, *(table or ["no line matches"]))
    return 0


def _cells(line: LogLine) -> tuple[str, ...]:
    outcome = "done" if line.status < 400 else f"refused {line.status}"
    outcome = "done before" if line.repeated else outcome
    who = f"{line.key} ({line.role})" if line.key else "no known key"
    times = f" ×{line.count}" if line.count > 1 else ""
    about = " ".join(short_id(text) for text in line.about.values())
    return moment(line.at), who, f"{line.what}{times}", outcome, about, line.program, line.address


def _text(line: LogLine) -> str:
    return " ".join(_cells(line))


# Heads of models that are protected for all.


async def propose(client: HudClient, args: argparse.Namespace, model: Model, target: str) -> int:
    """Propose a head. `target`: id of a checkpoint."""
    asked = await client.access.propose(
        model.id, Propose(checkpoint_id=target, note=args.note or "")
    )
    approve = client.settings.command("head", model.model_name, "--approve")
    said = f"proposed {asked.checkpoint} for {model.model_name}; another person: {approve}"
    show(args, "proposal", {"proposal": asked}, said)
    return 0


async def refuse_move(client: HudClient, model: Model, checkpoint: str) -> None:
    """Raise, for a dry run, what moving a model's head to a checkpoint would: HudProtected, it is
    protected on this machine; HudUnauthorized, that needs another role, or two people."""
    client.wire.guard.check_protected(Change("set head", model.id))
    _refuse_role(await client.whoami(), "move a head")
    if model.protected_by is not None:
        who = one_line(model.protected_by, 40)
        why = f"{model.model_name} is protected by {who}, so nobody may move its head alone"
        raise HudUnauthorized(403, why, f"propose it: --propose {checkpoint}")


def _refuse_role(identity: Identity, what: str) -> None:
    """Raise HudUnauthorized if a key may not do what needs the role `steer`. HUD's have no role."""
    if identity.key and identity.role and not Role(identity.role).may(Role.STEER):
        why = why_not(identity.key, Role(identity.role), Role.STEER, what)
        raise HudUnauthorized(403, why, "ask an admin")


def _refuse_approval(
    client: HudClient, model: Model, proposal: Proposal, identity: Identity
) -> None:
    """Raise, for a dry run, what approving a proposal would."""
    _refuse_role(identity, "approve a head")
    client.wire.guard.check_protected(Change("approve", model.id))
    if proposal.by == identity.key:
        why = f"{proposal.checkpoint} is proposed by you: another person has to approve it"
        raise HudUnauthorized(403, why)


async def decide(client: HudClient, args: argparse.Namespace, model: Model) -> int:
    """Approve the newest open proposal of somebody else, or withdraw the newest of one's own; if
    there is none, of anybody."""
    asked, identity = (await client.access.proposals(model.id)).open, await client.whoami()
    me = identity.key
    if not asked:
        raise HudUsage(f"nothing is proposed for {model.model_name}", "propose it: --propose ID")
    verb = "approve" if args.approve else "withdraw"
    asked = [one for one in asked if (one.by == me) is not args.approve] or asked
    newest = asked[-1]
    if args.yes and len(asked) > 1:  # another may have come since one was looked at
        several = ", ".join(f"{one.checkpoint} by {one.by}" for one in asked[-5:])
        what = f"{counted(len(asked), 'head')} are proposed for {model.model_name}: {several}"
        raise HudUsage(one_line(what, 300), "withdraw all but one, or decide in the app")
    note = f" ({one_line(newest.note, 100)})" if newest.note else ""
    proposed = f"{newest.checkpoint}, proposed by {newest.by}{note}"
    if args.dry_run:
        if args.approve:
            _refuse_approval(client, model, newest, identity)
        else:
            _refuse_role(identity, "withdraw a proposal")
        show(args, "proposal", {"dry_run": True, "proposal": newest}, f"would {verb} {proposed}")
        return 0
    await confirm(args, f"{model.model_name}: {verb} {proposed}?")
    calls = client.access
    done = await (calls.approve(newest) if args.approve else calls.withdraw(newest))
    said = f"{model.model_name} serves {done.checkpoint}" if args.approve else f"{proposed}: ended"
    show(args, "proposal", {"proposal": done}, said)
    return 0


async def protect_for_all(client: HudClient, args: argparse.Namespace) -> int:
    """Have two people move a model's head, or one again; without a model, list them."""
    if args.model is None:
        models = [model for model in await client.models() if model.protected_by]
        rows = [(model.model_name, f"protected by {model.protected_by}") for model in models]
        named = [{"id": model.id, "name": model.model_name} for model in models]
        none = "no model is protected for all"
        show(args, "protect", {"protected": named}, *(aligned(rows) or [none]))
        return 0
    require_consent(args, client)
    model = await client.model(args.model)
    who = "one person moves its head again" if args.off else "two people move its head"
    await confirm(args, f"{model.model_name}: {who}, on the service, for all?")
    done = await client.access.protect(model.id, not args.off)
    by = f"protected by {done.protected_by}: two people move its head"
    said = by if done.protected_by else "no longer protected for all"
    show(args, "protect", {"protection": done}, f"{model.model_name} is {said}")
    return 0
