"""``run --gpus``: a machine is rented and set up, and the run is begun there, by one plan."""

import argparse
import asyncio
from collections.abc import Iterator, Mapping
from contextlib import aclosing, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

from hud_tui.cli.commands import build_parser
from hud_tui.cli.connect import Connector, client_of, guard_of, print_costs
from hud_tui.cli.flags import swept
from hud_tui.cli.gym_run import prepare, run_config, variables_of
from hud_tui.cli.output import confirm, emit, flags_of, print_notice, require_consent, show
from hud_tui.cli.remote import begin_use, document, machines_of
from hud_tui.cli.remote_flags import RENTING
from hud_tui.cli.remote_pods import (
    carry_on,
    choose_rental,
    filter_of,
    prime_of,
    rent_once,
    until_text,
)
from hud_tui.cli.runs import check_everything, is_refused, parameters_in, plan_stream, run, show_job
from hud_tui.cli.watch import watch
from hud_tui.client.client import HudClient
from hud_tui.client.preflight import choose_tasks, load_source
from hud_tui.errors import HudError, HudPreflightFailed, HudUsage
from hud_tui.legacy.lock_file import primary_source
from hud_tui.remote.engines import find_engine
from hud_tui.remote.pods import HOURS, IDLE_MIN, find_rental
from hud_tui.remote.rent_plan import RentFacts, RentPlan, plan_name, plan_rental
from hud_tui.remote.setup import secret_values
from hud_tui.rl.checkpoint_tree import name_problem, own_models
from hud_tui.rl.findings import verdict
from hud_tui.rl.names import find_model, is_shared
from hud_tui.rl.settings import setting_label
from hud_tui.rl.tasks.task import split_text
from hud_tui.rl.text import names_text, one_line
from hud_tui.service_file import Rental, read_rentals
from hud_tui.settings import every_variable, read_paths
from hud_tui.storage import held
from hud_tui.wire import Model

SAME = "the same command goes on with it"
_HERE = Path()


def run_rented(args: argparse.Namespace) -> int:
    """Rent, set up and run; returns the exit code.

    Raises:
        HudUsage: A flag does not fit; nothing was rented.
        HudError: A part failed. What is done stays, and the same command goes on.
    """
    print_costs(args)
    return asyncio.run(_RentedRun(args).carry_out())


class PreflightFailed(Exception):
    """The tasks failed a check, which was told."""


class _RentedRun:
    """Carries a `RentPlan` out: what its next part is, is read anew after each."""

    def __init__(self, args: argparse.Namespace) -> None:
        self._args = argparse.Namespace(**{**vars(args), "local": True, "service_url": None})
        self._machines = machines_of(args)
        self._query = filter_of(args)
        self._asked = (args.model or "", self._query.count or 0, self._query.gpu)
        self._pod = _pod_flags(self._args, plan_name(*self._asked))

    def _check(self) -> Mapping[str, str]:
        """Raises HudUsage: a flag does not fit. Returns the secrets to send."""
        args, (model, count, gpu) = self._args, self._asked
        if not count or not gpu:
            raise HudUsage("which GPUs, and how many?", "e.g. --gpus 2xH100")
        if not model:
            raise HudUsage("name the model that is trained there", "-m NAME; it is forked there")
        if problem := name_problem(model, ()):
            raise HudUsage(f"the name {one_line(model, 40)!r}: {problem}")
        if several := swept(args):
            hint = "pods create and remote use give you a machine; then sweep there"
            raise HudUsage(f"--gpus takes one value of {', '.join(several)}", hint)
        parameters_in(args)
        if args.engine and not find_engine(args.engine).weights and not args.base:
            raise HudUsage(f"{args.engine} has several bases", "--base, e.g. tiny/arith-0.2M")
        return secret_values(args.send, every_variable())

    async def carry_out(self) -> int:
        args, values = self._args, self._check()
        if not args.dry_run:
            guard_of(args).check("rent a machine")
            require_consent(args)
        with self._alone():
            begun = plan_rental(read_rentals(self._machines.state), *self._asked)
            if begun is not None:
                return await self._go_on_with(begun, values)
            try:
                facts = await self._checked_run()
            except PreflightFailed:
                return HudPreflightFailed.exit_code
            async with prime_of(args) as prime:
                request = await choose_rental(self._pod, prime, self._query)
                plan = RentPlan(request, args.engine or "", self._pod.model or "", facts)
                self._tell(plan)
                if args.dry_run:
                    return 0
                await confirm(args, f"rent, set up and run, for at most ${request.most:.2f}?")
                rental = await rent_once(self._pod, prime, request)
            return await self._go_on(rental, values)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Let no other program do the same meanwhile. Raises HudUsage: one does."""
        folder = self._machines.folder
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        name = self._pod.name.rpartition("-")[0]  # without its random part
        with held(folder / f"{name}.lock") as ours:
            if ours is None:
                raise HudUsage("another hud-tui is at work on this plan", "wait for it")
            yield

    def _facts(self, name: str) -> RentFacts:
        """What has happened, but for the run. Raises HudUsage: the pod has ended."""
        rental = find_rental(read_rentals(self._machines.state), name)
        if not rental.runs:
            what = f"{name} has ended: {rental.why}"
            raise HudUsage(what, "the same command begins again, with another pod")
        is_ready = rental.done and name in self._machines.names()
        return RentFacts(rental, is_ready, self._machines.used() == name)

    # What is to be run, checked before anything is rented.

    async def _checked_run(self) -> list[tuple[str, str]]:
        """What is run: labels and texts. Raises PreflightFailed: told already."""
        args = self._args
        paths = partial(read_paths, args.state_dir, args.data_dir)  # not those of another machine
        connect = Connector(paths, partial(guard_of, args), str, flags_of(args))
        async with aclosing(await connect("local", None, print_notice)) as client:
            facts = await (self._config(client) if args.config else self._tasks(client))
        values = parameters_in(args).model_dump(exclude_none=True)
        settings = [(setting_label(name), str(value)) for name, value in values.items()]
        return [("model", f"{args.model}, forked there"), *facts, *settings]

    async def _tasks(self, client: HudClient) -> list[tuple[str, str]]:
        args = self._args
        everything, origin = await load_source(client, args.source or primary_source(_HERE))
        tasks, _ = choose_tasks(everything, origin, args.leave_out, args.digest)
        asked = parameters_in(args)
        findings = await check_everything(client, tasks, None, asked, origin.get("lock"))
        if is_refused(args.fail_on, findings):
            body = {"findings": findings, "verdict": verdict(findings)}
            show(args, "preflight", body, "nothing was rented: preflight failed")
            raise PreflightFailed
        return [("tasks", f"{origin['source']}: {split_text(tasks)}")]

    async def _config(self, client: HudClient) -> list[tuple[str, str]]:
        args, made = self._args, await prepare(client, self._args)
        if is_refused(args.fail_on, list(made.findings)):
            show(args, "config", made.document, "nothing was rented: the tasks failed")
            raise PreflightFailed
        variables_of(made.tasks, local=True)
        for note in made.notes:
            print_notice(note)
        return made.facts

    # Telling.

    def _tell(self, plan: RentPlan) -> None:
        """The plan, with its costs."""
        out = plan_stream(self._args)
        for part, lines in plan.parts:
            for line in (part, *(f"  {line}" for line in lines)):
                print(one_line(line, 300), file=out, flush=True)
        if self._args.headless:
            emit("plan", {**plan.document, "pod": None, "next": "rent"})
        if self._args.dry_run:
            print_notice("nothing was rented; the same with -y in place of --dry-run does it all")

    async def _go_on_with(self, rental: Rental, values: Mapping[str, str]) -> int:
        """Go on with a plan that was cut; asked once, again."""
        args, facts = self._args, self._facts(rental.name)
        part = RentPlan.next(facts)
        print_notice(f"{rental.name} ({rental.gpus}) is rented for this: {rental.price}")
        print_notice(f"{until_text(args, rental)}; next: {NEXT[part]}")
        if args.dry_run:
            body = {"pod": rental.name, "next": part, "price_hr": rental.price_hr}
            what = f"nothing was done: {NEXT[part]} is next"
            show(args, "plan", {**body, "most": round(rental.most, 2)}, what)
            return 0
        await confirm(args, f"go on with {rental.name}?")
        return await self._go_on(rental, values)

    # Doing.

    async def _go_on(self, rental: Rental, values: Mapping[str, str]) -> int:
        """The parts that are left, one after the other."""
        try:
            while (part := RentPlan.next(facts := self._facts(rental.name))) != "run":
                if part == "set up":
                    async with prime_of(self._args) as prime:
                        await carry_on(self._pod, prime, rental, values)
                else:
                    await self._use(rental.name)
            async with aclosing(await client_of(self._args)) as client:
                return await self._run(client, facts)
        except asyncio.CancelledError:
            print_notice(SAME)
            raise
        except HudError as error:
            error.hint = f"{error.hint}; {SAME}" if error.hint else SAME
            raise

    async def _use(self, name: str) -> None:
        await begin_use(self._args, self._machines, self._machines.get(name))
        if self._args.headless:
            emit("used", document(self._machines, self._machines.get(name)))

    async def _run(self, client: HudClient, facts: RentFacts) -> int:
        """Fork the model, and begin the run, unless they are there."""
        args, models = self._args, await client.models()
        own = [one for one in own_models(models) if args.model in (one.name, one.model_name)]
        model = own[0] if own else await self._fork(client, models)
        job = await client.known_job(model.id)
        facts = replace(facts, job_id=job.id if job is not None and job.id else "")
        if RentPlan.next(facts) == "run":
            there = {**vars(args), "yes": True, "model": model.model_name, "gpus": None}
            if args.config is None and args.source is None:
                there["source"] = primary_source(_HERE)
            work = run if args.config is None else run_config
            return await work(client, argparse.Namespace(**there))
        if not args.follow:
            show_job(client, args, model, facts.job_id, "it runs already:")
            return 0
        watched = build_parser(["watch"]).parse_args(["watch", model.model_name])
        return await watch(client, argparse.Namespace(**{**vars(args), **vars(watched)}))

    async def _fork(self, client: HudClient, models: list[Model]) -> Model:
        """The model of the plan, forked from the machine's base."""
        args, bases = self._args, [model for model in models if is_shared(model)]
        machine = self._machines.get(self._machines.used() or "")
        wanted = args.base or machine.model
        names = [base.model_name for base in bases]
        if wanted in names or args.base:
            base = find_model(wanted, bases)
        elif len(bases) == 1:
            base = bases[0]
        else:
            raise HudUsage("which model is to be trained there?", f"--base {names_text(names)}")
        model = await client.fork(base.id, args.model)
        print_notice(f"forked {base.model_name} as {model.model_name}")
        if args.headless:
            emit("model", {"model": model})
        return model


NEXT = {"set up": "its set-up", "use": "the tunnel there", "run": "the run"}
"""The parts that are left of a plan that was cut, in words."""


def _pod_flags(args: argparse.Namespace, name: str) -> argparse.Namespace:
    """The arguments of ``pods create`` that do the first two parts."""
    parsed = vars(build_parser(["pods"]).parse_args(["pods", "create"]))
    common = ("headless", "read_only", "insecure", "state_dir", "data_dir", "send", "identity")
    given = {key: vars(args).get(key) for key in (*common, *RENTING) if key in vars(args)}
    chosen = {
        "hours": HOURS if args.hours is None else args.hours,
        "idle": IDLE_MIN if args.idle is None else args.idle,
        "model": args.base if not args.engine or find_engine(args.engine).weights else None,
    }
    return argparse.Namespace(**{**parsed, **given, **chosen, "name": name, "yes": True})
