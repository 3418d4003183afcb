"""Ray Data: read and write TFRecord datasets, build indexes and verify files, on every CPU of a cluster."""

try:
    import ray.data as _data
except ModuleNotFoundError as error:
    if error.name != "ray":  # Ray is installed but a dependency of it is missing: its own error says so
        raise
    raise ImportError(
        "tfrecord.ray needs Ray Data, which is not installed: pip install 'tfrecord[ray]'", name="ray"
    ) from None

from tfrecord.ray.files import build_indexes, verify
from tfrecord.ray.reading import read_tfrecords
from tfrecord.ray.writing import write_tfrecords

__all__ = ["build_indexes", "read_tfrecords", "verify", "write_tfrecords"]

del _data
