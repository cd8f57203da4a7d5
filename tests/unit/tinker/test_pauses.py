"""What the SDK would keep to itself while it waits. In a process of its own: it changes the SDK."""

import json
import subprocess
import sys

from hud_tui.service.engines.tinker.server import Pauses

CODE = r"""
import json, logging
import tinker
from tinker.lib.api_future_impl import QueueState
from tinker.lib.internal_client_holder import logger
from tinker.lib.queue_state_logger import QueueStateLogger
from hud_tui.service.engines.tinker.server import listen

heard, answers = [], logging.getLogger("httpx")
listen(lambda who, why: heard.append(why))


def answered(path, status):
    answers.info('HTTP Request: %s %s "%s %d %s"', "POST", path, "HTTP/1.1", status, "…")


queue = QueueStateLogger("run", "Training")
queue.on_queue_state_change(QueueState.PAUSED_CAPACITY, None)
queue.on_queue_state_change(QueueState.PAUSED_RATE_LIMIT, "5 runs")
queue.on_queue_state_change(QueueState.ACTIVE, None)
billing = "The job is paused due to billing status. Error: Error code: 402"
logger.warning(billing)
logger.warning(billing + " - {'detail': \"the balance's 0\"}")
logger.warning("something else")
answered("/other", 200)
answered("/step", 402)
answered("/step", 200)
answered("/sample", 429)
answered("/step", 429)
answered("/sample", 200)
answered("/step", 500)
print(json.dumps(heard))
"""


def test_every_pause_and_its_end_are_heard() -> None:
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == [
        "paused: the server is short of capacity",
        "paused: too many training runs at once (5 runs)",
        None,
        "paused: the server asks for payment (402)",
        "paused: the server asks for payment (402): the balance's 0",
        "paused: the server asks for payment (402): the balance's 0",
        None,
        "paused: the server takes no more requests for now (429)",
        "paused: the server takes no more requests for now (429)",
        None,
    ]


def test_one_that_moves_does_not_speak_for_another_that_waits_until_nothing_does() -> None:
    told: list[str | None] = []
    pauses = Pauses(told.append)
    pauses.hold("training", "paused: capacity")
    pauses.hold("sampling", None)
    pauses.hold("sampling", "paused: payment")
    pauses.hold("sampling", None)
    pauses.hold("training", None)
    assert told == [*["paused: capacity"] * 2, "paused: payment", "paused: capacity", None]

    told: list[str | None] = []
    pauses = Pauses(told.append)
    pauses.hold("training", "paused: capacity")
    pauses.clear()
    pauses.hold("sampling", None)
    assert told == ["paused: capacity", None, None]
