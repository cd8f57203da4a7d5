"""A task file read as `load_path` does it, for tests that have only its bytes."""

from hud_tui.errors import HudBadTasks
from hud_tui.rl.tasks.formats import try_file
from hud_tui.rl.tasks.task import Task


def read_file(name: str, body: bytes) -> list[Task]:
    """
    Raises:
        HudBadTasks: All that is wrong with it.
    """
    found = try_file(name, body)
    if found.problems:
        raise HudBadTasks(found.problems, found.hint)
    return found.tasks
