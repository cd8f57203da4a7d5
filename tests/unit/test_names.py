"""Which model or checkpoint a name means, whose a model is, and what a fork may be called."""

import pytest

from hud_tui.errors import HudAmbiguous, HudUsage
from hud_tui.rl.checkpoint_tree import Kind, free_name, kind, name_problem, origin, own_models
from hud_tui.rl.names import find_checkpoint, find_job, find_model
from hud_tui.wire import Checkpoint, Job, Model

MODELS = [
    Model(id="9F-a", model_name="tiny/arith-0.2M", name="Arithmetic"),
    Model(id="9f-b", model_name="mine/arith-rl", name="My Run"),
    Model(id="9f-c", model_name="yours/arith-rl"),
    Model(id="arithmetic-2", model_name="other", name=None),
]
TREE = [
    Checkpoint(id="abcd-1", name="step-000001"),
    Checkpoint(id="abce-2", name="step-000002", checkpoint_name="local://x/2"),
]


@pytest.mark.parametrize(
    ("name", "id_"),
    [
        ("9f-A", "9F-a"),
        ("my run", "9f-b"),
        (" MINE/arith-RL ", "9f-b"),
        ("arith-0.2m", "9F-a"),
        ("ARITHMETIC", "9F-a"),
    ],
)
def test_a_model_is_found_by_id_name_slug_or_tail_in_any_case(name: str, id_: str) -> None:
    assert find_model(name, MODELS).id == id_


def test_what_no_model_or_two_are_called_is_not_guessed_but_named() -> None:
    for name, close in (("arith-rl", "mine/arith-rl, yours/arith-rl"), ("mine/arith", "arith-rl")):
        with pytest.raises(HudUsage) as error:
            find_model(name, MODELS)
        assert close in error.value.hint
    models = [Model(id="beef-1", model_name="mine"), Model(id="9f00", model_name="beef")]
    assert find_model("beef-1", models).id == "beef-1"
    assert find_model("beef", models).id == "9f00", "a name comes before an id's beginning"
    with pytest.raises(HudUsage) as error:
        find_model("\x1b]0;x", [Model(id="1", model_name="\x1b[31mred")])
    assert "\x1b" not in error.value.message + error.value.hint


@pytest.mark.parametrize(
    ("name", "id_"),
    [
        ("abcd-1", "abcd-1"),
        ("STEP-000002", "abce-2"),
        ("local://x/2", "abce-2"),
        ("abcd", "abcd-1"),
    ],
)
def test_a_checkpoint_is_found_by_id_name_path_or_beginning(name: str, id_: str) -> None:
    assert find_checkpoint(name, TREE).id == id_


@pytest.mark.parametrize("name", ["abc", "step-3", ""])
def test_an_unknown_checkpoint_is_a_usage_error(name: str) -> None:
    with pytest.raises(HudUsage):
        find_checkpoint(name, TREE)
    with pytest.raises(HudUsage, match="2 checkpoints"):
        find_checkpoint("s", [Checkpoint(id="1", name="s"), Checkpoint(id="2", name="s")])


def test_a_job_is_found_by_how_its_id_begins() -> None:
    jobs = [Job(id="aaaa-bbbb", name="two"), Job(id="aaaa-cccc"), Job(id="aaaabb")]
    assert find_job("AAAABBBB", jobs).id == "aaaa-bbbb"
    assert find_job("aaaa-c", jobs).id == "aaaa-cccc"
    with pytest.raises(HudUsage, match="no job named aaa") as caught:
        find_job("aaa", jobs)
    assert caught.value.hint == "give at least 4 characters of an id"
    assert find_job("aaaabb", jobs).id == "aaaabb", "a whole id is not the beginning of another"
    with pytest.raises(HudAmbiguous) as several:
        find_job("aaaa", jobs)
    twins = [Job(id="aaaa-bbbb"), Job(id="aaaabbbb")]  # of the service, and imported from a log
    assert [find_job(job.id, twins) for job in twins] == twins
    with pytest.raises(HudAmbiguous):
        find_job("AAAA-bbbb", twins)
    assert "aaaa-bbbb (two), aaaa-cccc" in several.value.hint
    for short in ("aaa", "dddd", ""):
        with pytest.raises(HudUsage, match="no job named"):
            find_job(short, jobs)


def model(slug: str, name: str | None = None, **fields: object) -> Model:
    return Model.model_validate({"id": slug, "model_name": slug, "name": name, **fields})


BASE = model("tiny/mixed-0.2M", is_trainable=True, base_model="tiny/mixed-0.2M")
FORK = model("mixed-rl", is_trainable=True, base_model="tiny/mixed-0.2M", forked_from="x")


@pytest.mark.parametrize(
    ("one", "expected"),
    [
        (BASE, Kind.BASE),
        (FORK, Kind.OWN),
        (model("gpt", is_trainable=False), Kind.SERVED),
        (model("qwen", is_trainable=True), Kind.OWN),
        (model("qwen", is_trainable=True, public=True), Kind.BASE),
    ],
)
def test_kind(one: Model, expected: Kind) -> None:
    assert kind(one) is expected


@pytest.mark.parametrize(
    ("came", "told"),
    [
        (None, ""),
        ("tiny/mixed-0.2M", ""),
        ("other/base", "forked from other/base"),
        ("mixed-rl@step-000017", "forked from mixed-rl step-000017"),
        ("me@home/rl@step-000017", "forked from me@home/rl step-000017"),
    ],
)
def test_where_a_fork_starts(came: str | None, told: str) -> None:
    assert origin(FORK.model_copy(update={"forked_from": came})) == told


def test_own_models_newest_first() -> None:
    old = model("a", is_trainable=True, created_at="2026-01-01T00:00:00Z")
    new = model("b", is_trainable=True, created_at="2026-02-01T00:00:00Z")
    undated = model("c", is_trainable=True)
    assert own_models([undated, old, BASE, new]) == [new, old, undated]


@pytest.mark.parametrize(
    ("source", "taken", "free"),
    [
        ("tiny/mixed-0.2M", [], "mixed-rl"),
        ("tiny/mixed-0.2M", ["mixed-rl"], "mixed-rl-2"),
        ("tiny/mixed-0.2M", ["Mixed-RL", "mixed-rl-2"], "mixed-rl-3"),
        ("mixed-rl-2", ["mixed-rl"], "mixed-rl-2"),
        ("org/Qwen3 4B", [], "qwen3-rl"),
        ("0.2M", [], "0.2m-rl"),
        ("x" * 200, [], "x" * 90 + "-rl"),
    ],
)
def test_free_name(source: str, taken: list[str], free: str) -> None:
    assert free_name(source, [model(f"slug-{n}", name) for n, name in enumerate(taken)]) == free


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("fine", ""),
        (" ", "enter a name"),
        ("x" * 101, "at most 100"),
        ("a\x1bb", "printable"),
        ("2", "at least one letter"),
        ("3-4", "at least one letter"),
        ("ü2", ""),
        (" MIXED-rl", "exists"),
    ],
)
def test_name_problem(name: str, says: str) -> None:
    problem = name_problem(name, [FORK])
    assert (says in problem) if says else problem == ""
