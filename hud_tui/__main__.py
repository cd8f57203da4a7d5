"""``python -m hud_tui``."""

from hud_tui.cli.main import script

if __name__ == "__main__":
    script()
