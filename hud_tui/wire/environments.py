"""Environments, as the registry has them."""

from typing import Any

from pydantic import Field

from hud_tui.wire.base import Json, Response


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
    """A list of names; anything else means the service cannot say."""
