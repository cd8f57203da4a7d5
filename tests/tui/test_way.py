"""From a step to a pixel: the functions that docs/architecture.md names are the ones that run."""

import re
import sys
from pathlib import Path
from types import FrameType

from hud_tui.client.replay import player
from hud_tui.settings import Start
from hud_tui.tui.app import HudApp
from tests.conftest import until

PAGE = Path(__file__).parents[2] / "docs/architecture.md"


def named() -> list[tuple[str, str]]:
    """(file, function) of every row, in order."""
    section = PAGE.read_text().split("## From a step to a pixel\n", 1)[1].split("\n## ", 1)[0]
    return [(file, name) for name, file in re.findall(r"^\| `([\w.]+)` \| (\S+) \|", section, re.M)]


async def test_a_step_takes_the_way_that_is_written_down() -> None:
    app = HudApp(player("healthy", None, 50.0), "replay", Start())
    called: dict[tuple[str, str], None] = {}

    def steps() -> int:
        return 0 if app.workspace is None else len(app.workspace.session.run.tree)

    def note(frame: FrameType, event: str, _: object) -> None:
        _, ours, file = frame.f_code.co_filename.partition("/hud_tui/")
        if event == "call" and ours:
            called[file, frame.f_code.co_name] = None

    async with app.run_test(size=(120, 40)):
        await until(lambda: steps() > 20)
        shown, last = steps(), named()[-1]
        sys.setprofile(note)
        try:
            await until(lambda: steps() > shown and (last[0], "figure") in called)
        finally:
            sys.setprofile(None)
    assert len(named()) <= 12
    missing = [one for one in named() if (one[0], one[1].rpartition(".")[2]) not in called]
    assert missing == []
