"""What the doctor says of the tinker engine."""

from pathlib import Path

import pytest

from hud_tui.cli import doctor
from hud_tui.cli.doctor import check_tinker
from hud_tui.client.transport import Host

URL = "http://trainer:8000"


@pytest.fixture(autouse=True)
def nobody_signed_in(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))


def test_an_engine_that_is_not_used_is_well_and_a_setting_that_cannot_be_is_named() -> None:
    finding = check_tinker({})
    assert finding.level == "ok"
    assert "not set up" in finding.message
    finding = check_tinker({"TINKER_BASE_URL": "http://me:secret@trainer"})
    assert finding.level == "warning"
    assert "TINKER_BASE_URL" in finding.message
    assert "secret" not in finding.message


def test_a_setting_that_can_be_used_is_probed(monkeypatch: pytest.MonkeyPatch) -> None:
    async def refused(name: str, url: str, local: bool) -> Host:
        return Host((name,), url, False, detail=f"refused, local: {local}")

    monkeypatch.setattr(doctor, "probe_url", refused)
    finding = check_tinker({"TINKER_BASE_URL": URL, "TINKER_API_KEY": "tml-x"})
    assert f"{URL} does not answer: refused, local: False" in finding.message


@pytest.mark.parametrize(
    ("host", "level", "said"),
    [
        (Host(("tinker",), URL, False, detail="refused"), "warning", "does not answer: refused"),
        (Host(("tinker",), URL, True, 503, 0.1), "warning", "HTTP 503"),
        (Host(("tinker",), URL, True, 404, 0.1), "ok", "rank 32, checkpoints kept for 36 h"),
    ],
)
def test_what_the_server_s_answer_means(
    host: Host, level: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str, bool]] = []

    async def answer(name: str, url: str, local: bool) -> Host:
        asked.append((url, local))
        return host

    monkeypatch.setattr(doctor, "probe_url", answer)
    environ = {"TINKER_BASE_URL": URL, "TINKER_API_KEY": "tml-x", "HUD_TUI_TINKER_TTL": "36h"}
    finding = check_tinker(environ)
    assert asked == [(f"{URL}/api/v1/healthz", False)]
    assert finding.level == level
    assert said in finding.message
    assert bool(finding.fix) == (level != "ok")
