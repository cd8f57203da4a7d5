"""The timeline as a plot: a lane for each part of the loop, and below them the rollouts that are
under way, stacked."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from hud_tui.rl.axes import Axis, Scale, marks
from hud_tui.rl.curves import Bucket
from hud_tui.rl.plot import Layer, Plot, Shape, Tick
from hud_tui.rl.timeline import (
    EVALUATING,
    LOOP_PARTS,
    TRAINING,
    WAITS,
    Account,
    account_all,
)
from hud_tui.wire_time import StepTime, TimedRollouts

DOTS = 4
"""Heights in one row of cells."""
TALL = 3
"""Of them those that a lane is high: the fourth keeps it apart from the next."""
LEAST_SHARE = 0.002
"""Share of the time from which on a part has a lane."""
LEAST_ROWS = 2
"""Rows that rollouts have at least."""
DONE, WAITING, EVALUATED = "done", "waiting", "evaluated"
TRAINED_ON, DISCARDED, CHOSEN, EDGE = "trained", "discarded", "chosen", "edge"
"""Names of the layers."""


@dataclass(frozen=True)
class Lanes(Scale):
    """A y axis with a name instead of a number at each tick."""

    names: tuple[str, ...] = ()

    @property
    def labels(self) -> list[str]:
        return list(self.names)


@dataclass(frozen=True)
class Lane:
    """One lane: kinds that are drawn in the same place."""

    title: str
    kinds: tuple[str, ...]

    @property
    def layer(self) -> str:
        if self.kinds[0] in WAITS:
            return WAITING
        return EVALUATED if self.kinds[0] == EVALUATING else DONE


@dataclass(frozen=True)
class Timeline:
    """Some steps in a row, or one, over their time."""

    times: tuple[StepTime, ...]
    chosen: str = ""
    """Id of the rollout that is marked."""

    @property
    def start(self) -> float:
        return self.times[0].start if self.times else 0.0

    @property
    def seconds(self) -> float:
        return max(1e-6, self.times[-1].end - self.start) if self.times else 1.0

    @property
    def account(self) -> Account:
        return account_all(self.times)

    @property
    def bars(self) -> list[tuple[float, TimedRollouts]]:
        """The rollouts with their begin, seconds since that of the first step, in its order."""
        bars = [
            (time.start - self.start + bar.start, bar)
            for time in self.times
            for bar in time.rollouts
        ]
        return sorted(bars, key=lambda placed: (placed[0], placed[1].trace_id))

    def lanes(self, rows: int) -> list[Lane]:
        """The lanes from the top, for so many rows in all: each part by itself, else training and
        waiting as one each; if that is not enough, those that took the longest."""
        spent = self.account
        kinds = [
            kind for kind in LOOP_PARTS if spent.of_time(spent.busy.get(kind, 0)) >= LEAST_SHARE
        ]
        lanes = [Lane(_title(kind), (kind,)) for kind in kinds]
        room = rows - LEAST_ROWS * any(time.rollouts for time in self.times)
        if len(lanes) <= room:
            return lanes
        groups = {"training": (*TRAINING,), "waiting": (*WAITS,)}
        of_group = {kind: title for title, group in groups.items() for kind in group}
        merged: dict[str, list[str]] = {}
        for kind in kinds:
            merged.setdefault(of_group.get(kind, _title(kind)), []).append(kind)
        lanes = [Lane(title, tuple(own)) for title, own in merged.items()]
        longest = sorted(lanes, key=lambda lane: -spent.share(*lane.kinds))[: max(0, room)]
        return [lane for lane in lanes if lane in longest]

    def plot(self, cells: int, rows: int) -> Plot:
        """The lanes and the rollouts below, in rows of cells."""
        columns, lanes, top = 2 * cells, self.lanes(rows), DOTS * rows - 1
        layers: defaultdict[str, list[Bucket]] = defaultdict(list)
        for number, lane in enumerate(lanes):
            low = DOTS * (rows - 1 - number)
            layers[lane.layer] += self._lane(lane, low, columns)
        room = rows - len(lanes)
        for name, bucket in self._stacked(DOTS * room - 1, columns):
            layers[name].append(bucket)
        for edge in self._edges(columns):
            layers[EDGE].append(Bucket(edge, 0, top, top, False))
        names = [lane.title for lane in lanes] + ["rollouts"] * (room > 0 and bool(self.bars))
        lines = range(rows - 1, rows - 1 - len(names), -1)
        ticks = tuple(line * top / max(1, rows - 1) for line in lines)
        scale = Lanes(0.0, float(max(1, top)), ticks=ticks[::-1], names=tuple(names[::-1]))
        drawn = [
            Layer(name, sorted(layers[name]), Shape.BARS)
            for name in (CHOSEN, DISCARDED, TRAINED_ON, WAITING, EVALUATED, DONE, EDGE)
            if layers[name]
        ]
        return Plot(scale, columns, drawn, self.x_ticks(cells // 12))

    def _span(self, start: float, seconds: float, columns: int) -> range:
        """The columns of a stretch; at least one, so that it is seen."""
        first = int(columns * start / self.seconds)
        last = int(columns * (start + seconds) / self.seconds - 1e-6)
        return range(min(columns - 1, max(0, first)), min(columns, max(first, last) + 1))

    def _lane(self, lane: Lane, low: int, columns: int) -> Iterator[Bucket]:
        """One lane from a height on: the more of them at a time, the higher."""
        spans = [
            (time.start - self.start + span.start, span)
            for time in self.times
            for span in time.spans
            if span.kind in lane.kinds
        ]
        most = max((span.number for _, span in spans), default=1.0)
        heights: dict[int, int] = {}
        for start, span in spans:
            is_behind = span.number <= 0 and lane.layer != WAITING
            tall = 1 if is_behind else max(1, round(TALL * span.number / max(1.0, most)))
            tall = TALL if most <= 1 and not is_behind else tall
            for column in self._span(start, span.seconds, columns):
                heights[column] = max(heights.get(column, 0), tall)
        for column, tall in heights.items():
            yield Bucket(column, low, low + tall - 1, low, False)

    def _stacked(self, top: int, columns: int) -> Iterator[tuple[str, Bucket]]:
        """The rollouts, one on the other while they are under way, from the top down."""
        for start, bar, low, high in self._places(top):
            name = DISCARDED if bar.reason else TRAINED_ON
            for column in self._span(start, bar.seconds, columns):
                yield name, Bucket(column, low, high, high, False)
                if bar.trace_id == self.chosen:
                    yield CHOSEN, Bucket(column, low, high, high, False)

    def _places(self, top: int) -> Iterator[tuple[float, TimedRollouts, int, int]]:
        """The rollouts with their begin, and their lowest and highest dot."""
        bars = self.bars
        if top < 0 or not bars:
            return
        unit = -(-_most_at_once(bars) // (top + 1))
        ends = [-1.0] * (top + 1)
        """When the last rollout at each height ended."""
        for start, bar in bars:
            tall = min(top + 1, max(1, round(bar.number / unit)))
            height = _free(ends, start, tall)
            ends[height : height + tall] = [start + bar.seconds] * tall
            yield start, bar, top - height - tall + 1, top - height

    def at(self, cell: int, row: int, cells: int, rows: int) -> str | None:
        """Id of the rollout that is drawn in a cell; None without one."""
        top = DOTS * (rows - len(self.lanes(rows))) - 1
        bottom = DOTS * (rows - 1 - row)
        for start, bar, low, high in self._places(top):
            columns = self._span(start, bar.seconds, 2 * cells)
            is_there = columns.start <= 2 * cell + 1 and columns.stop > 2 * cell
            if is_there and low < bottom + DOTS and high >= bottom:
                return bar.trace_id
        return None

    def _edges(self, columns: int) -> list[int]:
        """The columns in which a step ends and the next begins."""
        inner = self.times[1:]
        return [self._span(time.start - self.start, 0.0, columns)[0] for time in inner]

    def x_ticks(self, count: int) -> list[Tick]:
        """Of one step its seconds, of several their numbers."""
        if len(self.times) > 1:
            middles = [
                ((time.start + time.end) / 2 - self.start, _step(time)) for time in self.times
            ]
            apart = -(-len(middles) // max(1, count * 3))
            return [(middle / self.seconds, text) for middle, text in middles[::-apart][::-1]]
        if self.seconds < 2:
            share = [part / max(1, count) for part in range(max(1, count) + 1)]
            return [(part, f"{1000 * part * self.seconds:.0f} ms") for part in share]
        ticks = marks(Axis.TIME, 0.0, self.seconds, max(2, count))
        return [(value / self.seconds, text) for value, text in ticks]


def _step(time: StepTime) -> str:
    return f"{time.step}" if time.checkpoint_id else "…"


def _title(kind: str) -> str:
    title = LOOP_PARTS[kind].title
    return f"waits: {title}" if kind in WAITS else title


def _most_at_once(bars: Sequence[tuple[float, TimedRollouts]]) -> int:
    """The largest number of rollouts that are under way at one time."""
    changes = [(start, bar.number) for start, bar in bars]
    changes += [(start + bar.seconds, -bar.number) for start, bar in bars]
    most = now = 0
    for _, change in sorted(changes):
        now += change
        most = max(most, now)
    return max(1, most)


def _free(ends: Sequence[float], start: float, tall: int) -> int:
    """The lowest of so many free heights; else the one that is free first."""
    heights = range(len(ends) - tall + 1)
    latest = [max(ends[height : height + tall]) for height in heights]
    return next((n for n in heights if latest[n] <= start + 1e-9), latest.index(min(latest)))


def lasts_text(seconds: float) -> str:
    """A time of a step, e.g. ``340 ms``, ``2.3 s``, ``41 s``."""
    return f"{1000 * seconds:.0f} ms" if seconds < 1 else f"{seconds:.3g} s"
