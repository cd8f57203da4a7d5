"""Which hud-tui this is: what a bug report quotes, and the commit that it leads to."""

import json
import os
import subprocess
import sys
import tomllib
from base64 import urlsafe_b64encode
from hashlib import sha256
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
    one, two = build.hash_of([b"one"]), build.hash_of([b"two"])
    assert build.hash_of([b"o", b"ne"]) == one
    known = build.digest_of([("/a.py", one), ("/b.py", two)])
    assert build.digest_of([("/b.py", two), ("/a.py", one)]) == known
    assert build.digest_of([("/a.py", two), ("/b.py", one)]) != known
    assert build.digest_of([("/a.py", one)]) != known
    assert build.digest_of([("/a.py", one), ("/c.py", two)]) != known


@pytest.fixture
def wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The package of an installed wheel of two files."""
    package, record = tmp_path / "hud_tui", tmp_path / f"hud_tui-{__version__}.dist-info/RECORD"
    rows = ["../../../bin/hud-tui,sha256=abc,227", f"{record.parent.name}/RECORD,,"]
    for folder in (package / "cli", record.parent):
        folder.mkdir(parents=True)
    for name in ("cli/a.py", "wire.py"):
        (package / name).write_text(name)
        hash_ = urlsafe_b64encode(sha256(name.encode()).digest()).decode().rstrip("=")
        rows.append(f"hud_tui/{name},sha256={hash_},{len(name)}")
    record.write_text("\n".join(rows))
    monkeypatch.setattr(build, "PACKAGE", str(package))
    return package


def test_an_installed_wheel_has_the_build_of_its_files_and_reads_none(
    wheel: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = build.digest.__wrapped__()
    with monkeypatch.context() as as_read:
        as_read.setattr(build, "_recorded", lambda: ({}, 0))
        assert build.digest.__wrapped__() == known
    monkeypatch.setattr(build, "_content", None)
    assert build.digest.__wrapped__() == known


@pytest.mark.parametrize("edit", ["newer", "longer", "added", "removed"])
def test_a_wheel_that_was_edited_has_another_build_than_its_record_says(
    wheel: Path, edit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    known, file = build.digest.__wrapped__(), wheel / "wire.py"
    installed_ns = file.stat().st_mtime_ns
    if edit == "newer":
        file.write_text("WIRE.PY")
        os.utime(file, ns=(installed_ns, installed_ns + 10**9))
    elif edit == "longer":
        file.write_text("wire.py ")
        os.utime(file, ns=(installed_ns, installed_ns))
    elif edit == "added":
        (wheel / "cli/b.py").touch()
    else:
        file.unlink()
    found = build.digest.__wrapped__()
    assert found != known
    monkeypatch.setattr(build, "_recorded", lambda: ({}, 0))
    assert build.digest.__wrapped__() == found


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
