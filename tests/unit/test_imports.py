"""What is loaded, and when: start-up is import time."""

import subprocess
import sys

import pytest

import hud_tui.client
from hud_tui.client.trainer import TrainingClient

HEAVY = (
    *("textual", "rich", "numpy", "tinker", "starlette", "uvicorn", "sqlite3", "plotext"),
    *("ruamel", "datasets", "pyarrow", "pandas", "huggingface_hub", "transformers"),
)
HEADLESS = ["connect", "evaluate", "models", "jobs", "runs", "watch", "files", "doctor"]


def loaded_after(code: str) -> set[str]:
    """Top-level modules that a fresh interpreter has loaded after running this."""
    show = "import sys; print(*{name.partition('.')[0] for name in sys.modules})"
    command = [sys.executable, "-c", f"{code}\n{show}"]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    return set(result.stdout.split())


def test_the_command_line_alone_loads_next_to_nothing() -> None:
    loaded = loaded_after("import hud_tui.cli.main; hud_tui.cli.main.build_parser()")
    assert not loaded & {*HEAVY, "httpx", "pydantic", "asyncio"}


@pytest.mark.parametrize("module", HEADLESS)
def test_headless_loads_no_other_face_and_no_engine(module: str) -> None:
    loaded = loaded_after(f"import hud_tui.cli.main, hud_tui.cli.{module}, hud_tui.local_service")
    assert not loaded & set(HEAVY)
    assert "hud_tui" in loaded


def test_a_headless_command_loads_none_of_them_by_the_time_it_ends() -> None:
    run = "import os; os.environ['HUD_API_KEY'] = 'k'\n"
    for name in ("API", "RL", "GATEWAY", "TELEMETRY", "WEB"):
        run += f"os.environ['HUD_{name}_URL'] = 'http://127.0.0.1:9'\n"
    run += "import contextlib, io\nfrom hud_tui.cli.main import main\n"
    run += "with contextlib.redirect_stdout(io.StringIO()):\n"
    run += "    assert main(['--headless', 'chec', 'x']) == 2\n"
    run += "    assert main(['--headless', 'fork', 'a', '--name', 'b']) == 2\n"
    assert not loaded_after(run) & set(HEAVY)


def test_the_app_s_module_loads_no_engine_and_no_service() -> None:
    loaded = loaded_after("import hud_tui.tui.app")
    assert not loaded & {"numpy", "tinker", "starlette", "uvicorn"}


def test_the_service_does_not_load_the_client() -> None:
    loaded = loaded_after("import hud_tui.service.app")
    assert not loaded & {"httpx", "textual", "rich", "numpy"}


@pytest.mark.parametrize(
    "code",
    [
        "import hud_tui.tui.app",
        "import hud_tui.service.__main__",
        "from pathlib import Path; from hud_tui.service.app import *; make_engine('tiny', Path())",
        "import hud_tui.service.engines.tiny.worker",
        "import hud_tui.service.engines.tinker.engine",
        "import hud_tui.service.engines.tinker.worker",
    ],
)
def test_the_sdk_and_transformers_wait_for_the_tinker_engine(code: str) -> None:
    """A third of an install, and seconds to load, that only ``--engine tinker`` needs."""
    assert not loaded_after(code) & {"tinker", "transformers", "tokenizers", "torch"}


def test_the_package_alone_loads_next_to_nothing() -> None:
    assert not loaded_after("import hud_tui.client") & {*HEAVY, "httpcore", "pydantic", "asyncio"}


def test_a_loop_loads_no_face_no_engine_and_no_torch() -> None:
    loaded = loaded_after("from hud_tui.client import HudClient, Rollout, TrainingClient")
    assert not loaded & {*HEAVY, "torch"}


def test_the_package_has_these_names_and_no_others() -> None:
    assert hud_tui.client.TrainingClient is TrainingClient
    with pytest.raises(AttributeError, match="Trainer"):
        hud_tui.client.Trainer  # noqa: B018
