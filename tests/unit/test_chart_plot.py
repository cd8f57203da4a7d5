"""The focus chart's figure: plotext's output as styled text, never as escapes."""

from math import nan

from rich.style import Style

from hud_tui.tui.widgets.focus_chart import Signal, area, plot, segments

RED, DIM, PLAIN = Style(color="red"), Style(dim=True), Style()
Y_TICKS = [(0.0, "0"), (1.0, "1")]
X_TICKS = [(0.0, "1"), (100.0, "50")]


def figure(ys: list[float], width: int = 60, height: int = 8) -> list[str]:
    signal = Signal([8.0 * n for n in range(len(ys))], ys, RED)
    lines = plot([signal], X_TICKS, Y_TICKS, width, height, PLAIN)
    return ["".join(segment.text for segment in line) for line in lines]


def test_a_figure_has_the_size_asked_for_and_its_labels_stand_on_their_rows() -> None:
    for width in (30, 60, 150, 300):
        lines = figure([0.0, 1.0, 0.5], width)
        assert len(lines) == 8
        assert all(len(line) == width for line in lines)

    lines = figure([0.0, 1.0])
    assert lines[0].startswith("    1")
    assert lines[5].startswith("    0")
    assert lines[-1].split() == ["1", "50"]
    lines = plot([], [], Y_TICKS, 40, 6, PLAIN)
    assert len(lines) == 6
    assert area(40, ["0", "1"]) == 34


def test_only_the_curve_has_its_style_and_other_escapes_are_dropped() -> None:
    lines = plot([Signal([0.0, 90.0], [0.0, 1.0], RED)], X_TICKS, Y_TICKS, 60, 8, DIM)
    drawn = {segment.style for line in lines for segment in line if segment.text.strip(" │┤┬└─01")}
    assert RED in drawn
    assert all("\x1b" not in segment.text for line in lines for segment in line)

    built = "a\x1b[0m\x1b[38;5;1mb\x1b[0m\x1b[1mc"
    assert [(s.text, s.style) for s in segments(built, {"1": RED}, PLAIN)] == [
        ("a", PLAIN),
        ("b", RED),
        ("c", PLAIN),
    ]


def test_nan_is_a_gap() -> None:
    [bottom] = [line for line in figure([0.0, 0.0, nan, 0.0, 0.0]) if line.startswith("    0")]
    curve = bottom[6:].rstrip()
    assert " " in curve
    assert curve[0] != " " != curve[-1]
