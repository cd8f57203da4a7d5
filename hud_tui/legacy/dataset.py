"""Tasks as Hugging Face data sets: rows and card, checks, Parquet files, pushing to the Hub."""

import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from threading import Thread
from typing import Any

from hud_tui.errors import (
    HudError,
    HudNoKey,
    HudUnauthorized,
    HudUnclear,
    HudUnreachable,
    HudUsage,
    refused,
)
from hud_tui.rl.findings import Finding
from hud_tui.rl.json_tree import parse
from hud_tui.rl.tasks.checks import (
    NAME_INSTEAD,
    SHORTEST_KEY,
    bare_keys,
    check_fields,
    check_rows,
    check_slugs,
    graded,
)
from hud_tui.rl.tasks.legacy import CALLS
from hud_tui.rl.tasks.task import Task, form_of, locations
from hud_tui.rl.text import counted, names_text, one_line
from hud_tui.storage import check_regular

HEAD = """\
---
configs:
- config_name: default
  data_files:
  - split: train
    path: data/train-*.parquet
tags:
- hud
- reinforcement-learning
---
"""


def dataset_card(name: str, tasks: Sequence[Task], columns: Sequence[str]) -> str:
    envs = sorted({task.env for task in tasks})
    shown = ", ".join(f"`{_code(env)}`" for env in envs[:10]) + (" …" if len(envs) > 10 else "")
    loading = f'from datasets import load_dataset\n\nload_dataset("{name}", split="train")'
    return (
        f"{HEAD}\n# {one_line(name)}\n\n{counted(len(tasks), 'task')} for HUD, in the form "
        f"{form_of(tasks)}, of {shown}. Every column is text; objects stand there as JSON.\n\n"
        f"Columns: {', '.join(f'`{_code(column)}`' for column in columns)}.\n\n"
        f"```python\n{loading}\n```\n"
    )


def _code(text: str) -> str:
    return one_line(text, 80).replace("`", "'")


# Tasks as rows of a Hugging Face data set, all of whose columns are text, and back.
#
# Objects and lists are JSON text, as in existing data sets of HUD tasks, because the rows of an
# Arrow column cannot differ in shape.
#
# Source: ``hud hf`` of hud 0.4: id, prompt, mcp_config, setup_tool, evaluate_tool, metadata.


Row = dict[str, str | None]
V4 = ("id", "prompt", "mcp_config", "setup_tool", "evaluate_tool", "metadata")
"""Columns of every data set of v4 tasks, which trainers of that time required."""
TEXTS = frozenset({"id", "prompt", "slug", "name", "scenario", "task_id", "system_prompt"})
"""Columns with text that is never JSON."""
EITHER = frozenset({"env", "gym", "description"})
"""Columns with a name, or with a JSON object."""


def to_rows(tasks: Sequence[Task]) -> tuple[list[str], list[Row]]:
    """Column names, and for each task its texts, None for a missing value. `tasks`: all of one
    form, checked."""
    rows = [_row(task) for task in tasks]
    v4 = bool(tasks) and tasks[0].form == "v4"
    columns = dict.fromkeys(V4 if v4 else ())
    columns |= dict.fromkeys(name for row in rows for name in row)
    return list(columns), [{name: _text(row.get(name)) for name in columns} for row in rows]


def from_rows(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Task rows from rows of a data set: nulls are dropped and JSON text is parsed.

    Text that is not JSON where JSON is expected stays text; the reader of task rows reports it.
    """
    return [
        {name: _value(name, value) for name, value in row.items() if value is not None}
        for row in rows
    ]


def _row(task: Task) -> dict[str, Any]:
    row = task.row()
    if task.is_legacy:
        row["id"] = task.slug
        row.setdefault("metadata", {})
    for key in CALLS:
        calls = row.get(key)
        if isinstance(calls, list) and len(calls) == 1:
            row[key] = calls[0]
    return row


def _text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


def _value(name: str, value: Any) -> Any:
    if not isinstance(value, str) or name in TEXTS:
        return value
    if name in EITHER and not value.lstrip().startswith("{"):
        return value
    parsed = parse(value)
    return value if parsed.fault else parsed.value


# Checks of a data set: valid rows, no secrets.


NAME = re.compile(r"(?:[A-Za-z0-9][\w.-]*/)?[A-Za-z0-9](?:[\w.-]*[A-Za-z0-9_])?", re.ASCII)
LONGEST = 96
LEAST = 10
"""Minimum number of tasks for a managed run; trainers of hud 0.4 required 4."""
SECRET = re.compile(r"_API_KEY$|_TOKEN$|_SECRET$|PASSWORD|SECRET_ACCESS_KEY$")


def check_name(name: str, push: bool) -> None:
    """
    Raises:
        HudUsage: The Hub does not accept the name, or pushing needs an owner.
    """
    wrong = not NAME.fullmatch(name) or len(name) > LONGEST or name.endswith(".git")
    if wrong or "--" in name or ".." in name:
        hint = "letters, digits, -, _ and . only, e.g. my-org/my-tasks"
        raise HudUsage(f"--name {one_line(name, 100)}: not a data set's name", hint)
    if push and "/" not in name:
        hint = f"--name ORG/{name}; or --no-push to write it locally only"
        raise HudUsage(f"--name {name}: pushing needs its owner", hint)


def check_dataset(
    tasks: Sequence[Task], rows: Sequence[Row], values: Mapping[str, str]
) -> list[Finding]:
    """`values`: environment variables; values of secrets among them must not occur in the rows."""
    findings = check_rows(tasks)
    if not tasks:
        return findings
    findings += [*check_slugs(tasks), *check_fields(tasks)]
    older = [task for task in tasks if task.is_legacy]
    findings += graded(older) if older else []
    if len({task.form for task in tasks}) > 1:
        forms = names_text(sorted({task.form for task in tasks}))
        message = f"tasks of several forms ({forms}) have no columns in common"
        findings.append(Finding("rows", "failure", message, fix="convert each form by itself"))
    if len(tasks) < LEAST:
        message = f"{counted(len(tasks), 'task')}: a managed run needs at least {LEAST}"
        findings.append(Finding("rows", "warning", message, fix="add tasks before you train on it"))
    return findings + list(_secrets(tasks, rows, values))


def _secrets(
    tasks: Sequence[Task], rows: Sequence[Row], values: Mapping[str, str]
) -> Iterator[Finding]:
    for variable, holders in bare_keys(tasks).items():
        message = f"plain-text key in {variable}"
        yield Finding("variables", "failure", message, locations(holders), NAME_INSTEAD)
    for name, value in values.items():
        if not SECRET.search(name) or len(value) < SHORTEST_KEY:
            continue
        holding = [task for task, row in zip(tasks, rows, strict=True) if _holds(row, value)]
        if holding:
            message = f"{counted(len(holding), 'task')} contain the value of {one_line(name, 60)}"
            yield Finding("variables", "failure", message, locations(holding), NAME_INSTEAD)


def _holds(row: Row, value: str) -> bool:
    return any(text is not None and value in text for text in row.values())


# Data sets as Parquet files: written by Hugging Face's ``datasets``, read by ``pyarrow``.
#
# Both are heavy and optional: the extra ``hf`` installs them.


FILE = Path("data") / "train-00000-of-00001.parquet"
"""The file that ``datasets.load_dataset`` reads for the split ``train``."""
CARD = "README.md"
MAX_ROWS, MAX_FILE, MAX_MEMORY = 200_000, 64 << 20, 512 << 20
"""Limits of a data set that is read: rows, bytes of a file, bytes in memory."""
EXTRA = "pip install 'hud-tui[hf]'"


def quiet() -> None:
    """Disable telemetry and progress bars of the Hub's libraries; call it before they are
    imported."""
    for name in ("HF_HUB_DISABLE_TELEMETRY", "HF_HUB_DISABLE_PROGRESS_BARS"):
        os.environ.setdefault(name, "1")


def write_parquet_folder(
    folder: Path, columns: Sequence[str], rows: Sequence[Row], card: str
) -> Path:
    """Write a data set and its card, replacing only what this function wrote; return the Parquet
    file.

    The new file is read back and compared before it replaces the old one.

    Raises:
        HudUsage: The extra is not installed, or the folder contains other files or is not
            writable.
        HudError: What is read back differs from what was written.
    """
    _check_folder(folder)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".hud-tui-", dir=folder.parent) as directory:
            draft = Path(directory)
            (draft / FILE).parent.mkdir()
            _write(draft / FILE, columns, rows)
            if list(read_parquet(draft / FILE)) != list(rows):
                raise HudError(
                    "the data set read back differs from what was written", "report this"
                )
            (draft / CARD).write_text(card, "utf-8")
            for part in (FILE, Path(CARD)):
                (folder / part).parent.mkdir(parents=True, exist_ok=True)
                shutil.move(draft / part, folder / part)
    except OSError as error:
        message = f"{one_line(folder)}: {one_line(error.strerror or error)}"
        raise HudUsage(message, "-o names another directory") from error
    return folder / FILE


def read_parquet(file: Path) -> Iterator[dict[str, Any]]:
    """The rows of a Parquet file. Raises HudUsage: the extra is not installed; or the file is too
    large, or not Parquet."""
    quiet()
    try:
        import pyarrow.parquet
    except ImportError as error:
        raise HudUsage("reading Parquet files needs pyarrow", EXTRA) from error
    name, size = one_line(file), 0
    try:
        check_regular(file)
        if file.stat().st_size > MAX_FILE:
            raise HudUsage(f"{name}: larger than {MAX_FILE >> 20} MB", "split the data set")
        with pyarrow.parquet.ParquetFile(file) as opened:
            about = opened.metadata
            groups = [about.row_group(index) for index in range(about.num_row_groups)]
            if about.num_rows > MAX_ROWS:
                raise HudUsage(f"{name}: more than {MAX_ROWS} rows", "split the data set")
            if sum(group.total_byte_size for group in groups) > MAX_MEMORY:
                raise HudUsage(f"{name}: larger than it looks", "split the data set")
            for batch in opened.iter_batches(batch_size=100):
                size += batch.nbytes
                if size > MAX_MEMORY:
                    raise HudUsage(f"{name}: larger than it looks", "split the data set")
                yield from batch.to_pylist()
    except (OSError, pyarrow.ArrowException, ValueError) as error:
        message = f"{name}: not a Parquet file: {one_line(str(error).splitlines()[0], 200)}"
        raise HudUsage(message, "write it again: hud-tui convert") from error


def parquet_files(folder: Path) -> list[Path]:
    """Files of the split ``train`` in a data set's folder; empty if it is not such a folder."""
    return sorted((folder / "data").glob("train-*.parquet"))


def _write(file: Path, columns: Sequence[str], rows: Sequence[Row]) -> None:
    quiet()
    try:
        from datasets import Dataset, Features, Value, disable_progress_bars
    except ImportError as error:
        raise HudUsage("writing a data set needs the datasets library", EXTRA) from error
    disable_progress_bars()
    features = Features({name: Value("string") for name in columns})
    data = {name: [row.get(name) for row in rows] for name in columns}
    Dataset.from_dict(data, features=features).to_parquet(str(file))


def _check_folder(folder: Path) -> None:
    """Allow replacing only what `write_parquet_folder` wrote."""
    if not folder.exists():
        return
    files = {path.name for path in folder.iterdir()} if folder.is_dir() else {"a file"}
    if not files <= {"data", CARD, ".gitattributes", ".git"} or (
        files and not parquet_files(folder)
    ):
        message = f"{one_line(folder)} contains other files: {one_line(sorted(files)[0], 60)}"
        raise HudUsage(message, "-o names another directory")


# Pushing a data set's folder to the Hugging Face Hub, once.


PUSH_S = 900.0
"""Maximum seconds for a push; the library itself has no timeout."""
UNCLEAR = "the outcome is unknown: check the Hub before you push again"
NO_TOKEN = "set HF_TOKEN to a token with write access, or log in: hf auth login"


def _hub() -> Any:
    """Import the Hub's library. Raises HudUsage if it is not installed."""
    try:
        import huggingface_hub.errors
    except ImportError as error:
        raise HudUsage("pushing needs the huggingface_hub library", EXTRA) from error
    return huggingface_hub


def require_token(token: str | None) -> None:
    """Make sure that there is a token, before anything is written or sent.

    Args:
        token: From an environment variable; None for the one stored by the Hub's own tools.

    Raises:
        HudUsage: The library is not installed.
        HudNoKey: There is no token. Whether it has write access is only known by the Hub.
    """
    if not (token or _hub().get_token()):
        raise HudNoKey("no token for the Hugging Face Hub", NO_TOKEN)


def push(folder: Path, name: str, private: bool, token: str | None) -> str:
    """Create the data set if it does not exist, and commit the folder to it.

    Args:
        private: Create it private; an existing public one is then refused.
        token: The Hub's; None for the one stored by its own tools.

    Returns:
        URL of the data set.

    Raises:
        HudUsage: The library is not installed; or a public data set of this name exists.
        HudUnauthorized: No token, or one without write access.
        HudRefused: The Hub refused it.
        HudUnclear: No answer, none in time, or a server error.
    """
    outcome: list[str | BaseException] = []

    def work() -> None:
        try:
            outcome.append(_push(folder, name, private, token))
        except BaseException as error:
            outcome.append(error)

    thread = Thread(target=work, daemon=True)  # if it hangs, the program can still exit
    thread.start()
    thread.join(PUSH_S)
    if not outcome:
        late = HudUnreachable(f"the Hub has not answered for {PUSH_S:.0f} s")
        raise HudUnclear(late, hint=UNCLEAR)
    if isinstance(outcome[0], BaseException):
        raise outcome[0]
    return outcome[0]


def _push(folder: Path, name: str, private: bool, token: str | None) -> str:
    quiet()
    hub = _hub()
    api = hub.HfApi(endpoint=os.environ.get("HF_ENDPOINT"), token=token)
    asked = False
    try:
        is_there = _exists(api, name, private)
        asked = True
        if not is_there:
            api.create_repo(name, repo_type="dataset", private=private, exist_ok=True)
        api.upload_folder(
            repo_id=name,
            folder_path=folder,
            repo_type="dataset",
            commit_message="Write the tasks with hud-tui convert",
            allow_patterns=["README.md", "data/*.parquet"],
        )
    except HudError:
        raise
    except hub.errors.LocalTokenNotFoundError as error:
        raise HudUnauthorized(401, "no token for the Hugging Face Hub", NO_TOKEN) from error
    except hub.errors.HfHubHTTPError as error:
        raise _refusal(error, token) from error
    except Exception as error:  # versions of the library use different HTTP libraries
        reason = _without(token, one_line(str(error) or type(error).__name__))
        lost = HudUnreachable(f"no answer from the Hugging Face Hub: {reason}", "try again later")
        raise (HudUnclear(lost, hint=UNCLEAR) if asked else lost) from error
    return f"{api.endpoint}/datasets/{name}"


def _exists(api: Any, name: str, private: bool) -> bool:
    """Whether the data set exists. Raises HudUsage if it is public and must be private."""
    try:
        there = api.repo_info(name, repo_type="dataset")
    except _hub().errors.RepositoryNotFoundError:
        return False
    if private and there.private is not True:
        hint = "make it private on the Hub first, or remove --private"
        raise HudUsage(f"the data set {one_line(name)} exists and is public", hint)
    return True


def _refusal(error: Any, token: str | None) -> HudError:
    status = getattr(getattr(error, "response", None), "status_code", None) or 500
    message = getattr(error, "server_message", None) or str(error).splitlines()[0]
    hint = NO_TOKEN if status in (401, 403) else ""
    failure = refused(status, _without(token, one_line(message, 300)), hint)
    return failure if status < 500 else HudUnclear(failure, hint=UNCLEAR)


def _without(token: str | None, text: str) -> str:
    return text.replace(token, "***") if token else text
