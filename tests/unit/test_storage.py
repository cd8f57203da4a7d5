"""Files are written whole or not at all, by one writer at a time, never in another's place."""

import errno
import json
import os
import signal
import stat
from collections.abc import Iterator
from multiprocessing import Pipe
from pathlib import Path
from threading import Event, Thread

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hud_tui import storage
from hud_tui.audit_log import NAME as LOG
from hud_tui.audit_log import AuditEntry, CommandLog, to_line
from hud_tui.client.guard import NAME, Protection
from hud_tui.client.sweep_files import SweepFiles
from hud_tui.errors import HudUsage
from hud_tui.notebook import Notebook
from hud_tui.rl.names import LONGEST, plain_name
from hud_tui.rl.sweep import Sweep
from hud_tui.rollouts.run_files import RunFolder, losses_text
from hud_tui.storage import (
    LOCK,
    JsonStore,
    change_atomic,
    check_new,
    held,
    is_held,
    locked,
    write_atomic,
    write_folder,
    write_named,
    write_numbered,
)
from tests.unit.storage_writers import (
    LONG,
    NFS,
    NOTES,
    choose,
    hold,
    protect,
    rewrite,
    take_notes,
    unsupported,
    writer,
)


@given(st.text())
def test_a_name_from_any_text_is_one_plain_file(text: str) -> None:
    name = plain_name(text)
    assert Path(name).name == name
    assert name[0] not in "-."
    assert name.isascii()
    assert name.isprintable()
    assert 0 < len(name) <= LONGEST


@pytest.mark.parametrize("links", [True, False])
def test_a_name_that_is_taken_gets_a_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, links: bool
) -> None:
    """On a disk without hard links too; what breaks off leaves nothing."""

    def refuse(*_: object) -> None:
        raise OSError(95, "Operation not supported")

    if not links:
        monkeypatch.setattr(os, "link", refuse)
    place = tmp_path / "new"
    place.mkdir()
    (place / "run.csv").symlink_to(tmp_path / "elsewhere")
    files = [write_numbered(place, "run", ".csv", [str(n), "!"]) for n in range(2)]
    assert [file.name for file in files] == ["run-2.csv", "run-3.csv"]
    assert [file.read_text() for file in files] == ["0!", "1!"]
    assert not (tmp_path / "elsewhere").exists(), "a link that points nowhere is not followed"

    def pieces() -> Iterator[str]:
        yield "half"
        raise RuntimeError

    with pytest.raises(RuntimeError):
        write_numbered(place, "run", ".csv", pieces())
    assert sorted(os.listdir(place)) == ["run-2.csv", "run-3.csv", "run.csv"]
    with pytest.raises(HudUsage, match=r"run-2\.csv"):
        write_numbered(files[0], "run", ".csv", ["x"])


def test_a_file_that_is_named_is_not_written_over(tmp_path: Path) -> None:
    file = write_named(tmp_path / "a.csv", ["one"])
    with pytest.raises(HudUsage, match="exists"):
        write_named(file, ["two"])
    with pytest.raises(HudUsage, match="exists"):
        check_new(file)
    check_new(tmp_path)
    check_new(tmp_path / "b.csv")
    assert file.read_text() == "one"
    assert os.listdir(tmp_path) == ["a.csv"]


def test_a_folder_is_whole_or_not_there(tmp_path: Path) -> None:
    folders = [write_folder(tmp_path, "run", {"a.md": "A", "b.svg": "B"}) for _ in range(2)]
    assert [folder.name for folder in folders] == ["run", "run-2"]
    assert sorted(os.listdir(folders[1])) == ["a.md", "b.svg"]
    assert sorted(os.listdir(tmp_path)) == ["run", "run-2"]
    with pytest.raises(HudUsage, match=r"a\.md"):
        write_folder(folders[0] / "a.md", "run", {"a": ""})


def test_on_a_full_disk_no_directory_is_left_that_was_made_for_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(storage, "_write", full)
    (tmp_path / "old").mkdir()
    for place in ("new/deep", "old/new", "old"):
        for write in (
            lambda at: write_folder(at, "run", {"a.md": "A"}),
            lambda at: write_numbered(at, "run", ".csv", ["x"]),
            lambda at: write_named(at / "run.csv", ["x"]),
        ):
            with pytest.raises(HudUsage, match="No space left"):
                write(tmp_path / place)
    assert os.listdir(tmp_path) == ["old"]
    assert not os.listdir(tmp_path / "old")


def test_a_directory_that_cannot_be_is_said_as_one_that_cannot_be_written(tmp_path: Path) -> None:
    for place in (tmp_path / ("x" * 300), tmp_path / ("x" * 300) / "deep"):
        with pytest.raises(HudUsage, match="name too long"):
            write_folder(place, "run", {"a.md": "A"})
    assert not os.listdir(tmp_path)


def test_a_file_system_without_locks_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one of a network without its lock service."""

    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(storage.fcntl, "flock", refuse)
    lock = RunFolder(tmp_path / "r1").starting()
    with pytest.raises(HudUsage, match=r"cannot be taken: .*No locks available"), lock:
        pass


def test_what_several_programs_write_at_once_is_all_kept(tmp_path: Path) -> None:
    notes = tmp_path / "models" / "m.json"
    running = [writer(protect, tmp_path / NAME, name) for name in "abcdef"]
    running += [writer(take_notes, notes, name) for name in "abcd"]
    running += [writer(choose, tmp_path / "choices.json", name) for name in "abc"]
    for one in running:
        one.join()
    assert [one.exitcode for one in running] == [0] * 13
    assert sorted(Protection(lambda: tmp_path).models) == list("abcdef")
    assert len(Notebook(notes).notes) == 4 * NOTES == 200
    assert os.listdir(notes.parent) == ["m.json"]
    assert len(JsonStore(lambda: tmp_path).read("choices")) == 3 * NOTES


def test_a_writer_that_is_killed_leaves_the_old_file_or_the_new_one(tmp_path: Path) -> None:
    file = tmp_path / "state.json"
    for writes in range(1, 6):
        here, there = Pipe(duplex=False)
        killed = writer(rewrite, file, "ab", there)
        for _ in range(writes):
            assert here.recv() in "ab"
        killed.kill()
        killed.join()
        body = file.read_text()
        assert (len(body), len(set(body))) == (LONG, 1)
    write_atomic(file, "done")
    assert os.listdir(tmp_path) == ["state.json"], "what the killed ones left is gone"


def test_a_file_is_its_owners_alone_whatever_it_was(tmp_path: Path) -> None:
    file = tmp_path / "new" / "state.json"
    file.parent.mkdir()
    file.write_text("old")
    file.chmod(0o644)
    write_atomic(file, ["ä", "b"])
    assert (file.read_text("utf-8"), stat.S_IMODE(file.stat().st_mode)) == ("äb", 0o600)
    book = Notebook(file.with_name("notes.json"))
    book.write("c", "note")
    assert stat.S_IMODE(file.with_name("notes.json").stat().st_mode) == 0o600


def test_what_is_on_disk_is_whole_before_it_has_the_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []
    fsync, replace = os.fsync, Path.replace
    monkeypatch.setattr(os, "fsync", lambda opened: (done.append("fsync"), fsync(opened)))
    monkeypatch.setattr(Path, "replace", lambda *to: (done.append("replace"), replace(*to))[1])
    write_atomic(tmp_path / "state.json", "x")
    assert done == ["fsync", "replace", "fsync"], "the draft, the name, the directory"


def test_what_cannot_be_written_leaves_the_old_one(tmp_path: Path) -> None:
    file = tmp_path / "state.json"
    write_atomic(file, "old")

    def full() -> Iterator[str]:
        yield "half"
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(OSError, match="No space"):
        change_atomic(file, full)
    assert (file.read_text(), os.listdir(tmp_path)) == ("old", ["state.json"])
    change_atomic(file, lambda: None)
    assert file.read_text() == "old"


def files(directory: Path) -> set[str]:
    """What is in a directory, but for its lock."""
    return {*os.listdir(directory)} - {LOCK}


@pytest.mark.parametrize("kernel", [True, False])
def test_one_writes_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kernel: bool
) -> None:
    if not kernel:
        monkeypatch.setattr(storage, "fcntl", NFS)
    file, inside = tmp_path / "count.json", Event()

    def count() -> None:
        for _ in range(20):
            change_atomic(file, one_more)

    def one_more() -> str:
        assert not inside.is_set()
        inside.set()
        number = int(json.loads(file.read_text())) if file.exists() else 0
        inside.clear()
        return str(number + 1)

    threads = [Thread(target=count) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (file.read_text(), files(tmp_path)) == ("80", {"count.json"})


@pytest.mark.parametrize("kernel", [True, False])
def test_a_writer_that_never_ends_is_said_and_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kernel: bool
) -> None:
    monkeypatch.setattr(storage, "LOCK_S", 0.0)
    if not kernel:
        monkeypatch.setattr(storage, "fcntl", NFS)
    with locked(tmp_path), pytest.raises(TimeoutError, match="holds the lock"):
        write_atomic(tmp_path / "state.json", "x")
    with locked(tmp_path), pytest.raises(HudUsage, match="cannot be written"):
        Protection(lambda: tmp_path).protect("m", "m", True)
    assert files(tmp_path) == set()


def test_a_lock_is_its_holder_s_until_that_ends_by_whatever_clock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(storage, "fcntl", NFS)
    monkeypatch.setattr(storage, "LOCK_S", 0.0)
    here, there = Pipe(duplex=False)
    holder = writer(hold, tmp_path, there)
    try:
        assert here.recv() == "held"
        assert holder.pid is not None
        os.kill(holder.pid, signal.SIGSTOP)
        os.utime(tmp_path / LOCK, (0, 0))  # for years, by the wall clock
        with pytest.raises(TimeoutError, match="holds the lock"):
            write_atomic(tmp_path / "state.json", "x")
    finally:
        holder.kill()
        holder.join()
    write_atomic(tmp_path / "state.json", "x")
    assert files(tmp_path) == {"state.json"}


def test_without_any_lock_nothing_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(storage.fcntl, "flock", unsupported)
    with pytest.raises(OSError, match="Bad file descriptor"):
        write_atomic(tmp_path / "state.json", "x")
    assert files(tmp_path) == set()


def test_a_lock_file_that_cannot_be_opened_is_nobody_s(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    assert not is_held(tmp_path / "none")
    assert not is_held(tmp_path / "folder")
    with held(tmp_path / "lock"):
        assert is_held(tmp_path / "lock")
    assert not is_held(tmp_path / "lock")


def test_where_locks_do_not_work_nobody_is_told_that_no_one_holds_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run would be reported as interrupted whose driver lives."""
    monkeypatch.setattr(storage.fcntl, "flock", unsupported)
    (tmp_path / "driver.lock").touch()
    with pytest.raises(OSError, match="Bad file descriptor"):
        _ = RunFolder(tmp_path).is_driven
    sweep = Sweep.model_construct(id="s", name="s")
    refused = pytest.raises(HudUsage, match="Bad file descriptor")
    with refused, SweepFiles(tmp_path).driving(sweep, "hud-tui sweep s --cancel"):
        pytest.fail("two could drive it")


def test_an_error_while_a_sweep_is_driven_is_its_own(tmp_path: Path) -> None:
    sweep = Sweep.model_construct(id="s", name="s")
    full = OSError(errno.ENOSPC, "full")
    with (
        pytest.raises(OSError, match="full"),
        SweepFiles(tmp_path).driving(sweep, "hud-tui sweep s --cancel"),
    ):
        raise full


def test_a_log_that_is_full_is_put_aside_by_one_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two that found it full at once would put a new one in the place of the one put aside."""
    line = len(to_line(AuditEntry(1.0, "fork")))
    monkeypatch.setattr("hud_tui.audit_log.MOST", line - 1)
    log = CommandLog(tmp_path)
    log.add(AuditEntry(1.0, "fork"))
    assert os.listdir(tmp_path) == [f"{LOG}.1"]
    monkeypatch.setattr(storage, "LOCK_S", 0.0)
    with locked(tmp_path):
        log.add(AuditEntry(2.0, "fork"))
    assert sorted(os.listdir(tmp_path)) == [LOG, f"{LOG}.1"]
    assert [one.at for one in log.read()[0]] == [1.0, 2.0], "a line is never lost to the lock"


def test_what_was_lost_is_counted_in_words() -> None:
    assert losses_text(1, 1) == "1 rollout failed, 1 group lost"
    assert losses_text(2, 0) == "2 rollouts failed, 0 groups lost"
