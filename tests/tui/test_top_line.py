"""What the top line says, and what it drops first where there is no room."""

from dataclasses import replace

import pytest

from hud_tui.keys import VIEWS
from hud_tui.rl.progress import Liveness, State, fresh
from hud_tui.rl.run import Run
from hud_tui.rl.text import duration
from hud_tui.tui.screens.base import Aside, bar, top_line
from hud_tui.wire import EngineState
from tests.tui import runs

LIVE = Liveness(State.LIVE, "stream", 3.0)
RUN = runs.run_of(60)


def line(width: int, run: Run = RUN, freshness: Liveness = LIVE) -> str:
    return top_line("models", "HUD local", run, freshness, width).plain


def test_a_wide_line_says_everything() -> None:
    said = line(160)
    for part in ("Models", "HUD local", "me/arith-rl", "▶ step-000060", "job 7f3a52c1 running"):
        assert part in said
    for part in ("step 60/400", "━", "15 %", "left", "↻ stream 3 s"):
        assert part in said


@pytest.mark.parametrize("width", [160, 120, 80, 60, 40, 30])
def test_it_fits_and_keeps_what_matters(width: int) -> None:
    said = line(width)
    assert len(said) <= width
    assert " Models " in said
    assert "stream" in said
    assert "stream" not in line(width, Run()), "without a model there is nothing to be fresh"
    assert ("step 60/400" in said, "━" in said) == (width >= 80, width >= 160), "dropped whole"
    assert ("me/arith-rl" in said) is (width >= 40)


def test_a_run_that_is_held_up_says_by_what_and_not_how_long_it_takes() -> None:
    job = runs.job(60, 400).model_copy(update={"waits": "no answer from \x1b the server"})
    said = line(160, replace(RUN, job=job))
    assert "job 7f3a52c1 waiting" in said
    assert "⚠ no answer from ␛ the server" in said
    assert " left" not in said
    assert " left" not in line(160, RUN, Liveness(State.RECONNECTING, "stream", 3.0, "x"))


def test_it_names_the_engine_that_a_model_lives_on() -> None:
    def said(engine: EngineState | None) -> str:
        model = runs.MODEL.model_copy(update={"engine": engine})
        return line(160, replace(RUN, model=model))

    url = "https://me:sekret@trainer.example:8000/x"
    assert " tinker @ trainer.example:8000  " in said(EngineState(engine="tinker", server=url))
    assert "sekret" not in said(EngineState(engine="tinker", server=url))
    assert "HUD local" not in said(EngineState(engine="tinker", server="trainer"))
    assert " HUD local " in said(EngineState(engine="tiny"))


@pytest.mark.parametrize(
    ("liveness", "said"),
    [
        (Liveness(State.CONNECTING, "connecting", None), "… connecting"),
        (Liveness(State.LIVE, "poll", 70.0), "↻ poll 1m10s"),
        (Liveness(State.LIVE, "poll", 1.0, reading="reading 3 MB"), "↻ reading 3 MB"),
        (Liveness(State.LIVE, "poll", 9.0, reading="reading 3 MB"), "↻ poll 9 s"),
        (Liveness(State.LIVE, "stream", 0.0, behind_s=70.0), "⚠ stream 1m10s behind"),
        (Liveness(State.STALLED, "stream", 41.0), "⚠ stalled 41 s"),
        (
            Liveness(State.RECONNECTING, "stream", 12.0, "x", 3.0),
            "⚠ no answer 12 s; retrying in 3 s",
        ),
        (
            Liveness(State.RECONNECTING, "connecting", None, "x", 3.0),
            "⚠ no answer; retrying in 3 s",
        ),
        (Liveness(State.RECONNECTING, "stream", None, "x", advice="gone · ^r"), "⚠ gone · ^r"),
    ],
)
def test_freshness(liveness: Liveness, said: str) -> None:
    assert fresh(liveness) == said
    assert said in line(160, RUN, liveness)


def test_trouble_is_warm() -> None:
    stalled = top_line("models", "HUD", RUN, Liveness(State.STALLED, "stream", 41.0), 160)
    assert any("$warning" in str(span.style) for span in stalled.spans)
    calm = top_line("models", "HUD", RUN, LIVE, 160)
    assert not any("$warning" in str(span.style) for span in calm.spans)


def test_a_hostile_name_is_only_text() -> None:
    model = runs.MODEL.model_copy(update={"model_name": "a\x1b[31m[/x]"})
    assert "a␛[31m[/x]" in line(160, Run(model=model))


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(0, "0 s"), (59.9, "59 s"), (72, "1m12s"), (7500, "2h05m"), (273_600, "3d04h")],
)
def test_duration(seconds: float, said: str) -> None:
    assert duration(seconds) == said


@pytest.mark.parametrize(
    ("share", "cells"), [(0, ""), (0.5, "━" * 8), (1, "━" * 16), (2, "━" * 16)]
)
def test_the_bar(share: float, cells: str) -> None:
    drawn = bar(share)
    assert drawn.cell_length == 16
    assert drawn.plain[: drawn.spans[0].end] == cells


def test_a_view_with_a_status_line_of_its_own_is_not_told_twice() -> None:
    said = top_line("live", "HUD local", RUN, LIVE, 160).plain
    assert "▶ step-000060" in said
    assert "job" not in said
    assert "↻" not in said


@pytest.mark.parametrize("width", [160, 120, 80])
def test_it_names_the_machine_and_what_it_costs(width: int) -> None:
    machine = "tinker @ gpubox · 2×H100"
    named = machine if width > 80 else " @ gpubox "
    costs = Aside(machine, "23 ms · 85 %, 60 of 160 GB", "⚠ broken 41 m · $13.50 at $4.50/h")
    costs = replace(costs, guard="guard pod 12 s")
    for view in VIEWS:
        said = top_line(view, "HUD local", RUN, LIVE, width, aside=costs).plain
        assert len(said) <= width
        assert named in said
        assert "⚠ broken 41 m · $13.50 at $4.50/h  guard pod 12 s" in said
    assert ("85 %" in top_line("jobs", "HUD", Run(), LIVE, width, aside=costs).plain) is (
        width > 80
    )
