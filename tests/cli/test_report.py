"""`tfrecord stats --html`: one page that holds everything and lets nothing run."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

from samples import HOSTILE, MakeFile, Run, examples, odd_sequences

from tfrecord.encode import encode_example


class Reader(HTMLParser):
    """The tags and the text of a page, and whether its elements are closed in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.words: list[str] = []
        self.names: set[str] = set()
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert not self._open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.names.update(name for name, _ in attrs)
        if tag not in ("meta", "link"):
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)


def test_the_page(run: Run, make_file: MakeFile, tmp_path: Path) -> None:
    target = tmp_path / "out.html"
    done = run("stats", make_file(examples(20)), "--html", target)
    assert (done.code, done.out) == (0, "")
    page = Reader(target.read_text())
    words = "\n".join(page.words)
    assert "20 records" in words and "image/encoded" in words and '"red"' in words
    assert page.tags.count("article") == 5 and "svg" in page.tags and "script" not in page.tags
    run("stats", make_file(odd_sequences(), "s"), "--html", target)
    assert "bytes steps" in Reader(target.read_text()).words


def test_hostile_contents_are_text(run: Run, make_file: MakeFile, tmp_path: Path) -> None:
    records = [encode_example({HOSTILE: ([HOSTILE] * 3, "bytes")}), b"\xff"]
    target = tmp_path / "out.html"
    done = run("stats", make_file(records, f"a{HOSTILE.replace('/', '')}.tfrecord"), "--html", target)
    assert done.code == 1
    text = target.read_text()
    page = Reader(text)
    assert not {"script", "img", "iframe", "object"} & set(page.tags)
    assert not any(name.startswith("on") or name in ("src", "style") for name in page.names)
    assert "1 record are not" in text or "1 record is not" in text
    assert not re.search(r"https?://|url\(|@import", text) and "\u2028" not in text
    assert "default-src 'none'" in text.replace("&#x27;", "'")


def test_the_page_and_json_at_once(run: Run, make_file: MakeFile, tmp_path: Path) -> None:
    target = tmp_path / "out.html"
    found = run("stats", make_file(examples(8)), "--html", target, "--json").json()
    label = next(item for item in found["columns"] if item["name"] == "label")
    assert [bar["count"] for bar in label["histogram"]] == [2, 2, 2, 2] and target.exists()


def test_blocks_on_the_terminal(run: Run, make_file: MakeFile) -> None:
    assert "████" in run("stats", make_file(examples(8)), "--columns", "label").out
