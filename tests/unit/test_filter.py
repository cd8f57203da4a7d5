"""The filter of the checkpoint tree: what can be typed, and what it lets through."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hud_tui.errors import HudUsage
from hud_tui.rl.checkpoint_tree import ROOT, Tree
from hud_tui.rl.filter import parse
from hud_tui.rl.text import age
from hud_tui.rl.tree_cursor import Matches
from hud_tui.wire import Checkpoint
from tests.unit.trees import parents, tree_of

NODE = Checkpoint(
    id="abc-123",
    name="step-000147",
    mean_reward=0.1,
    learning_rate=3e-4,
    loss_fn="importance_sampling",
    num_traces=128,
    step=147,
    job_id="7f3a",
    state="weights",
    metrics={"kl_sample_train": 0.5, "entropy": 0.1, "grad_norm": 3.0},
)
NEXT = Checkpoint(
    id="def",
    prev_model_checkpoint_id="abc-123",
    mean_reward=0.8,
    num_traces=64,
    metrics={"kl_sample_train": 0.003, "entropy": 1.2, "grad_norm": 9.0},
)
"""It was trained on rollouts of the node, so what it reports is the node's own."""


KEPT = (
    *("", "000147", "STEP-0001 ABC", '"000147"', "reward>.6", "reward>=0.8", "!reward<.8"),
    *("step_reward<.2 step_entropy<.2 grad<4", "lr<1e-3 traces>100", "kl<.01"),
    *("sampled=64", "step=147", "step==147", "step:147", "step:100..200", "step:147..200"),
    *("step:100..147", "step:147..147", "reward:.8...9", "reward:.7...8", "reward:...9"),
    *("loss=IMPORTANCE_sampling", "loss!=ppo", "!loss=ppo", "loss:importance", "job:7f"),
    *("state:weights", "is:weights", "!is:pinned", "is!=pinned", "is:noted note:good", "is:alarm"),
    *('note:"a good"', '!note:"good a"', 'note="a good one" step:147', 'note:"good'),
)
LEFT_OUT = (
    *("nothing", "!000147", "reward<.8", "step!=147", "kl>.01", "entropy>1 reward>.9"),
    *("unknown>0", "!unknown>0", "tokens>0", "loss=importance", "loss=ppo"),
    *("step:148..", "step:148..200", "step:100..146", "!step:100..200"),
    *("is:expired", "note:bad", "!is:alarm"),
    *('note:"good a"', '!note:"a good"', 'note="a good"', 'note:a" good'),
)


@pytest.mark.parametrize("expression", [*KEPT, *LEFT_OUT])
def test_expressions(expression: str) -> None:
    own = {"abc-123": "a good one"}
    keep = parse(expression, notes=own, onsets=["abc-123"])
    assert keep(Tree.of([NODE, NEXT]), 0) is (expression in KEPT)


def test_only_the_head_is_the_head_after_steps_that_were_followed() -> None:
    """Each step's event says that its checkpoint is the head, and so it is, until the next."""
    tree = Tree()
    for number in range(4):
        above = f"c{number - 1}" if number else None
        node = Checkpoint(id=f"c{number}", prev_model_checkpoint_id=above, is_active=True)
        tree = tree.add(node)
    assert [place for place in range(4) if parse("is:head")(tree, place)] == [3]
    back = tree.with_head("c1")
    assert [place for place in range(4) if parse("is:head")(back, place)] == [1]
    assert [place for place in range(4) if parse("!is:head")(back, place)] == [0, 2, 3]
    assert [node.id for node in back.checkpoints() if node.is_active] == ["c1"]
    assert not any(node.is_active for node in back.with_head(None).checkpoints())
    rows, rest = Matches(parse("is:head")), Matches(parse("!is:head"))
    on = back.add(Checkpoint(id="c4", prev_model_checkpoint_id="c1", is_active=True))
    for version, head in ((tree, 3), (back, 1), (on, 4), (on.with_head("c0"), 0)):
        for matches in (rows, rest):
            matches.show(version)
        assert [place for place in range(5) if rows.has(place)] == [head]
        assert len(rest) == len(version) - 1
        assert not rest.has(head)


@pytest.mark.parametrize(
    "expression",
    [
        *("reward>x", "reward>>x", "reward>", ">3", "loss>ppo", "step>=="),
        *("is:blue", "step:..", "step:a..b"),
    ],
)
def test_what_cannot_be_compared_is_an_error_that_shows_the_term(expression: str) -> None:
    with pytest.raises(HudUsage) as failed:
        parse(expression)
    assert expression in failed.value.message


def test_a_metric_s_own_name_beats_one_that_has_it_inside_and_close_ones_are_named() -> None:
    """Whichever of them the service names first."""
    for metrics in ({"kl_x": 9.0, "x": 1.0}, {"x": 1.0, "kl_x": 9.0}):
        tree = Tree.of([Checkpoint(id="a", metrics=metrics)])
        assert parse("step_x<2", metrics)(tree, 0)
        assert not parse("step_x>2", metrics)(tree, 0)
        assert parse("step_kl_x>2", metrics)(tree, 0)
    alone = Tree.of([Checkpoint(id="a", metrics={"kl_x": 9.0})])
    assert parse("step_x>2", ["kl_x"])(alone, 0), "else the one that has it inside"

    parse("kl<.01 reward>.5", ["kl_sample_train"])
    with pytest.raises(HudUsage) as failed:
        parse("entorpy>3", ["kl_sample_train", "entropy"])
    assert "entorpy>3: no checkpoint has entorpy" in failed.value.message
    assert "did you mean entropy" in failed.value.hint


def test_a_node_that_changes_is_tested_again() -> None:
    tree = tree_of([-1, 0, 1])
    matches = Matches(parse("state:expired"))
    matches.show(tree)
    assert len(matches) == 0
    matches.show(tree.add(tree[1].model_copy(update={"state": "expired"})))
    assert [matches.row(number).newest for number in range(len(matches))] == [1]


@given(parents(), st.data())
def test_matches_are_rows_newest_first_and_grow_with_the_tree(
    chosen: list[int], data: st.DataObject
) -> None:
    head = data.draw(st.integers(0, len(chosen) - 1)) if chosen else None
    tree = tree_of(chosen, head)
    keep = {f"c{p}" for p in range(len(chosen)) if data.draw(st.booleans())}
    matches = Matches(lambda tree, position: tree[position].id in keep)
    matches.show(tree_of(chosen[: len(chosen) // 2]))
    matches.show(tree)
    found = [matches.row(number).newest for number in range(len(matches))]
    assert found == sorted((p for p in range(len(chosen)) if f"c{p}" in keep), reverse=True)
    served = set(tree.lineage(head))
    for number, position in enumerate(found):
        assert matches.row_of(position) == number
        assert matches.row(number).served == (position in served,)
    for position in [ROOT, *range(len(chosen))]:
        assert 0 <= matches.row_of(position) < max(1, len(found))


@pytest.mark.parametrize(
    ("then", "now", "text"),
    [
        *((1000.0, 1000.0 + past, text) for past, text in ((0, "0 s"), (59, "59 s"), (60, "1 m"))),
        (1000.0, 8200.0, "2 h"),
        (1000.0, 91_000.0, "1 d"),
        (1000.0, 1000.0 + 10**9, "31 y"),
        (None, 0.0, "–"),
        ("not a time", 0.0, "–"),
        (2000.0, 1000.0, "0 s"),
        ("2026-01-01T00:00:00+00:00", 1767225600 + 5, "5 s"),
    ],
)
def test_ages(then: float | str | None, now: float, text: str) -> None:
    assert age(then, now) == text
