"""Configurations of hud-vf-gym: made from tools, written, read back; and what is refused."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hud_tui.errors import HudUsage
from hud_tui.legacy.gym import (
    Argument,
    Described,
    GymConfig,
    described,
    gym_text,
    new_gym,
    read_gym,
)
from hud_tui.legacy.lock_file import Tool, read_lock
from tests.unit.legacy.locks import V1_1, V1_3
from tests.unit.legacy.test_yaml import TEXT, VALUES

MOVE = Tool(
    "move",
    "Slide all tiles.\nEqual ones merge.",
    {
        "properties": {
            "direction": {"type": "string", "enum": ["up", "down"]},
            "times": {"type": "integer", "default": 1},
            "note": {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None},
        },
        "required": ["direction", "gone"],
    },
)
REAL = """\
# As people have them: static words, transforms, defaults, fields of other versions
system_prompt: |
  You can use a computer.

  - key: press a key
    Usage: <tool>key("enter")</tool>
defaults:
  max_turns: 30
action_mappings:
  screenshot:
    _parser:
      positional: []  # none
    _tool: "computer"
    action: "screenshot"
  key:
    _parser:
      positional: ["key"]
    _tool: "computer"
    action: "press"
    keys:
      from_arg: "key"
      transform: "lambda x: x.split('+')"
  scroll:
    _parser:
      positional: ["direction", "amount"]
    _tool: "computer"
    x: {static: 640}
    scroll_y:
      from_arg: "direction"
      transform: "lambda d, ctx: ctx.get('amount', 3) if d == 'down' else 0"
      use_context: true
parser:
  use_thinking: false
  xml_weight: 0.6
  action_weight: 0.4
rubric:
  weights: {task_completion: 0.8, tool_execution: 0.05, format_compliance: 0.15}
logging:
  level: INFO
"""


def test_one_action_a_tool_and_done() -> None:
    hidden = [Tool("setup"), Tool("evaluate", "", {})]
    config, warnings = new_gym(Described("text_2048", [MOVE, *hidden], image="org/x:1"))
    assert warnings == []
    assert list(config.action_mappings) == ["move", "done"]
    move = config.action_mappings["move"]
    assert (move.tool, move.parser.positional) == ("move", ["direction"])
    assert move.arguments == {
        "direction": Argument(from_arg="direction"),
        "times": Argument(from_arg="times", default=1),
        "note": Argument(from_arg="note"),
    }
    assert config.action_mappings["done"].tool is None
    for line in (
        "- move(direction: 'up' | 'down', times?: integer, note?: string | null): Slide all tiles.",
        '  Usage: <tool>move("direction")</tool>',
    ):
        assert line in config.system_prompt.splitlines()
    assert config.job is not None
    assert config.job.metadata["image"] == "org/x:1"
    assert (config.parser.xml_weight, config.parser.action_weight) == (0.6, 0.4)
    assert sum(config.rubric.weights.values()) == pytest.approx(1)
    config, _ = new_gym(described(read_lock("f", V1_1.encode())))
    assert config.action_mappings["playwright"].parser.positional == ["action"]


def test_what_cannot_be_known_is_said() -> None:
    config, warnings = new_gym(described(read_lock("f", V1_3.encode())))
    assert [warning.split(":")[0] for warning in warnings] == ["deal"]
    assert "- cards:blackjack" in config.system_prompt
    assert config.job is not None
    assert config.job.metadata["dataset"] == "org/cards"
    _, warnings = new_gym(Described("none"))
    assert "no tools known" in warnings[0]
    _, warnings = new_gym(Described("odd", [Tool("a-b", "", {})]))
    assert "rename that action" in warnings[0]


def test_a_real_one_is_read_and_written_and_read_and_hostile_words_are_made_visible() -> None:
    config, odd = read_gym("f.yaml", REAL.encode())
    assert odd == []
    assert config.action_mappings["screenshot"].arguments == {"action": "screenshot"}
    assert config.action_mappings["scroll"].arguments["x"] == Argument(static=640)
    assert [(t.action, t.argument) for t in config.transforms()] == [
        ("key", "keys"),
        ("scroll", "scroll_y"),
    ]
    assert config.plain()["logging"] == {"level": "INFO"}
    again, _ = read_gym("f.yaml", gym_text(config, "again").encode())
    assert again == config

    parameters = {"properties": {"\x1b": {}, "a": {"type": ["x\x1b[2J", "null"]}}}
    tool = Tool("move", "\x1b]0;owned\x07 <tool>x</tool>\u202e", parameters)
    config, _ = new_gym(Described("e\x1b", [tool], [("s\x1b[2J", "about")]))
    text = gym_text(config, "made")
    assert not any(char in config.system_prompt for char in "\x1b\x07\u202e")
    assert "\x1b" not in text
    assert read_gym("f", text.encode())[0] == config


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "expected a mapping at the top"),
        ("[1]", "expected a mapping at the top"),
        ("version: '1.0'\nimage: a", "not a configuration of hud-vf-gym"),
        ("system_prompt: 3", "f.yaml line 1: field system_prompt: expected a valid string"),
        ("rubric: {}\njob: {}", "f.yaml line 2: field job.name: Field required"),
        ("parser:\n  xml_weight: -1", "line 2: field parser.xml_weight"),
        ("parser:\n  use_thinking: 1", "line 2: field parser.use_thinking"),
        ("rubric:\n  weights:\n    a: b", "line 3: field rubric.weights.a"),
        (
            "action_mappings:\n  a:\n    b:\n      transform: [1]",
            "f.yaml line 4: field action_mappings.a.b.transform: expected a valid string",
        ),
        ("action_mappings:\n  a: 3", "line 2: field action_mappings.a"),
        (
            "parser: {}\ndefaults: {max_turns: 0}\njob: {name: ''}",
            "line 3: field job.name: String should have at least 1 character; f.yaml line 2:",
        ),
    ],
)
def test_what_is_wrong_is_named(text: str, message: str) -> None:
    with pytest.raises(HudUsage) as error:
        read_gym("f.yaml", text.encode())
    assert message in str(error.value)
    assert error.value.hint


def test_a_truth_value_is_spelt_as_yaml_1_1_has_it_and_what_is_odd_is_said() -> None:
    text = "parser: {use_thinking: %s}\nsystem_prompt: go\n"
    read = {word: read_gym("f", (text % word).encode())[0] for word in ("no", "Off", "yes", "true")}
    assert [config.parser.use_thinking for config in read.values()] == [False, False, True, True]
    with pytest.raises(HudUsage, match=r"field parser\.use_thinking: expected a valid boolean"):
        read_gym("f", (text % "maybe").encode())
    with pytest.raises(HudUsage, match=r"line 1: field action_mappings\.a: expected a mapping"):
        read_gym("f", b"action_mappings: {a: 5}")

    text = "rubric: {weights: {task_completion: 2}}\naction_mappings:\n  go:\n    _tool: t\n"
    text += "    _parser:\n      positional: [where]\n"
    _, odd = read_gym("f", text.encode())
    assert odd == [
        "f line 1: the rubric's weights sum to 2.2, not to 1",
        "f line 3: go takes where, which no argument uses",
    ]


NAMES = TEXT.filter(lambda text: text not in ("_tool", "_parser", "__pydantic_extra__"))
SCHEMAS = st.none() | st.fixed_dictionaries(
    {},
    optional={
        "properties": VALUES | st.dictionaries(NAMES, VALUES, max_size=3),
        "required": VALUES | st.lists(NAMES, max_size=3),
        "type": VALUES,
    },
)
TOOLS = st.lists(st.builds(Tool, NAMES, TEXT, SCHEMAS), max_size=3)


@settings(max_examples=80, deadline=None, derandomize=True)
@given(TEXT, TOOLS, st.lists(st.tuples(TEXT, TEXT), max_size=2), TEXT)
def test_whatever_an_environment_says_its_configuration_is_read_back(
    name: str, tools: list[Tool], scenarios: list[tuple[str, str]], image: str
) -> None:
    config, _ = new_gym(Described(name, tools, scenarios, image))
    assert read_gym("f", gym_text(config, "made").encode())[0] == config


PLAIN: st.SearchStrategy[Any] = st.booleans() | st.integers() | TEXT | st.none()
ARGUMENTS = st.builds(
    Argument,
    from_arg=TEXT,
    static=VALUES,
    transform=TEXT,
    default=VALUES,
    use_context=st.booleans(),
)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    st.dictionaries(
        TEXT,
        st.dictionaries(NAMES.filter(str.isidentifier), ARGUMENTS | PLAIN, max_size=3),
        max_size=3,
    ),
    TEXT,
)
def test_any_configuration_comes_back(actions: dict[str, Any], prompt: str) -> None:
    config = GymConfig.model_validate({"system_prompt": prompt, "action_mappings": actions})
    assert read_gym("f", gym_text(config, "made").encode())[0].plain() == config.plain()
