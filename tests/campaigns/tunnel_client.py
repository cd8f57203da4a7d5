"""A program that calls a service through its tunnel, for `tests.campaigns.tunnel`.

It prints for each call that was answered when that began, in seconds since this machine booted. It
keeps the tunnel going, as every client does.
"""

import asyncio
import signal
from contextlib import suppress

from hud_tui.client.client import HudClient
from hud_tui.errors import HudError
from hud_tui.local_service import connect_local
from hud_tui.processes import boot_s
from hud_tui.service_file import with_machine
from hud_tui.settings import read_paths

ANSWER_S = 5.0
PAUSE_S = 0.25


async def connected() -> HudClient:
    while True:
        with suppress(HudError):
            return await connect_local(with_machine(read_paths()), lambda text: None)


async def call(client: HudClient) -> None:
    while True:
        began = boot_s()
        with suppress(HudError, TimeoutError):
            async with asyncio.timeout(ANSWER_S):
                await client.whoami()
            print(began, flush=True)
        await asyncio.sleep(PAUSE_S)


async def main() -> None:
    calling = asyncio.current_task()
    assert calling is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, calling.cancel)
    client = await connected()
    try:
        await call(client)
    finally:
        await client.aclose()


if __name__ == "__main__":
    with suppress(asyncio.CancelledError):
        asyncio.run(main())
