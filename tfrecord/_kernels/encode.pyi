"""Types of the compiled encoders; `encode.pyx` describes the arguments."""

from collections.abc import Callable
from typing import Any, final

import numpy as np
import numpy.typing as npt

def frame(payload: Any) -> bytes: ...

@final
class RecordEncoder:
    def __init__(
        self,
        types: dict[str, int],
        check_key: Callable[[Any], bytes],
        split_spec: Callable[[Any, Any], tuple[Any, int]],
        to_values: Callable[[Any, Any, int, int | None], Any],
        to_steps: Callable[[Any, Any, int], Any],
        too_large: Callable[[Any, int], Any],
        array: type,
        ints: frozenset[type],
        floats: frozenset[type],
    ) -> None: ...
    def encode(
        self, datum: dict[Any, Any], sequence: dict[Any, Any] | None, limit: int, framed: bool
    ) -> bytes: ...

@final
class RowEncoder:
    def __new__(
        cls, columns: list[Any], num_rows: int, num_context: int, sequence: bool, limit: int
    ) -> RowEncoder: ...
    def measure(self, payloads: npt.NDArray[np.uint64]) -> tuple[int, int, int]: ...
    def frames(self, start: int, stop: int, step: int, size: int) -> bytes: ...
