"""What notebooks and consoles show of readers, indexes, schemas and batches."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import indexer
import tfrecord
from tfrecord._writing.encoder import encode_sequence_example
from tfrecord.columns import BytesColumn, ColumnBatch, Ragged, SequenceBatch

EVIL = "<script>alert('x')</script>&\""
PNG = b"\x89PNG\r\n\x1a\n" + bytes(40)
IMAGES = [PNG, b"\xff\xd8\xff\xe0abc", b"GIF89a...", b"RIFF\1\2\3\4WEBPVP8 "]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    target = tmp_path / "a<b>&.tfrecord"
    with tfrecord.TFRecordWriter(target) as writer:
        for i in range(3):
            writer.write({"label": (i, "int"), EVIL: (["a"] * i, "byte")})
    return target


def is_clean(html: str) -> bool:
    """Whether no text of the data stands in it as markup."""
    tags = set(re.findall(r"<(\w+)", html))
    return tags <= {"div", "p", "table", "thead", "tbody", "tr", "th", "td", "br", "small", "img"}


def test_a_schema(path: Path) -> None:
    tfrecord.build_index(path, columns=["label"])
    schema = tfrecord.TFRecordReader(path).schema
    lines = repr(schema).splitlines()
    assert lines[0] == "Schema of 3 records (example)" and len(lines) == 3
    assert any(re.fullmatch(r"  'label' +int64  1 value +all", line) for line in lines)
    assert any(line.endswith("bytes  0 to 2 values  all") for line in lines)
    html = schema._repr_html_()
    assert is_clean(html) and "&lt;script&gt;" in html and "0 to 2 values" in html and html.count("<tr>") == 3


def test_a_schema_of_feature_lists(tmp_path: Path) -> None:
    target = tmp_path / "s.tfrecord"
    with tfrecord.TFRecordWriter(target) as writer:
        writer.write_bytes(encode_sequence_example({"id": (1, "int")}, {"<b>": ([[1, 2], [3]], "int")}))
        writer.write_bytes(encode_sequence_example({}, {"<b>": ([[1, 2]], "int")}))
    schema = tfrecord.TFRecordReader(target).schema
    assert "  'id'   int64  1 value                        1 of 2" in repr(schema)
    assert "1 to 2 steps of 1 to 2 values  all" in repr(schema)
    assert is_clean(schema._repr_html_())


def test_a_reader(path: Path) -> None:
    with tfrecord.TFRecordReader(path) as reader:
        html = reader._repr_html_()
        assert is_clean(html) and "records not counted yet" in html
        assert not reader.has_index and "records not counted yet" in reader.index._repr_html_()
        assert is_clean(reader.index._repr_html_()) and not reader.has_index
    tfrecord.build_index(path, columns=["label"])
    with tfrecord.TFRecordReader(path) as reader:
        html = reader._repr_html_()
        assert is_clean(html) and "3 records in 1 file" in html and "a&lt;b&gt;&amp;.tfrecord" in html
        assert "label" in html and "&lt;script&gt;" in html
        before = repr(reader)
        assert "3 records" in repr(reader.index) and "label" in repr(reader.index)
        assert "label" in reader.index._repr_html_() and repr(reader) == before
        assert is_clean(reader.select([0, 1])._repr_html_())
        view = reader.select([0, 1])
        view.close()
        assert "closed" in view._repr_html_()
        kept = reader.index
    assert "closed" in reader._repr_html_() and is_clean(reader._repr_html_())
    assert repr(kept) and kept._repr_html_()


def test_a_reader_of_many_files_or_of_two_minds(tmp_path: Path) -> None:
    for i in range(12):
        with tfrecord.TFRecordWriter(tmp_path / f"{i}.tfrecord", index=True) as writer:
            writer.write({"a": (1, "int")} if i else {"a": (b"<i>", "byte")})
    html = tfrecord.TFRecordReader(str(tmp_path))._repr_html_()
    assert "2 more files" in html and "The schema could not be read" in html and is_clean(html)


def test_an_index_file(path: Path) -> None:
    tfrecord.build_index(path, columns=["label"])
    index = indexer.load_index(path)
    assert repr(index).startswith("RecordIndex(3 records of ") and "columns 'label'" in repr(index)
    html = index._repr_html_()
    assert is_clean(html) and "a&lt;b&gt;&amp;.tfrecord" in html and "label" in html


@pytest.mark.parametrize("image", IMAGES)
def test_images_are_shown(image: bytes) -> None:
    columns = BytesColumn.from_list([image, b"text", image + bytes(200_000)])
    rows = Ragged(BytesColumn.from_list([image, image, image]), [0, 1, 3, 3])
    html = ColumnBatch({"dense": columns, "<rows>": rows})._repr_html_()
    assert html.count('<img src="data:image/') == 2 and is_clean(html)
    assert re.search(r"data:image/(png|jpeg|gif|webp);base64,[A-Za-z0-9+/=]+\"", html)


def test_eight_images_are_shown_at_most() -> None:
    batch = ColumnBatch({name: BytesColumn.from_list([PNG] * 20) for name in "ab"})
    assert batch._repr_html_().count("<img") == 8
    assert SequenceBatch(batch, batch)._repr_html_().count("<img") == 8


def test_what_only_begins_like_an_image_stays_text() -> None:
    others = [b"", b"\x89PN", b"<svg onload=alert(1)>", b"RIFF1234WAVE", b"\xff\xd8" + b"x" * 40, b"GIF90a"]
    html = ColumnBatch({"a": BytesColumn.from_list(others)})._repr_html_()
    assert "<img" not in html and is_clean(html)
