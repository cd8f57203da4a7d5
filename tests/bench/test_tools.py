"""Benches and live checks are run now and then only: whether they still find what they import."""

from importlib import import_module
from pathlib import Path

TESTS = Path(__file__).parents[1]


def test_each_can_be_imported() -> None:
    for folder in ("bench", "live"):
        for file in sorted((TESTS / folder).glob("*.py")):
            import_module(f"tests.{folder}.{file.stem}")
