"""``init-env``: what it writes, and what it refuses."""

import ast
import json
from pathlib import Path
from shlex import split

import pytest

from hud_tui.cli.main import main


def test_it_writes_an_environment_with_tools_templates_and_tests(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--headless", "init-env", "rose-bed", "-o", str(tmp_path)]) == 0
    files = json.loads(capsys.readouterr().out)["data"]["files"]
    assert [Path(file).name for file in files] == ["env.py", "test_env.py"]
    text = Path(files[0]).read_text()
    assert 'Environment(name="rose-bed")' in text
    assert "@NAME@" not in text
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
    assert said[2:] == [f"{train} --check", train]


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
