"""``remote``: machines over ssh. Prints documents, or lines for people."""

import argparse
import asyncio
import shlex
import sys
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import asdict
from time import time
from typing import Any

from hud_tui.audit_log import as_flags, command_entry
from hud_tui.cli.connect import command_of, guard_of, print_costs, progress, write_down
from hud_tui.cli.output import (
    confirm,
    emit,
    flags_of,
    print_notice,
    print_table,
    require_consent,
    show,
)
from hud_tui.errors import HudError, HudUsage
from hud_tui.remote import keeper
from hud_tui.remote.engines import ENGINES, Wish, describe
from hud_tui.remote.facts import fetch_facts
from hud_tui.remote.machines import LOG, Machine, Machines, machines_in
from hud_tui.remote.setup import Setup, StepReport, secret_values
from hud_tui.remote.ssh import Address, read_address
from hud_tui.rl.text import age, clean, one_line, size
from hud_tui.service_file import line_text, usable_directories
from hud_tui.settings import REMOTES, every_variable, program, read_paths
from hud_tui.storage import read_regular

MARKS = {"done": "✔", "there": "✔", "failed": "✘", "undone": "✔", "log": " ", "do": "…"}
MOST_LOG = 4_000_000
"""Most bytes of a log that are shown."""


def remote(args: argparse.Namespace) -> int:
    """Run one action; returns the exit code."""
    actions: Mapping[str, Callable[[argparse.Namespace], Coroutine[Any, Any, int]]] = {
        "add": add,
        "list": listed,
        "status": status,
        "log": log,
        "use": use,
        "remove": remove,
    }
    print_costs(args)
    return asyncio.run(actions[args.action](args))


def machines_of(args: argparse.Namespace) -> Machines:
    """The machines of the state directory, whatever machine is in use."""
    return machines_in(read_paths(args.state_dir, args.data_dir).state)


def log_command(args: argparse.Namespace, subject: str, flags: Sequence[str] = ()) -> None:
    """Add a completed action on a machine to the command log, as the command that repeats it, with
    these of its flags."""
    words = [args.command, args.action, subject, *_repeated(args, flags)]
    words += ["-y"] if "yes" in vars(args) else []
    by = "headless" if args.headless else "cli"
    write_down(machines_of(args).state, by, command_entry(time(), words))


def _repeated(args: argparse.Namespace, flags: Sequence[str]) -> list[str]:
    """Flags as they were given."""
    given = {name: vars(args).get(name) for name in flags}
    return as_flags({k: value for k, value in given.items() if value is not False or k == "spot"})


SET_UP_FLAGS = ("engine", "model", "root", "env", "package", "send")


async def add(args: argparse.Namespace) -> int:
    """Examine a machine, print what will be done, ask, and do it."""
    if not args.dry_run:
        guard_of(args).check("set a machine up")
        require_consent(args)
    written = read_address(args.host, args.identity)
    address = Address(written.host, args.port or written.port, args.identity)
    fields = {
        name: getattr(args, name) or "" for name in ("name", "engine", "model", "root", "env")
    }
    values = secret_values(args.send, every_variable())
    code = await set_up(args, address, Wish(**fields), values)
    if not args.dry_run:
        log_command(args, args.host, ("port", "identity", "name", *SET_UP_FLAGS))
    return code


async def set_up(
    args: argparse.Namespace, address: Address, wish: Wish, values: Mapping[str, str]
) -> int:
    """The rest of ``remote add`` once the machine is known."""
    machines = machines_of(args)
    machine = await describe(machines, address, wish)
    with machines.alone(machine.name):
        setup = Setup(machines, machine, _watcher(args), args.package or "")
        async with aclosing(setup):
            plan = await setup.plan()
            for line in _about(machine, plan, values):
                print(f"  {one_line(line, 300)}", file=sys.stderr, flush=True)
            if vars(args).get("dry_run"):
                return _planned(args, machines, machine, plan)
            await confirm(args, f"set {machine.name} up?")
            try:
                machine = await setup.run(values)
            except HudError as error:
                again = f"what is done stays; go on with: {go_on(machine, args)}"
                error.hint = f"{error.hint}; {again}" if error.hint else again
                raise
    ready = f"{machine.name} is ready: {command_of(args, 'remote', 'use', machine.name)}"
    show(args, "remote", document(machines, machine), ready)
    return 0


def go_on(machine: Machine, args: argparse.Namespace | None = None) -> str:
    """The command that resumes a machine's set-up. `args`: those of the set-up that failed, for
    what is not kept with the machine."""
    if machine.pod:
        words = ["hud-tui", "pods", "setup", machine.name]
        flags: tuple[str, ...] = ("send",)
    else:
        address = machine.address
        words = ["hud-tui", "remote", "add", *str(address).split()]
        words += ["-i", address.key] if address.key else []
        words += ["--name", machine.name]
        flags = ("package", "send")
    return shlex.join([*words, *(_repeated(args, flags) if args is not None else ())])


def _planned(args: argparse.Namespace, machines: Machines, machine: Machine, plan: Any) -> int:
    if args.headless:
        steps = [{"step": step.name, "about": step.about, "done": there} for step, there in plan]
        emit("plan", {**document(machines, machine), "steps": steps})
    print_notice("nothing was done; the same with -y in place of --dry-run does it")
    return 0


def _about(machine: Machine, plan: Any, values: Mapping[str, str]) -> list[str]:
    """What was found, and what will be done."""
    engine = ENGINES[machine.engine]
    lines = [f"{machine.name}: {machine.address}", *machine.facts.lines()]
    lines += [f"engine  {engine.name}: {engine.about}"]
    lines += [f"model   {machine.model}"] if machine.model else []
    lines += [f"folder  {machine.root}"]
    lines += [f"secrets {', '.join(values)}, into a file of mode 0600 there"] if values else []
    todo = [step.about for step, there in plan if not there]
    there = [step.about for step, there in plan if there]
    lines += [f"done already: {', '.join(there)}"] if there else []
    return lines + [f"to do   {about}" for about in todo]


def _watcher(args: argparse.Namespace) -> Callable[[StepReport], None]:
    """Returns a function that prints the set-up's messages: as documents, or as lines."""

    def show(report: StepReport) -> None:
        if args.headless:
            emit("setup", report)
        elif report.state != "check":
            count = f"{report.number}/{report.total} " if report.total else ""
            print(f"{MARKS[report.state]} {count}{report.step:9} {report.text}", flush=True)

    return show


async def listed(args: argparse.Namespace) -> int:
    """List all known machines."""
    machines = machines_of(args)
    documents = [document(machines, machine) for machine in machines.all()]
    if args.headless:
        emit("remotes", {"machines": documents})
        return 0
    rows = [
        (
            shown["name"] + (" *" if shown["used"] else ""),
            shown["address"],
            shown["gpus"],
            shown["engine"],
            shown["model"] or "–",
            "ready" if shown["ready"] else "not set up",
            line_text(shown["line"], time()) if shown["used"] else "",
        )
        for shown in documents
    ]
    if not rows:
        add, rent = command_of(args, "remote", "add", "HOST"), command_of(args, "pods")
        print(f"no machines but this one: {add}, or {rent} to rent one")
        return 0
    print_table(("NAME", "ADDRESS", "GPUS", "ENGINE", "MODEL", "STATE", "LINE"), rows)
    if any(shown["used"] for shown in documents):
        here = command_of(args, "remote", "use", "--off")
        print(f"* is used: {program(True, flags_of(args))} trains there; {here} trains here")
    return 0


async def status(args: argparse.Namespace) -> int:
    """Print a machine's present state; exit code 3 if it does not answer."""
    machines = machines_of(args)
    machine = machines.get(args.name)
    report = document(machines, machine)
    async with aclosing(Setup(machines, machine, patience_s=0)) as setup:
        facts = await fetch_facts(machines.ssh(machine, shared=False), machine.root)
        report |= {"facts": asdict(facts), "server": await setup.pulse()}
    if args.headless:
        emit("remote", report)
        return 0
    gpus = [f"GPU {n}: {g.use} % used, {g.used_mb / 1024:.1f} of {g.total_mb / 1024:.0f} GB"
            for n, g in enumerate(facts.gpus)]  # fmt: skip
    lines = [f"{machine.name}: {machine.address}", *facts.lines(), *gpus]
    lines += [f"engine  {machine.engine}  {machine.model}".rstrip(), f"folder  {machine.root}"]
    lines += [f"server  {_server_said(report['server'])}"]
    if report["used"]:
        lines += [f"tunnel  {line_text(report['line'], time())}"]
    for line in lines:
        print(clean(line, 400))
    return 0


def _server_said(server: Mapping[str, Any]) -> str:
    if not server["running"]:
        return "does not run"
    used = server["used_at"]
    ago = f", last used {age(used, server['now'])} ago" if used else ""
    return f"runs at port {server['port']} there{ago}"


async def use(args: argparse.Namespace) -> int:
    """Train on a machine from now on, or on this one again; without arguments, print which is in
    use. Raises HudUnreachable: its server does not answer through the tunnel; nothing has
    changed."""
    machines = machines_of(args)
    if args.off and args.name:
        raise HudUsage("--off and a name", "give one of them")
    if args.off:
        guard_of(args).check("use another machine")
        await keeper.unuse(machines, read_paths(args.state_dir, args.data_dir))
    elif args.name:
        guard_of(args).check("use another machine")
        await begin_use(args, machines, machines.get(args.name))
    name = machines.used()
    if args.headless:
        emit("used", document(machines, machines.get(name)) if name else {"name": None})
    else:
        where = "this machine" if name is None else machines.get(name).label
        print(f"training on {where}: {program(True, flags_of(args))}")
    if args.name or args.off:
        log_command(args, args.name or "--off")
    if args.name:
        print_notice(
            "runs and models of this machine are not shown meanwhile, and go on: --off shows them"
        )
    return 0


async def begin_use(args: argparse.Namespace, machines: Machines, machine: Machine) -> None:
    """Train on a machine from now on. Raises HudError: it is not set up, or does not answer."""
    if not machine.ready:
        fix = f"finish its set-up: {go_on(machine)}"
        raise HudUsage(f"{machine.name} is not set up", fix)
    paths = read_paths(args.state_dir, args.data_dir)
    await keeper.use(machines, machine, paths, progress(each=True))


async def log(args: argparse.Namespace) -> int:
    """Print the end of a log: the server's there, or the set-up's here."""
    machines = machines_of(args)
    machine, count = machines.get(args.name), max(1, min(args.lines, 100_000))
    if args.setup:
        file = machines.folder_of(machine.name) / LOG
        with usable_directories():
            text = read_regular(file, 1 << 26).decode("utf-8", "replace") if file.exists() else ""
    else:
        async with aclosing(Setup(machines, machine, patience_s=0)) as setup:
            text = await setup.log(count)
    lines = clean(text, MOST_LOG).splitlines()[-count:]
    if args.headless:
        emit("log", {"name": machine.name, "setup": args.setup, "lines": lines})
    else:
        print("\n".join(lines))
    return 0


async def remove(args: argparse.Namespace) -> int:
    """Undo a set-up, and forget the machine."""
    guard_of(args).check("remove a machine")
    require_consent(args)
    machines = machines_of(args)
    machine = machines.get(args.name)
    if machine.pod and not args.forget:
        end = command_of(args, "pods", "terminate", machine.name)
        fix = f"{end} ends it, and its costs; or --forget it here"
        raise HudUsage(f"{machine.name} is rented", fix)
    if args.forget:
        await confirm(args, f"forget {machine.name}?")
    else:
        with machines.alone(machine.name):
            async with aclosing(Setup(machines, machine, _watcher(args))) as setup:
                use = await setup.use()
                if not args.force:
                    use.check(machine.name)
                for line in (*(f"used by {client}" for client in use.others), *use.goes):
                    print(f"  {one_line(line, 200)}", file=sys.stderr, flush=True)
                await confirm(
                    args, f"stop its server, and remove {machine.root} from {machine.name}?"
                )
                await setup.undo(args.force)
    was_used = forget(args, machines, machine.name)
    log_command(args, machine.name, ("forget", "force"))
    if args.headless:
        done = {"removed": not args.forget, "forgotten": True, "was_used": was_used}
        emit("remote", {"name": machine.name, **done})
    elif args.forget:
        print_notice(f"forgot {machine.name}; {machine.root} may still be there")
    return 0


def forget(args: argparse.Namespace, machines: Machines, name: str) -> bool:
    """Forget a machine, and print what that means for training; returns whether it was in use."""
    was_used = machines.used() == name
    machines.forget(name)
    if was_used:
        print_notice(f"{name} was used: from now on --local trains on this machine")
    data = read_paths(args.state_dir, args.data_dir).data / REMOTES / name
    with suppress(OSError):  # there may be nothing in it
        data.rmdir()
        data.parent.rmdir()
    if data.is_dir():
        kept = f"what is known here of its runs stays in {data}"
        print_notice(f"{kept}: remove it if you do not need it")
    return was_used


def document(machines: Machines, machine: Machine) -> dict[str, Any]:
    """One machine as a document; without its key."""
    return {
        "name": machine.name,
        "address": str(machine.address),
        "used": machines.used() == machine.name,
        "ready": machine.ready,
        "missing": [] if machine.ready else ["set-up"],
        "engine": machine.engine,
        "model": machine.model,
        "gpus": machine.facts.gpu_label,
        "disk_free": size(machine.facts.free_bytes),
        "root": machine.root,
        "url": machine.url,
        "done": list(machine.done),
        "secrets": list(machine.secrets),
        "pod": machine.pod,
        "added_at": machine.added_at,
        "line": machines.line(machine.name),
    }
