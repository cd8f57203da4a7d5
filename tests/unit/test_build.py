"""Which hud-tui this is: what a bug report quotes, and the commit that it leads to."""

import json
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from hud_tui import __version__, build
from hud_tui.cli.doctor import versions
from hud_tui.cli.main import main
from hud_tui.tui.app import report
from tests import builds

ROOT = Path(__file__).parents[2]


def test_a_version_is_said_with_its_build_by_every_way_to_ask(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    label = build.label()
    assert label.startswith(f"hud-tui {__version__}, build {build.digest()}, Python 3.")
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"{label}\n"
    assert main(["--headless", "--version"]) == 0
    said = json.loads(capsys.readouterr().out)["data"]
    assert said == {"version": __version__, "build": build.digest()}
    by_program = [sys.executable, "-m", "hud_tui", "--version"]
    assert subprocess.run(by_program, capture_output=True, text=True).stdout == f"{label}\n"
    report(RuntimeError("a bug"), tmp_path, ())
    [crash] = tmp_path.glob("crash-*.txt")
    assert crash.read_text().startswith(f"{label}\n")
    assert versions()["build"] == build.digest()


def test_the_version_is_written_in_one_place() -> None:
    """The build backend reads it there."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert "version" not in project["project"]
    files = (ROOT / "hud_tui").rglob("*.py")
    [written] = [file for file in files if "\n__version__ = " in file.read_text()]
    assert written == ROOT / project["tool"]["hatch"]["version"]["path"]


def test_a_build_is_names_and_contents_whatever_pieces_are_read() -> None:
    known = build.digest_of([("/a.py", [b"one"]), ("/b.py", [])])
    assert build.digest_of([("/a.py", [b"o", b"ne"]), ("/b.py", [])]) == known
    assert build.digest_of([("/a.py", []), ("/b.py", [b"one"])]) != known
    assert build.digest_of([("/a.py", [b"two"]), ("/b.py", [])]) != known


def test_a_build_leads_to_its_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Files that are not part of a build, and what lies beside the package, do not matter."""
    package = tmp_path / "hud_tui"
    (package / "cli").mkdir(parents=True)
    for variable in ("GIT_AUTHOR", "GIT_COMMITTER"):
        monkeypatch.setenv(f"{variable}_NAME", "a")
        monkeypatch.setenv(f"{variable}_EMAIL", "a")
    monkeypatch.setattr(builds, "ROOT", tmp_path)
    monkeypatch.setattr(build, "PACKAGE", str(package))
    known = []
    builds.git("init", "-q")
    for number in (1, 2):
        (package / "cli/a.py").write_text(f"{number}")
        (package / "cli.py").write_text("b")
        (package / "styles.tcss").write_text("c")
        builds.git("add", "-A")
        builds.git("commit", "-q", "-m", f"change {number}")
        known.append(build.digest.__wrapped__())
    for number, digest in enumerate(known, 1):
        assert builds.main(digest) == 0
        assert f"change {number}" in capsys.readouterr().out
    assert builds.main("0123456789ab") == 1
    assert "no commit here" in capsys.readouterr().out
