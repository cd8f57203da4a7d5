"""What every body is made of, pages, and who and what answers."""

from typing import Annotated, Any, Generic, TypeVar

from pydantic import BaseModel, ConfigDict, FailFast

T = TypeVar("T")
MOST_INPUTS = 2**18
"""Longest list of inputs in one call: 1024 tasks of 256 rollouts."""
COOLEST = 0.01
"""The least temperature above 0 that can be sampled and trained at."""


class _FailFast(FailFast):
    __hash__ = object.__hash__  # a union hashes its members


Many = Annotated[list[T], _FailFast()]
"""A list that may be long: one item that does not fit is reported, not a million."""
Json = dict[str, Any]


class Response(BaseModel):
    model_config = ConfigDict(
        extra="allow",
        frozen=True,
        protected_namespaces=(),
        defer_build=True,
    )


class Request(BaseModel):
    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        protected_namespaces=(),
        defer_build=True,
    )


class Page(Response, Generic[T]):
    """One page of a collection under /v2."""

    items: list[T]
    total: int
    limit: int = 0
    offset: int = 0


class Identity(Response):
    """GET /v2/auth/me."""

    user_id: str
    team_id: str


class ServiceReady(Response):
    """What ``hud-tui serve`` prints when it can be called, and service.json holds."""

    url: str
    api_key: str
    telemetry_url: str
    pid: int
    data_dir: str
