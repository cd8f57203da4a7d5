"""The card of a data set of tasks: what the Hub shows, and which files it serves."""

from collections.abc import Sequence

from hud_tui.rl.preflight import count
from hud_tui.rl.tasks import Task, form_of
from hud_tui.rl.text import one_line

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
    """
    Args:
        name: The data set's.
        tasks: What it holds.
        columns: In their order.
    """
    envs = sorted({task.env for task in tasks})
    shown = ", ".join(f"`{_code(env)}`" for env in envs[:10]) + (" …" if len(envs) > 10 else "")
    loading = f'from datasets import load_dataset\n\nload_dataset("{name}", split="train")'
    return (
        f"{HEAD}\n# {one_line(name)}\n\n{count(len(tasks), 'task')} for HUD, in the form "
        f"{form_of(tasks)}, of {shown}. Every column is text; objects stand there as JSON.\n\n"
        f"Columns: {', '.join(f'`{_code(column)}`' for column in columns)}.\n\n"
        f"```python\n{loading}\n```\n"
    )


def _code(text: str) -> str:
    return one_line(text, 80).replace("`", "'")
