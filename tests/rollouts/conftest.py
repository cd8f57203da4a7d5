"""A command line with a model, an environment to train it on, and runs driven from here."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from hud_tui.rollouts.control import known_runs
from hud_tui.rollouts.run_files import evaluation_folder
from tests.conftest import Served
from tests.rollouts.driving import Driven, make_venv, write_sums
from tests.service.clients import fork_of, over_socket
from tests.service.conftest import bare, hud, own_directories, text

__all__ = ["bare", "hud", "own_directories", "text"]


@pytest.fixture
def source(tmp_path: Path) -> Iterator[Path]:
    """The stand-in's environment with its interpreter beside it; no driver outlives the test."""
    make_venv(tmp_path / "env" / ".venv")
    yield write_sums(tmp_path / "env")
    for folder in known_runs(tmp_path / "state").values():
        folder.ask_to_cancel()
    for file in (tmp_path / "state" / "evaluations").glob("*.json"):
        if (folder := evaluation_folder(tmp_path / "state", file.stem)).is_driven:
            folder.ask_to_cancel()


@pytest.fixture
async def driven(served: Served, tmp_path: Path) -> AsyncIterator[Driven]:
    async with over_socket(served) as client:
        yield Driven(served, client, await fork_of(client), tmp_path)
