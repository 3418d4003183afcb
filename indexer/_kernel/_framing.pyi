"""Types of the compiled kernel; see `_framing.pyx` for what each function does."""

import sys
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt
from typing_extensions import disjoint_base

PATHS: tuple[str, ...]
MOST_MAPS: int

def crc32c(data: Any, value: int = 0, *, path: int = -1) -> int: ...
def scan(
    buffer: Any,
    start: int,
    limit: int,
    offsets: npt.NDArray[np.uint64],
    lengths: npt.NDArray[np.uint64],
    verify: int,
    final: bool,
    checksums: npt.NDArray[np.uint64] | None = None,
    *,
    path: int = -1,
) -> tuple[int, int, int]: ...
def check_frame(buffer: Any, offset: int, length: int, verify: int, *, path: int = -1) -> int: ...
def check_frames(
    buffer: Any,
    offsets: npt.NDArray[np.uint64],
    lengths: npt.NDArray[np.uint64],
    verify: int,
    *,
    path: int = -1,
) -> tuple[int, int]: ...
def slices(
    buffer: Any, offsets: npt.NDArray[np.uint64], lengths: npt.NDArray[np.uint64], shift: int = 0
) -> list[memoryview]: ...
def footers(buffer: Any, offsets: npt.NDArray[np.uint64], lengths: npt.NDArray[np.uint64]) -> bytes: ...
def file_size(descriptor: int) -> int: ...
def parse_text(
    data: Any, offsets: npt.NDArray[np.uint64], sizes: npt.NDArray[np.uint64]
) -> tuple[int, int]: ...
def format_text(offsets: npt.NDArray[np.uint64], sizes: npt.NDArray[np.uint64]) -> bytes: ...

@disjoint_base
class FileMap:
    size: int
    def __new__(cls, fd: int, size: int) -> FileMap: ...
    def __reduce__(self) -> NoReturn: ...
    def __len__(self) -> int: ...
    if sys.version_info >= (3, 12):
        def __buffer__(self, flags: int, /) -> memoryview: ...
    def advise(self, offset: int, length: int, advice: str) -> bool: ...
