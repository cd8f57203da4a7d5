"""Processes as lock files name them."""

import pytest

from hud_tui.processes import Process, process, read_process


@pytest.mark.parametrize("known", [process(1), Process(2**31 - 1, "77"), Process(4711, "")])
def test_a_process_is_read_as_it_is_written(known: Process) -> None:
    """Also the first one of a container, which may be the service."""
    assert read_process(f"{known}\n") == known


@pytest.mark.parametrize("text", ["0 5", "-1 5", "2147483648 5", "²  5", "x", "", None])
def test_what_names_no_process_is_none(text: object) -> None:
    assert read_process(text) is None
