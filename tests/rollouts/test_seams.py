"""Between each pair of commands the service restarts at another port, the working directory is
another one, and once the data directory moves: what is durable is known by what it is."""

import asyncio
import json
import os
from collections.abc import AsyncIterator
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from hud_tui.rl.plan import MissingRollouts
from hud_tui.rollouts.control import known_runs
from hud_tui.rollouts.process import WorkerGone
from hud_tui.rollouts.worker_rollouts import WorkerHost, WorkerMaker
from hud_tui.service_file import read_ready
from tests.conftest import until
from tests.rollouts.driving import SUMS, make_venv, write_sums
from tests.service.headless import Result, runner

FLAGS = ("--group-size", "4", "--tasks-per-step", "3", "--lr", "1e-6", "--max-tokens", "20")


class Moving:
    """Runs commands on an embedded service that never stays where it was."""

    def __init__(
        self, root: Path, patch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        self._root, self._patch, self._run = root, patch, runner(capsys)
        self._numbers = count(1)
        self.urls: set[str] = set()
        for kind in ("state", "data", "config"):
            self._patch.setenv(f"HUD_TUI_{kind.upper()}_DIR", str(root / kind))

    @property
    def state(self) -> Path:
        return self._root / "state"

    async def move_data(self) -> None:
        """The service's data directory gets another path."""
        moved = self._root / f"moved-{next(self._numbers)}"
        await self.stop()
        os.rename(os.environ["HUD_TUI_DATA_DIR"], moved)
        self._patch.setenv("HUD_TUI_DATA_DIR", str(moved))

    async def __call__(self, *argv: str, within: str | None = None) -> Result:
        """Restart the service, and run a command in a directory of its own, or in this one."""
        await self.stop()
        directory = self._root / (within or f"at-{next(self._numbers)}")
        directory.mkdir(exist_ok=True)
        self._patch.chdir(directory)
        done = await self._run("--local", *argv)
        if (ready := read_ready(self.state / "service.json")) is not None:
            self.urls.add(ready.url)
        return done

    async def right(self, *argv: str, within: str | None = None) -> Any:
        """A command that succeeds; its data."""
        done = await self(*argv, within=within)
        assert done.code == 0, done.err
        return done.data

    async def serve_elsewhere(self) -> None:
        """From now on the service is that of another data directory."""
        await self.stop()
        self._patch.setenv("HUD_TUI_DATA_DIR", str(self._root / "elsewhere"))

    async def stop(self) -> None:
        stopped = await self._run("stop")
        assert stopped.code == 0, stopped.err


@pytest.fixture
async def moving(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> AsyncIterator[Moving]:
    for name in [name for name in os.environ if name.startswith("HUD_")]:
        monkeypatch.delenv(name)
    moving = Moving(tmp_path, monkeypatch, capsys)
    yield moving
    for folder in known_runs(moving.state).values():
        folder.ask_to_cancel()
    await moving.stop()


async def test_a_run_goes_on_wherever_service_and_commands_are(
    moving: Moving, tmp_path: Path
) -> None:
    make_venv(tmp_path / "env" / "own")
    write_sums(tmp_path / "env")
    await moving.right("fork", "tiny/arith-0.2M", "--name", "arith-rl", "-y")
    train = ("train", "sums.py", "-m", "arith-rl", "--python", "own", *FLAGS, "--steps", "400")
    assert (await moving("train", "sums.py", "-m", "arith-rl", "--check")).code == 2, "not there"
    checked = await moving.right(*train, "--check", "--no-trial", within="env")
    assert checked["interpreter"]["found"] == "--python"
    job_id = (await moving.right(*train, "--no-trial", "-y", within="env"))["job_id"]
    folder = known_runs(moving.state)[job_id]
    assert folder.order().python == str(tmp_path / "env" / "own" / "bin" / "python")
    assert (await moving.right("jobs", job_id))["status"]["status"] == "running"
    again = await moving(*train, "--no-trial", "-y", within="env")
    assert again.error["message"] == f"run {job_id} trains this model"
    await until(lambda: folder.state().step >= 2)
    assert [run["id"] for run in (await moving.right("runs"))["runs"]] == [job_id]
    assert (await moving.right("jobs", job_id, "--cancel", "-y"))["cancelled"] == 1
    assert folder.state().status == "cancelled"
    await moving.move_data()
    taken = folder.state().step
    assert (await moving.right("jobs", job_id, "--resume", "-y"))["status"]["status"] == "running"
    await until(lambda: folder.state().step > taken)
    await moving.right("jobs", job_id, "--cancel", "-y")
    traces = (await moving.right("traces", job_id))["traces"]
    assert {trace["job_id"] for trace in traces} == {job_id}
    steps = (await moving.right("checkpoints", "arith-rl"))["checkpoints"]
    assert len(steps) == folder.state().step
    exported = await moving.right("export", "-m", "arith-rl", "-o", "steps.csv")
    assert Path(exported["file"]).name == "steps.csv"
    assert len(moving.urls) > 1


async def test_an_evaluation_on_an_environment_is_resumed_wherever_service_and_commands_are(
    moving: Moving, tmp_path: Path
) -> None:
    make_venv(tmp_path / "env" / "own")
    write_sums(tmp_path / "env", [*SUMS[:3], {"args": {"a": 1, "b": 1, "fault": "error"}}])
    await moving.right("fork", "tiny/arith-0.2M", "--name", "arith-rl", "-y")
    words = ("eval", "sums.py", "-m", "arith-rl", "--checkpoint", "base", "--python", "own")
    begun = await moving(*words, "--samples", "2", "--max-tokens", "20", within="env")
    assert begun.code == 1
    assert "2 of 8 rollouts failed" in begun.error["message"]
    assert "sums.py:12 in add: KeyError" in begun.error["message"]
    [kept] = (moving.state / "evaluations").glob("*.json")
    listed = (await moving.right("eval", "-m", "arith-rl", "--list"))["evaluations"]
    assert [(one["id"], one["done"]) for one in listed] == [(kept.stem, 6)]
    again = await moving("eval", "--resume", kept.stem)
    assert "2 of 8 rollouts failed" in again.error["message"], "it fails as before"
    await moving.move_data()
    told = json.loads(kept.read_text())
    told["tasks"][-1]["args"].pop("fault")
    kept.write_text(json.dumps(told))
    done = (await moving.right("eval", "--resume", kept.stem[:8]))["evaluation"]
    assert (done["status"], done["done"]) == ("succeeded", 8)
    assert "succeeded" in json.dumps(await moving.right("jobs", kept.stem))
    assert len((await moving.right("traces", kept.stem))["traces"]) == 8 + 2 + 2, (
        "none that was graded is made again"
    )
    assert len(moving.urls) > 1
    await moving.serve_elsewhere()
    assert (await moving("eval", "--resume", kept.stem)).code == 2, "of another data directory"


async def test_what_was_made_beside_a_rollout_that_lost_its_worker_is_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def loaded() -> None: ...

    async def roll_out(missing: MissingRollouts[Any]) -> str:
        if missing.task == "lost":
            raise WorkerGone("the worker ended with code 1")
        return str(missing.task)

    nothing: Any = None
    host = WorkerHost(nothing, nothing, Path(), asyncio.Event())
    monkeypatch.setattr(host, "load", loaded)
    maker: WorkerMaker[str] = WorkerMaker(host, roll_out, loaded)
    tasks = ["lost", *map(str, range(30))]
    missing: list[MissingRollouts[Any]] = [MissingRollouts(task, 0, 1) for task in tasks]
    made = list[str]()
    with suppress(WorkerGone):
        async for part in maker.make(missing):
            made.append(part)
    assert sorted(made) == sorted(tasks[1:])
