"""Checks a wheel: it contains the compiled kernels and no sources, and it is small.

Usage: ``python scripts/check_wheel.py WHEEL``. Exit code 0: the wheel is good. 1: problems are printed.
"""

from __future__ import annotations

import re
import sys
import zipfile

KERNELS = ("indexer/_kernel/_framing", "tfrecord/_kernels/decode", "tfrecord/_kernels/encode")
MAX_BYTES = 1_000_000


def faults(wheel: str) -> list[str]:
    """The problems of the wheel, one line each."""
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        size = sum(info.compress_size for info in archive.infolist())
    found = [
        f"no compiled {kernel}"
        for kernel in KERNELS
        if not any(re.match(rf"{kernel}\..*(so|pyd)$", name) for name in names)
    ]
    found += [f"a source file: {name}" for name in names if re.search(r"\.(c|h|pyx|pxd|pxi)$", name)]
    found += [f"a file of the checkout: {name}" for name in names if re.match(r"(tests|scripts|docs)/", name)]
    if size > MAX_BYTES:
        found.append(f"{size:,} bytes; at most {MAX_BYTES:,} are allowed")
    return found


def main(wheel: str) -> int:
    found = faults(wheel)
    for line in found:
        print(f"{wheel}: {line}")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
