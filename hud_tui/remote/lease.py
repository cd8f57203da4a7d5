"""Who uses a machine: a file there for each client, renewed for as long as it uses the machine.

A client is a state directory. ``leases/ID`` holds its user and host, and the boot and uptime of
the machine when it was last renewed: by a set-up, or by the process that keeps the tunnel. The
machine's wall clock, which may be set by a year, is asked only about a lease of an earlier boot.
"""

import getpass
import re
import secrets
import socket
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from hud_tui.errors import HudUsage
from hud_tui.remote.facts import read_number
from hud_tui.remote.ssh import quote
from hud_tui.rl.text import age, counted, one_line, size
from hud_tui.storage import change_atomic, read_regular

FRESH_S = 24 * 3600
"""Seconds for which a lease keeps others from removing what is on the machine."""
CALLED_S = 600
"""Seconds since the server's last call in which somebody counts as training."""
MOST = 100
"""Most leases that are read."""
OWNER = "owner"
"""File in the folder of the machines with the id of this client."""
_ID = re.compile(r"[0-9a-f]{16}")
READ = f"""\
date_of() {{ stat -c %Y "$1" 2>/dev/null || stat -f %m "$1" 2>/dev/null; }}
echo "now=$(date +%s)"; echo "boot=$(boot)"; echo "up=$(uptime_s)"
for file in "$R/used" "$R"/state/service.db-wal; do
  [ -f "$file" ] && echo "used=$(date_of "$file")"
done
for file in $(ls "$R/leases" 2>/dev/null | head -n {MOST}); do
  [ -f "$R/leases/$file" ] || continue
  echo "lease=$file $(date_of "$R/leases/$file") $(head -n 1 "$R/leases/$file" | head -c 200)"
  echo "renewed=$file $(sed -n 2p "$R/leases/$file" | head -c 80)"
done
[ -d "$R" ] || exit 0
alive "$R/loop" && echo "running=yes"
count=$(find "$R/state/checkpoints" -name '*.tar.gz' 2>/dev/null | wc -l); echo "saved=$count"
for name in state hf env src uv; do
  [ -d "$R/$name" ] && echo "$name=$(du -sk "$R/$name" 2>/dev/null | cut -f 1)"
done
:
"""
"""A script that prints the leases, when the server was last called, and what is there."""
PARTS = {
    "state": "models and checkpoints",
    "hf": "fetched weights",
    "env": "its Python environment",
    "src": "the engine's source",
    "uv": "uv's packages",
}


class MachineInUse(HudUsage):
    """Somebody else uses the machine; nothing was done."""

    kind = "in_use"


@dataclass(frozen=True)
class Use:
    """Who uses a machine, and what would go with it."""

    others: tuple[str, ...] = ()
    """Each other client with a fresh lease, and its age, e.g. ``ann@desk, 2 m ago``."""
    called: str = ""
    """When somebody who has no lease called the server, e.g. ``20 s ago``; empty if nobody did
    within CALLED_S."""
    goes: tuple[str, ...] = ()
    """What is removed with it, e.g. ``fetched weights, 8.1 GB``."""

    def check(self, name: str) -> None:
        """Raises MachineInUse: somebody else uses the machine."""
        if self.others:
            what = f"{name} is used by {'; '.join(self.others[:5])}"
        elif self.called:
            what = f"somebody else trains on {name}: its server was called {self.called}"
        else:
            return
        goes = f": with {', '.join(self.goes)}" if self.goes else ""
        fix = f"hud-tui remote remove {name} --force removes it all the same{goes}"
        raise MachineInUse(what, f"{fix}; --forget only forgets it here")


def client_id(folder: Path) -> str:
    """The id of this client, made on first use. `folder`: that of the machines."""
    file = folder / OWNER

    def kept() -> str | None:
        with suppress(OSError):
            text = read_regular(file, 100).decode("ascii", "replace")
            if _ID.fullmatch(text):
                return None
        return secrets.token_hex(8)

    change_atomic(file, kept)
    return read_regular(file, 100).decode("ascii")


def renew(client: str) -> str:
    """A script that renews a client's lease; it never fails."""
    user = "somebody"
    with suppress(OSError, KeyError):
        user = getpass.getuser()
    who = quote(one_line(f"{user}@{socket.gethostname()}", 100))
    file = f'"$R/leases/{client}"'
    return (
        f'{{ [ -d "$R" ] && mkdir -p "$R/leases" &&'
        f' printf "%s\\n" {who} "$(boot) $(uptime_s)" > {file}.part &&'
        f" mv {file}.part {file}; }} 2>/dev/null || :\n"
    )


def read_use(text: str, client: str) -> Use:
    """What `READ` printed, as this client sees it; lines that make no sense are ignored."""
    pairs = [line.partition("=")[::2] for line in text.splitlines()]
    values = dict(pairs)
    now = read_number(values.get("now")) or 0
    others, is_ours = [], False
    for holder, age_s, owner in _leases(pairs, now, _passed(pairs, values)):
        if holder == client:
            is_ours = is_ours or age_s < CALLED_S
        elif age_s < FRESH_S:
            others.append(f"{owner or holder}, {age(0, age_s)} ago")
    called = "" if is_ours else _called([value for key, value in pairs if key == "used"], now)
    return Use(tuple(others), called, tuple(_goes(values)))


def _leases(
    pairs: Iterable[tuple[str, str]], now: int, passed: Mapping[str, int]
) -> Iterator[tuple[str, int, str]]:
    """The leases that make sense: client, seconds since it was renewed, and owner. `now`: Unix
    seconds there; `passed`: as of `_passed`."""
    for key, value in pairs:
        words = value.split(maxsplit=2)
        renewed = read_number(words[1]) if key == "lease" and len(words) > 1 else None
        if renewed is not None and _ID.fullmatch(words[0]):
            owner = one_line(words[2], 100) if len(words) > 2 else ""
            yield words[0], passed.get(words[0], now - renewed), owner


def _passed(pairs: Iterable[tuple[str, str]], values: Mapping[str, str]) -> dict[str, int]:
    """Seconds since each client renewed its lease, where that was in this boot of the machine."""
    up = read_number(values.get("up")) or 0
    renewed = [value.split() for key, value in pairs if key == "renewed"]
    times = {
        words[0]: read_number(words[2])
        for words in renewed
        if len(words) == 3 and words[1] == values.get("boot")
    }
    spoke = {client: stamp for client, stamp in times.items() if stamp is not None}
    return {client: up - stamp for client, stamp in spoke.items() if stamp <= up}


def _called(times: Iterable[str], now: int) -> str:
    """How long ago the server was called last, e.g. ``20 s ago``; empty if that is long ago."""
    called = max((read_number(time) or 0 for time in times), default=0)
    return f"{age(called, now)} ago" if called and now - called < CALLED_S else ""


def _goes(values: Mapping[str, str]) -> Iterator[str]:
    """As `Use.goes`, from the printed values."""
    if values.get("running") == "yes":
        yield "its service, which runs"
    saved = read_number(values.get("saved"))
    for name, about in PARTS.items():
        kb = read_number(values.get(name))
        if kb is None:
            continue
        if name == "state" and saved:
            about += f" ({counted(saved, 'checkpoint')})"
        yield f"{about}, {size(kb * 1024)}"
