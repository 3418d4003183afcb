"""Payloads for the tests of index builds, and a collector that keeps them."""

from __future__ import annotations

from typing import Any

import numpy as np

PAYLOADS = [b"alpha", b"", b"xyz", b"y" * 300]


class Collected:
    """A collector that keeps the payloads."""

    def __init__(self) -> None:
        self.payloads: list[bytes] = []

    def update(self, buffer: Any, payload_offsets: Any, lengths: Any) -> None:
        for offset, length in zip(payload_offsets.tolist(), lengths.tolist(), strict=True):
            self.payloads.append(bytes(buffer[offset : offset + length]))

    def finish(self) -> tuple[dict[str, Any], dict[str, Any]]:
        sizes = np.array([len(payload) for payload in self.payloads], np.int64)
        return {"record_type": "bytes"}, {"size": sizes}
