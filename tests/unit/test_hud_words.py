"""What users of HUD's own command line type."""

import json

import pytest

from hud_tui.cli.hud_words import translated
from hud_tui.cli.main import main
from hud_tui.errors import HudUsage


@pytest.mark.parametrize(
    ("there", "here"),
    [
        ("models list --json", "models --headless"),
        ("models fork base -n mine --if-not-exists", "fork base --name mine --if-not-exists"),
        ("models checkpoints mine", "checkpoints mine"),
        ("--headless models head mine --set c1", "--headless head mine --set c1"),
        ("--local models list", "--local models"),
        ("--json models list", "--headless models"),
        ("jobs list", "jobs"),
        ("jobs get 1a2b", "traces 1a2b"),
        ("jobs cancel 1a2b -y", "jobs --cancel 1a2b -y"),
        ("rl run tasks.json --model mine", "run tasks.json --model mine"),
        ("rl tasks.json", "run tasks.json"),
        ("rl status mine", "status mine"),
        ("run --dataset arith -m mine", "run arith -m mine"),
        ("preflight --dataset arith", "preflight arith"),
        ("train env.py --dataset arith -n", "train env.py --dataset arith -n"),
        (
            "rl --config c.yaml --dataset t --gpus 4xH100 --provider prime",
            "run --config c.yaml t --gpus 4xH100",
        ),
        ("run t --gpus 1xA100 --provider runpod", "run t --gpus 1xA100 --provider runpod"),
        ("run prime -m prime", "run prime -m prime"),
        ("rl init org/shop:1 --force", "init org/shop:1 --force"),
        ("analyze org/shop:1 --json", "init --dry-run org/shop:1 --headless"),
        ("jobs 1a2b", "jobs 1a2b"),
        ("eval env.py -m list", "eval env.py -m list"),
        ("", ""),
    ],
)
def test_what_has_an_equal_is_done_by_it(there: str, here: str) -> None:
    assert translated(there.split()) == here.split()


ELSEWHERE = "deploy", "harbor", "project", "qa", "set", "sync", "task"


@pytest.mark.parametrize(
    ("words", "hint"),
    [(f"{name} .", f"hud {name}") for name in ELSEWHERE]
    + [("hf tasks.json", "hud-tui convert --help")],
)
def test_what_has_none_is_answered_with_who_has(words: str, hint: str) -> None:
    with pytest.raises(HudUsage) as refused:
        translated(words.split())
    assert hint in refused.value.hint


def test_a_command_line_of_hud_s_is_answered_in_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sync", "tasks", "--json"]) == 2
    document = json.loads(capsys.readouterr().out)
    assert document["error"]["message"] == "hud-tui has no sync"
    assert main(["version"]) == 0
