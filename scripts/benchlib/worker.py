"""The process in which one library is measured: JSON lines in, JSON lines out.

    python worker.py LIBRARY

Requests: ``{"do": "hello"}``, ``{"do": "prepare", "id": ..., "task": ..., "spec": {...}}``,
``{"do": "run", "id": ..., "at_least": seconds}``, ``{"do": "drop", "id": ...}``. One JSON line answers each;
an exception becomes ``{"error": ...}`` and the process goes on.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import sys
import time
import traceback
from pathlib import Path
from typing import Any


def _answer(request: dict[str, Any], module: Any, runs: dict[str, Any]) -> dict[str, Any]:
    action = request["do"]
    if action == "hello":
        return {"version": module.version()}
    if action == "prepare":
        runs[request["id"]] = module.TASKS[request["task"]](request["spec"])
        return {"ready": True}
    if action == "drop":
        runs.pop(request["id"], None)
        gc.collect()
        return {"ready": True}
    return _measure(runs[request["id"]], request.get("at_least", 0.0))


def _measure(run: Any, at_least: float) -> dict[str, Any]:
    """Complete passes for at least ``at_least`` seconds, because a short one would measure the scheduler."""
    gc.collect()
    passes, handled = 0, 0
    start = time.perf_counter()
    while True:
        result = run()
        if isinstance(result, dict):  # it timed itself
            return result
        passes += 1
        handled += result
        seconds = time.perf_counter() - start
        if seconds >= at_least or not result:
            return {"seconds": seconds / passes, "records": handled // passes}


def main() -> int:
    """Serve requests until standard input ends."""
    # Output of a library must not mix with the answers.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    scripts = Path(__file__).resolve().parents[1]
    sys.path[0] = str(scripts)
    if sys.argv[1] in ("tfrecord", "ray"):  # ours is the checkout's; the lineage has the same import name
        sys.path.insert(1, str(scripts.parent))
    module = importlib.import_module(f"benchlib.tasks_{sys.argv[1]}")
    runs: dict[str, Any] = {}
    for line in sys.stdin:
        try:
            answer = _answer(json.loads(line), module, runs)
        except Exception as error:  # the harness shows it in the table's row
            if os.environ.get("BENCH_TRACEBACK"):
                traceback.print_exc()
            answer = {"error": f"{type(error).__name__}: {error}"[:400]}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
