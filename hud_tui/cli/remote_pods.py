"""The command ``pods``: renting machines from Prime Intellect. Prints documents, or lines of
text."""

import argparse
import asyncio
import os
import sys
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

from hud_tui.cli.connect import command_of, guard_of, paths_of, print_costs, progress
from hud_tui.cli.output import (
    ask,
    confirm,
    emit,
    flags_of,
    print_notice,
    print_table,
    require_consent,
    show,
    with_flags,
)
from hud_tui.cli.remote import SET_UP_FLAGS, forget, log, log_command, machines_of, set_up
from hud_tui.errors import HudError, HudNotFound, HudProtected, HudUsage
from hud_tui.remote.clock import ahead_s, prime_now
from hud_tui.remote.engines import find_engine
from hud_tui.remote.machines import LOG, MACHINE
from hud_tui.remote.pods import (
    MOST_HOURS,
    WORK,
    Filter,
    Pods,
    RentalRequest,
    available,
    begun,
    check_name,
    choose,
    find_rental,
    loosened,
    read_gpus,
    totals,
    wish_of,
)
from hud_tui.remote.prime import Offer, Prime, open_prime, read_prime
from hud_tui.remote.setup import secret_values
from hud_tui.rl.text import clock_text, one_line
from hud_tui.service_file import (
    Rental,
    ends_text,
    guards_text,
    keep_budgets,
    read_rentals,
    rental_notes,
    rental_text,
    watcher_note,
    write_rental,
)
from hud_tui.settings import every_variable
from hud_tui.storage import read_regular


def pods(args: argparse.Namespace) -> int:
    """Run one action on rented machines; return the exit code."""
    actions: Mapping[str, Callable[[argparse.Namespace], Coroutine[Any, Any, int]]] = {
        "available": offers,
        "create": create,
        "setup": setup,
        "list": rented,
        "status": pod_status,
        "log": pod_log,
        "ssh": pod_shell,
        "protect": protect,
        "terminate": terminate,
    }
    if args.action not in ("list", "terminate"):  # these print costs themselves
        print_costs(args)
    return asyncio.run(actions[args.action](args))


# Offers.


def filter_of(args: argparse.Namespace) -> Filter:
    """The conditions on offers. Raises HudUsage: one is invalid."""
    flags = vars(args)
    count, gpu = read_gpus(flags["gpus"]) if flags.get("gpus") else (None, "")
    for name in ("max_price", "disk", "hours"):
        if flags.get(name) is not None and flags[name] <= 0:
            raise HudUsage(f"--{name.replace('_', '-')} must be more than 0")
    if (flags.get("hours") or 0) > MOST_HOURS or (flags.get("idle") or 0) > MOST_HOURS * 60:
        raise HudUsage("a budget is of a year at most", f"--hours up to {MOST_HOURS}")
    if (flags.get("idle") or 0) < 0:
        raise HudUsage("--idle must not be less than 0", "0: it is never ended for want of use")
    return Filter(
        count,
        gpu,
        flags.get("provider") or "",
        tuple(flags.get("region") or ()),
        flags.get("spot"),
        flags.get("max_price"),
        flags.get("disk"),
    )


def prime_of(args: argparse.Namespace) -> Prime:
    """Prime's API."""
    return open_prime(machines_of(args).state)


async def offers(args: argparse.Namespace) -> int:
    """List offers, cheapest first."""
    query = filter_of(args)
    async with prime_of(args) as prime:
        answer = await available(prime, query)
        advice = [] if answer.offers else await loosened(prime, query)
    if args.headless:
        each = [
            {**offer.model_dump(), "price_hr": offer.price(query.disk)} for offer in answer.offers
        ]
        emit("offers", {"offers": each, "unread": answer.unread, "advice": advice})
    elif not answer.offers:
        print("\n".join(["nothing that can be rented matches", *advice]))
    else:
        head = ("$/HOUR", "GPUS", "PROVIDER", "COUNTRY", "DATA CENTER", "", "STOCK")
        print_table(head, [_offer_row(offer, query.disk) for offer in answer.offers])
    if answer.warning:
        print_notice(answer.warning)
    return 0


def _offer_row(offer: Offer, disk: int | None) -> tuple[str, ...]:
    return (
        _dollars(offer.price(disk)),
        offer.label,
        offer.provider or "",
        offer.country or "",
        offer.data_center or "",
        "spot" if offer.is_spot else "",
        offer.stock_status,
    )


def _dollars(amount: float | None) -> str:
    return "?" if amount is None else f"{amount:.2f}"


# Renting, and continuing a renting or set-up that was interrupted.


RENT_FLAGS = (
    *("gpus", "provider", "region", "spot", "max_price", "disk", "hours", "idle", "image"),
    *("identity", "name", "bare", *SET_UP_FLAGS),
)


WISHES = ("engine", "model", "root", "env", "package")


async def create(args: argparse.Namespace) -> int:
    """Show what is rented and what it costs, ask for consent, rent it once, and set it up.

    An interrupted one is continued or mentioned before another pod is rented.
    """
    if not args.dry_run:
        guard_of(args).check("rent a machine")
        require_consent(args)
    query, values = filter_of(args), secret_values(args.send, every_variable())
    if not query.gpu or query.count is None:
        raise HudUsage("which GPUs?", "e.g. --gpus 2xH100")
    if args.engine is not None:
        find_engine(args.engine)  # an unknown engine is an error before anything is rented
    if args.name is not None:
        check_name(args.name)
    async with prime_of(args) as prime:
        if not args.dry_run and (begun := await _begun(args)) is not None:
            return await carry_on(args, prime, begun, values)
        asked = await choose_rental(args, prime, query)
        for line in asked.lines():
            print(f"  {line}", file=sys.stderr, flush=True)
        if args.dry_run:
            if args.headless:
                body = {"rent": asked.lines(), "price_hr": asked.price_hr, "most": asked.most}
                emit("plan", body)
            print_notice("nothing was rented; the same with -y in place of --dry-run rents it")
            return 0
        await confirm(args, f"rent it, for at most ${asked.most:.2f}?")
        return await carry_on(args, prime, await rent_once(args, prime, asked), values)


async def choose_rental(args: argparse.Namespace, prime: Prime, query: Filter) -> RentalRequest:
    """What is to be rented; its warnings are printed. Raises HudUsage, as `choose`."""
    wish = {name: vars(args)[name] for name in WISHES if vars(args)[name]}
    asked, warnings = await choose(
        prime,
        query,
        args.identity,
        args.image or "",
        hours=args.hours,
        idle_min=args.idle,
        name=args.name or "",
        wish={"bare": "yes"} if args.bare else wish,
    )
    for warning in warnings:
        print_notice(warning)
    return asked


async def rent_once(args: argparse.Namespace, prime: Prime, asked: RentalRequest) -> Rental:
    """Rent it once, and say so."""
    pods = Pods(prime, machines_of(args).state, progress(each=True), partial(_keep, args))
    rental = await pods.rent(asked)
    print_notice(f"rented {rental.name}: {rental.price}, {until_text(args, rental)}")
    if warning := asked.dearer(rental):
        print_notice(warning)
    log_command(args, f"--name={rental.name}", [flag for flag in RENT_FLAGS if flag != "name"])
    if args.headless:
        emit("pod", rental_document(args, rental))
    return rental


def _keep(args: argparse.Namespace) -> None:
    keep_budgets(paths_of(args), prime_now(paths_of(args).state))


async def _begun(args: argparse.Namespace) -> Rental | None:
    """The rental to continue instead of renting another; None if there is none. Raises HudUsage:
    there is one, and the user cannot be asked."""
    machines = machines_of(args)
    rentals = read_rentals(machines.state)
    if args.name is not None:
        return _named(args.name, rentals, machines.names())
    rental = begun(machines)
    if rental is None or args.another:
        return None
    what = f"{rental.name} ({rental.gpus}) is rented already and not set up"
    message = f"{what}; it costs {rental.price}"
    if args.yes or not sys.stdin.isatty():
        go_on = f"go on with it: {_set_up(args, rental)}; rent one more: --another"
        raise HudUsage(message, go_on)
    print_notice(message)
    answer = await ask(f"go on with {rental.name}? n: rent one more [Y/n] ")
    return rental if answer.lower() in ("", "y", "yes") else None


def _named(name: str, rentals: Sequence[Rental], machines: Collection[str]) -> Rental | None:
    """The running rental of this name; None if it is free. Raises HudUsage: it is the name of a
    rental that has ended, or of a machine."""
    for rental in rentals:
        if rental.name == name and not rental.runs:
            raise HudUsage(f"{name} was rented before, and has ended", "choose another --name")
        if rental.name == name:
            return rental
    return find_rental(rentals, name) if name in machines else None


async def setup(args: argparse.Namespace) -> int:
    """Continue with a pod whose renting or set-up was interrupted; finished steps are kept."""
    guard_of(args).check("set a pod up")
    require_consent(args)
    rental, values = _rental(args), secret_values(args.send, every_variable())
    if not rental.runs:
        rent = command_of(args, "pods", "create")
        raise HudUsage(f"{rental.name} has ended: {rental.why}", f"{rent} rents one")
    print_notice(f"{rental.name} ({rental.gpus}): {rental.price}, {until_text(args, rental)}")
    await confirm(args, f"set {rental.name} up?")
    async with prime_of(args) as prime:
        code = await carry_on(args, prime, rental, values)
    log_command(args, rental.name, ("identity", "send"))
    return code


async def carry_on(
    args: argparse.Namespace, prime: Prime, rental: Rental, values: Mapping[str, str]
) -> int:
    """Everything between a requested pod and one that trains."""
    machines = machines_of(args)
    report = progress(each=True, beside=partial(costs_beside, machines.state, rental.name))
    pods = Pods(prime, machines.state, report, partial(_keep, args))
    _keep(args)
    with machines.alone(rental.name, WORK):
        try:
            return await _finish(args, pods, rental, values)
        except asyncio.CancelledError:  # ctrl+c
            print_notice(f"{rental.name} runs and costs {rental.price}, {until_text(args, rental)}")
            print_notice(f"go on: {_set_up(args, rental)}; end it: {_end(args, rental)}")
            raise
        except HudError as error:
            failure = error
    await _offer_to_terminate(args, pods, rental, failure)  # after the lock is released
    raise failure


async def _finish(
    args: argparse.Namespace, pods: Pods, rental: Rental, values: Mapping[str, str]
) -> int:
    machines = machines_of(args)
    key = args.identity or rental.key or read_prime(every_variable()).ssh_key
    api_key = values.get("PRIME_API_KEY", "")
    address = await pods.reach(rental, machines.ssh_to, key, api_key)
    rental = find_rental(read_rentals(machines.state), rental.name)
    code = 0
    if "bare" in rental.wish:
        print_notice(f"{rental.name} answers: {command_of(args, 'pods', 'ssh', rental.name)}")
    else:
        fields = {**vars(args), "yes": True, "package": rental.wish.get("package")}
        code = await set_up(argparse.Namespace(**fields), address, wish_of(rental), values)
    write_rental(machines.state, rental, done=True)
    return code


def costs_beside(state: Path, name: str) -> str:
    """What a pod that is waited for has cost, until when it can, and who guards that."""
    rental, now = find_rental(read_rentals(state), name), prime_now(state)
    until = clock_text(rental.deadline + ahead_s(state), now + ahead_s(state))
    return f" · ${rental.spent(now):.2f} to {until}; {guards_text(state, rental, now)}"


def _end(args: argparse.Namespace, rental: Rental) -> str:
    return command_of(args, "pods", "terminate", rental.name)


def _set_up(args: argparse.Namespace, rental: Rental) -> str:
    return command_of(args, "pods", "setup", rental.name)


async def _offer_to_terminate(
    args: argparse.Namespace, pods: Pods, rental: Rental, error: HudError
) -> None:
    """Print the log of a failed set-up, and terminate the pod if the user wants that."""
    machines = machines_of(args)
    file = machines.folder_of(rental.name) / LOG
    if file.exists():
        for line in read_regular(file, 1 << 26).decode("utf-8", "replace").splitlines()[-20:]:
            print(f"  {one_line(line, 200)}", file=sys.stderr)
    rental = find_rental(read_rentals(machines.state), rental.name)
    if not rental.id:
        return
    cost = f"{rental.name} runs and costs {rental.price}"
    then = f"{cost}: {_end(args, rental)}; or go on: {_set_up(args, rental)}"
    error.hint = f"{error.hint}; {then}" if error.hint else then
    if not sys.stdin.isatty() or args.headless:
        return
    print_notice(error.message)
    answer = await ask(f"terminate {rental.name} now? [Y/n] ")
    if answer.lower() in ("", "y", "yes"):
        why = f"failed: {one_line(error.message, 200)}"
        ended = await pods.terminate(rental, why, rental.name)
        forget(args, machines, rental.name)
        error.hint = f"{rental.name} was terminated; it cost ${_spent(args, ended):.2f}"


def until_text(args: argparse.Namespace, rental: Rental) -> str:
    """Until when a pod can cost, and how much."""
    state = machines_of(args).state
    return ends_text(rental, prime_now(state), ahead_s(state))


def _spent(args: argparse.Namespace, rental: Rental) -> float:
    return rental.spent(prime_now(machines_of(args).state))


# Rented pods.


def rental_document(args: argparse.Namespace, rental: Rental) -> dict[str, Any]:
    """A rental as a JSON document."""
    state = machines_of(args).state
    now = prime_now(state)
    return {
        **asdict(rental),
        "runs": rental.runs,
        "unfinished": rental.unfinished,
        "spent": round(rental.spent(now), 2),
        "most": round(rental.most, 2),
        "deadline": rental.deadline,
        "guards": guards_text(state, rental, now) if rental.runs else "",
    }


async def rented(args: argparse.Namespace) -> int:
    """List pods rented from this machine and by others of the account, including ended ones."""
    state = machines_of(args).state
    async with prime_of(args) as prime:
        ours, others = await Pods(prime, state).reconcile()
    _keep(args)
    now = prime_now(state)
    if args.headless:
        each = [rental_document(args, rental) for rental in ours]
        more = [pod.model_dump() for pod in others]
        emit("pods", {"pods": each, "others": more, "totals": totals(ours, now)})
        return 0
    if not ours and not others:
        print(f"nothing is rented, and nothing was: {command_of(args, 'pods')} shows what there is")
        return 0
    rows = [_rented_row(args, rental) for rental in ours]
    rows += [
        (pod.name or pod.id, pod.gpu_name, _dollars(pod.price_hr), "", "", "not rented from here")
        for pod in others
    ]
    print_table(("POD", "GPUS", "$/HOUR", "SPENT", "AT MOST", "STATE"), rows)
    sums = totals(ours, now)
    print(f"running: ${sums['per_hour']:.2f} per hour, ${sums['running']:.2f} so far")
    for rental in filter(lambda rental: rental.runs, ours):
        guards = guards_text(state, rental, now)
        print(f"{one_line(rental.name, 40)}: {until_text(args, rental)}; {guards}")
        for note in _notes(args, rental):
            print(f"  {one_line(note)}")
    return 0


def _notes(args: argparse.Namespace, rental: Rental) -> list[str]:
    """What is not as it should be with a pod that runs."""
    watcher = watcher_note(rental, prime_now(machines_of(args).state))
    notes = [f"{note}: {fix}" for note, fix in filter(None, (watcher, *rental_notes(rental)))]
    return [with_flags(note, flags_of(args)) for note in notes]


def _rented_row(args: argparse.Namespace, rental: Rental) -> tuple[str, ...]:
    if not rental.id and rental.runs:
        state = "unknown"
    elif rental.runs and rental.status == "STOPPED":
        state = "shut down"
    else:
        state = (
            until_text(args, rental).partition(",")[0] if rental.runs else f"ended: {rental.why}"
        )
    costs = (f"{rental.price_hr:.2f}", f"{_spent(args, rental):.2f}", f"{rental.most:.2f}")
    return (rental.name, rental.gpus, *costs, state)


def _rental(args: argparse.Namespace) -> Rental:
    return find_rental(read_rentals(machines_of(args).state), args.name)


async def pod_status(args: argparse.Namespace) -> int:
    """Show the state of one pod as Prime reports it."""
    machines, rental = machines_of(args), _rental(args)
    async with prime_of(args) as prime:
        pods = Pods(prime, machines.state)
        if not rental.id:
            await pods.reconcile()
            rental = _rental(args)
        elif rental.runs and rental.watched and rental.address:
            rental = await pods.hear(rental, machines.ssh_to)
        try:
            status = await prime.status(rental.id) if rental.id else None
        except HudNotFound:
            status = None
    if args.headless:
        asked = status.model_dump() if status is not None else None
        emit("pod", {**rental_document(args, rental), "prime": asked})
        return 0
    shown, address = (status.status, status.ssh_connection) if status else ("", None)
    for line in _status_lines(args, rental, shown, address):
        print(one_line(line, 300))
    return 0


def _status_lines(
    args: argparse.Namespace, rental: Rental, status: str, address: str | None
) -> list[str]:
    shown = status or ("not known to Prime" if rental.id else "unknown whether it was rented")
    lines = [f"{rental.name}: {rental.gpus}, {shown}, {address or 'no ssh yet'}"]
    if not rental.runs:
        return [*lines, f"{rental.price}, ${_spent(args, rental):.2f}, ended: {rental.why}"]
    state = machines_of(args).state
    lines.append(rental_text(state, rental, prime_now(state), ahead_s(state)))
    return lines + _notes(args, replace(rental, status=status))


async def pod_log(args: argparse.Namespace) -> int:
    """Print the end of the set-up's log; before that begins, the pod's state."""
    machines, rental = machines_of(args), _rental(args)
    fields = {"name": rental.name, "setup": True, "lines": args.lines}
    if (machines.folder_of(rental.name) / MACHINE).exists():
        return await log(argparse.Namespace(**{**vars(args), **fields}))
    lines = _status_lines(args, rental, "rented", None)[1:]
    lines = [f"{rental.name}: its set-up has not begun, so there is no log", *lines]
    body = {"name": rental.name, "setup": True, "lines": [], "said": lines}
    show(args, "log", body, *lines)
    return 0


async def pod_shell(args: argparse.Namespace) -> int:
    """Replace this program by ssh to the pod."""
    rental = _rental(args)
    if args.headless:
        raise HudUsage("pods ssh needs a terminal", "remove --headless")
    if not rental.runs:
        raise HudUsage(f"{rental.name} has ended: {rental.why}", command_of(args, "pods", "list"))
    machines = machines_of(args)
    async with prime_of(args) as prime:
        key = args.identity or rental.key or prime.settings.ssh_key
        pods = Pods(prime, machines.state, progress(each=True))
        address = await pods.wait(rental, machines.ssh_to, key)
    command = machines.ssh_to(address).command("-t", shared=False)
    words = [word.replace("BatchMode=yes", "BatchMode=no") for word in command]
    sys.stdout.flush()
    os.execvp(words[0], words)


# Protecting and terminating.


async def protect(args: argparse.Namespace) -> int:
    """Require a pod's name to terminate it."""
    guard_of(args).check("protect a pod")
    rental = write_rental(machines_of(args).state, _rental(args), protected=True)
    log_command(args, rental.name)
    protected = f"{rental.name} is protected: --confirm {rental.name} terminates it"
    show(args, "pod", rental_document(args, rental), protected)
    return 0


async def terminate(args: argparse.Namespace) -> int:
    """Terminate a pod, which ends its costs."""
    guard_of(args).check("terminate a pod")
    require_consent(args)
    machines, rental = machines_of(args), _rental(args)
    if rental.protected and args.confirm != rental.name:
        raise HudProtected(rental.name, "terminate")
    await confirm(args, f"terminate {rental.name}? what is on it is lost")
    async with prime_of(args) as prime:
        pods = Pods(prime, machines.state, print_notice)
        rental = await pods.end(rental, args.confirm)
    forget(args, machines, rental.name)
    log_command(args, rental.name, ("confirm",))
    ended = f"{rental.name} was terminated; it cost ${_spent(args, rental):.2f}"
    show(args, "pod", rental_document(args, rental), ended)
    return 0
