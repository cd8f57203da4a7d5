"""``hud-tui``, and ``python -m hud_tui``."""

import sys

from hud_tui import __version__


def script() -> None:
    """Run the command line. `--version` alone loads nothing of it."""
    if sys.argv[1:] == ["--version"] and sys.stdout is not None:
        try:
            print(f"hud-tui {__version__}", flush=True)
            return
        except OSError:
            pass  # the command line says what is wrong with stdout
    from hud_tui.cli.main import script as command_line

    command_line()


if __name__ == "__main__":
    script()
