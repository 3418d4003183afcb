"""Sets of files: all or none, at whatever call the process is killed or the system fails."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import Any

import pytest

from indexer import commits
from indexer.commits import JOURNAL, settle
from indexer.outputs import Outputs

pytestmark = pytest.mark.one_run

OLD = {"a": b"old a", "b": b"old b"}  # c is new
NEW = {"a": b"new a", "b": b"new b", "c": b"new c"}
CALLS = ("open", "link", "rename", "replace", "unlink", "fsync", "write", "rmdir")


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if not path.name.startswith(".")}


def prepare(folder: Path) -> None:
    folder.mkdir()
    for name, data in OLD.items():
        (folder / name).write_bytes(data)
    (folder / "a.tfindex").write_bytes(b"an index of old a")


def write_set(folder: Path) -> None:
    with Outputs() as outputs:
        for name, data in NEW.items():
            outputs.open(str(folder / name)).write(data)


def killed_at(number: int, folder: Path, names: tuple[str, ...] = CALLS) -> bool:
    """Write the set in a child that is killed before its n-th call; whether it came so far."""
    child = os.fork()
    if not child:
        count = 0
        for name in names:
            real = getattr(os, name)

            def counted(*args: Any, _real: Any = real, **options: Any) -> Any:
                nonlocal count
                count += 1
                if count == number:
                    os._exit(9)
                return _real(*args, **options)

            setattr(os, name, counted)
        try:
            write_set(folder)
        finally:
            os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9


@pytest.mark.parametrize("links", [True, False])
def test_killed_at_every_call(links: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if not links:

        def refuse(*args: Any, **options: Any) -> None:
            raise OSError(errno.EPERM, "no links here")

        monkeypatch.setattr(os, "link", refuse)
    before, after, number = {**OLD, "a.tfindex": b"an index of old a"}, NEW, 0
    ends = set()
    while True:
        number += 1
        folder = tmp_path / str(number)
        prepare(folder)
        if not killed_at(number, folder, CALLS if links else tuple(set(CALLS) - {"link"})):
            assert content(folder) == after
            break
        settle(str(folder))
        found = content(folder)
        assert found in (before, after), number
        ends.add(found == after)
        assert not (folder / JOURNAL).exists()
        write_set(folder)  # the next writer
        assert content(folder) == after
        assert [path.name for path in folder.iterdir() if path.name.startswith(".")] == []
    assert ends == {True, False} and number > 20


def test_every_call_that_fails_is_taken_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.replace
    for number in range(1, 4):
        folder = tmp_path / str(number)
        prepare(folder)
        count = 0

        def failing(source: str, target: str, number: int = number) -> None:
            nonlocal count
            count += 1
            if count == number:
                raise OSError(errno.EIO, "the disk is broken", target)
            real(source, target)

        monkeypatch.setattr(os, "replace", failing)
        with pytest.raises(OSError, match="cannot be written"):
            write_set(folder)
        monkeypatch.undo()
        assert content(folder) == {**OLD, "a.tfindex": b"an index of old a"}
        assert [path.name for path in folder.iterdir() if path.name.startswith(".")] == []


def test_killed_while_it_is_taken_back(tmp_path: Path) -> None:
    number = 0
    while True:
        number += 1
        folder = tmp_path / str(number)
        prepare(folder)
        child = os.fork()
        if not child:
            count = 0

            def failing(source: str, target: str, replace: Any = os.replace, last: int = 3 + number) -> None:
                nonlocal count
                count += 1
                if count == 3:
                    raise OSError(errno.EIO, "broken")
                if count == last:
                    os._exit(9)
                replace(source, target)

            os.replace = failing  # type: ignore[assignment]
            try:
                write_set(folder)
            finally:
                os._exit(0)
        killed = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
        settle(str(folder))
        assert content(folder) == {**OLD, "a.tfindex": b"an index of old a"}
        if not killed:
            break
    assert number == 3


def test_what_can_neither_be_done_nor_taken_back_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "f"
    prepare(folder)
    real, count = os.replace, 0

    def failing(source: str, target: str) -> None:
        nonlocal count
        count += 1
        if count > 2:
            raise OSError(errno.EIO, "broken")
        real(source, target)

    monkeypatch.setattr(os, "replace", failing)
    with pytest.raises(OSError, match=r"neither be moved into place nor moved back") as caught:
        write_set(folder)
    monkeypatch.undo()
    (kept,) = [path for path in folder.iterdir() if path.name.endswith(".kept")]
    assert str(kept) in str(caught.value) and "0.old is a" in str(caught.value)
    assert (kept / "0.old").read_bytes() == OLD["a"] and (kept / "2").read_bytes() == NEW["c"]
    write_set(folder)
    assert kept.exists() and {**NEW} == {name: content(folder)[name] for name in NEW}


HOSTILE = [
    b"",
    b"{}\n.\n",
    b"no json\n.\n",
    json.dumps({"source": "../x", "moves": []}).encode() + b"\n.\n",
    json.dumps({"source": ".tfrecord-0123456789abcdef.tmp", "moves": [["0", "../out", False]]}).encode()
    + b"\n.\n",
    json.dumps({"source": ".tfrecord-0123456789abcdef.tmp", "moves": [["0", "/out", False]]}).encode()
    + b"\n.\n",
    json.dumps({"source": ".tfrecord-0123456789abcdef.tmp", "moves": [["../0", "a", False]]}).encode()
    + b"\n.\n",
    json.dumps({"source": ".tfrecord-0123456789abcdef.tmp", "moves": [["0", "a", False]]}).encode(),
]


@pytest.mark.parametrize("journal", HOSTILE)
def test_a_journal_that_is_not_whole_or_names_something_outside(journal: bytes, tmp_path: Path) -> None:
    folder = tmp_path / "f"
    prepare(folder)
    (tmp_path / "x").mkdir()
    (folder / ".tfrecord-0123456789abcdef.tmp").mkdir()
    (folder / ".tfrecord-0123456789abcdef.tmp" / "0").write_bytes(b"hostile")
    (folder / JOURNAL).write_bytes(journal)
    settle(str(folder))
    assert not (folder / JOURNAL).exists()
    assert content(folder) == {**OLD, "a.tfindex": b"an index of old a"}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["f", "x"]


def test_a_link_in_the_place_of_the_new_files_is_not_followed(tmp_path: Path) -> None:
    folder = tmp_path / "f"
    prepare(folder)
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "0").write_bytes(b"mine")
    (folder / ".tfrecord-0123456789abcdef.tmp").symlink_to(tmp_path / "secret")
    text = json.dumps({"source": ".tfrecord-0123456789abcdef.tmp", "moves": [["0", "a", True]]})
    (folder / JOURNAL).write_bytes(text.encode() + b"\n.\n")
    settle(str(folder))
    assert (tmp_path / "secret" / "0").read_bytes() == b"mine" and (folder / "a").read_bytes() == OLD["a"]


def test_who_opens_the_folder_next_finishes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from indexer.framing import frame_record
    from tfrecord.reader import TFRecordReader

    monkeypatch.setitem(globals(), "NEW", {f"s-{n:05d}-of-00003": frame_record(b"new") for n in range(3)})
    for number in range(1, 200):
        folder = tmp_path / str(number)
        folder.mkdir()
        for name in NEW:
            (folder / name).write_bytes(frame_record(b"old"))
        if not killed_at(number, folder, ("replace",)):
            break
        for reader in (
            TFRecordReader(folder / "s@3", record_type="bytes"),
            TFRecordReader(folder, record_type="bytes"),
        ):
            assert list(reader) == [b"new"] * 3
    assert number == 4


def test_a_folder_that_may_not_be_written_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prepare(tmp_path / "f")
    killed_at(2, tmp_path / "f", ("replace",))
    assert (tmp_path / "f" / JOURNAL).exists()

    def refuse(*args: Any, **options: Any) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(commits.os, "replace", refuse)
    with pytest.raises(PermissionError, match="was killed.*write access") as caught:
        settle(str(tmp_path / "f"))
    assert caught.value.filename == str(tmp_path / "f" / JOURNAL)
    monkeypatch.undo()
    settle(str(tmp_path / "f"))
    assert content(tmp_path / "f") == NEW
