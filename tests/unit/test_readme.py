"""The README says what the program does."""

import re

import pytest

from tests.readme import README, keys, with_part


def test_the_keys_are_those_of_the_program() -> None:
    text = README.read_text()
    assert with_part(text, "keys", keys()) == text, "run: python -m tests.readme"


def test_a_part_without_markers_is_refused() -> None:
    with pytest.raises(ValueError, match="no part keys"):
        with_part("nothing here", "keys", "")


def test_every_picture_is_there() -> None:
    named = re.findall(r"\]\((screenshots/[^)]+)\)", README.read_text())
    assert named
    assert [name for name in named if not (README.parent / name).is_file()] == []


def test_the_loop_is_the_one_that_the_tests_run() -> None:
    source = (README.parent / "tests" / "live" / "training_loop.py").read_text()
    loop = source[source.index("import asyncio") :].strip()
    assert f"```python\n{loop}\n```" in README.read_text()
