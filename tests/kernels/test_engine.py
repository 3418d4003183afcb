"""Which engine runs, in fresh interpreters: by the kernels that are there and by what is asked for."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys

import pytest

KERNELS = ("indexer._kernel._framing", "tfrecord._kernels.decode", "tfrecord._kernels.encode")
native = pytest.mark.skipif(importlib.util.find_spec(KERNELS[0]) is None, reason="the kernels were not built")
REPORT = """
import sys, warnings
for name in {missing!r}:
    sys.modules[name] = None
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    import indexer, tfrecord
print(indexer.engine, tfrecord.engine, [str(w.message).split()[3] for w in caught])
"""


def run(missing: tuple[str, ...], requested: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "TFRECORD_ENGINE": requested}
    code = REPORT.format(missing=missing)
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)


def test_missing_kernels_are_said_once() -> None:
    assert run(KERNELS, "").stdout == "reference reference ['indexer._kernel._framing']\n"


@native
def test_one_missing_kernel() -> None:
    assert run(KERNELS[2:], "").stdout == "native reference ['tfrecord._kernels.encode']\n"
    assert run((), "native").stdout == "native native []\n"


def test_the_reference_that_was_asked_for_is_silent() -> None:
    assert run((), " Reference ").stdout == "reference reference []\n"


@native
@pytest.mark.parametrize("kernel", KERNELS)
def test_native_that_is_not_there_raises(kernel: str) -> None:
    failed = run((kernel,), "native")
    assert failed.returncode == 1 and "ModuleNotFoundError" in failed.stderr and kernel in failed.stderr


def test_another_engine_is_refused() -> None:
    assert "TFRECORD_ENGINE is 'fast'; it must be" in run((), "fast").stderr
