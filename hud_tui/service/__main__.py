"""`python -m hud_tui.service`: the embedded service by itself."""

import argparse
import gc
import json
import sys
from dataclasses import asdict
from pathlib import Path

import platformdirs


def main(argv: list[str] | None = None) -> int:
    """Parse the arguments and serve; returns the exit code."""
    gc.disable()  # what is loaded stays: looking through it takes a fifth of the start
    from hud_tui.cores import read_cores
    from hud_tui.errors import HudUsage
    from hud_tui.service import engines
    from hud_tui.service.data_dir import examine
    from hud_tui.service.entrance import add_flags, entrance_of
    from hud_tui.service.serving import serve
    from hud_tui.settings import read_max_disk

    gc.freeze()
    gc.enable()
    parser = argparse.ArgumentParser("python -m hud_tui.service", description=__doc__)
    add_flags(parser)
    parser.add_argument("--data-dir", type=Path, default=platformdirs.user_data_path("hud-tui"))
    parser.add_argument("--engine", default=engines.DEFAULT, choices=engines.modules())
    parser.add_argument("--max-disk", help="e.g. 20GB; thins the oldest checkpoints beyond it")
    parser.add_argument("--cores", help="most processes that the tiny engine computes in")
    parser.add_argument(
        "--check",
        action="store_true",
        help="print as JSON whether the data directory can be served, and change nothing",
    )
    args = parser.parse_args(argv)
    if args.check:
        print(json.dumps([asdict(finding) for finding in examine(args.data_dir)]))
        return 0
    try:
        max_disk, cores = read_max_disk(args.max_disk), read_cores(args.cores).count
        return serve(entrance_of(args), args.data_dir, args.engine, max_disk, cores)
    except HudUsage as error:
        parser.error(f"{error.message}: {error.hint}")


if __name__ == "__main__":
    sys.exit(main())
