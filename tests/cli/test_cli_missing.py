"""The command where packages are missing."""

from __future__ import annotations

import sys

import pytest

from tfrecord.cli import main


@pytest.mark.parametrize("package", ["click", "rich"])
def test_without_the_packages(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], package: str
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    assert main(["info", "x"]) == 2
    error = capsys.readouterr().err
    assert package in error and "pip install 'tfrecord[cli]'" in error
