"""Long scripts on a machine, which go on where the connection breaks.

A job is started once, under an id, in a folder of its own: ``run`` is its script, ``job`` a link
whose target is PID@BOOT@START, ``log`` its output, and ``rc`` its exit code once it has ended.
"""

import re
import secrets
from dataclasses import dataclass

from hud_tui.errors import HudMalformed
from hud_tui.rl.text import one_line

PIECE = 200_000
"""Bytes of a job's log that are read at a time."""
JOB_ID = re.compile(r"[a-z]{1,20}\.[0-9a-f]{8}")
_AGAIN = "is its disk full? the same command looks what is done, and starts the step again"


@dataclass(frozen=True)
class Poll:
    code: int | None
    """Its exit code; None if it has not ended."""
    gone: bool
    """Whether neither a process nor an exit code of it is there."""
    piece: str
    """Its output since the position that was asked for."""
    count: int
    """Bytes of that."""


def new_job(step: str) -> str:
    """An id for a job, with the step's name."""
    return f"{step}.{secrets.token_hex(4)}"


def start_job(id_: str, script: str) -> str:
    """A script that starts a job once: only who creates its folder starts it."""
    body = (
        f'. "$(dirname "$0")/../../names"; J="$R/jobs/{id_}"; cd "$R" || exit 1\n'
        'ln -s "$(mark $$)" "$J/job" || exit 1\n'
        '[ -f "$R/secrets" ] && { set -a; . "$R/secrets"; set +a; }\n'
        f'job() {{\n{script}\n}}\n(job) > "$J/log" 2>&1 </dev/null\n'
        'echo $? > "$J/rc.part"; mv "$J/rc.part" "$J/rc"\n'
    )
    return (
        f'J="$R/jobs/{id_}"; umask 077\nmkdir "$J" 2>/dev/null || return 0\n'
        f"{written(f'jobs/{id_}/run', body)}"
        "group=; command -v setsid >/dev/null 2>&1 && group=setsid\n"
        '$group nohup sh "$J/run" >/dev/null 2>&1 </dev/null &\n'
    )


def poll_job(id_: str, offset: int) -> str:
    """A script that prints a job's state, and its output since `offset`."""
    return (
        f'J="$R/jobs/{id_}"; bad() {{ echo "bad $1"; exit 0; }}\n'
        'real() { [ ! -e "$2" ] || [ "$1" "$2" ] || bad "${2#"$J"}"; }\n'
        'real -d "$J"; real -f "$J/rc"; real -f "$J/log"\n'
        "code() {\n"
        "  rc=$(head -c 9 \"$J/rc\" | tr -d '\\000')\n"
        '  case $rc in [0-9] | [0-9][0-9] | [0-9][0-9][0-9]) state="rc $rc" ;; *) bad /rc ;; esac\n'
        "}\n"
        '{ [ ! -e "$J/job" ] && [ ! -L "$J/job" ]; } || pid_in "$J/job" >/dev/null || bad /job\n'
        'if [ -f "$J/rc" ]; then code\n'
        'elif alive "$J/job"; then state=alive\n'
        'elif [ -f "$J/rc" ]; then code; else state=gone; fi\n'
        'echo "$state"; [ -f "$J/log" ] || { echo 0; exit 0; }\n'
        f'tail -c +{offset + 1} "$J/log" | head -c {PIECE} > "$J/piece.$$"\n'
        'wc -c < "$J/piece.$$"; cat "$J/piece.$$"; rm -f "$J/piece.$$"\n'
    )


def read_poll(text: str) -> Poll:
    """What `poll_job` printed. Raises HudMalformed: a file of the job is not as it wrote it; the
    message is the file's path within the job's folder."""
    state, _, rest = text.partition("\n")
    count, _, piece = rest.partition("\n")
    match = re.fullmatch(r"rc (\d{1,3})|alive|gone", state, re.ASCII)
    number = re.fullmatch(r" *(\d{1,7})", count, re.ASCII)
    if match is None or number is None:
        raise HudMalformed(one_line(state.removeprefix("bad ").strip(), 80), _AGAIN)
    code = None if match[1] is None else int(match[1])
    return Poll(code, state == "gone", piece, int(number[1]))


def written(name: str, text: str) -> str:
    """A script that writes a file atomically; its mode follows the umask."""
    end = f"EOF-{secrets.token_hex(8)}"
    part = f'"$R/{name}.part"'
    return f"cat > {part} <<'{end}' && mv {part} \"$R/{name}\" || return 1\n{text}\n{end}\n"
