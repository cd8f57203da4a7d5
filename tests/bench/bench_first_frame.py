"""How long until `hud-tui` has drawn its first frame, beside an empty Textual app.

Both run as processes of their own on a pseudo-terminal of 80 × 24, by turns, and the least
time of each counts. A frame is there when its last line is.
"""

from statistics import median
from time import perf_counter

from tests.bench.terminal import program

REPEATS = 15
GOAL = 1.5
EMPTY = ("-c", "from textual.app import App; App().run()")
HUD = ("-m", "hud_tui")
ENVIRON = {"HUD_API_KEY": "none", "HUD_API_URL": "http://127.0.0.1:9"}
"""It is told which service, so that it need not ask; nobody is there, and nobody waits."""
LAST_LINE = b"\x1b[24;1H"


def frame_s(arguments: tuple[str, ...], text: bytes) -> float:
    """Seconds from the start of the process to the end of its first frame, with this text."""
    start = perf_counter()
    with program(arguments, ENVIRON, (80, 24)) as terminal:
        drawn = terminal.read_until(LAST_LINE)
        taken = perf_counter() - start
    assert text in drawn, drawn
    return taken


def main() -> int:
    times: dict[tuple[str, ...], list[float]] = {EMPTY: [], HUD: []}
    for _ in range(REPEATS):
        times[EMPTY].append(frame_s(EMPTY, b" "))
        times[HUD].append(frame_s(HUD, b"hud-tui"))
    ratio = min(times[HUD]) / min(times[EMPTY])
    middle = median(times[HUD]) / median(times[EMPTY])
    print(
        f"first frame / an empty Textual app's: {ratio:.2f} ({1000 * min(times[HUD]):.0f} ms;"
        f" median {middle:.2f}); goal {GOAL:.2f}"
    )
    return ratio > GOAL
