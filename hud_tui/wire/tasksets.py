"""Tasksets: listed, read and uploaded."""

from pydantic import ConfigDict, Field

from hud_tui.wire.base import Json, Many, Request, Response

TaskRow = Json
"""A task row in any of the wire's formats; `hud_tui.rl.formats` reads them."""


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
    tasks: list[TaskRow]


class UploadTasks(Request):
    """POST /v2/tasks/upload."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    taskset_name: str | None = None
    taskset_id: str | None = None
    project_id: str | None = None
    tasks: Many[TaskRow] = Field(min_length=1)


class UploadResult(Response):
    taskset_id: str
    tasks_created: int
    tasks_updated: int
