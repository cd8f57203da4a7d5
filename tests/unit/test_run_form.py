"""What the run's form accepts, sends, and says it will cost."""

import pytest
from pydantic import ValidationError

from hud_tui.parameters import RUN_PARAMETERS
from hud_tui.rl.cost import cost
from hud_tui.rl.settings import defaults, form_values, max_tokens, parameters, write
from hud_tui.rl.tasks.task import Task
from hud_tui.wire import EngineState, Model, TrainingDefaults

ROWS = {row.name: row for row in RUN_PARAMETERS if row.in_form}
MODEL = Model(
    id="m",
    model_name="m",
    training_defaults=TrainingDefaults(
        learning_rate=2e-4, group_size=8, max_tokens=20, tasks_per_step=12, steps=60
    ),
)
TASKS = [Task("arith", "add", slug=str(n)) for n in range(10)]
HELD = Task("arith", "add", slug="h", columns={"split": "heldout"})


@pytest.mark.parametrize(
    ("key", "text", "value"),
    [("steps", "100 000", 100_000), ("learning_rate", "3e-4", 3e-4), ("eval_every", "", None)],
)
def test_a_number_is_read(key: str, text: str, value: float | None) -> None:
    assert ROWS[key].read(text) == value


@pytest.mark.parametrize("text", ["1.5", ""])
def test_what_is_no_whole_number_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="to"):
        ROWS["steps"].read(text)


def test_defaults_are_the_model_s_own_unless_the_service_decides_itself() -> None:
    sent = parameters(defaults(MODEL))
    assert (sent.steps, sent.learning_rate, sent.loss_fn) == (60, 2e-4, "importance_sampling")
    assert sent.reasoning_effort is None
    nothing = parameters(defaults(MODEL))
    assert (nothing.eval_every, nothing.eval_samples, nothing.baseline) == (None, None, None)
    asked = parameters({**defaults(MODEL), "eval_every": 5, "baseline": True})
    assert (asked.eval_every, asked.baseline, asked.seed) == (5, True, 0)

    values = defaults(Model(id="m", model_name="m"))
    assert values == {"reasoning_effort": "medium"}  # as HUD's own CLI
    sent = parameters({**values, "reasoning_effort": "low"})
    assert sent.model_dump(exclude_none=True) == {"reasoning_effort": "low"}
    with pytest.raises(ValidationError):
        parameters({"stepz": 1})


def test_the_cost_counts_what_is_trained_on_unless_the_service_decides() -> None:
    values = defaults(MODEL)
    found = cost(values, [*TASKS, HELD], rollout_s=0.01)
    assert found.rollouts == 60 * 10 * 8
    halved = cost({**values, "substeps": 2, "steps": 59}, TASKS)
    assert halved.rollouts == 30 * 10 * 8
    assert (found.seconds, found.sampling) == (pytest.approx(48.0), True)
    paced = cost(values, [*TASKS, HELD], step_s=0.5, rollout_s=0.01)
    assert (paced.seconds, paced.sampling) == (30.0, False)

    assert cost({"reasoning_effort": "low"}, TASKS) is None
    unpaced = cost(defaults(MODEL), TASKS)
    assert unpaced.seconds is None


def test_most_tokens_of_an_answer_are_known_unless_the_service_decides() -> None:
    values = defaults(MODEL)
    assert max_tokens(MODEL, values) == MODEL.training_defaults.max_tokens  # type: ignore[union-attr]
    assert max_tokens(MODEL, {**values, "max_tokens": 9}) == 9
    assert max_tokens(MODEL, {**values, "reasoning_effort": "high"}) is None
    assert max_tokens(Model(id="m", model_name="m"), {}) is None
    assert [write(v) for v in (2e-4, 1.0, 60, None, "ppo")] == ["0.0002", "1", "60", "", "ppo"]
    assert [write(True), write(False)] == ["yes", "no"]


def test_a_batch_is_proposed_to_be_sampled_ahead_where_a_server_samples_and_trains() -> None:
    def proposed(server: str | None) -> object:
        engine = EngineState(engine="tinker" if server else "tiny", server=server)
        return form_values(MODEL.model_copy(update={"engine": engine}))["max_staleness"]

    assert (proposed("http://gpubox:8000"), proposed(None)) == (1, None)
