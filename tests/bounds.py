"""A pytest plugin: children get default signals, and a test that hangs fails, by its name."""

import asyncio
import faulthandler
import signal
import sys
from collections.abc import Iterator
from contextlib import suppress
from types import FrameType

import pytest

HUNG_S = 600.0
"""Longer than any test takes on a busy machine; a bound of its own is each wait's affair."""


def pytest_addoption(parser: pytest.Parser) -> None:
    about = "seconds until a test has hung; 0 for never"
    parser.addoption("--hung-after", type=float, default=HUNG_S, help=about)


def pytest_configure(config: pytest.Config) -> None:
    """What a script's background job ignores, its children would ignore, too: exec keeps that."""
    for number, default in ((signal.SIGINT, signal.default_int_handler), (signal.SIGQUIT, None)):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, default or signal.SIG_DFL)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    def hung(number: int, frame: FrameType | None) -> None:
        print(f"\n{item.nodeid} has hung; where it is:", file=sys.stderr)
        faulthandler.dump_traceback(sys.__stderr__)
        with suppress(RuntimeError):  # it has no loop
            for task in asyncio.all_tasks():
                task.print_stack(file=sys.stderr)
        pytest.fail(f"{item.nodeid} has hung for {seconds:g} s")

    seconds = item.config.getoption("--hung-after")
    before = signal.signal(signal.SIGALRM, hung)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        return (yield)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
