"""The server of a reader that is open, for `TFRecordReader.view`."""

from __future__ import annotations

from collections.abc import Iterable

from tfrecord._cli.viewer.data import ViewData
from tfrecord._cli.viewer.hints import Hints, hints_of
from tfrecord._cli.viewer.server import ViewServer
from tfrecord._cli.viewer.vocab import read_vocabulary
from tfrecord.reader import TFRecordReader
from tfrecord.tfds.folder import DatasetInfo
from tfrecord.tfds.reader import TFDSReader
from tfrecord.tfds.steps import StepsReader


def server_of(reader: TFRecordReader, port: int, vocab: Iterable[str]) -> ViewServer:
    """A server of the reader's records; see `tfrecord._reading.page.ReaderPage.view`."""
    if not reader._view.store.has_files:
        raise ValueError(
            "the viewer needs files, and these records come from a server: run it where the files are"
        )
    vocabularies = [read_vocabulary(given) for given in vocab]
    hints, title = Hints(), ""
    if isinstance(reader, TFDSReader | StepsReader):
        info: DatasetInfo = reader.__dict__["info"]  # windows have it from their reader
        hints, title = hints_of([info.folder]), f"{info.name} {reader.__dict__['split']}"
    data = ViewData(reader, record_type=reader.record_type, title=title)
    return ViewServer(data, port, hints, vocabularies)
