"""What is loaded, and when: start-up is import time."""

import json
import os
import subprocess
import sys

import pytest

import hud_tui.client
from hud_tui.client.trainer import TrainingClient
from tests.conftest import pointed_at

SDK = {"tinker", "transformers", "tokenizers", "torch"}
"""A third of an install, and seconds to load, that only ``--engine tinker`` needs."""
HEAVY = {
    *("textual", "rich", "numpy", "starlette", "uvicorn", "sqlite3", "plotext"),
    *("ruamel", "datasets", "pyarrow", "pandas", "huggingface_hub", "wandb", *SDK),
}
HEADLESS = ("connect", "doctor", "evaluate", "export", "init", "jobs", "models", "runs", "watch")
CHECKPOINTS = """import hud_tui.cli.connect, hud_tui.cli.models
from hud_tui.cli.main import build_parser
build_parser(["--headless", "checkpoints"]).parse_args(["--headless", "checkpoints", "m"])"""
NOT_READ = {
    *("audit_log", "config", "keys", "events", "parameters", "rl.work", "client.starting"),
    *("cores", "wire_changes", "wire_runs", "wire_training"),
    *("tinker_options", "tui", "remote", "cli.flags", "cli.run_flags"),
}
"""What a command that reads a tree leaves to writes, machines and runs."""
NOT_LISTED = {
    *("config", "events", "legacy", "wire_rollouts", "wire_training"),
    *("client.evaluate", "client.evaluation_ledger", "client.feed", "client.preflight"),
    *("rl.alarms", "rl.compare", "rl.evaluation", "rl.imported", "rl.loop", "rl.run", "rl.sweep"),
    *("rl.tasks", "rollouts.environment", "rollouts.process"),
}
"""What a list of jobs or of runs leaves to evaluations, environments and imported runs."""
NOT_STATUS = {"events", "rl.run", "rl.tasks", "rollouts", "wire_runs", "client.works"}
NOT_OF_HUD = {"local_service", "service_file", "processes"}
"""What it leaves to `--local`."""
CONNECT = """from hud_tui.client.client import HudClient
from hud_tui.settings import local_settings
HudClient(local_settings("http://127.0.0.1:9", "k", "http://127.0.0.1:9", "."))"""
HTTP_2 = {"h2", "hpack"}
COMMANDS = """import contextlib, io
from hud_tui.cli.main import main
with contextlib.redirect_stdout(io.StringIO()):
    assert main(["--headless", "chec", "x"]) == 2
    assert main(["--headless", "fork", "a", "--name", "b"]) == 2"""
ENGINES = "hud_tui.service.engines"
OTHERS = {"httpx", "textual", "rich", "numpy", *SDK}
"""What the service's own process leaves to its clients, its faces and its engines."""
CHECK = """import contextlib, io
from hud_tui.service.__main__ import main
with contextlib.redirect_stdout(io.StringIO()):
    main(["--check", "--data-dir", "/nowhere"])"""
MAKE = (
    "from pathlib import Path; from hud_tui.service.serving import make_engine;"
    " make_engine('tiny', Path(), 1)"
)
STARTS: dict[str, list[tuple[str, set[str]]]] = {
    "the command line": [
        (
            "import hud_tui.__main__",
            {"argparse", "typing", "dataclasses", "pathlib", "hud_tui.cli"},
        ),
        (
            "import hud_tui.cli.main; hud_tui.cli.main.build_parser()",
            {*HEAVY, "httpx", "pydantic", "asyncio"},
        ),
        ("import hud_tui.cli.keys, hud_tui.cli.log", {*HEAVY, "httpcore", "pydantic", "asyncio"}),
        ("import hud_tui.client", {*HEAVY, "httpcore", "pydantic", "asyncio"}),
        ("from hud_tui.client import HudClient, Rollout, TrainingClient", HEAVY),
        *((f"import hud_tui.cli.{name}, hud_tui.local_service", HEAVY) for name in HEADLESS),
        (COMMANDS, HEAVY),
    ],
    "a command that reads": [
        (CHECKPOINTS, {"difflib", *(f"hud_tui.{name}" for name in NOT_READ | NOT_OF_HUD)}),
        ("import hud_tui.local_service", {f"hud_tui.{name}" for name in NOT_READ}),
        (CONNECT, {*HEAVY, *HTTP_2}),
    ],
    "a list of jobs": [
        ("import hud_tui.cli.jobs", {f"hud_tui.{name}" for name in NOT_LISTED | {"client.runs"}})
    ],
    "a list of runs": [
        ("import hud_tui.cli.run_table", {f"hud_tui.{name}" for name in NOT_LISTED})
    ],
    "the status": [("import hud_tui.cli.status", {f"hud_tui.{name}" for name in NOT_STATUS})],
    "the app": [
        ("import hud_tui.tui.app", {"numpy", "starlette", "uvicorn", *SDK}),
        ("import hud_tui.tui.workspace", {"pydantic.plugin._loader"}),
    ],
    "the service": [
        ("import hud_tui.service.serving", OTHERS),
        (f"import {ENGINES}.tiny.engine, hud_tui.service.environments", OTHERS),
        (f"import {ENGINES}.tinker.engine", OTHERS),
        (f"import {ENGINES}.tinker.worker", OTHERS),
        (CHECK, SDK),
        (MAKE, SDK),
        (f"import {ENGINES}.tiny.worker", SDK),
    ],
}
"""Interpreters: the code that each runs, and what must not be loaded after each part of it."""
SHOW = """import json, sys
told = []
for code in json.loads(sys.argv[1]):
    exec(code, {})
    told.append([*{*sys.modules, *(name.partition(".")[0] for name in sys.modules)}])
print(json.dumps(told))"""


VALUES = """import sys, tokenize
def never(*given):
    raise AssertionError(given)
tokenize._compile = never
from pydantic import BaseModel
from hud_tui.client.transport import parse
from hud_tui.rl.imported import ImportedRun
from hud_tui.rollouts.run_files import State
from hud_tui.service_file import ServiceReady
from hud_tui.wire import Checkpoint, Model, Page, WorkState
parse(Page[Model], b'{"items": [], "total": 0}', "")
parse(list[WorkState], b"[]", "")
parse(Checkpoint, b'{"id": "c"}', "")
State.model_validate_json("{}")
Model(id="m", model_name="m").model_dump()
print("pydantic.plugin._loader" in sys.modules)
class Another(BaseModel): pass
print("pydantic.plugin._loader" in sys.modules)"""


def test_pydantic_looks_for_no_plugins_nor_tokens_for_us_and_does_for_others() -> None:
    done = subprocess.run([sys.executable, "-c", VALUES], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("False\nTrue\n", "")


@pytest.mark.parametrize("start", STARTS)
def test_nothing_is_loaded_before_it_is_needed(start: str) -> None:
    codes, without = zip(*STARTS[start], strict=True)
    command = [sys.executable, "-c", SHOW, json.dumps(codes)]
    environ = os.environ | pointed_at("http://127.0.0.1:9", "k")
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environ)
    loaded = dict(zip(codes, json.loads(done.stdout), strict=True))
    assert all("hud_tui" in found for found in loaded.values())
    early = {code: not_yet & {*loaded[code]} for code, not_yet in zip(codes, without, strict=True)}
    assert {code: found for code, found in early.items() if found} == {}


ANOTHER = """import sys
from httpcore import AsyncConnectionPool
from httpcore._async.http2 import AsyncHTTP2Connection
print("h2.connection" in sys.modules)"""


def test_another_library_in_this_process_can_speak_http_2() -> None:
    code = f"{CONNECT}\n{ANOTHER}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("True\n", "")


def test_the_package_has_these_names_and_no_others() -> None:
    assert hud_tui.client.TrainingClient is TrainingClient
    with pytest.raises(AttributeError, match="Trainer"):
        hud_tui.client.Trainer  # noqa: B018
