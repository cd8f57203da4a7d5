"""What the app opens with."""

from dataclasses import dataclass, field
from typing import Any


@dataclass
class Elsewhere:
    """The service that ``--host`` names; the user can correct it."""

    url: str = ""
    """Empty: none is named."""


@dataclass(frozen=True)
class Start:
    """A command of ``hud-tui`` without ``--headless``; the app opens with its screen."""

    command: str = "status"
    again: bool = False
    """Whether no command was given: the app restores its last state."""
    model: str | None = None
    """A model as the user named it: id, name, slug or the last part of the slug."""
    source: str | None = None
    """A task file, or a taskset's name."""
    ref: str | None = None
    """A job's id; for status, a model or a job."""
    parameters: dict[str, Any] = field(default_factory=dict)
    """Run parameters given as flags, by wire name."""
    swept: dict[str, tuple[Any, ...]] = field(default_factory=dict)
    """Run parameters given with several values, by wire name: a sweep."""
    at_once: int | None = None
    """Maximum number of runs of a sweep at the same time."""
    task: str | None = None
    """A task to play: its slug, or a template."""
    rollout: str | None = None
    """A rollout to play from: its id."""
    replay: int = 0
    """Turns of it to replay at once."""
    keep: str | None = None
    """A file to which a game is appended, as a demonstration."""
    options: dict[str, Any] = field(default_factory=dict)
    """Options of rollouts on an environment given as flags, by wire name."""
    sample: int | None = None
    """Number of groups to roll out in preflight."""
    verbose: bool = False
    """Whether to show the whole status as JSON."""
    view: str = "live"
    """The command's view."""
