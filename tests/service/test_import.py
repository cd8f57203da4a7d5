"""Runs of other trainers: read from their logs, under our names, into the table of runs."""

from pathlib import Path
from typing import Any

import pytest

from hud_tui.client import HudClient
from hud_tui.client.imported import read_folder
from hud_tui.errors import HudUsage
from hud_tui.rl.axes import Axis
from hud_tui.rl.imported import ImportedRun
from hud_tui.rollouts.control import works_of
from tests.service.headless import Command, Text
from tests.unit.test_wandb_file import file_of

VERL = {"actor_rollout_ref": {"actor": {"optim": {"lr": 1e-6}}, "rollout": {"n": 5}}}
TRAINERS: dict[str, tuple[dict[str, Any], list[dict[str, Any]], dict[str, float]]] = {
    "prime-rl": (
        {"optim": {"lr": 3e-6}, "model": {"name": "Qwen/Qwen3-4B"}, "seed": 7},
        [
            {"step": 3, "train/agg/effective/main/reward/mean": 0.4, "is_trainable/mean": 0.6},
            {"step": 3, "mismatch_kl/all/mean": 0.002, "eval/math/effective/main/avg@4": 0.3},
        ],
        {"reward_mean": 0.4, "frac_groups_mixed": 0.6, "kl_sample_train": 0.002},
    ),
    "verl": (
        {**VERL, "data": {"max_response_length": 512}},
        [{"training/global_step": 3, "critic/score/mean": 0.4, "actor/entropy": 0.8}],
        {"reward_mean": 0.4, "entropy": 0.8},
    ),
    "TRL": (
        {"learning_rate": 1e-6, "num_generations": 8, "beta": 0.04, "max_steps": -1},
        [
            {"train/global_step": 3, "train/reward": 0.4, "train/completions/mean_length": 99.0},
            {"train/global_step": 3, "eval/reward": 0.3, "train/frac_reward_zero_std": 0.5},
        ],
        {"reward_mean": 0.4, "completion_length_mean": 99, "heldout_reward": 0.3},
    ),
    "tinker-cookbook": (
        {"learning_rate": 4e-5, "group_size": 16, "model_name": "meta-llama/Llama-3.1-8B"},
        [{"progress/batch": 3, "env/all/reward/total": 0.4, "optim/kl_sample_train_v1": 0.001}],
        {"reward_mean": 0.4, "kl_sample_train": 0.001},
    ),
}
"""By trainer: its config, the rows of its step 3, and what they are called here."""


def write(path: Path, trainer: str, **more: Any) -> Path:
    config, rows, _ = TRAINERS[trainer]
    folder = path / f"offline-run-20261128_110519-{trainer}"
    folder.mkdir(parents=True)
    stamped = [{"_step": n, "_timestamp": 1.8e9 + n, **row} for n, row in enumerate(rows)]
    body = file_of(*stamped, config=config, run_id=trainer, name=f"{trainer} run", **more)
    (folder / f"run-{trainer}.wandb").write_bytes(body)
    return path


def read(path: Path) -> ImportedRun:
    [run], skipped = read_folder(path)
    assert skipped == []
    return run


@pytest.mark.parametrize("trainer", TRAINERS)
def test_each_trainer_is_recognized_and_its_names_are_ours(trainer: str, tmp_path: Path) -> None:
    run = read(write(tmp_path, trainer))
    assert (run.trainer, run.numbers, run.status) == (trainer, [3], "succeeded")
    metrics = {key: column[0] for key, column in run.metrics.items()}
    assert metrics.items() >= TRAINERS[trainer][2].items()
    assert run.unknown == []
    work = run.work
    assert work.lr in (3e-6, 1e-6, 4e-5)
    assert (work.reward, work.engine, work.is_imported) == (0.4, trainer, True)
    sizes = {"prime-rl": None, "verl": 5, "TRL": 8, "tinker-cookbook": 16}
    assert work.group_size == sizes[trainer]
    assert work.steps is None, "-1 is no number of steps"


def test_what_is_not_known_keeps_its_name_and_texts_and_pictures_are_no_numbers(
    tmp_path: Path,
) -> None:
    rows = [
        {"_step": 0, "global_step": 10, "my/metric": 1, "is_on": True, "note": "x"},
        {"_step": 1, "global_step": 20, "my/metric": 2, "t._type": "table-file", "t.nrows": 3},
        {"_step": 2, "global_step": 30, "note": "of nothing but a text"},
        {"_step": 3, "global_step": 20, "reward": float("nan"), "other": 4},
    ]
    (tmp_path / "run-a.wandb").write_bytes(file_of(*rows, exit_code=None))
    run = read(tmp_path)
    assert run.metrics == {"my/metric": [1, 2], "other": [None, 4]}
    assert (run.unknown, run.numbers) == (["my/metric", "other"], [10, 20])
    assert (run.status, run.trainer) == ("interrupted", "")
    assert list(run.series.x(Axis.STEP)) == [10, 20], "steps between are not logged"


def test_files_of_one_run_are_one_run_and_others_are_left_out(tmp_path: Path) -> None:
    for n in range(2):
        rows = [{"_step": 0, "step": n + 1, "reward": n / 2}]
        (tmp_path / f"run-{n}.wandb").write_bytes(file_of(*rows, exit_code=n))
    (tmp_path / "broken.wandb").write_bytes(b"nonsense")
    (tmp_path / "latest.wandb").symlink_to(tmp_path / "run-0.wandb")
    [run], skipped = read_folder(tmp_path)
    assert (run.numbers, run.metrics["reward_mean"], run.status) == ([1, 2], [0, 0.5], "failed")
    assert [line.rpartition("/")[2] for line in skipped] == ["broken.wandb: not a .wandb file"]
    (tmp_path / "empty").mkdir()
    with pytest.raises(HudUsage, match=r"no \.wandb file"):
        read_folder(tmp_path / "empty")


async def test_imported_runs_are_in_the_table_read_only(hud: Command, tmp_path: Path) -> None:
    write(tmp_path / "logs", "verl")
    write(tmp_path / "logs", "TRL")
    for _ in range(2):  # the second time in place of the first
        done = await hud("import", "wandb", str(tmp_path / "logs"))
        assert {run["trainer"] for run in done.data["runs"]} == {"verl", "TRL"}
    rows = {row["name"]: row for row in (await hud("runs")).data["runs"]}
    assert set(rows) == {"verl run", "TRL run"}
    assert (rows["verl run"]["kind"], rows["verl run"]["reward"]) == ("imported", 0.4)
    both = await hud("runs", "verl run", "TRL run", "--filter", "reward>.3")
    assert both.data["matched"] == 2
    assert (await hud("runs", "verl run", "--name", "mine", "-y")).code == 2
    assert (await hud("runs", "verl run", "--note", "theirs")).code == 0
    changed = await hud("compare", "verl run", "TRL run")
    assert changed.error["message"] == "verl run was imported from a log: it has no checkpoints"
    assert (await hud("import", "wandb", "--remove", "verl run")).data["removed"] == "verl"
    [left] = (await hud("runs")).data["runs"]
    assert left["name"] == "TRL run"


async def test_runs_of_one_name_are_told_apart_by_their_ids(hud: Command, tmp_path: Path) -> None:
    for id_ in ("one", "two"):
        row = {"_step": 0, "step": 1, "reward": 0.5}
        (tmp_path / f"{id_}.wandb").write_bytes(file_of(row, run_id=id_, name="twin"))
    runs = (await hud("import", "wandb", str(tmp_path))).data["runs"]
    both = await hud("import", "wandb", "--remove", runs[0]["name"])
    assert (both.code, both.error["type"]) == (2, "ambiguous")
    assert all(run["id"] in both.error["hint"] for run in runs)


async def test_runs_of_two_projects_with_one_id_are_two(hud: Command, tmp_path: Path) -> None:
    for project in ("one", "two"):
        (tmp_path / project).mkdir()
        row = {"_step": 0, "step": 1, "reward": 0.5}
        body = file_of(row, run_id="base-1", project=project, name=project)
        (tmp_path / project / "run.wandb").write_bytes(body)
    for folder in (tmp_path, tmp_path / "two"):  # the second time in place of the first
        assert (await hud("import", "wandb", str(folder))).code == 0
    rows = {row["taskset"]: row["id"] for row in (await hud("runs")).data["runs"]}
    assert set(rows) == {"one", "two"}
    assert rows["one"] == "base-1" != rows["two"]
    assert (await hud("import", "wandb", "--remove", "one")).code == 0
    await hud("import", "wandb", str(tmp_path / "two"))
    [row] = (await hud("runs")).data["runs"]
    assert row["id"] == rows["two"], "it keeps the id that it has"


async def test_no_number_of_a_log_is_too_large_to_draw(hud: Command, tmp_path: Path) -> None:
    rows = [{"_step": n, "reward": reward} for n, reward in enumerate((-1e308, 1e308, 5e-324))]
    (tmp_path / "run.wandb").write_bytes(file_of(*rows, name="a" * 10_000))
    [run] = (await hud("import", "wandb", str(tmp_path))).data["runs"]
    assert len(run["name"]) < 300
    [row] = (await hud("runs")).data["runs"]
    assert (row["reward_first"], row["reward"]) == (-1e100, 5e-324)


async def test_what_cannot_be_imported_is_said(hud: Command, text: Text, tmp_path: Path) -> None:
    assert (await hud("import", "wandb")).code == 2
    nowhere = await hud("import", "wandb", str(tmp_path / "nowhere"))
    assert (nowhere.code, "no file or folder named" in nowhere.error["message"]) == (2, True)
    assert (await hud("import", "wandb", "--remove", "nothing")).code == 2
    write(tmp_path, "verl")
    code, out, _ = await text("import", "wandb", str(tmp_path))
    assert (code, out.splitlines()[0]) == (0, "verl  verl run by verl: 1 step")


async def test_their_steps_are_drawn_with_those_of_others(
    client: HudClient, tmp_path: Path
) -> None:
    works = works_of(client, tmp_path / "state")
    assert await works.runs.read() == ()
    run = read(write(tmp_path, "TRL"))
    table = works.runs
    works_of(client, tmp_path / "state").runs._imported.keep(run)
    [row] = await table.read()
    series = await table.series(row.id, ("reward_mean",))
    assert len(series) == 1
    assert {"reward_mean", "heldout_reward", "completion_length_mean"} <= set(series.keys)
    assert (
        row.why_no_cancel
        == row.why_no_resume
        == "TRL run was imported from a log: it is read only."
    )
    table._imported.remove(row.id)
    assert await table.read() == ()
