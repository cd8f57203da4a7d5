"""Logging to Weights & Biases: what begins it, what is written once, and the real SDK's files."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from time import time
from typing import Any

import pytest
from httpx import AsyncClient

from hud_tui.cli import sinks as told_of
from hud_tui.cli.sinks import check_wandb
from hud_tui.client import HudClient
from hud_tui.client.imported import read_folder
from hud_tui.errors import HudUsage
from hud_tui.processes import holding, last_holder
from hud_tui.rl.sink_rows import RECORD, SinkRow
from hud_tui.rollouts.control import works_of
from hud_tui.rollouts.evaluate import evaluation_files
from hud_tui.settings import PROCESS, VariableSource
from hud_tui.sinks import orders, wandb_sink
from hud_tui.sinks.orders import SinkFolder, SinkOrder, key_origin, restart_sinks, unfinished
from hud_tui.sinks.wandb_sink import Reader, Sink, WandbLog
from hud_tui.storage import is_held
from hud_tui.wire_runs import SubmitEvaluation
from tests.conftest import ended, submit, tasks_of, until
from tests.service.calls import Json, set_head, steps
from tests.service.headless import Command, Configure
from tests.toy_engine import ToyEngine
from tests.unit.test_wandb_file import file_of

SMALL = {"steps": 3, "tasks_per_step": 2, "group_size": 2}
FLAGS = ("--steps", "3", "--tasks-per-step", "2", "--group-size", "2", "-y")
needs_sdk = pytest.mark.skipif(orders.version() is None, reason="pip install 'hud-tui[wandb]'")


class Link:
    """As `ServiceLink`, with one client."""

    def __init__(self, client: HudClient) -> None:
        self.client = client

    async def call(self, ask: Callable[[HudClient], Any]) -> Any:
        return await ask(self.client)


class Memory(WandbLog):
    """A log that is kept here, and on disk as the SDK would."""

    def __init__(self, folder: SinkFolder, most: int = 1000) -> None:
        super().__init__(folder.path)
        self._sink, self._most = folder, most
        self.described: Mapping[str, Any] = {}
        self.rows: list[SinkRow] = []
        self.exit_code: int | None = None

    def open(self, described: Mapping[str, Any], first: int) -> None:
        self.described, self.first = described, first

    def write(self, row: SinkRow) -> None:
        if len(self.rows) == self._most:
            raise KeyboardInterrupt("killed")
        self.rows.append(row)

    def close(self, exit_code: int) -> None:
        run = self._sink.path / "wandb" / f"offline-run-{len(self._sink.runs)}"
        run.mkdir(parents=True)
        rows = [{RECORD: row.record} for row in self.rows]
        (run / "run-a.wandb").write_bytes(file_of(*rows, exit_code=exit_code))
        self.exit_code = exit_code


def ordered(state: Path, work_id: str, model: Json) -> tuple[SinkFolder, SinkOrder]:
    fields = {"work_id": work_id, "model_id": model["id"], "mode": "local", "data_dir": ""}
    order = SinkOrder.model_validate({**fields, "project": "me/proj"})
    folder = SinkFolder(state, work_id)
    folder.save(order)
    folder.open()
    return folder, order


def sink(client: HudClient, state: Path, folder: SinkFolder, order: SinkOrder, to: Memory) -> Sink:
    reader = Reader(order, state, Link(client))  # type: ignore[arg-type]
    return Sink(folder, order, reader.read, to, pause_s=0.01)


async def test_what_a_killed_one_wrote_is_not_written_again(
    client: HudClient, http: AsyncClient, model: Json, tmp_path: Path
) -> None:
    job = await submit(http, model["id"], **SMALL)
    folder, order = ordered(tmp_path, job, model)
    await ended(http, job)
    killed = Memory(folder, most=2)
    with pytest.raises(KeyboardInterrupt):
        await sink(client, tmp_path, folder, order, killed).run()
    rest = Memory(folder)
    assert await sink(client, tmp_path, folder, order, rest).run()
    assert (rest.first, rest.exit_code) == (2, 0)
    names = [row.record for row in (*killed.rows, *rest.rows)]
    assert len(set(names)) == len(names)
    steps = [row.values["step"] for row in (*killed.rows, *rest.rows) if row.histograms]
    assert steps == [1, 2, 3]
    assert names[-1].startswith("end succeeded")
    config = rest.described["config"]
    assert (config["parameters"]["group_size"], config["job_id"]) == (2, job)
    assert (rest.described["entity"], rest.described["project"]) == ("me", "proj")
    assert (rest.described["id"], rest.described["resume"]) == (job.replace("-", ""), "allow")
    nothing = Memory(folder)
    assert await sink(client, tmp_path, folder, order, nothing).run()
    assert nothing.described == {}, "all is written, and its end too"


async def test_a_run_is_followed_with_moves_of_its_head(
    client: HudClient, http: AsyncClient, model: Json, engine: ToyEngine, tmp_path: Path
) -> None:
    engine.rest_after(2)
    job = await submit(http, model["id"], **{**SMALL, "steps": 4})
    folder, order = ordered(tmp_path, job, model)
    to = Memory(folder)
    following = asyncio.create_task(sink(client, tmp_path, folder, order, to).run())
    await until(lambda: len(to.rows) == 2)
    moved_to = to.rows[0].record
    assert (await set_head(http, model["id"], moved_to)).is_success
    engine.go_on()
    assert await following
    [move] = [row for row in to.rows if row.values.get("event") == "head"]
    assert move.values["checkpoint_id"] == moved_to
    steps = [row.values["step"] for row in to.rows if row.histograms]
    assert sorted(steps) == [1, 2, 3, 4]


async def test_a_run_that_nobody_knows_is_given_up(
    client: HudClient, model: Json, tmp_path: Path
) -> None:
    folder, order = ordered(tmp_path, "no-such-run", model)
    to = Memory(folder)
    assert await sink(client, tmp_path, folder, order, to).run()
    assert to.described == {}


# What begins it.


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Modules that would be started, each with its arguments; the SDK seems to be there."""
    begun: list[list[str]] = []

    class Ended:
        def wait(self) -> None: ...

    def daemon(log: Path, module: list[str], variables: Mapping[str, str]) -> Ended:
        begun.append(module)
        return Ended()

    monkeypatch.setattr(orders, "daemon", daemon)
    monkeypatch.setattr(orders, "version", lambda: "0.31.0")
    return begun


def state_dir() -> Path:
    return Path(os.environ["HUD_TUI_STATE_DIR"])


async def test_the_flag_begins_it_for_runs_evaluations_and_sweeps(
    hud: Command, started: list[list[str]]
) -> None:
    job = (await hud("run", "arith", "-m", "arith-rl", *FLAGS, "--wandb", "p", "--follow")).data
    order = SinkFolder(state_dir(), job["job_id"]).order()
    assert started == [[orders.MODULE, str(state_dir()), job["job_id"]]]
    assert (order.project, order.model_id, order.mode) == ("p", job["status"]["model_id"], "hud")
    folder = SinkFolder(state_dir(), job["job_id"])
    folder.close()  # else each command starts it again
    made = (await hud("eval", "arith", "-m", "arith-rl", "--wandb", "p")).data["evaluation"]
    assert started[1][2] == made["id"]
    SinkFolder(state_dir(), made["id"]).close()
    await hud("run", "arith", "-m", "arith-rl", *FLAGS, "--wandb", "p", "--follow", "--seed", "1,2")
    assert len({module[2] for module in started}) == len(started) == 4


async def test_the_config_file_begins_it_and_nothing_else_does(
    hud: Command, started: list[list[str]], configure: Configure
) -> None:
    await hud("run", "arith", "-m", "arith-rl", *FLAGS, "--follow")
    assert started == []
    assert not (state_dir() / "sinks").exists()
    configure('[sinks]\nwandb = "mine"\n')
    await hud("run", "arith", "-m", "arith-rl", *FLAGS, "--follow")
    [[_, _, job]] = started
    order = SinkFolder(state_dir(), job).order()
    assert order.project == "mine"
    SinkFolder(state_dir(), job).close()
    await hud("run", "arith", "-m", "arith-rl", *FLAGS, "--follow", "--wandb", "")
    assert len(started) == 1, "this one is left out"


@pytest.mark.parametrize(
    ("project", "says"), [("a/b/c", "expected PROJECT"), ("a#", "ENTITY/PROJECT"), ("/a", "ENTITY")]
)
async def test_a_name_that_is_none_is_refused_before_anything_is_sent(
    hud: Command, started: list[list[str]], project: str, says: str
) -> None:
    result = await hud("run", "arith", "-m", "arith-rl", *FLAGS, "--wandb", project)
    assert (result.code, says in result.error["message"]) == (2, True)
    assert (await hud("jobs")).data["jobs"] == []


async def test_without_the_sdk_the_flag_is_refused_and_the_config_file_is_told_of(
    hud: Command, configure: Configure, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(orders, "version", lambda: None)
    result = await hud("run", "arith", "-m", "arith-rl", *FLAGS, "--wandb", "p")
    assert (result.code, result.error["hint"]) == (2, orders.INSTALL)
    configure('[sinks]\nwandb = "mine"\n')
    went_on = await hud("run", "arith", "-m", "arith-rl", *FLAGS, "--follow")
    assert went_on.code == 0
    assert "not logged to Weights & Biases: the SDK of Weights & Biases is not installed: " in (
        went_on.err
    )


async def test_whoever_comes_by_starts_a_killed_one_again_but_not_one_that_works(
    hud: Command, started: list[list[str]], model: Json
) -> None:
    folder, order = ordered(state_dir(), "run-1", model)
    with holding(folder.lock):
        await hud("models")
        assert started == []
    await hud("models")
    assert [module[2] for module in started] == ["run-1"]
    folder.save(order.model_copy(update={"ended": True, "sync_tried_at": time()}))
    await hud("models")
    assert len(started) == 1, "its sync failed just now"
    folder.close()
    assert unfinished(state_dir()) == []


# Evaluations from hosted rollouts, as on HUD: whoever follows one makes it.


async def test_an_evaluation_that_is_made_on_hud_is_logged_and_goes_on_when_it_is_resumed(
    evaluates_nothing: None, hud: Command, http: AsyncClient, started: list[list[str]]
) -> None:
    await steps(http, (await http.get("/v2/models/arith-rl")).json(), 1)
    command = ("eval", "arith", "-m", "arith-rl", "--samples", "1")
    await hud(*command)
    assert started == [], "nobody asked for it"
    made = (await hud(*command, "--wandb", "p")).data["evaluation"]
    assert [module[2] for module in started] == [made["id"]]
    folder = SinkFolder(state_dir(), made["id"])
    order = folder.order()
    assert (order.project, order.mode, order.model_id) == ("p", "hud", made["model_id"])
    folder.close()
    files = evaluation_files(state_dir())
    stored = files.read(made["id"])
    files.write(stored.ended("cancelled"))
    assert (await hud("eval", "--resume", made["id"])).data["evaluation"]["status"] == "succeeded"
    assert ([module[2] for module in started], bool(folder.token)) == ([made["id"]] * 2, True)


async def test_one_that_nobody_makes_any_more_is_not_waited_for(
    evaluates_nothing: None,
    client: HudClient,
    http: AsyncClient,
    model: Json,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    await steps(http, model, 1)
    head = (await client.checkpoints(model["id"]))[-1]
    body = SubmitEvaluation(checkpoint_id=head.id, tasks=await tasks_of(http))
    works = works_of(client, tmp_path)
    begun = await works.evaluations.submit(await client.model(model["id"]), body)
    folder, order = ordered(tmp_path, begun.id, model)
    monkeypatch.setattr(wandb_sink, "ALONE_S", 0.05)
    with pytest.raises(HudUsage, match="nobody makes the rollouts"):
        await sink(client, tmp_path, folder, order, Memory(folder)).run()
    assert folder.token, "whoever comes by starts it again"
    monkeypatch.undo()
    async for _ in works.follow(begun.id):
        pass
    to = Memory(folder)
    assert await sink(client, tmp_path, folder, order, to).run()
    assert to.rows[-1].values["status"] == "succeeded"


# A sync, and the key.


KEY = "0123456789abcdef0123456789abcdef01234567"


def test_the_key_is_in_the_environment_of_the_sync_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("WANDB_API_KEY", KEY)
    monkeypatch.setenv("WANDB_MODE", "disabled")
    variables = wandb_sink.take_variables()
    assert not [name for name in os.environ if name.startswith("WANDB_")]
    assert variables == {"WANDB_API_KEY": KEY}
    seen: dict[str, Any] = {}

    def run(command: list[str], **more: Any) -> subprocess.CompletedProcess[bytes]:
        seen.update(more, command=command)
        return subprocess.CompletedProcess(command, 1, b"", f"bad key {KEY}".encode())

    monkeypatch.setattr(subprocess, "run", run)
    folder = SinkFolder(tmp_path, "run-1")
    for name in ("offline-run-1", "offline-run-2"):
        (folder.path / "wandb" / name).mkdir(parents=True)
    (folder.path / "wandb/offline-run-1/run-a.wandb.synced").touch()
    assert not wandb_sink.sync(folder, variables)
    assert seen["env"]["WANDB_API_KEY"] == KEY
    assert KEY not in str(seen["command"]) + caplog.text
    assert seen["command"][5:] == [str(folder.path / "wandb/offline-run-2")]
    assert "not synced: bad key …" in caplog.text


def test_a_key_is_a_variable_or_what_wandb_login_wrote(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    assert key_origin({}) == ""
    (tmp_path / "netrc").write_text(f"machine api.wandb.ai\n login user\n password {KEY}\n")
    (tmp_path / "netrc").chmod(0o600)
    assert key_origin({}) == str(tmp_path / "netrc")
    assert key_origin({"WANDB_BASE_URL": "https://wandb.example"}) == ""
    assert key_origin({"WANDB_API_KEY": KEY}) == "WANDB_API_KEY"


def test_doctor_says_whether_it_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, configure: Configure
) -> None:
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    key = [VariableSource(PROCESS, {"WANDB_API_KEY": KEY})]
    environ = {"HUD_TUI_CONFIG_DIR": os.environ["HUD_TUI_CONFIG_DIR"]}
    unused = check_wandb(None, key, tmp_path, environ)
    assert (unused.level, "nothing uses WANDB_API_KEY" in unused.message) == ("ok", True)
    monkeypatch.setattr(told_of, "_try_sdk", lambda: "")
    here = check_wandb("0.31.0", [], tmp_path, environ)
    assert (here.level, "no key to sync them" in here.message) == ("ok", True)
    away = {**environ, "WANDB_BASE_URL": "http://127.0.0.1:9"}
    silent = check_wandb("0.31.0", key, tmp_path, away)
    assert (silent.level, "does not answer" in silent.message) == ("warning", True)
    monkeypatch.setattr(told_of, "_try_sdk", lambda: "no core")
    assert "cannot write here: no core" in check_wandb("0.31.0", [], tmp_path, environ).message
    configure('[sinks]\nwandb = "mine"\n')
    missing = check_wandb(None, [], tmp_path, environ)
    assert (missing.level, missing.fix) == ("warning", orders.INSTALL)
    assert KEY not in unused.message + silent.message


# The real SDK.


def inspected(file: Path) -> Any:
    """What the SDK's own reader says of a file."""
    command = [sys.executable, "-m", "wandb", "leet", "inspect", "--summary", "--json", str(file)]
    return json.loads(subprocess.run(command, capture_output=True, check=True).stdout)


@needs_sdk
async def test_the_sdk_reads_what_was_written_through_a_kill(hud: Command) -> None:
    begun = await hud("run", "arith", "-m", "arith-rl", *FLAGS, "--wandb", "proj", "--follow")
    job, state = begun.data["job_id"], state_dir()
    folder = SinkFolder(state, job)
    await until(lambda: folder.writers.exists() or not folder.token)
    writer = last_holder(folder.lock)
    writer.send(signal.SIGKILL)
    # the first thread of a process may have ended while another one still holds its files
    await until(lambda: not is_held(folder.lock))
    restart_sinks(state)
    await until(lambda: not folder.token, 60)
    history = [row for logged in folder.logged() for row in logged.history]
    assert [row["_step"] for row in history] == list(range(len(history)))
    assert len({row[RECORD] for row in history}) == len(history)
    assert [row["step"] for row in history if "reward_mean" in row] == [1, 2, 3]
    [*_, newest] = folder.runs
    [file] = newest.glob("*.wandb")
    read = inspected(file)
    assert (read["project"], read["state"], read["exit_code"]) == ("proj", "finished", 0)
    assert read["config"]["parameters"]["group_size"] == 2
    assert read["run_id"] == job.replace("-", "")
    summary = read["summary"]
    assert (summary["status"], summary["step"]) == ("succeeded", 3)
    assert summary["checkpoint"] == "step-000003"
    assert "histogram" in str(summary["groups/reward"])
    assert "table-file" in str(summary["events"])
    [imported], skipped = read_folder(folder.path)
    assert (imported.numbers, imported.trainer, skipped) == ([1, 2, 3], "hud-tui", [])
    assert imported.unknown == [], "we know our own names"
    assert imported.parameters["group_size"] == 2
    assert imported.metrics["reward_mean"] == [
        row["reward_mean"] for row in history if "reward_mean" in row
    ]


@needs_sdk
async def test_the_sdk_reads_an_evaluation_that_was_made_on_hud(
    evaluates_nothing: None, hud: Command, http: AsyncClient
) -> None:
    await steps(http, (await http.get("/v2/models/arith-rl")).json(), 1)
    command = ("eval", "arith", "-m", "arith-rl", "--samples", "1", "--wandb", "proj")
    made = (await hud(*command)).data["evaluation"]
    folder = SinkFolder(state_dir(), made["id"])
    await until(lambda: not folder.token, 60)
    [written] = folder.runs
    [file] = written.glob("*.wandb")
    read = inspected(file)
    assert (read["project"], read["exit_code"]) == ("proj", 0)
    summary = read["summary"]
    assert (summary["status"], summary["rollouts"]) == ("succeeded", made["done"])
    assert summary["mean_reward"] == pytest.approx(made["mean_reward"])
    assert "table-file" in str(summary["tasks"])


@needs_sdk
def test_the_sdk_can_be_tried() -> None:
    assert told_of._try_sdk() == ""
