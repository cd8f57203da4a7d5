"""MachinesScreen: machines over ssh and rented pods: their state, use and cost, and their set-up.

Everything shown is read from files on this machine, which set-ups and the tunnel's process write. A
set-up continues when the screen is closed: `SetUps` belongs to the app.
"""

from __future__ import annotations

import re
from asyncio import to_thread
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from time import time
from typing import Any

from textual import on, work
from textual.app import App, ComposeResult
from textual.content import Content
from textual.widgets import Static

from hud_tui.audit_log import CommandLog, command_entry
from hud_tui.errors import HudError, HudUsage
from hud_tui.keys import Action, key
from hud_tui.remote.clock import ahead_s, prime_now
from hud_tui.remote.engines import Wish, describe, find_engine
from hud_tui.remote.facts import fetch_facts
from hud_tui.remote.keeper import unuse, use
from hud_tui.remote.machines import LOG, Machine, Machines, machines_in
from hud_tui.remote.pods import (
    WORK,
    Filter,
    Pods,
    begun,
    choose,
    find_rental,
    read_gpus,
    totals,
    wish_of,
)
from hud_tui.remote.prime import Prime, open_prime
from hud_tui.remote.setup import Setup, StepReport
from hud_tui.remote.ssh import Address, read_address
from hud_tui.rl.text import age, clock_text, counted, one_line, percent, size
from hud_tui.service_file import (
    SILENT_S,
    Rental,
    budget_found,
    budget_kept,
    ends_text,
    guards_text,
    keep_budgets,
    line_of,
    line_text,
    read_rentals,
    rental_notes,
    watcher_note,
    with_machine,
    write_rental,
)
from hud_tui.settings import read_paths
from hud_tui.storage import tail
from hud_tui.tui.keys import KeyLine
from hud_tui.tui.screens.base import Aside, WritePolicy
from hud_tui.tui.screens.dialogs import ConfirmDialog, InputDialog, Leavable, Unlogged, show_notice
from hud_tui.tui.widgets.lines import labelled
from hud_tui.tui.widgets.table import DIM, Column, RowList, grown, item_row

READ_S = 2.0
"""Seconds between two reads of the files."""
SET_UPS = "machines"
"""Worker group of set-ups: they outlive screens, and the connection to the service."""
KEPT = 12
LOG_BYTES = 20_000
"""Bytes at the end of a set-up's log that are read."""
WIDEST = 40
"""Most cells of a column whose content is not cut."""
NAME_CELLS, MOST_NAME = 20, 40
"""Least width of a name, for which other columns are left out, and its largest width, cells."""
PANES = ("details", "set-up", "server")
"""Content of the pane below the list: details, the set-up's log, or the server's log."""
LOG_LINES, MOST_LINES = 4, 200
"""Lines of a log: beside the details, and in its own pane."""
_RENT = re.compile(r"\d{1,4}[x×][A-Za-z0-9_ -]+")
_NUMBER = r" *\d{1,9}(\.\d{1,3})? *"
_GPU = re.compile(",".join([_NUMBER] * 3))
"""Use in %, used memory and all memory of a GPU, MiB."""
ON_MACHINE = frozenset({"choose", "copy", "end", "next_view", "protect"})
EMPTY = "No machines but this one. Add one that you can ssh to, or rent one."


@dataclass(frozen=True)
class Entry:
    name: str
    machine: Machine | None
    rental: Rental | None
    line: Mapping[str, Any]
    used: bool
    log: tuple[str, ...] = ()
    """The end of its set-up's output."""
    models: tuple[str, ...] = ()
    """Models made there, if it is in use."""
    guards: str = ""
    """Who ends it, if it is rented, and when they last spoke."""
    ahead_s: float = 0.0
    """Seconds by which this machine's clock is ahead of Prime's."""

    @property
    def pulse(self) -> Mapping[str, Any]:
        """What the tunnel's process read there last."""
        return self.line.get("pulse") or {}

    @property
    def state(self) -> tuple[str, str]:
        """Its state, and the style of that."""
        if self.rental is not None and not self.rental.id:
            return "unclear", "bold $warning"
        if self.machine is None:
            done = self.rental is not None and self.rental.done
            return ("rented", "") if done else ("not set up", "bold $warning")
        if not self.machine.ready:
            return "not set up", "bold $warning"
        if not self.used:
            return "ready", "$text-muted"
        shown = one_line(self.line.get("state") or "connecting", 20)
        return f"used, {shown}", "bold $accent" if shown == "up" else "bold $warning"


def read_entries(machines: Machines) -> list[Entry]:
    """All machines and rentals, in alphabetical order. Raises HudUsage: a file cannot be read."""
    by_name = {machine.name: machine for machine in machines.all()}
    rentals = {rental.name: rental for rental in read_rentals(machines.state) if rental.runs}
    used, ahead = machines.used(), ahead_s(machines.state)
    now = time() - ahead
    return [
        Entry(
            name,
            by_name.get(name),
            rentals.get(name),
            machines.line(name),
            name == used,
            tuple(tail(machines.folder_of(name) / LOG, LOG_BYTES).splitlines()[-MOST_LINES:]),
            guards=guards_text(machines.state, rentals[name], now) if name in rentals else "",
            ahead_s=ahead,
        )
        for name in sorted({*by_name, *rentals})
    ]


def _gpus(entry: Entry) -> str:
    machine, rental = entry.machine, entry.rental
    rented = "" if rental is None else rental.gpus
    return one_line(rented if machine is None else machine.facts.gpu_label, 20)


def _model(entry: Entry) -> str:
    return "" if entry.machine is None else one_line(entry.machine.model, 40)


def _price(entry: Entry) -> str:
    return "" if entry.rental is None else f"{entry.rental.price_hr:.2f}"


def columns_at(now: float) -> Sequence[Column[Entry]]:
    """Of the list, at a time in Unix seconds."""

    def spent(entry: Entry) -> str:
        return "" if entry.rental is None else f"{entry.rental.spent(now - entry.ahead_s):.2f}"

    return (
        Column("", 0, lambda entry: "▶" if entry.used else " ", "$accent", most=1),
        Column("machine", 0, lambda entry: one_line(entry.name, 60), "bold"),
        Column("GPUs", 0, _gpus, rank=1, most=20),
        Column("state", 0, lambda entry: Content.styled(*entry.state), most=WIDEST),
        Column("GPU use", 0, lambda entry: gpu_use(entry.pulse), rank=3, most=WIDEST),
        Column("model", 0, _model, DIM, rank=4, most=40),
        Column("$/h", 0, _price, right=True, rank=2, most=WIDEST),
        Column("spent", 0, spent, "bold $warning", right=True, most=WIDEST),
    )


def gpu_use(pulse: Mapping[str, Any]) -> str:
    """E.g. ``87 %, 41 of 80 GB``: all GPUs together; empty without one."""
    lines = (text for text in pulse.get("gpus") or () if isinstance(text, str))
    gpus = [[float(word) for word in text.split(",")] for text in lines if _GPU.fullmatch(text)]
    if not gpus:
        return ""
    uses, used, total = map(sum, zip(*gpus, strict=True))
    memory = f"{used / 1024:.0f} of {total / 1024:.0f} GB"
    return f"{percent(uses / len(gpus) / 100)}, {memory}"


def entry_text(entry: Entry, steps: Sequence[str], now: float) -> Iterator[Content]:
    """Everything known about a machine at a time in Unix seconds, then its set-up's messages: of
    the running one, else the end of its log."""
    if entry.machine is not None:
        yield from _machine_text(entry, entry.machine)
    if entry.used:
        yield from _line_text(entry, now)
    if entry.rental is not None:
        yield from _rental_text(entry, entry.rental, now - entry.ahead_s)
    for text in steps or entry.log[-LOG_LINES:]:
        yield Content.styled(one_line(text, 300), "$text-muted")


def _machine_text(entry: Entry, machine: Machine) -> Iterator[Content]:
    facts = machine.facts
    yield _field("address", str(machine.address))
    yield _field("hardware", "; ".join(facts.lines()[:2]))
    yield _field("trains", " ".join(filter(None, (machine.engine, machine.model))))
    if entry.models:
        yield _field("models", ", ".join(entry.models))
    yield _field("folder", machine.root)
    if not machine.ready:
        done = ", ".join(machine.done) or "nothing"
        yield _field("set-up", f"not complete: {done} done · {key('machines.choose')} continues")


def _line_text(entry: Entry, now: float) -> Iterator[Content]:
    line, free = entry.line, entry.pulse.get("free_kb")
    breaks = counted(int(line.get("breaks") or 0), "break")
    yield _field("tunnel", f"{line_text(line, now)}, {breaks}")
    disk = f"{size(free * 1024)} of disk free" if isinstance(free, int) else ""
    if there := " · ".join(filter(None, (gpu_use(entry.pulse), disk))):
        yield _field("now", there)


def _rental_text(entry: Entry, rental: Rental, now: float) -> Iterator[Content]:
    spot = f"{rental.gpus} at {rental.provider}" if rental.provider else rental.gpus
    told = f"; Prime's {rental.id}" if rental.id else ""
    yield _field("rented", f"{spot}, {age(rental.at, now)} ago{told}")
    spent = f"${rental.spent(now):.2f} of at most ${rental.most:.2f}"
    late = " · over its budget" if now > rental.deadline else ""
    yield _field("costs", f"{rental.price}, {spent}{late}")
    yield _field("ends", f"{_ends(rental, now, entry.ahead_s)}; {entry.guards}")
    for note, _ in filter(None, (*rental_notes(rental), watcher_note(rental, now))):
        yield Content.styled(one_line(f"⚠ {note}", 300), "$warning")
    if rental.protected:
        yield _field("", "protected: its name is asked for before it is terminated")


def _ends(rental: Rental, now: float, ahead: float) -> str:
    """When it ends: by its hours, by its watcher, or because nobody goes on with its set-up."""
    until = ends_text(rental, now, ahead).partition(",")[0]
    if not rental.idle_min:
        return f"{until}, used or not"
    if rental.watched:
        return f"{until}, or after {rental.idle_min} min without use"
    return f"{until}, or after {rental.idle_min} min if its set-up is not continued"


def _field(name: str, value: str) -> Content:
    return labelled(9, name, one_line(value, 300))


def aside(state: Path | None, now: float, name: str = "") -> Aside:
    """The top line's parts about the machine that the open service is on, and about costs.

    Args:
        state: The state directory.
        now: Unix seconds.
        name: The machine; empty: this one, or HUD. Another program can put another one in use
            meanwhile, which does not change what is open here.
    """
    if state is None:
        return Aside()
    try:
        rentals = read_rentals(state)
        open_on = machines_in(state).get(name) if name else None
    except HudUsage:
        return Aside(warning="⚠ machines: a file is unreadable")
    costs, guard = _costs(state, [rental for rental in rentals if rental.runs], now)
    if open_on is None:
        return Aside(warning=costs, guard=guard)
    machine = f"{find_engine(open_on.engine).speaks} @ {one_line(open_on.label, 60)}"
    line = line_of(state, name)
    broken = _broken(line, now)
    if not broken:
        return Aside(machine, " · ".join(_load(line)), costs, guard=guard)
    text = " · ".join(filter(None, (broken, costs)))
    brief = " · ".join(filter(None, (broken, costs.partition(" at ")[2])))
    return Aside(machine, warning=text, brief=brief, guard=guard)


def _broken(line: Mapping[str, Any], now: float) -> str:
    """That a tunnel is not up, and since when; empty if it is."""
    if line.get("state") == "up":
        return ""
    since = age(line.get("since"), now) if line.get("since") else "now"
    return one_line(f"⚠ {one_line(line.get('state') or 'no tunnel', 20)} {since}", 60)


def _load(line: Mapping[str, Any]) -> Iterator[str]:
    """A tunnel's latency, and the use of the GPUs and the disk at its end, as far as known."""
    pulse = line.get("pulse") or {}
    if isinstance(line.get("latency_s"), int | float):
        yield f"{line['latency_s'] * 1000:.0f} ms"
    if text := gpu_use(pulse):
        yield text
    if isinstance(pulse.get("free_kb"), int):
        yield f"{size(pulse['free_kb'] * 1024)} free"


def _costs(state: Path, running: Sequence[Rental], wall: float) -> tuple[str, str]:
    """What rented machines cost and until when at most, e.g. ``$1.20 at $4.20/h to 18:40``; and
    which guard spoke last and when, e.g. ``guard pod 12 s``: as `guards_text`, of the machine whose
    guards have been silent for longest."""
    if not running:
        return "", ""
    ahead = ahead_s(state)
    now = wall - ahead
    sums = totals(running, now)
    last = max(rental.deadline for rental in running)
    until = f"to {clock_text(last + ahead, wall)}"
    costs = f"${sums['running']:.2f} at ${sums['per_hour']:.2f}/h"
    here = budget_found(state).get("at") if budget_kept(state, now) else None
    here = here if isinstance(here, int | float) else 0.0
    spoke, who = min(max((here, "here"), (rental.heard_at, "pod")) for rental in running)
    guard = f"guard {who} {age(spoke, now)}" if now - spoke < SILENT_S else "unguarded"
    return f"{costs} {'over budget' if now > last else until}", guard


# Setting up and renting, as workers of the app.


class SetUps:
    """The app's set-ups: their messages, and which are running."""

    def __init__(self, app: App[None], machines: Machines, reopen: Callable[[], object]) -> None:
        """`reopen`: connects to the service again, after another machine was put in use."""
        self._app, self._machines, self._reopen = app, machines, reopen
        self.lines: dict[str, deque[str]] = {}
        self.busy: set[str] = set()

    def add_line(self, name: str, text: str) -> None:
        self.lines.setdefault(name, deque(maxlen=KEPT)).append(text)

    def begin(self, text: str) -> None:
        self._app.run_worker(self._begin(text), group=SET_UPS)

    async def _begin(self, text: str) -> None:
        try:
            if _RENT.fullmatch(text):
                await self._rent(text)
            else:
                await self._add(read_address(text), Wish())
        except HudError as error:
            self.add_line("", f"✘ {error.message}")
            raise

    async def _add(
        self, address: Address, wish: Wish, package: str = "", asks: bool = True
    ) -> None:
        machine = await describe(self._machines, address, wish)
        name = machine.name
        with self._machines.alone(name):
            setup = Setup(self._machines, machine, partial(self._report, name), package)
            async with aclosing(setup):
                plan = await setup.plan()
                todo = [step.about for step, there in plan if not there]
                about = find_engine(machine.engine).about
                lines = [*machine.facts.lines(), f"{machine.engine}: {about}"]
                lines += [f"· {step}" for step in todo]
                lines += ["No secrets are sent: hud-tui remote add … --send HF_TOKEN sends one."]
                lines = [one_line(line, 200) for line in lines]
                dialog = ConfirmDialog(f"Set up {name}", lines, "Set up")
                if asks and not await self._app.push_screen_wait(dialog):
                    return
                self.busy.add(name)
                try:
                    await setup.run({})
                finally:
                    self.busy.discard(name)
        if asks:
            self.log("remote", "add", str(address), f"--name={name}", "-y")
        show_notice(self._app, f"{name} is set up")

    def _report(self, name: str, report: StepReport) -> None:
        if report.state != "check":
            mark = {"done": "✔", "there": "✔", "failed": "✘"}.get(report.state, "…")
            count = f"{report.number}/{report.total} " if report.total else ""
            self.add_line(name, f"{mark} {count}{report.step}: {report.text}")

    async def _rent(self, text: str) -> None:
        count, gpu = read_gpus(text)
        if (left := await to_thread(begun, self._machines, self.busy)) is not None:
            about = f"{left.name} ({left.gpus}) is rented already, and not set up."
            lines = [about, f"It costs {left.price}."]
            title, other = "A machine is not set up yet", "Rent another"
            dialog = ConfirmDialog(title, lines, "Continue its set-up", keep=other)
            if await self._app.push_screen_wait(dialog):
                await self._carry_on(left)
                return
        async with open_prime(self._machines.state) as prime:
            request, warnings = await choose(prime, Filter(count, gpu))
            title, lines = (
                f"Rent it, for at most ${request.most:.2f}",
                [*request.lines(), *warnings],
            )
            if not await self._app.push_screen_wait(ConfirmDialog(title, lines, "Rent")):
                return
            rental = await self._pods(prime, "").rent(request)
        self.log("pods", "create", f"--name={rental.name}", f"--gpus={text}", "-y")
        show_notice(self._app, request.dearer(rental) or f"rented {rental.name}")
        await self._carry_on(rental)

    def _pods(self, prime: Prime, name: str) -> Pods:
        state = self._machines.state
        paths = with_machine(read_paths(str(state)))
        report = partial(self.add_line, name)
        return Pods(prime, state, report, lambda: keep_budgets(paths, prime_now(state)))

    def use(self, machine: Machine | None) -> None:
        self._app.run_worker(self._use(machine), exclusive=True, group="use")

    async def _use(self, machine: Machine | None) -> None:
        paths = read_paths(str(self._machines.state))
        if machine is None:
            await unuse(self._machines, paths)
            self.log("remote", "use", "--off")
        else:
            show_notice(self._app, f"{machine.name}: connecting")
            await use(self._machines, machine, paths, partial(self.add_line, machine.name))
            self.log("remote", "use", machine.name)
        self._reopen()

    def go_on(self, entry: Entry) -> None:
        """Resume an incomplete set-up, or an interrupted rental."""
        self._app.run_worker(self._go_on(entry), group=SET_UPS)

    async def _go_on(self, entry: Entry) -> None:
        if entry.rental is not None:
            await self._carry_on(entry.rental)
            self.log("pods", "setup", entry.name, "-y")
        elif entry.machine is not None:
            await self._add(entry.machine.address, Wish(entry.name))

    async def _carry_on(self, rental: Rental) -> None:
        """All steps from a requested pod to one that trains."""
        name = rental.name
        self.busy.add(name)
        try:
            with self._machines.alone(name, WORK):
                async with open_prime(self._machines.state) as prime:
                    key = rental.key or prime.settings.ssh_key
                    pods = self._pods(prime, name)
                    address = await pods.reach(rental, self._machines.ssh_to, key)
                rental = find_rental(read_rentals(self._machines.state), name)
                if "bare" not in rental.wish:
                    package = rental.wish.get("package", "")
                    await self._add(address, wish_of(rental), package, asks=False)
                write_rental(self._machines.state, rental, done=True)
        except HudError as error:
            if self._machines.busy(name, WORK):
                raise
            await self._offer_to_terminate(rental, error)
        finally:
            self.busy.discard(name)

    async def _offer_to_terminate(self, rental: Rental, error: HudError) -> None:
        name = rental.name
        said = [*self.lines.get(name, ())]
        before = [text for text in said if error.message not in text]
        if before == said:  # no step said so
            self.add_line(name, f"✘ {error.message}")
        lines = [error.message, f"{name} costs {rental.price}."]
        lines += [one_line(text, 200) for text in before]
        dialog = ConfirmDialog(f"{name} failed", lines, "Terminate", danger=True, keep="Keep")
        if await self._app.push_screen_wait(dialog):
            await self.terminate(rental)

    def log(self, *words: str) -> None:
        """Add an action to the command log, as the command that repeats it."""
        log = CommandLog(self._machines.state, "app")
        if why := log.add(command_entry(time(), words)):
            self._app.post_message(Unlogged(why))

    async def terminate(self, rental: Rental) -> None:
        async with open_prime(self._machines.state) as prime:
            ended = await Pods(prime, self._machines.state).end(rental, rental.name)
        self.log("pods", "terminate", rental.name, f"--confirm={rental.name}", "-y")
        self._forget(
            rental.name,
            f"was terminated; it cost ${ended.spent(prime_now(self._machines.state)):.2f}",
        )

    def _forget(self, name: str, end: str) -> None:
        """Forget a machine, and say so; if it was in use, this one is."""
        was_used = self._machines.used() == name
        self._machines.forget(name)
        more = "; it was used: training is on this machine again" if was_used else ""
        show_notice(self._app, f"{name} {end}{more}")
        if was_used:
            self._reopen()

    async def remove(self, machine: Machine) -> None:
        with self._machines.alone(machine.name):
            setup = Setup(self._machines, machine, partial(self._report, machine.name))
            async with aclosing(setup):
                await setup.undo()
        self.log("remote", "remove", machine.name, "-y")
        self._forget(machine.name, "was removed")


class MachinesScreen(Leavable[None]):
    VIEW = "machines"

    def __init__(
        self,
        state: Path,
        set_ups: SetUps,
        writes: WritePolicy,
        clock: Callable[[], float],
        models: Callable[[], tuple[str, ...]],
    ) -> None:
        """`clock` gives Unix seconds; `models` the names of those on the machine in use."""
        super().__init__()
        self._machines, self._set_ups = machines_in(state), set_ups
        self._writes, self._clock, self._models = writes, clock, models
        self._entries: list[Entry] | None = None
        self._trouble = ""
        """Why the machines' files cannot be read."""
        self._pane = PANES[0]
        self._server_log: dict[str, list[str]] = {}
        """The end of each server's log, as last read."""
        self.list = RowList(columns_at(0.0), id="machines", least=NAME_CELLS)

    def compose(self) -> ComposeResult:
        yield Static(id="machines-title", markup=False)
        yield self.list
        yield Static(id="machines-text", markup=False)
        yield KeyLine(self.VIEW)

    def on_mount(self) -> None:
        self.list.focus()
        self.set_interval(READ_S, self.read)
        self.read()

    @property
    def entry(self) -> Entry | None:
        return next((entry for entry in self._entries or () if entry.name == self.list.key), None)

    @work(exclusive=True, group="read")
    async def read(self) -> None:
        try:
            entries, self._trouble = await to_thread(read_entries, self._machines), ""
            self._entries = [
                replace(entry, models=self._models()) if entry.used else entry for entry in entries
            ]
        except HudUsage as error:
            self._entries, self._trouble = [], f"{error.message}: {error.hint}"
        self.show()

    def show(self) -> None:
        entries, now = self._entries or [], self._clock()
        all_columns = columns_at(now)
        rows = [item_row(all_columns, entry.name, entry) for entry in entries]
        columns, rows = grown(all_columns, rows)
        self.list.most = min(MOST_NAME, max([NAME_CELLS, *(len(entry.name) for entry in entries)]))
        self.list.lay(columns)
        self.list.show(rows)
        rentals = [entry.rental for entry in entries if entry.rental is not None]
        count = (f"  {counted(len(entries), 'machine')}" * bool(entries), "$text-muted")
        costs = "".join(f" · {part}" for part in _costs(self._machines.state, rentals, now) if part)
        title = Content.assemble((" Machines", "bold"), count, (costs, "bold $warning"))
        self.query_one("#machines-title", Static).update(title)
        self._show_text()

    @on(RowList.Moved)
    def _show_text(self) -> None:
        entry = self.entry
        loose = [*self._set_ups.lines.get("", ())]
        text = Content.styled("\n".join([self._trouble or EMPTY, *loose]), "$text-muted")
        if entry is not None:
            text = Content("\n").join(self._pane_text(entry, loose[-1:]))
        self.query_one("#machines-text", Static).update(text)
        self.refresh_bindings()
        if line := self.query_one_optional(KeyLine):
            line.renew()

    def _pane_text(self, entry: Entry, loose: Sequence[str]) -> list[Content]:
        """The pane's text; the end of a log is shortened to the room there is."""
        room = max(3, self.size.height // 2 - 3)
        if self._pane == "details":
            steps = [*self._set_ups.lines.get(entry.name, ()), *loose]
            details = [*entry_text(entry, steps[-max(LOG_LINES, room // 2) :], self._clock())]
            return ended(details, self.size.width - 4, room + 1) if steps else details
        read = self._pane == "set-up" or entry.name in self._server_log
        lines = entry.log if self._pane == "set-up" else self._server_log.get(entry.name, ())
        title = Content.styled(f"{one_line(entry.name, 40)}: the {self._pane}'s log", "bold")
        none = "it is empty" if read else "reading …"
        shown = [one_line(text, 300) for text in lines[-room:]] or [none]
        return [title, *(Content.styled(text, "$text-muted") for text in shown)]

    def hints(self, actions: Sequence[Action]) -> Sequence[Action]:
        """The keys of the last line; that of `choose` by what it does with this row."""
        entry, does = self.entry, "use"
        if entry is not None and (entry.machine is None or not entry.machine.ready):
            does = "finish set-up"
        elif entry is not None and entry.used:
            does = "train here"
        return [
            replace(action, label=does) if action.name == "choose" else action for action in actions
        ]

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool:
        entry = self.entry
        if action == "protect":
            return entry is not None and entry.rental is not None
        return action not in ON_MACHINE or entry is not None

    @on(RowList.Opened)
    @work(exclusive=True, group="use")
    async def action_choose(self) -> None:
        """Train on the machine, or on this one again; resume an incomplete set-up."""
        entry = self.entry
        if entry is None or not self._writes.may_change():
            return
        if entry.machine is None or not entry.machine.ready:
            if entry.name in self._set_ups.busy or self._machines.busy(entry.name):
                show_notice(self.app, f"{entry.name} is being set up")
            else:
                self._set_ups.go_on(entry)
            return
        self._set_ups.use(None if entry.used else entry.machine)

    @work(exclusive=True, group="add")
    async def action_add(self) -> None:
        """Ask for an address, or for GPUs to rent, and set up that machine."""
        if not self._writes.may_change():
            return
        lines = [
            "A machine that you can ssh to: gpubox, or me@10.0.0.7 -p 2222.",
            "Or GPUs to rent from Prime Intellect: 1xH100. What it costs is shown first.",
        ]
        example = "gpubox, me@10.0.0.7 -p 2222, or 1xH100"
        title = "Add a machine"
        dialog = InputDialog(title, lines, "Check it", check=_wrong, placeholder=example)
        if text := await self.app.push_screen_wait(dialog):
            self._set_ups.begin(text.strip())

    @work(exclusive=True, group="end")
    async def action_end(self) -> None:
        entry = self.entry
        if entry is None or not self._writes.may_change():
            return
        if entry.rental is not None:
            lines = [f"It costs {entry.rental.price}.", "What is on it is lost."]
            dialog = ConfirmDialog(f"Terminate {entry.name}", lines, "Terminate", danger=True)
            sure = entry.rental.protected or await self.app.push_screen_wait(dialog)
            if entry.rental.protected:
                sure = await self._writes.type_name(entry.name, "terminate it")
            if sure:
                await self._set_ups.terminate(entry.rental)
        elif entry.machine is not None:
            lines = [f"Its server is stopped, and {entry.machine.root} removed there."]
            dialog = ConfirmDialog(f"Remove {entry.name}", lines, "Remove", danger=True)
            if await self.app.push_screen_wait(dialog):
                await self._set_ups.remove(entry.machine)
        self.read()

    @work(exclusive=True, group="protect")
    async def action_protect(self) -> None:
        if (entry := self.entry) is None or (rental := entry.rental) is None:
            return
        if rental.protected and not await self._writes.type_name(entry.name, "unprotect it"):
            return
        write_rental(self._machines.state, rental, protected=not rental.protected)
        if not rental.protected:  # removing the protection has no command
            self._set_ups.log("pods", "protect", rental.name)
        self.read()

    @work(exclusive=True, group="ask")
    async def action_refresh(self) -> None:
        entry = self.entry
        if entry is not None and entry.machine is not None:
            ssh = self._machines.ssh(entry.machine)
            async with aclosing(ssh):
                facts = await fetch_facts(ssh, entry.machine.root)
            for text in facts.lines():
                self._set_ups.add_line(entry.name, text)
        if any(entry.rental for entry in self._entries or ()):
            async with open_prime(self._machines.state) as prime:
                await Pods(prime, self._machines.state).reconcile()
        self.read()

    @work(exclusive=True, group="log")
    async def action_next_view(self) -> None:
        self._pane = PANES[(PANES.index(self._pane) + 1) % len(PANES)]
        self._show_text()
        entry = self.entry
        if self._pane == "server" and entry is not None and entry.machine is not None:
            setup = Setup(self._machines, entry.machine, patience_s=0)
            async with aclosing(setup):
                self._server_log[entry.name] = (await setup.log(MOST_LINES)).splitlines()
            self._show_text()

    def action_copy(self) -> None:
        entry = self.entry
        if entry is not None and entry.machine is not None:
            key = f"-i {entry.machine.address.key} " if entry.machine.address.key else ""
            ssh = self._machines.ssh(entry.machine)
            self.app.copy_to_clipboard(f"ssh {key}{ssh.by_hand}")

    def action_leave(self) -> None:
        self.dismiss()


def ended(lines: Sequence[Content], width: int, room: int) -> list[Content]:
    """The last lines that fit into so many rows of so many cells: what happens now is last."""
    kept: list[Content] = []
    for line in reversed(lines):
        room -= len(line.wrap(width)) or 1
        if room < 0:
            break
        kept.insert(0, line)
    return kept


def _wrong(text: str) -> str:
    """What is wrong with the input; empty if it is valid."""
    if _RENT.fullmatch(text.strip()):
        return ""
    try:
        read_address(text)
    except HudUsage as error:
        return one_line(error.message, 100)
    return ""
