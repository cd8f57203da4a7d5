"""Where the settings come from, what the config file changes, and what wins."""

import contextlib
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from platformdirs import PlatformDirs

from hud_tui.client.client import HudClient
from hud_tui.config import MOST_BYTES, Config, read_config
from hud_tui.errors import HudInsecure, HudNoKey, HudUsage
from hud_tui.rl.alarms.monitor import usual_thresholds
from hud_tui.settings import (
    DEFAULTS,
    PROCESS,
    every_variable,
    has_key,
    local_settings,
    read_paths,
    read_settings,
    read_sources,
    read_variables,
    set_variables,
)
from hud_tui.tinker_options import BadOption, read_options


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty home and an empty directory to stand in."""
    here = tmp_path / "here"
    (tmp_path / ".hud").mkdir()
    here.mkdir()
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(here)
    return tmp_path


def test_hud_s_own_defaults_and_old_and_trailing_forms_of_urls() -> None:
    settings = read_settings(environ={"HUD_API_KEY": "k"})
    assert (settings.api_url, settings.rl_url) == (DEFAULTS["HUD_API_URL"], DEFAULTS["HUD_RL_URL"])
    assert (settings.label, settings.local) == ("HUD", False)
    settings = read_settings("k", {"HUD_RL_URL": "https://h/v1/", "HUD_API_URL": "https://h:80/"})
    assert (settings.rl_url, settings.api_url) == ("https://h", "https://h:80")


@pytest.mark.parametrize(
    ("line", "key"),
    [
        ("HUD_API_KEY=plain", "plain"),
        ("  export HUD_API_KEY = spaced  ", "spaced"),
        ("HUD_API_KEY='quo ted'", "quo ted"),
        ('HUD_API_KEY="a#b" # why', "a#b"),
        ("HUD_API_KEY=bare # why", "bare"),
    ],
)
def test_lines_of_an_env_file(home: Path, line: str, key: str) -> None:
    (home / "here" / ".env").write_text(f"OTHER without sense\n{line}\n", "utf-8")
    assert read_settings(environ={}).api_key == key


@pytest.mark.parametrize("line", ["HUD_API_KEY", 'HUD_API_KEY="open'])
def test_a_line_of_ours_that_says_nothing_is_named(home: Path, line: str) -> None:
    (home / "here" / ".env").write_text(f"A=1\n\n{line}\n")
    with pytest.raises(HudUsage, match=r"\.env line 3"):
        read_settings(environ={})


def test_every_place_is_read_and_says_what_it_sets(home: Path) -> None:
    (home / ".hud" / ".env").write_text("HUD_API_KEY=home\nWANDB_API_KEY=w\nHUD_BAD\n")
    (home / "here" / ".env").write_text("PRIME_API_KEY=p\nOPENAI_API_KEY=o\n")
    process, here, at_home = read_sources({"HUD_RL_URL": "http://h", "PATH": "/bin"})
    assert (process.origin, dict(process.variables)) == (PROCESS, {"HUD_RL_URL": "http://h"})
    assert (here.origin, dict(here.variables)) == (".env", {"PRIME_API_KEY": "p"})
    assert dict(at_home.variables) == {"HUD_API_KEY": "home", "WANDB_API_KEY": "w"}
    assert [str(problem) for problem in at_home.problems] == [
        f"{home}/.hud/.env line 3: expected NAME=VALUE"
    ]


def test_no_key_says_what_to_set_and_no_key_is_ever_shown() -> None:
    with pytest.raises(HudNoKey) as error:
        read_settings(environ={"HUD_API_KEY": " "})
    assert "HUD_API_KEY" in error.value.hint
    assert "--local" in error.value.hint
    assert not has_key({})
    with pytest.raises(HudUsage) as error:
        read_settings("secret\nX-Other: 1")
    assert "secret" not in str(error.value)
    assert "sekret" not in repr(local_settings("http://127.0.0.1:1", "sekret", "http://t"))
    assert local_settings("http://127.0.0.1:1", "sekret", "http://t").label == "HUD local"


KEYED = sorted(DEFAULTS.keys() - {"HUD_WEB_URL"})
OTHER = "http://me:secret@192.0.2.1:8000"


@pytest.mark.parametrize("name", KEYED)
def test_a_key_is_not_sent_in_clear_text_to_another_machine(home: Path, name: str) -> None:
    with pytest.raises(HudInsecure, match=f"{name} is http.* in clear text to 192.0.2.1$") as error:
        read_settings("k", {name: OTHER})
    assert (error.value.exit_code, error.value.kind) == (2, "insecure")
    assert "--insecure" in error.value.hint
    assert "secret" not in error.value.message
    (home / "here" / ".env").write_text(f"{name}={OTHER}\nHUD_TUI_INSECURE=1\n")
    with pytest.raises(HudInsecure):
        read_settings("k", {})
    assert read_settings("k", {"HUD_TUI_INSECURE": "1"}).insecure
    with pytest.raises(HudInsecure):
        read_settings("k", {"HUD_TUI_INSECURE": "0"})


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:1", "http://[::1]:1", "http://localhost", "https://192.0.2.1"]
)
def test_a_key_may_be_sent_encrypted_and_to_this_machine(url: str) -> None:
    assert read_settings("k", dict.fromkeys(DEFAULTS, url)).api_key == "k"


@pytest.mark.parametrize("url", ["http://192.0.2.1", "http://localhost.example", "http://127.1"])
def test_what_is_not_known_to_be_this_machine_is_another(url: str) -> None:
    with pytest.raises(HudInsecure):
        read_settings("k", {"HUD_API_URL": url})
    with pytest.raises(BadOption, match="clear text"):
        read_options({"TINKER_BASE_URL": url, "TINKER_API_KEY": "k"})


async def test_no_client_is_made_that_would_send_its_key_in_clear_text(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """However its settings came to be, e.g. from the service.json of a shared directory."""
    with pytest.raises(HudInsecure, match="the embedded service is http"):
        HudClient(local_settings(OTHER, "k", "http://127.0.0.1:1"))
    monkeypatch.setenv("HUD_TUI_INSECURE", "1")
    await HudClient(local_settings(OTHER, "k", "http://127.0.0.1:1")).aclose()


@pytest.mark.parametrize("url", ["ftp://h", "hud.ai", "http://", "http://[", "http://h:x"])
def test_a_url_that_is_none_is_named(url: str) -> None:
    with pytest.raises(HudUsage, match="HUD_RL_URL"):
        read_settings("k", {"HUD_RL_URL": url})


def test_a_flag_beats_the_variable_beats_the_platform(home: Path) -> None:
    assert read_paths(environ={}).state.is_relative_to(home)
    by_variable = {"HUD_TUI_STATE_DIR": "/s", "HUD_TUI_DATA_DIR": "/d", "HUD_TUI_CONFIG_DIR": "/c"}
    paths = read_paths(environ=by_variable)
    assert (str(paths.state), str(paths.data), str(paths.config)) == ("/s", "/d", "/c")
    paths = read_paths("~/state", "data", environ=by_variable)
    assert (paths.state, paths.data) == (home / "state", home / "here" / "data")


PLACES = ("process", "here", "home")
WINS = {"A": "process", "B": "process", "C": "process", "D": "process", "E": "here", "F": "here"}
SET = {
    "A": PLACES,
    "B": ("process", "here"),
    "C": ("process", "home"),
    "D": ("process",),
    "E": ("here", "home"),
    "F": ("here",),
    "G": ("home",),
}
"""In which places each variable is set: every choice that there is."""


@pytest.mark.parametrize("given", [False, True])
def test_directories_are_where_platformdirs_has_them(
    given: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for kind in ("CONFIG", "STATE", "DATA"):
        monkeypatch.delenv(f"XDG_{kind}_HOME", raising=False)
        if given:
            monkeypatch.setenv(f"XDG_{kind}_HOME", str(tmp_path / kind))
    environ = {name: value for name, value in os.environ.items() if name[:4] == "XDG_"}
    usual = PlatformDirs("hud-tui", appauthor=False)
    paths = read_paths(environ=environ)
    assert (paths.config, paths.state) == (usual.user_config_path, usual.user_state_path)
    assert paths.data == usual.user_data_path


@pytest.mark.parametrize("read", [read_variables, every_variable])
def test_each_variable_is_the_highest_place_s_whichever_have_it(
    home: Path, read: Callable[[dict[str, str]], dict[str, str]]
) -> None:
    texts = {
        place: {f"HUD_{name}": f"{place} {name}" for name, where in SET.items() if place in where}
        for place in PLACES
    }
    for place, file in (("here", Path(".env")), ("home", home / ".hud" / ".env")):
        file.write_text("".join(f"{name}={value}\n" for name, value in texts[place].items()))
    found = read(texts["process"])
    assert found == {f"HUD_{name}": f"{WINS.get(name, 'home')} {name}" for name in SET}


def test_a_variable_that_is_empty_hides_those_below_it(home: Path) -> None:
    """As for HUD's own SDK: who empties one for a command means it."""
    (home / ".hud" / ".env").write_text("HUD_API_KEY=home\nHUD_API_URL=https://home.example\n")
    assert read_settings(environ={}).api_key == "home"
    assert every_variable({})["HUD_API_KEY"] == "home"
    Path(".env").write_text("HUD_API_KEY=\n")
    for environ in ({}, {"HUD_API_KEY": ""}):
        with pytest.raises(HudNoKey):
            read_settings(environ=environ)
        assert not has_key(environ)
        assert every_variable(environ)["HUD_API_KEY"] == ""
        assert "HUD_API_KEY" not in set_variables(environ)
    Path(".env").unlink()
    assert every_variable({"HUD_API_KEY": ""})["HUD_API_KEY"] == ""
    typed = read_settings("typed", {"HUD_API_URL": "", "HUD_API_KEY": "process"})
    assert (typed.api_url, typed.api_key) == (DEFAULTS["HUD_API_URL"], "typed")


def test_a_command_names_the_service_and_quotes_its_words() -> None:
    here = replace(local_settings("http://127.0.0.1:1", "k", "http://t"), flags="--data-dir /d")
    assert here.command("head", "my model") == "hud-tui --local --data-dir /d head 'my model'"
    assert replace(here, local=False, flags="").command("jobs") == "hud-tui jobs"
    assert "\x1b" not in here.command("head", "a\x1b[31m")


def written(directory: Path, text: str | bytes) -> Path:
    body = text.encode() if isinstance(text, str) else text
    (directory / "config.toml").write_bytes(body)
    return directory


def test_without_a_file_all_is_as_it_comes(tmp_path: Path) -> None:
    assert read_config(tmp_path) == read_config(tmp_path / "none") == Config()


def test_what_the_file_leaves_out_stays(tmp_path: Path) -> None:
    text = "[alarms.zero_variance]\nwarn = 0.6\n[alarms.reward_collapse]\nsigmas = 3\n"
    found, usual = read_config(written(tmp_path, text)).alarms, usual_thresholds()
    assert (found.zero_variance.warn, found.reward_collapse.sigmas) == (0.6, 3.0)
    assert found.zero_variance.critical == usual.zero_variance.critical
    assert found.reward_collapse.hold == usual.reward_collapse.hold == 10
    assert found.kl_sampler == usual.kl_sampler


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[alarms.zero_variance]\nwarn = -1\n", "alarms.zero_variance.warn: "),
        ("[alarms.zero_variance]\nwarn = 'high'\n", "alarms.zero_variance.warn: "),
        ("[alarms.zero_variance]\nwarn = nan\n", "alarms.zero_variance.warn: "),
        ("[alarms.zero_variance]\nwarn = 0.8\n", "alarms.zero_variance: .*info < warn < critical"),
        ("[alarms.zero_spred]\nwarn = 0.8\n", "alarms.zero_spred: unknown detector"),
        ("[alarms.grad_norm]\nwarn = 0.8\n", "alarms.grad_norm.warn: unknown setting"),
        ("[alarms.grad_norm]\nhold = 0\n", "alarms.grad_norm.hold: expected 1 or more"),
        ("alarms = 3\n", "alarms: expected a table"),
        ("[alarms]\ngrad_norm = 3\n", "alarms.grad_norm: expected a table"),
        ("[alarms.grad_norm]\nhold = 1.5\n", "hold: expected a whole number"),
        ("[alarms.grad_norm]\nenabled = 1\n", "enabled: expected true or false"),
        ("[alarms.entropy_collapse]\nfloor = 2\n", "floor: expected at most 1"),
        ("a = " + "[" * 100_000, "is not TOML"),
        ("[alarm]\n", "alarm: unknown table"),
        ("[alarms\n", "is not TOML: .*line 1"),
        (b"\xff\xfe", "cannot be read"),
        pytest.param(b"#" * (MOST_BYTES + 1), "larger than 1000000 bytes", id="large"),
        ('"\\u001b[31m" = 1\n', "␛"),
    ],
)
def test_what_is_wrong_is_named_with_its_file(tmp_path: Path, text: str | bytes, said: str) -> None:
    with pytest.raises(HudUsage, match=said) as error:
        read_config(written(tmp_path, text))
    assert str(tmp_path / "config.toml") in error.value.message
    assert "\x1b" not in error.value.message
    assert error.value.hint


@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=st.one_of(st.text(max_size=60), st.binary(max_size=60)))
def test_no_file_does_more_than_be_refused(tmp_path: Path, text: str | bytes) -> None:
    body = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
    written(tmp_path, body)
    with contextlib.suppress(HudUsage):
        assert isinstance(read_config(tmp_path), Config)
