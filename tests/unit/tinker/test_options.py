"""Which server, by the environment."""

from pathlib import Path

import pytest

from hud_tui.service import app
from hud_tui.settings import CLOUD, BadOption, read_options

LOCAL = {"TINKER_BASE_URL": "http://127.0.0.1:8765/"}


def test_a_server_of_this_machine_needs_no_key_and_others_have_their_own() -> None:
    options = read_options(LOCAL)
    assert (options.url, options.rank, options.ttl_s) == ("http://127.0.0.1:8765", 32, None)
    assert not options.keeps_samplers
    assert options.environment() == {
        "TINKER_API_KEY": "tml-local",
        "TINKER_TELEMETRY": "0",
        "TINKER_BASE_URL": "http://127.0.0.1:8765",
    }

    options = read_options({"TINKER_API_KEY": "tml-x"})
    assert options.url == CLOUD
    assert options.keeps_samplers
    assert options.environment() == {"TINKER_BASE_URL": CLOUD}

    options = read_options({"TINKER_BASE_URL": "https://trainer.example", "TINKER_API_KEY": "k"})
    assert not options.is_loopback
    assert not options.keeps_samplers
    assert "TINKER_TELEMETRY" not in options.environment()


@pytest.mark.parametrize(
    "host", ["notlocalhost", "evil-127.0.0.1", "127.0.0.1.evil.example", "evil.localhost.example"]
)
def test_a_host_with_a_loopback_name_in_it_is_not_this_machine(host: str) -> None:
    options = read_options({"TINKER_BASE_URL": f"http://{host}:1", "TINKER_API_KEY": "k"})
    assert not options.is_loopback
    assert not app.is_loopback(host)


def test_rank_and_lifetime_are_read() -> None:
    given = {**LOCAL, "HUD_TUI_TINKER_RANK": "8", "HUD_TUI_TINKER_TTL": "36h"}
    assert (read_options(given).rank, read_options(given).ttl_s) == (8, 36 * 3600)
    assert read_options({**LOCAL, "HUD_TUI_TINKER_TTL": "7d"}).ttl_s == 7 * 86_400


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({}, "TINKER_API_KEY"),
        ({"TINKER_BASE_URL": "trainer:80"}, "TINKER_BASE_URL"),
        ({"TINKER_BASE_URL": "http://trainer:x"}, "not an http or https URL"),
        ({"TINKER_BASE_URL": "http://me:secret@trainer"}, "contains a password"),
        ({**LOCAL, "HUD_TUI_TINKER_RANK": "many"}, "HUD_TUI_TINKER_RANK"),
        ({**LOCAL, "HUD_TUI_TINKER_RANK": "0"}, "HUD_TUI_TINKER_RANK"),
        ({**LOCAL, "HUD_TUI_TINKER_TTL": "10m"}, "HUD_TUI_TINKER_TTL"),
        ({**LOCAL, "HUD_TUI_TINKER_TTL": "0h"}, "HUD_TUI_TINKER_TTL"),
    ],
)
def test_what_cannot_be_used_is_named(
    given: dict[str, str], told: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(BadOption, match=told):
        read_options(given)
