"""The wire of tasksets, and of the environments that their tasks name.

Source: as for `hud_tui.wire`, whose rules for unknown fields apply here too.
"""

from typing import Any

from pydantic import Field

from hud_tui.wire import Json, Many, OpenRequest, Request, Response


class RegistryItem(Response):
    """One row of GET /v2/registry."""

    id: str
    name: str
    description: str | None = None


class ScenarioRecord(Response):
    """One row of GET /v2/registry/{id}/scenarios."""

    id: str
    name: str
    description: str | None = None
    args_schema: Json | None = None
    """JSON Schema of the scenario's args."""


class EnvironmentConfig(Response):
    """GET /environments/{name}/mcp-config."""

    mcp_config: Json = Field(default_factory=dict)
    registry_id: str | None = None
    scenarios: Any = None
    """A list of names; anything else means that the service does not know them."""


class TasksetRef(Response):
    """GET /v2/tasksets/by-name/{name}."""

    taskset_id: str
    name: str | None = None


class Taskset(Response):
    """GET /v2/tasksets/{id}."""

    id: str
    name: str
    can_edit: bool = True
    task_count: int | None = None
    description: str | None = None


class TasksetExport(Response):
    """GET /v2/tasksets/{id}/export."""

    taskset_id: str | None = None
    name: str
    tasks: list[Json]
    """Rows in any of the wire's formats; `hud_tui.rl.tasks.formats` reads them."""


class UploadTasks(OpenRequest):
    """POST /v2/tasks/upload."""

    taskset_name: str | None = None
    taskset_id: str | None = None
    project_id: str | None = None
    tasks: Many[Json] = Field(min_length=1)


class PlayTask(Request):
    """POST /v1/environments/{name}/play (embedded): a task of the service's own environments."""

    scenario: str
    args: Json = Field(default_factory=dict)
    answer: str | None = None
    """To be graded; None asks for the prompt alone."""


class PlayedTask(Response):
    prompt: str
    reward: float | None = None
    """None without an answer, as is `expected`."""
    expected: str | None = None
    """The answer that earns the whole reward."""


class UploadResult(Response):
    taskset_id: str
    tasks_created: int
    tasks_updated: int
