"""The frame of a campaign: its arguments, what it counts, its last line and its exit code.

A module has one::

    async def play(plan: Plan, report: Report) -> None:
        for number in plan.rounds(report):
            ...
            report.found("crashes", f"round {number}: …")

    CAMPAIGN = Campaign("kills", "kills", count=10_000, small=20, play=play)
"""

import argparse
import asyncio
import random
import signal
import sys
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass, field
from time import monotonic
from typing import Any

SEEDS = 1_000_000
SHOWN = 20
"""Faults that are told in full; all are counted."""


@dataclass
class Report:
    """What has been done so far, and what was found."""

    kinds: tuple[str, ...]
    """The faults that it looks for, in the plural, e.g. ``crashes``."""
    done: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)

    def found(self, kind: str, what: str) -> None:
        """Count a fault.

        Args:
            kind: One of `kinds`.
            what: What is needed to see it again.
        """
        assert kind in self.kinds, kind
        self.counts[kind] += 1
        self.faults.append(f"{kind}: {what}")
        if len(self.faults) <= SHOWN:
            print(self.faults[-1], file=sys.stderr, flush=True)

    @property
    def clean(self) -> bool:
        return not self.faults

    def __str__(self) -> str:
        return ", ".join(f"{self.counts[kind]} {kind}" for kind in self.kinds)


@dataclass(frozen=True)
class Plan:
    """How much is to be done, and by which chance."""

    count: int | None
    """Rounds; None for as many as there is time for."""
    seed: int
    minutes: float | None = None
    options: argparse.Namespace = field(default_factory=argparse.Namespace)
    """The campaign's own arguments."""
    begun: float = field(default_factory=monotonic)

    @property
    def random(self) -> random.Random:
        """Chance that begins anew with each call: take it once."""
        return random.Random(self.seed)

    def more(self, report: Report) -> bool:
        in_time = self.minutes is None or monotonic() - self.begun < self.minutes * 60
        return in_time and (self.count is None or report.done < self.count)

    def rounds(self, report: Report) -> Iterator[int]:
        """The numbers of the rounds, from 0; each is counted when it has been done."""
        while self.more(report):
            yield report.done
            report.done += 1


@dataclass(frozen=True)
class Campaign:
    name: str
    unit: str
    """What is counted, in the plural, e.g. ``keys``."""
    count: int
    """Rounds where neither --count nor --minutes says."""
    small: int
    """Rounds under pytest, where --campaign-size does not say: some seconds."""
    play: Callable[[Plan, Report], Coroutine[Any, Any, None]]
    kinds: tuple[str, ...] = ("crashes", "hangs")
    """The faults that it looks for."""
    add_arguments: Callable[[argparse.ArgumentParser], None] = lambda parser: None
    """Adds arguments of its own."""

    def main(self, argv: Sequence[str] | None = None) -> int:
        """Run it from the command line.

        Returns:
            0 where nothing was found, 1 where something was.
        """
        args = self._parser().parse_args(argv)
        signal.signal(signal.SIGTERM, signal.default_int_handler)  # what it began ends with it
        count = self.count if args.count is None and args.minutes is None else args.count
        report = self.run(Plan(count, args.seed, args.minutes, args))
        return 0 if report.clean else 1

    def run(self, plan: Plan) -> Report:
        """Play the plan; prints one line at the end."""
        report = Report(self.kinds)
        asyncio.run(self.play(plan, report))
        took = f"in {monotonic() - plan.begun:.0f} s, seed {plan.seed}"
        print(f"campaign {self.name}: {report.done} {self.unit} {took}, {report}", flush=True)
        return report

    def usual(self) -> argparse.Namespace:
        """The campaign's own arguments where none is given."""
        return self._parser().parse_args([])

    def _parser(self) -> argparse.ArgumentParser:
        parser = argparse.ArgumentParser(f"python -m tests.campaigns {self.name}")
        parser.add_argument("--count", type=int, help=f"{self.unit} (default {self.count})")
        parser.add_argument("--minutes", type=float, help="end after so long")
        parser.add_argument(
            "--seed", type=int, default=random.randrange(SEEDS), help="repeat what chance did"
        )
        self.add_arguments(parser)
        return parser
