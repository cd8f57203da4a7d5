"""A new configuration of hud-vf-gym for an environment: it maps a model's actions to tool calls.

Source: the README, the configurations and the parsers of hud-vf-gym (hud-evals, 2025); ``hud rl
init`` of hud 0.4: one action per tool with the tool's arguments, the required ones positional, and
``done``; the model may not call ``setup`` and ``evaluate``.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from io import StringIO
from typing import Any

from hud_tui.legacy.lock_file import Lock, Tool
from hud_tui.legacy.yaml import library, round_trip, writable
from hud_tui.rl.text import clean, one_line

HIDDEN = ("setup", "evaluate")
DONE = "done"
WORD = re.compile(r"\w+", re.ASCII)
"""Names that hud-vf-gym accepts for actions."""
MAX_ABOUT = 2000
"""Maximum characters of a tool's description."""


@dataclass(frozen=True)
class Described:
    """What is known about an environment."""

    name: str
    tools: Sequence[Tool] = ()
    scenarios: Sequence[tuple[str, str]] = ()
    """Names and descriptions."""
    image: str = ""


def described(lock: Lock) -> Described:
    """What a lock file contains about its environment."""
    return Described(
        name=lock.environment or "environment",
        tools=lock.tools,
        scenarios=[(name, "") for name in lock.scenarios],
        image=lock.image,
    )


def new_gym(env: Described) -> tuple[dict[str, Any], list[str]]:
    """The configuration, and notes on what must be completed by hand."""
    tools = [tool for tool in env.tools if tool.name not in HIDDEN]
    actions = {tool.name: _action(tool) for tool in tools}
    actions.setdefault(DONE, {"_parser": {"positional": []}, "_tool": None})
    metadata = {"environment": env.name, "image": env.image}
    known = {key: one_line(value, 400) for key, value in metadata.items() if value}
    config = {
        "job": {
            "name": f"RL Training - {one_line(env.name)}",
            "metadata": known | {"experiment": "baseline"},
        },
        "system_prompt": "\n".join(_prompt(tools, env.scenarios)),
        "defaults": {"max_turns": 30},
        "action_mappings": actions,
        "parser": {"use_thinking": True, "xml_weight": 0.6, "action_weight": 0.4},
        "rubric": {
            "weights": {"task_completion": 0.8, "tool_execution": 0.1, "format_compliance": 0.1}
        },
    }
    return config, list(_unclear(tools))


def _action(tool: Tool) -> dict[str, Any]:
    properties, required = tool.parameters
    arguments: dict[str, dict[str, Any]] = {}
    for name, schema in properties.items():
        if name in ("_tool", "_parser"):
            continue
        default = schema.get("default") if isinstance(schema, Mapping) else None
        arguments[name] = {"from_arg": name} | ({} if default is None else {"default": default})
    positional = [name for name in required if name in arguments]
    return {"_parser": {"positional": positional}, "_tool": tool.name, **arguments}


def _prompt(tools: Sequence[Tool], scenarios: Sequence[tuple[str, str]]) -> Iterator[str]:
    yield "You are an agent in a HUD environment."
    if scenarios:
        yield "\nYou are given tasks of these kinds:\n"
        for name, about in scenarios:
            yield f"- {one_line(name)}" + (f": {one_line(about, MAX_ABOUT)}" if about else "")
    yield "\nYou have these tools:\n"
    for tool in tools:
        properties, required = tool.parameters
        signature = ", ".join(
            f"{one_line(name)}{'' if name in required else '?'}: {_type(schema)}"
            for name, schema in properties.items()
        )
        if tool.input_schema is None:
            signature = "..."
        about = clean(tool.description.strip() or "no description", MAX_ABOUT)
        indented = about.replace("\n", "\n  ")
        yield f"- {one_line(tool.name)}({signature}): {indented}"
        brackets = ", ".join(_example(name, properties.get(name)) for name in required)
        yield f"  Usage: <tool>{one_line(tool.name)}({brackets})</tool>"
    if DONE not in (tool.name for tool in tools):
        yield f"- {DONE}(): Say that the task is complete.\n  Usage: <tool>{DONE}()</tool>"
    yield "\nThink step by step within <think>...</think>, then call one tool in exactly that form."


def _type(schema: object) -> str:
    """A type as text, e.g. ``integer``, ``string | null``, or the values of an enumeration; of many
    only eight, since a hostile list is long."""
    if not isinstance(schema, Mapping):
        return "any"
    if isinstance(schema.get("enum"), list):
        return " | ".join(repr(one_line(value, 40)) for value in schema["enum"][:8])
    if isinstance(schema.get("anyOf"), list):
        return " | ".join(dict.fromkeys(_type(part) for part in schema["anyOf"]))
    kind = schema.get("type", "any")
    kinds = kind if isinstance(kind, list) else [kind]
    return " | ".join(one_line(one, 40) for one in kinds[:8])


def _example(name: str, schema: object) -> str:
    text = isinstance(schema, Mapping) and "string" in str(schema.get("type", ""))
    return f'"{one_line(name)}"' if text else one_line(name)


def _unclear(tools: Sequence[Tool]) -> Iterator[str]:
    if not tools:
        yield "no tools known: the model can only answer in text and call done"
    for tool in tools:
        name = one_line(tool.name, 80)
        if tool.input_schema is None:
            yield f"{name}: unknown parameters: fill in _parser and arguments by hand"
        if not WORD.fullmatch(tool.name):
            yield f"{name}: hud-vf-gym takes letters, digits and _ only: rename that action"


# A configuration as commented YAML.


COMMENTS = {
    "job": "Name of the run on HUD",
    "system_prompt": "System prompt; keep it consistent with the actions below",
    "action_mappings": "From the model's action to the tool's arguments",
    "parser": "How the format of an answer is scored",
    "rubric": "What a rollout's reward is made of; the weights sum to 1",
}


def gym_text(config: Mapping[str, Any], about: str) -> str:
    """The file's text, which reads back as the configuration; `about`: a line for its head."""
    root = library().comments.CommentedMap(writable(dict(config)))
    root.yaml_set_start_comment(about)
    for key, comment in COMMENTS.items():
        if key in root:
            root.yaml_set_comment_before_after_key(key, before="\n" + comment)
    out = StringIO()
    round_trip().dump(root, out)
    return out.getvalue()
