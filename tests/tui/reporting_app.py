"""The app that `typed_app` starts: it says of every key which screen and field it came to.

It imports nothing of the tests, which would take longer to load than the app.
"""

import asyncio
import json
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

STACKS_END = b"-- end of stacks"


def tell_stacks(app: Any) -> None:
    """Say on the terminal what holds keys back, and where every task is that waits for neither a
    message nor a timer."""
    print(vars(app.type_ahead), app.screen_stack, file=sys.__stderr__)
    for task in asyncio.all_tasks():
        lines = list(_frames(task.get_coro()))
        if not any("_get_message" in line or "timer.py" in line for line in lines):
            print("\n".join([task.get_name(), *lines]), file=sys.__stderr__)
    print(STACKS_END.decode(), file=sys.__stderr__, flush=True)


def _frames(awaited: Any) -> Iterator[str]:
    """The frames of a coroutine and of what it awaits."""
    while awaited is not None:
        frame = getattr(awaited, "cr_frame", None) or getattr(awaited, "gi_frame", None)
        if frame is not None:
            yield f"  {frame.f_code.co_filename}:{frame.f_lineno} {frame.f_code.co_name}"
        awaited = getattr(awaited, "cr_await", None) or getattr(awaited, "gi_yieldfrom", None)


def main() -> int:
    """The app, reporting: an empty object when it takes keys, then one a key."""
    from textual.events import Event, Key
    from textual.widgets import Input

    from hud_tui.cli import main as main_module
    from hud_tui.tui import app as module
    from hud_tui.tui import keys

    out, patience_s, *arguments = sys.argv[1:]

    def tell(**said: Any) -> None:
        with suppress(OSError):
            os.write(int(out), json.dumps(said).encode() + b"\n")

    class Reporting(module.HudApp):
        """Tells of a key when it is given to what has the focus, as the app is at that moment."""

        async def _hand_on(self, event: Event) -> None:
            if isinstance(event, Key):
                at, field = self.screen, self.screen.focused
                tell(
                    key=event.key,
                    screen=type(at).__name__,
                    focus="" if field is None else field.id or type(field).__name__,
                    value=field.value if isinstance(field, Input) else None,
                    stack=len(self.screen_stack),
                )
            await super()._hand_on(event)

        def on_ready(self) -> None:
            signal.signal(signal.SIGUSR1, lambda *_: tell_stacks(self))
            tell()

    keys.PATIENCE_S = float(patience_s)  # a slow machine is no reason to pass a key on
    module.HudApp = Reporting
    return main_module.main(arguments)


if __name__ == "__main__":
    sys.exit(main())
