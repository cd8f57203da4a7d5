"""From a step to a pixel: docs/architecture.md names the functions that run, and all of them."""

import re
import sys
from pathlib import Path
from types import FrameType

from hud_tui.client.replay import player
from hud_tui.settings import Start
from hud_tui.tui.app import HudApp
from tests.conftest import until

PAGE = Path(__file__).parents[2] / "docs/architecture.md"


def section() -> str:
    return PAGE.read_text().split("## From a step to a pixel\n", 1)[1].split("\n## ", 1)[0]


def named() -> list[tuple[str, str]]:
    """(file, function) of every row, in order."""
    rows = re.findall(r"^\| `([\w.]+)` \| (\S+) \|", section(), re.M)
    return [(file, name.rpartition(".")[2]) for name, file in rows]


def ours(frame: FrameType) -> tuple[str, str] | None:
    """(file, function) of a frame of the package."""
    _, package, file = frame.f_code.co_filename.partition("/hud_tui/")
    return (file, frame.f_code.co_name) if package else None


def between(frame: FrameType, rows: list[tuple[str, str]]) -> set[str]:
    """Functions of ours that lead from one row to the call of another; empty if none does."""
    found: set[str] = set()
    above = frame.f_back
    while above is not None:
        if (one := ours(above)) in rows:
            return found
        found |= {one[1]} if one else set()
        above = above.f_back
    return set()


async def test_a_step_takes_the_way_that_is_written_down() -> None:
    app = HudApp(player("healthy", None, 10.0), "replay", Start())
    rows, called, led = named(), set[tuple[str, str]](), set[str]()

    def steps() -> int:
        return 0 if app.workspace is None else len(app.workspace.session.run.tree)

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and (one := ours(frame)) in rows:
            called.add(one)
            if one != ("tui/widgets/lines.py", "redraw"):  # other widgets have ways of their own
                led.update(between(frame, rows))

    async with app.run_test(size=(120, 40)):
        await until(lambda: steps() > 5)
        shown, last = steps(), rows[-1]
        sys.setprofile(note)
        try:
            await until(lambda: steps() > shown and last in called)
        finally:
            sys.setprofile(None)
    assert len(rows) <= 12
    assert [one for one in rows if one not in called] == []
    assert {name for name in led if f"`{name}`" not in section()} == set()
