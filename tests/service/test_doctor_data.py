"""``hud-tui doctor`` on the embedded service's data directory: what a start would say of it."""

from pathlib import Path

import pytest

from hud_tui.cli.main import main
from hud_tui.service.http import new_id
from hud_tui.service.service import Service
from tests.service.calls import saved_steps, trained_in
from tests.service.clients import documents
from tests.service.test_data_dir import contents
from tests.toy_engine import ToyEngine


@pytest.fixture
async def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data directory with two checkpoints, served by nobody."""
    for name in ("HOME", "HUD_TUI_STATE_DIR", "HUD_TUI_CONFIG_DIR"):
        monkeypatch.setenv(name, str(tmp_path / name))
    data = tmp_path / "data"
    monkeypatch.setenv("HUD_TUI_DATA_DIR", str(data))
    await trained_in(data, 2)
    return data


def doctor(capsys: pytest.CaptureFixture[str]) -> tuple[int, dict[str, str]]:
    """The exit code, and what is said of the service, with its level."""
    code = main(["--headless", "doctor", "--local"])
    [document] = documents(capsys.readouterr().out)
    found = [one for one in document["data"]["findings"] if one["check"] == "service"]
    return code, {f"{one['message']} → {one['fix']}": one["level"] for one in found}


def said(findings: dict[str, str], words: str) -> str:
    """The level of the one that says so."""
    [level] = [level for text, level in findings.items() if words in text]
    return level


async def test_one_that_is_whole_and_one_that_would_not_start(
    data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, findings = doctor(capsys)
    assert (code, said(findings, "database and checkpoints match")) == (0, "ok")
    (data / "service.db").write_bytes(b"")
    before = contents(data)
    code, findings = doctor(capsys)
    assert (code, said(findings, "would not start")) == (1, "failure")
    assert said(findings, "the database is empty → Nothing was changed. Restore the") == "failure"
    assert contents(data) == before


async def test_damage_and_what_is_left_over(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    next(saved_steps(data)[0].iterdir()).unlink()
    async with Service(data, ToyEngine()):
        pass
    (stray := data / "checkpoints" / new_id()).mkdir()
    (stray / "half.tmp").write_text("…")
    code, findings = doctor(capsys)
    assert (code, said(findings, "1 damaged checkpoint: files")) == (0, "warning")
    assert said(findings, "files of 1 checkpoint that service.db does not know") == "warning"
    assert stray.exists()
    async with Service(data, ToyEngine()):
        pass
    code, findings = doctor(capsys)
    assert said(findings, "leftovers-") == "warning"
    assert not any("files of" in text for text in findings)


def test_a_directory_that_was_never_served(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for kind in ("STATE", "DATA", "CONFIG"):
        monkeypatch.setenv(f"HUD_TUI_{kind}_DIR", str(tmp_path / kind))
    code, findings = doctor(capsys)
    assert (code, list(findings.values())) == (0, ["ok"])
