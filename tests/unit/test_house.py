"""The house: how many rooms there are, how large, what hangs on what, and the ways through it."""

import ast
import os
import re
import subprocess
import sys
from collections import Counter
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import pointed_at

ROOT = Path(__file__).parents[2]
FILES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
    for path in sorted((ROOT / "hud_tui").rglob("*.py"))
}


@cache
def trees() -> dict[str, ast.Module]:
    return {name: ast.parse(path.read_text()) for name, path in FILES.items()}


WAYS = {
    "From a step to a pixel": 12,
    "From `H` to the verified head": 10,
    "From a submission to a step": 30,
    "From `eval` to an interval": 20,
    "`hud-tui --headless status`": 10,
}
"""Sections of docs/architecture.md, and most functions that a reader has to open."""
CONCEPTS = {
    "a column of Runs": "rl.run_columns: BY_PARAMETER DEFAULT_COLUMNS meaning_of",
    "the cursor of a list": "tui.widgets.table: Table RowList item_row",
    "how far a list scrolls and pages": "tui.widgets.lines: revealed page_of",
    "a request to a process and its answer": ("pipes: Pipe ProcessEnded answer_requests Inbox"),
    "waiting, and the next attempt": "patience: backoff retried Patience Looks in_time rest",
    "when a run samples, trains, evaluates and ends": (
        "rl.loop: Loop LoopFacts Streak FLAT_IN_A_ROW"
    ),
    "how work stands, how it ends, and whether it can be cancelled or resumed": (
        "rl.work: Work SUCCEEDED RESUMABLE has_ended is_lost End SHUTDOWN"
    ),
    "what the service stores of work that changes its status": (
        "service.store.works: requeue interrupt_all refuse_resuming"
    ),
    "who carries work out, stops it and stores its end": "service.works: Works Carried held_up",
    "how a client reads, follows, cancels and resumes work": "client.works: WorkClient tell_end",
    "how a driver reports, and hears that it is to stop": (
        "rollouts.worker_rollouts: report_until_stopped"
    ),
    "a mean with its interval, in a text": "rl.metrics: estimate_text interval_text gain_text",
    "the first field that does not fit its model": "wire: first_misfit",
    "which tasks a batch or an evaluation has, and what is missing": (
        "rl.plan: TaskSplit MissingRollouts missing_of in_parts tasks_of_iteration"
    ),
    "parameters of runs, evaluations and rollouts: bounds, defaults, meanings": (
        "parameters: Parameter RUN_PARAMETERS EVALUATION_PARAMETERS ROLLOUT_OPTIONS "
        "RECORDED_PARAMETERS USUAL flag_of"
    ),
    "where the time of a step went, and why rollouts are discarded": (
        "rl.timeline: LOOP_PARTS REASONS Account account_of account_all time_sentence"
    ),
    "measuring what a step waits for": "rl.stopwatch: Stopwatch",
    "which roles there are, and what each includes": "wire_access: why_not ADMIN_KEY",
    "whose request it is": "service.caller: Caller CALLER",
    "by whose key something was made, and who may end it": (
        "service.store.access: sign author refuse_others may_end refuse_protected"
    ),
    "how an evaluation is sampled": "sampling: Maker Ledger sample_missing",
    "how a curve is drawn, in cells and as SVG": (
        "rl.plot: Plot Layer Shape Flag Span Sketch dots crossed flagged svg xml"
    ),
    "which steps, columns and values a chart shows": (
        "rl.chart: Chart ChartData y_range y_scale LEAST_REWARD"
    ),
    "the axes around a plot": "tui.widgets.figure: PlotFigure axes figure",
    "intervals, and what two evaluations tell apart": (
        "rl.evaluation: interval student_t pass_at is_solved difference sentence"
    ),
    "what checks find, how severe it is, and how it is told": (
        "rl.findings: Finding RunCheck Check Severity SEVERITIES in_order worst_first verdict"
    ),
    "how fresh the screen is": "rl.progress: Liveness liveness fresh",
    "the moves of a head, and who made them": "rl.history: History merged attributed who",
    "how far a job or a loop is, in a line": "tui.screens.base: job_parts loop_parts",
    "counts, and long lists of names, in words": "rl.text: counted names_text",
    "tasks to train on and held out, in words": "rl.tasks.task: split_text",
    "the request of a run": "client.submit: job_of",
    "which pod is rented, which one is gone on with, and how it is set up": (
        "remote.pods: RentalRequest begun wish_of"
    ),
    "what is next of a run on a machine that is rented for it": (
        "remote.rent_plan: RentPlan RentFacts plan_rental"
    ),
    "what of a hud-vf-gym configuration is served": "legacy.gym_served: ServedGym serve_gym",
    "a label and what is beside it, and a text in so many cells": (
        "tui.widgets.lines: labelled fit_text"
    ),
    "a rollout as it is read, and as text": (
        "rl.transcript: Transcript EnvironmentPart transcript_of laid_out"
    ),
    "which rollouts a filter keeps, and where its words stand": (
        "rl.rollout_search: Sought Needles split_filter parse_row_filter where_found"
    ),
    "whether rewards have a gradient": (
        "rl.groups: has_signal has_gradient group_shares CROSS_ENTROPY"
    ),
}
"""The module that holds a concept, and names that no other module may give to something else."""
DONE_ONCE = {
    "a process is forked": (r"\bos\.fork\(", "rollouts.host"),
    "a file is held against other programs": (r"\bflock\(", "storage"),
    "the terminal's modes are set": (r"\btermios\b", "tui.driver"),
    "what colours a terminal has": ("COLORTERM", "terminal"),
    "the config file is read as TOML": (r"\btomllib\b", "config"),
    "the stream of events is read": (r"\bhttpx_sse\b", "client.feed"),
    "tables are made": ("CREATE TABLE", "service.store.tables"),
    "changes begin": ("BEGIN IMMEDIATE", "service.store.db"),
    "a notice is shown": (r"\b(self|app|_app|view)\.notify\(", "tui.screens.dialogs"),
    "a picture is SVG": ("<svg", "rl.plot"),
    "a validator is built": (r"\(BaseModel\b|\bTypeAdapter\(", "wire"),
    "a crash is written down": (r"crash-\{", "tui.app"),
}
"""What a text stands for, and the one module that has it."""
ROW = re.compile(r"^\| `([\w.]+)` \| ([\w/]+\.py) \|", re.MULTILINE)


def needed(name: str) -> set[str]:
    """Our modules that a module imports: plainly, for types only, or in a function."""
    found = set()
    for node in ast.walk(trees()[name]):
        if isinstance(node, ast.ImportFrom) and (node.module or "") in FILES:
            full = {f"{node.module}.{one.name}" for one in node.names}
            found |= {one if one in FILES else str(node.module) for one in full}
    return found - {name}


def test_each_concept_stands_once() -> None:
    places: dict[str, list[str]] = {}
    for file, tree in trees().items():
        for name in _given(tree):
            places.setdefault(name, []).append(file)
    for concept, held in CONCEPTS.items():
        module, names = held.split(": ")
        for name in names.split():
            assert places.get(name) == [f"hud_tui.{module}"], (concept, name)


def test_it_is_done_in_one_module() -> None:
    texts = {name: file.read_text() for name, file in FILES.items()}
    for what, (pattern, module) in DONE_ONCE.items():
        modules = [name for name, text in texts.items() if re.search(pattern, text)]
        assert modules == [f"hud_tui.{module}"], what


def test_no_module_needs_itself_by_way_of_others() -> None:
    """Counting what is imported for types, and in functions."""
    graph = {name: needed(name) for name in FILES}
    while free := {name for name, needs in graph.items() if not needs & graph.keys()}:
        graph = {name: needs for name, needs in graph.items() if name not in free}
    leads = {need for needs in graph.values() for need in needs}
    assert {name for name in graph if name in leads} == set()


def test_no_handler_is_called_again_by_super() -> None:
    """Textual calls the ``on_…`` methods of every class of a widget by itself."""
    handlers = re.compile(r"super\(\)\.on_(?!event\b)\w+\(")
    files = [file for file in FILES if file.startswith("hud_tui.tui.")]
    assert [file for file in files if handlers.search(FILES[file].read_text())] == []


def test_no_module_gives_a_name_to_two_things() -> None:
    """The second would be the first's as well, wherever that is used."""
    twice = {name: given for name, tree in trees().items() if (given := _given_twice(tree))}
    assert twice == {}


def _given_twice(tree: ast.Module) -> list[str]:
    """Constants, functions and classes that a module has more than once."""
    return [name for name, count in Counter(_given(tree)).items() if count > 1]


def _given(tree: ast.Module) -> list[str]:
    """Constants, functions and classes of a module."""
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    names = [node.name for node in tree.body if isinstance(node, kinds)]
    for node in tree.body:
        if isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names += [target.id for target in targets if isinstance(target, ast.Name)]
    return names


@pytest.mark.parametrize("way", WAYS)
def test_the_ways_name_functions_that_are_there(way: str) -> None:
    text = (ROOT / "docs/architecture.md").read_text()
    section = text.split(f"## {way}\n", 1)[1].split("\n## ", 1)[0]
    steps = ROW.findall(section)
    assert 5 <= len(steps) <= WAYS[way]
    for function, file in steps:
        found: Any = import_module("hud_tui." + file.removesuffix(".py").replace("/", "."))
        for name in function.split("."):
            found = getattr(found, name)
        assert found.__module__ == "hud_tui." + file.removesuffix(".py").replace("/", ".")


def test_a_headless_command_loads_what_it_needs() -> None:
    """No detectors where no alarm is raised, and no feed of events where none is followed."""
    code = """import contextlib, io, sys
from hud_tui.cli.main import main
with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
    assert main(["--headless", "checkpoints", "m"]) == 3
print(*sys.modules)"""
    command = [sys.executable, "-c", code]
    environ = os.environ | pointed_at("http://127.0.0.1:9", "k")
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environ)
    unneeded = {"hud_tui.rl.alarms.monitor", "hud_tui.rl.alarms.thresholds", "hud_tui.client.feed"}
    assert not unneeded & {*done.stdout.split()}
