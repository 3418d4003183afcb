"""Problems with records: reported once on standard error, and whether a command continues."""

from __future__ import annotations

import click

from indexer.errors import TFRecordError
from tfrecord._cli.common import Choice, count_text
from tfrecord._cli.terminal import complain
from tfrecord._kernels.record_type import RECORD_TYPES, RecordType

_MOST_SHOWN = 20

record_type_option = click.option(
    "--record-type",
    "--type",
    "record_type",
    type=Choice(RECORD_TYPES),
    default="auto",
    help="Type of the records (default: detect from the first records).",
)
on_error_option = click.option(
    "--on-error",
    type=Choice(["raise", "skip"]),
    default="raise",
    show_default=True,
    help="skip: leave out records that are not valid messages, and exit with 1.",
)


class Problems:
    """Invalid records and doubtful types of one run of a command.

    With ``on_error="raise"`` the first invalid record raises; otherwise each is reported, and `exit_code` is
    1.
    """

    def __init__(self, on_error: str = "skip") -> None:
        self._skips = on_error == "skip"
        self._invalid: set[tuple[str | None, int | None]] = set()
        self._told: set[str] = set()

    def invalid(self, error: TFRecordError) -> None:
        """Report a record that is not a valid message; commands that read twice find it twice."""
        if not self._skips:
            raise error
        place = getattr(error, "path", None), getattr(error, "record", None)
        if place in self._invalid:
            return
        self._invalid.add(place)
        if len(self._invalid) <= _MOST_SHOWN:
            complain(str(error))

    def settled(self, path: str, found: RecordType) -> RecordType:
        """The record type of a file; prints its warning, if some records contradict it or another function of
        this library decodes them."""
        doubtful = found.name != "bytes" or found.num_for or "tfrecord." in found.looks_like
        if path not in self._told and found.warning and doubtful:
            self._told.add(path)
            complain(f"{path}: {found.warning}")
        return found

    @property
    def num_invalid(self) -> int:
        """How many invalid records were found."""
        return len(self._invalid)

    @property
    def exit_code(self) -> int:
        """1 if there was an invalid record, else 0."""
        return 1 if self._invalid else 0

    def finish(self, consequence: str) -> int:
        """Print how many records were invalid and what happened to them; returns the exit code."""
        if self._invalid:
            are = "is not a valid message" if self.num_invalid == 1 else "are not valid messages"
            complain(f"{count_text(self.num_invalid, 'record')} {are}: {consequence}")
        return self.exit_code
