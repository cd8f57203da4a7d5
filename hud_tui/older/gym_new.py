"""A configuration of hud-vf-gym for an environment, from its tools and scenarios.

Source: ``hud rl init`` of hud 0.4: one action a tool with its own arguments, the required
ones in brackets, and ``done``; ``setup`` and ``evaluate`` are not the model's to call.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hud_tui.older.gym import (
    Action,
    ActionParser,
    Argument,
    Defaults,
    GymConfig,
    Job,
    Parser,
    Rubric,
)
from hud_tui.older.lock import Lock, Tool
from hud_tui.rl.text import clean, one_line

HIDDEN = ("setup", "evaluate")
DONE = "done"
MAX_TURNS = 30
WORD = re.compile(r"\w+", re.ASCII)
"""What hud-vf-gym takes for an action's name."""
MAX_ABOUT = 2000
"""Characters of one tool's description."""


@dataclass(frozen=True)
class Described:
    """What is known of an environment."""

    name: str
    tools: Sequence[Tool] = ()
    scenarios: Sequence[tuple[str, str]] = ()
    """Name and description."""
    image: str = ""
    dataset: str = ""


def described(lock: Lock) -> Described:
    """What a lock file knows of it."""
    return Described(
        name=lock.environment or "environment",
        tools=lock.tools,
        scenarios=[(name, "") for name in lock.scenarios],
        image=lock.image,
        dataset=lock.dataset.name if lock.dataset else "",
    )


def new_gym(env: Described) -> tuple[GymConfig, list[str]]:
    """The configuration, and what must be looked after by hand."""
    tools = [tool for tool in env.tools if tool.name not in HIDDEN]
    actions = {tool.name: _action(tool) for tool in tools}
    actions.setdefault(DONE, Action(_tool=None, _parser=ActionParser(positional=[])))
    metadata = {"environment": env.name, "image": env.image, "dataset": env.dataset}
    metadata["experiment"] = "baseline"
    config = GymConfig(
        job=Job(
            name=f"RL Training - {one_line(env.name)}",
            metadata={key: one_line(value, 400) for key, value in metadata.items() if value},
        ),
        system_prompt="\n".join(_prompt(tools, env.scenarios)),
        defaults=Defaults(max_turns=MAX_TURNS),
        action_mappings=actions,
        parser=Parser(use_thinking=True, xml_weight=0.6, action_weight=0.4),
        rubric=Rubric(
            weights={"task_completion": 0.8, "tool_execution": 0.1, "format_compliance": 0.1}
        ),
    )
    return config, list(_unclear(tools))


def _action(tool: Tool) -> Action:
    properties, required = _schema(tool)
    arguments: dict[str, Any] = {}
    for name, schema in properties.items():
        if name in ("_tool", "_parser"):
            continue
        default = schema.get("default") if isinstance(schema, Mapping) else None
        given = {} if default is None else {"default": default}
        arguments[name] = Argument(from_arg=name, **given)
    parser = ActionParser(positional=[name for name in required if name in arguments])
    return Action(_tool=tool.name, _parser=parser, **arguments)


def _prompt(tools: Sequence[Tool], scenarios: Sequence[tuple[str, str]]) -> Iterator[str]:
    yield "You are an agent in a HUD environment."
    if scenarios:
        yield "\nYou are given tasks of these kinds:\n"
        for name, about in scenarios:
            yield f"- {one_line(name)}" + (f": {one_line(about, MAX_ABOUT)}" if about else "")
    yield "\nYou have these tools:\n"
    for tool in tools:
        properties, required = _schema(tool)
        signature = ", ".join(_parameter(name, properties[name], required) for name in properties)
        if tool.input_schema is None:
            signature = "..."
        yield f"- {one_line(tool.name)}({signature}): {_about(tool)}"
        brackets = ", ".join(_example(name, properties.get(name)) for name in required)
        yield f"  Usage: <tool>{one_line(tool.name)}({brackets})</tool>"
    if DONE not in (tool.name for tool in tools):
        yield f"- {DONE}(): Say that the task is complete.\n  Usage: <tool>{DONE}()</tool>"
    yield "\nThink step by step within <think>...</think>, then call one tool in exactly that form."


def _about(tool: Tool) -> str:
    text = clean(tool.description.strip() or "no description", MAX_ABOUT)
    return text.replace("\n", "\n  ")


def _parameter(name: str, schema: object, required: Sequence[str]) -> str:
    return f"{one_line(name)}{'' if name in required else '?'}: {_type(schema)}"


def _type(schema: object) -> str:
    """E.g. ``integer``, ``string | null``, or the values of an enumeration."""
    if not isinstance(schema, Mapping):
        return "any"
    if isinstance(schema.get("enum"), list):
        return " | ".join(repr(one_line(value, 40)) for value in schema["enum"][:8])
    if isinstance(schema.get("anyOf"), list):
        return " | ".join(dict.fromkeys(_type(part) for part in schema["anyOf"]))
    kind = schema.get("type", "any")
    return " | ".join(map(str, kind)) if isinstance(kind, list) else one_line(kind, 40)


def _example(name: str, schema: object) -> str:
    text = isinstance(schema, Mapping) and "string" in str(schema.get("type", ""))
    return f'"{one_line(name)}"' if text else one_line(name)


def _schema(tool: Tool) -> tuple[dict[str, Any], list[str]]:
    """Its parameters, and the required ones among them."""
    schema = tool.input_schema or {}
    properties = schema.get("properties")
    known = dict(properties) if isinstance(properties, Mapping) else {}
    required = schema.get("required")
    wanted = required if isinstance(required, list) else []
    return known, [name for name in wanted if isinstance(name, str) and name in known]


def _unclear(tools: Sequence[Tool]) -> Iterator[str]:
    if not tools:
        yield "no tool is known: the model can only answer in text and say done"
    for tool in tools:
        name = one_line(tool.name, 80)
        if tool.input_schema is None:
            yield f"{name}: its parameters are not known: fill in _parser and arguments by hand"
        if not WORD.fullmatch(tool.name):
            yield f"{name}: hud-vf-gym takes letters, digits and _ only: rename that action"
