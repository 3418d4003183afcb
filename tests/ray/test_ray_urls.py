"""Ray Data over object storage: a local S3 server, whose credentials a function gives."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

BUCKET = "ray-bucket"
KEYS = {"access_key_id": "testing", "secret_access_key": "testing-secret", "region": "us-east-1"}


@pytest.fixture
def given() -> Iterator[Callable[[], dict[str, str]]]:
    """What `storage_options` is: a function, because a pickle for another process holds no credentials."""
    pytest.importorskip("obstore")
    boto3 = pytest.importorskip("boto3")
    server = pytest.importorskip("moto.server").ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    endpoint = f"http://{host}:{port}"
    boto3.client(
        "s3",
        endpoint_url=endpoint,
        region_name="us-east-1",
        aws_access_key_id="testing",
        aws_secret_access_key="testing-secret",
    ).create_bucket(Bucket=BUCKET)

    def options(found: dict[str, str] = {**KEYS, "endpoint": endpoint}) -> dict[str, str]:  # noqa: B006
        return found

    yield options
    server.stop()


def test_a_folder_of_a_bucket(cluster: Any, given: Callable[[], dict[str, str]]) -> None:
    import tfrecord.ray

    folder = f"s3://{BUCKET}/shards"
    with tfrecord.ShardedTFRecordWriter(f"{folder}/t", 3, index=True, storage_options=given) as writer:
        for i in range(300):
            writer.write({"id": (i, "int")})
    found = tfrecord.ray.read_tfrecords(folder, storage_options=given)
    assert found.count() == 300
    assert sorted(row["id"] for row in found.take_all()) == list(range(300))
