"""``eval``: the reward of checkpoints on tasks, with its interval, by rollouts from their
weights."""

import argparse
import asyncio
import sys
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from pydantic import ValidationError

from hud_tui.change import TaskSource
from hud_tui.cli.connect import paths_of
from hud_tui.cli.flags import given
from hud_tui.cli.models import named_checkpoint, read_tree
from hud_tui.cli.output import aligned, bar, emit, plain, print_notice
from hud_tui.cli.which_model import choose_model
from hud_tui.client.client import HudClient
from hud_tui.client.preflight import choose_tasks, load_source
from hud_tui.client.records import Asked
from hud_tui.errors import HudError, HudGate, HudUsage
from hud_tui.parameters import EVALUATION_PARAMETERS, ROLLOUT_OPTIONS, flag_of
from hud_tui.rl.checkpoint_tree import Tree, label
from hud_tui.rl.evaluation import (
    Difference,
    Scores,
    TaskChange,
    best_evaluated,
    best_known,
    difference,
    figures,
    size,
    tasks_digest,
)
from hud_tui.rl.metrics import interval_text, short
from hud_tui.rl.plan import TaskSplit
from hud_tui.rl.settings import wrong_value
from hud_tui.rl.tasks.formats import read_rows
from hud_tui.rl.text import counted, one_line
from hud_tui.rl.work import SUCCEEDED, Work, trouble, weights_name
from hud_tui.rollouts.control import evaluation_order, works_of
from hud_tui.rollouts.environment import environment_at, tasks_of
from hud_tui.rollouts.evaluate import SAMPLED, environment_of, filled
from hud_tui.rollouts.run_files import Order, environment_name
from hud_tui.wire import Checkpoint, Estimate, Model, WorkState
from hud_tui.wire_runs import EvaluationParameters, SubmitEvaluation

LISTED = 20
"""Most tasks in a table; a document has all."""


async def evaluate(client: HudClient, args: argparse.Namespace) -> int:
    """Evaluate checkpoints, resume an evaluation, or list evaluations. Raises HudError: the service
    does not answer, or refuses; or a name is unknown."""
    command = Evaluating(client, args)
    if args.resume is not None:
        return await command.resume()
    return await (command.show_list() if args.list else command.evaluate())


class Evaluating:
    def __init__(self, client: HudClient, args: argparse.Namespace) -> None:
        self._client, self._args = client, args
        self._show: Callable[[str, object], None] = emit if args.headless else _print
        self._state = paths_of(args).state
        self._works = works_of(client, self._state)
        self._evaluations = self._works.evaluations

    async def show_list(self) -> int:
        """List all evaluations of a model."""
        model = await choose_model(self._client, self._args)
        evaluations = await self._evaluations.of_model(model)
        self._show("evaluations", {"model": model.model_name, "evaluations": evaluations})
        return 0

    async def resume(self) -> int:
        """Resume an evaluation, and follow it to its end; of a whole one, show the result."""
        if self._args.source or self._args.checkpoint:
            raise HudUsage("--resume takes no SOURCE and no --checkpoint", "it has its own")
        evaluation = await self._evaluations.find(self._args.resume)
        if not Work.of(evaluation).why_no_resume:
            await self._works.resume(evaluation.id)
        than = await self._than(await self._client.model(evaluation.model_id), None)
        ended = await self._followed(evaluation)
        return self._judged(ended, than)

    async def evaluate(self) -> int:
        """Evaluate each named checkpoint, and compare the others with the first."""
        self._parameters()  # wrong ones are told before anything is read
        model = await choose_model(self._client, self._args)
        tree = await read_tree(self._client, model)
        checkpoints = [named_checkpoint(name, tree) for name in self._args.checkpoint or ["head"]]
        asked = await self.asked(model)
        compared = self._compared(tree, checkpoints)
        than = None
        if compared is None:
            than = await self._than(model, tree, self._digest(asked.body.tasks))
        code, ended, shown = 0, list[WorkState](), 0
        for number, checkpoint in enumerate(checkpoints):
            id_ = checkpoint.id if checkpoint else None
            body = asked.body.model_copy(update={"checkpoint_id": id_})
            begun = await self._evaluations.submit(
                model, body, label(checkpoint), asked.source, asked.environment
            )
            ended.append(await self._followed(begun))
            if number == compared:
                than = ended[number]
            if compared is None or number >= compared:  # else there is nothing to judge by yet
                for evaluation in ended[shown:]:
                    code = max(code, self._judged(evaluation, None if evaluation is than else than))
                    if evaluation is not ended[0]:
                        self._compare(ended[0], evaluation)
                shown = len(ended)
        return code

    async def asked(self, model: Model) -> Asked:
        """What the command line asks of evaluations of a model. Raises HudUsage."""
        parameters = self._parameters()
        order = await self._order(model)
        if order is None:
            rows, name, source = await self._tasks()
        else:
            parameters = filled(parameters, order)
            rows, name, source = await self._tasks_of(order)
        body = SubmitEvaluation(
            split=self._args.split, tasks=rows, name=name, parameters=parameters
        )
        environment = None if order is None else environment_of(order)
        return Asked(body=body, source=source, environment=environment)

    def _compared(self, tree: Tree, checkpoints: Sequence[Checkpoint | None]) -> int | None:
        """Place of the checkpoint of --fail-if-worse-than among several that this command
        evaluates; None if it was evaluated before, or the flag is not given."""
        ref = self._args.fail_if_worse_than
        if ref in (None, "best") or len(checkpoints) == 1:
            return None
        with suppress(HudUsage):  # the id of an evaluation
            named = named_checkpoint(ref, tree)
            ids = [checkpoint.id if checkpoint else None for checkpoint in checkpoints]
            sought = named.id if named else None
            return ids.index(sought) if sought in ids else None
        return None

    def _parameters(self) -> EvaluationParameters:
        try:
            return EvaluationParameters(**given(self._args, EVALUATION_PARAMETERS))
        except ValidationError as error:
            raise wrong_value(error) from error

    async def _tasks(self) -> tuple[list[dict[str, Any]] | None, str | None, TaskSource]:
        """The rows of SOURCE, their name and their source; None for the tasks of the model's latest
        run."""
        if self._args.source is None:
            if self._args.digest is not None:
                raise HudUsage("--digest is of the tasks of SOURCE, which is not given")
            return None, None, TaskSource()
        everything, origin = await load_source(self._client, self._args.source)
        tasks, source = choose_tasks(everything, origin, (), self._args.digest)
        return [task.row() for task in tasks], str(origin["name"]), source

    async def _order(self, model: Model) -> Order | None:
        """How rollouts are made on an environment of one's own: as in the model's latest run on it,
        but for what is given; None where the service makes them. Raises HudUsage: a flag of these,
        without an environment; or it says what cannot be."""
        args = self._args
        source = None if args.source is None else environment_at(args.source)
        flags = given(args, ROLLOUT_OPTIONS)
        job = await self._client.known_job(model.id) if args.source is None else None
        sampling = {key: getattr(args, key) for key in SAMPLED}
        job_id = None if job is None else job.id
        order = evaluation_order(
            self._client, model, self._state, source, job_id, sampling, **flags
        )
        if order is None and flags:
            name = next(iter(flags)).replace("_", "-")
            raise HudUsage(f"--{name} is for an environment: SOURCE is no .py file")
        return order

    async def _tasks_of(
        self, order: Order
    ) -> tuple[list[dict[str, Any]] | None, str | None, TaskSource]:
        """The tasks of an environment, as of `_tasks`."""
        print_notice(f"loading {one_line(order.source)}")
        loaded = await tasks_of(self._client, order, self._state)
        print_notice(f"{counted(len(loaded.tasks), 'task')} from {loaded.origin}")
        source = TaskSource(order.source)
        name = environment_name(order.source)
        return [task.row() for task in loaded.tasks], name, source

    def _digest(self, rows: list[dict[str, Any]] | None) -> str | None:
        """Of the tasks that will be evaluated; None where the service chooses them."""
        if rows is None:
            return None
        tasks, _ = TaskSplit.of(read_rows(rows)).chosen(self._args.split)
        return tasks_digest([task.slug for task in tasks])

    async def _than(
        self, model: Model, tree: Tree | None, digest: str | None = None
    ) -> WorkState | None:
        """The evaluation of --fail-if-worse-than, with its rewards by task; None without the flag.
        `digest`: of the tasks that will be evaluated. ``best`` is the best that was evaluated on
        them, and need not be ★, which may rest on what its run's steps reported. Raises HudUsage:
        it names nothing that was evaluated."""
        ref = self._args.fail_if_worse_than
        if ref is None:
            return None
        evaluations = await self._evaluations.of_model(model)
        prefix = ref.casefold().replace("-", "")
        matches = [job for job in evaluations if job.id.replace("-", "").startswith(prefix)]
        evaluation = matches[0] if len(prefix) >= 4 and len(matches) == 1 else None
        if evaluation is None:
            tree = tree or Tree.of(await self._client.checkpoints(model.id))
            checkpoint = named_checkpoint(ref, tree)
            evaluation = best_known(evaluations, checkpoint.id if checkpoint else None, digest)
            if ref == "best":
                evaluation = best_evaluated(evaluations, digest)
            if evaluation is None:
                hint = f"evaluate it first: {self._command(model, label(checkpoint))}"
                raise HudUsage(f"{label(checkpoint)} has no finished evaluation", hint)
        return await self._evaluations.get(evaluation.id)

    def _command(self, model: Model, checkpoint: str) -> str:
        """The command that evaluates another checkpoint in the same way."""
        args = self._args
        words = ["eval", *filter(None, [args.source])]
        words += ["-m", model.model_name, "--checkpoint", checkpoint]
        values = {"split": args.split, "digest": args.digest}
        values |= given(args, (*EVALUATION_PARAMETERS, *ROLLOUT_OPTIONS))
        for name, value in values.items():
            several = value if isinstance(value, list) else [value]
            words += [word for v in several if v is not None for word in (flag_of(name), str(v))]
        return self._client.settings.command(*words)

    async def _followed(self, evaluation: WorkState) -> WorkState:
        """An evaluation after its end. If interrupted, it is cancelled, and can be resumed. Raises
        HudError: it failed, or was cancelled elsewhere."""
        progress, now = Progress(), evaluation
        try:
            async with aclosing(self._works.follow(evaluation.id)) as followed:
                async for now in followed:
                    progress.show(now)
        except asyncio.CancelledError:
            progress.end()
            await asyncio.shield(self._interrupted(now))
            raise
        progress.end()
        if now.status not in SUCCEEDED:
            why = trouble(now)
            raise HudError(
                f"evaluation {now.id} {now.status} after {now.done} of {now.total} rollouts"
                + (f": {why}" if why else ""),
                f"{self._resumes(now)} samples what is missing",
            )
        return now

    async def _interrupted(self, now: WorkState) -> None:
        again = self._resumes(now)
        try:
            async with asyncio.timeout(10):
                await self._works.cancel(now.id)
                now = await self._evaluations.get(now.id, groups=False)
        except (HudError, TimeoutError) as error:
            print_notice(
                f"the evaluation could not be cancelled, and goes on ({error}): {again} follows it"
            )
        else:
            done = f"{now.done} of {now.total} rollouts"
            print_notice(f"cancelled after {done}, which are kept: {again} samples the rest")

    def _resumes(self, evaluation: WorkState) -> str:
        return self._client.settings.command("eval", "--resume", evaluation.id)

    def _judged(self, ended: WorkState, than: WorkState | None) -> int:
        """Print its result and the gates' outcome; returns the exit code."""
        gates = _gates(ended, than, self._args.fail_under)
        document = {"evaluation": ended, "gates": [gate.document for gate in gates]}
        self._show("evaluation", document)
        failed = [gate for gate in gates if not gate.passed]
        for gate in failed:
            print_notice(gate.message)
        return HudGate.exit_code if failed else 0

    def _compare(self, before: WorkState, after: WorkState) -> None:
        delta = _difference(before, after)
        if delta is None:
            print_notice("the two evaluations share no task: nothing to compare")
            return
        self._show("comparison", _comparison(before, after, delta))


def _scores(evaluation: WorkState) -> Scores:
    return Scores.of(evaluation.groups, evaluation.parameters.get("solved_at", 1.0))


def _difference(before: WorkState, after: WorkState) -> Difference | None:
    return difference(_scores(before), _scores(after))


# Gates: conditions that fail a build.


@dataclass(frozen=True)
class _Gate:
    document: dict[str, Any]
    passed: bool
    message: str


def _gates(ended: WorkState, than: WorkState | None, least: float | None) -> list[_Gate]:
    """The gates of the command line. Raises HudUsage: there is nothing to compare with."""
    gates, reward = [], ended.result.mean_reward if ended.result else 0.0
    if least is not None:
        passed = reward >= least
        message = f"mean reward {reward:.4g} is under {least:g}"
        gates.append(
            _Gate({"gate": "fail-under", "limit": least, "passed": passed}, passed, message)
        )
    if than is not None:
        delta = _difference(than, ended)
        if delta is None:
            hint = "evaluate both on the same SOURCE and --split"
            raise HudUsage(f"evaluation {than.id} shares no task with this one", hint)
        passed = not delta.is_worse
        document = {"gate": "fail-if-worse-than", "than": than.id, "passed": passed}
        document |= _comparison(than, ended, delta)
        message = "; ".join(delta.sentences(weights_name(than), weights_name(ended)))
        gates.append(_Gate(document, passed, f"worse than {weights_name(than)}: {message}"))
    return gates


def _comparison(before: WorkState, after: WorkState, delta: Difference) -> dict[str, Any]:
    return {
        "before": {"id": before.id, "checkpoint": weights_name(before)},
        "after": {"id": after.id, "checkpoint": weights_name(after)},
        **difference_document(delta, weights_name(before), weights_name(after)),
    }


def difference_document(delta: Difference, before: str, after: str) -> dict[str, Any]:
    """A difference in documents; `before` and `after` are the names of the two."""
    return {
        "tasks": len(delta.changes),
        "missing": delta.missing,
        "samples": delta.samples,
        "rollouts": delta.rollouts,
        "reward": delta.reward,
        "solved": delta.solved,
        "improved": [_change(change) for change in delta.better],
        "regressed": [_change(change) for change in delta.worse],
        "alike": [_change(change) for change in delta.alike],
        "summary": delta.sentences(before, after),
    }


def _change(change: TaskChange) -> dict[str, Any]:
    return {
        "task_slug": change.slug,
        "before": change.before.mean,
        "after": change.after.mean,
        "solved_before": change.before.solved,
        "solved_after": change.after.solved,
    }


# Progress, and tables for people.


class Progress:
    """A bar on one line of a terminal; elsewhere a line for each quarter."""

    def __init__(self) -> None:
        self._of, self._quarter = "", -1
        self._open = False

    def show(self, now: WorkState) -> None:
        if now.id != self._of:
            self.end()
            self._of, self._quarter = now.id, -1
        if sys.stderr.isatty():
            mean = "" if now.mean_reward is None else f"  mean reward {short(now.mean_reward)}"
            line = f"{bar(now.done, now.total)} rollouts of {weights_name(now)}{mean}"
            print(f"\r\x1b[K{one_line(line, 200)}", end="", file=sys.stderr, flush=True)
            self._open = True
        elif (quarter := 4 * now.done // max(1, now.total)) > self._quarter:
            self._quarter = quarter
            print_notice(f"{now.status}: {now.done} of {now.total} rollouts of {weights_name(now)}")

    def end(self) -> None:
        if self._open:
            print(file=sys.stderr, flush=True)
            self._open = False


async def followed(sampling: AsyncGenerator[WorkState, None], again: str) -> None:
    """Show how several evaluations go on; `again` is the command that goes on after an error or an
    interrupt."""
    progress, is_begun = Progress(), False
    try:
        async with aclosing(sampling) as states:
            async for now in states:
                is_begun = True
                progress.show(now)
    except (asyncio.CancelledError, HudError):
        progress.end()
        if is_begun:
            print_notice(f"what is sampled is kept; {again} goes on")
        raise
    progress.end()


def _print(kind: str, data: Any) -> None:
    """Print a document as text."""
    match kind:
        case "evaluations":
            lines = _list_lines(data["model"], data["evaluations"])
        case "evaluation":
            lines = _lines(data["evaluation"], data["gates"])
        case _:
            lines = comparison_lines(plain(data))
    print("\n".join(one_line(line, 300) for line in lines))


def _list_lines(model: str, evaluations: Sequence[WorkState]) -> list[str]:
    if not evaluations:
        return [f"{model} has not been evaluated yet"]
    rows = [("id", "checkpoint", "split", "size", "status", "mean reward", "pass@1", "created")]
    for job in evaluations:
        texts = {figure.label: " ".join(_ends(figure.estimate)).strip() for figure in _figures(job)}
        mean, status = texts.get("mean reward", "–"), job.status
        if job.result is None:
            status = f"{job.status}, {job.done} of {job.total}"
            mean = "–" if job.mean_reward is None else f"{short(job.mean_reward)} so far"
        first = (job.id[:8], weights_name(job), job.split, size(job.num_tasks, job.samples))
        created = (
            "–"
            if job.created_at is None
            else datetime.fromtimestamp(job.created_at, UTC).isoformat()[:16]
        )
        rows.append((*first, status, mean, texts.get("pass@1", "–"), created))
    return aligned(rows)


def _figures(evaluation: WorkState) -> Sequence[Any]:
    return [] if evaluation.result is None else figures(evaluation.result)


def _lines(evaluation: WorkState, gates: Sequence[dict[str, Any]]) -> list[str]:
    """Tasks first and totals last, where a terminal's output ends."""
    tasks = sorted(_scores(evaluation).tasks, key=lambda task: (task.mean, task.slug))
    shown = [(t.slug, short(t.mean), f"{t.solved} of {len(t.rewards)}") for t in tasks[:LISTED]]
    lines = aligned([("task, worst first", "mean", "solved"), *shown])
    if len(tasks) > LISTED:
        lines.append(f"{len(tasks) - LISTED} more; --headless has all")
    of = f"{evaluation.model} {weights_name(evaluation)}"
    if evaluation.name:
        of += f" on {evaluation.name}"
    rollouts = size(evaluation.num_tasks, evaluation.samples)
    lines += ["", f"{of}: {evaluation.split}, {rollouts}, evaluation {evaluation.id}"]
    rows = [(figure.label, *_ends(figure.estimate)) for figure in _figures(evaluation)]
    lines += ["", *aligned([("", "", "95 % interval"), *rows])]
    for gate in gates:
        if "summary" in gate:
            lines += ["", *comparison_lines(plain(gate))[:-1]]
        verdict = "passed" if gate["passed"] else "failed"
        lines += ["", f"--{gate['gate']}: {verdict}"]
    return [*lines, ""]


def comparison_lines(comparison: dict[str, Any]) -> list[str]:
    """Tasks with the largest differences first, the conclusion last."""
    lines: list[str] = []
    titles = {"improved": "improved", "regressed": "regressed"}
    for kind, title in (titles | {"alike": "within chance, each by itself"}).items():
        changes = comparison[kind]
        if changes:
            rows = [
                (c["task_slug"], short(c["before"]), "→", short(c["after"]))
                for c in changes[:LISTED]
            ]
            more = len(changes) - LISTED
            rest = [f"{more} more; --headless has all"] if more > 0 else []
            lines += [f"{counted(len(changes), 'task')} {title}", *aligned(rows), *rest, ""]
    return [*lines, *comparison["summary"], ""]


def _ends(estimate: Estimate) -> tuple[str, str]:
    return short(estimate.value), interval_text(estimate.low, estimate.high)
