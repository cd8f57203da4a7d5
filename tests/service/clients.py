"""Clients of the embedded service, in process and over a socket."""

import json
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from typing import Any

import httpx

from hud_tui.client.client import HudClient
from hud_tui.service.app import create_app
from hud_tui.service.service import Service
from hud_tui.settings import Settings, local_settings
from hud_tui.wire import Model
from hud_tui.wire_runs import JobConfig, JobDataset, JobParameters, SubmitJob
from tests.conftest import Served, until

KEY = "sk-the-secret"
Handler = Callable[[httpx.Request], httpx.Response]


@asynccontextmanager
async def in_process(
    service: Service, api_key: str = "", line: httpx.AsyncBaseTransport | None = None, **more: Any
) -> AsyncIterator[HudClient]:
    """A client whose requests never leave this process; streams need `over_socket`."""
    settings = local_settings("http://127.0.0.1", api_key or service.api_key, "http://127.0.0.1/t")
    line = line or httpx.ASGITransport(create_app(service))
    async with aclosing(HudClient(settings, line, **more)) as client:
        yield client


@asynccontextmanager
async def over_socket(
    served: Served, transport: httpx.AsyncBaseTransport | None = None
) -> AsyncIterator[HudClient]:
    settings = local_settings(served.url, served.api_key, f"{served.url}/t")
    async with aclosing(HudClient(settings, transport)) as client:
        yield client


@asynccontextmanager
async def answered(
    handler: Handler, settings: Settings | None = None, **more: Any
) -> AsyncIterator[HudClient]:
    """A client of a server that does what no good server does."""
    settings = settings or local_settings("http://hud", KEY, "http://hud/t")
    async with aclosing(HudClient(settings, httpx.MockTransport(handler), **more)) as client:
        yield client


async def fork_of(client: HudClient, name: str = "arith rl") -> Model:
    return await client.fork((await client.models())[0].id, name)


async def run_of(client: HudClient, model: Model, **parameters: Any) -> SubmitJob:
    return SubmitJob(
        model_id=model.id,
        dataset=JobDataset(tasks=(await client.tasks.taskset("arith")).tasks),
        config=JobConfig(parameters=JobParameters(**parameters)),
    )


async def trained(client: HudClient, name: str = "arith rl", **parameters: Any) -> Model:
    """A fork that a run with these parameters has trained."""
    model = await fork_of(client, name)
    await train(client, model, **parameters)
    return model


async def train(client: HudClient, model: Model, **parameters: Any) -> None:
    """Train a fork, to the end of the run."""
    job = await client.runs.submit(await run_of(client, model, **parameters))

    async def is_over() -> bool:
        return (await client.job_status(job.job_id)).status == "succeeded"

    await until(is_over)


def documents(out: str) -> list[dict[str, Any]]:
    """The documents that a command printed, checked to be nothing else."""
    found = [json.loads(line) for line in out.splitlines()]
    assert all(document["schema"] == "hud-tui/1" for document in found)
    return found
