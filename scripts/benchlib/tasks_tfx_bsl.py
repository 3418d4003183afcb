"""tfx-bsl's side: serialized Examples to an Arrow RecordBatch."""

from __future__ import annotations

from typing import Any

import tfx_bsl  # type: ignore[import-not-found, unused-ignore]
from google.protobuf import text_format
from tensorflow_metadata.proto.v0 import schema_pb2  # type: ignore[import-not-found, unused-ignore]
from tfx_bsl.coders import example_coder  # type: ignore[import-not-found, unused-ignore]

from benchlib.common import Run, Spec, Task, batches_of

_TYPE = {"bytes": "BYTES", "float": "FLOAT", "int": "INT"}


def version() -> str:
    """tfx-bsl's version."""
    return str(tfx_bsl.__version__)


def decode(spec: Spec) -> Run:
    """``ExamplesToRecordBatchDecoder`` with a schema (``form`` "schema") or without."""
    wanted = spec.get("columns")
    schema: Any = None
    if spec.get("form") == "schema":
        text = "".join(
            f'feature {{ name: "{name}" type: {_TYPE[kind]} }}\n'
            for name, kind, _ in spec["features"]
            if wanted is None or name in wanted
        )
        schema = text_format.Parse(text, schema_pb2.Schema()).SerializeToString()
    decoder = example_coder.ExamplesToRecordBatchDecoder(schema)
    batches = batches_of(spec)

    def run() -> int:
        return sum(decoder.DecodeBatch(batch).num_rows for batch in batches)

    return run


TASKS: dict[str, Task] = {"decode": decode}
