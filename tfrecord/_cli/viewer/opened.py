"""The server of a reader that is open, for `TFRecordReader.view`."""

from __future__ import annotations

from collections.abc import Iterable

from tfrecord._cli.viewer.data import ViewData
from tfrecord._cli.viewer.hints import Hints, add_features
from tfrecord._cli.viewer.server import ViewServer
from tfrecord._cli.viewer.vocab import read_vocabulary
from tfrecord.reader import TFRecordReader
from tfrecord.tfds.reader import TFDSReader


def server_of(reader: TFRecordReader, port: int, vocab: Iterable[str]) -> ViewServer:
    """A server of the reader's records; see `tfrecord._reading.page.ReaderPage.view`."""
    vocabularies = [read_vocabulary(given) for given in vocab]
    hints, title = Hints(), ""
    if isinstance(reader, TFDSReader):
        add_features(hints, reader.features)
        title = f"{reader.info.name} {reader.split}"
    data = ViewData(reader, record_type=reader.record_type, title=title)
    return ViewServer(data, port, hints, vocabularies)
