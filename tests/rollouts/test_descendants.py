"""Whatever a rollout started is found, wherever it went, and nothing else is looked at."""

import json
import sys
from subprocess import run

import pytest

FINDING = """
import json, os, signal, subprocess, sys, time
from hud_tui.rollouts import descendants
from hud_tui.rollouts.descendants import MARK, Descendants

def fork(begin):
    '''A process that does this, and then sleeps.'''
    pid = os.fork()
    if pid == 0:
        os.setsid()
        os.environ[MARK] = str(os.getpid())
        begin()
        os.write(said, b".")
        time.sleep(1000)
    return pid

def start(*words, **options):
    words = words or ("sleep", "1000")
    return subprocess.Popen(words, stdout=subprocess.DEVNULL, **options)

def start_orphan():
    '''It leaves group and session, and its parent ends.'''
    if os.fork() == 0:
        start(start_new_session=True)
        os._exit(0)
    os.wait()

def start_five():
    start()
    start(start_new_session=True)
    start("sh", "-c", "sleep 1000 & wait", start_new_session=True)
    time.sleep(0.2)
    start_orphan()

descendants.HAS_CHILDREN = descendants.HAS_CHILDREN and sys.argv[1] == "children"
found, said = Descendants(), 0
heard, said = os.pipe()
first, second = fork(start_five), fork(start)
stranger = start(start_new_session=True, env={})
os.read(heard, 1), os.read(heard, 1)
rollouts, counts = [first, second], {}
counts["living"] = [len(found.of(pid, rollouts)) for pid in rollouts]
for pid in rollouts:
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
counts["left"] = [len(found.of(pid, rollouts)) for pid in rollouts]
for pid in rollouts:
    for each in found.of(pid, rollouts):
        os.kill(each, signal.SIGKILL)
counts["stranger"] = stranger.poll()
stranger.kill()
print(json.dumps(counts))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux's")
@pytest.mark.parametrize("how", ["children", "all"])
def test_orphans_and_what_left_its_group_are_found_and_strangers_are_not(how: str) -> None:
    """Where the kernel does not list children, among all processes of the machine."""
    done = run([sys.executable, "-c", FINDING, how], capture_output=True, text=True, timeout=60)
    counts = json.loads(done.stdout or done.stderr)
    assert counts == {"living": [5, 1], "left": [5, 1], "stranger": None}
