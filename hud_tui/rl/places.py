"""Where tasks are, in few words: ``t.jsonl lines 1-3, 7 and 12 more``."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from hud_tui.rl.tasks import Task
from hud_tui.rl.text import one_line

NAMED = 5
"""Places that one finding names; the others are counted."""
NUMBERED = re.compile(r"(.+) (row|line|item) (\d+)", re.DOTALL)


@dataclass
class _Stretch:
    """Tasks that follow one another in a file; or one task that has no number."""

    name: str
    unit: str
    first: int
    last: int
    tasks: int = 1

    def takes(self, name: str, unit: str, number: int) -> bool:
        """Whether a task is the next one, or in the same line; then it is in here."""
        follows = (name, unit) == (self.name, self.unit) and number in (self.last, self.last + 1)
        if follows and unit:
            self.last, self.tasks = number, self.tasks + 1
        return follows and bool(unit)

    def numbers(self) -> str:
        return f"{self.first}-{self.last}" if self.last > self.first else str(self.first)


def places(tasks: Sequence[Task]) -> str:
    """Where these tasks are: the first few stretches by name, the other tasks as a number."""
    stretches: list[_Stretch] = []
    for task in tasks:
        found = NUMBERED.fullmatch(task.where)
        at = (found[1], found[2], int(found[3])) if found else (task.where or task.slug, "", 0)
        if stretches and stretches[-1].takes(*at):
            continue
        if len(stretches) == NAMED:
            break
        stretches.append(_Stretch(*at, at[2]))
    left = len(tasks) - sum(stretch.tasks for stretch in stretches)
    return ", ".join(_joined(stretches)) + (f" and {left} more" if left else "")


def _joined(stretches: Sequence[_Stretch]) -> Iterator[str]:
    """Each file with its stretches; a task that has no number by itself."""
    for (name, unit), group in groupby(stretches, lambda one: (one.name, one.unit)):
        numbers = [one.numbers() for one in group]
        many = "s" if len(numbers) > 1 or "-" in numbers[0] else ""
        said = one_line(name, 80)
        yield (
            f"{said} {unit}{many} {', '.join(numbers)}"
            if unit
            else ", ".join([said] * len(numbers))
        )
