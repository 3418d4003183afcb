"""Reports about damaged files: one entry per damaged place, and totals."""

from __future__ import annotations

from dataclasses import dataclass, field

from indexer.errors import CorruptRecordError
from tfrecord._kernels.record_type import RecordType
from tfrecord._repair.inflate import StreamDamage

# A report holds this many entries per file; the rest are only counted.
MOST_ENTRIES = 10_000


@dataclass(frozen=True)
class Damage:
    """One damaged place in a file; `str` gives one line.

    `record`: how many records, good or damaged, come before it. `offset` and `length`: bytes, in the
    decompressed stream if the file is compressed. `reason`: `truncated_header`, `truncated_record`,
    `bad_length_crc` or `bad_payload_crc` for a record; `bad_message` for a payload that is not a valid
    message; `truncated_stream`, `bad_stream` or `trailing_garbage` for the compression; `unreadable` for a
    file that cannot be read. `detail` and `hint`: more about it, and what to do; they may be `""`. `record`,
    `offset` and `length` are None if they are not known.
    """

    path: str
    record: int | None
    offset: int | None
    length: int | None
    reason: str
    detail: str = ""
    hint: str = ""

    def __str__(self) -> str:
        place = self.path, self.record, self.offset
        return str(CorruptRecordError(*place, self.reason, self.detail, self.hint))


@dataclass
class FileReport:
    """What `verify` found in one file.

    `records` counts the good ones. `size`: bytes of the file (of standard input: of its good records).
    `compression`: `""`, `"gzip"`, `"zlib"` or `"zstd"`. `record_type`: `"example"`, `"sequence_example"`,
    `"bytes"`, or `""` if it is unknown. `damages` has at most 10,000 entries, `num_damages` counts all.
    """

    path: str
    records: int = 0
    size: int = 0
    compression: str = ""
    record_type: str = ""
    settled: RecordType | None = field(default=None, repr=False, compare=False)
    num_damages: int = 0
    damages: list[Damage] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Whether nothing is damaged."""
        return not self.num_damages


@dataclass
class VerifyReport:
    """What `verify` found: a `FileReport` for each file, in order, and totals."""

    files: list[FileReport]

    @property
    def ok(self) -> bool:
        """Whether no file is damaged."""
        return all(file.ok for file in self.files)

    @property
    def records(self) -> int:
        """The number of good records."""
        return sum(file.records for file in self.files)

    @property
    def num_damages(self) -> int:
        """The number of damaged places, even if `damages` does not list all of them."""
        return sum(file.num_damages for file in self.files)

    @property
    def damages(self) -> list[Damage]:
        """The damaged places of all files: at most 10,000 per file."""
        return [damage for file in self.files for damage in file.damages]


@dataclass
class SalvageReport:
    """What `salvage` wrote, and what was lost.

    `records` and `bytes_written` (before compression) went to `output`. `damages` lists the damaged
    stretches, at most 10,000; `num_damages` counts all of them, `bytes_lost` their bytes. `stream_damages`
    lists damage to the compressed stream, at most 10,000 entries. `size`: bytes of the source, decompressed.
    `compression` is `""`, `"gzip"`, `"zlib"` or `"zstd"`. If the file holds no record at all, `hint` says
    what it looks like.
    """

    path: str
    output: str
    compression: str = ""
    size: int = 0
    records: int = 0
    bytes_written: int = 0
    bytes_lost: int = 0
    num_damages: int = 0
    damages: list[Damage] = field(default_factory=list)
    stream_damages: list[StreamDamage] = field(default_factory=list)
    hint: str = ""

    @property
    def ok(self) -> bool:
        """Whether nothing was lost."""
        return not self.num_damages and not self.stream_damages


for _class in (Damage, FileReport, VerifyReport, SalvageReport, StreamDamage):
    _class.__module__ = "tfrecord.repair"
