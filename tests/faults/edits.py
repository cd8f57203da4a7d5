"""Faults that are written down: each breaks one rule of the guide, and a test must fail of it."""

from tests.faults.faults import Edit

OWN = ("tests/unit/test_own.py",)
CHOICE = ("tests/unit/test_choice.py",)
EVALUATION = ("tests/unit/test_evaluation.py",)
TIMELINE, TIMES = ("tests/unit/test_timeline.py",), ("tests/service/test_times.py",)
FEED = ("tests/service/test_client_feed.py",)
BUDGET = ("tests/remote/test_money.py",)
CANCELLED = "test_a_run_that_is_cancelled_before_it_holds_its_model_takes_no_step"
REFUSED = "test_what_cannot_be_evaluated_is_refused_and_nothing_is_queued"
RENTING = ("tests/remote/test_renting.py",)

EDITS = (
    Edit(
        "a star stands out from the newest and from the base",
        "rl/choice.py",
        "stands_out = bool(lows) and min(lows) > 0",
        "stands_out = bool(lows) and max(lows) > 0",
        CHOICE,
    ),
    Edit(
        "without a number of rollouts, one per task is assumed",
        "rl/own_numbers.py",
        "own.heldout_rollouts or own.at_least or 1",
        "own.heldout_rollouts or 1",
        OWN,
    ),
    Edit(
        "rollouts that were made before the choice confirm nothing",
        "rl/own_numbers.py",
        "if asked and not of_runs and not reported:",
        "if False:",
        CHOICE,
    ),
    Edit(
        "of a checkpoint's evaluations under other conditions those of the largest count",
        "rl/own_numbers.py",
        "if under == conditions(largest)]), False",
        "]), False",
        OWN,
    ),
    Edit(
        "of evaluations with the same seed and size the newest counts",
        "rl/own_numbers.py",
        "in sorted(evaluations, key=lambda evaluation: evaluation.num_traces):",
        "in sorted(reversed(evaluations), key=lambda evaluation: evaluation.num_traces):",
        OWN,
    ),
    Edit(
        "the held-out evaluation is the newest of equals",
        "rl/own_numbers.py",
        "newest_first = reversed(_heldout(evaluations))",
        "newest_first = _heldout(evaluations)",
        OWN,
    ),
    Edit(
        "pass@k is pooled of evaluations with the same solved_at",
        "rl/own_numbers.py",
        "in distinct if evaluation.solved_at == largest.solved_at]",
        "in distinct]",
        OWN,
    ),
    Edit(
        "conditions that no checkpoint has any more are not the common ones",
        "rl/own_numbers.py",
        "max(+self._checkpoints, key=self._rank",
        "max(self._checkpoints, key=self._rank",
        OWN,
    ),
    Edit(
        "of tasks with as many checkpoints the first are those that are ranked by",
        "rl/own_numbers.py",
        "(self._checkpoints[n], -n)",
        "(self._checkpoints[n], n)",
        OWN,
    ),
    Edit(
        "where neither measure shows a difference, one sentence says so of both",
        "rl/evaluation.py",
        "elif is_unseen(self.solved) and is_unseen(self.reward):",
        "elif not self.changes:",
        EVALUATION,
    ),
    Edit(
        "an evaluation of all tasks is compared with one of a split",
        "rl/evaluation.py",
        'or "all" in splits):',
        "or False):",
        EVALUATION,
    ),
    Edit(
        "an interval is of 2000 resamples",
        "rl/evaluation.py",
        "RESAMPLES = 2000",
        "RESAMPLES = 200",
        EVALUATION,
    ),
    Edit(
        "a run's share without a gradient is of its rollouts",
        "rl/runs.py",
        "(_metric(node, NO_GRADIENT) or 0.0) * (node.num_traces or 0)",
        "(_metric(node, NO_GRADIENT) or 0.0) * rollouts / len(steps)",
        ("tests/unit/test_run_table.py",),
    ),
    Edit(
        "a stream that times out is tried again",
        "client/feed.py",
        "answer.status_code in (408, 429)",
        "answer.status_code in (429,)",
        FEED,
    ),
    Edit(
        "a stream of a busy service is tried again",
        "client/feed.py",
        "answer.status_code in (408, 429)",
        "answer.status_code in (408,)",
        FEED,
    ),
    Edit(
        "the length of a stream is limited by line, not in all",
        "client/feed.py",
        "length = length + len(chunk) if end < 0 else len(chunk) - end",
        "length = length + len(chunk)",
        FEED,
    ),
    Edit(
        "an offer at exactly --max-price is taken",
        "remote/pods.py",
        "_price(offer, self.disk) <= self.max_price",
        "_price(offer, self.disk) < self.max_price",
        BUDGET,
    ),
    Edit(
        "a pod that costs exactly --max-price is kept",
        "remote/pods.py",
        "rental.price_hr <= rental.max_price + 1e-9",
        "rental.price_hr < rental.max_price",
        RENTING,
    ),
    Edit(
        "names are sorted as people read them",
        "rl/run_columns.py",
        "return (1, value.casefold()) if",
        "return (1, value) if",
        ("tests/unit/test_run_table.py",),
    ),
    Edit(
        "a run that is cancelled before it holds its model takes no step",
        "service/managed_run.py",
        "self._why_too_old(rollouts)\n            if self.stop.requested.is_set():",
        "self._why_too_old(rollouts)\n            if False:",
        ("tests/service/test_runs.py::" + CANCELLED,),
    ),
    Edit(
        "a state that does not fit on a full disk is thinned later",
        "service/data_dir.py",
        "except (DiskFull, EngineLost):",
        "except EngineLost:",
        ("tests/service/test_retention.py",),
    ),
    Edit(
        "an evaluation has a number of rollouts that is not exceeded",
        "service/evaluate.py",
        "asked.samples) > MOST:",
        "asked.samples) > 2 * MOST:",
        ("tests/service/test_evaluate.py::" + REFUSED,),
    ),
    Edit(
        "a checkpoint that is marked again is marked no more",
        "tui/screens/checkpoints.py",
        "if marked in self.marked:",
        "if len(self.marked) > MOST:",
        ("tests/tui/test_checkpoints_kept.py::test_two_are_marked_and_compared",),
    ),
    Edit(
        "what is done at once shares its time",
        "rl/timeline.py",
        "kind: count / sum(side.values()) / len(counts)",
        "kind: count / sum(side.values())",
        TIMELINE,
    ),
    Edit(
        "waiting is time in which nothing of the loop's own is done",
        "rl/timeline.py",
        "    if not done:\n",
        "    if True:\n",
        TIMELINE,
    ),
    Edit(
        "what goes on over a step is cut there",
        "rl/stopwatch.py",
        "start, end = max(low, self.start), min(high,",
        "start, end = self.start, min(high,",
        TIMELINE,
    ),
    Edit(
        "an engine that is held up does nothing",
        "rl/stopwatch.py",
        "if part.kind not in OF_ENGINE:",
        "if True:",
        TIMELINE,
    ),
    Edit(
        "what a summarized kind covers stays the same",
        "rl/timeline.py",
        "union[-1] = union[-1][0], max(union[-1][1], stop)",
        "union[-1] = union[-1][0], stop",
        TIMELINE,
    ),
    Edit(
        "every rollout of a batch that the head left is kept with its reason",
        "service/managed_run.py",
        "            times.discard(db, self.id, step, {reason: ids})\n",
        "",
        TIMES,
    ),
    Edit(
        "the head's read is part of the step's time",
        "service/managed_run.py",
        "        with self._watch.measure(DISK):\n            self._facts = await",
        "        if True:\n            self._facts = await",
        TIMES,
    ),
    Edit(
        "steps of moments raise no alarm of waiting",
        "rl/alarms/throughput.py",
        "is_short = step_s is not None and step_s < self.tuning.least_s",
        "is_short = False",
        ("tests/unit/test_alarms.py",),
    ),
)
