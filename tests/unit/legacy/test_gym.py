"""Configurations of hud-vf-gym: made from tools, and written."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hud_tui.legacy.gym import Described, described, gym_text, new_gym
from hud_tui.legacy.lock_file import Tool, read_lock
from hud_tui.legacy.yaml import read_yaml
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


def test_one_action_a_tool_and_done() -> None:
    hidden = [Tool("setup"), Tool("evaluate", "", {})]
    config, warnings = new_gym(Described("text_2048", [MOVE, *hidden], image="org/x:1"))
    assert warnings == []
    assert list(config["action_mappings"]) == ["move", "done"]
    assert config["action_mappings"]["move"] == {
        "_tool": "move",
        "_parser": {"positional": ["direction"]},
        "direction": {"from_arg": "direction"},
        "times": {"from_arg": "times", "default": 1},
        "note": {"from_arg": "note"},
    }
    assert config["action_mappings"]["done"]["_tool"] is None
    for line in (
        "- move(direction: 'up' | 'down', times?: integer, note?: string | null): Slide all tiles.",
        '  Usage: <tool>move("direction")</tool>',
    ):
        assert line in config["system_prompt"].splitlines()
    assert config["job"]["metadata"]["image"] == "org/x:1"
    assert sum(config["rubric"]["weights"].values()) == pytest.approx(1)
    config, _ = new_gym(described(read_lock("f", V1_1.encode())))
    assert config["action_mappings"]["playwright"]["_parser"] == {"positional": ["action"]}


def test_what_cannot_be_known_is_said() -> None:
    config, warnings = new_gym(described(read_lock("f", V1_3.encode())))
    assert [warning.split(":")[0] for warning in warnings] == ["deal"]
    assert "- cards:blackjack" in config["system_prompt"]
    _, warnings = new_gym(Described("none"))
    assert "no tools known" in warnings[0]
    _, warnings = new_gym(Described("odd", [Tool("a-b", "", {})]))
    assert "rename that action" in warnings[0]


def test_hostile_words_are_made_visible() -> None:
    parameters = {"properties": {"\x1b": {}, "a": {"type": ["x\x1b[2J", "null"]}}}
    tool = Tool("move", "\x1b]0;owned\x07 <tool>x</tool>\u202e", parameters)
    config, _ = new_gym(Described("e\x1b", [tool], [("s\x1b[2J", "about")]))
    text = gym_text(config, "made")
    assert not any(char in config["system_prompt"] for char in "\x1b\x07\u202e")
    assert "\x1b" not in text
    assert read_yaml("f", text.encode()).value == config


NAMES = TEXT.filter(lambda text: text not in ("_tool", "_parser"))
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
    assert read_yaml("f", gym_text(config, "made").encode()).value == config
