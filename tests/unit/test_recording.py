"""Recordings: what is written is read again, and what is no recording is refused."""

import json
from math import isnan
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hud_tui.cli.main import main
from hud_tui.client.replay import Recorder, player, read_file
from hud_tui.errors import HudUsage
from hud_tui.events import CheckpointAdded, WorkChanged
from hud_tui.rl.alarms.demos import demo
from hud_tui.rl.recording import SCHEMA, Recording, first_line, read_recording, to_line
from hud_tui.rl.run import Run, left_behind
from hud_tui.wire import Model, WorkState

FIRST = first_line("0.1.0", 1.78e9)
MODEL = to_line("model", 0.0, Model(id="m", model_name="m"))
EVENT = '{"kind": "event", "at": 1, "data": {"type": "head", "checkpoint_id": "c1"}}\n'


def written(recording: Recording) -> list[str]:
    [model] = recording.models
    events = [to_line("event", moment.at, moment.event) for moment in recording.moments]
    return [FIRST, to_line("model", 0.0, model), *events]


@pytest.mark.parametrize("name", ["healthy", "nan-loss"])
def test_a_demo_survives_being_written_and_read(name: str) -> None:
    recording = demo(name)
    read = read_recording(written(recording), "f")
    assert read.models == recording.models
    assert len(read.moments) == len(recording.moments) > 500
    assert read.seconds == pytest.approx(recording.seconds)
    steps = [moment.event for moment in read.moments if isinstance(moment.event, CheckpointAdded)]
    assert isnan(steps[-1].checkpoint.metrics["loss:sum"]) is (name == "nan-loss")
    run = Run()
    for moment in read.moments[:40]:
        run = run.fold(moment.event)
        assert left_behind(run) is None, "each step moves the head"


@pytest.mark.parametrize("at", ["NaN", "1e300", '"x"', "-1", "true", "9" * 401])
def test_when_it_began_is_read_where_that_can_be(at: str) -> None:
    first = '{"schema": "hud-tui-record/1", "kind": "session", "version": "1", "at": %s}\n'
    assert read_recording([first % "1780000000.5", MODEL], "f").began == 1_780_000_000.5
    assert read_recording([first % at, MODEL], "f").began is None


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ([], "line 1: expected schema"),
        (["{}\n"], "line 1: expected schema hud-tui-record/1, found none"),
        (['{"schema": "hud-tui-record/9"}\n'], "found hud-tui-record/9"),
        (["not json\n"], "line 1: not JSON"),
        ([FIRST], "line 1: no model in this recording"),
        ([FIRST, EVENT], "line 2: an event before any model"),
        ([FIRST, MODEL, "[1]\n"], "line 3: expected an object"),
        ([FIRST, MODEL, "{\n", EVENT], "line 3: not JSON"),
        ([FIRST, MODEL, "{", EVENT], "line 3: not JSON"),
        ([FIRST, MODEL, '{"kind": "event"}\n'], "line 3: field at: expected a number"),
        ([FIRST, MODEL, EVENT.replace("1,", "NaN,")], "field at: expected a number"),
        ([FIRST, MODEL, EVENT.replace("1,", "1e12,")], "too early or too late"),
        ([FIRST, MODEL, EVENT.replace("head", "\\u001b[2J")], r"line 3: field data\."),
        ([FIRST, MODEL, EVENT.replace('"c1"', "3")], r"field data\.head\.checkpoint_id"),
        ([FIRST, MODEL, "[" * 100_000 + "\n"], "line 3: not JSON"),
        ([FIRST, '{"kind": "model", "at": 0, "data": []}\n'], "line 2: field data"),
    ],
)
def test_what_is_no_recording_is_named_by_its_line(lines: list[str], said: str) -> None:
    with pytest.raises(HudUsage, match=said) as error:
        read_recording(lines, "the\x1bfile")
    assert "\x1b" not in error.value.message


def test_kinds_of_a_newer_version_and_a_cut_last_line_are_left_out() -> None:
    newer = '{"kind": "mood", "at": 2, "data": {}}\n'
    read = read_recording([FIRST, MODEL, newer, EVENT, EVENT[:20]], "f")
    assert [moment.at for moment in read.moments] == [2.0], "time never goes back"


@given(
    st.lists(st.one_of(st.text(max_size=40), st.sampled_from([FIRST, MODEL, EVENT])), max_size=8)
)
def test_no_lines_do_more_than_be_refused(lines: list[str]) -> None:
    try:
        assert isinstance(read_recording(lines, "f"), Recording)
    except HudUsage as refused:
        assert refused.message.startswith("f line ")  # noqa: PT017


@pytest.mark.parametrize("whole", [True, False])
def test_a_recorder_writes_what_is_read_and_ends_where_it_gets_too_large(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, whole: bool
) -> None:
    if not whole:
        monkeypatch.setattr("hud_tui.client.replay.MOST", 2000)
    told: list[str] = []
    recorder = Recorder(tmp_path / "r.jsonl", told.append)
    recorder.model(Model(id="m", model_name="m"))
    for moment in demo("healthy").moments[:40]:
        recorder.event(moment.event)
    recorder.close()
    recorder.event(demo("healthy").moments[0].event)
    assert json.loads((tmp_path / "r.jsonl").read_text().splitlines()[0])["schema"] == SCHEMA
    assert (len(read_file(tmp_path / "r.jsonl").moments) == 40) is whole
    assert ["ends here" in text for text in told] == ([] if whole else [True])


def test_a_file_is_not_written_over_and_a_place_that_cannot_be_is_said(tmp_path: Path) -> None:
    (tmp_path / "old").write_text("mine")
    for name, said in (("old", "the file exists"), ("no/such", "No such file")):
        with pytest.raises(HudUsage, match=said):
            Recorder(tmp_path / name, print)
    assert (tmp_path / "old").read_text() == "mine"


def test_what_cannot_be_played_is_said(tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    (tmp_path / "fine").write_text(FIRST + MODEL)
    wrong = [
        ((None, str(tmp_path / "none"), 1.0), "No such file"),
        ((None, str(tmp_path / "binary"), 1.0), "not UTF-8"),
        ((None, str(tmp_path), 1.0), "directory"),
        ((None, str(tmp_path / "fine"), 0.0), "--speed 0"),
        ((None, str(tmp_path / "fine"), -1.0), "--speed -1"),
        (("nope", None, 1.0), "--demo nope: no such demo"),
        (("stall", str(tmp_path / "fine"), 1.0), "--demo plays no file"),
    ]
    for asked, said in wrong:
        with pytest.raises(HudUsage, match=said) as error:
            player(*asked)
        assert error.value.hint or "--speed" in error.value.message


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["--headless", "--demo", "stall"], "--demo needs the app"),
        (["--headless", "--record", "f"], "--record needs the app"),
        (["--headless", "replay", "f"], "replay needs the app"),
        (["--demo", "nope"], "no such demo"),
        (["replay", "/no/such/file"], "No such file"),
        (["--demo", "stall"], "the app needs a terminal"),
    ],
)
def test_the_command_line_says_what_cannot_be(
    argv: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(argv) == 2
    assert said in capsys.readouterr().err


def test_a_recording_with_an_event_of_runs_and_one_of_evaluations_is_read_as_one_of_work() -> None:
    told = {
        "job": {"status": "running", "id": "r"},
        "evaluation": {"status": "queued", "id": "e", "model_id": "m"},
    }
    lines = [
        json.dumps({"kind": "event", "at": 1, "data": {"type": kind, "at": 9.0, kind: work}}) + "\n"
        for kind, work in told.items()
    ]
    first, second = (moment.event for moment in read_recording([FIRST, MODEL, *lines], "f").moments)
    assert isinstance(first, WorkChanged)
    assert isinstance(second, WorkChanged)
    assert first.run is not None
    assert (first.run.id, first.at) == ("r", 9.0)
    assert isinstance(second.work, WorkState)
    assert (second.work.id, second.run) == ("e", None)
