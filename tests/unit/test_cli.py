"""The command line: what is accepted, and what the app is told."""

import json
import re
from contextlib import redirect_stdout, suppress
from io import StringIO
from itertools import product
from pathlib import Path

import pytest

from hud_tui.cli.commands import COMMANDS, build_parser
from hud_tui.cli.main import main, needs_no_app, start_of
from hud_tui.cli.parser import likely_command
from hud_tui.errors import HudUsage
from hud_tui.keys import VIEWS
from hud_tui.rollouts.template import write_environment
from hud_tui.tui.start import Start

PARSER = build_parser()


def parse(line: str) -> Start:
    return start_of(PARSER.parse_args(line.split()))


@pytest.mark.parametrize(
    ("line", "start"),
    [
        ("", Start(again=True)),
        ("status", Start()),
        ("--local", Start(again=True)),
        ("status mine", Start("status", ref="mine")),
        ("models", Start("models", view="models")),
        ("checkpoints mine", Start("checkpoints", model="mine", view="checkpoints")),
        ("head mine", Start("head", model="mine", view="checkpoints")),
        (
            "preflight t.jsonl -m mine",
            Start("preflight", model="mine", source="t.jsonl", view="launch"),
        ),
        ("jobs j1", Start("jobs", ref="j1", view="jobs")),
        ("traces j1", Start("traces", ref="j1", view="jobs")),
        (
            "run t.json --model mine --steps 3 --learning-rate 1e-3 --reasoning-effort low",
            Start(
                "run",
                model="mine",
                view="launch",
                source="t.json",
                parameters={"reasoning_effort": "low", "steps": 3, "learning_rate": 1e-3},
            ),
        ),
        (
            "run t --loss-fn-config clip_low_threshold=.8,clip_high_threshold=1.28 --beta1 0 "
            "--norm-adv-by-std --reward-scale 2 --eps 1e-6 --weight-decay .1 --beta2 .99 "
            "--eval-every 5 --eval-samples 2 --baseline",
            Start(
                "run",
                view="launch",
                source="t",
                parameters={
                    "loss_fn_config": {"clip_low_threshold": 0.8, "clip_high_threshold": 1.28},
                    **{"reward_scale": 2.0, "norm_adv_by_std": True},
                    **{"beta1": 0.0, "beta2": 0.99, "eps": 1e-6, "weight_decay": 0.1},
                    **{"eval_every": 5, "eval_samples": 2, "baseline": True},
                },
            ),
        ),
    ],
)
def test_what_the_app_opens_with(line: str, start: Start) -> None:
    assert parse(line) == start


@pytest.mark.parametrize("flag", ["-m", "--model", "--model-id", ""])
@pytest.mark.parametrize(
    ("command", "rest", "dest"),
    [
        ("status", "-v", "ref"),
        ("checkpoints", "", "model"),
        ("head", "--back 1", "model"),
        ("export", "--what checkpoints", "ref"),
        ("report", "-o reports", "ref"),
        ("protect", "--off", "model"),
        ("watch", "--until alarm", "ref"),
        ("ship", "--budget 600", "model"),
        ("bisect", "--good base", "model"),
    ],
)
def test_commands_about_a_model_take_it_by_place_and_as_a_flag(
    command: str, rest: str, dest: str, flag: str
) -> None:
    for line in (f"{command} {flag} mine {rest}", f"{command} {rest} {flag} mine"):
        assert getattr(PARSER.parse_args(line.split()), dest) == "mine"
    with pytest.raises(HudUsage, match="not allowed with argument"):
        PARSER.parse_args([command, "mine", "-m", "other"])


@pytest.mark.parametrize("line", ["--local --data-dir D jobs", "jobs --data-dir D --local"])
def test_global_flags_stand_before_or_after_the_command(line: str) -> None:
    args = PARSER.parse_args(line.split())
    assert (args.command, args.local, args.data_dir, args.state_dir) == ("jobs", True, "D", None)


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("play env.py --turns 4 add", {"source": "env.py", "turns": 4, "task": "add"}),
        ("access add --role train ana", {"action": "add", "role": "train", "name": "ana"}),
        ("compare base -m mine head", {"ref": ["base", "head"], "model": "mine"}),
        ("ship mine --candidates a b", {"model": "mine", "candidates": ["a", "b"]}),
        ("ship --candidates a b -m mine", {"model": "mine", "candidates": ["a", "b"]}),
        ("runs --sort -reward 3f2a --limit 5 91bc", {"run": ["3f2a", "91bc"], "sort": "-reward"}),
        ("play --turns 4 -- env.py add", {"source": "env.py", "turns": 4, "task": "add"}),
    ],
)
def test_flags_stand_before_between_or_after_what_is_positional(
    line: str, named: dict[str, object]
) -> None:
    parsed = vars(PARSER.parse_args(line.split()))
    assert {name: parsed[name] for name in named} == named


@pytest.mark.parametrize(
    "line",
    [
        "nonsense",
        "fork tiny",
        "checkpoints",
        "head --back 1",
        "watch",
        "head m --set a --back 1",
        "run t --steps many",
        "run t --reasoning-effort huge",
        "run t --seed 9223372036854775808",
        "run t --learning-rate nan",
        "run t --learning-rate inf",
        "run t --steps 1,",
        "run t --seed 1,x",
        "sweep s --cancel --resume",
        "run t --loss-fn-config clip",
        "run t --loss-fn-config clip=",
        "run t --loss-fn-config =1",
        "run t --loss-fn-config beta=nan",
        "jobs j --cancel --resume",
        "--headles models",
        "models --loca",
        "run t --follo",
    ],
)
def test_what_is_not_accepted(line: str) -> None:
    with pytest.raises(HudUsage):
        parse(line)


@pytest.mark.parametrize(
    ("line", "message", "hint"),
    [
        ("live mixed-rl", "no command named live", "did you mean watch?"),
        ("launch", "no command named launch", "did you mean run?"),
        ("evaluate -m m", "no command named evaluate", "did you mean eval?"),
        ("mixed-rl", "no command named mixed-rl", "see hud-tui --help"),
        ("pods rentt", "no action named rentt", "see hud-tui pods --help"),
    ],
)
def test_an_unknown_command_is_answered_with_the_likely_one(
    line: str, message: str, hint: str
) -> None:
    with pytest.raises(HudUsage) as refused:
        parse(line)
    assert (refused.value.message, refused.value.hint) == (message, hint)


@pytest.mark.parametrize(
    ("line", "words", "command"),
    [
        ("--nothing", "--nothing", ""),
        ("run arith --memory-mb 5", "--memory-mb 5", " run"),
        ("pods list --nothing", "--nothing", " pods list"),
    ],
)
def test_an_unknown_flag_is_answered_with_the_help_of_its_command(
    line: str, words: str, command: str
) -> None:
    with pytest.raises(HudUsage) as refused:
        parse(line)
    assert refused.value.message == f"unrecognized arguments: {words}"
    assert refused.value.hint == f"see hud-tui{command} --help"


def test_the_example_of_play_names_a_template_that_init_env_writes(tmp_path: Path) -> None:
    write_environment("sums", tmp_path)
    source = (tmp_path / "sums" / "env.py").read_text()
    [task] = re.findall(r"hud-tui play sums/env\.py ([a-z-]+)", help_of("play"))
    assert f"async def {task}(" in source


def help_of(command: str) -> str:
    with redirect_stdout(StringIO()) as shown, suppress(SystemExit):
        PARSER.parse_args([command, "--help"])
    return shown.getvalue()


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself_with_an_example(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        main([command, "--help"])
    out = capsys.readouterr().out
    assert end.value.code == 0
    assert "hud-tui " in out.partition("examples:")[2]


def test_the_help_lists_every_command_and_the_exit_codes_and_there_is_a_version(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    out = capsys.readouterr().out
    assert all(f"\n    {command} " in out for command in COMMANDS)
    assert "130 interrupted" in out
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("hud-tui ")
    for view in VIEWS:
        assert view in COMMANDS or likely_command(view, tuple(COMMANDS))


def test_a_usage_error_is_a_document_only_when_headless(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--headless", "nonsense"]) == 2
    out, err = capsys.readouterr()
    assert json.loads(out)["error"]["type"] == "usage"
    assert err.startswith("hud-tui: ")
    assert main(["nonsense"]) == 2
    out, err = capsys.readouterr()
    assert (out, err.startswith("hud-tui: ")) == ("", True)


def test_several_values_go_to_the_form_and_a_dry_run_needs_none() -> None:
    asked = PARSER.parse_args(["run", "t", "--lr", "1e-4,3e-4"])
    start = start_of(asked)
    assert start.swept == {"learning_rate": (1e-4, 3e-4)}
    assert start.view == "launch"
    assert not needs_no_app(asked)
    for last in ("--dry-run", "-y"):
        assert needs_no_app(PARSER.parse_args(["run", "t", last]))
    assert not needs_no_app(PARSER.parse_args(["status"]))


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_s_own_parser_says_what_the_whole_one_says(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its help, and an error in it."""
    befores = ([], ["--local", "--headless"], ["--data-dir", "/d"])
    for before, wrong in product(befores, ("--help", "--no-such-flag")):
        said = []
        argv = [*before, command, wrong]
        for parser in (PARSER, build_parser(argv)):
            with pytest.raises((SystemExit, HudUsage)) as end:
                parser.parse_args(argv)
            said.append((str(end.value), capsys.readouterr()))
        assert said[0] == said[1]
