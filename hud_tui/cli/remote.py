"""``remote`` and ``pods``: machines over ssh, and rented ones; documents, or lines for people."""

import argparse
import asyncio
import os
import sys
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import aclosing
from dataclasses import asdict, replace
from datetime import datetime
from time import time
from typing import Any

from hud_tui.cli.connect import guard_of, paths_of, progress
from hud_tui.cli.output import ask, confirm, emit, require_consent, tell
from hud_tui.errors import HudError, HudProtected, HudUnreachable, HudUsage
from hud_tui.remote.engines import ENGINES, find_engine
from hud_tui.remote.facts import look
from hud_tui.remote.keeper import LOOK_S
from hud_tui.remote.machines import LOG, Machine, Machines, machines_in
from hud_tui.remote.pods import (
    Filter,
    Pods,
    Wanted,
    available,
    choose_image,
    find_rental,
    install_watcher,
    read_gpus,
    totals,
)
from hud_tui.remote.prime import Prime, read_prime
from hud_tui.remote.setup import Setup, StepSaid, Wish, describe, secret_values
from hud_tui.remote.ssh import PATIENCE_S, Address, patient, read_address
from hud_tui.rl.text import age, clean, one_line, size
from hud_tui.service_file import Rental, keep_line, read_rentals, write_rental
from hud_tui.settings import every_variable, read_paths
from hud_tui.storage import read_regular

MARKS = {"done": "✔", "there": "✔", "failed": "✘", "undone": "✔", "log": " ", "do": "…"}
MOST_LOG = 4_000_000
"""Bytes of a log that are shown."""


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
    return asyncio.run(actions[args.action](args))


def machines_of(args: argparse.Namespace) -> Machines:
    """The machines of the state directory, whichever is used and whether that can be read."""
    return machines_in(read_paths(args.state_dir, args.data_dir).state)


async def add(args: argparse.Namespace) -> int:
    """Check a machine, say what will be done, ask, and do it."""
    guard_of(args).check("set a machine up")
    require_consent(args)
    written = read_address(args.host, args.identity)
    address = Address(written.host, args.port or written.port, args.identity)
    given = {name: getattr(args, name) or "" for name in ("name", "engine", "model", "root", "env")}
    values = secret_values(args.send, every_variable())
    return await set_up(args, address, Wish(**given), values)


async def set_up(
    args: argparse.Namespace, address: Address, wish: Wish, values: Mapping[str, str]
) -> int:
    """What ``remote add`` does once it is known with which machine."""
    machines = machines_of(args)
    machine = await describe(machines, address, wish)
    with machines.alone(machine.name):
        setup = Setup(machines, machine, _watcher(args), args.package or "")
        async with aclosing(setup):
            plan = await setup.plan()
            for line in _about(machine, plan, values):
                print(f"  {one_line(line, 300)}", file=sys.stderr, flush=True)
            await confirm(args, f"set {machine.name} up?")
            try:
                machine = await setup.run(values)
            except HudError as error:
                again = f"what is done stays; go on with: hud-tui remote add {address}"
                error.hint = f"{error.hint}; {again}" if error.hint else again
                raise
    if args.headless:
        emit("remote", document(machines, machine))
    else:
        print(f"{machine.name} is ready: hud-tui remote use {machine.name}")
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
    lines += [f"there already: {', '.join(there)}"] if there else []
    return lines + [f"to do   {about}" for about in todo]


def _watcher(args: argparse.Namespace) -> Callable[[StepSaid], None]:
    """Prints what a set-up says: a document each, or a line for people."""

    def said(one: StepSaid) -> None:
        if args.headless:
            emit("setup", one)
        elif one.state != "check":
            count = f"{one.number}/{one.total} " if one.total else ""
            print(f"{MARKS[one.state]} {count}{one.step:9} {one.text}", flush=True)

    return said


async def listed(args: argparse.Namespace) -> int:
    """All machines that are known here."""
    machines = machines_of(args)
    found = [document(machines, machine) for machine in machines.all()]
    if args.headless:
        emit("remotes", {"machines": found})
        return 0
    rows = [
        (
            one["name"] + (" *" if one["used"] else ""),
            one["address"],
            one["gpus"],
            one["engine"],
            one["model"] or "–",
            "ready" if one["ready"] else "not set up: " + ", ".join(one["missing"]),
        )
        for one in found
    ]
    print_table(("NAME", "ADDRESS", "GPUS", "ENGINE", "MODEL", "STATE"), rows)
    return 0


def print_table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> None:
    """Columns for people; nothing but the head where there are no rows."""
    cells = [head, *([one_line(cell, 60) for cell in row] for row in rows)]
    widths = [max(len(row[place]) for row in cells) for place in range(len(head))]
    for row in cells:
        pairs = zip(row, widths, strict=True)
        print("  ".join(cell.ljust(width) for cell, width in pairs).rstrip())


async def status(args: argparse.Namespace) -> int:
    """One machine, as it is now; exit code 3 where it does not answer."""
    machines = machines_of(args)
    machine = machines.get(args.name)
    found = document(machines, machine)
    async with aclosing(Setup(machines, machine, patience_s=0)) as setup:
        facts = await look(machines.ssh(machine))
        found |= {"facts": asdict(facts), "server": await setup.pulse()}
    if args.headless:
        emit("remote", found)
        return 0
    gpus = [f"GPU {n}: {g.use} % used, {g.used_mb / 1024:.1f} of {g.total_mb / 1024:.0f} GB"
            for n, g in enumerate(facts.gpus)]  # fmt: skip
    server = found["server"]
    lines = [f"{machine.name}: {machine.address}", *facts.lines(), *gpus]
    lines += [f"engine  {machine.engine}  {machine.model}", f"folder  {machine.root}"]
    lines += [f"server  {_server_said(server)}"]
    for line in lines:
        print(clean(line, 400))
    return 0


def _server_said(server: Mapping[str, Any]) -> str:
    if not server["running"]:
        return "does not run"
    used = server["used_at"]
    ago = f", last used {age(used, server['now'])} ago" if used else ""
    return f"runs at port {server['port']} there{ago}"


USE_S = 60.0
"""Longest wait for a tunnel."""


async def use(args: argparse.Namespace) -> int:
    """Train on a machine from now on; or here again. Without either: which is used.

    Raises:
        HudUnreachable: Its server does not answer through the tunnel; nothing has changed.
    """
    machines = machines_of(args)
    if args.off and args.name:
        raise HudUsage("--off and a name", "give one of them")
    if args.off:
        guard_of(args).check("use another machine")
        machines.use(None)
    elif args.name:
        guard_of(args).check("use another machine")
        await _use(args, machines, machines.get(args.name))
    name = machines.used()
    if args.headless:
        emit("used", document(machines, machines.get(name)) if name else {"name": None})
    elif name is None:
        print("training on this machine: hud-tui --local")
    else:
        print(f"training on {machines.get(name).label}: hud-tui --local")
    return 0


async def _use(args: argparse.Namespace, machines: Machines, machine: Machine) -> None:
    if not machine.ready:
        fix = f"finish its set-up: hud-tui remote add {machine.address} --name {machine.name}"
        raise HudUsage(f"{machine.name} is not set up", fix)
    before = machines.used()
    machines.use(machine, find_engine(machine.engine).speaks)
    try:
        await up(args, machines, machine)
    except BaseException:
        known = machines.get(before) if before else None
        machines.use(known, find_engine(known.engine).speaks if known else "")
        raise


async def up(args: argparse.Namespace, machines: Machines, machine: Machine) -> None:
    """Wait until the tunnel to a machine that is used is up."""
    began, report = time(), progress()
    keep_line(paths_of(args), machine.name)
    while True:
        line = machines.line(machine.name)
        if line.get("state") == "up" and line.get("at", 0) >= began - 2 * LOOK_S:
            return
        said = line.get("why") or "connecting"
        if time() - began > USE_S:
            hint = f"hud-tui remote status {machine.name}; its log: remote log {machine.name}"
            raise HudUnreachable(f"{machine.name}: {said}", hint)
        report(f"{machine.name}: {said}")
        await asyncio.sleep(0.1)


async def log(args: argparse.Namespace) -> int:
    """The end of a log, of the server there or of the set-up here."""
    machines = machines_of(args)
    machine, count = machines.get(args.name), max(1, min(args.lines, 100_000))
    if args.setup:
        file = machines.place(machine.name) / LOG
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
        fix = f"hud-tui pods terminate {machine.name} ends it, and its costs; or --forget it here"
        raise HudUsage(f"{machine.name} is rented", fix)
    what = "forget" if args.forget else f"stop its server, and remove {machine.root} from"
    await confirm(args, f"{what} {machine.name}?")
    with machines.alone(machine.name):
        if not args.forget:
            async with aclosing(Setup(machines, machine, _watcher(args))) as setup:
                await setup.undo()
    machines.forget(machine.name)
    if args.headless:
        emit("remote", {"name": machine.name, "removed": not args.forget, "forgotten": True})
    elif args.forget:
        tell(f"forgot {machine.name}; {machine.root} may still be there")
    return 0


def document(machines: Machines, machine: Machine) -> dict[str, Any]:
    """One machine as a document; without its key."""
    line = machines.line(machine.name)
    missing = [] if machine.ready else ["set-up"]
    return {
        "name": machine.name,
        "address": str(machine.address),
        "used": machines.used() == machine.name,
        "ready": machine.ready,
        "missing": missing,
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
        "line": line,
    }


# Rented machines.


def pods(args: argparse.Namespace) -> int:
    """Run one action on rented machines; returns the exit code."""
    actions: Mapping[str, Callable[[argparse.Namespace], Coroutine[Any, Any, int]]] = {
        "available": offers,
        "create": create,
        "list": rented,
        "status": pod_status,
        "log": pod_log,
        "ssh": pod_shell,
        "protect": protect,
        "terminate": terminate,
    }
    return asyncio.run(actions[args.action](args))


def _filter(args: argparse.Namespace) -> Filter:
    given = vars(args)
    count, gpu = read_gpus(given["gpus"]) if given.get("gpus") else (None, "")
    for name in ("max_price", "disk", "hours"):
        if given.get(name) is not None and given[name] <= 0:
            raise HudUsage(f"--{name.replace('_', '-')} must be more than 0")
    if (given.get("idle") or 0) < 0:
        raise HudUsage("--idle must not be less than 0", "0: it is never ended for want of use")
    return Filter(
        count,
        gpu,
        given.get("provider") or "",
        tuple(given.get("region") or ()),
        given.get("spot"),
        given.get("max_price"),
        given.get("disk"),
    )


def _prime() -> Prime:
    return Prime(read_prime(every_variable()))


async def offers(args: argparse.Namespace) -> int:
    """What can be rented, cheapest first."""
    wanted = _filter(args)
    async with _prime() as prime:
        found = await available(prime, wanted)
    if args.headless:
        each = [{**one.model_dump(), "price_hr": one.price(wanted.disk)} for one in found]
        emit("offers", {"offers": each})
        return 0
    rows = [
        (
            _dollars(one.price(wanted.disk)),
            one.label,
            one.provider or "",
            one.country or "",
            one.data_center or "",
            "spot" if one.is_spot else "",
            one.stock_status,
        )
        for one in found
    ]
    print_table(("$/HOUR", "GPUS", "PROVIDER", "COUNTRY", "DATA CENTER", "", "STOCK"), rows)
    return 0


def _dollars(amount: float | None) -> str:
    return "?" if amount is None else f"{amount:.2f}"


async def create(args: argparse.Namespace) -> int:
    """Show exactly what is rented and what it costs, ask, rent it once, and set it up."""
    guard_of(args).check("rent a machine")
    require_consent(args)
    wanted, values = _filter(args), secret_values(args.send, every_variable())
    if not wanted.gpu or wanted.count is None:
        raise HudUsage("which GPUs?", "e.g. --gpus 2xH100")
    if not args.bare:
        choose_early(args.engine)
    async with _prime() as prime:
        found = await available(prime, wanted)
        if not found:
            hint = "see what there is: hud-tui pods; or other --gpus, --provider, --max-price"
            raise HudUsage("nothing to be rented fits", hint)
        offer, price = found[0], found[0].price(wanted.disk)
        if price is None:
            raise HudUsage("the provider does not say what it costs", "another --provider")
        image = choose_image(offer, args.image or "")
        asked = Wanted(offer, price, args.hours, args.idle, wanted.max_price, wanted.disk, image)
        for line in asked.lines():
            print(f"  {line}", file=sys.stderr, flush=True)
        await confirm(args, f"rent it, for at most ${asked.most:.2f}?")
        return await _rent(args, prime, asked, values)


def choose_early(engine: str | None) -> None:
    """Refuse a wrong engine before anything is rented."""
    if engine is not None:
        find_engine(engine)


async def _rent(
    args: argparse.Namespace, prime: Prime, asked: Wanted, values: Mapping[str, str]
) -> int:
    machines = machines_of(args)
    pods = Pods(prime, machines.state, progress())
    rental = await pods.rent(asked)
    tell(f"rented {rental.name}: ${rental.price_hr:.2f} per hour, until {_clock(rental.deadline)}")
    if args.headless:
        emit("pod", rental_document(rental))
    try:
        key = args.identity or prime.settings.ssh_key
        address = await pods.wait(rental, machines.ssh_to, key)
        ssh = machines.ssh_to(address)
        async with aclosing(ssh):
            await patient(
                lambda: install_watcher(ssh, rental, prime.settings.url), tell, PATIENCE_S
            )
        if args.bare:
            print(f"ssh -i {key} {address}", file=sys.stderr)
            return 0
        given = {name: getattr(args, name) or "" for name in ("engine", "model", "root", "env")}
        wish = Wish(rental.name, **given, pod=rental.id)
        return await set_up(
            argparse.Namespace(**{**vars(args), "yes": True}), address, wish, values
        )
    except asyncio.CancelledError:  # ctrl+c
        price = f"${rental.price_hr:.2f} per hour"
        tell(f"{rental.name} runs and costs {price}; it may not end by itself")
        tell(f"end it: hud-tui pods terminate {rental.name}")
        raise
    except HudError as error:
        await _offer_to_terminate(args, pods, rental, error)
        raise


async def _offer_to_terminate(
    args: argparse.Namespace, pods: Pods, rental: Rental, error: HudError
) -> None:
    """Say what failed with its log, and end the pod where that is wanted."""
    machines = machines_of(args)
    file = machines.place(rental.name) / LOG
    if file.exists():
        for line in read_regular(file, 1 << 26).decode("utf-8", "replace").splitlines()[-20:]:
            print(f"  {one_line(line, 200)}", file=sys.stderr)
    end = f"hud-tui pods terminate {rental.name}"
    error.hint = f"{rental.name} runs and costs ${rental.price_hr:.2f} per hour: {end}"
    if not sys.stdin.isatty() or args.headless:
        return
    tell(error.message)
    answer = await ask(f"terminate {rental.name} now? [Y/n] ")
    if answer.lower() in ("", "y", "yes"):
        ended = await pods.terminate(rental, f"failed: {one_line(error.message, 200)}")
        machines.forget(rental.name)
        error.hint = f"{rental.name} was terminated; it cost ${ended.spent(time()):.2f}"


def _clock(at: float) -> str:
    return datetime.fromtimestamp(at).strftime("%H:%M")


def rental_document(rental: Rental) -> dict[str, Any]:
    """One rented machine as a document."""
    now = time()
    return {
        **asdict(rental),
        "runs": rental.runs,
        "spent": round(rental.spent(now), 2),
        "most": round(rental.most, 2),
        "deadline": rental.deadline,
    }


async def rented(args: argparse.Namespace) -> int:
    """What is rented, from here and by others of the account; and what has ended."""
    state = machines_of(args).state
    async with _prime() as prime:
        ours, others = await Pods(prime, state).reconcile()
    now = time()
    if args.headless:
        each = [rental_document(one) for one in ours]
        more = [one.model_dump() for one in others]
        emit("pods", {"pods": each, "others": more, "totals": totals(ours, now)})
        return 0
    rows = [
        (
            one.name,
            one.gpus,
            f"{one.price_hr:.2f}",
            f"{one.spent(now):.2f}",
            f"{one.most:.2f}",
            f"until {_clock(one.deadline)}" if one.runs else f"ended: {one.why}",
        )
        for one in ours
    ]
    rows += [
        (one.name or one.id, one.gpu_name, _dollars(one.price_hr), "", "", "not rented from here")
        for one in others
    ]
    print_table(("POD", "GPUS", "$/HOUR", "SPENT", "AT MOST", "STATE"), rows)
    sums = totals(ours, now)
    print(f"running: ${sums['per_hour']:.2f} per hour, ${sums['running']:.2f} so far")
    return 0


def _rental(args: argparse.Namespace) -> Rental:
    return find_rental(read_rentals(machines_of(args).state), args.name)


async def pod_status(args: argparse.Namespace) -> int:
    """How one pod is, as Prime says."""
    rental = _rental(args)
    async with _prime() as prime:
        status = await prime.status(rental.id)
    if args.headless:
        emit("pod", {**rental_document(rental), "prime": status.model_dump()})
        return 0
    spent = f"${rental.spent(time()):.2f} of at most ${rental.most:.2f}"
    print(f"{rental.name}: {rental.gpus}, {status.status}, {status.ssh_connection or 'no ssh yet'}")
    print(f"${rental.price_hr:.2f} per hour, {spent}, until {_clock(rental.deadline)}")
    return 0


async def pod_log(args: argparse.Namespace) -> int:
    """The end of what its set-up printed."""
    return await log(
        argparse.Namespace(
            **{**vars(args), "name": _rental(args).name, "setup": True, "lines": 100}
        )
    )


async def pod_shell(args: argparse.Namespace) -> int:
    """Replace this program by ssh to the pod."""
    rental = _rental(args)
    if args.headless:
        raise HudUsage("pods ssh needs a terminal", "remove --headless")
    machines = machines_of(args)
    async with _prime() as prime:
        address = await Pods(prime, machines.state, tell).wait(
            rental, machines.ssh_to, prime.settings.ssh_key
        )
    command = machines.ssh_to(address).command("-t", shared=False)
    words = [word.replace("BatchMode=yes", "BatchMode=no") for word in command]
    sys.stdout.flush()
    os.execvp(words[0], words)


async def protect(args: argparse.Namespace) -> int:
    """Have its name required before it is terminated."""
    guard_of(args).check("protect a pod")
    rental = write_rental(machines_of(args).state, replace(_rental(args), protected=True))
    if args.headless:
        emit("pod", rental_document(rental))
    else:
        print(f"{rental.name} is protected: --confirm {rental.name} terminates it")
    return 0


async def terminate(args: argparse.Namespace) -> int:
    """End a pod, and its costs."""
    guard_of(args).check("terminate a pod")
    require_consent(args)
    machines, rental = machines_of(args), _rental(args)
    if rental.protected and args.confirm != rental.name:
        raise HudProtected(rental.name, "terminate")
    await confirm(args, f"terminate {rental.name}? what is on it is lost")
    async with _prime() as prime:
        pods = Pods(prime, machines.state, tell)
        if not rental.id:
            await pods.reconcile()
            rental = _rental(args)
        if rental.runs or rental.id:  # one that counts as ended may run all the same
            rental = await pods.terminate(rental, "terminated", args.confirm)
    machines.forget(rental.name)
    if args.headless:
        emit("pod", rental_document(rental))
    else:
        print(f"{rental.name} was terminated; it cost ${rental.spent(time()):.2f}")
    return 0
