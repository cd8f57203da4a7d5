"""``hud-tui init``: from a lock file, from the service, and back."""

import json
from pathlib import Path

import pytest

from hud_tui.cli.main import main
from tests.service.headless import Command
from tests.unit.legacy.locks import V1_0, V1_1


@pytest.fixture(autouse=True)
def lock_file(here: Path) -> None:
    (here / "hud.lock.yaml").write_text(V1_1)


async def test_from_a_directory_and_not_twice(bare: Command, tmp_path: Path) -> None:
    first = await bare("init", ".")
    assert (first.code, first.kind) == (0, "gym_config")
    assert first.data["actions"] == ["playwright", "done"]
    file = tmp_path / first.data["file"]
    assert file == tmp_path / "configs" / "browser.yaml"
    file.write_text(file.read_text().replace("max_turns: 30", "max_turns: 7"))
    again = await bare("init", ".")
    assert (again.code, "exists" in again.error["message"]) == (2, True)
    assert (await bare("init", "--show", str(file))).data["config"]["defaults"] == {"max_turns": 7}
    assert (await bare("init", "hud.lock.yaml", "--force")).code == 0
    assert "max_turns: 30" in file.read_text()


async def test_from_the_service_to_a_file_of_one_s_choice(bare: Command, tmp_path: Path) -> None:
    result = await bare("init", "arith", "-o", "deep/er/mine.yaml")
    assert (result.code, result.data["actions"]) == (0, ["done"])
    assert "- add: " in result.data["config"]["system_prompt"]
    shown = await bare("init", "--show", "deep/er/mine.yaml")
    assert shown.data["config"] == result.data["config"]


async def test_what_cannot_be(bare: Command, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "tasks.json").write_text("{}")
    for words, message in (
        ("", "either ENV or --show"),
        ("arith --show x", "either ENV or --show"),
        ("nowhere", "no environment named nowhere"),
        ("./environments/text_2048", "./environments/text_2048: no such file or directory"),
        ("./empty", "has no hud.lock.yaml"),
        ("--show nothing.yaml", "No such file"),
        ("--show hud.lock.yaml", "not a configuration"),
        (". -o hud.lock.yaml/x", "hud.lock.yaml"),
        ("tasks.json", "not a lock file"),
    ):
        result = await bare("init", *words.split())
        assert (result.code, result.kind) == (2, "error"), words
        assert message in result.error["message"]
        assert result.error["hint"]
    (tmp_path / "hud.lock.yaml").unlink()
    result = await bare("init", "hud.lock.yaml")
    assert result.error["message"] == "hud.lock.yaml: no such file or directory"


async def test_a_transform_is_shown_and_not_run_and_one_that_is_cut_says_so(
    bare: Command, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """In the table: the document has all of it."""
    mark = tmp_path / "ran"
    touch = f"__import__('pathlib').Path({str(mark)!r}).touch()"
    long = "lambda x: " + "x" * 600
    for code, shown in ((touch, touch), (long, "xxx… (110 more characters)\n")):
        argument = f"{{from_arg: a, transform: {json.dumps(code)}}}"
        (tmp_path / "c.yaml").write_text(f"action_mappings:\n  go:\n    x: {argument}\n")
        result = await bare("init", "--show", "c.yaml")
        assert result.data["transforms"] == [{"action": "go", "argument": "x", "text": code}]
        assert main(["init", "--show", "c.yaml"]) == 0
        assert shown in capsys.readouterr().out
    assert not mark.exists()


async def test_people_are_told_what_was_written(
    bare: Command, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "hud.lock.yaml").write_text(V1_0)
    assert main(["init", "."]) == 0
    out, err = capsys.readouterr()
    assert out.startswith("wrote configs/text_2048.yaml: 2 actions\n")
    assert "! move: unknown parameters" in out
    assert "not-to-be-shown" not in out + err + (tmp_path / "configs/text_2048.yaml").read_text()
