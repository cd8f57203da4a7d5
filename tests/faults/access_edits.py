"""Faults in who may do what: keys, roles, protected heads, bounds and the service's log."""

from tests.faults.faults import Edit

KEYS = ("tests/service/test_access.py",)
OTHERS = ("tests/service/test_access_to_others.py",)
LOG = ("tests/service/test_server_log.py",)
DISK = ("tests/service/test_key_disk.py",)
TURNS = ("tests/unit/engine/test_engine.py",)

ACCESS = (
    Edit(
        "each route looks at the role of who calls",
        "service/routes/__init__.py",
        "    if ‹not caller.role.may(needed) → False›:\n",
        KEYS,
    ),
    Edit(
        "a route without a line in the log looks at the role, too",
        "service/routes/__init__.py",
        "            ‹self._check()\n             → ›await (self._in_turn",
        KEYS,
    ),
    Edit(
        "an expired key is refused",
        "service/access.py",
        "if ‹self._is_over(caller) → False›:",
        KEYS,
    ),
    Edit(
        "a revoked key is refused after a restart",
        "service/store/access.py",
        " FROM access_key‹ WHERE revoked_at IS NULL → ›",
        KEYS,
    ),
    Edit(
        "a key is refused from its revocation on",
        "service/access.py",
        "‹if caller.name != name}\n        await self._renew() → }›\n",
        KEYS,
    ),
    Edit(
        "nobody approves what they proposed",
        "service/store/proposals.py",
        'if ‹row["proposed_by"] == db.caller.name → False›:',
        KEYS,
    ),
    Edit(
        "what was decided is not approved",
        "service/store/proposals.py",
        'if ‹status != "open" → False›:',
        KEYS,
    ),
    Edit(
        "an approval is of the head that was seen",
        "service/routes/models.py",
        "HeadRequest(checkpoint_id, ‹[approved.previous] → None›, by, approved=approved.id)",
        KEYS,
    ),
    Edit(
        "a protected head is not set",
        "service/store/checkpoints.py",
        "    if ‹move.approved is None → False›:\n",
        KEYS,
    ),
    Edit(
        "a protected model is not trained",
        "service/store/works.py",
        '‹    access.refuse_protected(db, model_id, "train it")\n → ›',
        KEYS,
    ),
    Edit(
        "a model in training is not protected",
        "service/store/access.py",
        "    if ‹run is not None"
        " → False›:\n        raise Refused(409, f\"run {run['id']} trains it",
        KEYS,
    ),
    Edit(
        "who only trains ends what they began",
        "service/store/access.py",
        "        return ‹begun_by == db.caller.name → True›\n",
        KEYS,
    ),
    Edit(
        "what nobody signed is the admin's",
        "service/store/access.py",
        'return ‹db.execute("SELECT 1 FROM work WHERE id = ?", (work_id,)).fetchone() is None'
        " → True›",
        OTHERS,
    ),
    Edit(
        "a step of somebody else's run is theirs to take",
        "service/store/works.py",
        '‹        access.refuse_others(db, run["id"], "take steps of")\n → ›',
        OTHERS,
    ),
    Edit(
        "a run is driven on by who began it",
        "service/store/jobs.py",
        '        ‹access.refuse_others(db, job_id, "drive") → pass›\n',
        OTHERS,
    ),
    Edit(
        "a run is reported on by who began it",
        "service/store/jobs.py",
        '‹    access.refuse_others(db, row["id"], "report on")\n → ›',
        OTHERS,
    ),
    Edit(
        "a step beyond the bound of a key is not taken",
        "service/store/checkpoints.py",
        "‹    access.refuse_more_disk(db)\n → ›",
        DISK,
    ),
    Edit(
        "a resumed run counts among the work of a key",
        "service/store/works.py",
        "‹    access.refuse_too_much_work(db)\n → ›",
        KEYS,
    ),
    Edit(
        "a driven run counts among the work of a key, also one that is taken over",
        "service/store/jobs.py",
        'body.parameters.get("steps"), job_id),\n    )\n‹    access.refuse_too_much_work(db)\n → ›',
        KEYS,
    ),
    Edit(
        "a driven run that reports again counts among the work of a key",
        "service/store/jobs.py",
        'works.revive(db, row["id"], "running")\n‹    access.refuse_too_much_work(db)\n → ›',
        KEYS,
    ),
    Edit(
        "an evaluation that a client makes counts among the work of a key",
        "service/store/evaluations.py",
        'status="running")\n‹    access.refuse_too_much_work(db)\n → ›',
        KEYS,
    ),
    Edit(
        "an evaluation that a client resumes counts among the work of a key",
        "service/store/evaluations.py",
        "        ‹access.refuse_too_much_work(db) → pass›\n",
        KEYS,
    ),
    Edit(
        "a key has so many requests under way",
        "service/access.py",
        "if ‹self._calls[name] >= AT_ONCE → False›:",
        KEYS,
    ),
    Edit(
        "the reads of a key are carried out one by one",
        "service/access.py",
        "READS = ‹1 → 9›\n",
        KEYS,
    ),
    Edit(
        "who rolls out with a Trace-Id trains",
        "service/routes/gateway.py",
        '        ‹refuse_role(Role.TRAIN, "sample rollouts") → pass›\n',
        KEYS,
    ),
    Edit(
        "who hangs up has a line",
        "service/routes/__init__.py",
        "            ‹write(GONE) → pass›\n",
        LOG,
    ),
    Edit(
        "a change has its line before its answer",
        "service/routes/__init__.py",
        '‹write(message["status"], REPLAYED in dict(message["headers"])) → pass›',
        LOG,
    ),
    Edit(
        "a refused request has a line",
        "service/routes/__init__.py",
        "            ‹write(refused.status)\n             → ›raise\n",
        LOG,
    ),
    Edit(
        "the caller of a request is nobody's afterwards",
        "service/caller.py",
        "‹        CALLER.reset(token)\n → ›",
        KEYS,
    ),
    Edit(
        "a rollout of somebody else's job is not entered into another",
        "service/store/traces.py",
        "for id_ in filter(None, (job_id,‹ job_id_of(db, trace_id) → ›)):",
        OTHERS,
    ),
    Edit(
        "a turn is sampled into no rollout of somebody else's job",
        "service/store/traces.py",
        "    ‹refuse_of_others(db, trace_id)\n     → ›access.refuse_more_disk(db)\n",
        OTHERS,
    ),
    Edit(
        "no hosted rollout is made in somebody else's job",
        "service/runner.py",
        "    ‹traces.refuse_of_others(db, trace_id, job_id)\n     → ›access.refuse_more_disk(db)\n",
        OTHERS,
    ),
    Edit(
        "who enters a job that is there does not sign it",
        "service/store/jobs.py",
        "    ‹if exists(db, job_id):\n        return\n    access.refuse_more_disk(db)\n"
        '    insert(\n        db,\n        "work"'
        ' → insert(\n        db,\n        "work",\n        "INSERT OR IGNORE"›,\n',
        OTHERS,
    ),
    Edit(
        "an evaluation of a run is reported by who began that",
        "service/store/evaluations.py",
        '        ‹access.refuse_others(db, run_id, "report on") → pass›\n',
        OTHERS,
    ),
    Edit(
        "who only trains unpins what they pinned",
        "service/store/access.py",
        "if ‹not db.caller.role.may(Role.STEER) and pinned_by != db.caller.name → False›:",
        OTHERS,
    ),
    Edit(
        "no fork is called as the tail of a base's name",
        "service/store/models.py",
        " OR lower(slug) = :key‹ OR {_TAIL} → ›",
        OTHERS,
    ),
    Edit(
        "a stream ends with the key that asked",
        "service/routes/models.py",
        "while ‹accepts() and  → ›not parts.hub.closed:",
        OTHERS,
    ),
    Edit(
        "refused requests of a key have few lines",
        "service/journal.py",
        "        if ‹400 <= status < GONE → False›:\n",
        LOG,
    ),
    Edit(
        "requests without a key have few lines, whatever their addresses",
        "service/journal.py",
        '‹self._add_all(self._of_all.take(line, "", at)) → self._add(line)›',
        LOG,
    ),
    Edit(
        "a move of the head ends what was proposed",
        "service/store/checkpoints.py",
        "‹    access.overtake(db, model_id, move.approved)\n → ›",
        KEYS,
    ),
    Edit(
        "a step ends what was proposed",
        "service/store/checkpoints.py",
        "‹    access.overtake(db, new.model_id)\n → ›",
        KEYS,
    ),
    Edit(
        "changes of a key beyond many have one line",
        "service/journal.py",
        "has_line = ‹written < self._most → True›",
        LOG,
    ),
    Edit(
        "numbers of refused requests are written when the service ends",
        "service/journal.py",
        "‹*self._of_key.release(at) → ›])",
        LOG,
    ),
    Edit(
        "numbers of requests without a key are written when the service ends",
        "service/journal.py",
        "‹        self._refuse_all(self._of_address.release(at), monotonic())\n → ›",
        LOG,
    ),
    Edit(
        "what is held is written in time",
        "service/journal.py",
        "            ‹self.release(monotonic()) → pass›\n",
        LOG,
    ),
    Edit(
        "the numbers of many addresses are not lost",
        "service/journal.py",
        '            ‹who = "" → return due›\n',
        LOG,
    ),
    Edit(
        "a text in the log has so many bytes, not characters",
        "service/journal.py",
        "        ‹limit = limit * 3 // 4 → break›\n",
        LOG,
    ),
    Edit(
        "a line of the log has so many texts",
        "service/journal.py",
        "[*(about or {}).items()]‹[:ABOUT_MOST] → ›",
        LOG,
    ),
    Edit(
        "what is repeated is not told as done",
        "service/routes/__init__.py",
        '‹REPLAYED in dict(message["headers"]) → False›',
        LOG,
    ),
    Edit(
        "what is resumed counts for who resumed it",
        "service/store/works.py",
        '‹    access.take_over(db, row["id"])\n → ›',
        KEYS,
    ),
    Edit(
        "what a key sends is counted",
        "service/store/db.py",
        "grown = ‹_size_of(db) - before + db.dropped → 0›",
        DISK,
    ),
    Edit(
        "a turn beyond the bound of a key is not stored",
        "service/store/traces.py",
        "‹    access.refuse_more_disk(db)\n → ›",
        DISK,
    ),
    Edit(
        "who takes a step has its files counted",
        "service/store/checkpoints.py",
        "‹    db.files += new.file.bytes\n → ›",
        DISK,
    ),
    Edit(
        "files that are deleted count no more",
        "service/store/tables.py",
        "SET bytes = max(0, bytes + NEW.bytes‹ - OLD.bytes → ›)",
        DISK,
    ),
    Edit(
        "what is stored for a key is never less than nothing",
        "service/store/tables.py",
        "SET bytes = ‹max(0, bytes + NEW.bytes - OLD.bytes) → bytes + NEW.bytes - OLD.bytes›",
        DISK,
    ),
    Edit(
        "who drops what is old is not credited",
        "service/store/db.py",
        "‹    db.dropped += freed\n → ›",
        DISK,
    ),
    Edit(
        "what is dropped counts no more for who had it stored",
        "service/store/db.py",
        "        ‹_count(db, name, -round(freed * size / total)) → pass›\n",
        DISK,
    ),
    Edit(
        "who replaces what is another's is not credited",
        "service/store/access.py",
        "‹    db.owner = begun_by\n → ›",
        DISK,
    ),
    Edit(
        "who replaces what may be another's is not credited",
        "service/store/traces.py",
        "‹    db.owner = SERVICE.name\n → ›",
        DISK,
    ),
    Edit(
        "listening to drivers is nobody's",
        "service/works.py",
        "‹with called_by(SERVICE) → if True›:",
        DISK,
    ),
    Edit(
        "thinning checkpoints is nobody's",
        "service/data_dir.py",
        "‹with called_by(SERVICE) → if True›:",
        DISK,
    ),
    Edit(
        "keys take turns in the engine",
        "service/engines/tiny/dispatch.py",
        "own = ‹[call for call in able if call.claimant == claimant] → able›",
        TURNS,
    ),
    Edit(
        "nothing of others is sent ahead while somebody trains",
        "service/engines/tiny/dispatch.py",
        "if ‹not self._turns.may_hold_up_training(taken[0].claimant, monotonic()) → False›:",
        TURNS,
    ),
    Edit(
        "the first process is kept free for who trains",
        "service/engines/tiny/dispatch.py",
        "return ‹is_its_own or self._turns.may_hold_up_training(call.claimant, monotonic())"
        " → True›",
        TURNS,
    ),
    Edit(
        "of equal claimants the one who asked first is next",
        "service/engines/tiny/turns.py",
        "return min(claimants, key=lambda name: ‹order.get(name, -1)"
        " → (order.get(name, -1), name)›)",
        TURNS,
    ),
    Edit(
        "the first process is woken when it is no longer kept free",
        "service/engines/tiny/dispatch.py",
        "‹            if self._queue:\n                self._wake()\n → ›",
        TURNS,
    ),
    Edit(
        "another process is started rather than the first one taken from who trains",
        "service/engines/tiny/dispatch.py",
        "is_needed = ‹not others or self._starts.are_failing → True›\n",
        (*TURNS, "tests/unit/engine/test_cores.py"),
    ),
    Edit(
        "one failed attempt tells that no other process can be counted on",
        "service/engines/tiny/dispatch.py",
        "return is_needed and not any(‹other.answers for other in others)"
        " → lane.pipe for lane in others) and len(others) < 2›",
        ("tests/unit/engine/test_cores.py",),
    ),
    Edit(
        "a request whose processes died is done by the first one",
        "service/engines/tiny/dispatch.py",
        'call.kind == "own" or‹ call.losses > REPEATS or → ›',
        TURNS,
    ),
    Edit(
        "no process that dies again and again is started without a pause",
        "service/engines/tiny/starts.py",
        "‹            self._next_at = now + backoff(self._failures, LONGEST_S)\n"
        " → ›\n    def succeeded",
        ("tests/unit/engine/test_cores.py",),
    ),
    Edit(
        "while they fail one process is tried at a time",
        "service/engines/tiny/starts.py",
        "        if ‹self._failures → False›:\n            self._next_at",
        ("tests/unit/engine/test_cores.py",),
    ),
    Edit(
        "where no other process can be started the first one does it all",
        "service/engines/tiny/dispatch.py",
        "‹        self._starts.failed(lane.began_at, monotonic())\n → ›",
        ("tests/unit/engine/test_cores.py",),
    ),
    Edit(
        "of all who ask for the same weights at once one opens them",
        "service/policies.py",
        "async with ‹self._locks.setdefault(source, asyncio.Lock()) → asyncio.Lock()›:",
        ("tests/service/test_gateway.py",),
    ),
    Edit(
        "while a step is saved others sample the weights before it without opening them",
        "service/policies.py",
        "[other for other in views if ‹is_stored and  → ›other != source]",
        ("tests/service/test_ahead.py",),
    ),
    Edit(
        "a view is closed when its weights are no longer the head",
        "service/policies.py",
        "            ‹self._begin(self.retire(views.pop(other))) → pass›\n",
        ("tests/service/test_gateway.py",),
    ),
    Edit(
        "the views of a policy are closed with it",
        "service/policies.py",
        "                ‹self._begin(self.retire(view)) → pass›\n",
        ("tests/service/test_gateway.py",),
    ),
    Edit(
        "the engine is told for whom it works",
        "service/caller.py",
        'CALLER.set(caller), CLAIMANT.set(‹caller.name → ""›)',
        KEYS,
    ),
)
