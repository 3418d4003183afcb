"""Sets of output files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from indexer.outputs import Outputs


def test_one_file_under_two_names_is_not_written_twice(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with Outputs() as outputs:
        outputs.open(str(tmp_path / "link" / "a")).write(b"first")
        for name in ("link", "real"):
            with pytest.raises(FileExistsError, match="written twice"):
                outputs.open(str(tmp_path / name / "a"))
    assert (tmp_path / "real" / "a").read_bytes() == b"first"


@pytest.mark.skipif(not os.path.isdir("/proc"), reason="a folder in which nobody may write")
def test_a_folder_that_takes_nothing_is_named_itself() -> None:
    with pytest.raises(OSError, match="so it cannot be written") as caught, Outputs() as outputs:
        outputs.open("/proc/out")
    assert caught.value.filename == "/proc"
