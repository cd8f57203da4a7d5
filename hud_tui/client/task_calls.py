"""Calls on tasksets, and on the environments that their tasks name."""

from hud_tui.change import Change
from hud_tui.client.transport import Connection, Lookup
from hud_tui.errors import HudNotFound, HudRefused
from hud_tui.rl.names import canonical_id
from hud_tui.wire_tasks import (
    EnvironmentConfig,
    PlayedTask,
    PlayTask,
    RegistryItem,
    ScenarioRecord,
    Taskset,
    TasksetExport,
    TasksetRef,
    UploadResult,
    UploadTasks,
)


class TaskCalls:
    def __init__(self, wire: Connection) -> None:
        self._wire = wire

    async def tasksets(self) -> list[Taskset]:
        """The tasksets the service lists; empty if it has no such list (HUD)."""
        try:
            return await self._wire.pages(self._wire.api("/v2/tasksets"), Taskset)
        except HudRefused as error:
            if error.status in (404, 405):
                return []
            raise

    async def taskset(self, name: str) -> TasksetExport:
        """A taskset's rows, by its name or id. Raises HudNotFound: no such taskset."""
        try:
            url = self._wire.api("/v2/tasksets/by-name/{}", name)
            id_ = (await self._wire.get(url, TasksetRef)).taskset_id
        except HudNotFound:
            id_ = canonical_id(name)
            if not id_:
                raise
        return await self._wire.get(self._wire.api("/v2/tasksets/{}/export", id_), TasksetExport)

    async def upload(self, body: UploadTasks) -> UploadResult:
        """Create a taskset, or add and change rows of one. Sent once."""
        name = body.taskset_name or body.taskset_id or ""
        change = Change("upload", subject=name, made="taskset_id", omitted=("tasks",))
        hint = "upload them again: existing rows are not changed"
        lookup = Lookup[UploadResult](hint=hint)
        url = self._wire.api("/v2/tasks/upload")
        return await self._wire.write("POST", url, UploadResult, change, body, lookup=lookup)

    async def play(self, env: str, body: PlayTask) -> PlayedTask:
        """A task of the embedded service's own environments: its prompt, and the grade of an
        answer. Changes nothing. Raises HudNotFound: there is no such environment or scenario."""
        url = self._wire.api("/v1/environments/{}/play", env)
        return await self._wire.write("POST", url, PlayedTask, None, body)

    async def environment(self, name: str) -> EnvironmentConfig | None:
        """An environment's configuration; None if it does not exist."""
        try:
            url = self._wire.api("/environments/{}/mcp-config", name)
            return await self._wire.get(url, EnvironmentConfig)
        except HudNotFound:
            return None

    async def registry(self, search: str) -> list[RegistryItem]:
        """Environments whose names contain this text."""
        url = self._wire.api("/v2/registry")
        return await self._wire.pages(url, RegistryItem, 500, params={"search": search})

    async def scenarios(self, registry_id: str) -> list[ScenarioRecord]:
        """An environment's scenarios, with the schemas of their args."""
        url = self._wire.api("/v2/registry/{}/scenarios", registry_id)
        return await self._wire.get(url, list[ScenarioRecord])
