"""The doctor's parts: what each reports of a machine that is well, and of one that is not."""

import os
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from hud_tui.cli.doctor import (
    Directory,
    check_cores,
    check_directories,
    check_hosts,
    check_settings,
    check_terminal,
    check_versions,
    exit_code,
    list_variables,
    look_at,
    versions,
)
from hud_tui.client.probe import Host
from hud_tui.errors import HudUsage
from hud_tui.rl.findings import Finding
from hud_tui.settings import DEFAULTS, PROCESS, Paths, VariableSource, usable_settings
from hud_tui.terminal import Terminal, terminal

KEY = "hud-key-0123456789"


def levels(findings: Iterable[Finding]) -> list[tuple[str, int]]:
    bad = [finding for finding in findings if finding.level != "ok"]
    return [(finding.level, exit_code([finding])) for finding in bad]


# cores


def test_how_many_cores_there_are_and_why() -> None:
    here = check_cores({})
    assert here.level == "ok"
    assert here.message.startswith("tiny computes on "), here.message
    assert here.message.endswith("; serve --cores N or HUD_TUI_CORES=N changes that")
    chosen = check_cores({"HUD_TUI_CORES": "3"})
    assert (chosen.level, chosen.message) == ("ok", "tiny computes on 3 cores: HUD_TUI_CORES")
    assert levels([check_cores({"HUD_TUI_CORES": "all"})]) == [("failure", 2)]


# settings


def test_a_setting_says_where_it_is_from_and_what_it_hides_but_not_what_it_is() -> None:
    places = [
        VariableSource(PROCESS, {"HUD_API_KEY": KEY}),
        VariableSource(".env", {"HUD_API_KEY": "other-key", "HUD_X\x1b": "?"}),
    ]
    listed = list_variables(places)
    by_name = {setting.name: setting for setting in listed}
    assert by_name["HUD_API_KEY"].origin == PROCESS
    assert by_name["HUD_API_KEY"].hidden == (".env",)
    assert (by_name["HUD_RL_URL"].set, by_name["HUD_RL_URL"].origin) == (False, "default")
    assert by_name["WANDB_API_KEY"].origin == "not set"
    assert by_name["HUD_X␛"].set
    assert KEY not in repr(listed)
    assert "other-key" not in repr(listed)


def env_file(directory: Path, mode: int) -> Path:
    file = directory / ".env"
    file.write_text("")
    file.chmod(mode)
    return file


def test_all_that_is_wrong_is_said_at_once_and_the_rest_still_used(tmp_path: Path) -> None:
    file = env_file(tmp_path, 0o644)
    process = {"HUD_RL_URL": "nonsense", "HUD_API_URL": "http://hud.example"}
    broken = HudUsage(".env line 3: expected NAME=VALUE", "correct or remove that line")
    places = [
        VariableSource(PROCESS, process),
        VariableSource(str(file), {"HUD_API_KEY": KEY}, (broken,), file),
    ]
    settings, problems = usable_settings(places)
    assert (settings.rl_url, settings.api_url) == (DEFAULTS["HUD_RL_URL"], "http://hud.example")
    assert settings.api_key == "", "it would travel in clear text"
    findings = list(check_settings(settings, problems, places))
    assert [f.message for f in findings if f.level != "ok"] == [
        ".env line 3: expected NAME=VALUE",
        "HUD_RL_URL is not an http or https URL",
        "HUD_API_URL is http: the key would travel in clear text to hud.example",
        f"{file} holds a key and can be read by others",
    ]
    assert KEY not in "".join(f.message + f.fix for f in findings)
    assert exit_code(findings) == 2
    allowed = VariableSource(PROCESS, {**process, "HUD_TUI_INSECURE": "1"})
    settings, problems = usable_settings([allowed, *places[1:]])
    assert settings.api_key == KEY
    warned = [setting.message for setting in check_settings(settings, problems, places)]
    assert "HUD_API_URL is http: the key would travel in clear text to hud.example" in warned


@pytest.mark.parametrize(
    ("key", "needed", "code"),
    [(KEY, True, 0), ("", True, 4), ("  ", True, 4), ("schlüssel", True, 2), ("", False, 0)],
)
def test_http_on_this_machine_a_private_file_and_a_usable_key_are_well(
    tmp_path: Path, key: str, needed: bool, code: int
) -> None:
    file = env_file(tmp_path, 0o600)
    urls = {name: "http://127.0.0.1:8000" for name in DEFAULTS} | {"HUD_API_KEY": key}
    places = [VariableSource(str(file), urls, (), file)]
    settings, problems = usable_settings(places, needs_key=needed)
    assert settings.api_key == (key if key == KEY else "")
    findings = list(check_settings(settings, problems, places))
    assert exit_code(findings) == code
    assert (levels(findings) == []) is (code == 0)


# hosts


@pytest.mark.parametrize(
    ("names", "status", "level", "code"),
    [
        (("api",), 200, "ok", 0),
        (("api",), 401, "failure", 4),
        (("api", "rl"), 403, "failure", 4),
        (("api",), 404, "failure", 1),
        (("api",), 302, "failure", 1),
        (("api",), 503, "failure", 1),
        (("rl",), 503, "warning", 0),
        (("rl",), 404, "ok", 0),
        (("api",), None, "failure", 3),
        (("gateway",), None, "failure", 3),
        (("telemetry", "web"), None, "warning", 0),
    ],
)
def test_what_an_answer_means(
    names: tuple[str, ...], status: int | None, level: str, code: int
) -> None:
    host = Host(names, "https://h", status is not None, status, 0.1 if status else None)
    [finding] = check_hosts([host], True, {})
    assert (finding.level, exit_code([finding])) == (level, code)
    assert finding.fix or level == "ok"


def test_a_slow_host_and_a_proxy_are_named_and_without_a_key_a_refusal_is_an_answer() -> None:
    [slow] = check_hosts([Host(("rl",), "https://h", True, 200, 3.0)], True, {})
    assert (slow.level, "3.00 s" in slow.message) == ("warning", True)
    [lost] = check_hosts([Host(("rl",), "https://h", False)], True, {"HTTPS_PROXY": "http://p"})
    assert "HUD_RL_URL" in lost.fix
    assert "HTTPS_PROXY" in lost.fix
    [refused] = check_hosts([Host(("api",), "https://h", True, 401, 0.1)], False, {})
    assert refused.level == "ok"


@pytest.mark.parametrize(("has_key", "local"), [(True, False), (True, True), (False, False)])
def test_a_key_is_good_only_where_the_user_has_one(has_key: bool, local: bool) -> None:
    """The embedded service makes its own key."""
    [answer] = check_hosts([Host(("api",), "https://h", True, 200, 0.1)], has_key, {}, local)
    assert ("the key is good" in answer.message) is (has_key and not local)


# terminal

SIZE = os.terminal_size((120, 40))
TMUX = {"TMUX": "/tmp/t,1,0", "TERM": "tmux-256color"}


def terminal_of(
    environ: dict[str, str],
    answer: str = "",
    size: os.terminal_size | None = SIZE,
    encoding: str = "utf-8",
) -> Terminal:
    """The terminal of these variables, whose multiplexer answers so."""
    return terminal(environ, size, encoding, lambda *words: answer)


@pytest.mark.parametrize(
    ("environ", "answer", "colors"),
    [
        ({"TERM": "xterm-256color", "COLORTERM": "truecolor"}, "", "truecolor"),
        ({"TERM": "xterm-256color"}, "", "256"),
        ({"TERM": "xterm-kitty"}, "", "16"),
        ({"TERM": "foot"}, "", "256"),
        ({"TERM": "vt100"}, "", "16"),
        ({"TERM": "dumb", "COLORTERM": "truecolor"}, "", "none"),
        ({"TERM": "xterm-256color", "NO_COLOR": "1"}, "", "none"),
        (TMUX, "256,RGB,clipboard", "truecolor"),
    ],
)
def test_colours(environ: dict[str, str], answer: str, colors: str) -> None:
    found = terminal_of(environ, answer)
    assert (found.colors, found.multiplexer == "tmux") == (colors, environ is TMUX)


@pytest.mark.parametrize(
    ("environ", "answer", "clipboard"),
    [
        (TMUX, "on", "likely"),
        (TMUX, "external", "unlikely"),
        (TMUX, "", "unknown"),
        ({"STY": "1", "TERM": "screen"}, "on", "unlikely"),
        ({"TERM": "xterm-kitty"}, "", "likely"),
        ({"TERM": "xterm-256color", "TERM_PROGRAM": "WezTerm"}, "", "likely"),
        ({"TERM": "xterm-256color", "TERM_PROGRAM": "Apple_Terminal"}, "", "unlikely"),
        ({"TERM": "xterm-256color"}, "", "unknown"),
        ({"TERM": "linux"}, "", "unlikely"),
        ({"TERM": "dumb"}, "", "unlikely"),
    ],
)
def test_the_clipboard(environ: dict[str, str], answer: str, clipboard: str) -> None:
    assert terminal_of(environ, answer).clipboard == clipboard


def test_a_poor_terminal_is_told_what_to_do_and_a_good_one_nothing() -> None:
    good = {"TERM": "xterm-kitty", "COLORTERM": "truecolor"}
    for size in (SIZE, None):
        assert levels(check_terminal(terminal_of(good, size=size))) == []
    small = os.terminal_size((39, 11))
    found = terminal_of({"TERM": "linux", "STY": "1"}, size=small, encoding="ascii")
    findings = list(check_terminal(found))
    assert [finding.level for finding in findings] == ["warning"] * 4
    assert all(finding.fix for finding in findings)
    dumb = replace(found, term="dumb", colors="none")
    assert exit_code(check_terminal(dumb)) == 1


# directories


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    return Paths(tmp_path / "config", tmp_path / "deep" / "state", tmp_path / "data")


def directories(paths: Paths) -> list[Directory]:
    return [look_at(kind, path) for kind, path in vars(paths).items()]


def test_directories_that_are_there_and_that_can_be_made(paths: Paths) -> None:
    paths.data.mkdir()
    (paths.data / "service.db").write_bytes(b"x" * 1500)
    config, state, data = directories(paths)
    assert [one.writable for one in (config, state, data)] == [True, True, True]
    assert (config.exists, config.used_bytes, data.used_bytes) == (False, None, 1500)
    assert data.free_bytes is not None
    assert levels(check_directories([config, state, data], paths.service_file, {})) == []


def test_little_room_a_wrong_limit_an_open_key_and_a_file_in_the_way(paths: Paths) -> None:
    found, file = directories(paths), paths.service_file

    def said(found: list[Directory], **variables: str) -> list[tuple[str, int]]:
        return levels(check_directories(found, file, variables))

    low = [replace(one, free_bytes=10**9) for one in found]
    full = [replace(one, free_bytes=10**7) for one in found]
    assert said(low) == [("warning", 0)]
    assert said(low, HUD_TUI_MAX_DISK="500MB") == []
    assert said(full) == [("failure", 1)]
    assert said(found, HUD_TUI_MAX_DISK="lots") == [("failure", 2)]
    paths.state.mkdir(parents=True)
    file.write_text("{}")
    file.chmod(0o644)
    assert said(found) == [("warning", 0)]
    file.chmod(0o600)
    assert said(found) == []
    paths.data.write_text("in the way")
    findings = list(check_directories(directories(paths), file, {}))
    assert levels(findings) == [("failure", 2)]
    assert "HUD_TUI_DATA_DIR" in findings[0].fix


# versions and codes


def test_versions_are_those_installed() -> None:
    found = versions()
    assert found["hud-tui"]
    assert levels(check_versions(found)) == []
    assert levels(check_versions(found | {"textual": None})) == [("failure", 1)]
    assert levels(check_versions(found | {"tinker": None})) == []


def test_the_exit_code_is_the_worst_finding_s() -> None:
    warning = Finding("hosts", "warning", "w", fix="fix")
    failures = [Finding("hosts", "failure", "f", fix="fix", code=code) for code in (3, 4, 2)]
    assert exit_code([warning, *failures]) == 4
    assert exit_code([warning]) == 0
    assert exit_code([warning], fail_on="warning") == 1
    assert exit_code([], fail_on="warning") == 0
