"""``log``: what was changed from this machine, and how to do it again."""

import argparse
from datetime import datetime

from hud_tui.command_log import CommandLog
from hud_tui.errors import HudUsage
from hud_tui.headless.output import emit
from hud_tui.rl.retold import document
from hud_tui.rl.text import one_line
from hud_tui.rl.written import Written, change_text, matching
from hud_tui.settings import Paths

KIND = "log"


def log(args: argparse.Namespace, paths: Paths) -> int:
    """Print the newest entries, oldest first, as a document or as lines.

    Raises:
        HudUsage: The limit is none.
    """
    if args.limit < 1:
        raise HudUsage(f"--limit {args.limit}: expected 1 or more")
    kept, bad = CommandLog(paths.state).read()
    found = matching(kept, args.text or "")
    shown = found[-args.limit :]
    if args.headless:
        facts = {"total": len(found), "left_out": len(found) - len(shown), "unreadable": bad}
        emit(KIND, {"entries": [document(one) for one in shown], **facts})
        return 0
    for one in shown:
        print(_line(one))
    if not shown:
        print("nothing was changed from this machine yet" if not kept else "no entry has this text")
    if bad:
        print(f"{bad} lines of the log cannot be read")
    return 0


def _line(one: Written) -> str:
    when = datetime.fromtimestamp(one.at).isoformat(" ", "seconds")
    what = f"{when}  {one.outcome:<8}{one.verb:<11}{one.name or one.model[:8]}  {change_text(one)}"
    return one_line(f"{what}  {one.said}".rstrip(), 400)
