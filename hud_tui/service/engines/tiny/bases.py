"""The bases that ship in the package, and what a run on each starts from."""

from pathlib import Path

from hud_tui.service.engines.base import Base, Defaults
from hud_tui.service.engines.tiny.tokenizer import VOCABULARY

CONTEXT = 128
STATE_BYTES = 2_080_000
"""Weights and two moments of 172 480 parameters, as 32-bit floats."""

BASES = (
    Base(
        name="tiny/mixed-0.2M",
        description="Arithmetic and letters: adds, compares, reverses, counts, capitalises",
        context=CONTEXT,
        vocabulary=VOCABULARY,
        state_bytes=STATE_BYTES,
        defaults=Defaults(
            learning_rate=2e-4, group_size=8, max_tokens=20, tasks_per_step=32, steps=600
        ),
    ),
    Base(
        name="tiny/arith-0.2M",
        description="Arithmetic below 100: adds, subtracts, compares",
        context=CONTEXT,
        vocabulary=VOCABULARY,
        state_bytes=STATE_BYTES,
        defaults=Defaults(
            learning_rate=3e-4, group_size=8, max_tokens=20, tasks_per_step=12, steps=60
        ),
    ),
)
"""The first one knows every built-in taskset."""

WEIGHTS = Path(__file__).parent / "weights"


def weights_path(base: str) -> Path:
    """Where a base's fp16 weights lie, e.g. ``weights/arith-0.2M.safetensors``."""
    return WEIGHTS / f"{base.rpartition('/')[2]}.safetensors"
