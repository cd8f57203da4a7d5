"""Completion in shells, with names as they were last read, and the manual page."""

import os
import subprocess
from pathlib import Path
from shlex import quote
from shutil import which

import pytest

from hud_tui.cli.commands import COMMANDS
from hud_tui.cli.main import main
from hud_tui.known_names import file_of, keep
from tests.conftest import Served
from tests.service.clients import over_socket

JOB = "521866b0-96d0-4b5a-9ff8-be8d9a045f17"
HOSTILE = ["a b", "$(touch x)", "`id`", "x;y", "-rf\n", "é", ""]
ASK = """source {script}
asked() {{
  COMP_WORDS=(hud-tui "$@" ""); COMP_CWORD=$(($# + 1)); COMPREPLY=()
  [ -n "$LAST" ] && COMP_WORDS[$COMP_CWORD]="$LAST"
  $(complete -p hud-tui | sed 's/.*-F \\([^ ]*\\).*/\\1/') hud-tui "$LAST" "${{COMP_WORDS[-2]}}"
  echo "${{COMPREPLY[*]}}"
}}
{calls}
"""


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    state = tmp_path / "of mine"
    monkeypatch.setenv("HUD_TUI_STATE_DIR", str(state))
    keep(state, "models", ["arith-rl", "arith-2", "tiny/arith-0.2M", *HOSTILE])
    keep(state, "jobs", [JOB])
    return state


def script_of(shell: str, state: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    assert main(["completion", shell]) == 0
    file = state.parent / f"completion.{shell}"
    file.write_text(capsys.readouterr().out)
    return file


@pytest.mark.skipif(which("bash") is None, reason="there is no bash")
def test_bash_completes_commands_flags_choices_and_names(
    state: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cases = {
        "LAST=chec asked": "checkpoints",
        "LAST=arith asked checkpoints": "arith-rl arith-2",
        "LAST=arith asked run arith -m": "arith-rl arith-2",
        "LAST=tiny asked fork": "tiny/arith-0.2M",
        "LAST=52 asked jobs": JOB,
        "LAST=--his asked head arith-rl": "--history",
        "LAST=--group asked run arith": "--group-size",
        "LAST= asked completion": "bash zsh fish",
        "LAST=pr asked pods": "protect",
        "LAST=tas asked run": "tasks.json",
        "LAST=sig asked run --draw": "signal",
        "LAST=tink asked serve --engine": "tinker",
        "LAST=lo asked import wandb": "logs",
        "LAST=cis asked run --loss-fn": "cispo",
        "LAST=res asked train --failed": "resample",
        "LAST=loc asked eval --runtime": "local",
        "LAST=al asked watch --until": "alarm",
        "LAST=gradient asked --demo": "gradient-explosion",
        "LAST=rewar asked runs --sort": "reward",
    }
    script, here = script_of("bash", state, capsys), state.parent
    (here / "tasks.json").touch()
    (here / "logs").mkdir()
    (here / "lost.txt").touch()
    text = ASK.format(script=script, calls="\n".join(cases))
    done = subprocess.run(
        ["bash", "-c", text], capture_output=True, text=True, check=True, cwd=here
    )
    assert dict(zip(cases, done.stdout.splitlines(), strict=True)) == cases
    assert not done.stderr


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_read_their_script(
    shell: str, state: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script = script_of(shell, state, capsys)
    assert f"cat {quote(str(file_of(state, 'models')))}" in script.read_text()
    if which(shell) is not None:
        subprocess.run([shell, "-n", script], check=True)
    if shell == "fish" and which(shell) is not None:
        ask = f"source {script}; complete -C 'hud-tui checkpoints arith-'"
        kept = {**os.environ, "HOME": str(state)}
        done = subprocess.run(["fish", "-c", ask], capture_output=True, text=True, env=kept)
        assert {row.split("\t")[0] for row in done.stdout.splitlines()} == {"arith-2", "arith-rl"}


async def test_what_a_client_reads_is_completed(served: Served, tmp_path: Path) -> None:
    async with over_socket(served) as client:
        client.on_names = lambda kind, names: keep(tmp_path, kind, names)
        models = await client.models()
        written = file_of(tmp_path, "models")
        assert written.read_text().split() == [model.model_name for model in models]
        before = written.stat().st_ino
        keep(tmp_path, "models", [model.model_name for model in models])
        assert written.stat().st_ino == before, "what is as it was is not written"
        keep(tmp_path, "models", [])
        assert written.read_text().split(), "an empty list says nothing"


def test_the_manual_page_has_every_command_and_flag(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["man"]) == 0
    page = capsys.readouterr().out
    for name in COMMANDS:
        assert f".SS {name}\n".replace("-", r"\-") in page
    assert r"\-\-max\-staleness" in page
    assert ".SS pods create\n" in page
    assert r"\fBHOST\fR" in page.partition(".SS remote add\n")[2].partition(".SS ")[0]
    assert r"hud\-tui \-\-headless head arith\-rl \-\-back 1" in page, "an example"
    assert "130 interrupted" in page.partition(".SH EXIT STATUS\n")[2]
    if which("man") is not None and which("groff") is not None:
        asked = ["groff", "-Kutf8", "-man", "-Tutf8", "-ww"]
        done = subprocess.run(asked, input=page, capture_output=True, text=True, check=True)
        assert not done.stderr
