"""Names of accounts' files: one for each account and service, and nothing to guess it by."""

import os
import stat
from pathlib import Path

import pytest

from hud_tui.errors import HudUsage
from hud_tui.notebook import BYTES, DIGITS, SALT, scope_of

URL, KEY = "https://api.hud.ai", "hud-secret-key-1234"


def name(state: Path, url: str = URL, key: str = KEY) -> str:
    found = scope_of(state, url, key)
    assert found is not None
    return found


def test_it_stays_and_differs_by_service_key_and_machine(tmp_path: Path) -> None:
    names = [
        name(tmp_path),
        name(tmp_path, key=KEY + "5"),
        name(tmp_path, url=URL + "1"),
        name(tmp_path, url=URL + "h", key=KEY[1:]),
    ]
    assert len(set(names)) == len(names)
    assert names[0] == name(tmp_path)
    assert all(len(name) == DIGITS and int(name, 16) for name in names)
    assert name(tmp_path / "a") != name(tmp_path / "b")


def test_the_secret_is_its_owners_and_no_key(tmp_path: Path) -> None:
    name(tmp_path / "new")
    file = tmp_path / "new" / SALT
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert len(file.read_bytes()) == BYTES
    assert os.listdir(file.parent) == [SALT]
    file.chmod(0o644)
    with pytest.raises(
        HudUsage, match=r"accounts\.salt: others can access it .mode 0644"
    ) as refused:
        scope_of(tmp_path / "new", URL, KEY)
    assert refused.value.hint.startswith("remove it")


@pytest.mark.parametrize("body", [b"", b"short", b"x" * (BYTES + 1)])
def test_one_that_is_not_whole_is_refused_by_name(tmp_path: Path, body: bytes) -> None:
    (tmp_path / SALT).touch(0o600)
    (tmp_path / SALT).write_bytes(body)
    with pytest.raises(HudUsage, match=r"accounts\.salt: (not 32 bytes|larger than 32 bytes)"):
        scope_of(tmp_path, URL, KEY)
    assert (tmp_path / SALT).read_bytes() == body


def test_a_place_that_cannot_be_written_to_names_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert scope_of(tmp_path / "file", URL, KEY) is None
