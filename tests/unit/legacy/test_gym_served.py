"""What of a hud-vf-gym configuration is served, left out and refused."""

from typing import Any

import pytest

from hud_tui.errors import HudUsage
from hud_tui.legacy.gym import Described, gym_text, new_gym, open_gym
from hud_tui.legacy.gym_served import (
    INSTEAD,
    ActionParameter,
    ServedAction,
    ServedGym,
    Taken,
    dataset_of,
    serve_gym,
)
from hud_tui.legacy.lock_file import Tool
from tests.unit.legacy.test_gym import MOVE, REAL

GAME = """\
# As in the repository of hud-vf-gym
system_prompt: |
  You are an excellent player.

  Return your move as: <tool>move()</tool>
defaults:
  max_turns: 100
action_mappings:
  left:
    _parser:
      positional: []
    _tool: "move"
    direction:
      static: "left"
  go:
    _parser:
      positional: ["where"]
    _tool: move
    direction: {from_arg: where}
    times: {from_arg: times, default: 1}
    note: {from_arg: note}
parser:
  use_thinking: false
  xml_weight: 0.6
rubric:
  weights:
    task_completion: 0.85
    tool_execution: 0.0
    format_compliance: 0.15
"""


def served(text: str, *tools: Tool) -> ServedGym:
    document, config = open_gym("configs/2048.yaml", text.encode())
    return serve_gym(document, config, tools)


def refused(text: str, *tools: Tool) -> str:
    with pytest.raises(HudUsage) as error:
        served(text, *tools)
    assert error.value.hint
    return error.value.message


def test_actions_prompt_turns_and_rubric_are_served() -> None:
    gym = served(GAME)
    assert (gym.name, gym.title, gym.turns) == ("env_2048", "", 100)
    assert gym.prompt == f"You are an excellent player.\n\n{INSTEAD}"
    assert gym.weights == {"task_completion": 0.85, "format_compliance": 0.15}
    left, go = gym.actions
    assert left == ServedAction("left", "move(direction='left')", "move", [], {"direction": "left"})
    assert go.parameters == [
        ActionParameter("where", "Value", True),
        ActionParameter("times", "Value", False, 1),
        ActionParameter("note", "Value", False),
    ]
    assert go.arguments["direction"] == Taken("where")


def test_what_is_left_out_is_named_with_its_lines_and_why() -> None:
    more = "logging: {level: INFO}\njob: {name: games, metadata: {a: 1}}\n"
    more += "defaults: {max_turns: 9, x: 1}"
    gym = served(GAME.replace("defaults:\n  max_turns: 100", more))
    assert gym.title == "games"
    assert gym.notes == [
        "configs/2048.yaml: left out: system_prompt (line 5), parser.use_thinking (line 24), "
        "parser.xml_weight (line 25): the model's calls are its own here, and no text is parsed",
        "configs/2048.yaml: left out: job.metadata (line 7): runs have a name only",
        "configs/2048.yaml: left out: logging (line 6), defaults.x (line 8): "
        "nothing here is set by it",
    ]
    assert "Always" in served("system_prompt: Always.\naction_mappings: {done: {}}").prompt


def test_the_lock_file_says_the_types_of_arguments() -> None:
    text = "action_mappings:\n  go:\n    _tool: move\n    _parser: {positional: [way]}\n"
    text += "    direction: {from_arg: way}\n    times: {from_arg: n}\n"
    [go] = served(text, MOVE).actions
    assert [one.type for one in go.parameters] == ["Literal['up', 'down']", "int"]
    assert go.about == "Slide all tiles.\nEqual ones merge."
    assert "has no tool move" in refused(text, Tool("other"))
    assert "line 2: field allowed_tools[0]: no hud.lock.yaml" in refused(
        "parser: {}\nallowed_tools: [move]"
    )
    [move] = served("allowed_tools: [move]", MOVE).actions
    assert [one.name for one in move.parameters] == ["direction", "times", "note"]


def test_what_init_writes_is_served() -> None:
    config, _ = new_gym(Described("text_2048", [MOVE], dataset="org/cards"))
    text = gym_text(config, "made")
    gym = served(text, MOVE)
    assert gym.name == "text_2048"
    assert [action.name for action in gym.actions] == ["move", "done"]
    assert "<tool>" not in gym.prompt
    assert "- move(direction: 'up' | 'down'" in gym.prompt
    assert dataset_of(config) == "org/cards"


@pytest.mark.parametrize(
    ("action", "why"),
    [
        (
            "x: {from_arg: a, transform: 'lambda x: x'}",
            "3: field action_mappings.go.x.transform: Python",
        ),
        ("x: {from_args: [a, b]}", "3: field action_mappings.go.x.from_args: not served"),
        ("x: {default: 3}", "3: field action_mappings.go.x: neither static nor from_arg"),
        ("'# TODO': fill in", "3: field action_mappings.go.# TODO: a note of hud rl init"),
        ("x: {from_arg: 'a b'}", "2: field action_mappings.go._parser: 'a b' is no name"),
        ("x: {from_arg: class}", "'class' is no name for an argument"),
        ("x: {from_arg: _a}", "'_a' is no name for an argument"),
        ("x: {from_arg: a, default: 1}\n    y: {from_arg: a}", "a has several defaults"),
    ],
)
def test_what_decides_about_an_action_is_refused_with_its_line(action: str, why: str) -> None:
    assert why in refused(f"action_mappings:\n  go:\n    {action}\n    _tool: t\n")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("rubric: {weights: {luck: 1}}", "line 1: field rubric.weights.luck: there is no"),
        ("rubric: {judge: me}", "line 1: field rubric.judge: this part of a reward is not known"),
        (
            "rubric: {weights: {task_completion: 0, tool_execution: 0, format_compliance: 0}}",
            "every reward would be 0",
        ),
        ("defaults: {max_turns: 1001}", "field defaults.max_turns: at most 1000 turns"),
        ("action_mappings: {go: {x: 1}}", "action_mappings.go: it has arguments, and no _tool"),
        ("action_mappings: {'go()': {_tool: a}}", "letters, digits and _ only"),
    ],
)
def test_what_decides_about_rewards_and_turns_is_refused(text: str, why: str) -> None:
    actions = "" if "action_mappings" in text else "\naction_mappings: {done: {}}"
    assert why in refused(text + actions)
    assert "it has no actions" in refused("system_prompt: hi")


def test_all_that_is_wrong_is_said_at_once() -> None:
    said = refused(REAL)
    assert "line 22: field action_mappings.key.keys.transform: Python, which is not run" in said
    assert "action_mappings.scroll.scroll_y.transform" in said
    many = {f"a{n}": {"x": {"transform": "f"}, "_tool": "t"} for n in range(20)}
    whole: Any = {"action_mappings": many}
    assert refused(str(whole).replace("'", '"')).endswith("and 10 more")
