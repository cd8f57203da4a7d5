"""Only regular files are read, wherever a path comes from; anything else is named at once."""

import json
import os
import signal
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType

import pytest

from hud_tui.audit_log import CommandLog
from hud_tui.client.guard import Protection
from hud_tui.client.preflight import load_path
from hud_tui.client.replay import read_file
from hud_tui.config import CONFIG_NAME as CONFIG
from hud_tui.config import read_config
from hud_tui.errors import HudError, HudUsage
from hud_tui.events import HeadMoved
from hud_tui.legacy.dataset import read_parquet
from hud_tui.legacy.lock_file import LOCK_NAME as LOCK
from hud_tui.legacy.lock_file import load_lock, read_bounded, replace_file
from hud_tui.notebook import Notebook, read_last_known
from hud_tui.settings import every_variable, read_variables
from hud_tui.storage import (
    JsonStore,
    NotPrivate,
    NotRegular,
    open_or_make,
    open_regular,
    read_private,
    read_regular,
)

HANGS_S = 20
"""Nothing here waits for anything; a test that is still at it then would hang for good."""
KINDS = ("a FIFO", "a character device", "a socket", "a directory")


@pytest.fixture(autouse=True)
def in_time() -> Iterator[None]:
    def stop(number: int, frame: FrameType | None) -> None:
        raise AssertionError("it waits for a file that never answers")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(HANGS_S)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def place(kind: str, file: Path) -> None:
    match kind:
        case "a FIFO":
            os.mkfifo(file)
        case "a character device":
            file.symlink_to("/dev/zero")
        case "a socket":
            with socket.socket(socket.AF_UNIX) as bound:
                at = os.getcwd()
                os.chdir(file.parent)  # a socket's address is short
                bound.bind(file.name)
                os.chdir(at)
        case _:
            file.mkdir()


READERS: dict[str, Callable[[Path], object]] = {
    "tasks.jsonl": lambda file: load_path(str(file), file),
    "record.jsonl": read_file,
    LOCK: load_lock,
    "gym.yaml": read_bounded,
    CONFIG: lambda file: read_config(file.parent),
    "train.parquet": lambda file: list(read_parquet(file)),
    "protected.json": lambda file: Protection(lambda: file.parent).models,
}


@pytest.mark.parametrize("name", READERS)
def test_a_reader_names_the_path_and_what_it_is(tmp_path: Path, name: str) -> None:
    for kind in KINDS[:3]:  # a directory may be a source of tasks
        file = tmp_path / kind / name
        file.parent.mkdir()
        place(kind, file)
        with pytest.raises(HudUsage) as refused:
            READERS[name](file)
        assert str(file) in refused.value.message
        said = refused.value.__cause__ if name == "protected.json" else refused.value.message
        assert kind in str(said)


def test_a_link_that_leads_nowhere_is_not_left_out(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(json.dumps([{"env": "e", "id": "s"}]))
    for name, target in (("gone.json", "nowhere"), ("loop.json", "loop.json")):
        (tmp_path / name).symlink_to(target)
        with pytest.raises(HudUsage, match=name):
            load_path(str(tmp_path), tmp_path)
        (tmp_path / name).unlink()
    (tmp_path / "b.json").symlink_to("a.json")
    assert len(load_path(str(tmp_path), tmp_path)[0]) == 2


@pytest.mark.parametrize("kind", KINDS[:3])
def test_an_environment_file_or_one_among_others_of_another_kind_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    place(kind, tmp_path / ".env")
    with pytest.raises(HudUsage, match=rf"^\.env: {kind}, not a regular file"):
        read_variables({})
    assert every_variable({"A": "b"}) == {"A": "b"}

    (tmp_path / "a.json").write_text(json.dumps([{"env": "e", "id": "s"}]))
    place(kind, tmp_path / "b.json")
    with pytest.raises(HudError, match=rf"b\.json: {kind}, not a regular file"):
        load_path(str(tmp_path), tmp_path)


def test_an_environment_directory_is_none_of_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python's virtual environments may be called so."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / ".env").mkdir()
    assert read_variables({"HUD_API_KEY": "k"}) == {"HUD_API_KEY": "k"}


def test_an_environment_file_that_is_too_large_is_not_read_in_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".env").write_text("#" * (1 << 20) + "\nHUD_API_KEY=k\n")
    with pytest.raises(HudUsage, match=r"^\.env: larger than 1048576 bytes"):
        read_variables({})


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_kept_between_sessions_is_done_without_and_not_written_over(
    tmp_path: Path, kind: str
) -> None:
    for name in ("look.json", "notes.json", "known.json", "commands.jsonl"):
        place(kind, tmp_path / name)
    store, notebook = JsonStore(lambda: tmp_path), Notebook(tmp_path / "notes.json")
    assert store.read("look") == {}
    assert kind in store.problems()[0]
    assert read_last_known(tmp_path / "known.json", "https://x") is None
    assert CommandLog(tmp_path).read() == ([], 0)
    with pytest.raises(OSError, match=kind):
        notebook.write("id", "a note")
    with pytest.raises(OSError, match=kind):
        notebook.add(HeadMoved(checkpoint_id="id", cause="set"))
    assert notebook.notes == {"id": "a note"}
    assert not (tmp_path / "notes.json").is_file()


def test_no_device_is_replaced_locked_or_read_even_if_it_was_a_file_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place("a FIFO", tmp_path / "fifo")
    with pytest.raises(HudUsage, match="a FIFO, not a regular file"):
        replace_file(tmp_path / "fifo", b"text")
    assert (tmp_path / "fifo").is_fifo()
    place("a FIFO", tmp_path / "lock")
    with pytest.raises(NotRegular):
        open_or_make(tmp_path / "lock")
    os.close(open_or_make(tmp_path / "new"))
    assert (tmp_path / "new").stat().st_mode & 0o777 == 0o600

    file = tmp_path / "file"
    file.write_text("text")

    def replaced(path: Path) -> None:
        path.unlink()
        os.mkfifo(path)

    monkeypatch.setattr("hud_tui.storage.check_regular", replaced)
    with pytest.raises(NotRegular, match="a FIFO"):
        open_regular(file)


def test_a_file_is_read_whole_or_not_at_all(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"12345")
    assert read_regular(tmp_path / "file", 5) == b"12345"
    with pytest.raises(OSError, match="larger than 4 bytes"):
        read_regular(tmp_path / "file", 4)
    with pytest.raises(ValueError, match="null"):
        read_regular(Path("a\0b"), 5)


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o606, 0o660, 0o700, 0o4600])
def test_a_secret_is_its_owners_alone(tmp_path: Path, mode: int) -> None:
    file = tmp_path / "secret"
    file.write_bytes(b"secret")
    file.chmod(0o600)
    assert read_private(file, 10) == b"secret"
    file.chmod(0o400)
    assert read_private(file, 10) == b"secret"
    file.chmod(mode)
    with pytest.raises(NotPrivate, match=f"mode {mode:04o}, not 0600"):
        read_private(file, 10)


def test_a_secret_is_no_link(tmp_path: Path) -> None:
    (tmp_path / "secret").touch(0o600)
    (tmp_path / "link").symlink_to("secret")
    with pytest.raises(OSError, match="a link"):
        read_private(tmp_path / "link", 10)
