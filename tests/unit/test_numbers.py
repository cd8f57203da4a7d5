"""Numbers that are none, or that nothing can hold: refused by name, wherever they stand."""

from pathlib import Path

import pytest

from hud_tui.audit_log import CommandLog
from hud_tui.cli.commands import build_parser
from hud_tui.client.replay import read_file
from hud_tui.config import CONFIG_NAME, read_config
from hud_tui.errors import HudUsage
from hud_tui.legacy.gym import read_gym
from hud_tui.legacy.lock_file import read_lock
from hud_tui.parameters import RUN_PARAMETERS
from hud_tui.rl.recording import first_line, to_line
from hud_tui.wire import Model

PARSER = build_parser()
LONG = "9" * 401
"""An integer that no float can hold."""
LONGER = "9" * 5000
"""One that Python does not read."""
NONE = ("nan", "inf", "-inf", "1e999", "", "x", "0x10", LONGER)


@pytest.mark.parametrize(
    "line",
    [
        "run t.json --steps",
        "run t.json --group-size",
        "run t.json --tasks-per-step",
        "run t.json --max-tokens",
        "run t.json --seed",
        "preflight t.json --sample",
        "traces J --limit",
        "traces J --step",
        "head M --back",
        "log --limit",
        "serve --port",
    ],
)
def test_a_flag_that_takes_a_whole_number_says_so(line: str) -> None:
    *words, flag = line.split()
    for text in (*NONE, "1.5", LONG, f"-{LONG}"):
        with pytest.raises(HudUsage) as refused:
            PARSER.parse_args([*words, f"{flag}={text}"])
        said = refused.value.message
        assert said.startswith(f"argument {flag}: expected a whole number, found ")
        assert len(said) < 140


@pytest.mark.parametrize("line", ["run t.json --learning-rate", "replay f --speed"])
def test_a_flag_that_takes_a_number_says_so(line: str) -> None:
    *words, flag = line.split()
    for text in (*NONE, LONG):
        with pytest.raises(HudUsage, match="expected a finite number, found ") as refused:
            PARSER.parse_args([*words, f"{flag}={text}"])
        assert len(refused.value.message) < 140


FIRST = first_line("1", 1_780_000_000.0)
MODEL = to_line("model", 0.0, Model(id="m", model_name="m"))
EVENT = '{"kind": "event", "at": %s, "data": {"type": "head", "checkpoint_id": "c"}}\n'


@pytest.mark.parametrize("at", [LONG, f"-{LONG}", LONGER, "NaN", "1e999", "-1e12", "true", '"1"'])
def test_a_recording_with_such_a_time_is_refused_by_its_line(tmp_path: Path, at: str) -> None:
    file = tmp_path / "r.jsonl"
    file.write_text(FIRST + MODEL + EVENT % "1.0")
    assert len(read_file(file).moments) == 1
    file.write_text(FIRST + MODEL + EVENT % at)
    with pytest.raises(HudUsage, match=r"r\.jsonl line 3: (field at: |not JSON)"):
        read_file(file)


@pytest.mark.parametrize(
    "field", ['"reward_mean": ', '"step": ', '"metrics": {"kl": 1}, "num_tokens": ']
)
def test_a_recording_with_such_a_figure_is_read_or_refused_by_its_line(
    tmp_path: Path, field: str
) -> None:
    """NaN and what is beyond all floats are figures that a run may have."""
    for number in (LONG, LONGER, "NaN", "1e999", "true", '"x"'):
        row = f'{{"id": "c", "model_id": "m", "is_active": true, {field}{number}}}'
        data = f'{{"type": "checkpoint", "checkpoint": {row}}}'
        event = f'{{"kind": "event", "at": 1, "data": {data}}}\n'
        (tmp_path / "r.jsonl").write_text(FIRST + MODEL + event)
        try:
            assert len(read_file(tmp_path / "r.jsonl").moments) == 1
        except HudUsage as refused:
            assert "r.jsonl line 3: " in refused.message  # noqa: PT017


@pytest.mark.parametrize("number", [LONG, LONGER, f"-{LONG}", "nan", "inf", "-inf", "1e999"])
@pytest.mark.parametrize(
    "table",
    [
        "[alarms.zero_variance]\nwarn = ",
        "[alarms.zero_variance]\nwarmup = ",
        "[notify]\ncooldown_s = ",
        "[export]\ndirectory = ",
        "[safety]\nread_only = ",
    ],
)
def test_a_config_with_such_a_number_is_refused(tmp_path: Path, table: str, number: str) -> None:
    (tmp_path / CONFIG_NAME).write_text(table + number + "\n")
    with pytest.raises(HudUsage, match=CONFIG_NAME):
        read_config(tmp_path)


LOCK = "version: '1.0'\nimage: org/env:1\nprimary_dataset:\n  name: org/tasks\n  task_count: "
GYM = "action_mappings:\n  A: {_tool: t}\nrubric:\n  weights:\n    task_completion: "


@pytest.mark.parametrize("number", [LONGER, ".nan", "-.inf", "1e999", "1.5", "'7'"])
def test_a_lock_file_with_such_a_number_is_refused(number: str) -> None:
    with pytest.raises(HudUsage, match=r"^hud\.lock\.yaml"):
        read_lock("hud.lock.yaml", (LOCK + number).encode())
    read_lock("hud.lock.yaml", f"{LOCK}{LONG}".encode())  # it is not reckoned with


@pytest.mark.parametrize("number", [LONG, f"-{LONG}", LONGER, ".nan", ".inf", "1e999", "'7'"])
def test_a_configuration_of_a_gym_with_such_a_number_is_refused(number: str) -> None:
    with pytest.raises(HudUsage, match=r"^gym\.yaml"):
        read_gym("gym.yaml", (GYM + number).encode())


@pytest.mark.parametrize("text", ["", "x", "nan", "inf", "-1", "1e999", LONG, f"-{LONG}", LONGER])
def test_a_field_of_the_form_says_what_it_may_be(text: str) -> None:
    for field in (row for row in RUN_PARAMETERS if row.is_number and row.in_form and row.low >= 0):
        if field.is_optional and not text:
            continue  # the service decides
        with pytest.raises(ValueError, match=r"(to|from|least) "):
            field.read(text)


@pytest.mark.parametrize("at", [LONG, LONGER, "NaN", "1e999", "true"])
def test_a_line_of_the_log_with_such_a_time_is_passed_over(tmp_path: Path, at: str) -> None:
    (tmp_path / "commands.jsonl").write_text(f'{{"at": {at}, "verb": "fork"}}\n')
    entries, unread = CommandLog(tmp_path).read()
    assert len(entries) + unread == 1
