"""HTTP by hand, for callers that are not to take the processor that is measured.

``python -m tests.bench.by_hand HOST PORT COUNT REQUEST`` repeats a request over so many
connections, until it is killed.
"""

import asyncio
import json
import sys
from contextlib import closing, suppress


def request_of(
    line: str, host: str, authorization: str, body: object = None, etag: str = ""
) -> str:
    """A request; its line is e.g. ``GET /v2/models``."""
    sent = "" if body is None else json.dumps(body)
    head = [f"{line} HTTP/1.1", f"Host: {host}", f"Authorization: {authorization}"]
    head += [f"If-None-Match: {etag}"] if etag else []
    head += [f"Content-Length: {len(sent)}"] if sent else []
    return "\r\n".join([*head, "", sent])


async def read_answer(reader: asyncio.StreamReader) -> tuple[int, dict[str, str]]:
    """Read a whole answer; its status and its headers, by their names in small letters."""
    first, *rows = (await reader.readuntil(b"\r\n\r\n")).decode().lower().split("\r\n")
    headers = dict(row.split(": ", 1) for row in rows if row)
    await reader.readexactly(int(headers.get("content-length", "0")))
    return int(first.split()[1]), headers


async def _repeat(host: str, port: str, request: bytes) -> None:
    while True:
        reader, writer = await asyncio.open_connection(host, int(port))
        with closing(writer), suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                writer.write(request)
                await read_answer(reader)


async def main(host: str, port: str, count: str, request: str) -> None:
    await asyncio.gather(*(_repeat(host, port, request.encode()) for _ in range(int(count))))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
