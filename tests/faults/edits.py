"""Faults that are written down: each breaks one rule of the guide, and a test must fail of it."""

from tests.faults.access_edits import ACCESS
from tests.faults.faults import Edit

OWN = ("tests/unit/test_own.py",)
TRANSCRIPT = ("tests/unit/test_transcript.py",)
CHOICE = ("tests/unit/test_choice.py",)
EVALUATION = ("tests/unit/test_evaluation.py",)
TIMELINE, TIMES = ("tests/unit/test_timeline.py",), ("tests/service/test_times.py",)
FEED = ("tests/service/test_client_feed.py",)
BUDGET = ("tests/remote/test_money.py",)
CANCELLED = "test_a_run_that_is_cancelled_before_it_holds_its_model_takes_no_step"
REFUSED = "test_what_cannot_be_evaluated_is_refused_and_nothing_is_queued"
PLAYED = ("tests/rollouts/test_play.py", "tests/unit/test_game.py")
RENTING = ("tests/remote/test_renting.py",)
RENTED = ("tests/remote/test_rent_run.py",)
CHUNKS, STREAMS = ("tests/unit/test_completions.py",), ("tests/service/test_streams.py",)

HOSTS, TLS = ("tests/service/test_hosts.py",), ("tests/service/test_tls.py",)
PROXIES = ("tests/service/test_proxies.py",)

EDITS = (
    *ACCESS,
    Edit(
        "HUD_TUI_KEY belongs to the URL of HUD_TUI_HOST",
        "hosts.py",
        "if ‹not named or usable_host(named, HOST) == url → True› else",
        HOSTS,
    ),
    Edit(
        "the certificate of a service elsewhere is verified by what is stored for it alone",
        "client/trust.py",
        "        return ‹context_of(settings.ca) → True›\n",
        HOSTS,
    ),
    Edit(
        "an expired certificate is not served",
        "service/tls.py",
        "found = ‹_as_a_client_sees(context, leaf)"
        " → dict(subjectAltName=(('DNS', 'x'),), notAfter='Jan  1 00:00:00 2030 GMT')›",
        TLS,
    ),
    Edit(
        "the old certificate stays until both files belong together",
        "service/tls.py",
        "            ‹self._refused = state → self._refused, self.pair = state, None›\n",
        TLS,
    ),
    Edit(
        "what is read before the transport encrypts waits for it",
        "service/connections.py",
        "if ‹self._early is not None → False›:",
        TLS,
    ),
    Edit(
        "only a trusted proxy says who the client is",
        "service/proxies.py",
        "return peer is not None‹ and is_in(peer, self._proxies) → ›",
        PROXIES,
    ),
    Edit(
        "the last address that is no proxy is the client's",
        "service/proxies.py",
        "[:‹ -MOST - 1 : -1 → MOST›]",
        PROXIES,
    ),
    Edit(
        "the scheme of an origin counts",
        "service/gate.py",
        "f\"{‹scheme → origin.partition(b':')[0].decode()›}://{host}\".casefold()",
        PROXIES,
    ),
    Edit(
        "an address that other machines reach needs TLS",
        "service/serving.py",
        "if ‹is_far and entrance.certificate is None → False› and",
        ("tests/service/test_served_url.py",),
    ),
    Edit(
        "a call's result belongs to the call with its id",
        "rl/transcript.py",
        "(same := [n for n in waiting if calls[n]‹.id == made.id → .name == made.name›])",
        TRANSCRIPT,
    ),
    Edit(
        "a rollout that is evaluated has no advantage",
        "rl/outcome.py",
        "‹None if is_evaluated else  → ›advantage,",
        TRANSCRIPT,
    ),
    Edit(
        "a word of a filter is looked for in conversations",
        "rl/rollout_search.py",
        "return ‹ → bool(key) and ›key not in ROW_TEXTS and key not in ROW_NUMBERS",
        ("tests/unit/test_rollout_search.py",),
    ),
    Edit(
        "an improbable token stands out",
        "rl/rollouts.py",
        "if probability ‹>= → <=› least)",
        ("tests/unit/test_rollout_reading.py",),
    ),
    Edit(
        "the first of two rollouts' turns that differs is marked",
        "tui/widgets/transcript.py",
        "if ‹not  → ›is_same(*block.sources):",
        ("tests/tui/test_rollout.py",),
    ),
    Edit(
        "a turn that one of two rollouts has is a gap in the other",
        "rl/alignment.py",
        'return _aligned(left, right, (‹_said, _made, attrgetter("role") → attrgetter("role"),›))',
        ("tests/unit/test_alignment.py",),
    ),
    Edit(
        "a running rollout is read on where it is being read",
        "tui/widgets/transcript.py",
        "            ‹self._stay_at(top, in_sight) → pass›",
        ("tests/tui/test_rollout.py",),
    ),
    Edit(
        "a game waits for the service where that is away",
        "rollouts/play_link.py",
        "if not self._waits or ‹not  → ›(is_held or isinstance(error, HudUnreachable)):",
        ("tests/tui/test_play.py", "tests/rollouts/test_play.py"),
    ),
    Edit(
        "what the environment does is no turn",
        "rl/transcript.py",
        "if event.phase ‹is not None → == SETUP›:",
        TRANSCRIPT,
    ),
    Edit(
        "a star stands out from the newest and from the base",
        "rl/choice.py",
        "stands_out = bool(lows) and ‹min → max›(lows) > 0",
        CHOICE,
    ),
    Edit(
        "without a number of rollouts, one per task is assumed",
        "rl/own_numbers.py",
        "own.heldout_rollouts or ‹own.at_least or  → ›1",
        OWN,
    ),
    Edit(
        "rollouts that were made before the choice confirm nothing",
        "rl/own_numbers.py",
        "if ‹asked and not of_runs and not reported → False›:",
        CHOICE,
    ),
    Edit(
        "of a checkpoint's evaluations under other conditions those of the largest count",
        "rl/own_numbers.py",
        "‹if under == conditions(largest) → ›]), False",
        OWN,
    ),
    Edit(
        "of evaluations with the same seed and size the newest counts",
        "rl/own_numbers.py",
        "in sorted(‹evaluations"
        " → reversed(evaluations)›, key=lambda evaluation: evaluation.num_traces):",
        OWN,
    ),
    Edit(
        "the held-out evaluation is the newest of equals",
        "rl/own_numbers.py",
        "newest_first = ‹reversed(_heldout(evaluations)) → _heldout(evaluations)›",
        OWN,
    ),
    Edit(
        "pass@k is pooled of evaluations with the same solved_at",
        "rl/own_numbers.py",
        "in distinct‹ if evaluation.solved_at == largest.solved_at → ›]",
        OWN,
    ),
    Edit(
        "conditions that no checkpoint has any more are not the common ones",
        "rl/own_numbers.py",
        "max(‹+ → ›self._checkpoints, key=self._rank",
        OWN,
    ),
    Edit(
        "of tasks with as many checkpoints the first are those that are ranked by",
        "rl/own_numbers.py",
        "(self._checkpoints[n], ‹- → ›n)",
        OWN,
    ),
    Edit(
        "where neither measure shows a difference, one sentence says so of both",
        "rl/evaluation.py",
        "elif ‹is_unseen(self.solved) and is_unseen(self.reward) → not self.changes›:",
        EVALUATION,
    ),
    Edit(
        "an evaluation of all tasks is compared with one of a split",
        "rl/evaluation.py",
        'or ‹"all" in splits → False›):',
        EVALUATION,
    ),
    Edit(
        "an interval is of 2000 resamples",
        "rl/evaluation.py",
        "RESAMPLES = ‹2000 → 200›",
        EVALUATION,
    ),
    Edit(
        "a run's share without a gradient is of its rollouts",
        "rl/groups.py",
        "idle = ‹rollouts *  → ›idle_share(",
        ("tests/unit/test_run_table.py", "tests/unit/test_waste.py"),
    ),
    Edit(
        "Live and Runs count discarded batches",
        "rl/groups.py",
        "return rollouts‹ + discarded, idle + discarded → , idle›",
        ("tests/unit/test_waste.py",),
    ),
    Edit(
        "what is typed before the first view changes nothing",
        "tui/screens/base.py",
        "if why is None and ‹action_id in → not› WRITES and self._is_unseen():",
        ("tests/tui/test_app.py",),
    ),
    Edit(
        "Enter while the tasks of an evaluation are read says so",
        "tui/screens/evaluate.py",
        "‹STILL_READING if self._reads_usual else  → ›NO_TASKS",
        ("tests/tui/test_evaluating.py",),
    ),
    Edit(
        "a proposal is of the model that is shown",
        "tui/screens/checkpoints.py",
        '@work(‹exclusive=True,  → ›group="proposals")',
        ("tests/tui/test_roles.py",),
    ),
    Edit(
        "a dry run of a proposal asks the service",
        "cli/models.py",
        "checked = ‹await client.access.check_proposal(model.id, target.id)"
        ' → type("Unchecked", (), {"proposal": None})›',
        ("tests/service/test_headless_access.py",),
    ),
    Edit(
        "evaluations are charged",
        "rl/cost.py",
        "return trained‹ + prices.sampling(prompt * apart, sampled * apart) → ›",
        ("tests/unit/test_sweep.py",),
    ),
    Edit(
        "an export that fails leaves no directory",
        "storage.py",
        "‹made.rmdir() → pass›",
        ("tests/unit/test_storage.py",),
    ),
    Edit(
        "help lists keys that replay where turns are recorded",
        "tui/screens/play.py",
        "return ‹bool(self.game.upcoming or self._replayed) → True›",
        ("tests/tui/test_play.py",),
    ),
    Edit(
        "a stream that times out is tried again",
        "client/feed.py",
        "answer.status_code in (‹408, 429 → 429,›)",
        FEED,
    ),
    Edit(
        "a stream of a busy service is tried again",
        "client/feed.py",
        "answer.status_code in (408,‹ 429 → ›)",
        FEED,
    ),
    Edit(
        "the length of a stream is limited by line, not in all",
        "client/feed.py",
        "length = length + len(chunk)‹ if end < 0 else len(chunk) - end → ›",
        FEED,
    ),
    Edit(
        "an offer at exactly --max-price is taken",
        "remote/pods.py",
        "_price(offer, self.disk) ‹<= → <› self.max_price",
        BUDGET,
    ),
    Edit(
        "a pod that costs exactly --max-price is kept",
        "remote/pods.py",
        "rental.price_hr ‹<= rental.max_price + 1e-9 → < rental.max_price›",
        RENTING,
    ),
    Edit(
        "names are sorted as people read them",
        "rl/run_columns.py",
        "return (1, ‹value.casefold() → value›) if",
        ("tests/unit/test_run_table.py",),
    ),
    Edit(
        "a run that is cancelled before it holds its model takes no step",
        "service/managed_run.py",
        "self._why_too_old(rollouts)\n            if ‹self.stop.requested.is_set() → False›:",
        ("tests/service/test_runs.py::" + CANCELLED,),
    ),
    Edit(
        "a state that does not fit on a full disk is thinned later",
        "service/data_dir.py",
        "except ‹(DiskFull, EngineLost) → EngineLost›:",
        ("tests/service/test_retention.py",),
    ),
    Edit(
        "an evaluation has a number of rollouts that is not exceeded",
        "service/evaluate.py",
        "asked.samples) > ‹ → 2 * ›MOST:",
        ("tests/service/test_evaluate.py::" + REFUSED,),
    ),
    Edit(
        "a checkpoint that is marked again is marked no more",
        "tui/screens/checkpoints.py",
        "if ‹marked in self.marked → len(self.marked) > MOST›:",
        ("tests/tui/test_checkpoints_kept.py::test_two_are_marked_and_compared",),
    ),
    Edit(
        "what is done at once shares its time",
        "rl/timeline.py",
        "kind: count / sum(side.values())‹ / len(counts) → ›",
        TIMELINE,
    ),
    Edit(
        "waiting is time in which nothing of the loop's own is done",
        "rl/timeline.py",
        "    if ‹not done → True›:\n",
        TIMELINE,
    ),
    Edit(
        "what goes on over a step is cut there",
        "rl/stopwatch.py",
        "start, end = ‹max(low, self.start) → self.start›, min(high,",
        TIMELINE,
    ),
    Edit(
        "an engine that is held up does nothing",
        "rl/stopwatch.py",
        "if ‹part.kind not in OF_ENGINE → True›:",
        TIMELINE,
    ),
    Edit(
        "what a summarized kind covers stays the same",
        "rl/timeline.py",
        "union[-1] = union[-1][0], ‹max(union[-1][1], stop) → stop›",
        TIMELINE,
    ),
    Edit(
        "every rollout of a batch that the head left is kept with its reason",
        "service/managed_run.py",
        "‹            times.discard(db, self.id, step, {reason: ids})\n → ›",
        TIMES,
    ),
    Edit(
        "the head's read is part of the step's time",
        "service/managed_run.py",
        "        ‹with self._watch.measure(DISK) → if True›:\n            self._facts = await",
        TIMES,
    ),
    Edit(
        "steps of moments raise no alarm of waiting",
        "rl/alarms/throughput.py",
        "is_short = ‹step_s is not None and step_s < self.tuning.least_s → False›",
        ("tests/unit/test_alarms.py",),
    ),
    Edit(
        "what was played is never trained on",
        "service/batches.py",
        "    if ‹traces.is_played(db, id_) → False›:",
        PLAYED,
    ),
    Edit(
        "what was played counts in no statistics",
        "service/routes/jobs.py",
        'if not first or not trace["model"]‹ or trace["played"] → ›:',
        PLAYED,
    ),
    Edit(
        "the player's time does not count towards the limit of the environment's",
        "rollouts/play.py",
        "    def _take(self, request: Request) -> None:\n        ‹self._works_since = None → pass›",
        PLAYED,
    ),
    Edit(
        "another turn than the recorded one takes over",
        "rl/game.py",
        "upcoming = self.upcoming[1:]‹ if by == RECORDED else () → ›",
        PLAYED,
    ),
    Edit(
        "replaying stops where the environment answers otherwise",
        "rollouts/play.py",
        "‹self._to_replay = 0 if game.notice else self._to_replay → pass›",
        PLAYED,
    ),
    Edit(
        "a demonstration is what the person said, not the policy",
        "rollouts/play.py",
        "        if ‹by == PERSON and  → ›self.is_kept:",
        PLAYED,
    ),
    Edit(
        "a demonstration names no trace, which would not be trained on",
        "rollouts/play_keep.py",
        "reward=grade.reward‹ → , trace_id=play.game.trace_id›)",
        PLAYED,
    ),
    Edit(
        "a stream holds back what a stop sequence may begin with",
        "service/completions.py",
        "held = self._start, ‹_held(self._tail, self.stops) → 0›",
        CHUNKS,
    ),
    Edit(
        "a stream's turn is stored only if it is what was streamed",
        "service/gateway.py",
        "        ‹stream.check(sampled) → pass›",
        STREAMS,
    ),
    Edit(
        "nothing more is sampled for who leaves a stream",
        "service/routes/gateway.py",
        "            await super().__call__(scope, receive, send_in_time)\n        finally:\n"
        "            ‹await self.stop() → pass›",
        STREAMS,
    ),
    Edit(
        "whoever has a handle of an engine's process that ended is told each time that it is lost",
        "service/engines/handles.py",
        "raise ‹EngineLost(LOST) if self._number(handle) <= self._lost else EngineError"
        " → EngineError›(CLOSED)",
        ("tests/unit/engine/test_engine.py",),
    ),
    Edit(
        "the handles of an engine's process that ended are forgotten",
        "service/engines/handles.py",
        "        self._opened[handle] = pid, opened\n‹        self._forget_lost()\n → ›",
        ("tests/unit/engine/test_engine.py",),
    ),
    Edit(
        "memory that is freed while gaps change is taken back afterwards",
        "service/engines/tiny/memory.py",
        "while self._returned and ‹self._changing.acquire(blocking=False)"
        " → (self._changing.acquire(blocking=False) or True)›:",
        ("tests/unit/engine/test_cores.py",),
    ),
    Edit(
        "a pass leaves nothing where a turn without a gradient fails",
        "service/engines/tiny/engine.py",
        "                if ‹added → number›:\n",
        ("tests/unit/engine/test_cores.py",),
    ),
    Edit(
        "the engine's process is told of callers who leave",
        "service/engines/tiny/dispatch.py",
        "            ‹self._leave(call)\n             → ›raise",
        ("tests/unit/engine/test_engine.py",),
    ),
    Edit(
        "no second pod is rented for a plan whose pod runs",
        "remote/rent_plan.py",
        "if ‹rental.runs → rental.done› and ours.fullmatch(rental.name)]",
        RENTED,
    ),
    Edit(
        "a run that was submitted is not submitted again",
        "cli/rent_run.py",
        'if ‹RentPlan.next(facts) == "run" → not args.follow›:',
        RENTED,
    ),
    Edit(
        "what fails its checks rents nothing",
        "cli/rent_run.py",
        "if ‹is_refused(args.fail_on, findings) → not findings›:",
        RENTED,
    ),
    Edit(
        "a container is removed, whatever happens",
        "legacy/image.py",
        "is_gone = process.returncode is not None‹ and process.returncode >= 0 → ›",
        ("tests/service/test_init_image.py",),
    ),
    Edit(
        "a transform of a configuration is refused",
        "legacy/gym_served.py",
        "if value.transform‹ →  and value.use_context›:",
        ("tests/unit/legacy/test_gym_served.py",),
    ),
    Edit(
        "nothing of a configuration is code",
        "rollouts/gym_template.py",
        "return value.name if isinstance(value, Taken) else ‹repr → str›(value)",
        ("tests/rollouts/test_gym_template.py",),
    ),
    Edit(
        "part of a core of a container's quota is one more process",
        "cores.py",
        "return Cores(max(1, ‹ceil → int›(limit))",
        ("tests/unit/test_cores.py",),
    ),
    Edit(
        "the quota of a group around a process's own limits it, too",
        "cores.py",
        "for around in (group,‹ *group.parents → ›):",
        ("tests/unit/test_cores.py",),
    ),
    Edit(
        "a chat that has waited does not wait for all parts of a call",
        "service/engines/tiny/dispatch.py",
        'return ‹call.kind == "small" and monotonic() - call.asked_at > DUE_S → False›',
        ("tests/unit/engine/test_engine.py",),
    ),
    Edit(
        "weights that could not be saved are not sampled any more",
        "service/engines/tiny/engine.py",
        "            ‹opened.weights, opened.conversations = before\n             → ›raise",
        ("tests/unit/engine/test_cores.py",),
    ),
    Edit(
        "the next batch is sampled from the weights of the step that is being saved",
        "service/session.py",
        "                ‹self._policies.trains(self._model.id, source, policy, is_stored=False)\n"
        "                 → ›coming(",
        ("tests/service/test_ahead.py",),
    ),
    Edit(
        "a rollout that a step trains keeps its damage",
        "service/store/seals.py",
        "seal = f\"‹iif(seal IS seal_of({', '.join(COLUMNS[table])}), seal_of({now}), NULL"
        ' → seal_of({now}›)"',
        ("tests/service/test_damaged.py",),
    ),
    Edit(
        "a service is found where it is the first process of a container",
        "processes.py",
        "and ‹0 → 1› < int(number[:10])",
        ("tests/unit/test_processes.py",),
    ),
    Edit(
        "a build depends on where its files are",
        "build.py",
        'total.update(f"{‹path} { → ›content}\\n".encode())',
        ("tests/unit/test_build.py",),
    ),
)
