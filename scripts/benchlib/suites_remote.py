"""Comparisons on URLs: random records and epochs from a local server that delays its answers."""

from __future__ import annotations

import logging
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from benchlib.common import draws, frames
from benchlib.harness import Case, Contender, Target
from benchlib.plan import Plan

_ROOT = Path(__file__).resolve().parents[2]
sys.path += [str(_ROOT / "tests" / "stores"), str(_ROOT)]

_DELAYS = (0.0, 0.015, 0.06)
_MOST_SECONDS = {0.0: 0.05, 0.015: 0.08, 0.06: 0.2}
_KEYS = {"access_key_id": "testing", "secret_access_key": "testing", "region": "us-east-1"}


def remote(plan: Plan) -> Iterator[Case]:
    """256 random records by HTTP and from S3, and epochs in block order, without and with a cache."""
    from range_server import serve  # type: ignore[import-not-found, unused-ignore]

    for shape in plan.chosen("tab"):
        spec = _drawn(plan.spec(shape, take=256, draws=8))
        name = os.path.basename(spec["path"])
        data = Path(spec["path"]).read_bytes()
        with serve(files={name: data}) as server, tempfile.TemporaryDirectory() as cache:
            at_url = spec | {"url": server.url(name)}
            for delay in _DELAYS:
                server.delay = delay
                yield _random(
                    shape.name, at_url, f"256 random records, {delay * 1000:.0f} ms of delay", delay
                )
            server.delay = 0.015
            yield _epochs(shape.name, at_url, spec, cache)
            server.delay = 0
            print(f"requests by HTTP, {shape.name} of {len(data):,} bytes: {_requests(server, name, spec)}\n")
        small = _drawn(
            plan.spec(shape.scaled(0.1), take=256, draws=8)
        )  # for a range, that server copies the whole object
        with ExitStack() as stack:
            found = _bucket(stack, name, Path(small["path"]).read_bytes())
            if found is not None:
                yield _random(shape.name, small | found, "256 random records from an S3 server", None)


def _requests(server: Any, name: str, spec: dict[str, Any]) -> str:
    """How many requests reach the server for what a user does, with the index beside the object."""
    import io

    import tfrecord
    from indexer.build import scan_index
    from indexer.formats import write_index

    index = io.BytesIO()
    write_index(index, scan_index(spec["path"]).replace(etag=server.etag(name), format="extended"))
    server.files[f"{name}.tfindex"] = index.getvalue()
    url, counts = server.url(name), []

    def counted(what: str, work: Callable[[], Any]) -> Any:
        server.requests.clear()
        found = work()
        counts.append(f"{what} {len(server.requests)}")
        return found

    def opened() -> Any:
        made = tfrecord.TFRecordReader(url, record_type="bytes")
        len(made)
        return made

    def epoch() -> None:
        from tfrecord.torch import TFRecordDataset

        for _ in TFRecordDataset(reader, shuffle="block", batch_size=1024):
            pass

    try:
        reader = counted("open", opened)
        counted("256 random records", lambda: reader.read_raw(draws(spec)[0]))
        counted("a pass in stored order", lambda: sum(1 for _ in reader))
        counted("an epoch in blocks", epoch)
    except ImportError as error:
        counts.append(f"the rest needs {error.name}")
    return ", ".join(counts)


def _drawn(spec: dict[str, Any]) -> dict[str, Any]:
    """Adds the byte ranges of each draw, for libraries that do not know records."""
    places = frames(spec["path"])
    return spec | {"ranges": [[places[position] for position in drawn] for drawn in draws(spec)]}


def _random(shape: str, spec: dict[str, Any], title: str, delay: float | None) -> Case:
    ours = Contender("ours", "read_raw", "tfrecord", "remote_random", spec, one_cpu=False)
    wide = Contender(
        "wide", "read_raw, 128 at once", "tfrecord", "remote_random", spec | {"at_once": 128}, one_cpu=False
    )
    other = "fsspec cat_ranges" if delay is not None else "s3fs cat_ranges"
    theirs = Contender("theirs", other, "fsspec", "cat_ranges", spec, one_cpu=False)
    factor = 1.0 if delay is not None else 3.0
    targets = [Target(f"{title}, against {other}", "ours", ("theirs",), factor)]
    if delay is not None:
        text = f"{title}: records a second"
        targets.append(Target(text, "ours", (), 256 / _MOST_SECONDS[delay], measure="rate"))
    return Case("remote", shape, title, (ours, wide, theirs), tuple(targets))


def _epochs(shape: str, at_url: dict[str, Any], local: dict[str, Any], cache: str) -> Case:
    more = {"workers": 0, "batch": 1024, "shuffle": "block"}
    contenders = tuple(
        Contender(key, label, "tfrecord", "torch_epoch", spec | more, one_cpu=False)
        for key, label, spec in (
            ("local", "a local file", local),
            ("url", "a URL", at_url),
            ("cached", "a URL with a cache, after the first epoch", at_url | {"cache": cache}),
        )
    )
    targets = (
        Target("block-shuffled epoch at 15 ms, against a local file", "url", ("local",), 0.6),
        Target("epoch with a cache, against a local file", "cached", ("local",), 0.9),
    )
    return Case("remote", shape, "an epoch in block order, 15 ms of delay", contenders, targets)


def _bucket(stack: ExitStack, name: str, data: bytes) -> dict[str, Any] | None:
    """The object in a bucket of a local S3 server; None if moto is missing."""
    try:
        import boto3  # type: ignore[import-not-found, import-untyped, unused-ignore]
        from moto.server import ThreadedMotoServer  # type: ignore[import-not-found, unused-ignore]
    except ImportError:
        return None
    logging.getLogger("werkzeug").setLevel(logging.ERROR)  # it would print each request
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    stack.callback(server.stop)
    host, port = server.get_host_and_port()
    endpoint = f"http://{host}:{port}"
    client = boto3.client(
        "s3",
        endpoint_url=endpoint,
        region_name=_KEYS["region"],
        aws_access_key_id=_KEYS["access_key_id"],
        aws_secret_access_key=_KEYS["secret_access_key"],
    )
    client.create_bucket(Bucket="bench")
    client.put_object(Bucket="bench", Key=name, Body=data)
    return {"url": f"s3://bench/{name}", "storage": {**_KEYS, "endpoint": endpoint}}
