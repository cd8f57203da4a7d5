"""Start: what the command line asked the app to open with."""

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Start:
    """A command of ``hud-tui`` without ``--headless``; the app opens on its screen."""

    command: str = "status"
    again: bool = False
    """Whether no command was given: the app opens as it was left."""
    model: str | None = None
    """A model as the user named it: id, name, slug or the slug's tail."""
    source: str | None = None
    """A task file, or a taskset's name; for fork, the model to fork."""
    ref: str | None = None
    """A job's id; for status, a model or a job."""
    checkpoint: str | None = None
    name: str | None = None
    """The new model's name, for fork."""
    parameters: dict[str, Any] = field(default_factory=dict)
    """Parameters of a run that were given, by their wire names."""
    sample: int | None = None
    """Groups that preflight is to roll out."""
    verbose: bool = False
    """Whether the status is to be shown whole, as JSON."""
