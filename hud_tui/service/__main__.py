"""`python -m hud_tui.service`: the embedded service by itself."""

import argparse
import sys
from pathlib import Path

import platformdirs

from hud_tui.service.serve import ENGINES, serve


def main(argv: list[str] | None = None) -> int:
    """Parse the arguments and serve; the exit code."""
    parser = argparse.ArgumentParser("python -m hud_tui.service", description=__doc__)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one")
    parser.add_argument("--data-dir", type=Path, default=platformdirs.user_data_path("hud-tui"))
    parser.add_argument("--engine", default="tiny", choices=ENGINES)
    args = parser.parse_args(argv)
    return serve(args.host, args.port, args.data_dir, args.engine)


if __name__ == "__main__":
    sys.exit(main())
