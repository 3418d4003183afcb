"""`reader.view()`: the page of a reader that is open."""

from __future__ import annotations

import sys
import urllib.error
import urllib.request
import webbrowser
from pathlib import Path

import numpy as np
import pytest
from samples import MakeFile, examples

import tfrecord
from tfrecord._cli.viewer.vocab import read_vocabulary


def body(url: str) -> str:
    with urllib.request.urlopen(url, timeout=20) as answer:
        return answer.read().decode()


def test_it_opens_and_closes(make_file: MakeFile, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    monkeypatch.setattr(webbrowser, "open", opened.append)
    with tfrecord.TFRecordReader(make_file(examples(30))) as reader:
        viewer = reader.view()
        assert opened == [viewer.url] and viewer.url in repr(viewer)
        assert viewer._repr_html_().startswith(f'<a href="{viewer.url}"')
        assert "30 records" in body(viewer.url)
        viewer.close()
        with pytest.raises(urllib.error.URLError):
            body(viewer.url)
        viewer.close()


def test_a_selection_and_its_order(make_file: MakeFile) -> None:
    path = make_file(examples(30))
    tfrecord.build_index(path, columns=["label"])
    with tfrecord.TFRecordReader(path) as reader:
        chosen = reader.select(np.array([7, 3, 11, 4]))
        with chosen.view(open_browser=False) as viewer:
            page = body(viewer.url + "records?view=list")
            assert "4 records" in page and page.index("number 7,") < page.index("number 3,")
            assert "3 of 3 found" not in page
            found = body(viewer.url + "records?view=list&q=label%3D3")
            assert "1 to 3 of 3 found" in found and "number 4," not in found
            assert "Features of 4 records" in body(viewer.url + "overview?all=1")


def test_what_is_wrong(make_file: MakeFile, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with tfrecord.TFRecordReader(make_file(examples(3))) as reader:
        with pytest.raises(FileNotFoundError):
            reader.view(open_browser=False, vocab=tmp_path / "none.txt")
        with reader.view(open_browser=False) as viewer:
            reader.close()
            with pytest.raises(urllib.error.HTTPError, match="500"):
                body(viewer.url + "records")
        with pytest.raises(ValueError, match="closed"):
            reader.view(open_browser=False)
        monkeypatch.setitem(sys.modules, "click", None)
        with pytest.raises(ImportError, match=r"pip install 'tfrecord\[cli\]'"):
            reader.view(open_browser=False)


# Vocabularies.


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("[PAD]\nthe\n##ing\n", {0: "[PAD]", 1: "the", 2: "ing"}),
        ("a\r\n\r\nb", {0: "a", 1: "", 2: "b"}),
        ('{"model": {"vocab": {"Ġsea": 0, "Ã¶": 1, "Ċ": 2}}}', {0: " sea", 1: "ö", 2: "\n"}),
        ('{"model": {"vocab": [["▁a", -1.5], ["b", -2]]}, "added_tokens": [{"id": 5, "content": "<s>"}]}',
         {0: " a", 1: "b", 5: "<s>", 9: "<9>"}),
    ],
    ids=["lines", "crlf", "byte-level", "unigram"],
)  # fmt: skip
def test_vocabularies(tmp_path: Path, text: str, tokens: dict[int, str]) -> None:
    path = tmp_path / "vocab"
    path.write_text(text, newline="", encoding="utf-8")
    vocabulary = read_vocabulary(str(path))
    assert {number: vocabulary.text(number) for number in tokens} == tokens


@pytest.mark.parametrize(
    "text", ["{}", '{"model": {"vocab": 5}}', "{", '{"model": []}', '{"model": {"vocab": [1]}}']
)
def test_what_is_no_vocabulary(tmp_path: Path, text: str) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=r"not a tokenizer\.json"):
        read_vocabulary(str(path))


def test_which_features_are_tokens(tmp_path: Path) -> None:
    path = tmp_path / "v.txt"
    path.write_text("a\nb\nc\n")
    every, one = read_vocabulary(str(path)), read_vocabulary(f"label={path}")
    ids = np.array([0, 2, 1])
    for name in ("input_ids", "tokens", "targets", "inputs", "decoder/input_ids", "masked_lm_ids"):
        assert every.speaks_of(name, ids), name
    for name in ("label", "token_type_ids", "segment_ids", "position_ids", "input_mask", "widths"):
        assert not every.speaks_of(name, ids), name
    assert not every.speaks_of("input_ids", np.array([0, 3])) and not every.speaks_of("input_ids", ids[:1])
    assert one.speaks_of("label", ids) and not one.speaks_of("input_ids", ids)
