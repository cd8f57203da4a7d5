"""What ``init-env`` writes, and what is said of the user's code: their frames alone, no noise."""

import ast
import asyncio
import json
import logging
import re
import tomllib
from pathlib import Path
from shlex import split

import pytest

from hud_tui.cli.main import main
from hud_tui.parameters import ROLLOUT_OPTIONS, Parameter
from hud_tui.rollouts.host import LAST_MESSAGES, POLL_S, STACK_S, keep_endings_out_of_the_log
from hud_tui.rollouts.process import (
    SDK,
    EnvironmentFailed,
    Interpreter,
    Setting,
    WorkerProcess,
    find_interpreter,
    how_to_get_the_sdk,
)
from hud_tui.rollouts.run_files import Options, read_option
from hud_tui.rollouts.template import KINDS
from hud_tui.rollouts.watched import failure_of, failure_text
from hud_tui.rollouts.worker import Worker, ask_where_after, not_served, probe
from tests.rollouts.driving import make_venv

PYPROJECT = Path(__file__).parents[2] / "pyproject.toml"


def failure_in(folder: Path, text: str) -> dict[str, object]:
    """Of the import of an environment with this text."""
    path = folder / "env.py"
    path.write_text(text)
    try:
        exec(compile(text, path, "exec"), {"__name__": "env"})
    except (Exception, SystemExit) as error:
        return failure_of(error, str(path), "import")
    raise AssertionError("nothing was raised")


def test_a_syntax_error_is_file_line_and_caret(tmp_path: Path) -> None:
    failure = failure_in(tmp_path, "one = 1\ntwo = = 2\n")
    assert (failure["line"], failure["message"]) == (2, "invalid syntax")
    shown = str(failure["traceback"]).splitlines()
    assert shown[0] == f'  File "{tmp_path}/env.py", line 2'
    assert shown[2].strip() == "^"
    assert len(shown) == 4


@pytest.mark.parametrize(
    ("helper", "kind", "line"),
    [("def f(:\n    pass\n", "SyntaxError", 1), ("one = 1\nraise KeyError('no')\n", "KeyError", 2)],
)
def test_an_error_of_an_imported_file_says_who_imports_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, helper: str, kind: str, line: int
) -> None:
    """And frames of the import system are not the user's."""
    (tmp_path / f"a_helper_{kind}.py").write_text(helper)
    monkeypatch.syspath_prepend(str(tmp_path))
    failure = failure_in(tmp_path, f"one = 1\nimport a_helper_{kind}\n")
    where = (failure["file"], failure["line"], failure["type"])
    assert where == (str(tmp_path / f"a_helper_{kind}.py"), line, kind)
    shown = str(failure["traceback"])
    places = [one.split(",")[0].rpartition("/")[2] for one in shown.splitlines() if "File" in one]
    assert places == ['env.py"', f'a_helper_{kind}.py"']
    assert "frozen" not in shown


class ClosedResourceError(Exception):
    """As anyio's."""


async def test_connections_that_end_with_their_rollout_are_not_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    keep_endings_out_of_the_log()
    loop, sdk = asyncio.get_running_loop(), logging.getLogger("mcp.server.streamable_http")
    for raised in (ClosedResourceError(), ValueError("the user's")):
        try:
            raise raised
        except Exception:
            sdk.exception("Error in standalone SSE writer")
    loop.call_exception_handler({"message": "cut", "exception": asyncio.CancelledError()})
    loop.call_exception_handler({"message": "broken", "exception": ValueError("another")})
    assert [str(record.exc_info and record.exc_info[1]) for record in caplog.records] == [
        "the user's",
        "another",
    ]
    caplog.clear()
    run = logging.getLogger("hud.eval.run")
    for error in ("EOFError", "EOFError", "OSError"):
        run.warning("rollout failed mid-run (%s): %s", "agent loop", error)
    assert [record.args for record in caplog.records] == [
        ("agent loop", "EOFError"),
        ("agent loop", "OSError"),
    ]
    for number in range(LAST_MESSAGES):
        run.warning("trace %s", number)
    caplog.clear()
    run.warning("rollout failed mid-run (%s): %s", "agent loop", "EOFError")
    assert len(caplog.records) == 1, "only so many are kept"
    misfit = logging.LogRecord(run.name, logging.WARNING, "", 1, "%s %s", ("one",), None)
    assert run.filter(misfit), "the handlers tell it"
    for one in (sdk, run):
        one.filters.clear()


def test_how_to_get_the_sdk() -> None:
    for version, said in (
        ("3.11.7", "/opt/python -m pip install hud==0.6.21 'typer<0.29'"),
        ("3.13.1", "hud needs Python 3.11 or 3.12, and this is 3.13.1: "),
        (None, "python3.11 -m venv .venv"),
        ("3.11.7", "or in Launch the row python"),
    ):
        assert how_to_get_the_sdk("/opt/python", version).find(said) >= 0


OLD = """#!/bin/sh
case "$1" in -P) echo "Unknown option: -P" >&2; exit 2;; esac
echo {said}
"""
"""A Python that is older than the worker's flags."""


@pytest.mark.parametrize(
    ("said", "why", "hint"),
    [
        ("3.8.18", "it is Python 3.8.18", "hud needs Python 3.11 or 3.12, and this is 3.8.18"),
        ("2.7.18", "it is Python 2.7.18", "hud needs Python 3.11 or 3.12, and this is 2.7.18"),
        ("hello", "it is no Python", "python3.11 -m venv .venv"),
    ],
)
async def test_an_interpreter_that_is_too_old_says_which_it_takes(
    tmp_path: Path, said: str, why: str, hint: str
) -> None:
    python = tmp_path / "python"
    python.write_text(OLD.format(said=said))
    python.chmod(0o755)
    setting = Setting(Interpreter(str(python), "--python"), {}, tmp_path, tmp_path / "log", 1, 0)
    with pytest.raises(EnvironmentFailed) as caught:
        await WorkerProcess(setting).start()
    assert caught.value.message == f"{python} (--python) has no usable hud: {why}"
    assert caught.value.hint.find(hint) >= 0


def test_the_extra_has_what_the_hint_names() -> None:
    extras = tomllib.loads(PYPROJECT.read_text())["project"]["optional-dependencies"]
    assert tuple(one.partition(";")[0] for one in extras["env"]) == SDK


def test_the_nearest_interpreter_with_the_sdk_is_taken(tmp_path: Path) -> None:
    source = tmp_path / "project" / "env.py"
    (tmp_path / ".git").mkdir()
    ours = make_venv(tmp_path / "ours", False)
    assert find_interpreter(source, None, ours).python == ours
    near = make_venv(tmp_path / "project" / "venv", False)
    assert find_interpreter(source, None, ours).python == near, "to be told what it lacks"
    own = make_venv(tmp_path / "other")
    assert find_interpreter(source, None, own).python == own
    above = make_venv(tmp_path / ".venv")
    assert find_interpreter(source, None, own).python == above
    (tmp_path / "project" / ".git").mkdir()
    assert find_interpreter(source, None, own).python == own, "not beyond its repository"


WRONG = {
    "turns": ("0", "1001", "four", ""),
    "rollout_timeout": ("0", "nan", "inf", "86401"),
    "at_once": ("0", "1025", "1.5"),
    "memory_mb": ("-1", "much"),
    "failed": ("ignore", "stop:0", "stop:", "drop:3", "stop:٣"),
    "runtime": ("moon", "tcp:", "local:x"),
    "env": ("A-B", "1A"),
}


@pytest.mark.parametrize("row", ROLLOUT_OPTIONS, ids=lambda row: row.name)
def test_an_option_takes_what_is_usual_and_nothing_else(row: Parameter) -> None:
    usual = getattr(Options(), row.name)
    text = "" if usual in (None, ()) else str(usual)
    assert read_option(row, text) == {row.name: usual}
    for text in WRONG.get(row.name, ()):
        with pytest.raises(ValueError):  # noqa: PT011  (what is said stands beside the field)
            read_option(row, text)


def test_options_of_older_files_are_read() -> None:
    older = {"named": ["SHOP"], "failed": "stop", "stop_after": 3, "turns": 4}
    options = Options.model_validate(older)
    assert (options.env, options.failed, options.stop_after) == (("SHOP",), "stop:3", 3)
    assert Options.model_validate({"named": [], "failed": "drop", "stop_after": 1}) == Options()
    assert (Options(failed="stop").stop_after, Options().stop_after) == (1, None)


def test_a_traceback_ends_where_the_user_s_files_do(tmp_path: Path) -> None:
    shown = str(failure_in(tmp_path, "import json\njson.loads('{')\n")["traceback"])
    place = f'File "{tmp_path}/env.py", line 2'
    assert (shown.count("File "), place in shown) == (1, True), shown
    assert "JSONDecodeError: Expecting property name" in shown


def test_an_exit_is_said_with_its_phase_and_an_error_elsewhere_without_a_place(
    tmp_path: Path,
) -> None:
    failure = failure_in(tmp_path, "import sys\nsys.exit('no shop')\n")
    assert (failure["line"], failure["type"]) == (2, "ProcessEnded")
    assert failure["message"] == "import: its process exited with code 1"
    try:
        PYPROJECT.joinpath("no").read_text()
    except OSError as error:
        failure = failure_of(error, str(tmp_path / "env.py"), "start")
    assert (failure["file"], failure["line"], failure["function"]) == (None, None, None)
    assert failure_text(failure).startswith("NotADirectoryError: ")


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (
            ConnectionRefusedError(111, "Connect call failed ('127.0.0.1', 1)"),
            "nothing listens on 127.0.0.1:1"
            " (start it: python -m hud.environment.server ENV.py --port 1)",
        ),
        (TimeoutError(110, "Connection timed out"), "127.0.0.1:1 does not answer: Connection "),
    ],
)
def test_an_environment_that_nobody_serves_is_named_by_its_address(
    error: OSError, said: str
) -> None:
    assert failure_text(not_served("tcp://127.0.0.1:1", error)).startswith(said)


def test_a_place_is_asked_for_while_it_can_still_be_told() -> None:
    """A process that is stuck in C code tells it through the host, which waits for Python first."""
    for timeout in (5.0, 15.0, 300.0):
        assert timeout / 2 <= ask_where_after(timeout) <= timeout - STACK_S - 2 * POLL_S
    assert ask_where_after(0.1) == 0.05


async def test_a_server_that_goes_away_is_the_failure_of_the_rollouts_that_it_broke() -> None:
    """By its address, since when, and how to start it again, whatever the SDK said."""
    worker, run = Worker(-1), {"error": "[grading] EOFError", "failure": None}
    server = await asyncio.start_server(lambda reader, writer: writer.close(), "127.0.0.1", 0)
    place = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    runtime = f"tcp://{place}"
    assert await probe(runtime) is None
    await worker._check_served(runtime, {"error": None})  # one that went well
    await worker._check_served(runtime, run)
    assert run["failure"] is None, "it is still there: the SDK's error stands"
    server.close()
    await server.wait_closed()
    await worker._check_served(runtime, run)
    said = failure_text(run["failure"])
    assert re.match(
        rf"nothing listens on {place} any more; it answered last at \d\d:\d\d:\d\d \(", said
    )
    assert "(start it again: python -m hud.environment.server ENV.py --port " in said


@pytest.mark.parametrize("flags", [(), *(("--kind", kind) for kind in KINDS)])
def test_it_writes_an_environment_with_tools_templates_and_tests(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], flags: tuple[str, ...]
) -> None:
    assert main(["--headless", "init-env", "rose-bed", "-o", str(tmp_path), *flags]) == 0
    files = json.loads(capsys.readouterr().out)["data"]["files"]
    assert [Path(file).name for file in files] == ["env.py", "test_env.py"]
    text = Path(files[0]).read_text()
    assert 'Environment(name="rose-bed")' in text
    assert not re.findall(r"@[A-Z]+@", text)
    functions = [node for node in ast.parse(text).body if isinstance(node, ast.AsyncFunctionDef)]
    marks = [ast.unparse(mark) for node in functions for mark in node.decorator_list]
    assert sum(mark.startswith("env.template") for mark in marks) == 3
    assert text.count("@tools.tool") == 2
    ast.parse(Path(files[1]).read_text())


@pytest.mark.parametrize(
    ("key", "flags", "own"),
    [("", (), "--local "), ("sk-1", (), ""), ("sk-1", ("--local",), "--local ")],
    ids=["no key", "a key", "local"],
)
def test_it_prints_commands_that_work_in_this_order(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    key: str,
    flags: tuple[str, ...],
    own: str,
) -> None:
    monkeypatch.setenv("HUD_API_KEY", key)
    folder = tmp_path / "my envs" / "rose-bed"
    folder.parent.mkdir()
    assert main([*flags, "init-env", "rose-bed", "-o", str(folder.parent)]) == 0
    said = [line[11:] for line in capsys.readouterr().out.splitlines()[2:]]
    python = f"python3.11 -m venv '{folder}'/.venv && '{folder}'/.venv/bin/pip install hud=="
    assert said[0].startswith(python)
    assert split(said[1])[0] == f"{folder}/.venv/bin/python"
    train = f"hud-tui {own}train '{folder / 'env.py'}' -m MODEL"
    play = f"hud-tui {own}play '{folder / 'env.py'}'"
    assert said[2:] == [play, f"{train} --check", train]


def test_a_name_that_is_none_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("", "a b", "../up", "1st", "ä", "x" * 61):
        assert main(["init-env", name, "-o", str(tmp_path)]) == 2
        assert "is no name" in capsys.readouterr().err
        assert list(tmp_path.iterdir()) == []


def test_what_is_there_stays(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kept = tmp_path / "mine" / "env.py"
    kept.parent.mkdir()
    kept.write_text("mine")
    assert main(["init-env", "mine", "-o", str(tmp_path)]) == 2
    assert "exists" in capsys.readouterr().err
    assert kept.read_text() == "mine"
