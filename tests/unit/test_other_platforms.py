"""What Windows and others lack is taken away: the library imports, writes, indexes and reads all the same.

It stands in for a run on such a system, which it is not.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

PROGRAM = """
import os, sys, mmap
for name in ("fcntl", "resource", "pwd", "grp", "termios"):
    sys.modules[name] = None
for name in ("pread", "pwrite", "preadv", "writev", "pwritev", "register_at_fork", "posix_fadvise", "fork",
             "fchmod", "sched_getaffinity", "geteuid", "getuid", "chown", "link", "memfd_create",
             "O_DIRECTORY", "O_NOFOLLOW", "O_CLOEXEC", "O_NONBLOCK", "O_TMPFILE"):
    if hasattr(os, name):
        delattr(os, name)
for name in ("MADV_DONTNEED", "MADV_WILLNEED", "PROT_READ", "MAP_SHARED", "MAP_PRIVATE"):
    if hasattr(mmap, name):
        delattr(mmap, name)
import tfrecord, tfrecord.cli, tfrecord.tools.tfrecord2idx
assert tfrecord.engine == "reference"
for name, compression in (("a.tfrecord", None), ("b.tfrecord.gz", "GZIP")):
    with tfrecord.TFRecordWriter(name, compression_type=compression, index=True) as writer:
        for i in range(10):
            writer.write({"x": (i, "int")})
    for options in ({}, {"mmap": False}, {"index": False}):
        with tfrecord.TFRecordReader(name, **options) as reader:
            assert len(reader) == 10 and reader[3]["x"] == 3
            column = reader.read([7, 2])["x"]
            values = column if options == {} or "mmap" in options else column.values
            assert values.tolist() == [7, 2]
            assert [int(record["x"][0]) for record in reader] == list(range(10))
    tfrecord.build_index(name)
print("good")
"""


def test_without_what_other_systems_lack(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TFRECORD_ENGINE": "reference"}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert done.stdout == "good\n", done.stderr
