"""Generated faults that are drawn and that no test sees, and those that none can see."""

EQUIVALENT: dict[str, str] = {
    "rl/bisect.py Search._likelihood: left, mean = 1 ‹- → +› fallen, measured.mean": (
        "the same two levels in other coordinates, whose determinant is 1"
    ),
    "remote/budget.py Budgets._end: again_at.get(rental.id, ‹0.0 → 1.0›):": (
        "no clock shows the first second of 1970"
    ),
    "rollouts/driver.py Driver._landed: ewards) if rewards else ‹0.0 → 1.0›": (
        "a batch that is trained on has rewards"
    ),
}
"""Faults that change nothing, by name, and why; they are not drawn."""
UNSEEN: dict[str, str] = {
    "rl/own_numbers.py Sampled.observed: ot None and abs(reward) ‹<= → <› MOST": (
        "no rule says what a reward of exactly a billion is"
    ),
    'rl/runs.py _asked: arameters.get("sweep"), ‹100 → 101›),': ("no rule says how long a name is"),
    "remote/pods.py Pods._priced: ce - rental.price_seen) ‹> → >=› 0.005:": (
        "no rule says what a difference of exactly half a cent is"
    ),
    "remote/pods.py Pods.hear: eadline - self._now() + ‹60 → 61›": (
        "a watcher may be late by about a minute"
    ),
    "remote/pods.py Pods.hear: al, heard=one_line(why, ‹200 → 201›))": (
        "no rule says how long a reason is"
    ),
}
"""Faults that are drawn and that no test sees, by name, and why they are left."""
