"""What a training loop may give, and what is refused before anything is sent."""

import logging
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any
from uuid import UUID, uuid4

import pytest

from hud_tui.client.trainer_inputs import Rollout, to_inputs
from hud_tui.errors import HudBadInput, HudUsage
from hud_tui.wire_training import Payload, Sample

SAMPLE = Sample(prompt_token_ids=[1, 2], output_token_ids=[3], output_logprobs=[-0.5])
TRACE = uuid4().hex


def rollout(reward: float | None = 1.0, group: str | None = None, **more: Any) -> Rollout:
    return Rollout("7", [SAMPLE], reward, group, **more)


def rollouts(groups: str, rewards: Sequence[float] = (1.0, 0.0)) -> list[Rollout]:
    """One rollout a letter, which is its group's id."""
    return [rollout(rewards[i % len(rewards)], group) for i, group in enumerate(groups)]


def run(**changes: Any) -> SimpleNamespace:
    """A run of the SDK's shape."""
    turn = SimpleNamespace(
        prompt_token_ids=[1, 2], output_token_ids=[3], output_logprobs=[-0.5], prompt_chunks=None
    )
    steps = [SimpleNamespace(text="asked"), SimpleNamespace(sample=None)]
    whole = {
        "trace_id": TRACE,
        "reward": 0.5,
        "group_id": None,
        "grade": SimpleNamespace(is_error=False),
        "trace": SimpleNamespace(stop_reason="done", steps=[*steps, SimpleNamespace(sample=turn)]),
    }
    return SimpleNamespace(**(whole | changes))


def stopped(reason: str) -> SimpleNamespace:
    return SimpleNamespace(stop_reason=reason, steps=[])


def test_every_form_mixed_keeps_its_order() -> None:
    payload = Payload(samples=[SAMPLE], reward=2.0)
    dashed = uuid4()
    bare = run(trace=stopped("done"), reward=None)
    sent = to_inputs([TRACE, str(dashed), dashed, payload, rollout(3.0), run(), bare], None)
    ids = [TRACE, str(dashed), dashed.hex]
    assert sent[:4] == [*ids, payload]
    assert sent[4:] == [
        Payload(samples=[SAMPLE], reward=3.0),
        Payload(samples=[SAMPLE], reward=0.5, trace_id=TRACE),
        TRACE,
    ]


def test_turns_in_order_errored_runs_arrays_and_mappings_are_sent() -> None:
    second = Sample(prompt_token_ids=[1, 2, 3, 9], output_token_ids=[4], output_logprobs=[-1.0])
    empty = Sample(prompt_token_ids=[1], output_token_ids=[])
    [sent] = to_inputs([Rollout("", [SAMPLE, empty, second], 1.0)], None)
    assert sent.samples == [SAMPLE, second]
    errored = run(trace=SimpleNamespace(status="error", stop_reason="error", steps=[]))
    assert to_inputs([errored, errored], 2) == [TRACE, TRACE]

    class Whole:
        def __index__(self) -> int:
            return 7

    turn = SimpleNamespace(output_token_ids=(Whole(),), output_logprobs=(0,))
    [sent] = to_inputs([SimpleNamespace(samples=[turn], reward=True)], None)
    sample = Sample(output_token_ids=[7], output_logprobs=[0.0])
    assert sent == Payload(samples=[sample], reward=1.0)
    assert to_inputs([PLAIN], None) == [Payload(samples=[SAMPLE], reward=0.5)]


PLAIN: dict[str, Any] = {"samples": [SAMPLE.model_dump()], "reward": 0.5}


REFUSED: list[tuple[list[Any], int | None, list[str]]] = [
    ([], None, ["no inputs"]),
    ([TRACE], 0, ["group_size is 0"]),
    ([TRACE], True, ["group_size is True"]),
    ([TRACE] * 20, 8, ["20 inputs", "groups of 8", "inputs[16:20], has 4"]),
    (rollouts("aaabbbbb"), 4, ["groups without 4 rollouts", "'a' has 3, 'b' has 5"]),
    (rollouts("aabaabbb"), 4, ["inputs[0:4] mixes the groups 'a' and 'b'"]),
    ([*rollouts("aaa"), rollout(None, "a")], 4, ["inputs[3] (group 'a') has no reward"]),
    ([*rollouts("aaa"), rollout(float("nan"), "a")], 4, ["inputs[3] (group 'a')", "nan"]),
    ([TRACE, TRACE, run(reward="high"), TRACE], 2, ["inputs[2] (group inputs[2:4])", "high"]),
    ([Payload(samples=[SAMPLE], reward=float("inf"))], None, ["inputs[0]", "inf"]),
    ([run(trace=stopped("timeout"), group_id="g-7")], 1, ["(group 'g-7') timed out"]),
    ([run(grade=SimpleNamespace(is_error=True), group_id="g-7")], 1, ["'g-7') has no valid grade"]),
    ([run(trace=stopped("done"), trace_id=None)], None, ["neither samples nor a trace id"]),
    ([{"reward": 1.0}], None, ["inputs[0] is not a payload: samples: Field required"]),
    ([{**PLAIN, "reward": float("nan")}], None, ["inputs[0]", "nan"]),
    ([object()], None, ["inputs[0] is a object with neither"]),
    (["3 + 4 = ?"], None, ["inputs[0] is not a trace id", "3 + 4"]),
    ([run(trace_id="no id")], None, ["is not a trace id"]),
    (
        [SimpleNamespace(samples=[SimpleNamespace(output_token_ids="ab")], reward=1.0)],
        None,
        ["inputs[0]", "tokens"],
    ),
    (rollouts("\x1b[2J" * 2), 2, ["␛"]),
]


@pytest.mark.parametrize(("inputs", "group_size", "says"), REFUSED)
def test_what_is_refused_names_its_input_and_group(
    inputs: list[Any], group_size: int | None, says: list[str]
) -> None:
    with pytest.raises(HudBadInput) as error:
        to_inputs(inputs, group_size)
    assert all(text in error.value.message for text in says), error.value.message
    assert error.value.hint
    assert "\x1b" not in error.value.message


def test_a_refusal_is_a_usage_error_and_a_value_error_and_one_string_no_list(
    caplog: pytest.LogCaptureFixture,
) -> None:
    for kind in (HudUsage, ValueError):
        with pytest.raises(kind):
            to_inputs([], None)
    with pytest.raises(HudBadInput, match="one string"):
        to_inputs(TRACE, None)
    to_inputs(rollouts("aa", [1.0]), 2, compared=False)
    assert not caplog.records


@pytest.mark.parametrize(
    ("inputs", "group_size"),
    [
        (rollouts("aaaabbbb"), 4),
        (rollouts("aaaabbbb"), None),
        (rollouts("abab"), None),
        ([*rollouts("aab"), Payload(samples=[SAMPLE], reward=0.0)], 2),
        ([TRACE, TRACE, *rollouts("aa")], 2),
    ],
)
def test_groups_are_whole_or_not_all_of_them_are_named(
    inputs: list[Any], group_size: int | None
) -> None:
    assert len(to_inputs(inputs, group_size)) == len(inputs)


@pytest.mark.parametrize(
    ("inputs", "group_size", "warned"),
    [
        (rollouts("aabb", [1.0, 1.0, 0.0, 0.0]), 2, True),
        (rollouts("aabb", [1.0, 1.0, 0.0, 0.0]), None, False),
        (rollouts("aabb", [1.0, 1.0, 1.0, 0.0]), 2, False),
        (rollouts("ab"), 1, True),
        (rollouts("a"), None, False),
        ([*rollouts("a"), TRACE], None, False),
        ([UUID(TRACE), TRACE], None, False),
        ([run(), run(trace=stopped("done"))], 2, True),
    ],
)
def test_a_zero_variance_batch_is_warned_of_once(
    inputs: list[Any], group_size: int | None, warned: bool, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        to_inputs(inputs, group_size)
    assert ["zero reward variance" in record.message for record in caplog.records] == [
        True
    ] * warned
