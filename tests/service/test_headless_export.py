"""``export``: a run's tables in new files, as the service has them."""

import csv
import json
import os
from pathlib import Path

import pytest

from hud_tui.notebook import Notebook, notebook_file
from tests.service.headless import Command, Configure, Text


@pytest.fixture(autouse=True)
async def trained(hud: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    flags = ("--group-size", "2", "--tasks-per-step", "2", "--steps", "3")
    done = await hud("run", "arith", "-y", *flags, "--follow")
    assert done.code == 0, done.err


def text_of(file: str) -> str:
    return Path(file).read_text("utf-8")


async def test_metrics_of_the_newest_run_without_another_word(hud: Command) -> None:
    tree = (await hud("checkpoints", "arith-rl")).data["checkpoints"]
    done = await hud("export")
    assert (done.code, done.kind, done.data["file"]) == (0, "export", "arith-rl-metrics.csv")
    rows = list(csv.DictReader(text_of("arith-rl-metrics.csv").splitlines()))
    assert done.data["rows"] == len(rows) == 3
    assert [row["checkpoint_id"] for row in rows] == [node["id"] for node in tree]
    for row, node in zip(rows, tree, strict=True):
        assert float(row["reward_mean"]) == node["mean_reward"]
        assert {key: float(row[key]) for key in node["metrics"]} == node["metrics"]


async def test_tables_of_steps_say_how_many_are_not_in_the_heads_lineage(hud: Command) -> None:
    whole = await hud("export", "--what", "groups")
    assert whole.data["steps_aside"] == 0
    assert "left out" not in whole.err
    await hud("head", "arith-rl", "--back", "2", "-y")
    for what in ("metrics", "groups"):
        done = await hud("export", "--what", what, "--format", "json")
        body = json.loads(text_of(done.data["file"]))
        assert {row["step"] for row in body["rows"]} == {1}
        assert done.data["steps_aside"] == body["steps_aside"] == 2
        assert f"{what} of the head's lineage; 2 other steps of the tree are left out" in done.err
    every = await hud("export", "--what", "checkpoints")
    assert (every.data["rows"], every.data["steps_aside"]) == (3, 0)


async def test_every_table_and_its_note(hud: Command, tmp_path: Path) -> None:
    [node, *_] = (await hud("checkpoints", "arith-rl")).data["checkpoints"]
    model = (await hud("status", "arith-rl")).data["model"]["id"]
    Notebook(notebook_file(tmp_path / "state", model)).write(node["id"], "=first")
    for what in ("checkpoints", "evaluations", "groups", "alarms", "models", "jobs"):
        done = await hud("export", "arith-rl", "--what", what, "--format", "json", "-o", ".")
        body = json.loads(text_of(done.data["file"]))
        assert (body["schema"], body["what"]) == ("hud-tui/1", what)
        assert len(body["rows"]) == done.data["rows"]
        if what == "checkpoints":
            assert body["rows"][0]["note"] == "=first"
            assert body["model"] == "arith-rl"
    assert len(os.listdir()) == 6


async def test_all_discarded_rollouts_are_written_and_how_many_steps_are_not(
    hud: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = (await hud("time", "arith-rl")).data
    monkeypatch.setattr("hud_tui.client.run_calls.DISCARDED", 3)  # several pages
    monkeypatch.setattr("hud_tui.cli.export.MOST", 2)
    done = await hud("export", "arith-rl", "--what", "discarded")
    rows = list(csv.DictReader(text_of(done.data["file"]).splitlines()))
    assert (
        len({row["trace_id"] for row in rows}) == len(rows) == sum(told["discarded"].values()) > 3
    )
    done = await hud("export", "arith-rl", "--what", "time")
    assert "time of the newest 1 step of 3" in done.err  # and what came after the last


async def test_nothing_is_written_over(hud: Command) -> None:
    assert (await hud("export", "-o", "a.csv")).data["file"] == "a.csv"
    before = text_of("a.csv")
    refused = await hud("export", "--what", "groups", "-o", "a.csv")
    assert (refused.code, refused.error["type"]) == (2, "usage")
    assert "exists" in refused.error["message"]
    assert text_of("a.csv") == before
    assert [(await hud("export")).data["file"] for _ in range(2)] == [
        "arith-rl-metrics.csv",
        "arith-rl-metrics-2.csv",
    ]


async def test_the_config_says_where_and_people_get_a_line(
    configure: Configure, text: Text, tmp_path: Path
) -> None:
    configure(f'[export]\ndirectory = "{tmp_path}/out"\n')
    code, out, _ = await text("export", "arith-rl")
    file = tmp_path / "out" / "arith-rl-metrics.csv"
    assert (code, file.is_file()) == (0, True)
    assert out.startswith(f"wrote {file}: 3 rows, ")


async def test_a_report_in_a_new_folder(hud: Command, tmp_path: Path) -> None:
    for command in ("export", "report"):
        assert (await hud(command, "nope")).code == 2
    assert os.listdir() == []
    model = (await hud("status", "arith-rl")).data["model"]["id"]
    [node, *_] = (await hud("checkpoints", "arith-rl")).data["checkpoints"]
    Notebook(notebook_file(tmp_path / "state", model)).write(node["id"], "a good start")
    done = await hud("report", "arith-rl")
    assert (done.code, done.kind) == (0, "report")
    page = text_of(done.data["file"])
    assert done.data["file"] == "arith-rl-report/report.md"
    assert "a good start" in page
    assert len(os.listdir("arith-rl-report")) == done.data["charts"] + 1
    assert (await hud("report", "-o", "out")).data["file"] == "out/arith-rl-report/report.md"
