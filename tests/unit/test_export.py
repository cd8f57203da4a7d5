"""Exports: the report says what is so, sheets keep every bit, and no text does anything there."""

import csv
import io
import json
import math
import re
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from markdown_it.token import Token

from hud_tui.config import Export, read_table
from hud_tui.errors import BadTuning
from hud_tui.events import Actor, HeadMoved
from hud_tui.rl.alarms.alarm import Alarm, Evidence, Level, Report, Skipped
from hud_tui.rl.checkpoint_tree import Tree
from hud_tui.rl.export import (
    FORMULA,
    Cell,
    Sheet,
    csv_pieces,
    csv_text,
    groups_sheet,
    jobs_sheet,
    json_pieces,
    metrics_sheet,
    models_sheet,
    rollouts_sheet,
    tree_sheet,
)
from hud_tui.rl.history import History
from hud_tui.rl.metrics import Series
from hud_tui.rl.names import code, escaped
from hud_tui.rl.own_numbers import Own
from hud_tui.rl.plot import HEIGHT, WIDTH
from hud_tui.rl.report import (
    FILE,
    MOST_POINTS,
    LocalFacts,
    evaluations_part,
    lineage_parts,
    picture,
    report_files,
)
from hud_tui.rl.rollouts import rollout_groups
from hud_tui.rl.run import Run
from hud_tui.rl.text import count_unsafe, one_line
from hud_tui.wire import Checkpoint, Estimate, Evaluation, Group, Job, Model, WorkState
from hud_tui.wire_rollouts import Trace
from tests.unit.trees import tree_of

HOSTILE = "](http://x) <img src=x onerror=1> `|` # * _ ![a](b)\n# head\x1b]0;t\x07 https://x.y"
SVG = "{http://www.w3.org/2000/svg}"
NODES = [
    Checkpoint(
        id=f"c{n}",
        name=f"step-{n + 1:06}",
        prev_model_checkpoint_id=f"c{n - 1}" if n else None,
        step=n + 1,
        mean_reward=n / 40,
        created_at=f"2026-01-01T00:00:{n:02}+00:00",
        is_active=n == 39,
        metrics={"heldout_reward": n / 50} | ({HOSTILE: n * 2.0} if n % 2 else {}),
        groups=[
            Group(task_slug="taught", rewards=[0.0, 1.0]),
            Group(task_slug=HOSTILE, rewards=[1.0, 1.0], num_tokens=[3, 4]),
        ],
        pinned=n == 3,
    )
    for n in range(40)
]
ALARM = Alarm(
    *("zero_variance", "zero-variance groups", Level.WARN, True),
    *(9, 10, "c9", "c8", 11, "c10", 12, None),
    *((Evidence("share", 0.587, 0.5),), "No gradient.", "Give harder tasks."),
)
MOVE = HeadMoved(
    at=1.7e9,
    checkpoint_id="c1",
    previous="c2",
    cause="set",
    by=Actor(program=HOSTILE, host=HOSTILE),
)
RUN = Run(
    model=Model(id="m", model_name=HOSTILE, base_model="tiny"),
    tree=Tree.of(NODES),
    series=Series.of(NODES),
    job=WorkState(
        status="failed",
        id="j",
        name=HOSTILE,
        step=40,
        steps=50,
        parameters={"loss_fn": HOSTILE, "steps": 50},
        reason=HOSTILE,
        created_at=1.7e9,
        finished_at=1.7e9 + 3725,
    ),
    loaded=True,
    alarms=Report((ALARM,), (Skipped("kl", "KL", HOSTILE),), 40),
    history=History((MOVE,)),
)
KEPT = LocalFacts("HUD local", {"c5": HOSTILE})


def parsed(text: str) -> list[Token]:
    """Every token of a page, those within lines too."""
    tokens = MarkdownIt("commonmark", {"html": True}).enable("table").parse(text)
    return [inner for token in tokens for inner in (token, *(token.children or ()))]


def test_the_report_says_what_the_run_did() -> None:
    page = report_files(RUN, KEPT, 1.7e9)[FILE]
    for said in (
        "| base | `tiny` |",
        "| head | `step-000040` (not sampled yet) |",
        "| best | ☆ step-000039 is the candidate of 39 checkpoints: held-out .780 ",
        "| steps | 40 of 50 |",
        "| submitted | 2023-11-14 22:13 UTC, took 1h02m |",
        "| time from first to last step of the lineage | 39 s |",
        "| `steps` | `50` |",
        "| mean reward | 0 | 0.975 | 0.975 | 40 |  |",
        "50.0 % of 160 rollouts",
        "### warning: zero-variance groups",
        "Began at step 10, detected at 12, until the run's end at step 40. share .587",
        "→ Give harder tasks.",
        "Moves of the head: only moves that this machine sent or saw.",
        "| 2023-11-14 22:13 UTC | head set | `step-000003` | `step-000002` | ",
        "| `step-000004` (held-out 0.08, reward 0.1 of 4 rollouts) | pinned |  |",
        "| the base | `step-000001` | `step-000040` | 40 | .025 → – | ▶ the head is `step-000040`;",
    ):
        assert said in page


def test_every_picture_is_beside_it_and_every_file_is_used() -> None:
    files = report_files(RUN, KEPT, 1.7e9)
    shown = {str(t.attrs["src"]) for t in parsed(files[FILE]) if t.type == "image"}
    assert shown == set(files) - {FILE}
    assert all(re.fullmatch(r"[0-9A-Za-z._-]+", name) for name in files)
    for name in shown:
        assert ElementTree.fromstring(files[name]).tag == f"{SVG}svg"

    assert RUN.job is not None
    going = replace(RUN, job=RUN.job.model_copy(update={"status": "running"}))
    ended, left = replace(ALARM, active=False, ended=14), replace(ALARM, active=False)
    rolled_back = [each.model_copy(update={"is_active": each.step == 35}) for each in NODES]
    for run, alarm, until in (
        (RUN, ALARM, "the run's end at step 40"),
        (replace(RUN, tree=Tree.of(rolled_back)), ALARM, "the head at step 35"),
        (going, ALARM, "now"),
        (replace(RUN, job=None), ALARM, "now"),
        (RUN, ended, "step 14"),
        (RUN, left, "–"),
    ):
        assert run.holds_until(alarm) == until


def test_no_hostile_text_is_a_link_a_heading_or_html() -> None:
    page = report_files(RUN, KEPT, 1.7e9)[FILE]
    tokens = parsed(page)
    kinds = {token.type for token in tokens}
    assert not kinds & {"link_open", "html_inline", "html_block", "em_open", "strong_open"}
    assert "\x1b" not in page
    headings = [t.content for t, before in zip(tokens[1:], tokens, strict=False)
                if before.type == "heading_open"]  # fmt: skip
    assert headings[1:] == [
        *("Configuration", "Metrics", "Charts", "Waste", "Alarms", "warning: zero-variance groups"),
        *("History", "Notes and pins", "Lineage"),
    ]
    rows = re.findall(r"^\|.*\|$", page, re.MULTILINE)
    widths = {len(re.findall(r"(?<!\\)\|", row)) for row in rows}
    assert widths <= {3, 4, 5, 6, 7}


@given(st.text(alphabet=st.characters() | st.sampled_from("`|*_[]()<>!#\\&~")))
def test_any_text_stays_one_cell_of_plain_words(text: str) -> None:
    wanted = one_line(text, 200).strip()
    for cell in (code(text), escaped(text, 200)):
        tokens = parsed(f"| a | b |\n| --- | --- |\n| {cell} | end |")
        kinds = {token.type for token in tokens}
        assert not kinds & {"link_open", "image", "html_inline", "html_block", "em_open"}
        cells = [t for t, before in zip(tokens[1:], tokens, strict=False)
                 if before.type == "td_open"]  # fmt: skip
        assert len(cells) == 2
        assert cells[1].content == "end"
    tokens = parsed(f"| a |\n| --- |\n| {code(text)} |")
    spans = [token.content.strip() for token in tokens if token.type == "code_inline"]
    assert spans == ([wanted] if wanted else [])


def test_a_run_without_anything_has_a_report_too_and_the_same_run_the_same() -> None:
    files = report_files(Run(), LocalFacts(), 0.0)
    assert list(files) == [FILE]
    assert "No step has been taken." in files[FILE]
    node = Checkpoint(id="a", is_active=True, mean_reward=math.inf, metrics={"x": math.nan})
    run = replace(RUN, tree=Tree.of([node]), series=Series.of([node]))
    assert "| mean reward | – |" in report_files(run, LocalFacts(), math.inf)[FILE]
    assert report_files(RUN, KEPT, 5.0) == report_files(RUN, KEPT, 5.0)


@given(
    st.lists(st.floats(), max_size=40),
    st.lists(st.floats(), max_size=40),
    st.text(),
    st.integers(0, 39),
)
def test_any_curve_is_valid_xml_and_inside_the_picture(
    values: Sequence[float], others: Sequence[float], text: str, row: int
) -> None:
    metrics = {"reward_mean": values, text: others}
    run = replace(run_with(metrics), alarms=Report(alarms=(replace(ALARM, row=row, title=text),)))
    root = ElementTree.fromstring(picture(run, list(metrics)))
    assert root.tag == f"{SVG}svg"
    for path in root.iter(f"{SVG}path"):
        if path.attrib.get("class", "")[:2] in ("l ", "ea", "eb"):
            numbers = [float(n) for n in re.findall(r"-?\d+(?:\.\d+)?", path.attrib["d"])]
            assert all(0 <= x <= WIDTH for x in numbers[::2])
            assert all(0 <= y <= HEIGHT for y in numbers[1::2])


def run_with(metrics: Mapping[str, Sequence[float]]) -> Run:
    """A run with these metrics."""
    length = max(map(len, metrics.values()))
    columns = {key: array("d", [*v, *[math.nan] * (length - len(v))]) for key, v in metrics.items()}
    ids = [f"c{row}" for row in range(length)]
    return Run(series=Series(length, columns, ids, array("q", range(1, length + 1))))


def paths_of(svg: str, kind: str) -> list[list[float]]:
    """The numbers of each path of a class."""
    paths = re.findall(rf'class="{kind}"[^>]* d="M([^"]*)"', svg)
    return [[float(n) for n in re.findall(r"-?\d+(?:\.\d+)?", path)] for path in paths]


def test_a_long_curve_keeps_its_extremes_and_lineages_are_told_run_by_run() -> None:
    values = [0.5] * 100_000
    values[31_234], values[77_777] = 9.0, -9.0
    svg = picture(run_with({"k": values}), ["k"])
    [line], [area] = paths_of(svg, "l a"), paths_of(svg, "ea")
    assert len(line) == 2 * MOST_POINTS
    assert len(area) == 4 * MOST_POINTS
    labels = [float(text) for text in re.findall(r'text-anchor="end">(-?[\d.]+)<', svg)]
    levels = [float(y) for y in re.findall(r'class="g" d="M60 (-?[\d.]+)H', svg)]
    pixels = (levels[0] - levels[-1]) / (labels[-1] - labels[0])
    assert max(area[1::2]) - min(area[1::2]) == pytest.approx(18 * pixels, abs=1)

    [table] = lineage_parts(tree_of([-1, 0, 1, 1, 3], head=4))
    lines = table.splitlines()[2:]
    from_ = [line.split(" | ")[0] for line in lines]
    assert from_ == ["| the base", "| `step-000002`", "| `step-000002`"]
    assert "in the head's lineage" in lines[0]
    assert "the head is `step-000005`" in lines[2]
    many = list(lineage_parts(tree_of([-1] * 100)))
    assert many[0].startswith("40 of 100")


@pytest.mark.parametrize(("gap", "parts"), [(1, 1), (10, 2)])
def test_a_gap_is_seen_where_far_more_is_missing_than_usual(gap: int, parts: int) -> None:
    values = [0.1, math.nan, 0.2, math.nan, 0.3, *[math.nan] * gap, 0.4, math.nan, 0.5]
    assert len(paths_of(picture(run_with({"k": values}), ["k"]), "l a")) == parts


def test_the_table_of_evaluations_names_the_tasks_and_lists_a_repetition_once() -> None:
    mean = Estimate(value=0.71834, low=0.5604, high=0.8491)
    known = {"mean_reward": 0.71834, "num_tasks": 36, "num_traces": 72, "samples": 2, "mean": mean}
    found = [
        Evaluation(**known, seed=1, tasks_digest="d", name="arith", pass_at={1: mean, 2: mean}),
        Evaluation(**known, seed=1, tasks_digest="d", name="arith", pass_at={1: mean, 2: mean}),
        Evaluation(**known, seed=2, tasks_digest="d", pass_at={1: mean, 2: mean}),
        Evaluation(**known, tasks_digest="other"),
        Evaluation(**known, tasks_digest="other"),
    ]
    node = NODES[0].model_copy(update={"evaluations": found, "is_active": True})
    page = evaluations_part(Run(tree=Tree.of([node])))
    head, _, *rows = [line for line in page.splitlines() if line.startswith("|")]
    assert "| pass@1 | pass@K |" in head
    figure = ".718 [.560, .849]"
    named = f"| `step-000001` | heldout | `arith` | 36 tasks × 2 | {figure} | {figure} | {figure} |"
    own = f"| `step-000001` | heldout | the run's own | 36 tasks × 2 | {figure} | – | – |"
    assert rows == [named, named, own, own]


CELLS = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=20))
HOSTILE_CELL = '=HYPERLINK("http://x")\x1b]52;c;AAAA\x07\r\n"+1'


def read_csv(sheet: Sheet) -> list[list[str]]:
    return list(csv.reader(io.StringIO("".join(csv_pieces(sheet)), newline="")))


def read_json(sheet: Sheet) -> Any:
    text = "".join(json_pieces(sheet))
    assert text.isascii()
    return json.loads(text, parse_constant=pytest.fail)


@given(st.lists(st.floats(), min_size=1, max_size=5))
def test_every_number_reads_back_as_the_same_double(values: list[float]) -> None:
    sheet = Sheet("x", [f"c{n}" for n in range(len(values))], [values])
    found = [float(cell) for cell in read_csv(sheet)[1]]
    assert list(map(repr, found)) == list(map(repr, values))


@given(st.lists(st.tuples(CELLS, CELLS), max_size=5))
def test_no_cell_moves_another(rows: list[tuple[Cell, Cell]]) -> None:
    """Whatever the texts, the file has its rows and columns, and json its values."""
    sheet = Sheet("x", ["one", "two"], rows)
    found = read_csv(sheet)
    assert [len(row) for row in found] == [2] * (len(rows) + 1)
    kept = [[row["one"], row["two"]] for row in read_json(sheet)["rows"]]
    wanted = [
        [None if isinstance(c, float) and not math.isfinite(c) else c for c in row] for row in rows
    ]
    assert kept == wanted


@given(st.text(), st.sampled_from(FORMULA))
def test_no_text_begins_a_formula_or_acts_on_a_terminal(text: str, first: str) -> None:
    for one in (text, first + text, f"  {first}{text}", f"\t{first}"):
        [[read]] = csv.reader([csv_text(one)])
        assert not read.lstrip().startswith(FORMULA)
        assert count_unsafe(read) == 0


def run_of(*nodes: Checkpoint) -> Run:
    tree = Tree.of(nodes)
    return Run(
        model=Model(id="m", model_name="=m"), tree=tree, series=Series.of(nodes), loaded=True
    )


def test_metrics_are_those_of_the_heads_lineage() -> None:
    tree = tree_of([-1, 0, 0, 2], head=3)
    run = Run(tree=tree, series=Series.of(tree[p] for p in tree.path(tree.head)))
    rows = read_csv(metrics_sheet(run))
    assert rows[0] == [
        *("step", "checkpoint", "checkpoint_id", "created_at"),
        *("own_reward", "sampled", "own_heldout_reward"),
        *("own_heldout_tasks", "own_heldout_rollouts", "reward_mean"),
    ]
    assert [row[2] for row in rows[1:]] == ["c0", "c2", "c3"]
    assert [float(row[9]) for row in rows[1:]] == [0 / 7, 2 / 7, 3 / 7]
    assert [row[4] for row in rows[1:]] == [repr((1 / 7 + 2 / 7) / 2), repr(3 / 7), ""]


def test_a_missing_metric_is_empty_and_nan_is_told_apart() -> None:
    nodes = [
        Checkpoint(id="a", metrics={"entropy": 1.5, "step": -2.0}),
        Checkpoint(id="b", prev_model_checkpoint_id="a", is_active=True, metrics={"=x": math.nan}),
    ]
    header, first, second = read_csv(metrics_sheet(run_of(*nodes), order=["=x"]))
    assert header[9:] == ["'=x", "entropy", "metrics.step"]
    assert (first[9:], second[9:]) == (["", "1.5", "-2.0"], ["nan", "", ""])
    rows = read_json(metrics_sheet(run_of(*nodes)))["rows"]
    assert (rows[0]["metrics.step"], rows[0]["=x"], rows[1]["=x"]) == (-2.0, None, None)


def test_the_tree_says_what_is_known_of_each_checkpoint_and_what_it_was_evaluated_as() -> None:
    sheet = tree_sheet(Run(tree=tree_of([-1, 0, 0], head=1)), {"c2": HOSTILE_CELL})
    rows = read_json(sheet)["rows"]
    assert [(r["id"], r["parent_id"], r["depth"], r["is_head"]) for r in rows] == [
        ("c0", None, 1, False),
        ("c1", "c0", 2, True),
        ("c2", "c0", 2, False),
    ]
    assert rows[2]["note"] == HOSTILE_CELL
    assert sum(row["is_best"] for row in rows) == 1

    figure = Estimate(value=0.5, low=0.25, high=0.75)

    def on(split: str, tasks: int) -> Evaluation:
        sizes = {"num_tasks": tasks, "samples": 4, "num_traces": 4 * tasks}
        figures = {"mean_reward": 0.5, "mean": figure, "pass_at": {1: figure}}
        return Evaluation.model_validate({"split": split, **sizes, **figures})

    nodes = [
        Checkpoint(id="a", evaluations=[on("heldout", 36), on("train", 96)]),
        Checkpoint(id="b", prev_model_checkpoint_id="a", evaluations=[on("train", 96)]),
        Checkpoint(id="c", prev_model_checkpoint_id="b"),
    ]
    rows = read_json(tree_sheet(run_of(*nodes), {}))["rows"]
    sizes = ("eval_split", "eval_tasks", "eval_samples", "eval_rollouts", "own_heldout_rollouts")
    assert [tuple(row[name] for name in sizes) for row in rows] == [
        ("heldout", 36, 4, 144, 144),
        ("train", 96, 4, 384, None),
        (None, None, None, None, None),
    ]
    ends = [rows[0][f"eval_{name}{end}"] for name in ("mean", "pass@1") for end in ("", "_low")]
    assert ends == [0.5, 0.25, 0.5, 0.25]
    assert rows[2]["eval_mean"] is None


def test_groups_models_jobs_and_rollouts_have_a_row_each() -> None:
    group = Group(task_slug=HOSTILE_CELL, rewards=[0.1, 0.30000000000000004], num_tokens=[3, 4])
    [row] = read_json(
        groups_sheet(run_of(Checkpoint(id="a", step=1, is_active=True, groups=[group])))
    )["rows"]
    assert (row["task_slug"], row["tokens"], row["has_signal"]) == (HOSTILE_CELL, 7, True)
    assert [float(text) for text in row["rewards"].split()] == group.rewards

    model = Model(id="m", model_name=HOSTILE_CELL, is_trainable=True)
    [row] = read_json(models_sheet([model], {"m": ("step-1", 4, Own(0.5, 8, 0.25))}))["rows"]
    assert (row["model_name"], row["head"], row["checkpoints"]) == (HOSTILE_CELL, "step-1", 4)
    assert (row["head_own_reward"], row["head_own_heldout_reward"]) == (0.5, 0.25)
    assert (row["head_sampled"], row["head_own_heldout_rollouts"]) == (8, None)
    [row] = read_json(jobs_sheet([Job(id="j", metadata={"step": 3, "model": ["odd"]})]))["rows"]
    assert (row["step"], row["model"]) == (3, "['odd']")
    traces = [Trace(id=str(n), step=1, task_slug="t", reward=float(n)) for n in range(2)]
    rows = read_json(rollouts_sheet(rollout_groups(traces)))["rows"]
    assert [row["advantage"] for row in rows] == [-0.5, 0.5]


def test_where_files_go() -> None:
    assert read_table(Export(), {}) == Export() == Export("")
    assert read_table(Export(), {"directory": "~/runs"}).directory == "~/runs"
    for bad in (3, {"directory": 3}, {"directory": "a\0b"}, {"folder": "x"}):
        with pytest.raises(BadTuning):
            read_table(Export(), bad)
