"""Worker processes, interleaved rounds, medians and ratios."""

from __future__ import annotations

import json
import os
import select
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

# The import that shows that a library is installed. The lineage shares our import name: never looked up here.
IMPORT_NAMES = {
    "tfrecord": "numpy",
    "numpy": "numpy",
    "tensorflow": "tensorflow",
    "tensorflow_datasets": "tensorflow_datasets",
    "tfx_bsl": "tfx_bsl",
    "dali": "nvidia.dali",
    "array_record": "array_record",
    "lineage": None,
    "ray": "ray.data",
    "ray_tensorflow": None,
    "fsspec": "fsspec",
}
PEERS = tuple(name for name in IMPORT_NAMES if name not in ("tfrecord", "numpy"))
_WORKER = Path(__file__).with_name("worker.py")


class WorkerError(Exception):
    """A library's process could not fulfil a request."""


@dataclass(frozen=True)
class Contender:
    """One way to do a case's work: the package, its task, and the arguments."""

    key: str
    label: str
    package: str
    task: str
    spec: Mapping[str, Any]
    one_cpu: bool = True
    fresh: bool = False  # a new process for each round


@dataclass(frozen=True)
class Target:
    """A target: ``subject`` is ``factor`` times as fast as the best of ``against`` (or costs at most that).

    ``measure`` is "cost" (time), "rss" (memory), "records": ``subject`` handled at least ``factor``, or
    "rate": it handled at least ``factor`` per second.
    """

    what: str
    subject: str
    against: tuple[str, ...]
    factor: float
    at_most: bool = False
    measure: str = "cost"


@dataclass(frozen=True)
class Case:
    """Contenders that do the same work on the same bytes, run in turns."""

    suite: str
    shape: str
    title: str
    contenders: tuple[Contender, ...]
    targets: tuple[Target, ...] = ()
    unit: str = "record"


@dataclass
class Outcome:
    """The results of one contender's rounds; ``cost`` is seconds per record (or per the case's unit)."""

    contender: Contender
    cost: list[float] = field(default_factory=list)
    rss: list[float] = field(default_factory=list)
    records: int = 0
    error: str = ""

    def values(self, measure: str) -> list[float]:
        """The rounds of one measure."""
        return self.rss if measure == "rss" else self.cost


class Worker:
    """One library's process, connected by pipes."""

    def __init__(self, python: str, package: str, *, one_cpu: bool, timeout: float = 900.0) -> None:
        environment = dict(os.environ, TF_CPP_MIN_LOG_LEVEL="3", CUDA_VISIBLE_DEVICES="")
        prefix = []
        if one_cpu:
            names = ("TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
            environment.update(dict.fromkeys(names, "1"))
            if hasattr(os, "sched_getaffinity"):
                prefix = _pin_prefix(max(os.sched_getaffinity(0)))
        self.timeout = timeout
        self._log = tempfile.TemporaryFile()
        self._process = subprocess.Popen(
            [*prefix, python, str(_WORKER), package],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=None if os.environ.get("BENCH_TRACEBACK") else self._log,
            cwd=tempfile.gettempdir(),  # outside the checkout: two libraries share one import name
            env=environment,
        )

    def ask(self, **request: Any) -> dict[str, Any]:
        """Send one request and wait for its answer."""
        process = self._process
        assert process.stdin and process.stdout
        try:
            process.stdin.write((json.dumps(request) + "\n").encode())
            process.stdin.flush()
        except BrokenPipeError:
            raise WorkerError(self._last_words()) from None
        ready, _, _ = select.select([process.stdout], [], [], self.timeout)
        if not ready:
            self.close()
            raise WorkerError(f"no answer within {self.timeout:.0f} s")
        line = process.stdout.readline()
        if not line:
            raise WorkerError(self._last_words())
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise WorkerError(answer["error"])
        return answer

    def _last_words(self) -> str:
        self._process.wait()
        self._log.seek(0)
        lines = self._log.read().decode(errors="replace").strip().splitlines()
        last = lines[-1] if lines else "nothing said"
        return f"process ended with {self._process.returncode}: {last}"[:400]

    def close(self) -> None:
        """End the process: without requests it ends by itself, and its loader processes with it."""
        process = self._process
        assert process.stdin and process.stdout
        with suppress(BrokenPipeError):
            process.stdin.close()
        try:
            process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()
        self._log.close()


def _is_there(module: str) -> bool:
    from importlib.util import find_spec

    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # the parent package is not installed
        return False


def _pin_prefix(cpu: int) -> list[str]:
    from shutil import which

    return ["taskset", "-c", str(cpu)] if which("taskset") else []


class Libraries:
    """The interpreters of the libraries that are installed, and their running workers."""

    def __init__(self, pythons: Mapping[str, str]) -> None:
        self.pythons = {"tfrecord": sys.executable, "numpy": sys.executable, **pythons}
        self.versions: dict[str, str] = {}
        self.missing: dict[str, str] = {}
        self._workers: dict[tuple[str, bool], Worker] = {}

    def probe(self, names: Iterable[str]) -> None:
        """Find out which libraries answer; ``missing`` names the others with the reason."""
        for name in names:
            if name not in self.pythons:
                module = IMPORT_NAMES[name]
                if module is None or not _is_there(module):
                    self.missing[name] = "not installed here; give --peer-python"
                    continue
                self.pythons[name] = sys.executable
            worker = Worker(self.pythons[name], name, one_cpu=True)
            try:
                self.versions[name] = worker.ask(do="hello")["version"]
            except WorkerError as error:
                self.missing[name] = str(error)
            finally:
                worker.close()

    def worker(self, contender: Contender) -> Worker:
        """The running process for a contender, started if needed."""
        package, one_cpu = key = contender.package, contender.one_cpu
        if contender.fresh:
            return Worker(self.pythons[package], package, one_cpu=one_cpu)
        if key not in self._workers:
            self._workers[key] = Worker(self.pythons[package], package, one_cpu=one_cpu)
        return self._workers[key]

    def discard(self, contender: Contender) -> None:
        """Forget a contender's process after a failure."""
        worker = self._workers.pop((contender.package, contender.one_cpu), None)
        if worker is not None:
            worker.close()

    def close(self) -> None:
        """End all processes."""
        for worker in self._workers.values():
            worker.close()
        self._workers.clear()


def _prepare(find: Callable[[Contender], Worker], contender: Contender) -> None:
    find(contender).ask(do="prepare", id=contender.key, task=contender.task, spec=dict(contender.spec))


def _one_run(libraries: Libraries, outcome: Outcome, *, counted: bool, at_least: float = 0.0) -> None:
    contender = outcome.contender
    worker = libraries.worker(contender)
    try:
        if contender.fresh:
            _prepare(lambda _: worker, contender)
        answer = worker.ask(do="run", id=contender.key, at_least=at_least)
    finally:
        if contender.fresh:
            worker.close()
    if counted:
        outcome.records = int(answer["records"])
        if not outcome.records:
            raise WorkerError("handled no record")
        outcome.cost.append(answer["seconds"] / outcome.records)
        if "rss" in answer:
            outcome.rss.append(float(answer["rss"]))


def run_case(
    case: Case,
    libraries: Libraries,
    rounds: int,
    tell: Callable[[str], object] = lambda _: None,
    *,
    at_least: float = 0.0,
) -> list[Outcome]:
    """Prepare all contenders, warm each up once, then let them take turns; the order rotates each round.

    A turn is as many whole passes as take ``at_least`` seconds.
    """
    outcomes = [Outcome(c) for c in case.contenders if c.package in libraries.versions]

    def attempt(outcome: Outcome, step: Callable[[], object]) -> None:
        if outcome.error:
            return
        try:
            step()
        except WorkerError as error:
            outcome.error = str(error)
            if "process ended" in outcome.error or "no answer" in outcome.error:
                libraries.discard(outcome.contender)

    for outcome in outcomes:
        tell(f"{case.suite} {case.shape} {case.title}: prepare {outcome.contender.label}")
        if not outcome.contender.fresh:
            attempt(outcome, partial(_prepare, libraries.worker, outcome.contender))
        attempt(outcome, partial(_one_run, libraries, outcome, counted=False))
    for number in range(rounds):
        tell(f"{case.suite} {case.shape} {case.title}: round {number + 1} of {rounds}")
        turn = number % max(1, len(outcomes))
        for outcome in outcomes[turn:] + outcomes[:turn]:
            attempt(outcome, partial(_one_run, libraries, outcome, counted=True, at_least=at_least))
    for outcome in outcomes:
        if not (outcome.contender.fresh or outcome.error):
            libraries.worker(outcome.contender).ask(do="drop", id=outcome.contender.key)
    return outcomes


def ratios(subject: Sequence[float], others: Sequence[Sequence[float]]) -> list[float]:
    """For each round, the best cost of the others divided by the subject's cost."""
    return [min(other) / own for own, *other in zip(subject, *others, strict=False) if other and own > 0]


def median(values: Sequence[float]) -> float:
    """The median; NaN if there are no values."""
    return statistics.median(values) if values else float("nan")


@dataclass(frozen=True)
class Verdict:
    """A target and its measurement; ``ratio`` is None if one side is missing."""

    case: Case
    target: Target
    ratio: float | None

    @property
    def met(self) -> bool | None:
        """Whether this run met the target; None if it could not be measured."""
        if self.ratio is None:
            return None
        return self.ratio <= self.target.factor if self.target.at_most else self.ratio >= self.target.factor


def judge(case: Case, outcomes: Sequence[Outcome]) -> list[Verdict]:
    """Every target of a case with its median of per-round ratios."""
    rounds = {o.contender.key: o for o in outcomes if not o.error}
    verdicts = []
    for target in case.targets:
        own = rounds.get(target.subject)
        if target.measure in ("records", "rate"):
            measured = None if own is None else float(own.records)
            if own is not None and target.measure == "rate":
                measured = 1 / median(own.cost)
            verdicts.append(Verdict(case, target, measured))
            continue
        others = [rounds[key].values(target.measure) for key in target.against if key in rounds]
        per_round = ratios(own.values(target.measure), others) if own and others else []
        if target.at_most:
            per_round = [1 / ratio for ratio in per_round]
        verdicts.append(Verdict(case, target, median(per_round) if per_round else None))
    return verdicts
