"""Generated faults that are drawn and that no test sees, and those that none can see."""

EQUIVALENT: dict[str, str] = {}
"""Faults that change nothing, by name, and why; they are not drawn."""
UNSEEN: dict[str, str] = {}
"""Faults that are drawn and that no test sees, by name, and why they are left."""
