"""``python -m hud_tui``."""

import sys

from hud_tui.cli import main

if __name__ == "__main__":
    sys.exit(main())
