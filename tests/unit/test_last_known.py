"""What is kept of a service: whole, bounded, for its owner only, and never the key."""

import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hud_tui.notebook import (
    MOST_FILES,
    MOST_GROUPED,
    MOST_NODES,
    LastKnown,
    file_of,
    read_last_known,
    write_last_known,
)
from hud_tui.tui.screens.base import offline_text
from hud_tui.wire import Checkpoint, Group, JobStatus, Model
from tests.unit.trees import chain

URL, KEY, SCOPE = "https://api.hud.ai", "hud-secret-key-1234", "0123abcd"
MODEL = Model(id="m", model_name="mine", is_trainable=True)


def nodes(count: int, note: str = "") -> tuple[Checkpoint, ...]:
    groups = [Group(task_slug="t" + note, rewards=[0.1, 1.0])]
    taken = chain(*({"mean_reward": 0.1 + n, "groups": groups} for n in range(count)), head=False)
    return tuple(taken)


def known(count: int = 3, note: str = "") -> LastKnown:
    return LastKnown(12.5, (MODEL,), MODEL, nodes(count, note), JobStatus(status="running"))


def test_what_was_kept_is_there_again_for_its_owner_alone_and_has_no_key(tmp_path: Path) -> None:
    file = file_of(tmp_path, SCOPE)
    write_last_known(file, URL, known(), KEY)
    assert read_last_known(file, URL) == known()
    assert read_last_known(file, URL + ":8443") is None
    assert read_last_known(file_of(tmp_path, "other"), URL) is None

    file = file_of(tmp_path, SCOPE)
    write_last_known(file, URL, known(note=KEY), KEY)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    assert KEY not in file.read_text() + file.name
    found = read_last_known(file_of(tmp_path, SCOPE), URL)
    assert found is not None
    assert found.tree[2].groups[0].task_slug == "t***"
    assert os.listdir(file.parent) == [file.name]


def test_a_long_run_is_kept_in_part_and_a_few_services_are_remembered(tmp_path: Path) -> None:
    write_last_known(file_of(tmp_path, SCOPE), URL, known(MOST_NODES + 10), KEY)
    found = read_last_known(file_of(tmp_path, SCOPE), URL)
    assert found is not None
    assert [found.tree[0].id, found.tree[-1].id] == ["c10", f"c{MOST_NODES + 9}"]
    assert sum(bool(node.groups) for node in found.tree) == MOST_GROUPED

    for n in range(MOST_FILES + 3):
        write_last_known(file_of(tmp_path, f"s{n}"), URL, known(1), KEY)
        os.utime(file_of(tmp_path, f"s{n}"), (n, n))
    assert len(os.listdir(tmp_path / "offline")) == MOST_FILES
    assert read_last_known(file_of(tmp_path, f"s{MOST_FILES + 2}"), URL) is not None
    assert read_last_known(file_of(tmp_path, "s0"), URL) is None


def damaged() -> list[Any]:
    write_of = {"format": 1, "service": URL, "at": 1.0, "models": [], "tree": [], "job": None}
    whole = {**write_of, "model": MODEL.model_dump()}
    return [
        *({**whole, "format": 0}, {**whole, "service": "https://other"}, {**whole, "at": "noon"}),
        *({**whole, "tree": [{}]}, {**whole, "models": 3}, {**whole, "job": 4}, write_of, [], 3),
    ]


@pytest.mark.parametrize("body", damaged(), ids=lambda body: str(body)[-40:])
def test_another_format_counts_as_nothing(tmp_path: Path, body: Any) -> None:
    file = file_of(tmp_path, SCOPE)
    file.parent.mkdir()
    file.write_text(json.dumps(body))
    assert read_last_known(file_of(tmp_path, SCOPE), URL) is None


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=80))
def test_any_bytes_count_as_nothing(tmp_path: Path, body: bytes) -> None:
    file = file_of(tmp_path, SCOPE)
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(body)
    assert read_last_known(file_of(tmp_path, SCOPE), URL) is None


def test_a_half_written_file_counts_as_nothing_and_is_replaced(tmp_path: Path) -> None:
    file = file_of(tmp_path, SCOPE)
    write_last_known(file, URL, known(), KEY)
    file.write_bytes(file.read_bytes()[:-20])
    assert read_last_known(file_of(tmp_path, SCOPE), URL) is None
    write_last_known(file_of(tmp_path, SCOPE), URL, known(), KEY)
    assert read_last_known(file_of(tmp_path, SCOPE), URL) == known()


def test_a_place_that_cannot_be_written_to_is_no_trouble(tmp_path: Path) -> None:
    (tmp_path / "offline").write_text("")
    write_last_known(file_of(tmp_path, SCOPE), URL, known(), KEY)
    assert read_last_known(file_of(tmp_path, SCOPE), URL) is None


@pytest.mark.parametrize(
    ("past", "said"),
    [
        (5, "5 s ago"),
        (720, "12 min ago"),
        (7200, "2 h ago"),
        (900_000, "10 d ago"),
        (-9, "0 s ago"),
    ],
)
def test_how_old_it_is(past: int, said: str) -> None:
    assert said in offline_text(1.7e9 - past, 1.7e9)
    assert "nothing has been read" in offline_text(None, 1.7e9)
