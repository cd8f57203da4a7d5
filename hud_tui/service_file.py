"""Files about running services, the machine in use, and rentals; for their owner only.

service.json names a running embedded service and contains its key. Every service writes one into
its data directory, where programs that use the directory find it. The one in the state directory
names the service that runs in the background, or was started without --data-dir; if the two
directories are the same, so are the files.
"""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal
from urllib.parse import urlsplit

from pydantic import ValidationError

from hud_tui.build import is_other
from hud_tui.errors import HudUsage
from hud_tui.processes import boot_id, boot_s, holder
from hud_tui.rl.text import age, clock_text, one_line
from hud_tui.settings import REMOTES, Paths, every_variable
from hud_tui.storage import (
    NotPrivate,
    change_atomic,
    is_held,
    locked,
    open_or_make,
    read_object,
    read_private,
    read_regular,
    write_atomic,
)
from hud_tui.wire import Body, Response

LOCK = "service.lock"
"""File in the data directory that its service keeps locked; it contains the process id."""
MOST_BYTES = 1 << 16
"""Maximum bytes of a service.json."""


class ServiceReady(Response):
    """The line that ``hud-tui serve`` prints when it is ready, and the content of service.json."""

    url: str
    api_key: str
    telemetry_url: str
    pid: int
    data_dir: str
    tls_url: str = ""
    """Where other machines call it, with TLS; empty without. Programs of this machine call `url`,
    which is on loopback."""
    data_id: str = ""
    """Id of the data directory, wherever it lies; empty if an older version serves it."""
    version: str = ""
    """Of the hud-tui that serves; empty for those that do not say it."""
    build: str = ""
    """`build.digest` of its files when it started."""
    package: str = ""
    """Where they lie."""
    began: float = 0.0
    """When it started, Unix seconds."""

    @property
    def is_other(self) -> bool:
        """Whether another hud-tui than this one serves: another version, or other files."""
        return is_other(self.version, self.build, self.package, self.began)


class ServicePlace(Body):
    """How a service is found again, whatever its address is by then."""

    mode: Literal["local", "host", "hud"]
    """By its data directory, by its URL with the stored key, or by HUD's variables."""
    host: str = ""
    """With mode ``host``, the URL of the service elsewhere."""
    data_dir: str
    """Data directory of the embedded service, with mode ``local``: where it was last."""
    service: str = ""
    """`HudClient.service_id` of the service, of a sink its origin; empty: not known."""


@contextmanager
def usable_directories() -> Iterator[None]:
    """Convert an OSError about a file or directory into an error that names it. Raises HudUsage:
    instead of an OSError."""
    try:
        yield
    except OSError as error:
        path = error.filename2 or error.filename or "a file"
        raise HudUsage(
            f"{one_line(path)}: {one_line(error.strerror or error)}",
            "choose writable directories: --state-dir, --data-dir",
        ) from error


def register(file: Path, ready: ServiceReady) -> None:
    write_atomic(file, _line(ready))


def offer(file: Path, ready: ServiceReady) -> None:
    """`register`, unless the file names a running service of another data directory. Raises
    HudUsage: as `read_ready`."""

    def change() -> str | None:
        other = read_ready(file)
        if other is None or not is_serving(other) or same_directory(other, Path(ready.data_dir)):
            return _line(ready)
        return None

    change_atomic(file, change)


def forget(file: Path, pid: int) -> None:
    """Remove a service.json that names this process; an invalid one is kept."""
    if not file.exists():
        return
    with locked(file.parent), suppress(HudUsage):
        ready = read_ready(file)
        if ready is not None and ready.pid == pid:
            file.unlink(missing_ok=True)


def read_ready(file: Path) -> ServiceReady | None:
    """The content of a service.json; None if there is none. Raises HudUsage: it is not as a service
    wrote it, or others can read it, although it has a key."""
    try:
        ready = ServiceReady.model_validate_json(read_private(file, MOST_BYTES))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise HudUsage(f"{one_line(file)}: {error.strerror or error}", _fix(file, error)) from error
    except ValidationError:
        ready = None
    if ready is None or not _is_whole(ready):
        hint = "remove it; a running service must then be restarted to be found"
        raise HudUsage(f"{one_line(file)}: not written by a hud-tui service", hint) from None
    return ready


def is_serving(ready: ServiceReady) -> bool:
    """Whether a service runs: its process holds the lock of its data directory."""
    serving = holder(Path(ready.data_dir) / LOCK)
    return serving is not None and serving.pid == ready.pid


def url_of(data_dir: Path) -> str | None:
    """Where the service of a data directory runs; None if none is known to."""
    try:
        ready = read_ready(data_dir / "service.json")
    except HudUsage:
        return None
    return ready.url if ready is not None and is_serving(ready) else None


def is_daemon(pid: int) -> bool:
    """Whether a process is a service that `--local` started in the background, as far as the system
    tells."""
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    return b"hud_tui.service" in command


def same_directory(ready: ServiceReady, data: Path) -> bool:
    return Path(ready.data_dir).resolve() == data.resolve()


def named(paths: Paths) -> list[tuple[Path, ServiceReady]]:
    """Each service.json with its content, that of the data directory's service first. Raises
    HudUsage: as `read_ready`."""
    files = dict.fromkeys((paths.service_file, paths.serving_file))
    services = [(file, ready) for file in files if (ready := read_ready(file)) is not None]
    return sorted(services, key=lambda pair: not same_directory(pair[1], paths.data))


def _is_whole(ready: ServiceReady) -> bool:
    """Whether its values are plausible: URLs, process id and key."""
    try:
        parts = [urlsplit(url) for url in (ready.url, ready.telemetry_url)]
        urls = all(url.scheme == "http" and url.hostname and url.port != 0 for url in parts)
    except ValueError:
        urls = False
    key = ready.api_key
    return urls and 0 < ready.pid < 2**31 and key.isascii() and key.isprintable()


def _line(ready: ServiceReady) -> str:
    return ready.model_dump_json() + "\n"


def _fix(file: Path, error: OSError) -> str:
    if isinstance(error, NotPrivate) and not file.is_symlink():
        return f"chmod 600 {one_line(file)}; whoever read it has the service's key: service.key"
    if isinstance(error, PermissionError):
        return "it belongs to another user: use your own directories, --state-dir and --data-dir"
    return "remove it, or use other directories: --state-dir, --data-dir"


# The machine in use instead of this one: `hud-tui remote use`.


USED, KEY, LINE, KEEPER = "used.json", "key", "line.json", "keeper"
"""In the folder of the machines: a file that names the one in use; in that of each its key, the
state of its tunnel, and the lock of the process that keeps it."""


@dataclass(frozen=True)
class Used:
    """The machine in use, which is reached through a tunnel that ends on this machine."""

    name: str
    label: str
    """E.g. ``gpubox · 2×H100``."""
    url: str
    """URL of its server at this end of the tunnel."""
    speaks: str
    """``tinker``: the service on this machine trains through it; ``hud``: it runs a whole
    service."""
    files: str = ""
    """Folder on this machine with the small files of its model."""
    key: str = field(default="", repr=False)


def use_machine(state: Path, used: Used | None) -> None:
    """Use a machine from now on; None for this one. Its key is stored separately."""
    file = state / REMOTES / USED
    if used is None:
        file.unlink(missing_ok=True)
    else:
        write_atomic(file, json.dumps(asdict(replace(used, key=""))))


def used_machine(state: Path) -> Used | None:
    """The machine in use; None for this one. Raises HudUsage: the file is invalid, or others can
    read the machine's key."""
    folder = state / REMOTES
    try:
        used = Used(**json.loads(read_regular(folder / USED, MOST_BYTES)))
        if not (used.name and used.url and Path(used.name).name == used.name):
            raise ValueError
        key = read_private(folder / used.name / KEY, MOST_BYTES)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError, TypeError) as error:
        why = f": {one_line(error.strerror)}" if isinstance(error, OSError) else ""
        hint = "hud-tui remote use --off, then use it again"
        raise HudUsage(f"{one_line(folder / USED)} cannot be used{why}", hint) from error
    return replace(used, key=key.decode("ascii", "replace").strip())


HEARD_S = 20.0
"""Seconds after which an answer, or a sign of life, says nothing about now."""


def line_of(state: Path, name: str) -> dict[str, Any]:
    """State of a machine's tunnel, as the process that keeps it wrote it last; empty if it never
    ran. It is ``up`` only if something came through it within `HEARD_S`."""
    line = read_object(state / REMOTES / name / LINE)
    if not line:
        return line
    if line.get("boot") != boot_id() or not _is_fresh(line.get("beat")):
        kept = holder(keeper_lock(state, name)) is not None
        why = "the process that keeps it has said nothing since" if kept else "nothing keeps it"
        return {**line, "state": "unknown" if kept else "not open", "why": why}
    if line.get("state") == "up" and not _is_fresh(line.get("heard")):
        return {**line, "state": "silent", "why": "nothing came through it lately"}
    return line


def write_line(state: Path, name: str, line: Mapping[str, Any]) -> None:
    """Write the state of a machine's tunnel, with the time on `boot_s`."""
    content = json.dumps({"heard": boot_s(), **line, "beat": boot_s(), "boot": boot_id()})
    write_atomic(state / REMOTES / name / LINE, content)


def _is_fresh(stamp: object) -> bool:
    """Whether a time of `boot_s` was in the last seconds."""
    return isinstance(stamp, int | float) and 0 <= boot_s() - stamp < HEARD_S


def keeper_lock(state: Path, name: str) -> Path:
    """The lock of the process that keeps a machine's tunnel."""
    return state / REMOTES / name / f"{KEEPER}.lock"


def line_text(line: Mapping[str, Any], now: float) -> str:
    """State of a tunnel as text, e.g. ``up, 23 ms`` or ``broken for 2 m: the line broke``."""
    state, took = one_line(line.get("state") or "not open", 20), line.get("latency_s")
    if state == "up":
        return f"up, {took * 1000:.0f} ms" if isinstance(took, int | float) else "up"
    since = line.get("since")
    past = f" for {age(since, now)}" if isinstance(since, int | float) and since else ""
    why = one_line(line.get("why") or "", 200)
    return f"{state}{past}" + (f": {why}" if why and why != state else "")


def keep_line(paths: Paths, name: str) -> None:
    """Start the process that keeps the tunnel to a machine, unless it is running."""
    if holder(keeper_lock(paths.state, name)) is None:
        for directory in (paths.state, paths.data):
            directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        module = ["hud_tui.remote.keeper", str(paths.state), str(paths.data), name]
        daemon(paths.service_log, module).wait()


GUARD_S = 2.0
"""Seconds between two looks at the process that keeps a tunnel."""


async def guard_line(paths: Paths, name: str, for_good: bool = False) -> None:
    """Start the process that keeps a machine's tunnel again whenever it has ended, as long as the
    machine is in use; with `for_good` as long as it is known, as for the service that trains
    through it."""
    folder = keeper_lock(paths.state, name).parent
    while True:
        with suppress(OSError, HudUsage):
            used = used_machine(paths.state)
            if folder.is_dir() and (for_good or (used is not None and used.name == name)):
                await asyncio.to_thread(keep_line, paths, name)
        await asyncio.sleep(GUARD_S)


def daemon(
    log: Path,
    module: Sequence[str],
    environment: Mapping[str, str] = MappingProxyType({}),
    stdout: int | None = None,
) -> subprocess.Popen[bytes]:
    """Start one of this package's modules in the background; it works in the folder of its log,
    which also gets its output, except where `stdout` says else."""
    with open(open_or_make(log, os.O_APPEND), "ab") as logged:
        return subprocess.Popen(
            ["sh", "-c", '"$@" &', "sh", sys.executable, "-P", "-m", *module],
            stdin=subprocess.DEVNULL,
            stdout=logged if stdout is None else stdout,
            stderr=logged,
            cwd=log.parent,
            start_new_session=True,
            env={**os.environ, **environment},
        )


def with_machine(paths: Paths) -> Paths:
    """The directories for the machine in use. Each machine has a data directory of its own, because
    a checkpoint made on one cannot be trained on another."""
    used = used_machine(paths.state)
    if used is None or used.name == machine_in(paths.data):
        return paths
    return replace(paths, data=paths.data / REMOTES / used.name)


def machine_of(paths: Paths) -> Used | None:
    """The machine in use, if these are its directories; else None."""
    used = used_machine(paths.state)
    return used if used is not None and used.name == machine_in(paths.data) else None


def machine_in(data: Path) -> str:
    """Name of the machine that a data directory belongs to; empty for this machine's own."""
    return data.name if data.parts[-2:-1] == (REMOTES,) else ""


# Rentals, stored before they are requested, so that no running pod is forgotten.


RENTALS = "rentals.json"
"""File in the folder of the machines."""


@dataclass(frozen=True)
class Rental:
    """A machine that is rented by the hour, was rented, or may have been."""

    name: str
    """Created before the request."""
    id: str = ""
    """Prime's id; empty while it is unknown whether it was rented."""
    gpus: str = ""
    """E.g. ``2×H100_80GB``."""
    provider: str = ""
    price_hr: float = 0.0
    """Dollars per hour."""
    hours: float = 0.0
    """Hours after which it is terminated."""
    idle_min: int = 0
    """Minutes without use after which it terminates itself; 0: never."""
    at: float = 0.0
    """Time of the request, Unix seconds by Prime's clock, as all times here."""
    ended_at: float | None = None
    billed: float | None = None
    """Dollars billed by Prime, if known."""
    why: str = ""
    """Why it ended, or what is wrong with it."""
    protected: bool = False
    """Whether terminating it requires its name."""
    key: str = ""
    """Identity file for ssh; empty: that of the ``prime`` CLI."""
    wish: Mapping[str, str] = field(default_factory=dict)
    """How to set it up, a `Wish` of remote.engines; empty: only rent it."""
    watched: bool = False
    """Whether the watcher that terminates it is running on it."""
    done: bool = False
    """Whether its set-up is complete; until then `pods setup` continues it."""
    asked: str = ""
    """Name that Prime lists it under, which has a random part; empty: not known."""
    account: str = ""
    """What tells the key that it was rented with from others, and is none."""
    timed: bool = False
    """Whether `at` is by Prime's clock; if not, Prime's ``createdAt`` replaces it."""
    dollars: float = 0.0
    """Agreed maximum cost; 0: price times hours."""
    max_price: float | None = None
    """Dollars per hour above which it is to end at once; None: its hours shrink instead."""
    paid: float = 0.0
    """Dollars until `priced_at`, at other prices."""
    priced_at: float = 0.0
    """Since when `price_hr` is its price; 0: since `at`."""
    price_seen: float | None = None
    """Another price, which Prime said once."""
    stopped_hr: float | None = None
    """Dollars per hour while it is shut down, if Prime says."""
    status: str = ""
    """Its state as Prime last said, e.g. ``ACTIVE``."""
    missing: int = 0
    """Lists in a row that it was not in."""
    missing_at: float = 0.0
    """Time of the first of these."""
    address: str = ""
    """Where its ssh answered, e.g. ``root@1.2.3.4 -p 22``."""
    heard_at: float = 0.0
    """When its watcher last spoke; 0: never."""
    heard: str = ""
    """What is wrong with its watcher; empty: nothing."""

    @property
    def runs(self) -> bool:
        """Whether it costs money, or may."""
        return self.ended_at is None

    @property
    def unfinished(self) -> bool:
        """Whether it costs money but is not set up yet."""
        return self.runs and not self.done

    @property
    def deadline(self) -> float:
        """When its hours are over, or its dollars are spent, Unix seconds by Prime's clock."""
        hours = self.at + self.hours * 3600
        if self.price_hr <= 0:
            return hours
        left = max(0.0, self.most - self.paid) / self.price_hr * 3600
        return min(hours, (self.priced_at or self.at) + left)

    @property
    def most(self) -> float:
        """Maximum cost, dollars."""
        return self.dollars or self.price_hr * self.hours

    @property
    def price(self) -> str:
        """E.g. ``$4.20 per hour``."""
        return f"${self.price_hr:.2f} per hour"

    def costs(self, now: float) -> str:
        """E.g. ``$4.20 per hour, $1.20 so far``."""
        return f"{self.price}, ${self.spent(now):.2f} so far"

    def spent(self, now: float) -> float:
        """Cost until now in dollars, as billed by Prime or by the clock."""
        if self.billed is not None:
            return self.billed
        until = now if self.ended_at is None else self.ended_at
        return self.paid + self.price_hr * max(0.0, until - (self.priced_at or self.at)) / 3600


def read_rentals(state: Path) -> list[Rental]:
    """All rentals, oldest first. Raises HudUsage: the file is invalid."""
    file = state / REMOTES / RENTALS
    try:
        return [Rental(**rental) for rental in json.loads(read_regular(file, 1 << 24))["rentals"]]
    except (FileNotFoundError, NotADirectoryError):
        return []
    except (OSError, ValueError, TypeError, KeyError, RecursionError) as error:
        hint = "fix it, or remove it; hud-tui pods list shows what Prime knows"
        raise HudUsage(f"{one_line(file)} is not a list of rentals", hint) from error


def add_rental(state: Path, rental: Rental) -> Rental:
    """Store a new rental. Raises HudUsage: one of this name is stored, by another program too."""

    def added() -> str:
        rentals = read_rentals(state)
        if any(other.name == rental.name for other in rentals):
            hint = "choose another --name; hud-tui pods list shows it"
            raise HudUsage(f"a pod named {one_line(rental.name, 80)} was rented already", hint)
        return _rentals_text([*rentals, rental])

    change_atomic(state / REMOTES / RENTALS, added)
    return rental


def write_rental(state: Path, rental: Rental, **changes: Any) -> Rental:
    """Store a rental, and return it as stored: as it is if it is new, or if there are no `changes`;
    else the fields that are not changed keep the values of the file, which another program may have
    changed."""
    stored = rental

    def changed() -> str | None:
        nonlocal stored
        rentals = {other.name: other for other in read_rentals(state)}
        stored = replace(rentals.get(rental.name, rental), **changes) if changes else rental
        if rentals.get(rental.name) == stored:
            return None
        rentals[rental.name] = stored
        return _rentals_text(rentals.values())

    change_atomic(state / REMOTES / RENTALS, changed)
    return stored


def _rentals_text(rentals: Iterable[Rental]) -> str:
    return json.dumps({"version": 1, "rentals": [asdict(rental) for rental in rentals]})


MOST_CELLS = 80 - len("hud-tui: ")


def costs_text(state: Path, now: float, ahead_s: float = 0.0) -> str:
    """Lines about each pod that is rented: what it costs, until when it can cost, and who guards
    that; empty if nothing is rented. They fit 80 cells after the program's name, except for the
    command of a long name. `now`: Unix seconds by Prime's clock; `ahead_s`: by which this machine's
    clock is ahead of that."""
    running = [rental for rental in read_rentals(state) if rental.runs]
    lines = []
    for rental in running:
        costs = f", ${rental.spent(now):.2f} so far, ${rental.price_hr:.2f}/h"
        rented = "rented and costing money: "
        room = MOST_CELLS - len(rented + costs)
        name = one_line(rental.name, room if len(rental.name) <= room else max(8, room - 1))
        lines.append(f"{rented}{name}{costs}")
        ends, guards = ends_text(rental, now, ahead_s), guards_text(state, rental, now)
        fits = len(f"  {ends}; {guards}") <= MOST_CELLS
        lines += [f"  {ends}; {guards}"] if fits else [f"  {ends}", f"  {guards}"]
        lines += [f"  {note}: {fix}" for note, fix in rental_notes(rental)]
    if len(running) > 1:
        lines.append(f"${sum(rental.spent(now) for rental in running):.2f} in all")
    return "\n".join(map(one_line, lines))


def rental_notes(rental: Rental) -> list[tuple[str, str]]:
    """What is not as it should be with a pod that runs, each with what to do about it."""
    notes = []
    if rental.status == "STOPPED":
        costs = "may still cost"
        if rental.stopped_hr is not None:
            costs = f"still costs ${rental.stopped_hr:.2f}/h"
        notes.append((f"shut down, and it {costs}", f"hud-tui pods terminate {rental.name}"))
    if not rental.id:
        notes.append(("unknown whether it was rented", "hud-tui pods list looks for it"))
    if rental.unfinished:
        notes.append(("not set up", f"hud-tui pods setup {rental.name}"))
    return notes


def watcher_note(rental: Rental, now: float) -> tuple[str, str] | None:
    """What is wrong with a pod's watcher, and what to do about it; None if nothing is known."""
    fix = f"hud-tui pods status {rental.name} asks it, and starts it again"
    why = f": {rental.heard}" if rental.heard else ""
    if rental.watched and now - rental.heard_at > SILENT_S:
        return f"its watcher has not spoken for {age(rental.heard_at, now)}{why}", fix
    return (f"its watcher{why}", fix) if why else None


def rental_text(state: Path, rental: Rental, now: float, ahead_s: float) -> str:
    """What a pod costs, until when at most, and who ends it then."""
    ends, guards = ends_text(rental, now, ahead_s), guards_text(state, rental, now)
    return f"{rental.costs(now)}, {ends}; {guards}"


def ends_text(rental: Rental, now: float, ahead_s: float = 0.0) -> str:
    """Until when it can cost and how much, e.g. ``until 18:40, $8.00 at most``."""
    if now > rental.deadline:
        return f"over its budget of ${rental.most:.2f} for {age(rental.deadline, now)}"
    return (
        f"until {clock_text(rental.deadline + ahead_s, now + ahead_s)}, ${rental.most:.2f} at most"
    )


def guards_text(state: Path, rental: Rental, now: float) -> str:
    """Who ends it then, and when each of them last spoke, e.g. ``guards: pod 12 s, here 3 s ago``;
    the guards are its watcher and the process here."""
    here = budget_found(state).get("at")
    spoke = isinstance(here, int | float)
    each = []
    if rental.heard_at:
        silent = "(silent) " if now - rental.heard_at > SILENT_S else ""
        each.append(f"pod {silent}{age(rental.heard_at, now)}")
    if spoke and budget_kept(state, now):
        each.append(f"here {age(here, now)}")
    if not each:
        return "guarded by nothing"
    return f"guards: {', '.join(each)} ago"


# The process that terminates pods when their budget is used up.


BUDGET = "budget.json"
"""File in the folder of the machines with that process's last findings."""
BUDGET_LOCKS = ("budget.lock", *(f"budget-{number}.lock" for number in range(2, 6)))
"""Of which that process holds the first that is free: one that is halted holds its own."""
BUDGET_S = 120.0
"""Seconds without a write after which that process counts as dead."""
SILENT_S = 600.0
"""Seconds without a word of a pod's watcher after which it counts as silent."""


def keep_budgets(paths: Paths, now: float) -> None:
    """Start the process that terminates pods when their budget is used up, unless it is running or
    nothing is rented. It gets Prime's settings, from wherever they are set. Raises HudUsage: the
    file of rentals is invalid."""
    if not any(r.runs for r in read_rentals(paths.state)) or budget_kept(paths.state, now):
        return
    names = {name: value for name, value in every_variable().items() if name[:6] == "PRIME_"}
    module = ["hud_tui.remote.budget", str(paths.state)]
    daemon(paths.service_log, module, names).wait()


def budget_kept(state: Path, now: float) -> bool:
    """Whether the process that spoke last is running: it holds the lock that it named, and spoke
    lately. A process that is halted holds its lock, and an id may be another program's by now."""
    said = budget_found(state)
    stamp, lock = said.get("at"), said.get("lock")
    if not isinstance(stamp, int | float) or not -BUDGET_S < now - stamp < BUDGET_S:
        return False
    return lock in BUDGET_LOCKS and is_held(state / REMOTES / str(lock))


def budget_found(state: Path) -> dict[str, Any]:
    """What that process wrote last; empty if it never ran."""
    return read_object(state / REMOTES / BUDGET)
