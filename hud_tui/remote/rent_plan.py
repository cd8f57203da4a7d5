"""A run on a machine that is rented for it: one plan of three parts, rent, set up and run.

Pure: `RentPlan.next` says by what has happened what is done next. What has happened is read anew
each time, from the rentals, the machines and the service there; nothing else is kept, so a plan
goes on wherever it was cut, and whoever asks for it again goes on with it. It is found by its pod's
name, which says what the plan is for.
"""

import hashlib
import re
import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from hud_tui.remote.engines import Engine, choose_engine, choose_model, find_engine
from hud_tui.remote.facts import Facts, Gpu
from hud_tui.remote.machines import Machine
from hud_tui.remote.pods import RentalRequest
from hud_tui.remote.prime import Offer
from hud_tui.remote.setup import steps_of
from hud_tui.remote.ssh import Address
from hud_tui.rl.text import one_line, size
from hud_tui.service_file import Rental

Part = Literal["rent", "set up", "use", "run", "done"]
"""What is done next; ``use`` is the end of the set-up: from then on it is trained there."""
TO_START_MIN = (5, 20)
"""Minutes until a rented machine answers."""


@dataclass(frozen=True)
class RentFacts:
    """What has happened of a plan."""

    rental: Rental | None = None
    """Its pod, stored before it is asked for; None: nothing was asked for."""
    is_ready: bool = False
    """Whether the pod is set up."""
    is_used: bool = False
    """Whether it is trained there."""
    job_id: str = ""
    """The run there."""


@dataclass(frozen=True)
class RentPlan:
    """What is to be rented, set up and run."""

    request: RentalRequest
    engine: str = ""
    """Empty: chosen by the GPUs."""
    base: str = ""
    """The model that is put there; empty: chosen by the GPUs' memory."""
    run: Sequence[tuple[str, str]] = ()
    """What is run: labels and texts."""

    @staticmethod
    def next(facts: RentFacts) -> Part:
        if facts.rental is None:
            return "rent"
        if not facts.is_ready:
            return "set up"
        if not facts.is_used:
            return "use"
        return "done" if facts.job_id else "run"

    @property
    def parts(self) -> list[tuple[str, list[str]]]:
        """The three parts with their costs, as lines of text."""
        price, most = self.request.price_hr, self.request.most
        early, late = (price * minutes / 60 for minutes in TO_START_MIN)
        first, last = TO_START_MIN
        start = f"costs   {first} to {last} min until it answers: ${early:.2f} to ${late:.2f}"
        run = [f"{label:<7} {text}" for label, text in self.run]
        return [
            ("rent", self.request.lines()),
            ("set up", [*self._set_up(), start, f"        then ${price / 60:.2f} for each minute"]),
            ("run", [*run, f"costs   the hours that are left; ${most:.2f} at most for all three"]),
        ]

    def _set_up(self) -> list[str]:
        engine, model = installed(self.request.offer, self.engine, self.base)
        machine = Machine("pod", Address("pod"), engine.name, model)
        lines = [f"engine  {engine.about}", *([f"model   {model}"] if model else [])]
        lines.append(f"disk    {size(engine.disk_bytes)} of packages")
        for step in steps_of(machine, engine):
            lines += [f"to do   {step.about}"] if step.name in SAID else []
        return [one_line(line, 200) for line in lines]

    @property
    def document(self) -> dict[str, Any]:
        return {
            "parts": [{"part": part, "lines": lines} for part, lines in self.parts],
            "price_hr": self.request.price_hr,
            "hours": self.request.hours,
            "most": round(self.request.most, 2),
        }


SAID = ("uv", "python", "engine", "weights")
"""Steps of a set-up that a preview names."""


def installed(offer: Offer, engine: str, base: str) -> tuple[Engine, str]:
    """The engine and the model that a rented machine gets, by the GPUs that are offered. Raises
    HudUsage: there is no such engine."""
    gpu = Gpu(offer.gpu_type, "", offer.gpu_memory * 1024, 0, 0)
    facts = Facts(gpus=(gpu,) * offer.gpu_count)
    chosen = find_engine(engine or choose_engine(facts))
    return chosen, (base or choose_model(chosen, facts)) if chosen.weights else ""


def plan_name(model: str, count: int, gpu: str) -> str:
    """The name of a new plan's pod, which has a random part."""
    return f"{_beginning(model, count, gpu)}{secrets.token_hex(4)}"


def plan_rental(rentals: Iterable[Rental], model: str, count: int, gpu: str) -> Rental | None:
    """The pod of a plan that was begun: the newest that runs, or may."""
    ours = re.compile(f"{re.escape(_beginning(model, count, gpu))}[0-9a-f]{{8}}")
    begun = [rental for rental in rentals if rental.runs and ours.fullmatch(rental.name)]
    return begun[-1] if begun else None


def _beginning(model: str, count: int, gpu: str) -> str:
    """How the names of a plan's pods begin: letters, digits and dashes."""
    plain = [re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-") for text in (model, gpu)]
    whole = hashlib.sha256(f"{model} {count} {gpu.lower()}".encode()).hexdigest()
    return f"run-{plain[0][:20]}-{count}x{plain[1][:10]}-{whole[:6]}-"
