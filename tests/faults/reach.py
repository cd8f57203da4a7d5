"""A pytest plugin: which lines of one file each test reaches, and how long it takes.

`--reach FILE` is the file, `--reach-to PATH` where the answer goes: seconds and lines of each test.
"""

import json
import sys
import threading
from collections.abc import Callable, Iterator
from functools import _lru_cache_wrapper
from pathlib import Path
from time import monotonic
from types import FrameType
from typing import Any

import pytest

Reached = dict[str, tuple[float, list[int]]]
"""Seconds and lines of each test."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--reach", help="the file whose lines are watched")
    parser.addoption("--reach-to", type=Path, help="where to write what each test reaches")


class Watch:
    """Watches the lines of a file."""

    def __init__(self, file: str, to: Path) -> None:
        self._file, self._to = file, to
        self._lines: set[int] = set()
        self._reached: Reached = {}

    def _trace(self, frame: FrameType, event: str, _: Any) -> Callable[..., Any] | None:
        if frame.f_code.co_filename != self._file:
            return None
        self._lines.add(frame.f_lineno)
        return self._trace

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self._lines.clear()
        _forget()
        began = monotonic()
        threading.settrace(self._trace)
        sys.settrace(self._trace)
        try:
            return (yield)
        finally:
            sys.settrace(None)
            threading.settrace(None)
            self._reached[item.nodeid] = monotonic() - began, sorted(self._lines)

    def pytest_sessionfinish(self) -> None:
        self._to.write_text(json.dumps(self._reached))


def _forget() -> None:
    """Empty the package's caches: what a test finds in one was reached for another test."""
    for name, module in [*sys.modules.items()]:
        if name.startswith("hud_tui."):
            for value in [*vars(module).values()]:
                if isinstance(value, _lru_cache_wrapper):
                    value.cache_clear()


def pytest_configure(config: pytest.Config) -> None:
    if file := config.getoption("--reach"):
        config.pluginmanager.register(Watch(file, config.getoption("--reach-to")))
