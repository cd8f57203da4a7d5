"""The commands on the embedded service itself."""

from hud_tui.commands.parser import Add, whole_number


def add_service(add: Add) -> None:
    """Add them to the command line."""
    _serve(add)
    add("stop", "stop the embedded service that runs in the background", "stop")


def _serve(add: Add) -> None:
    about = "run the embedded service in the foreground"
    examples = ("serve", "serve --port 8900 --data-dir ./hud-data", "serve --engine tinker")
    parser = add("serve", about, *examples)
    parser.add_argument("--host", default="127.0.0.1", help="loopback unless you know better")
    parser.add_argument(
        "--port", type=whole_number, default=0, metavar="N", help="0 takes a free one"
    )
    parser.add_argument(
        "--engine",
        default="tiny",
        choices=("tiny", "tinker"),
        help="what samples and trains: this machine's CPU, or language models on Tinker "
        "(TINKER_API_KEY) or on a server with its wire (TINKER_BASE_URL)",
    )
    parser.add_argument(
        "--max-disk",
        metavar="SIZE",
        help="thin the oldest checkpoints beyond this, e.g. 20GB (HUD_TUI_MAX_DISK; 10GB)",
    )
