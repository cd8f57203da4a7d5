"""What the app's dialog says before a run is submitted."""

from hud_tui.cli.runs import _usual
from hud_tui.rl.checkpoint_tree import Tree
from hud_tui.rl.cost import Cost
from hud_tui.rl.findings import Finding
from hud_tui.rl.run import Run, starting_point
from hud_tui.rl.settings import Setting, defaults, settings
from hud_tui.rl.tasks.task import Task
from hud_tui.tui.run_draft import RunRequest
from hud_tui.tui.widgets.run_status import DRIVEN, run_facts
from hud_tui.wire import Disk, Model, TrainingDefaults, WorkState
from hud_tui.wire_runs import JobParameters
from tests.unit.trees import chain

DISK = Disk(checkpoint_bytes=2_000_000, used_bytes=0, max_bytes=10**10, free_bytes=15 * 10**6)
EARLIER = Finding("disk", "warning", "room for at most 7 of 600 checkpoints")
OTHER = Finding("slugs", "warning", "used more than once: add-1")


def said(disk: Disk | None, steps: int) -> list[str]:
    model = Model(id="1", model_name="m", disk=disk)
    lines = RunRequest(model, "arith", [], None, [EARLIER, OTHER]).lines({"steps": steps})
    return [line.plain for line in lines if line.plain.startswith("⚠")]


def test_room_is_judged_by_the_steps_of_the_form() -> None:
    assert said(DISK, 60) == [f"⚠ {OTHER.message}", _room(60)]
    assert said(DISK, 5) == [f"⚠ {OTHER.message}"]
    assert said(None, 5) == [f"⚠ {EARLIER.message}", f"⚠ {OTHER.message}"]


def _room(steps: int) -> str:
    return f"⚠ the disk has room for at most 7 of {steps} checkpoints: 15 MB free"


OWN = TrainingDefaults(
    steps=100, group_size=8, tasks_per_step=12, learning_rate=3e-4, max_tokens=24
)
TRAINED = Model(id="1", model_name="m", training_defaults=OWN, forked_from="tiny/mixed-0.2M")


def test_every_parameter_is_there_defaults_apart_and_what_the_run_starts_from() -> None:
    given = {"group_size": 16, "steps": 100, "beta1": 0.8, "novel": [1], "loss_fn": "ppo"}
    found = {setting.label: setting for setting in settings(TRAINED, given)}
    assert len(found) == len(JobParameters.model_fields) + 1
    assert found["group size"] == Setting("group size", "16", False)
    assert found["steps"] == Setting("steps", "100", True)
    assert found["learning rate"] == Setting("learning rate", "0.0003", True)
    assert found["Adam beta1"] == Setting("Adam beta1", "0.8", False)
    assert found["Adam beta2"] == Setting("Adam beta2", "0.95", True)
    assert found["norm adv by std"] == Setting("norm adv by std", "no", True)
    assert found["max tokens"] == Setting("max tokens", "24", True)
    assert found["effort"] == Setting("effort", "–", True)
    assert not found["loss"].usual
    assert not found["novel"].usual

    values, tasks = defaults(TRAINED), [Task("arith", "add", slug=str(n)) for n in range(10)]
    lines = RunRequest(TRAINED, "arith", [], None, [], "step-000041").lines(values)
    said = [line.plain for line in lines]
    assert "starts from       step-000041" in said
    [rest] = [line for line in said if line.startswith("defaults")]
    assert "reward scale 1 · norm adv by std no · Adam beta1 0.9" in rest
    assert not any(name.startswith("steps") for name in rest.split(" · "))
    assert not any(line.startswith("time") for line in said)

    lines = RunRequest(TRAINED, "arith", tasks, Cost(8000, None), []).lines(values)
    said = [line.plain for line in lines]
    assert "tokens            at most 192 000 sampled, 192 000 trained; plus prompts" in said
    assert "time              unknown: nothing like it was run here yet" in said
    lines = RunRequest(TRAINED, "arith", tasks, Cost(8000, 40.0), []).lines(values)
    assert any(line.plain.startswith("time              about 40 s") for line in lines)


def nodes(*of_jobs: str | None) -> Tree:
    steps = ({"name": f"step-{at}", "job_id": job} for at, job in enumerate(of_jobs, 1))
    return Tree.of(chain(*steps))


def test_a_run_started_where_its_first_step_has_its_parent() -> None:
    job = WorkState(id="j2", status="running", name="second", parameters={"seed": 7})
    run = Run(model=TRAINED, tree=nodes("j1", "j1", "j2", "j2"), job=job)
    assert starting_point(run) == "step-2"
    assert starting_point(Run(model=TRAINED, tree=nodes("j1"), job=job)) == "step-1"
    assert starting_point(Run(model=TRAINED, job=job)) == "forked from tiny/mixed-0.2M"
    later = job.model_copy(update={"step": 3})
    assert starting_point(Run(model=TRAINED, tree=nodes(None, None), job=later)) == ""
    lines = [line.plain for line in run_facts(run)]
    assert any(line.split() == ["starts", "from", "step-2"] for line in lines)
    assert any(line.split() == ["seed", "7"] for line in lines)
    assert any(line.split() == ["temperature", "1", "default"] for line in lines)
    loop = Run(model=TRAINED, tree=nodes(None))
    assert run_facts(loop)[-1].plain == DRIVEN


def test_a_run_that_a_client_drives_has_no_parameters_of_managed_runs() -> None:
    given = {"steps": 5, "rollout_timeout": 300.0, "memory_mb": 4096, "failed": "drop"}
    managed = {"effort", "norm adv by std", "baseline", "held-out every", "sweep"}
    assert managed <= {setting.label for setting in settings(TRAINED, given)}
    driven = WorkState(id="j", status="running", parameters=given, driver="laptop:4711")
    text = "\n".join(line.plain for line in run_facts(Run(model=TRAINED, job=driven)))
    assert not any(label in text for label in managed)
    labels = ("Adam beta1", "timeout (s)", "memory (MB)", "on failure")
    assert all(label in text for label in labels), "as in the form"
    asked = RunRequest(TRAINED, "sums", [], None, [], options={"failed": "drop"})
    text = "\n".join(line.plain for line in asked.lines({"steps": 5}))
    assert "Adam beta1 0.9" in text
    assert not any(label in text for label in managed)
    assert "on failure        drop" in text


def test_a_plan_of_the_command_line_writes_defaults_as_the_form_does() -> None:
    said = _usual(TRAINED, {"loss_fn": "ppo"})
    assert "learning rate 0.0003, " in said
    assert said.endswith("temperature 1")
