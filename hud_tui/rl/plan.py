"""The tasks of a batch or an evaluation: which are held out, which rollouts are missing, and in
what parts they are made.

Pure, so that the rules are the same wherever rollouts are made.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Generic, Protocol, TypeVar

from hud_tui.errors import HudUsage


class Splittable(Protocol):
    """A task, in whatever form it is rolled out."""

    @property
    def slug(self) -> str: ...

    @property
    def heldout(self) -> bool: ...


T = TypeVar("T", bound=Splittable)
U = TypeVar("U")


@dataclass(frozen=True)
class TaskSplit(Generic[T]):
    """Tasks, divided into those that are trained on and those that only measure."""

    everything: Sequence[T]
    train: Sequence[T]
    heldout: Sequence[T]

    @classmethod
    def of(cls, tasks: Sequence[T]) -> "TaskSplit[T]":
        train = [task for task in tasks if not task.heldout]
        return cls(tasks, train, [task for task in tasks if task.heldout])

    def chosen(self, name: str | None = None) -> tuple[Sequence[T], str]:
        """The tasks of a split (heldout, train or all), and its name.

        Args:
            name: None for the held-out tasks, or all if none is held out.

        Raises:
            HudUsage: There are none.
        """
        name = name or ("heldout" if self.heldout else "all")
        tasks = {"heldout": self.heldout, "train": self.train, "all": self.everything}[name]
        if not tasks:
            what = f"none of the {len(self.everything)} tasks is in {name}"
            raise HudUsage(what, "choose another --split")
        return tasks, name


def tasks_of_iteration(tasks: Sequence[U], per_step: int, seed: int, iteration: int) -> list[U]:
    """The training tasks of one iteration (from 0), without duplicates.

    An epoch deals a seeded permutation out in whole batches; the next one has another permutation,
    so tasks that are left over now have the same chance then.
    """
    count = min(per_step, len(tasks))
    epoch, batch = divmod(iteration, len(tasks) // count)
    order = list(range(len(tasks)))
    Random(f"{seed} {epoch}").shuffle(order)
    return [tasks[i] for i in order[batch * count : (batch + 1) * count]]


@dataclass(frozen=True)
class MissingRollouts(Generic[T]):
    """Rollouts of one task that are not made yet."""

    task: T
    first: int
    """Index of the first one in the task's group, from 0."""
    count: int

    @property
    def indices(self) -> range:
        """Their indices in the task's group."""
        return range(self.first, self.first + self.count)

    @property
    def singly(self) -> "list[MissingRollouts[T]]":
        """Each rollout by itself."""
        return [MissingRollouts(self.task, index, 1) for index in self.indices]


def missing_of(
    tasks: Sequence[T], samples: int, made: Mapping[str, int]
) -> list[MissingRollouts[T]]:
    """The rollouts that are missing.

    Args:
        made: The number of rollouts that are stored, by task.
    """
    counts = [made.get(task.slug, 0) for task in tasks]
    return [
        MissingRollouts(task, count, samples - count)
        for task, count in zip(tasks, counts, strict=True)
        if count < samples
    ]


def in_parts(missing: Sequence[MissingRollouts[T]], most: int) -> list[list[MissingRollouts[T]]]:
    """The missing rollouts in parts of at most `most`, but at least one task. Other callers of
    whatever makes them get their turn between two parts."""
    parts: list[list[MissingRollouts[T]]] = []
    room = 0
    for part in missing:
        if not parts or part.count > room:
            parts.append([])
            room = most
        parts[-1].append(part)
        room -= part.count
    return parts
