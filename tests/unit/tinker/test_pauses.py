"""What the SDK would keep to itself while it waits. In a process of its own: it changes the SDK."""

import json
import subprocess
import sys

CODE = """
import json, logging
import tinker
from tinker.lib.api_future_impl import QueueState
from tinker.lib.internal_client_holder import logger
from tinker.lib.queue_state_logger import QueueStateLogger
from hud_tui.service.engines.tinker.pauses import listen

heard = []
listen(heard.append)
queue = QueueStateLogger("run", "Training")
queue.on_queue_state_change(QueueState.PAUSED_CAPACITY, None)
queue.on_queue_state_change(QueueState.PAUSED_RATE_LIMIT, "5 runs")
queue.on_queue_state_change(QueueState.ACTIVE, None)
logger.warning("The job is paused due to billing status. Error: no funds")
logger.warning("something else")
print(json.dumps(heard))
"""


def test_every_pause_and_its_end_are_heard() -> None:
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == [
        "paused: the server is short of capacity",
        "paused: too many training runs at once (5 runs)",
        None,
        "paused: the server asks for payment (402) no funds",
    ]
