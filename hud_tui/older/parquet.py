"""Data sets as Parquet files: written by Hugging Face's ``datasets``, read by ``pyarrow``.

Both are heavy and optional: the extra ``hf`` installs them.
"""

import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from hud_tui.errors import HudError, HudUsage
from hud_tui.older.dataset_rows import Row
from hud_tui.regular_file import check_regular
from hud_tui.rl.text import one_line

FILE = Path("data") / "train-00000-of-00001.parquet"
"""Where ``datasets.load_dataset`` looks for the split ``train``."""
CARD = "README.md"
MAX_ROWS, MAX_FILE, MAX_MEMORY = 200_000, 64 << 20, 512 << 20
"""A larger data set is not read: rows, bytes of the file, bytes in memory."""
EXTRA = "pip install 'hud-tui[hf]'"


def quiet() -> None:
    """Before the first import: nobody is told of it, and nothing draws on the terminal."""
    for name in ("HF_HUB_DISABLE_TELEMETRY", "HF_HUB_DISABLE_PROGRESS_BARS"):
        os.environ.setdefault(name, "1")


def write_folder(folder: Path, columns: Sequence[str], rows: Sequence[Row], card: str) -> Path:
    """Write a data set and its card, replacing one of ours; the Parquet file's path.

    It is read back before it takes its place.

    Raises:
        HudUsage: The extra is not installed, or the folder holds something else or cannot be
            written to.
        HudError: What was written is not what is read back.
    """
    _check_folder(folder)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".hud-tui-", dir=folder.parent) as place:
            draft = Path(place)
            (draft / FILE).parent.mkdir()
            _write(draft / FILE, columns, rows)
            if list(read_parquet(draft / FILE)) != list(rows):
                raise HudError("the data set is not read back as it was written", "report this")
            (draft / CARD).write_text(card, "utf-8")
            for part in (FILE, Path(CARD)):
                (folder / part).parent.mkdir(parents=True, exist_ok=True)
                shutil.move(draft / part, folder / part)
    except OSError as error:
        message = f"{one_line(folder)}: {one_line(error.strerror or error)}"
        raise HudUsage(message, "-o names another place") from error
    return folder / FILE


def read_parquet(file: Path) -> Iterator[dict[str, Any]]:
    """A Parquet file's rows.

    Raises:
        HudUsage: The extra is not installed; or the file is too large, or is none.
    """
    quiet()
    try:
        import pyarrow
        from pyarrow.parquet import ParquetFile
    except ImportError as error:
        raise HudUsage("reading Parquet files needs pyarrow", EXTRA) from error
    name, size = one_line(file), 0
    try:
        check_regular(file)
        if file.stat().st_size > MAX_FILE:
            raise HudUsage(f"{name}: larger than {MAX_FILE >> 20} MB", "split the data set")
        with ParquetFile(file) as opened:
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
    """The files of the split ``train`` in a data set's folder; empty where it is none."""
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
    """Only what this wrote is replaced."""
    if not folder.exists():
        return
    found = {path.name for path in folder.iterdir()} if folder.is_dir() else {"a file"}
    if not found <= {"data", CARD, ".gitattributes", ".git"} or (
        found and not parquet_files(folder)
    ):
        message = f"{one_line(folder)} holds something else: {one_line(sorted(found)[0], 60)}"
        raise HudUsage(message, "-o names another place")
