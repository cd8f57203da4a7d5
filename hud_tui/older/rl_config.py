"""An RL configuration of hud 0.4, read and checked: everything that is wrong with it at once."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from hud_tui.errors import HudUsage
from hud_tui.older.json_lines import key_lines
from hud_tui.older.rl_fields import FIELDS, SECTIONS, TOP, Path, Spec
from hud_tui.rl.fields import kind_of
from hud_tui.rl.names import close_names
from hud_tui.rl.strict_json import Parser
from hud_tui.rl.text import has_surrogate, one_line

MAX_BYTES = 1 << 20
FIX = "correct those fields and try again"
MOST_PROBLEMS = 20
WANTED = {
    "whole": "a whole number",
    "number": "a number",
    "flag": "true or false",
    "text": "text",
    "texts": "a list of text",
    "betas": "two numbers from 0 up to 1",
}


@dataclass(frozen=True)
class RlConfig:
    """What a configuration sets."""

    name: str
    values: dict[Path, Any]
    """The fields that it sets, and are known; null where it says null."""
    unknown: dict[str, str]
    """Fields that hud 0.4 had not, and a hint what was meant."""

    def get(self, *path: str) -> Any:
        """A field's value, or its default in hud 0.4."""
        value = self.values.get(path)
        return FIELDS[path].default if value is None else value

    def is_set(self, *path: str) -> bool:
        return self.values.get(path) is not None


def read_rl_config(name: str, body: bytes) -> RlConfig:
    """Read a configuration.

    Raises:
        HudUsage: Not one; names the file, and line and field of everything that is wrong.
    """
    name = one_line(name)
    if len(body) > MAX_BYTES:
        raise HudUsage(f"{name}: larger than {MAX_BYTES >> 20} MB", "it is no configuration")
    try:
        text = body.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise HudUsage(f"{name}: byte {error.start}: not UTF-8", "save it as UTF-8") from error
    document = _parse(name, text)
    if not isinstance(document, dict) or not {*SECTIONS, *TOP} & set(document):
        message = f"{name}: not an RL configuration of hud 0.4"
        raise HudUsage(message, "it has sections model, training and actor")
    lines, twice = key_lines(text)
    problems = list(_problems(document))
    problems += [(path, "stands twice") for path in twice]
    if problems:
        raise HudUsage("; ".join(_said(name, lines, problems)), FIX)
    fields = dict(_fields(document))
    known = {path: value for path, value in fields.items() if path in FIELDS}
    return RlConfig(name, known, {".".join(p): _meant(p) for p in fields if p not in FIELDS})


def _parse(name: str, text: str) -> Any:
    parser = Parser(text)
    found = parser.value(parser.skip(0))
    rest = parser.skip(found.end) if found.end else len(text)
    if found.fault or rest != len(text):
        fault, at = (found.fault, found.at) if found.fault else ("something follows", rest)
        message = f"{name} {parser.place(at)}: not JSON: {fault}"
        raise HudUsage(message, "correct that line and try again")
    return found.value


def _fields(document: dict[str, Any]) -> Iterator[tuple[Path, Any]]:
    for key, value in document.items():
        if key in SECTIONS and isinstance(value, dict):
            yield from (((key, name), part) for name, part in value.items())
        elif key not in SECTIONS:
            yield (key,), value


def _problems(document: dict[str, Any]) -> Iterator[tuple[Path, str]]:
    for section in SECTIONS:
        if not isinstance(document.get(section, {}), dict):
            yield (section,), f"expected an object, found {kind_of(document[section])}"
    for path, value in _fields(document):
        if path in FIELDS and value is not None:
            fault = _fault(FIELDS[path], value)
            if fault:
                yield path, fault


def _fault(spec: Spec, value: Any) -> str:
    if not _fits(spec.kind, value):
        return f"expected {WANTED[spec.kind]}, found {kind_of(value)}"
    if isinstance(value, str) and has_surrogate(value):
        return "half of a surrogate pair: it is not text"
    if spec.choices and value not in spec.choices:
        return f"expected {' or '.join(spec.choices)}"
    if spec.low is not None and value < spec.low:
        return f"expected at least {spec.low:g}"
    if spec.high is not None and value > spec.high:
        return f"expected at most {spec.high:g}"
    return ""


def _fits(kind: str, value: Any) -> bool:
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if kind == "betas":
        return (
            isinstance(value, list)
            and len(value) == 2
            and all(_fits("number", beta) and 0 <= beta < 1 for beta in value)
        )
    fits = {
        "whole": number and float(value).is_integer() if number else False,
        "number": number,
        "flag": isinstance(value, bool),
        "text": isinstance(value, str),
        "texts": isinstance(value, list) and all(isinstance(part, str) for part in value),
    }
    return bool(fits[kind])


def _said(name: str, lines: dict[Path, int], problems: list[tuple[Path, str]]) -> Iterator[str]:
    for path, fault in problems[:MOST_PROBLEMS]:
        yield f"{name} line {lines.get(path, 1)}: field {one_line('.'.join(path), 120)}: {fault}"
    if len(problems) > MOST_PROBLEMS:
        yield f"and {len(problems) - MOST_PROBLEMS} more"


def _meant(path: Path) -> str:
    specs = SECTIONS[path[0]] if len(path) == 2 else {**SECTIONS, **TOP}
    hint = close_names(path[-1], list(specs))
    return hint if hint.startswith("did you mean") else "hud 0.4 had no such field"
