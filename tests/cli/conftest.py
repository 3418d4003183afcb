"""Running the command in this process."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import json
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from tfrecord.cli import main

# Without the command's packages only its word about that can be tried.
_HERE = all(importlib.util.find_spec(name) for name in ("click", "rich"))
collect_ignore_glob = [] if _HERE else ["test_cli_[!m]*.py"]


class Outcome(NamedTuple):
    code: int
    out: str
    err: str

    def json(self) -> Any:
        return json.loads(self.out)


Run = Callable[..., Outcome]


class _Stream(io.TextIOWrapper):
    """A text stream over bytes that can be looked at, as sys.stdout is."""

    def text(self) -> str:
        self.flush()
        return self.buffer.getvalue().decode(errors="surrogateescape")  # type: ignore[attr-defined]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Run:
    """`run("info", path, stdin=b"...")`: exit code, standard output and standard error."""

    def call(*arguments: Any, stdin: bytes = b"") -> Outcome:
        out, err = (_Stream(io.BytesIO(), "utf-8", "surrogateescape") for _ in range(2))
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin), "utf-8"))
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = main([str(argument) for argument in arguments])
        return Outcome(code, out.text(), err.text())

    return call
