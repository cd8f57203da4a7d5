"""Tables of the service's SQLite file, as the steps from each version of it to the next.

Constraints exclude what must never be: two heads, an orphan, two runs on a model.
"""

from hud_tui.service.store import seals

MIGRATIONS = [
    """
    CREATE TABLE model (
        id TEXT PRIMARY KEY,
        slug TEXT NOT NULL UNIQUE,
        name TEXT NOT NULL,
        name_key TEXT NOT NULL UNIQUE,  -- the name, case folded
        is_base INTEGER NOT NULL,
        base TEXT NOT NULL,             -- the engine's name of the base
        state_path TEXT,                -- what a fork starts from; NULL: the base's weights
        forked_from TEXT,
        created_at REAL NOT NULL,
        pruned_to INTEGER NOT NULL DEFAULT 0  -- id of its newest event that is no longer kept
    ) STRICT;

    CREATE TABLE checkpoint (
        id TEXT PRIMARY KEY,
        model_id TEXT NOT NULL REFERENCES model,
        parent_id TEXT,
        step INTEGER NOT NULL,
        name TEXT NOT NULL,
        sampler_path TEXT NOT NULL,
        state_path TEXT NOT NULL,
        job_id TEXT,
        body TEXT NOT NULL,             -- the wire's JSON, without is_active
        UNIQUE (model_id, step),
        UNIQUE (model_id, id),
        FOREIGN KEY (model_id, parent_id) REFERENCES checkpoint (model_id, id)
    ) STRICT;

    CREATE TABLE head (
        model_id TEXT PRIMARY KEY REFERENCES model,
        checkpoint_id TEXT NOT NULL,
        FOREIGN KEY (model_id, checkpoint_id) REFERENCES checkpoint (model_id, id)
    ) STRICT;

    CREATE TABLE event (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        model_id TEXT NOT NULL REFERENCES model,
        type TEXT NOT NULL,
        body TEXT NOT NULL
    ) STRICT;
    CREATE INDEX event_by_model ON event (model_id, id);

    CREATE TABLE job (
        id TEXT PRIMARY KEY,
        kind TEXT NOT NULL CHECK (kind IN ('training', 'reported')),
        name TEXT,
        status TEXT,                    -- NULL for a reported job: its traces say
        created_at REAL NOT NULL,
        finished_at REAL,
        group_size INTEGER,
        taskset_id TEXT,
        model_id TEXT REFERENCES model,
        step INTEGER NOT NULL DEFAULT 0,
        steps INTEGER,
        iteration INTEGER NOT NULL DEFAULT 0,
        trained_tokens INTEGER NOT NULL DEFAULT 0,
        busy_s REAL NOT NULL DEFAULT 0,
        parameters TEXT,
        tasks TEXT,
        error TEXT,
        note TEXT
    ) STRICT;
    CREATE UNIQUE INDEX one_run_a_model ON job (model_id)
        WHERE kind = 'training' AND status IN ('queued', 'running');

    CREATE TABLE trace (
        id TEXT PRIMARY KEY,
        job_id TEXT,
        checkpoint_id TEXT REFERENCES checkpoint,
        status TEXT NOT NULL,
        created_at REAL NOT NULL,
        ended_at REAL,
        task_slug TEXT,
        group_id TEXT,
        parent_trace_id TEXT,
        model TEXT,
        reward REAL,
        stop_reason TEXT,
        error TEXT,
        evaluation_result TEXT,
        step INTEGER,
        rollout INTEGER,
        completion TEXT,
        num_tokens INTEGER,
        heldout INTEGER
    ) STRICT;
    CREATE INDEX trace_by_job ON trace (job_id);
    CREATE INDEX trace_by_checkpoint ON trace (checkpoint_id);

    CREATE TABLE turn (
        id INTEGER PRIMARY KEY,
        trace_id TEXT NOT NULL,
        prompt_digest TEXT NOT NULL,
        digest TEXT NOT NULL,           -- of prompt, output and logprobs
        base TEXT NOT NULL,
        temperature REAL NOT NULL,
        prompt TEXT NOT NULL,           -- as text
        completion TEXT NOT NULL,
        sample TEXT NOT NULL,           -- the wire's Sample as JSON
        started_at REAL NOT NULL,
        ended_at REAL NOT NULL,
        UNIQUE (trace_id, prompt_digest)  -- asked again, the last answer counts
    ) STRICT;
    CREATE INDEX turn_by_digest ON turn (digest);

    CREATE TABLE span (
        trace_id TEXT NOT NULL,
        span_id TEXT NOT NULL,
        body TEXT NOT NULL,
        PRIMARY KEY (trace_id, span_id)
    ) STRICT;

    CREATE TABLE taskset (
        id TEXT PRIMARY KEY,
        name TEXT NOT NULL,
        name_key TEXT NOT NULL UNIQUE,
        description TEXT,
        created_at REAL NOT NULL
    ) STRICT;

    CREATE TABLE task (
        id INTEGER PRIMARY KEY,
        taskset_id TEXT NOT NULL REFERENCES taskset,
        slug TEXT NOT NULL,
        row TEXT NOT NULL,
        UNIQUE (taskset_id, slug)
    ) STRICT
    """,
    """
    CREATE TABLE reply (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        model_id TEXT NOT NULL REFERENCES model,
        key TEXT NOT NULL,
        call TEXT NOT NULL,
        digest TEXT NOT NULL,           -- of the request's body
        status INTEGER NOT NULL,
        body BLOB NOT NULL,
        UNIQUE (model_id, key)
    ) STRICT
    """,
    # Where the head was last set; NULL: only steps have moved it.
    "ALTER TABLE head ADD COLUMN set_to TEXT",
    """
    -- What is kept of a checkpoint's files, and how large that is.
    ALTER TABLE checkpoint ADD COLUMN state TEXT NOT NULL DEFAULT 'full';
    ALTER TABLE checkpoint ADD COLUMN pinned INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE checkpoint ADD COLUMN bytes INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE checkpoint ADD COLUMN reward REAL;
    UPDATE checkpoint SET reward = json_extract(body, '$.mean_reward');
    CREATE INDEX checkpoint_by_state ON checkpoint (state) WHERE bytes > 0;
    CREATE INDEX checkpoint_by_parent ON checkpoint (parent_id);
    CREATE INDEX checkpoint_by_reward ON checkpoint (model_id, reward);

    CREATE TABLE disk (bytes INTEGER NOT NULL) STRICT;  -- of all checkpoints
    INSERT INTO disk VALUES (0);
    CREATE TRIGGER disk_grows AFTER INSERT ON checkpoint
        BEGIN UPDATE disk SET bytes = bytes + NEW.bytes; END;
    CREATE TRIGGER disk_changes AFTER UPDATE OF bytes ON checkpoint
        BEGIN UPDATE disk SET bytes = bytes + NEW.bytes - OLD.bytes; END
    """,
    "CREATE INDEX trace_by_group ON trace (group_id) WHERE group_id IS NOT NULL",
    """
    -- Which sampling of its step a rollout is part of, and which a run is due to make, from 1.
    ALTER TABLE trace ADD COLUMN attempt INTEGER;
    ALTER TABLE job ADD COLUMN attempt INTEGER NOT NULL DEFAULT 1;
    CREATE INDEX trace_by_step ON trace (job_id, step);
    -- Why a run ended well before its last step.
    ALTER TABLE job ADD COLUMN reason TEXT
    """,
    """
    -- One row: the id that is in the checkpoints' directory too.
    CREATE TABLE identity (id TEXT NOT NULL) STRICT;
    -- The checksum of the file at state_path; NULL where an older version saved it.
    ALTER TABLE checkpoint ADD COLUMN sha256 TEXT;
    -- What is wrong with that file; NULL where nothing is.
    ALTER TABLE checkpoint ADD COLUMN damage TEXT;
    CREATE INDEX checkpoint_by_path ON checkpoint (state_path)
    """,
    """
    -- Replies of jobs and traces too: scope is the id of what the key belongs to.
    ALTER TABLE reply RENAME TO reply_of_model;
    CREATE TABLE reply (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        scope TEXT NOT NULL,
        key TEXT NOT NULL,
        call TEXT NOT NULL,
        digest TEXT NOT NULL,           -- of the request's body
        status INTEGER NOT NULL,
        body BLOB NOT NULL,
        UNIQUE (scope, key)
    ) STRICT;
    INSERT INTO reply SELECT * FROM reply_of_model;
    DROP TABLE reply_of_model
    """,
    """
    -- What a checkpoint's own weights scored, as the wire's list; NULL: nothing yet.
    ALTER TABLE checkpoint ADD COLUMN evaluations TEXT;
    -- The checkpoint that a rollout was sampled from to evaluate it.
    ALTER TABLE trace ADD COLUMN evaluates TEXT REFERENCES checkpoint;
    -- Why a run takes no further step although it could, while its evaluation is still due.
    ALTER TABLE job ADD COLUMN solved TEXT;
    -- What the engine's server holds a run up with.
    ALTER TABLE job ADD COLUMN waits TEXT
    """,
    """
    CREATE TABLE evaluation (
        id TEXT PRIMARY KEY,
        model_id TEXT NOT NULL REFERENCES model,
        checkpoint_id TEXT REFERENCES checkpoint,  -- NULL: the weights that the model started from
        job_id TEXT NOT NULL,           -- whose rollouts they are; its own, or a managed run's
        status TEXT NOT NULL,
        split TEXT NOT NULL,
        name TEXT,                      -- of the tasks
        samples INTEGER NOT NULL,
        num_tasks INTEGER NOT NULL,
        done INTEGER NOT NULL DEFAULT 0,
        reward_sum REAL NOT NULL DEFAULT 0,  -- of those that are done
        parameters TEXT NOT NULL,
        tasks TEXT,                     -- rows; NULL where a managed run has them
        created_at REAL NOT NULL,
        finished_at REAL,
        error TEXT,
        result TEXT,                    -- the wire's Evaluation
        groups TEXT                     -- rewards by task, the wire's Groups
    ) STRICT;
    CREATE INDEX evaluation_by_model ON evaluation (model_id, checkpoint_id);
    CREATE INDEX evaluation_by_job ON evaluation (job_id)
    """,
    """
    CREATE TABLE run (
        id TEXT PRIMARY KEY,            -- its job's; of a loop without a job, its model's
        model_id TEXT NOT NULL REFERENCES model,
        start TEXT,                     -- name of the checkpoint that it began from
        taskset TEXT,
        steps INTEGER NOT NULL DEFAULT 0,
        first_at REAL,
        last_at REAL,
        learning_rate REAL,
        loss_fn TEXT,
        tokens INTEGER NOT NULL DEFAULT 0,
        rollouts INTEGER NOT NULL DEFAULT 0,
        idle INTEGER NOT NULL DEFAULT 0,  -- those of them without a gradient
        rewards TEXT NOT NULL DEFAULT '{}',  -- their course, as `runs.grown` has it
        heldout REAL,
        evaluated INTEGER,              -- the step whose evaluation that is
        evaluation TEXT,
        alarms INTEGER,
        alarm TEXT,
        alarm_title TEXT,
        revision INTEGER NOT NULL
    ) STRICT;
    CREATE INDEX run_by_revision ON run (revision);
    ALTER TABLE checkpoint ADD COLUMN run_id TEXT;
    CREATE INDEX checkpoint_by_run ON checkpoint (run_id, step) WHERE run_id IS NOT NULL;
    -- How many steps a loop says that it will take.
    ALTER TABLE job ADD COLUMN loop_steps INTEGER;
    CREATE INDEX trace_open ON trace (job_id) WHERE status IN ('running', 'queued');
    CREATE TRIGGER run_job AFTER UPDATE ON job BEGIN
        UPDATE run SET revision = (SELECT max(revision) + 1 FROM run) WHERE id = NEW.id;
    END;
    CREATE TRIGGER run_trace AFTER UPDATE OF status, job_id ON trace WHEN NEW.job_id IS NOT NULL
    BEGIN
        UPDATE run SET revision = (SELECT max(revision) + 1 FROM run) WHERE id = NEW.job_id;
    END;
    CREATE TRIGGER run_evaluation AFTER UPDATE OF evaluations ON checkpoint
        WHEN NEW.run_id IS NOT NULL
    BEGIN
        UPDATE run SET evaluation = json_extract(NEW.evaluations, '$[#-1]'), evaluated = NEW.step,
            revision = (SELECT max(revision) + 1 FROM run)
            WHERE id = NEW.run_id AND coalesce(evaluated, 0) <= NEW.step;
    END
    """,
    """
    -- How long the rollouts of an evaluation took that are done; NULL: unknown.
    ALTER TABLE evaluation ADD COLUMN seconds REAL
    """,
    """
    -- The machine and process that takes a run's steps; NULL: the service does.
    ALTER TABLE job ADD COLUMN driver TEXT;
    -- When it was last heard of, and what it has been asked for.
    ALTER TABLE job ADD COLUMN heard_at REAL;
    ALTER TABLE job ADD COLUMN asked TEXT
    """,
    """
    -- A run shows what its newest evaluated step scored on held-out tasks: in the evaluation with
    -- the most rollouts, of equals in the newest.
    DROP TRIGGER run_evaluation;
    CREATE TRIGGER run_evaluation AFTER UPDATE OF evaluations ON checkpoint
        WHEN NEW.run_id IS NOT NULL AND EXISTS (
            SELECT 1 FROM json_each(NEW.evaluations)
            WHERE coalesce(json_extract(value, '$.split'), 'heldout') = 'heldout')
    BEGIN
        UPDATE run SET evaluation = (
                SELECT value FROM json_each(NEW.evaluations)
                WHERE coalesce(json_extract(value, '$.split'), 'heldout') = 'heldout'
                ORDER BY json_extract(value, '$.num_traces') DESC, key DESC LIMIT 1),
            evaluated = NEW.step, revision = (SELECT max(revision) + 1 FROM run)
            WHERE id = NEW.run_id AND coalesce(evaluated, 0) <= NEW.step;
    END
    """,
    """
    -- How many rollouts the held-out reward is of that a step has reported; NULL: nobody says.
    ALTER TABLE run ADD COLUMN heldout_traces INTEGER;
    UPDATE run SET heldout_traces = (
        SELECT CAST(json_extract(body, '$.metrics.num_heldout_traces') AS INTEGER) FROM checkpoint
        WHERE run_id = run.id AND json_extract(body, '$.metrics.heldout_reward') IS NOT NULL
        ORDER BY step DESC LIMIT 1)
        WHERE heldout IS NOT NULL
    """,
    """
    -- Checksum of the body: SQLite does not notice a flipped bit in a text.
    ALTER TABLE checkpoint ADD COLUMN body_crc INTEGER;
    UPDATE checkpoint SET body_crc = crc32(CAST(body AS BLOB))
    """,
    """
    -- The same of an event's body.
    ALTER TABLE event ADD COLUMN body_crc INTEGER;
    UPDATE event SET body_crc = crc32(CAST(body AS BLOB))
    """,
    """
    -- One table of work: managed runs and evaluations, with the jobs that clients report.
    CREATE TABLE work (
        id TEXT PRIMARY KEY,
        kind TEXT NOT NULL CHECK (kind IN ('training', 'evaluation', 'reported')),
        name TEXT,
        status TEXT,                    -- NULL for a reported job: its traces say
        created_at REAL NOT NULL,
        finished_at REAL,
        model_id TEXT REFERENCES model,
        error TEXT,
        is_job INTEGER NOT NULL DEFAULT 1,  -- 0: an evaluation whose rollouts are its run's
        group_size INTEGER,
        taskset_id TEXT,
        loop_steps INTEGER,             -- how many steps a loop says that it will take
        -- Of a run.
        step INTEGER NOT NULL DEFAULT 0,
        steps INTEGER,
        iteration INTEGER NOT NULL DEFAULT 0,
        attempt INTEGER NOT NULL DEFAULT 1,  -- at the next step
        trained_tokens INTEGER NOT NULL DEFAULT 0,
        busy_s REAL NOT NULL DEFAULT 0,
        note TEXT,
        reason TEXT,                    -- why it ended well before its last step
        solved TEXT,                    -- why it takes no further step although it could
        waits TEXT,                     -- what the engine's server holds it up with
        driver TEXT,                    -- machine and process of its steps; NULL: the service
        heard_at REAL,                  -- when that was last heard of
        asked TEXT,                     -- what that has been asked for
        -- Of an evaluation.
        checkpoint_id TEXT REFERENCES checkpoint,  -- NULL: what the model started from
        run_id TEXT,                    -- the run that asked for it
        tasks_name TEXT,
        split TEXT,
        samples INTEGER,
        num_tasks INTEGER,
        done INTEGER NOT NULL DEFAULT 0,
        reward_sum REAL NOT NULL DEFAULT 0,  -- of those that are done
        seconds REAL,                   -- how long those took; NULL: unknown
        -- What is long.
        parameters TEXT,
        tasks TEXT,                     -- rows; NULL where the service does not roll them out
        result TEXT,                    -- the wire's Evaluation
        groups TEXT                     -- rewards by task, the wire's Groups
    ) STRICT;
    -- The order of both tables stays: an evaluation without a job comes after its run, and after
    -- the evaluations before it.
    INSERT INTO work (rowid, id, kind, name, status, created_at, finished_at, model_id, parameters,
            tasks, error, group_size, taskset_id, loop_steps, step, steps, iteration, attempt,
            trained_tokens, busy_s, note, reason, solved, waits, driver, heard_at, asked,
            checkpoint_id, run_id, tasks_name, split, samples, num_tasks, done, reward_sum,
            seconds, result, groups)
        SELECT job.rowid << 20, job.id, iif(evaluation.id IS NULL, job.kind, 'evaluation'),
            job.name, coalesce(evaluation.status, job.status), job.created_at,
            coalesce(evaluation.finished_at, job.finished_at),
            coalesce(job.model_id, evaluation.model_id),
            coalesce(evaluation.parameters, job.parameters),
            coalesce(evaluation.tasks, job.tasks), coalesce(evaluation.error, job.error),
            job.group_size, job.taskset_id, job.loop_steps, job.step, job.steps, job.iteration,
            job.attempt, job.trained_tokens, job.busy_s, job.note, job.reason, job.solved,
            job.waits, job.driver, job.heard_at, job.asked, evaluation.checkpoint_id,
            iif(evaluation.job_id = job.id, NULL, evaluation.job_id), evaluation.name,
            evaluation.split, evaluation.samples, evaluation.num_tasks,
            coalesce(evaluation.done, 0), coalesce(evaluation.reward_sum, 0), evaluation.seconds,
            evaluation.result, evaluation.groups
        FROM job LEFT JOIN evaluation ON evaluation.id = job.id;
    INSERT INTO work (rowid, id, kind, status, created_at, finished_at, model_id, parameters, error,
            is_job, checkpoint_id, run_id, tasks_name, split, samples, num_tasks, done, reward_sum,
            seconds, result, groups)
        SELECT (place << 20) + nth, id, 'evaluation', status, created_at, finished_at, model_id,
            parameters, error, 0, checkpoint_id, job_id, name, split, samples, num_tasks, done,
            reward_sum, seconds, result, groups
        FROM (
            SELECT evaluation.*, evaluation.rowid AS nth, own.id IS NULL AS is_apart,
                max(coalesce(own.rowid, run_job.rowid, 0)) OVER (ORDER BY evaluation.rowid) AS place
            FROM evaluation LEFT JOIN job AS own ON own.id = evaluation.id
            LEFT JOIN job AS run_job ON run_job.id = evaluation.job_id
        ) WHERE is_apart;
    DROP TABLE evaluation;
    DROP TABLE job;
    CREATE UNIQUE INDEX one_run_a_model ON work (model_id)
        WHERE kind = 'training' AND status IN ('queued', 'running');
    CREATE INDEX work_by_model ON work (model_id, kind);
    CREATE INDEX work_jobs ON work (is_job);
    CREATE INDEX work_by_run ON work (run_id) WHERE run_id IS NOT NULL;
    CREATE TRIGGER run_work AFTER UPDATE ON work BEGIN
        UPDATE run SET revision = (SELECT max(revision) + 1 FROM run) WHERE id = NEW.id;
    END;
    -- One event of both; of a damaged one its reader is told when it is read.
    UPDATE event SET type = 'work', body = json_set(
            json_remove(body, '$.' || type), '$.type', 'work', '$.work',
            json_set(json_extract(body, '$.' || type), '$.kind',
                iif(type = 'job', 'training', 'evaluation')))
        WHERE type IN ('job', 'evaluation') AND body_crc = crc32(CAST(body AS BLOB));
    UPDATE event SET body_crc = crc32(CAST(body AS BLOB)) WHERE type = 'work'
    """,
    """
    -- When the newest steps of a run were taken, for its pace; of a damaged row it is unknown.
    ALTER TABLE run ADD COLUMN times TEXT NOT NULL DEFAULT '[]';
    UPDATE run SET times = (SELECT json_group_array(created) FROM (
        SELECT created FROM (
            SELECT step, json_extract(body, '$.created_at') AS created FROM checkpoint
            WHERE run_id = run.id AND body_crc = crc32(CAST(body AS BLOB))
            ORDER BY step DESC LIMIT 21)
        ORDER BY step))
    """,
    # Seals; of a step whose body is damaged already it is dropped.
    f"""
    DROP TRIGGER run_work;  -- a seal is no change
    ALTER TABLE work ADD COLUMN tasks_crc INTEGER;
    UPDATE work SET tasks_crc = crc32(CAST(tasks AS BLOB)) WHERE tasks IS NOT NULL;
    {seals.SEAL_ALL};
    UPDATE checkpoint SET seal = NULL WHERE body_crc IS NOT crc32(CAST(body AS BLOB));
    CREATE TRIGGER run_work AFTER UPDATE OF {", ".join(seals.COLUMNS["work"])} ON work BEGIN
        UPDATE run SET revision = (SELECT max(revision) + 1 FROM run) WHERE id = NEW.id;
    END
    """,
    """
    -- Moves of the head are kept for good; of a model whose first events are gone, from here on.
    CREATE INDEX event_moves ON event (model_id, id)
        WHERE type = 'head' AND instr(body, '"cause":"set"') > 0;
    CREATE TABLE moves_from (
        model_id TEXT PRIMARY KEY REFERENCES model,
        at REAL NOT NULL,
        seal INTEGER
    ) STRICT;
    INSERT INTO moves_from (model_id, at)
        SELECT id, coalesce((
            SELECT CAST(json_extract(body, '$.at') AS REAL) FROM event
            WHERE model_id = model.id AND event.id > pruned_to
                AND body_crc = crc32(CAST(body AS BLOB))
            ORDER BY event.id LIMIT 1), CAST(strftime('%s') AS REAL))
        FROM model WHERE pruned_to > 0;
    UPDATE moves_from SET seal = seal_of(model_id, at)
    """,
    f"""
    -- Id of the checkpoint whose weights answered, or 'base'; NULL: an older version did not say.
    ALTER TABLE turn ADD COLUMN sampled_from TEXT;
    {seals.seal_again("turn")}
    """,
    """
    -- Where the time of a run's step went, as the wire's StepTime.
    CREATE TABLE step_time (
        run_id TEXT NOT NULL,
        step INTEGER NOT NULL,          -- of the run, from 1; after its last step one more
        checkpoint_id TEXT,             -- NULL: it was not taken
        body TEXT NOT NULL,
        seal INTEGER,
        PRIMARY KEY (run_id, step)
    ) STRICT;
    -- Rollouts that no step was trained on.
    CREATE TABLE discarded (
        id INTEGER PRIMARY KEY,
        run_id TEXT NOT NULL,
        step INTEGER NOT NULL,
        reason TEXT NOT NULL,
        number INTEGER NOT NULL,        -- of them
        traces TEXT NOT NULL,           -- their ids, as JSON
        seal INTEGER
    ) STRICT;
    CREATE INDEX discarded_by_run ON discarded (run_id)
    """,
    f"""
    -- 1: a person was the policy of at least one turn.
    ALTER TABLE trace ADD COLUMN played INTEGER;
    {seals.seal_again("trace")}
    """,
    """
    CREATE TABLE access_key (
        name TEXT PRIMARY KEY,
        role TEXT NOT NULL,
        digest TEXT NOT NULL UNIQUE,    -- SHA-256 of the key
        created_at REAL NOT NULL,
        made_by TEXT NOT NULL,          -- name of a key
        expires_at REAL,
        revoked_at REAL,
        max_work INTEGER,               -- runs and evaluations at once
        max_disk INTEGER,               -- bytes
        max_calls INTEGER,              -- requests per second
        seal INTEGER
    ) STRICT;
    -- By whose key something was made.
    CREATE TABLE author (
        what TEXT NOT NULL,             -- model, work, resumed, checkpoint, or pin
        id TEXT NOT NULL,
        name TEXT NOT NULL,
        at REAL NOT NULL,
        seal INTEGER,
        PRIMARY KEY (what, id)
    ) STRICT;
    CREATE INDEX author_by_name ON author (name, what);
    -- Models whose heads two people move.
    CREATE TABLE protection (
        model_id TEXT PRIMARY KEY REFERENCES model,
        name TEXT NOT NULL,
        at REAL NOT NULL,
        seal INTEGER
    ) STRICT;
    CREATE TABLE proposal (
        id TEXT PRIMARY KEY,
        model_id TEXT NOT NULL REFERENCES model,
        checkpoint_id TEXT NOT NULL REFERENCES checkpoint,
        previous TEXT,                  -- the head at that time
        note TEXT NOT NULL,
        proposed_by TEXT NOT NULL,
        at REAL NOT NULL,
        status TEXT NOT NULL,           -- open, approved or withdrawn
        decided_by TEXT,
        decided_at REAL,
        seal INTEGER
    ) STRICT;
    CREATE INDEX proposal_by_model ON proposal (model_id)
    """,
    """
    -- A rollout is not in it before it is trained on.
    DROP INDEX trace_by_checkpoint;
    CREATE INDEX trace_by_checkpoint ON trace (checkpoint_id) WHERE checkpoint_id IS NOT NULL
    """,
    """
    -- What is stored for each key: what its writes take in this file, and its checkpoints' files.
    CREATE TABLE key_disk (name TEXT PRIMARY KEY, bytes INTEGER NOT NULL, seal INTEGER) STRICT;
    -- An older version does not say who took a step: who forked the model.
    INSERT OR IGNORE INTO author (what, id, name, at, seal)
        SELECT 'checkpoint', c.id, author.name, at, seal_of('checkpoint', c.id, author.name, at)
        FROM checkpoint AS c JOIN author ON what = 'model' AND author.id = c.model_id;
    INSERT INTO key_disk
        SELECT author.name, sum(bytes), seal_of(author.name, sum(bytes))
        FROM author JOIN checkpoint ON checkpoint.id = author.id WHERE what = 'checkpoint'
        GROUP BY author.name;
    CREATE TRIGGER key_disk_changes AFTER UPDATE OF bytes ON checkpoint BEGIN
        UPDATE key_disk SET bytes = bytes + NEW.bytes - OLD.bytes
        WHERE name = (SELECT name FROM author WHERE what = 'checkpoint' AND id = NEW.id);
    END
    """,
    f"""
    -- When an agent's answer in it began; NULL: it has none.
    ALTER TABLE span ADD COLUMN answered_at TEXT;
    {seals.seal_again("span")};
    CREATE INDEX span_answers ON span (trace_id, answered_at) WHERE answered_at IS NOT NULL
    """,
    """
    -- What a move of the head has overtaken stays so, wherever the head is now.
    UPDATE proposal SET status = 'overtaken', seal = iif(seal IS seal_of(id, model_id,
            checkpoint_id, previous, note, proposed_by, at, status, decided_by, decided_at),
        seal_of(id, model_id,
            checkpoint_id, previous, note, proposed_by, at, 'overtaken', decided_by, decided_at),
        NULL)
    WHERE status = 'open' AND (previous IS NOT
            (SELECT checkpoint_id FROM head WHERE head.model_id = proposal.model_id)
        OR EXISTS (SELECT 1 FROM event WHERE event.model_id = proposal.model_id AND type = 'head'
            AND CASE WHEN body_crc = crc32(CAST(body AS BLOB))
                THEN json_extract(body, '$.at') > proposal.at END))
    """,
    f"""
    -- By whose key they were stored, for which they count until they are dropped.
    ALTER TABLE event ADD COLUMN name TEXT;
    ALTER TABLE reply ADD COLUMN name TEXT;
    {seals.seal_again("reply")};
    DROP TRIGGER key_disk_changes;
    CREATE TRIGGER key_disk_changes AFTER UPDATE OF bytes ON checkpoint BEGIN
        UPDATE key_disk SET bytes = max(0, bytes + NEW.bytes - OLD.bytes)
        WHERE name = (SELECT name FROM author WHERE what = 'checkpoint' AND id = NEW.id);
    END;
    -- An older version counted for a key what the service had freed, or stored, by itself.
    DELETE FROM key_disk;
    INSERT INTO key_disk WITH
        of_work (name, id) AS (SELECT name, id FROM author WHERE what = 'work'),
        of_trace (name, id) AS (
            SELECT name, trace.id FROM of_work JOIN trace ON job_id = of_work.id),
        stored (name, bytes) AS (
            SELECT author.name, bytes + length(body) + 1000 FROM author
                JOIN checkpoint ON checkpoint.id = author.id WHERE what = 'checkpoint'
            UNION ALL SELECT of_work.name, 1000 + length(coalesce(tasks, ''))
                + length(coalesce(groups, '')) FROM of_work JOIN work USING (id)
            UNION ALL SELECT name, 1000 FROM of_trace
            UNION ALL SELECT name, 400 + length(prompt) + length(completion) + length(sample)
                FROM of_trace JOIN turn ON trace_id = of_trace.id
            UNION ALL SELECT name, 200 + length(body)
                FROM of_trace JOIN span ON trace_id = of_trace.id)
        SELECT name, sum(bytes), seal_of(name, sum(bytes)) FROM stored GROUP BY name
    """,
    f"""
    -- Rollouts since its last step that are not trained on.
    ALTER TABLE run ADD COLUMN discarded INTEGER NOT NULL DEFAULT 0;
    {seals.seal_again("run")}
    """,
]
"""Append only: entry N takes a file from user_version N to N + 1."""
