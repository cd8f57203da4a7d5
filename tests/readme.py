"""Parts of docs, made from the program, so that they cannot drift from it: the page of keys, the
columns of the table of runs, the parameters, the alarms, and the faults that no test sees.

Run: python -m tests.readme   writes them; the tests compare.
"""

import ast
import re
from collections.abc import Sequence
from dataclasses import fields
from inspect import getsource
from itertools import pairwise
from math import isfinite
from pathlib import Path

from hud_tui.keys import ACTIONS, Action
from hud_tui.parameters import (
    EVALUATION_PARAMETERS,
    ROLLOUT_OPTIONS,
    RUN_PARAMETERS,
    RUNS_AT_ONCE,
    Parameter,
)
from hud_tui.rl.alarms import thresholds
from hud_tui.rl.alarms.monitor import DETECTORS
from hud_tui.rl.alarms.thresholds import Thresholds, Tuning
from hud_tui.rl.run_columns import COLUMNS
from tests.faults.left import UNSEEN

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"
KEYS = ROOT / "docs" / "keys.md"
RUNS = ROOT / "docs" / "runs.md"
PARAMETERS = ROOT / "docs" / "parameters.md"
ENVIRONMENTS = ROOT / "docs" / "environments.md"
DEVELOPMENT = ROOT / "docs" / "development.md"
ALARMS = ROOT / "docs" / "alarms.md"
PLACES = {
    "app": "Everywhere",
    "list": "In a list",
    "picker": "In a field of choices",
    "fold": "On the row of a form's other fields",
    "dialog": "In a dialog",
    "panel": "In a panel",
    "history": "In the head's history",
    "submit": "Before a run is submitted",
    "head": "Before the head is set",
    "compare": "In a comparison of two checkpoints",
    "connect": "While connecting",
    "json": "In a JSON document",
    "log": "In the command log",
    "machines": "In the list of machines",
    "charts": "Live: the list of charts",
    "group": "Live: one group",
    "overlays": "Live: what to compare with",
    "columns": "Runs: the list of columns",
    "compared": "Runs: several in one chart",
}
"""What the page calls the places that are not one of the seven views."""
COMMON = {field.name for field in fields(Tuning)}
"""Thresholds that every detector has."""


def keys() -> str:
    """The keys of every place, as Markdown tables."""
    places = dict.fromkeys(action.view for action in ACTIONS)
    return "\n".join(_table(place) for place in places)


def keys_page(text: str) -> str:
    """The page of keys with its generated part as it should be."""
    return with_part(text, "keys", keys())


def columns() -> str:
    """The columns of the table of runs, as a Markdown table."""
    lines = [f"| `{each.key}` | {each.long_title} | {each.meaning} |" for each in COLUMNS.values()]
    return "\n".join(["| column | title | what it is |", "|---|---|---|", *lines, ""])


def runs_page(text: str) -> str:
    """The page of runs with its generated part as it should be."""
    return with_part(text, "columns", columns())


def parameters_page(text: str) -> str:
    """The page of parameters with its generated parts as they should be."""
    text = with_part(text, "run", parameters(RUN_PARAMETERS))
    text = with_part(text, "evaluation", parameters(EVALUATION_PARAMETERS))
    return with_part(text, "sweep", parameters([RUNS_AT_ONCE]))


def environments_page(text: str) -> str:
    """The page of environments with its generated part as it should be."""
    return with_part(text, "rollouts", parameters(ROLLOUT_OPTIONS))


def development_page(text: str) -> str:
    """The page of development with the faults that no test sees."""
    lines = [f"| `{name.replace('|', chr(92) + '|')}` | {why} |" for name, why in UNSEEN.items()]
    return with_part(text, "faults", "\n".join(["| fault | why |", "|---|---|", *lines, ""]))


def alarms_page(text: str) -> str:
    """The page of alarms with its detectors, and what each threshold means."""
    return with_part(with_part(text, "detectors", detectors()), "thresholds", threshold_meanings())


def detectors() -> str:
    """The detectors of rows, with the first sentence of what they mean and the thresholds that only
    some have, as a Markdown table."""
    lines = []
    for name, detector in DETECTORS.items():
        values = [
            f"`{field.name}` {value:g}"
            for field in fields(detector.USUAL)
            if field.name not in COMMON and (value := getattr(detector.USUAL, field.name))
        ]
        meaning = f"{detector.MEANING.rstrip('.').partition('. ')[0]}."
        row = (f"`{name}`", detector.TITLE, meaning, ", ".join(values))
        lines.append(f"| {' | '.join(row)} |")
    head = ["| alarm | on the screen | what it means | thresholds |", "|---|---|---|---|"]
    return "\n".join([*head, *lines, ""])


def threshold_meanings() -> str:
    """What the thresholds mean, by the docstrings of their fields, as a Markdown table."""
    lines = []
    for kind in ast.parse(getsource(thresholds)).body:
        if not isinstance(kind, ast.ClassDef) or kind.name == Thresholds.__name__:
            continue
        class_ = getattr(thresholds, kind.name)
        users = [f"`{name}`" for name, by in DETECTORS.items() if isinstance(by.USUAL, class_)]
        whose = "all" if class_ is Tuning else ", ".join(users or ["`stall`"])
        for field, text in pairwise(kind.body):
            match field, text:
                case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(ast.Constant(str(meaning))):
                    lines.append(f"| `{name}` | {whose} | {' '.join(meaning.split())} |")
    return "\n".join(["| threshold | of | what it is |", "|---|---|---|", *lines, ""])


def parameters(rows: Sequence[Parameter]) -> str:
    """The flags of parameters, as a Markdown table."""
    lines = [_parameter(row) for row in rows if row.takers]
    head = ["| flag | values | default | what it is | of |", "|---|---|---|---|---|"]
    return "\n".join([*head, *lines, ""])


def _parameter(row: Parameter) -> str:
    flags = [f"{row.flag} {row.metavar}", *([row.alias] if row.alias else [])]
    if row.kind == "switch":
        flags = [row.flag, f"--no-{row.flag[2:]}"]
    values = ", ".join(f"`{choice}`" for choice in row.choices)
    if row.is_number:
        values = row.range if isfinite(row.low) else row.limits
    names, takers = (", ".join(f"`{word}`" for word in words) for words in (flags, row.takers))
    return f"| {names} | {values} | {row.usual_text} | {row.meaning} | {takers} |"


def with_part(text: str, name: str, part: str) -> str:
    """A page's text with one generated part put between its markers.

    Raises:
        ValueError: The markers are not there.
    """
    pattern = re.compile(rf"(<!-- {name} -->\n).*?(<!-- /{name} -->)", re.DOTALL)
    if not pattern.search(text):
        raise ValueError(f"the page has no part {name}")
    return pattern.sub(lambda match: f"{match[1]}{part}\n{match[2]}", text)


def _table(place: str) -> str:
    rows = [_row(action) for action in ACTIONS if action.view == place]
    title = PLACES.get(place, place.capitalize())
    return "\n".join([f"| {title} | | |", "|---|---|---|", *rows, ""])


def _row(action: Action) -> str:
    shown = " ".join(f"<kbd>{key}</kbd>" for key in action.all_shown.split())
    return f"| {shown} | {action.help.replace('|', chr(92) + '|')} | `{action.id}` |"


if __name__ == "__main__":
    KEYS.write_text(keys_page(KEYS.read_text()))
    RUNS.write_text(runs_page(RUNS.read_text()))
    PARAMETERS.write_text(parameters_page(PARAMETERS.read_text()))
    ENVIRONMENTS.write_text(environments_page(ENVIRONMENTS.read_text()))
    ALARMS.write_text(alarms_page(ALARMS.read_text()))
    DEVELOPMENT.write_text(development_page(DEVELOPMENT.read_text()))
