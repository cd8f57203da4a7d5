"""Tables for other programs: numbers to the last bit, and texts that do nothing there."""

import csv
import io
import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hud_tui.config import Export, read_table
from hud_tui.errors import BadTuning
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
from hud_tui.rl.metrics import Series
from hud_tui.rl.own_numbers import Own
from hud_tui.rl.rollouts import rollout_groups
from hud_tui.rl.run import Run
from hud_tui.rl.text import count_unsafe
from hud_tui.wire import Checkpoint, Estimate, Evaluation, Group, Job, Model, Trace
from tests.unit.trees import tree_of

CELLS = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=20))
HOSTILE = '=HYPERLINK("http://x")\x1b]52;c;AAAA\x07\r\n"+1'


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
    sheet = tree_sheet(Run(tree=tree_of([-1, 0, 0], head=1)), {"c2": HOSTILE})
    rows = read_json(sheet)["rows"]
    assert [(r["id"], r["parent_id"], r["depth"], r["is_head"]) for r in rows] == [
        ("c0", None, 1, False),
        ("c1", "c0", 2, True),
        ("c2", "c0", 2, False),
    ]
    assert rows[2]["note"] == HOSTILE
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
    group = Group(task_slug=HOSTILE, rewards=[0.1, 0.30000000000000004], num_tokens=[3, 4])
    [row] = read_json(
        groups_sheet(run_of(Checkpoint(id="a", step=1, is_active=True, groups=[group])))
    )["rows"]
    assert (row["task_slug"], row["tokens"], row["has_signal"]) == (HOSTILE, 7, True)
    assert [float(text) for text in row["rewards"].split()] == group.rewards

    model = Model(id="m", model_name=HOSTILE, is_trainable=True)
    [row] = read_json(models_sheet([model], {"m": ("step-1", 4, Own(0.5, 8, 0.25))}))["rows"]
    assert (row["model_name"], row["head"], row["checkpoints"]) == (HOSTILE, "step-1", 4)
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
