"""What a request is to change, as its caller says it: for the guard and the command log."""

from typing import NamedTuple


class TaskSource(NamedTuple):
    """Where the tasks of a request came from, so that a command can load them again."""

    origin: str = ""
    """The file, directory or taskset; empty if unknown."""
    digest: str = ""
    """Digest of the tasks that were sent, see `hud_tui.rl.tasks.task.rows_digest`."""
    left_out: tuple[str, ...] = ()
    """Slugs of its tasks that were not sent."""


UNNAMED = TaskSource()
"""The source of tasks without a place."""


class Change(NamedTuple):
    """The intended change of a request, given by its caller."""

    verb: str
    """E.g. ``set head``; see `VERBS`."""
    model: str = ""
    """Id of the changed or forked model; empty if unknown."""
    subject: str = ""
    """What is changed if that is not a model: a job's id, the name of a fork."""
    before: str = ""
    """Previous value, if known, e.g. the id of the head."""
    after: str = ""
    """New value, if known before the answer."""
    made: str = ""
    """Field of the answer with the new value, e.g. ``job_id``."""
    replaced: str = ""
    """Field of the answer with the previous value, which is newer than `before`."""
    omitted: tuple[str, ...] = ()
    """Fields of the body that are not logged: large, or possibly secret."""
    source: TaskSource = UNNAMED
    """The source of omitted tasks."""
    act: str = ""
    """Of ``set head``: ``undo`` or ``redo``, if it is one."""
