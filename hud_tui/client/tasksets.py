"""Tasksets and the environments their tasks name."""

from uuid import UUID

from hud_tui.client.calls import Calls
from hud_tui.client.lookup import Lookup
from hud_tui.errors import HudNotFound, HudRefused
from hud_tui.rl.written import Change
from hud_tui.wire import (
    EnvironmentConfig,
    RegistryItem,
    ScenarioRecord,
    Taskset,
    TasksetExport,
    TasksetRef,
    UploadResult,
    UploadTasks,
)


class TasksetCalls(Calls):
    async def tasksets(self) -> list[Taskset]:
        """The tasksets the service lists; empty where it has no such list (HUD)."""
        try:
            return await self.pages(self.api("/v2/tasksets"), Taskset)
        except HudRefused as error:
            if error.status in (404, 405):
                return []
            raise

    async def taskset(self, name: str) -> TasksetExport:
        """A taskset's rows, by its name or id.

        Raises:
            HudNotFound: No such taskset.
        """
        try:
            url = self.api("/v2/tasksets/by-name/{}", name)
            id_ = (await self.wire.get(url, TasksetRef)).taskset_id
        except HudNotFound:
            id_ = _id(name)
            if not id_:
                raise
        return await self.wire.get(self.api("/v2/tasksets/{}/export", id_), TasksetExport)

    async def upload(self, body: UploadTasks) -> UploadResult:
        """Create a taskset, or add and change rows of one. Sent once."""
        name = body.taskset_name or body.taskset_id or ""
        change = Change("upload", subject=name, made="taskset_id", left_out=("tasks",))
        hint = "upload them again: rows that are there already stay as they are"
        lookup = Lookup[UploadResult](hint=hint)
        url = self.api("/v2/tasks/upload")
        return await self.wire.write("POST", url, UploadResult, change, body, lookup=lookup)

    async def environment(self, name: str) -> EnvironmentConfig | None:
        """What an environment offers; None where no environment has this name."""
        try:
            url = self.api("/environments/{}/mcp-config", name)
            return await self.wire.get(url, EnvironmentConfig)
        except HudNotFound:
            return None

    async def registry(self, search: str) -> list[RegistryItem]:
        """The environments whose names have this text in them."""
        url = self.api("/v2/registry")
        return await self.pages(url, RegistryItem, 500, params={"search": search})

    async def scenarios(self, registry_id: str) -> list[ScenarioRecord]:
        """An environment's scenarios, with the schemas of their args."""
        return await self.wire.get(
            self.api("/v2/registry/{}/scenarios", registry_id), list[ScenarioRecord]
        )


def _id(name: str) -> str:
    """A name that is an id, as ids are spelled; else empty."""
    try:
        return str(UUID(name))
    except ValueError:
        return ""
