"""Who rents what in the campaigns of rentings, and what must add up when all of it has ended."""

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hud_tui.rl.text import seconds
from hud_tui.service_file import Rental, read_rentals
from tests.prime_server import PrimeServer

WAYS = ("one", "two states", "one state", "one name")
"""One program rents, or two do: with a state directory each, with one, or with one and one name."""
KINDS = ("foreign", "doubles", "false", "unkept", "forgotten", "dollars", "early")


@dataclass(frozen=True)
class Renters:
    """The programs that rent in one round."""

    way: str
    states: tuple[Path, ...]
    """State directory of each."""
    names: tuple[str, ...]
    """Name that each asks for."""

    @property
    def most(self) -> int:
        """How many pods they may get."""
        return len({*zip(self.states, self.names, strict=True)})

    def rentals(self) -> list[Rental]:
        return [rental for state in dict.fromkeys(self.states) for rental in read_rentals(state)]


def choose_renters(chance: random.Random, folder: Path, ways: Sequence[str] = WAYS) -> Renters:
    way = chance.choice(ways)
    if way == "one":
        return Renters(way, (folder / "a",), ("box",))
    second = folder / ("b" if way == "two states" else "a")
    return Renters(way, (folder / "a", second), ("box", "other" if way == "one state" else "box"))


@dataclass
class Verdict:
    """What does not add up."""

    dollars: float
    """The budget of each pod."""
    hours: float
    late_s: float
    """Seconds that a pod may outlive its budget."""
    early_s: float | None
    """Seconds by which it may end before that; None: at any time."""
    faults: list[tuple[str, str]] = field(default_factory=list)

    def judge(self, server: PrimeServer, foreign: Iterable[str], rentals: list[Rental]) -> None:
        """Every pod of others runs, each of ours has ended within its budget, and is one rental."""
        strangers = {*foreign}
        if strangers - {*server.pods}:
            self.fault("foreign", f"{[*server.pods]} are left of colleagues' pods")
        ids = [rental.id for rental in rentals]
        for pod in {*server.pods} - strangers:
            kind = "unkept" if pod in ids else "forgotten"
            self.fault(kind, f"{pod} runs on; {[rental.why for rental in rentals]}")
        for ended in server.history:
            if ended["id"] in strangers:
                continue
            if ids.count(ended["id"]) != 1:
                self.fault(
                    "false", f"{ended['id']} was ended and is {ids.count(ended['id'])} rentals"
                )
            self._judge_time(ended)

    def _judge_time(self, ended: dict[str, Any]) -> None:
        """How long a pod ran, by what it cost."""
        took = (seconds(ended["terminatedAt"]) or 0.0) - (seconds(ended["createdAt"]) or 0.0)
        price = ended["priceHr"]
        if price * (took - self.late_s) / 3600 > self.dollars:
            self.fault("dollars", f"{ended['id']} ran {took:.0f} s at ${price}")
        whole = min(self.hours, self.dollars / price) * 3600
        if self.early_s is not None and took < whole - self.early_s:
            self.fault("early", f"{ended['id']} ran {took:.0f} s only, at ${price}")

    def fault(self, kind: str, what: str) -> None:
        self.faults.append((kind, what))
