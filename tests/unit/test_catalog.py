"""Whose a model is, and what a fork may be called."""

import pytest

from hud_tui.rl.checkpoint_tree import Kind, free_name, kind, name_problem, origin, trainable
from hud_tui.wire import Model


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
    assert trainable([undated, old, BASE, new]) == [new, old, undated]


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
