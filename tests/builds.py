"""Which commit a bug report is about: the commits whose package has a build.

``python -m tests.builds BUILD`` takes the build that ``hud-tui --version`` says.
"""

import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from hud_tui.build import ENDINGS, digest_of, hash_of

ROOT = Path(__file__).parents[1]
PACKAGE = "hud_tui"


def git(*words: str) -> bytes:
    return subprocess.run(["git", *words], cwd=ROOT, stdout=subprocess.PIPE, check=True).stdout


@cache
def content(blob: str) -> str:
    """The hash of a file's content."""
    return hash_of([git("cat-file", "blob", blob)])


def build_of(commit: str) -> str:
    """The build of a commit's package."""
    hashes = []
    for row in git("ls-tree", "-r", "-z", commit, f"{PACKAGE}/").decode().split("\0")[:-1]:
        facts, path = row.split("\t", 1)
        if path.endswith(ENDINGS):
            hashes.append((path.removeprefix(PACKAGE), content(facts.split()[2])))
    return digest_of(hashes)


def builds() -> Iterator[tuple[str, str]]:
    """(commit, its build) of every commit that changed the package, newest first."""
    for commit in git("rev-list", "--all", "--date-order", "--", PACKAGE).decode().split():
        yield commit, build_of(commit)


def main(build: str) -> int:
    for commit, known in builds():
        if known == build:
            print(git("log", "-1", "--format=%h %ad %s", "--date=short", commit).decode().strip())
            return 0
    print(f"no commit here has build {build}: it has changes of its own, or is newer than this")
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
