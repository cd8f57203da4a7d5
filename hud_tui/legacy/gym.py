"""Configurations of hud-vf-gym, which map a model's actions to tool calls.

An action's arguments may name a ``transform``: Python code that hud-vf-gym evaluates. Here it is
only text: displayed and kept, never evaluated.

Source: the README, the configurations and the parsers of hud-vf-gym (hud-evals, 2025).
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from io import StringIO
from typing import Annotated, Any, Self

from pydantic import BeforeValidator, ConfigDict, Field, ValidationError

from hud_tui.errors import HudUsage
from hud_tui.legacy.lock_file import Lock, Tool
from hud_tui.legacy.yaml import (
    Document,
    KeyPath,
    field_name,
    library,
    read_yaml,
    round_trip,
    writable,
)
from hud_tui.rl.text import clean, one_line
from hud_tui.wire import Body, no_items

FIX = "write a new one with hud-tui init, or fix that line"
MARKER_FIELDS = frozenset({"action_mappings", "allowed_tools", "system_prompt", "parser", "rubric"})
"""Fields of which every configuration has at least one."""
MAPPING = re.compile(r"a valid dictionary(?: or instance of \w+)?")
MOST_PROBLEMS = 10
"""Maximum number of problems reported per file; the others are counted."""


YES_OR_NO = {"yes": True, "on": True, "no": False, "off": False}
"""Further spellings of booleans in YAML 1.1, which hud-vf-gym reads."""


def _truth(value: object) -> object:
    return YES_OR_NO.get(value.lower(), value) if isinstance(value, str) else value


Truth = Annotated[bool, BeforeValidator(_truth)]


class _Part(Body):
    """Base of all parts. Unknown fields are kept, because later versions have more."""

    model_config = ConfigDict(extra="allow", frozen=True, populate_by_name=True, strict=True)

    @classmethod
    def written(cls) -> Self:
        """The defaults as if they were set, so that the file shows them."""
        return cls.model_validate(cls().model_dump())


class Job(_Part):
    """Name and metadata of the run on HUD."""

    name: str = Field(min_length=1)
    metadata: dict[str, Any] = Field(default_factory=dict)
    dataset_link: str | None = None


class Defaults(_Part):
    max_turns: int = Field(default=30, ge=1)


class Argument(_Part):
    """How one argument of the tool is made."""

    from_arg: str | None = None
    """The action's argument that it is taken from."""
    static: Any = None
    transform: str | None = None
    """Python code; never evaluated here."""
    default: Any = None
    use_context: Truth = False
    """Whether the transform also gets the other arguments."""


class ActionParser(_Part):
    positional: list[str] = Field(default_factory=no_items)
    """Names of the positional arguments, in order."""


class Action(_Part):
    """An action that the model may use: its tool, and how the tool's arguments are made."""

    __pydantic_extra__: dict[str, Argument | str | int | float | bool | list[Any] | None] = Field(
        init=False
    )
    parser: ActionParser = Field(default_factory=ActionParser, alias="_parser")
    tool: str | None = Field(default=None, alias="_tool")
    """None for an action that only ends the episode."""

    @property
    def arguments(self) -> dict[str, Any]:
        """By the tool's argument names: an `Argument`, or a constant."""
        return self.__pydantic_extra__


class Parser(_Part):
    use_thinking: Truth = True
    xml_weight: float = Field(default=0.6, ge=0)
    action_weight: float = Field(default=0.4, ge=0)


WEIGHTS = {"task_completion": 0.8, "tool_execution": 0.1, "format_compliance": 0.1}


class Rubric(_Part):
    weights: dict[str, float] = Field(default_factory=WEIGHTS.copy)


class GymConfig(_Part):
    job: Job | None = None
    system_prompt: str = ""
    defaults: Defaults = Field(default_factory=Defaults)
    action_mappings: dict[str, Action] = Field(default_factory=dict)
    allowed_tools: list[str] | None = None
    """Later versions list tools here instead of in action_mappings."""
    parser: Parser = Field(default_factory=Parser)
    rubric: Rubric = Field(default_factory=Rubric)

    def transforms(self) -> Iterator["Transform"]:
        """Every Python code in it, for the user to read."""
        for name, action in self.action_mappings.items():
            for argument, made in action.arguments.items():
                if isinstance(made, Argument) and made.transform is not None:
                    yield Transform(name, argument, made.transform)

    def plain(self) -> dict[str, Any]:
        """The fields that were set, as in a file."""
        return self.model_dump(by_alias=True, exclude_unset=True)


@dataclass(frozen=True)
class Transform:
    action: str
    argument: str
    text: str


def read_gym(name: str, body: bytes) -> tuple[GymConfig, list[str]]:
    """Read a configuration; also returns warnings. Raises HudUsage: invalid; names file, line and
    field of every error."""
    document, config = open_gym(name, body)
    return config, list(gym_warnings(document, config))


def open_gym(name: str, body: bytes) -> tuple[Document, GymConfig]:
    """A configuration with the document that has the lines of its fields. Raises HudUsage: as
    `read_gym`."""
    document = read_yaml(name, body)
    if not isinstance(document.value, dict):
        raise HudUsage(f"{document.name}: expected a mapping at the top", FIX)
    if not MARKER_FIELDS & set(document.value):
        raise HudUsage(f"{document.name}: not a configuration of hud-vf-gym", FIX)
    try:
        config = GymConfig.model_validate(document.value)
    except ValidationError as error:
        raise HudUsage("; ".join(_problems(document, error)), FIX) from None
    return document, config


def _problems(document: Document, error: ValidationError) -> Iterator[str]:
    messages: dict[KeyPath, str] = {}
    for problem in error.errors(include_url=False, include_context=False, include_input=False):
        path = _real(document.value, problem["loc"], problem["type"] == "missing")
        text = one_line(problem["msg"]).replace("Input should be ", "expected ")
        messages.setdefault(path, MAPPING.sub("a mapping", text))
    # pydantic reports an invalid union once for each member; the deepest error is the useful one.
    inner = [p for p in messages if not any(q[: len(p)] == p and q != p for q in messages)]
    for path in inner[:MOST_PROBLEMS]:
        yield f"{document.where(path)}: field {field_name(path)}: {messages[path]}"
    if len(inner) > MOST_PROBLEMS:
        yield f"and {len(inner) - MOST_PROBLEMS} more"


def _real(value: Any, loc: tuple[str | int, ...], missing: bool) -> KeyPath:
    """The part of an error's location that exists in the file; pydantic adds names of types."""
    path: list[str | int] = []
    for step in loc:
        held = step in value if isinstance(value, dict) else isinstance(value, list)
        if held:
            value = value[step]
        elif not (missing and step == loc[-1]):
            continue
        path.append(step)
    return tuple(path)


def gym_warnings(document: Document, config: GymConfig) -> Iterator[str]:
    """What is odd about a valid configuration."""
    total = sum((WEIGHTS | config.rubric.weights).values())
    if config.rubric.weights and abs(total - 1) > 1e-6:
        weights = document.where(("rubric", "weights"))
        yield f"{weights}: the rubric's weights sum to {total:g}, not to 1"
    for name, action in config.action_mappings.items():
        if unused := _unused(action):
            mapping = document.where(("action_mappings", name))
            dropped = ", ".join(map(one_line, unused))
            yield f"{mapping}: {one_line(name)} takes {dropped}, which no argument uses"
    if not config.action_mappings and config.allowed_tools is None:
        yield f"{document.name}: it has no actions"


def _unused(action: Action) -> list[str]:
    """What the model says that no argument of the action's tool takes."""
    arguments = [value for value in action.arguments.values() if isinstance(value, Argument)]
    if not action.tool or any(argument.use_context for argument in arguments):
        return []
    taken = {argument.from_arg for argument in arguments}
    return [name for name in action.parser.positional if name not in taken]


# A new configuration for an environment, from its tools and scenarios.
#
# Source: ``hud rl init`` of hud 0.4: one action per tool with the tool's arguments, the required
# ones positional, and ``done``; the model may not call ``setup`` and ``evaluate``.


HIDDEN = ("setup", "evaluate")
DONE = "done"
WORD = re.compile(r"\w+", re.ASCII)
"""Names that hud-vf-gym accepts for actions."""
MAX_ABOUT = 2000
"""Maximum characters of a tool's description."""


@dataclass(frozen=True)
class Described:
    name: str
    tools: Sequence[Tool] = ()
    scenarios: Sequence[tuple[str, str]] = ()
    """Names and descriptions."""
    image: str = ""
    dataset: str = ""


def described(lock: Lock) -> Described:
    """What a lock file contains about its environment."""
    return Described(
        name=lock.environment or "environment",
        tools=lock.tools,
        scenarios=[(name, "") for name in lock.scenarios],
        image=lock.image,
        dataset=lock.dataset.name if lock.dataset else "",
    )


def new_gym(env: Described) -> tuple[GymConfig, list[str]]:
    """The configuration, and notes on what must be completed by hand."""
    tools = [tool for tool in env.tools if tool.name not in HIDDEN]
    actions = {tool.name: action_of(tool) for tool in tools}
    actions.setdefault(DONE, Action(_tool=None, _parser=ActionParser(positional=[])))
    metadata = {"environment": env.name, "image": env.image, "dataset": env.dataset}
    config = GymConfig(
        job=Job(
            name=f"RL Training - {one_line(env.name)}",
            metadata={key: one_line(value, 400) for key, value in metadata.items() if value}
            | {"experiment": "baseline"},
        ),
        system_prompt="\n".join(_prompt(tools, env.scenarios)),
        defaults=Defaults.written(),
        action_mappings=actions,
        parser=Parser.written(),
        rubric=Rubric.written(),
    )
    return config, list(_unclear(tools))


def action_of(tool: Tool) -> Action:
    """The action that is one tool, with the tool's arguments."""
    properties, required = tool.parameters
    arguments: dict[str, Any] = {}
    for name, schema in properties.items():
        if name in ("_tool", "_parser"):
            continue
        default = schema.get("default") if isinstance(schema, Mapping) else None
        more = {} if default is None else {"default": default}
        arguments[name] = Argument(from_arg=name, **more)
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
        properties, required = tool.parameters
        about = clean(tool.description.strip() or "no description", MAX_ABOUT)
        indented = about.replace("\n", "\n  ")
        yield f"- {signature(tool)}: {indented}"
        brackets = ", ".join(_example(name, properties.get(name)) for name in required)
        yield f"  Usage: <tool>{one_line(tool.name)}({brackets})</tool>"
    if DONE not in (tool.name for tool in tools):
        yield f"- {DONE}(): Say that the task is complete.\n  Usage: <tool>{DONE}()</tool>"
    yield "\nThink step by step within <think>...</think>, then call one tool in exactly that form."


def signature(tool: Tool) -> str:
    """A tool with its arguments and their types, e.g. ``move(direction: 'up' | 'down')``."""
    properties, required = tool.parameters
    arguments = ", ".join(
        f"{one_line(name)}{'' if name in required else '?'}: {_type(schema)}"
        for name, schema in properties.items()
    )
    return f"{one_line(tool.name)}({'...' if tool.input_schema is None else arguments})"


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
    return " | ".join(one_line(kind, 40) for kind in kinds[:8])


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


def gym_text(config: GymConfig, about: str) -> str:
    """The file's text, which reads back as the configuration; `about`: a line for its head."""
    root = library().comments.CommentedMap(writable(config.plain()))
    root.yaml_set_start_comment(about)
    for key, comment in COMMENTS.items():
        if key in root:
            root.yaml_set_comment_before_after_key(key, before="\n" + comment)
    out = StringIO()
    round_trip().dump(root, out)
    return out.getvalue()
