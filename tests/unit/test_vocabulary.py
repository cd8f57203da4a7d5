"""One vocabulary, the field's: what a user or a reader of the code meets is named as elsewhere."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = sorted((ROOT / "hud_tui").rglob("*.py"))
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BANNED = {
    r"zero[- ]spread|without (any )?spread|no spread|had spread|have spread": "zero variance",
    r"\bteach(es|ing)? (nothing|first)|which tasks teach|tasks that teach|\d teach\b": "signal",
    r"\ball (good|bad)\b": "all solved, all failed",
    r"rollouts wasted": "no gradient (cumulative)",
    r"\b(tasks|groups) a step\b|\bnats a token\b": "per step",
    r"tokens? a (rollout|second)\b|rollouts? a second\b|turns? a rollout": "per rollout",
    r"kl sample-train|clip frac\b|\bkl reference\b|length mean": "the metric's title",
    r"drift of the reward|steps that are not finite": "reward slope, non-finite steps",
    r"skipped: needs": "not evaluated: metric … not reported",
    r"likelihood now|made rarer|\blikelier\b": "importance ratio, advantage",
    r"out of service|leaves? service": "rolls back",
    r"there is nothing to do again|\bdo it again\b": "redo",
    r"takes? (it )?up again|connects? anew": "resume, reconnect",
    r"is called nope|no (model|checkpoint|job|environment) is called": "no … named",
    r"said before under": "duplicate of another task",
    r"tasks? (of \S+ )?cannot be asked": "invalid args",
    r"\bspoil(s|t|ed)?\b|\bmend(s|ed|ing)?\b|\bretold\b|\bshelf\b|\blookout\b|\bsentry\b": "",
    r"are left off|left off": "omitted",
    r"a bug ended": "hud-tui crashed",
    r"where (it|that) is neither": "a plain sentence",
    r"parted (at|from)|the two parted": "diverged",
    r"\bjudging by \{|judging by (arith|mixed)": "estimated from",
    r"[\d}] (tasks|rollouts)? ?to (train on|evaluate)\b": "training, evaluation",
    r"trained on (reward|since|between them)": "batch reward; steps between",
    r"chance, (one by one|taken alone)|runs differ in nothing\.": "individually; the same",
    r"tab reads|☆: none stands": "all events; no clear best",
    r"requests? a second\b": "per second",
    r", asks\.|; asks\.$": "asks first",
    r"runs ended, | waits?: \{": "running, queued, ended",
}
"""What is not to be read anywhere, and what is said instead."""


@cache
def everything() -> list[tuple[str, str]]:
    """Every text of the program and its pages, each with its place."""
    files = (*SOURCES, *PAGES)
    return [
        (f"{file.relative_to(ROOT)}:{line}", text) for file in files for line, text in texts(file)
    ]


@cache
def texts(file: Path) -> list[tuple[int, str]]:
    """String literals and docstrings of a module with their lines; the lines of a page."""
    if file.suffix == ".md":
        return [*enumerate(file.read_text().splitlines(), 1)]
    return [
        (node.lineno, " ".join(node.value.split()))
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]


@pytest.mark.parametrize("banned", BANNED)
def test_no_coined_word_is_left(banned: str) -> None:
    pattern = re.compile(banned, re.IGNORECASE)
    found = [
        f"{place}: {match[0]!r}; say {BANNED[banned] or 'it plainly'}"
        for place, text in everything()
        for match in pattern.finditer(text)
    ]
    assert not found, "\n".join(found)
