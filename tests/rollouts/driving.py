"""Runs that are driven by a real driver, with the stand-in worker, against a real service."""

import json
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from uuid import uuid4

from hud_tui.client.client import HudClient
from hud_tui.rollouts.driver import Driver
from hud_tui.rollouts.process import OnRollout, Setting, WorkerProcess
from hud_tui.rollouts.run_files import Order, RunFolder, run_folder
from hud_tui.settings import Settings, local_settings
from hud_tui.wire import Model
from tests.conftest import Served

SUMS = [{"args": {"a": a, "b": b}} for a in range(2, 6) for b in range(1, 4)]


STAND_IN = "tests.rollouts.stand_in"


class StandIn(WorkerProcess):
    def words(self) -> list[str]:
        return [sys.executable, "-m", STAND_IN]


def make_venv(directory: Path, sdk: bool = True) -> str:
    """A virtual environment whose Python is the stand-in; its path. `sdk`: whether it has the
    SDK."""
    python = directory / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(f"#!/bin/sh\ncd {os.getcwd()} && exec {sys.executable} -m {STAND_IN}\n")
    python.chmod(0o755)
    if sdk:
        package = directory / "lib" / "python3.11" / "site-packages" / "hud"
        package.mkdir(parents=True)
        (package / "__init__.py").touch()
    return str(python)


def order_for(model: Model, source: Path, data: Path, **more: Any) -> Order:
    parameters = {
        "steps": 3,
        "group_size": 4,
        "tasks_per_step": 3,
        "learning_rate": 0.3,
        "max_tokens": 20,
        "seed": 0,
        **more.pop("parameters", {}),
    }
    return Order(
        job_id=str(uuid4()),
        name="sums",
        model_id=model.id,
        model=model.model_name,
        mode=more.pop("mode", "local"),
        data_dir=str(data),
        source=str(source),
        parameters=parameters,
        **more,
    )


def write_sums(directory: Path, rows: list[dict[str, Any]] = SUMS) -> Path:
    """The stand-in's environment: its tasks, as JSON behind a comment sign."""
    directory.mkdir(parents=True, exist_ok=True)
    source = directory / "sums.py"
    source.write_text("#" + json.dumps(rows))
    return source


def begun(state: Path, order: Order) -> RunFolder:
    folder = run_folder(state, order.job_id)
    folder.begin(order)
    return folder


def driver_of(
    folder: RunFolder,
    settings: Settings | Callable[[], Settings | None],
    workers: list[WorkerProcess] | None = None,
) -> Driver:
    """A driver in this process; `workers` collects those that it starts."""

    def connect() -> HudClient | None:
        found = settings() if callable(settings) else settings
        return None if found is None else HudClient(found)

    def make(setting: Setting, on_rollout: OnRollout) -> WorkerProcess:
        environment = {**setting.variables, "PYTHONPATH": os.getcwd()}
        made = StandIn(replace(setting, variables=environment), on_rollout)
        if workers is not None:
            workers.append(made)
        return made

    return Driver(folder, connect, make)


@dataclass(frozen=True)
class Driven:
    """A model of a service, and runs that train it from this process."""

    served: Served
    client: HudClient
    model: Model
    directory: Path
    """Holds the environment and the runs' state."""

    def begin(self, rows: list[dict[str, Any]] = SUMS, **more: Any) -> RunFolder:
        """An order to train on these tasks; `more` as `order_for` takes it."""
        source = write_sums(self.directory / "env", rows)
        order = order_for(self.model, source, self.served.service.data_dir, **more)
        return begun(self.directory / "state", order)

    async def drive(self, folder: RunFolder, workers: list[WorkerProcess] | None = None) -> str:
        """Drive it to its end; the status that it came to."""
        settings = settings_of(self.served.url, self.served.api_key)
        return await driver_of(folder, settings, workers).run()

    async def check(self, steps: int) -> None:
        await check_tree(self.client, self.model.id, steps)


def settings_of(url: str, api_key: str) -> Settings:
    return local_settings(url, api_key, f"{url}/telemetry/v3/api")


async def check_tree(client: HudClient, model_id: str, steps: int) -> None:
    """So many steps in one line, and no rollout in two of them: a rollout that is trained on again
    belongs to the later step alone, so that the earlier one has fewer than it counts."""
    tree = await client.checkpoints(model_id)
    assert len(tree) == steps
    parents = [node.prev_model_checkpoint_id for node in tree]
    assert parents == [None, *(node.id for node in tree[:-1])]
    for node in tree:
        traces = await client.rollouts.checkpoint_traces(model_id, node.id)
        assert len(traces) == node.num_traces
