"""``hud-tui translate`` and ``run --config``."""

import json
from pathlib import Path

import pytest

from hud_tui.cli import main, start_of
from hud_tui.commands import build_parser
from hud_tui.headless.filling import fill_in
from tests.conftest import Served
from tests.service.headless import Command, commands

CONFIG = {
    "training": {"training_steps": 2, "group_size": 2, "batch_size": 4, "lr": 3e-4, "kl_beta": 0.1},
    "actor": {"temperature": 1.0, "max_new_tokens": 8, "vllm_api_key": "token-abc123"},
    "seed": 5,
}


@pytest.fixture
def hud(
    served: Served,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> Command:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rl.json").write_text(json.dumps(CONFIG))
    return commands(served, monkeypatch, capsys)


async def test_the_document(hud: Command) -> None:
    result = await hud("translate", "rl.json")
    assert (result.code, result.kind) == (0, "translation")
    assert result.data["parameters"]["tasks_per_step"] == 2
    assert "training.kl_beta" in [one["field"] for one in result.data["dropped"]]
    assert result.data["command"].startswith("hud-tui run SOURCE --steps 2 ")
    assert "token-abc123" not in json.dumps(result.documents) + result.err


async def test_the_command_that_it_names_says_the_same(hud: Command) -> None:
    data = (await hud("translate", "rl.json")).data
    args = build_parser().parse_args(data["command"].split()[1:])
    assert start_of(args).parameters == data["parameters"]


async def test_a_run_takes_it_and_flags_win(hud: Command) -> None:
    base = (await hud("models")).data["models"][0]["model_name"]
    await hud("fork", base, "--name", "m", "-y")
    result = await hud("run", "arith", "--config", "rl.json", "--seed", "9", "-y")
    assert result.code == 0, result.error
    assert "no equivalent for training.kl_beta" in result.err
    given = (await hud("jobs", result.data["job_id"])).data["status"]["parameters"]
    assert (given["steps"], given["group_size"], given["tasks_per_step"]) == (2, 2, 2)
    assert (given["learning_rate"], given["max_tokens"], given["seed"]) == (3e-4, 8, 9)


async def test_what_cannot_be_read(hud: Command, tmp_path: Path) -> None:
    for argv in (("translate", "none.json"), ("run", "arith", "--config", "none.json", "-y")):
        result = await hud(*argv)
        assert (result.code, "no such file" in result.error["message"]) == (2, True)
    (tmp_path / "rl.json").write_text('{"training": {\n"lr": "fast"}}')
    result = await hud("translate", "rl.json")
    assert (result.code, result.error["message"]) == (
        2,
        "rl.json line 2: field training.lr: expected a number, found text",
    )


async def test_people_read_a_table_and_the_app_s_form_begins_with_it(
    hud: Command, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["translate", "rl.json"]) == 0
    out = capsys.readouterr().out
    assert "training.training_steps" in out
    assert "→ --steps 2" in out
    assert "no equivalent:" in out
    assert "token-abc123" not in out
    args = build_parser().parse_args(["run", "arith", "--config", "rl.json"])
    fill_in(args)
    assert start_of(args).parameters["steps"] == 2
