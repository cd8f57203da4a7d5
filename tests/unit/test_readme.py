"""README and docs say what the program does, and what they name is there."""

import re
from pathlib import Path

import pytest

from tests.readme import KEYS, README, ROOT, keys_page, with_part

PAGES = [README, *sorted((ROOT / "docs").glob("*.md"))]


def test_the_keys_are_those_of_the_program() -> None:
    text = KEYS.read_text()
    assert keys_page(text) == text, "run: python -m tests.readme"


def test_a_part_without_markers_is_refused() -> None:
    with pytest.raises(ValueError, match="no part keys"):
        with_part("nothing here", "keys", "")


def test_every_picture_is_there() -> None:
    named = re.findall(r"\]\((screenshots/[^)]+)\)", README.read_text())
    assert named
    assert [name for name in named if not (ROOT / name).is_file()] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_leads_somewhere(page: Path) -> None:
    text = re.sub(r"(?ms)^```.*?^```", "", page.read_text())
    links = re.findall(r"\]\((?!https?:)([^)#]*)(?:#([\w-]+))?\)", text)
    for file, part in links:
        target = (page.parent / file).resolve() if file else page
        assert target.is_file(), file
        if part:
            heads = re.findall(r"(?m)^#+ (.*)$", target.read_text())
            slugs = {re.sub(r"[^\w -]", "", head.lower()).replace(" ", "-") for head in heads}
            assert part in slugs, f"{file}#{part}"


def test_the_readme_is_short() -> None:
    assert len(README.read_text().splitlines()) <= 250


def test_the_loop_is_the_one_that_the_tests_run() -> None:
    source = (ROOT / "tests" / "live" / "training_loop.py").read_text()
    loop = source[source.index("import asyncio") :].strip()
    assert f"```python\n{loop}\n```" in (ROOT / "docs" / "training-client.md").read_text()
