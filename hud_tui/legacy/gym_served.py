"""What of a hud-vf-gym configuration becomes an environment, and what is left out or refused.

There the model wrote a call as text, ``<tool>move("left")</tool>``; here it makes a tool call of
its own. So actions, prompt, turns and rubric are served, and what is about that text is left out.

Source: ``create_action_args``, ``ToolXMLParser`` and ``HUDBaseRubric`` of hud-vf-gym 0.1.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from keyword import iskeyword
from pathlib import Path
from typing import Any

from hud_tui.errors import HudUsage
from hud_tui.legacy.gym import (
    MAX_ABOUT,
    MOST_PROBLEMS,
    WEIGHTS,
    WORD,
    Action,
    Argument,
    GymConfig,
    action_of,
)
from hud_tui.legacy.lock_file import Tool, image_name
from hud_tui.legacy.yaml import Document, KeyPath, field_name, library
from hud_tui.parameters import ROLLOUT_OPTIONS
from hud_tui.rl.text import clean, names_text, one_line

AS_TEXT = re.compile(r"</?(?:tool|think)>|\bXML format\b", re.IGNORECASE)
"""Lines of a prompt that are about calls as text."""
INSTEAD = "Call the tools to act; when you are done, answer in words."
OWN_CALLS = "the model's calls are its own here, and no text is parsed"
MOST_TURNS = next(row.high for row in ROLLOUT_OPTIONS if row.name == "turns")
TYPES: Mapping[object, str] = {
    "string": "str",
    "integer": "int",
    "number": "float",
    "boolean": "bool",
    "array": "list",
    "object": "dict",
}
ANY = "Value"
"""The type of an argument of which nothing is known: what hud-vf-gym reads."""
MOST_CHOICES = 50


@dataclass(frozen=True)
class ActionParameter:
    """What the model gives to an action."""

    name: str
    type: str
    """A type annotation of Python."""
    required: bool
    default: Any = None


@dataclass(frozen=True)
class Taken:
    """An argument of a tool that is one of the action's parameters."""

    name: str


@dataclass(frozen=True)
class ServedAction:
    """An action as a tool of the model's."""

    name: str
    about: str
    tool: str | None
    """The tool that it calls; None: it ends the episode."""
    parameters: Sequence[ActionParameter] = ()
    arguments: Mapping[str, Any] = field(default_factory=dict)
    """By the tool's argument: `Taken`, or a constant."""


@dataclass(frozen=True)
class ServedGym:
    """A configuration as an environment."""

    name: str
    """A plain word."""
    title: str
    """Name of its runs; empty if it has none."""
    prompt: str
    turns: int
    weights: Mapping[str, float]
    """Parts of the reward, of those of `WEIGHTS`."""
    actions: Sequence[ServedAction]
    notes: Sequence[str] = ()
    """What is left out, with its lines, and why."""


def serve_gym(document: Document, config: GymConfig, tools: Sequence[Tool]) -> ServedGym:
    """`tools`: of the lock file, for the types of arguments; empty if there is none. Raises
    HudUsage: something that decides about actions or rewards cannot be served; names file, line and
    field of all of it."""
    reader = _Reader(document, config, {tool.name: tool for tool in tools})
    served = ServedGym(
        name=_name(document, config),
        title=config.job.name if config.job else "",
        prompt=reader.prompt(),
        turns=reader.turns(),
        weights=reader.weights(),
        actions=list(reader.actions()),
    )
    reader.rest()
    reader.check()
    return ServedGym(**{**vars(served), "notes": reader.notes()})


def dataset_of(config: GymConfig) -> str | None:
    """The data set that a configuration names for its tasks."""
    named = config.job.metadata.get("dataset") if config.job else None
    return named if isinstance(named, str) and named else None


def _name(document: Document, config: GymConfig) -> str:
    named = config.job.metadata.get("environment") if config.job else None
    text = image_name(named) if isinstance(named, str) and named else Path(document.name).stem
    word = re.sub(r"[^A-Za-z0-9_]+", "_", text).strip("_")[:50]
    return word if word.isidentifier() and not iskeyword(word) else f"env_{word}".rstrip("_")


class _Reader:
    """Reads a configuration part by part, and collects what cannot be served."""

    def __init__(self, document: Document, config: GymConfig, tools: Mapping[str, Tool]) -> None:
        self._document, self._config, self._tools = document, config, tools
        self._problems: list[str] = []
        self._left_out: dict[str, list[str]] = {}
        """By the reason: fields with their lines."""

    def _refuse(self, path: KeyPath, why: str) -> None:
        self._problems.append(f"{self._document.where(path)}: field {field_name(path)}: {why}")

    def _leave_out(self, path: KeyPath, why: str, line: int = 0) -> None:
        where = f"{field_name(path)} (line {line or self._document.line(path)})"
        self._left_out.setdefault(why, []).append(where)

    def check(self) -> None:
        """Raises HudUsage: something was refused."""
        if more := self._problems[MOST_PROBLEMS:]:
            self._problems[MOST_PROBLEMS:] = [f"and {len(more)} more"]
        if self._problems:
            hint = "fix those lines; or hud-tui init-env writes an environment to begin from"
            raise HudUsage("; ".join(self._problems), hint)

    def notes(self) -> list[str]:
        name = self._document.name
        left_out = self._left_out.items()
        return [f"{name}: left out: {names_text(fields, 12)}: {why}" for why, fields in left_out]

    def prompt(self) -> str:
        """The system prompt without the lines about calls as text."""
        lines, first = self._config.system_prompt.split("\n"), self._first_line()
        left_out = [index for index, line in enumerate(lines) if AS_TEXT.search(line)]
        for index in left_out:
            self._leave_out(("system_prompt",), OWN_CALLS, first and first + index)
        kept = (line for index, line in enumerate(lines) if index not in left_out)
        prompt = "\n".join(kept).strip()
        return f"{prompt}\n\n{INSTEAD}".strip() if left_out else prompt

    def _first_line(self) -> int:
        """The line that the prompt's text begins at; 0 if it is not a literal block."""
        text = self._document.source.get("system_prompt")
        is_block = isinstance(text, library().scalarstring.LiteralScalarString)
        return self._document.line(("system_prompt",)) + 1 if is_block else 0

    def turns(self) -> int:
        turns = self._config.defaults.max_turns
        if MOST_TURNS is not None and turns > MOST_TURNS:
            self._refuse(("defaults", "max_turns"), f"at most {MOST_TURNS:.0f} turns")
        return turns

    def weights(self) -> dict[str, float]:
        """What is not given is as there; a part of weight 0 is none."""
        given = self._config.rubric.weights
        for name in given:
            if name not in WEIGHTS:
                what = f"there is no such part: {', '.join(WEIGHTS)}"
                self._refuse(("rubric", "weights", name), what)
        weights = {name: weight for name, weight in (WEIGHTS | given).items() if weight}
        if not weights:
            self._refuse(("rubric", "weights"), "every reward would be 0")
        for name in self._config.rubric.model_extra or {}:
            self._refuse(("rubric", name), "this part of a reward is not known")
        return weights

    def actions(self) -> Iterator[ServedAction]:
        """Those of action_mappings, else the tools that allowed_tools lists."""
        mappings, allowed = self._config.action_mappings, self._config.allowed_tools or []
        for name, action in mappings.items():
            yield self._action(("action_mappings", name), name, action)
        for index, name in enumerate(() if mappings else allowed):
            tool, path = self._tools.get(name), ("allowed_tools", index)
            if tool is None or tool.input_schema is None:
                self._refuse(path, "no hud.lock.yaml says what it takes: map it in action_mappings")
            else:
                yield self._action(path, name, action_of(tool))
        if mappings and allowed:
            self._leave_out(("allowed_tools",), "action_mappings says which there are")
        if not mappings and not allowed:
            self._refuse((), "it has no actions: add action_mappings")

    def _action(self, path: KeyPath, name: str, action: Action) -> ServedAction:
        if not WORD.fullmatch(name):
            self._refuse(path, "letters, digits and _ only")
        if action.tool is None:
            if action.arguments:
                self._refuse(path, "it has arguments, and no _tool")
            return ServedAction(name, "Say that the task is complete.", None)
        tool = self._tools.get(action.tool)
        if tool is None and self._tools:
            self._refuse(path, f"the lock file has no tool {one_line(action.tool, 60)}")
        given_as = action.arguments.items()
        arguments = {key: self._made((*path, key), value) for key, value in given_as}
        taken = {key: value.name for key, value in arguments.items() if isinstance(value, Taken)}
        uses: dict[str, list[str]] = {name: [] for name in action.parser.positional}
        for key, parameter in taken.items():
            uses.setdefault(parameter, []).append(key)
        given = [self._parameter(path, action, tool, use, keys) for use, keys in uses.items()]
        constants = {key: value for key, value in arguments.items() if key not in taken}
        return ServedAction(
            name, _about(action.tool, tool, constants), action.tool, given, arguments
        )

    def _made(self, path: KeyPath, value: Any) -> Any:
        """How one argument of the tool is made."""
        if str(path[-1]).startswith("#"):
            self._refuse(path, "a note of hud rl init: give the tool's arguments in its place")
        if not isinstance(value, Argument):
            return value
        for name in value.model_extra or {}:
            self._refuse((*path, name), "not served: give each argument as static or from_arg")
        if value.transform:
            what = "Python, which is not run: give the argument as static or from_arg"
            self._refuse((*path, "transform"), what)
        if "static" in value.model_fields_set:
            return value.static
        if value.from_arg is None:
            if not value.transform and not value.model_extra:
                self._refuse(path, "neither static nor from_arg")
            return None
        return Taken(value.from_arg)

    def _parameter(
        self, path: KeyPath, action: Action, tool: Tool | None, name: str, keys: Sequence[str]
    ) -> ActionParameter:
        if not (name.isascii() and name.isidentifier()) or iskeyword(name) or name[:1] == "_":
            self._refuse((*path, "_parser"), f"{one_line(name, 60)!r} is no name for an argument")
        default = self._default(path, action, name, keys)
        schemas = tool.parameters[0] if tool is not None else {}
        types = {_type(schemas.get(key)) for key in keys} or {ANY}
        required = name in action.parser.positional and default is None
        return ActionParameter(name, types.pop() if len(types) == 1 else ANY, required, default)

    def _default(self, path: KeyPath, action: Action, name: str, keys: Sequence[str]) -> Any:
        """The value of an argument that is not given; None if it has to be."""
        parts = [action.arguments[key] for key in keys]
        defaults = [part.default for part in parts if part.default is not None]
        if any(default != defaults[0] for default in defaults) or 0 < len(defaults) < len(parts):
            what = f"{one_line(name, 60)} has several defaults, and can have one"
            self._refuse((*path, keys[-1]), what)
        return defaults[0] if defaults else None

    def rest(self) -> None:
        """Everything that nothing else has read."""
        config, document = self._config, self._document
        for name in document.value.get("parser") or {}:
            self._leave_out(("parser", name), OWN_CALLS)
        for name in (document.value.get("job") or {}) if config.job else ():
            if name != "name":
                self._leave_out(("job", name), "runs have a name only")
        unknown: list[tuple[str, ...]] = [(name,) for name in config.model_extra or {}]
        unknown += [("defaults", name) for name in config.defaults.model_extra or {}]
        for path in unknown:
            if not path[-1].startswith("#"):
                self._leave_out(path, "nothing here is set by it")


def _about(name: str, tool: Tool | None, constants: Mapping[str, Any]) -> str:
    """What an action does, for the model."""
    if tool is not None and tool.description.strip() and not constants:
        return clean(tool.description.strip(), MAX_ABOUT)
    fixed = ", ".join(f"{key}={value!r}" for key, value in constants.items())
    return one_line(f"{name}({fixed})", MAX_ABOUT)


def _type(schema: object) -> str:
    """A JSON Schema as a type annotation; `ANY` if it is not a plain one."""
    if not isinstance(schema, Mapping):
        return ANY
    choices = schema.get("enum")
    if isinstance(choices, list) and 0 < len(choices) <= MOST_CHOICES:
        plain = all(isinstance(choice, (str, int)) for choice in choices)
        return f"Literal[{', '.join(map(repr, choices))}]" if plain else ANY
    kind = schema.get("type")
    return TYPES.get(kind, ANY) if isinstance(kind, str) else ANY
