"""What a run takes on disk, in words."""

import pytest

from hud_tui.rl.cost import RunSize
from hud_tui.rl.disk import check_room, disk_use, engine_place, where_stored
from hud_tui.rl.text import size
from hud_tui.wire import Disk, EngineState, Model, TokenPrices, TrainingDefaults

DISK = Disk(checkpoint_bytes=2_070_000, used_bytes=83 * 10**6, max_bytes=10**10)


def test_it_names_the_checkpoints_of_the_run_s_length_or_the_model_s_and_the_bound() -> None:
    model = Model(id="1", model_name="m", disk=DISK)
    assert disk_use(model, 600) == (
        "1.2 GB: 600 checkpoints of 2.1 MB;"
        " beyond 10 GB in total (now 83 MB) the oldest are thinned out"
    )
    assert disk_use(model, 1).startswith("2.1 MB: 1 checkpoint of 2.1 MB;")
    assert disk_use(model, None) == ""

    own = TrainingDefaults(
        learning_rate=0.1, group_size=8, max_tokens=9, tasks_per_step=2, steps=10
    )
    model = Model(id="1", model_name="m", disk=DISK, training_defaults=own)
    assert disk_use(model, None).startswith("21 MB: 10 checkpoints")
    assert disk_use(model.model_copy(update={"disk": None}), 10) == ""


@pytest.mark.parametrize(
    ("free", "limit", "steps", "level", "said"),
    [
        (15, 10**10, 60, "warning", "room for at most 7 of 60 checkpoints: 15 MB free"),
        (15, 10**10, 7, "ok", "enough space"),
        (125, 10**10, 60, "ok", "enough space"),
        (1, 10**10, 60, "failure", "room for at most 0 of 60 checkpoints: 1.0 MB free"),
        (15, 90 * 10**6, 60, "ok", "enough space"),  # by then it is thinned: 7 MB are left to grow
        (1, 83 * 10**6, 60, "failure", "room for at most 0 of 60"),
    ],
)
def test_it_says_for_how_many_there_is_room(
    free: int, limit: int, steps: int, level: str, said: str
) -> None:
    disk = DISK.model_copy(update={"free_bytes": free * 10**6, "max_bytes": limit})
    model = Model(id="1", model_name="m", disk=disk)
    [finding] = check_room(model, steps)
    assert finding.level == level
    assert said in finding.message
    assert bool(finding.fix) == (level != "ok")


def test_a_service_that_does_not_say_has_no_finding() -> None:
    assert check_room(Model(id="1", model_name="m", disk=DISK), 60) == []
    assert check_room(Model(id="1", model_name="m"), 60) == []


def test_a_run_says_what_goes_to_its_server_and_what_it_takes_on_this_disk() -> None:
    state = EngineState(engine="tinker", server="http://host:1", saves_per_step=2)
    model = Model(id="1", model_name="m", engine=state)
    run = RunSize(60, 640, 100, 5, 3, 20, 0, 96)
    assert where_stored(model, 60, run) == [
        ("server", "tinker @ host:1: receives prompts, completions and weights; may cost money"),
        ("tokens", "at most 76 800 sampled, 61 440 trained; plus prompts"),
        (
            "stored",
            "120 checkpoints on the server, kept until deleted;"
            " the tree, metrics and rollouts on this machine",
        ),
    ]
    weekly = model.model_copy(update={"engine": state.model_copy(update={"ttl_s": 7 * 86400})})
    assert "kept for 7 d;" in where_stored(weekly, 60)[1][1]
    prices = TokenPrices(prompt=0.1, sampled=0.4, trained=0.5)
    priced = model.model_copy(update={"engine": state.model_copy(update={"prices": prices})})
    [_, (label, said), _] = where_stored(priced, 60, run)
    assert run.dollars(prices, 0, 96) == pytest.approx((76_800 * 0.4 + 61_440 * 0.5) / 1e6)
    assert (label, said.partition("trained, ")[2]) == ("tokens", "$0.06; plus prompts")

    tiny = EngineState(engine="tiny")
    model = Model(id="1", model_name="m", disk=DISK, engine=tiny)
    [(label, said)] = where_stored(model, 600, run)
    assert (label, said) == ("disk", disk_use(model, 600))
    assert where_stored(model.model_copy(update={"disk": None}), 600, run) == []
    state = EngineState(engine="tinker", server="http://127.0.0.1:1", place="gpubox · 2×H100")
    model = Model(id="m", model_name="m", engine=state)
    assert engine_place(model) == "tinker @ gpubox · 2×H100"


@pytest.mark.parametrize(
    ("count", "said"),
    [
        (None, "?"),
        (0, "0 bytes"),
        (999, "999 bytes"),
        (1500, "1.5 kB"),
        (9_960_000, "10 MB"),
        (2e12, "2000 GB"),
    ],
)
def test_sizes(count: float | None, said: str) -> None:
    assert size(count) == said
