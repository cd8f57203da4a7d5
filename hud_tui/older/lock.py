"""``hud.lock.yaml``: what ``hud build`` wrote of an environment.

Its ``environment.variables.provided`` holds values of secrets; only their names are kept.

Source: the files of hud 0.4.0 to 0.5 (versions 1.0, 1.1, 1.2, 1.3) as they lie in public
repositories; ``primary_dataset`` as ``hud hf`` of 0.4 wrote it.
"""

from dataclasses import dataclass, field
from typing import Any

NAME = "hud.lock.yaml"
VERSIONS = ("1.0", "1.1", "1.2", "1.3")
FIX = "build the environment again: hud build"


@dataclass(frozen=True)
class Tool:
    """One tool of the environment."""

    name: str
    description: str = ""
    input_schema: dict[str, Any] | None = None
    """JSON Schema of its arguments; None where the lock file has none (version 1.0)."""
    internal: tuple[str, ...] = ()
    """Functions that it calls by name, e.g. those of ``setup`` and ``evaluate``."""


@dataclass(frozen=True)
class PrimaryDataset:
    """The data set that was made of the environment's tasks."""

    name: str
    task_count: int | None = None
    updated_at: str = ""
    path: str = ""
    """Where hud-tui wrote it, seen from the lock file; empty where others did."""


@dataclass(frozen=True)
class Lock:
    """What a lock file says."""

    file: str
    version: str
    image: str
    """The image to run: where it was pushed to, else the local one."""
    pushed: bool
    """Whether the image is in a registry, so that others can run it."""
    environment: str
    """The environment's name: its directory's, else its image's."""
    tools: tuple[Tool, ...] = ()
    scenarios: tuple[str, ...] = ()
    variables: tuple[str, ...] = ()
    """Names of the variables that it needs or was given."""
    dataset: PrimaryDataset | None = None
    notes: tuple[str, ...] = field(default=())
    """What was read with doubt."""

    def tool(self, name: str) -> Tool | None:
        return next((tool for tool in self.tools if tool.name == name), None)


def image_name(image: str) -> str:
    """E.g. ``hud-text-2048`` of ``hudpython/hud-text-2048:0.1@sha256:…``."""
    return image.partition("@")[0].rpartition("/")[2].partition(":")[0]
