"""Reads a data set of a server in workers and forks; prints which records each of them got, as JSON."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable
from typing import Any

import numpy as np
from torch.utils.data import DataLoader

import tfrecord
from tfrecord.torch import TFRecordDataset


def ids(items: Iterable[Any]) -> list[int]:
    return [int(one) for item in items for one in np.ravel(item["id"])]


def forked(work: Any) -> Any:
    """What a function returns in a forked child."""
    reading, writing = os.pipe()
    if not os.fork():
        os.write(writing, json.dumps(work()).encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as file:
        return json.loads(file.read())


def main(url: str, token: str) -> None:
    found: dict[str, Any] = {}
    stored = TFRecordDataset(url, features={"id": "int"}, storage_options={"token": token})
    found["before"] = ids(stored)  # from here on this process has a connection
    dataset = TFRecordDataset(url, features={"id": "int"}, shuffle=True, storage_options={"token": token})
    for method in ("fork", "forkserver", "spawn"):
        loader = DataLoader(dataset, batch_size=None, num_workers=2, multiprocessing_context=method)
        found[method] = [ids(loader) for _ in range(2 if method == "fork" else 1)]
    found["after"] = ids(stored)
    records = iter(tfrecord.connect(url))  # with the token that the server left for this user
    found["taken"] = [int(next(records)["id"][0]) for _ in range(5)]
    found["rest of the child"] = forked(lambda: ids(records))
    found["rest of the parent"] = ids(records)
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
