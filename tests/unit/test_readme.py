"""README and docs say what the program does, and what they name is there."""

import asyncio
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout, suppress
from io import StringIO
from pathlib import Path

import pytest
from httpx import AsyncClient

from hud_tui.cli.commands import COMMANDS, build_parser
from hud_tui.keys import ACTIONS
from tests.conftest import bearer, fork
from tests.readme import (
    ALARMS,
    DEVELOPMENT,
    ENVIRONMENTS,
    KEYS,
    PARAMETERS,
    README,
    ROOT,
    RUNS,
    alarms_page,
    development_page,
    environments_page,
    keys_page,
    parameters_page,
    runs_page,
    with_part,
)
from tests.service.calls import step
from tests.unit.test_vocabulary import SOURCES, texts

PAGES = [README, *sorted((ROOT / "docs").glob("*.md"))]
PROSE = re.compile(r"(?ms)^```.*?^```\n?|^\|.*?\n|^<!--.*?\n|^    .*?\n")
FENCED = re.compile(r"(?ms)^```(?:sh|console)\n(.*?)^```")
ADDED = {
    "A metric": """from hud_tui.rl.metrics import TABLE
assert "grad_cosine" in [metric.key for metric in TABLE]""",
    "A detector": """from hud_tui.rl.alarms.demos import PATHOLOGIES
from tests.unit.inspecting import inspect, rows_of
demo = PATHOLOGIES["ratio-spike"]
(alarm,) = inspect(rows_of(demo), steps=demo.steps).alarms
assert (alarm.name, alarm.onset) == ("ratio_spike", demo.onset)""",
    "A policy loss": """import numpy as np
from hud_tui.service.engines.base import loss_config
from hud_tui.service.engines.tiny.training import token_weights
config, token = loss_config("reinforce", {}), np.array([-0.5])
assert token_weights("reinforce", config, token, token, np.array([2.0])) == (2.0, 1.0)""",
    "An engine": """from pathlib import Path
from hud_tui.service.serving import make_engine
assert [base.name for base in make_engine("bigram", Path(), 1).bases()] == ["bigram/none"]""",
    "An environment": """from hud_tui.service.environments import ENVIRONMENTS, TASKSETS
even, tasks = ENVIRONMENTS["parity"].scenarios["even"], TASKSETS["parity"].tasks
assert [even.grade(task["args"], "yes") for task in tasks].count(1.0) > 10""",
    "A screen": """from hud_tui.keys import ACTIONS, VIEWS
from hud_tui.tui.app import view_class
from hud_tui.tui.screens.notes import NotesScreen
assert VIEWS[-1] == "notes" and view_class("notes") is NotesScreen
assert "9" in [action.keys for action in ACTIONS]""",
    "A parameter": """from hud_tui.audit_log import AuditEntry, as_hud_tui
from hud_tui.cli.commands import build_parser
from hud_tui.parameters import RECORDED_PARAMETERS
from hud_tui.rl.settings import setting_label
from hud_tui.rollouts.run_files import Options, read_option
parse = build_parser().parse_args
assert parse(["train", "env.py", "--resamples", "5"]).resamples == 5
assert read_option(RECORDED_PARAMETERS["resamples"], "5") == {"resamples": 5}
assert Options(resamples=5).flags["resamples"] == 5
assert setting_label("resamples") == "resamples"
log = AuditEntry(at=0, verb="train", source="env.py", body='{"options": {"resamples": 5}}')
assert "--resamples=5" in as_hud_tui(log)""",
    "A headless command": """import hud_tui.cli.models
from hud_tui.cli.commands import build_parser
assert build_parser().parse_args(["lineage", "arith-rl"]).model == "arith-rl"
assert hud_tui.cli.models.lineage""",
    "A column of Runs": """from hud_tui.rl.run_columns import columns, parse_filter, sort_rows
from hud_tui.rl.work import Work
from tests.readme import columns as documented
runs = [Work(id, step_s=step_s) for id, step_s in (("a", 6.0), ("b", 3.0))]
assert [run.id for run in sort_rows(runs, "pace", 0)] == ["b", "a"]
assert [run.id for run in runs if parse_filter("pace<=3", 0)(run)] == ["b"]
assert columns("+pace")[-1].text(runs[0], 0) == "6 s"
assert "median of its newest steps" in documented()""",
    "A wire field": """import hud_tui.service.session, hud_tui.tui.widgets.checkpoint_details
from hud_tui.service.engines.base import Adam
from hud_tui.wire import Checkpoint
assert Checkpoint(id="c", adam_beta1=Adam(1e-3).beta1).adam_beta1 == 0.9""",
}
"""What is there once a diff of docs/development.md is applied, by the diff's heading."""


@pytest.mark.parametrize(
    ("page", "made"),
    [
        (KEYS, keys_page),
        (RUNS, runs_page),
        (PARAMETERS, parameters_page),
        (ENVIRONMENTS, environments_page),
        (DEVELOPMENT, development_page),
        (ALARMS, alarms_page),
    ],
)
def test_keys_and_columns_are_those_of_the_program(page: Path, made: Callable[[str], str]) -> None:
    text = page.read_text()
    assert made(text) == text, "run: python -m tests.readme"


def test_a_part_without_markers_is_refused() -> None:
    with pytest.raises(ValueError, match="no part keys"):
        with_part("nothing here", "keys", "")


def test_every_picture_is_there() -> None:
    named = re.findall(r"\]\((screenshots/[^)]+)\)", README.read_text())
    assert named
    assert [name for name in named if not (ROOT / name).is_file()] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_leads_somewhere(page: Path) -> None:
    text = re.sub(r"(?ms)^```.*?^```", "", page.read_text())
    links = re.findall(r"\]\((?!https?:)([^)#]*)(?:#([\w-]+))?\)", text)
    for file, part in links:
        target = (page.parent / file).resolve() if file else page
        assert target.is_file(), file
        if part:
            heads = re.findall(r"(?m)^#+ (.*)$", target.read_text())
            slugs = {re.sub(r"[^\w -]", "", head.lower()).replace(" ", "-") for head in heads}
            assert part in slugs, f"{file}#{part}"


@pytest.mark.parametrize("page", [*PAGES, ROOT / "CHANGELOG.md"], ids=lambda page: page.name)
def test_pages_fit_on_a_screen(page: Path) -> None:
    text = page.read_text()
    wide = [line for line in PROSE.sub("", text).splitlines() if len(line) > 100]
    assert [line for line in wide if " " in line.strip()] == []
    rows = re.findall(r"(?m)^\|(.*)\|$", re.sub(r"(?ms)^```.*?^```", "", text))
    cells = [cell.strip() for row in rows for cell in re.split(r"(?<!\\)\|", row)]
    assert [cell for cell in cells if len(cell) > 160] == []


def commands_of(page: Path) -> Iterator[list[str]]:
    """The commands of this program in a page's blocks, as words."""
    for block in FENCED.findall(page.read_text()):
        for line in block.splitlines():
            line = re.sub(r"(?<!\S)#.*|2?>.*|&$", "", line.removeprefix("$ ")).split("; echo")[0]
            for part in re.split(r"&&|\|", line):
                words = [word for word in shlex.split(part) if not re.match("[A-Z_]+=", word)]
                if words and words[0].endswith("hud-tui") and "…" not in words:
                    yield words[1:]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_command_is_one_that_the_program_takes(page: Path) -> None:
    for words in commands_of(page):
        build_parser().parse_args(words)


def test_the_examples_of_help_are_commands_that_the_program_takes() -> None:
    parser, examples = build_parser(), list[str]()
    for name in COMMANDS:
        with redirect_stdout(StringIO()) as shown, suppress(SystemExit):
            parser.parse_args([name, "--help"])
        examples += re.findall(r"(?m)^  hud-tui (.*)$", shown.getvalue().split("examples:\n")[1])
    for example in examples:
        parser.parse_args(shlex.split(example))


def test_every_key_of_the_pages_is_one_of_the_app() -> None:
    shown = {key for action in ACTIONS for key in action.all_shown.split()}
    named = {key.replace("ctrl+", "^").lower() for key in shown} | {"shift"}
    for page in PAGES:
        keys = re.findall(r"<kbd>(.*?)</kbd>", page.read_text())
        assert {key for key in keys if key.replace("ctrl+", "^").lower() not in named} == set()


def test_every_command_is_in_the_page_of_headless_commands() -> None:
    text = (ROOT / "docs/headless.md").read_text()
    rows = set(re.findall(r"(?m)(?:^\||,) `([a-z-]+)", text))
    assert COMMANDS.keys() - rows == set()


def test_the_readme_leads_to_every_page() -> None:
    linked = set(re.findall(r"\(docs/([\w-]+\.md)", README.read_text()))
    assert linked == {page.name for page in PAGES[1:]}


def explained() -> Iterator[str]:
    """What the pages' tables say that the program says."""
    messages = (ROOT / "docs/rent-a-gpu.md").read_text().split("## Messages\n", 1)[1]
    yield from (row.split(" | ")[0].removeprefix("| ") for row in messages.splitlines()[4:])
    for page in ("stuck.md", "slow.md"):
        rows = re.findall(r"(?m)^\| (.*) \|$", (ROOT / "docs" / page).read_text())[1:]
        said = [row.split(" | ")[0] if page == "stuck.md" else row for row in rows]
        spans = re.findall(r"`(.*?)`", "\n".join(said))
        yield from (span for span in spans if not span.startswith("-"))


def test_the_messages_that_are_explained_are_those_of_the_program() -> None:
    """Each by its longest run of plain words."""
    said = "\n".join(text for file in SOURCES for _, text in texts(file))
    for message in explained():
        parts = re.split(r"[`():;,…@⚠↻]|\b[A-Z]{2,}\b|\b[A-Z]\b|\$\w|\d\S*", message)
        assert max((part.strip() for part in parts), key=len) in said, message


def test_each_promise_of_security_has_tests_that_are_there() -> None:
    text = (ROOT / "docs/security.md").read_text()
    promises = re.findall(r"(?m)^\| ([A-Z].*?) \| (.*) \|$", text)
    assert len(promises) > 20
    for promise, held in promises:
        files = re.findall(r"((?:`test_\w+`(?:, )?)+) in (tests/\S+\.py)", held)
        assert files, promise
        for names, file in files:
            source = (ROOT / file).read_text()
            for name in re.findall(r"`(\w+)`", names):
                assert re.search(rf"(?m)^(async )?def {name}\(", source), (promise, name)


def test_the_readme_is_short() -> None:
    assert len(README.read_text().splitlines()) <= 250


def test_the_loop_is_the_one_that_the_tests_run() -> None:
    source = (ROOT / "tests" / "live" / "training_loop.py").read_text()
    loop = source[source.index("import asyncio") :].strip()
    assert f"```python\n{loop}\n```" in (ROOT / "docs" / "training-client.md").read_text()


def hunks(diff: str) -> Iterator[tuple[str, str, str]]:
    """(file, lines before, lines after) of every hunk."""
    for part in re.split(r"(?m)^\+\+\+ ", diff)[1:]:
        file, *changes = re.split(r"(?m)^@@\n|(?<=\.py)\n(?=@@)", part)
        for change in filter(None, changes):
            lines = [line or " " for line in change.splitlines()]
            before = [line[1:] for line in lines if line[0] in " -"]
            after = [line[1:] for line in lines if line[0] in " +"]
            yield file, "\n".join(before), "\n".join(after)


def added() -> dict[str, str]:
    """What docs/development.md adds, as differences by their titles."""
    page = (ROOT / "docs" / "development.md").read_text()
    return dict(re.findall(r"(?ms)^### ([^\n]+)$(?:(?!^###).)*?^```diff\n(.*?)^```", page))


def test_what_development_adds_can_be_added_so(tmp_path: Path) -> None:
    diffs = added()
    assert diffs.keys() == ADDED.keys()
    first = re.findall(r"(?ms)^```diff\n(.*?)^```", (ROOT / "docs/contributing.md").read_text())
    shutil.copytree(ROOT / "hud_tui", tmp_path / "hud_tui")
    left_out = shutil.ignore_patterns("__snapshots__", "tui", "live")
    shutil.copytree(ROOT / "tests", tmp_path / "tests", ignore=left_out)
    (tmp_path / "styles").symlink_to(ROOT / "styles")
    for diff in [*diffs.values(), *first]:
        for name, before, after in hunks(diff):
            file = tmp_path / name
            text = file.read_text() if before else ""
            if diff in first and after in text:
                continue  # a newcomer follows the page, and runs this
            assert text.count(f"{before}\n") == 1 if before else not file.exists(), (name, before)
            file.write_text(text.replace(before, after) if before else f"{after}\n")
    paths = os.pathsep.join([str(tmp_path), str(ROOT)])
    command = [sys.executable, "-c", "\n".join(ADDED.values())]
    environ = os.environ | {"PYTHONPATH": paths}
    subprocess.run(command, cwd=tmp_path, env=environ, check=True)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    files = ["tests/engines/test_contract.py", "tests/unit/test_metrics.py"]
    tried = ["-m", "pytest", "-q", "-n", "0", *files, "-k", "bigram or teacher"]
    subprocess.run([sys.executable, *tried], cwd=tmp_path, env=environ, check=True)


async def test_an_engine_that_is_added_so_is_served_and_trains(tmp_path: Path) -> None:
    diff = added()["An engine"]
    [(name, _, engine)] = hunks(diff)
    assert len(engine.splitlines()) <= 110
    shutil.copytree(ROOT / "hud_tui", tmp_path / "hud_tui")
    (tmp_path / name).write_text(f"{engine}\n")
    directories = {f"HUD_TUI_{kind}_DIR": str(tmp_path / kind) for kind in ("STATE", "DATA")}
    environ = os.environ | directories | {"PYTHONPATH": str(tmp_path)}
    command = [sys.executable, "-m", "hud_tui", "serve", "--engine", "bigram"]
    serving = await asyncio.create_subprocess_exec(
        *command, cwd=tmp_path, env=environ, stdout=subprocess.PIPE
    )
    try:
        assert serving.stdout is not None
        ready = json.loads(await serving.stdout.readline())
        headers = bearer(ready["api_key"])
        async with AsyncClient(base_url=ready["url"], headers=headers, verify=False) as http:
            model = await fork(http)
            assert model["base_model"] == "bigram/none"
            assert (await step(http, model))["step"] == 1
    finally:
        serving.terminate()
        await serving.communicate()
