"""The whole app on a terminal, which says on request what it has used of processor and memory."""

import os
import resource
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Thread
from time import process_time

from hud_tui.cli import main as main_module
from tests.bench.terminal import Terminal, program


@dataclass(frozen=True)
class TimedApp:
    terminal: Terminal
    ask: int
    told: int
    """Files of the questions and the answers."""

    def used_s(self) -> float:
        """Seconds that all of its threads have used so far."""
        return self._usage()[0]

    def peak_bytes(self) -> int:
        """The most memory that it has occupied so far."""
        return int(self._usage()[1])

    def _usage(self) -> tuple[float, float]:
        os.write(self.ask, b"?")
        used_s, peak = map(float, os.read(self.told, 100).split())
        return used_s, peak


@contextmanager
def timed_app(arguments: Sequence[str], environ: dict[str, str]) -> Iterator[TimedApp]:
    """The app with these arguments, until the end of the block."""
    asked, ask = os.pipe()
    told, report = os.pipe()
    command = ("-m", "tests.bench.timed_app", str(asked), str(report), *arguments)
    with program(command, environ, pass_fds=(asked, report)) as terminal:
        yield TimedApp(terminal, ask, told)
    for file in (asked, ask, told, report):
        os.close(file)


def main() -> int:
    asked, report = map(int, sys.argv[1:3])

    def answer() -> None:
        while os.read(asked, 1):
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            unit = 1 if sys.platform == "darwin" else 1024
            os.write(report, f"{process_time()} {peak * unit}\n".encode())

    Thread(target=answer, daemon=True).start()
    return main_module.main(sys.argv[3:])


if __name__ == "__main__":
    sys.exit(main())
