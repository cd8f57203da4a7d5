"""``log``: the command log of this machine."""

import argparse

from hud_tui.audit_log import CommandLog, change_text, document, local_time, matching
from hud_tui.cli.connect import connector_of, paths_of, run_command
from hud_tui.cli.output import emit, flags_of
from hud_tui.errors import refuse_beyond
from hud_tui.rl.text import counted, one_line


def log(args: argparse.Namespace) -> int:
    """Print the newest entries, oldest first, as a document or as lines. Raises HudUsage: invalid
    limit."""
    if args.server:
        from hud_tui.cli.access import server_log

        return run_command(server_log, args, connector_of(args))
    refuse_beyond("--limit", args.limit, {"ge": 1})
    entries, bad = CommandLog(paths_of(args).state).read()
    matches = matching(entries, args.text or "")
    shown = matches[-args.limit :]
    if args.headless:
        facts = {"total": len(matches), "omitted": len(matches) - len(shown), "unreadable": bad}
        documents = [document(entry, flags_of(args)) for entry in shown]
        emit("log", {"entries": documents, **facts})
        return 0
    for entry in shown:
        model = entry.name or entry.model[:8]
        what = (
            f"{local_time(entry)}  {entry.outcome:<8}{entry.verb:<10} {model}  {change_text(entry)}"
        )
        print(one_line(f"{what}  {entry.message}".rstrip(), 400))
    if not shown:
        print("no changes from this machine yet" if not entries else "no entry matches")
    if bad:
        print(f"{counted(bad, 'unreadable line')} in the log")
    return 0
