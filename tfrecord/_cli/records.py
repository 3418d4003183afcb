"""Records in readable form, as `tfrecord head` and `tfrecord show` print them."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any, NamedTuple

from indexer.errors import DecodeError, FeatureKindError
from indexer.outputs import STREAM
from tfrecord._cli.common import MOST_ROWS, add_row, console, json_line, more_text, no_feature, table
from tfrecord._cli.conversion.json_and_tar import record_json
from tfrecord._cli.conversion.layout import exact_record
from tfrecord._cli.describe import bytes_text, kind_of, value_text
from tfrecord._cli.problems import Problems
from tfrecord._cli.terminal import complain, safe


class Item(NamedTuple):
    """A record to show: its place, payload and type."""

    path: str
    record: int
    offset: int | None
    payload: memoryview
    kind: str


def show_items(items: Iterable[Item], columns: list[str] | None, problems: Problems, as_json: bool) -> None:
    out = console()
    seen: set[str] = set()
    for path, record, offset, payload, kind in items:
        try:
            if as_json:
                document = _chosen(record_json(payload, kind), kind, columns)
                _line({"path": path, "record": record, "type": kind, **document})
                continue
            name = "<stdin>" if path == STREAM else path
            title = safe(f"{name} record {record}, {_words(kind)}, {len(payload):,} bytes")
            _print_record(out, title, payload, kind, columns, seen)
        except (DecodeError, FeatureKindError) as error:
            problems.invalid(error.at(path, record, offset))
    missing = [] if as_json else [name for name in columns or () if name not in seen]
    if missing:
        complain(no_feature(missing, seen).replace("no record", "no record shown", 1))


def _line(document: Any) -> None:
    sys.stdout.write(json_line(document) + "\n")


def _words(kind: str) -> str:
    return {"example": "Example", "sequence_example": "SequenceExample"}.get(kind, "raw bytes")


def _chosen(document: dict[str, Any], kind: str, columns: list[str] | None) -> dict[str, Any]:
    """The exact record with only the requested features; for records of bytes, the `payload`."""
    if kind == "bytes":
        return {"payload": document["record"]}
    parts = document if kind == "sequence_example" else {"features": document.get("__example__", document)}
    if columns is None:
        return parts
    return {
        part: {key: value for key, value in features.items() if key in columns}
        for part, features in parts.items()
    }


def _print_record(
    out: Any, title: str, payload: memoryview, kind: str, columns: list[str] | None, seen: set[str]
) -> None:
    if kind == "bytes":
        out.print(title)
        out.print(f"  {bytes_text(payload, 400)}")
        return
    context, lists = exact_record(payload, kind)
    out.print(title)
    found = [(key, kind_of(value), value) for key, value in sorted(context.items())]
    for key, steps in sorted((lists or {}).items()):
        kinds = {kind_of(step) for step in steps if step is not None} or {"no kind"}
        found.append((key, f"{'/'.join(sorted(kinds))} steps", steps))
    seen.update(key for key, _, _ in found)
    found = [item for item in found if columns is None or item[0] in columns]
    rows = table("", "feature", "kind", "value")
    for key, told, value in found[:MOST_ROWS]:
        add_row(rows, "", key, told, value_text(value))
    if rows.row_count:
        out.print(rows)
    else:
        out.print("  (no features)" if not context and not lists else "")
    if len(found) > MOST_ROWS:
        out.print(f"  {more_text(len(found))}")
