"""What the doctor says of the tinker engine."""

from pathlib import Path

import pytest

from hud_tui.doctor import Host, check_tinker, tinker_settings
from hud_tui.settings import Options

URL = "http://trainer:8000"


@pytest.fixture(autouse=True)
def nobody_signed_in(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))


def test_an_engine_that_is_not_used_is_well() -> None:
    options, [finding] = tinker_settings({})
    assert (options, finding.level) == (None, "ok")
    assert "not set up" in finding.message


def test_a_setting_that_cannot_be_used_is_named() -> None:
    options, [finding] = tinker_settings({"TINKER_BASE_URL": "http://me:secret@trainer"})
    assert (options, finding.level) == (None, "warning")
    assert "TINKER_BASE_URL" in finding.message
    assert "secret" not in finding.message


def test_a_setting_that_can_be_used_is_probed() -> None:
    options, findings = tinker_settings({"TINKER_BASE_URL": URL, "TINKER_API_KEY": "tml-x"})
    assert options is not None
    assert (options.url, findings) == (URL, [])


@pytest.mark.parametrize(
    ("host", "level", "said"),
    [
        (Host(("tinker",), URL, False, detail="refused"), "warning", "does not answer: refused"),
        (Host(("tinker",), URL, True, 503, 0.1), "warning", "HTTP 503"),
        (Host(("tinker",), URL, True, 404, 0.1), "ok", "rank 32, checkpoints kept for 36 h"),
    ],
)
def test_what_the_server_s_answer_means(host: Host, level: str, said: str) -> None:
    finding = check_tinker(Options(URL, True, ttl_s=36 * 3600), host)
    assert finding.level == level
    assert said in finding.message
    assert bool(finding.fix) == (level != "ok")
