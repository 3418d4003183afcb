"""`ForkSafeLock`: held by a thread of the parent, free in the child, and one lock for all threads there."""

from __future__ import annotations

import pickle
import subprocess
import sys

from tfrecord._reading.locks import ForkSafeLock

CODE = """
import os, threading, time
from tfrecord._reading.locks import ForkSafeLock

lock, held = ForkSafeLock(), threading.Event()

def hold():
    with lock:
        held.set()
        time.sleep(60)

threading.Thread(target=hold, daemon=True).start()
held.wait()
if os.fork():
    os._exit(os.waitstatus_to_exitcode(os.wait()[1]))
inside = most = 0

def work():
    global inside, most
    for _ in range(200):
        with lock, lock:
            inside += 1
            most = max(most, inside)
            time.sleep(0)
            inside -= 1

threads = [threading.Thread(target=work) for _ in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join(20)
os._exit(40 + most)
"""


def test_a_forked_child_finds_it_free_and_its_threads_share_it() -> None:
    assert subprocess.run([sys.executable, "-W", "ignore", "-c", CODE], timeout=60).returncode == 41


def test_it_pickles_without_what_is_held() -> None:
    lock = ForkSafeLock()
    with lock:
        other = pickle.loads(pickle.dumps(lock))
    with other:
        assert isinstance(other, ForkSafeLock) and other is not lock
