"""``hud-tui``, and ``python -m hud_tui``."""

import gc
import sys

COLLECT_EVERY = 150_000
"""New objects after which garbage is collected, headless. A short command makes fewer; collections
while it loads would take a tenth of its time and free nothing."""


def script() -> None:
    """Run the command line. `--version` alone loads nothing of it."""
    if sys.argv[1:] == ["--version"] and sys.stdout is not None:
        from hud_tui.build import label

        try:
            print(label(), flush=True)
            return
        except OSError:
            pass  # the command line says what is wrong with stdout
    if "--headless" in sys.argv:
        gc.set_threshold(COLLECT_EVERY)
    from hud_tui.cli.main import script as command_line

    command_line()


if __name__ == "__main__":
    script()
