"""What all tests share: where the outside test data is, and a maker of record files."""

from __future__ import annotations

import gzip
import os
import signal
import zlib
from collections.abc import Callable, Generator, Sequence
from pathlib import Path

import pytest
from hypothesis import settings

from indexer.framing import frame_record

MakeFile = Callable[..., Path]

# A shell starts background jobs with SIGINT ignored, and processes that tests interrupt would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Machines differ in speed, and no test is about time.
settings.register_profile("default", deadline=None)
settings.load_profile("default")

# Reasons of skips that say "there is no such case", not "something is missing on this machine".
NO_SUCH_CASE = (
    "root may write anywhere",
    "the kernel's maps keep no descriptor",
    "maps of the reference engine keep a descriptor",
    "one file only",
    "PySpark is large and needs Java",
    "made for few records",
    "a DataFile is of plain data",
    "the columns of sequences have a test of their own",
)


# Folders whose tests drive the compiled kernels; of the others, the modules that say so by a mark.
KERNEL_FOLDERS = {"indexer", "kernels", "property", "writing"}
# Folders whose tests depend neither on the engine nor on versions of dependencies.
ONE_RUN_FOLDERS = {"flight", "ray", "typing"}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.parent.name in KERNEL_FOLDERS:
            item.add_marker(pytest.mark.kernels)
        if item.path.parent.name in ONE_RUN_FOLDERS:
            item.add_marker(pytest.mark.one_run)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """With TFRECORD_NO_SKIP set, what skips for want of something fails: a green run then ran everything."""
    report = yield
    if report.skipped and os.environ.get("TFRECORD_NO_SKIP") and not hasattr(report, "wasxfail"):
        reason = str(call.excinfo.value) if call.excinfo else ""
        if not reason.startswith(NO_SUCH_CASE):
            report.outcome = "failed"
            report.longrepr = f"skipped where everything must run: {reason}"
    return report


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of outside test data; the test is skipped where it is absent."""
    given = os.environ.get("TFRECORD_SHARED")
    folder = Path(given) if given else Path(__file__).resolve().parents[2] / "shared"
    if not (folder / "cases").is_dir():
        pytest.skip(f"no test data at {folder}; TFRECORD_SHARED may name another place")
    return folder


@pytest.fixture
def make_file(tmp_path: Path) -> MakeFile:
    """``make_file(payloads, name="a.tfrecord", compression="")`` writes a record file and gives its path."""

    def make(payloads: Sequence[bytes], name: str = "a.tfrecord", compression: str = "") -> Path:
        data = b"".join(map(frame_record, payloads))
        if compression == "gzip":
            data = gzip.compress(data)
        elif compression == "zlib":
            data = zlib.compress(data)
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        return path

    return make
