"""Dialogs that ask for tasks to sample: EvaluateDialog, which weights to evaluate and how; and
BudgetDialog, how many rollouts to spend on candidates."""

from __future__ import annotations

import itertools
from abc import abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from textual import on, work
from textual.app import App
from textual.content import Content
from textual.events import Key
from textual.widget import Widget
from textual.widgets import Input

from hud_tui.change import UNNAMED, TaskSource
from hud_tui.client.preflight import choose_tasks, load_source
from hud_tui.client.records import Asked, Record
from hud_tui.errors import HudError, HudUsage
from hud_tui.keys import keyed
from hud_tui.parameters import EVALUATION_PARAMETERS, Parameter
from hud_tui.rl.checkpoint_tree import ROOT, label
from hud_tui.rl.evaluation import last_requested, rollout_seconds, size
from hud_tui.rl.head import name
from hud_tui.rl.run import Run
from hud_tui.rl.text import counted, duration, one_line, spaced
from hud_tui.rollouts.control import evaluation_order
from hud_tui.rollouts.environment import environment_at, tasks_of
from hud_tui.rollouts.evaluate import environment_of, filled
from hud_tui.rollouts.run_files import Order, environment_name
from hud_tui.tui.screens.dialogs import Dialog, objection
from hud_tui.tui.session import RunSession
from hud_tui.tui.widgets.form import Field, Picker
from hud_tui.wire import Checkpoint, Json, Model, WorkState
from hud_tui.wire_runs import EvaluationParameters, SubmitEvaluation, UsualTasks

SPLITS = ("heldout", "train", "all")
NUMBERS = {row.name: row for row in EVALUATION_PARAMETERS}
SAMPLED = SAMPLES, MAX_TOKENS = NUMBERS["samples"], NUMBERS["max_tokens"]
BESIDE = "Runs go on training undisturbed. {checkpoints.cancel_evaluation} cancels the evaluation."
OPEN = "It goes on while hud-tui is open; {checkpoints.resume_evaluation} resumes it afterwards."
APART = "It goes on when hud-tui closes."
NO_TASKS = "type a taskset's name, or a file"
STILL_READING = "the tasks are being read: enter starts once their number is here"
T = TypeVar("T")


@dataclass(frozen=True)
class Evaluated:
    """Weights that can be evaluated together."""

    label: str
    of: tuple[Checkpoint | None, ...]
    """None stands for the weights that the model started from."""


def weights_to_evaluate(
    run: Run, marked: Mapping[str, str], here: Checkpoint | None, on_base: bool
) -> list[Evaluated]:
    """What can be evaluated, the most likely choice first. `marked`: letters of the marked
    checkpoints, by id; `here` is under the cursor, which may be on the base weights."""
    tree, head, offered = run.tree, run.head, list[tuple[str, list[Checkpoint | None]]]()
    positions = [(letter, tree.find_weights(id_)) for id_, letter in marked.items()]
    if nodes := [(letter, tree.node(p)) for letter, p in positions if p is not None]:
        title = " and ".join(f"{letter} {label(node)}" for letter, node in nodes)
        offered.append((title, [node for _, node in nodes]))
    if on_base:
        offered.append(("base", [None]))
    if here is not None:
        offered.append((name(here), [here]))
    if head is not None:
        offered += [(f"▶ {name(head)}", [head]), (f"▶ {name(head)} and base", [head, None])]
    if tree.choice is not None and (best := tree.node(tree.choice.position)) is not None:
        mark = "most likely best" if tree.best is None else tree.choice.glyph
        offered.append((f"{mark} {name(best)}", [best]))
    offered.append(("base", [None]))
    distinct: dict[tuple[str | None, ...], Evaluated] = {}
    for title, of in offered:
        ids = tuple(node.id if node else None for node in of)
        distinct.setdefault(ids, Evaluated(title, tuple(of)))
    return list(distinct.values())


@dataclass(frozen=True)
class _Tasks:
    """Tasks that can be evaluated."""

    sizes: UsualTasks
    rows: list[Json] | None = None
    """None for the default tasks, which are on the service."""
    source: str | None = None
    """File or taskset of the rows."""
    order: Order | None = None
    """How to roll them out on an environment of the user's own; None if the service does it."""
    origin: str = ""
    """File or taskset that an environment's tasks come from."""
    named: TaskSource = UNNAMED
    """The rows as the command log names them."""

    def count(self, split: str) -> int:
        held, train = self.sizes.heldout, self.sizes.train
        return {"heldout": held, "train": train}.get(split, held + train)

    @property
    def summary(self) -> str:
        counts = f"{counted(self.sizes.train, 'training task')}, {self.sizes.heldout} held out"
        return f"{counts}, from {one_line(self.origin, 60)}" if self.origin else counts


class TasksDialog(Dialog[T]):
    """Asks on what tasks rollouts are sampled, and begins that."""

    hints = "enter start · tab next · {dialog.cancel} cancel"

    def __init__(self, title: str, line: str, session: RunSession, model: Model) -> None:
        super().__init__(title, [keyed(line)], [("confirm", "Start  (enter)")])
        self.session, self.model = session, model
        self._usual: _Tasks | None = None
        self._reads_usual = True
        """Whether the default tasks are being read."""
        self._typed: _Tasks | None = None
        """The typed source, once it is read."""
        last = last_requested(session.run.evaluations.values())
        self._samples = last.samples if last else SAMPLES.usual
        self._max_tokens = last.parameters.get("max_tokens") if last else None
        self._split = last.split if last else ""

    def task_fields(self) -> Iterable[Widget]:
        yield Field("split", Picker((self._split or SPLITS[0],), id="split"))
        most = str(self._max_tokens or "")
        tokens = Input(most, id="max_tokens", compact=True)
        yield Field(MAX_TOKENS.title, tokens, f"– or {MAX_TOKENS.range}")
        yield Field("tasks", Input(id="evaluate-source", compact=True, placeholder="reading …"))
        yield self.problem

    def on_mount(self) -> None:
        self._read_usual()

    @abstractmethod
    def size_text(self, tasks: _Tasks, count: int, takes: Callable[[int], str]) -> str:
        """What will be sampled of so many tasks; `takes` says how long rollouts take. Raises
        HudUsage: a field is wrong."""

    @abstractmethod
    async def submit(self, tasks: _Tasks) -> None:
        """Begin, and close. Raises HudError."""

    @work
    async def _read_usual(self) -> None:
        """Read the default tasks, used if no source is typed."""
        field = self.query_one("#evaluate-source", Input)
        name, job = NO_TASKS, self.session.run.job
        try:
            if (order := self._order(None, None if job is None else job.id)) is not None:
                self._usual, name = await self._on_environment(order), order.source
            elif (usual := await self.session.evaluations.usual_tasks(self.model)) is not None:
                self._usual, name = _Tasks(usual), usual.name or "the last"
        except HudError as error:
            field.placeholder = NO_TASKS
            self.complain(objection(error))
            return
        finally:
            self._reads_usual = False
        field.placeholder = one_line(name, 60)
        if self._usual is None:
            field.focus()
        self._offer_splits()

    def _order(self, environment: Path | None, job_id: str | None = None) -> Order | None:
        """How rollouts are made on this environment, or on that of a run; None: by the service."""
        state = self.session.store.directory
        return evaluation_order(self.session.client, self.model, state, environment, job_id)

    async def _on_environment(self, order: Order) -> _Tasks:
        """The tasks of an environment, which its own interpreter imports. Raises HudError."""
        state = self.session.store.directory
        if state is None:
            raise HudUsage("this session keeps no files", "see --state-dir")
        self.complain("importing the environment …")
        loaded = await tasks_of(self.session.client, order, state)
        held = sum(task.heldout for task in loaded.tasks)
        name, train = environment_name(order.source), len(loaded.tasks) - held
        sizes = UsualTasks(name=name, heldout=held, train=train)
        rows = [task.row() for task in loaded.tasks]
        origin = "/".join(Path(loaded.origin).parts[-2:])  # a file's folder and name
        return _Tasks(sizes, rows, order.source, order, origin, TaskSource(order.source))

    @property
    def tasks(self) -> _Tasks | None:
        typed = self.query_one("#evaluate-source", Input).value.strip()
        if not typed:
            return self._usual
        return self._typed if self._typed and self._typed.source == typed else None

    @on(Input.Changed)
    @on(Picker.Changed)
    def _offer_splits(self) -> None:
        """Offer the splits that have tasks, the last used one first."""
        tasks, picker = self.tasks, self.query_one("#split", Picker)
        if tasks is not None:
            before = picker.value
            picker.options = tuple(split for split in SPLITS if tasks.count(split)) or SPLITS
            picker.value = before if before in picker.options else picker.options[0]
        self._show_size()

    def _show_size(self) -> None:
        tasks = self.tasks
        try:
            if tasks is None:
                typed = self.query_one("#evaluate-source", Input).value.strip()
                self.complain("enter reads these tasks" if typed else "")
                return
            count = tasks.count(self.query_one("#split", Picker).value)
            text = f"{tasks.summary}\n{self.size_text(tasks, count, self._takes)}"
        except HudUsage as error:
            self.complain(error.message)
            return
        if tasks.order is not None:
            text += f"\n{APART}"
        elif not self.session.client.settings.embedded:
            text += f"\n{keyed(OPEN)}"
        self.problem.update(Content.styled(text, "$text-muted"))

    def _takes(self, rollouts: int) -> str:
        pace = rollout_seconds(self.session.run.evaluations.values())
        return "time unknown" if pace is None else f"about {duration(max(1.0, pace * rollouts))}"

    def number(self, spec: Parameter) -> Any:
        """The typed value of a parameter. Raises HudUsage: it is invalid."""
        try:
            return spec.read(self.query_one(f"#{spec.name}", Input).value.strip())
        except ValueError:
            raise HudUsage(f"{spec.title}: {spec.range}") from None

    def action_confirm(self) -> None:
        self._start()

    def on_key(self, event: Key) -> None:
        if event.key == "enter" and isinstance(self.focused, Picker):
            self._start()

    @work(exclusive=True, group="begin")
    async def _start(self) -> None:
        """Read the typed source; once it is read, begin."""
        try:
            if self.tasks is None:
                await self._read_source()
            else:
                self.complain("…")
                await self.submit(self.tasks)
        except HudError as error:
            self.complain(objection(error))

    async def _read_source(self) -> None:
        typed = self.query_one("#evaluate-source", Input).value.strip()
        if not typed:
            raise HudUsage(STILL_READING if self._reads_usual else NO_TASKS)
        environment = environment_at(typed)
        if environment is not None and (order := self._order(environment)) is not None:
            loaded = await self._on_environment(order)
            self._typed = replace(loaded, source=typed)
        else:
            self.complain("reading the tasks …")
            everything, origin = await load_source(self.session.client, typed)
            tasks, named = choose_tasks(everything, origin)
            held = sum(task.heldout for task in tasks)
            sizes = UsualTasks(name=str(origin["name"]), heldout=held, train=len(tasks) - held)
            self._typed = _Tasks(sizes, [task.row() for task in tasks], typed, named=named)
        self._offer_splits()

    def asked(self, tasks: _Tasks, parameters: EvaluationParameters) -> SubmitEvaluation:
        """What is submitted, but for its checkpoint."""
        if tasks.order is not None:
            parameters = filled(parameters, tasks.order)
        return SubmitEvaluation.model_validate(
            {
                "split": self.query_one("#split", Picker).value,
                "tasks": tasks.rows,
                "name": tasks.sizes.name if tasks.rows is not None else None,
                "parameters": parameters,
            }
        )


class EvaluateDialog(TasksDialog[list[WorkState] | None]):
    """Asks how to evaluate checkpoints, and submits the evaluations; returns those that were
    submitted."""

    def __init__(self, session: RunSession, model: Model, choices: Sequence[Evaluated]) -> None:
        """`choices`: what can be evaluated, most likely choice first."""
        super().__init__(f"Evaluate {model.model_name}", BESIDE, session, model)
        self.offered = choices
        self._begun: list[WorkState] = []

    def fields(self) -> Iterable[Widget]:
        labels = [choice.label for choice in self.offered]
        yield Field("checkpoint", Picker(labels, id="evaluate-of"))
        samples = Input(str(self._samples), id="samples", compact=True)
        yield Field(SAMPLES.title, samples, SAMPLES.range)
        yield from self.task_fields()

    def on_mount(self) -> None:
        self.query_one("#samples").focus()

    @property
    def _chosen(self) -> Evaluated:
        picked = self.query_one("#evaluate-of", Picker).value
        return next(choice for choice in self.offered if choice.label == picked)

    def _parameters(self) -> EvaluationParameters:
        """The typed parameters. Raises HudUsage for an invalid number."""
        return EvaluationParameters(**{spec.name: self.number(spec) for spec in SAMPLED})

    def size_text(self, tasks: _Tasks, count: int, takes: Callable[[int], str]) -> str:
        parameters, of = self._parameters(), len(self._chosen.of)
        each = count * parameters.samples
        total = f", {spaced(of * each)} in all" if of > 1 else ""
        sized = f"{size(count, parameters.samples)} = {counted(each, 'rollout')}{total}"
        text = f"{sized} · {takes(of * each)}"
        if seed := self._seeded(parameters, tasks).seed:
            text += f"\nfresh rollouts: seed {seed}"
        return text

    def _seeded(self, parameters: EvaluationParameters, tasks: _Tasks) -> EvaluationParameters:
        """The parameters with the first seed by which none of the chosen was evaluated on these
        tasks: the same rollouts once more would tell nothing."""
        if tasks.order is not None:  # environments of the user's own have no seed
            return parameters
        split, run = self.query_one("#split", Picker).value, self.session.run
        wanted = split, tasks.count(split), tasks.sizes.name, parameters.temperature
        positions = [ROOT if node is None else run.tree.find(node.id) for node in self._chosen.of]
        used = {
            past.seed
            for position in positions
            if position is not None
            for past in run.evaluations_of(position)
            if (past.split, past.num_tasks, past.name, past.temperature) == wanted
            and past.max_tokens in (None, parameters.max_tokens)
        }
        seed = next(s for s in itertools.count(parameters.seed) if s not in used)
        return parameters.model_copy(update={"seed": seed})

    async def submit(self, tasks: _Tasks) -> None:
        asked = self.asked(tasks, self._seeded(self._parameters(), tasks))
        environment = None if tasks.order is None else environment_of(tasks.order)
        for checkpoint in self._chosen.of[len(self._begun) :]:
            id_ = checkpoint.id if checkpoint else None
            body = asked.model_copy(update={"checkpoint_id": id_})
            self._begun.append(
                await self.session.evaluations.submit(
                    self.model, body, label(checkpoint), tasks.named, environment
                )
            )
            self.session.evaluation_runner.begin(self._begun[-1])
        self.dismiss(self._begun)


class BudgetDialog(TasksDialog[Record | None]):
    """Asks how many rollouts to spend; returns what they are to be spent on, which is stored."""

    def __init__(
        self,
        session: RunSession,
        model: Model,
        title: str,
        line: str,
        usual: int,
        foreseen: Callable[[int, int], tuple[str, int]],
        begin: Callable[[Asked, int], Awaitable[Record]],
    ) -> None:
        """
        Args:
            model: The one whose tasks are the usual ones.
            usual: The budget that is proposed.
            foreseen: Says how a budget would be spent on so many tasks, and how many rollouts that
                is at most; raises HudUsage.
            begin: Stores what it will be spent on; raises HudError.
        """
        super().__init__(title, line, session, model)
        self.usual, self.foreseen, self.begin = usual, foreseen, begin

    def fields(self) -> Iterable[Widget]:
        yield Field("rollouts", Input(str(self.usual), id="budget", compact=True), "at most")
        yield from self.task_fields()

    def on_mount(self) -> None:
        self.query_one("#budget").focus()

    @property
    def _budget(self) -> int:
        typed = self.query_one("#budget", Input).value.strip().replace(" ", "")
        if not typed.isdecimal():
            raise HudUsage("rollouts: a whole number")
        return int(typed[:9])

    def size_text(self, tasks: _Tasks, count: int, takes: Callable[[int], str]) -> str:
        how, spent = self.foreseen(count, self._budget)
        return f"{how}\n{counted(spent, 'rollout')} · {takes(spent)}"

    async def submit(self, tasks: _Tasks) -> None:
        parameters = EvaluationParameters(max_tokens=self.number(MAX_TOKENS))
        environment = None if tasks.order is None else environment_of(tasks.order)
        asked = Asked(
            body=self.asked(tasks, parameters), source=tasks.named, environment=environment
        )
        self.dismiss(await self.begin(asked, self._budget))


async def ask_evaluation(
    app: App[None], session: RunSession, choices: Sequence[Evaluated]
) -> list[WorkState]:
    """Ask how, and submit evaluations of the followed model's checkpoints. From a worker."""
    model = session.run.model
    if model is None:
        return []
    return await app.push_screen_wait(EvaluateDialog(session, model, choices)) or []
