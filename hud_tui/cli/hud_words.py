"""Commands as users of HUD's own command line type them: what has an equal here is done by it, and
what has none is answered with the program that does it."""

from collections.abc import Sequence

from hud_tui.errors import HudUsage

SAME = {
    ("models", "list"): ("models",),
    ("models", "fork"): ("fork",),
    ("models", "checkpoints"): ("checkpoints",),
    ("models", "head"): ("head",),
    ("jobs", "list"): ("jobs",),
    ("jobs", "get"): ("traces",),
    ("jobs", "cancel"): ("jobs", "--cancel"),
    ("rl", "run"): ("run",),
    ("rl", "status"): ("status",),
    ("rl", "init"): ("init",),
    ("rl",): ("run",),
    ("analyze",): ("init", "--dry-run"),
    ("version",): ("--version",),
}
"""How a command begins there and here."""
FLAGS = {"--json": "--headless"}
OF_FORK = {"-n": "--name"}
ELSEWHERE = ("deploy", "harbor", "project", "qa", "set", "sync", "task")
"""Commands of which this program has no equal."""
BEFORE = ("--headless", "--json", "--local")
"""Flags that may come before a command, as `--host URL` may."""


def translated(argv: Sequence[str]) -> list[str]:
    """The command line with this program's words. Raises HudUsage: a command of HUD's that this
    program has no equal of."""
    words = [FLAGS.get(word, word) for word in argv]
    first = _command_index(argv)
    for length in (2, 1):
        command = tuple(words[first : first + length])
        if (here := SAME.get(command)) is not None:
            words[first : first + length] = here
            break
    command_name = words[first] if first < len(words) else ""
    if command_name == "hf":
        raise HudUsage("hf is convert here", "hud-tui convert --help")
    if command_name in ELSEWHERE:
        hint = f"HUD's own program has it: hud {command_name}"
        raise HudUsage(f"hud-tui has no {command_name}", hint)
    return _with_flags_of(command_name, words)


def _command_index(argv: Sequence[str]) -> int:
    """Where the command stands, after the flags that may come before it."""
    first = 0
    while first < len(argv) and (argv[first] in BEFORE or argv[first] == "--host"):
        first += 2 if argv[first] == "--host" else 1
    return first


def _with_flags_of(command_name: str, words: list[str]) -> list[str]:
    """A command's words with the flags that it has here."""
    if command_name == "fork":
        words = [OF_FORK.get(word, word) for word in words]
    if command_name in ("run", "preflight"):
        words = [word for word in words if word != "--dataset"]  # its value is the SOURCE
    if command_name == "run" and "prime" in words:
        at = words.index("prime")
        if words[at - 1] == "--provider":  # from whom else machines are rented has no part in it
            del words[at - 1 : at + 1]
    return words
