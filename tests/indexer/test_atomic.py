from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from indexer import atomic
from indexer.atomic import folder_beside, replace_file
from indexer.outputs import Outputs


def beside(path: Path) -> list[str]:
    return sorted(os.listdir(path.parent))


def test_a_file_is_written_with_the_mode_of_the_umask(tmp_path: Path) -> None:
    path = tmp_path / "f"
    for mask, mode in ((0o022, 0o644), (0o077, 0o600)):
        before = os.umask(mask)
        try:
            with replace_file(str(path)) as file:
                file.write(b"new")
        finally:
            os.umask(before)
        assert path.read_bytes() == b"new"
        assert stat.S_IMODE(path.stat().st_mode) == mode
    assert beside(path) == ["f"]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit, OSError])
def test_after_an_exception_all_is_as_before(error: type[BaseException], tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"old")
    with pytest.raises(error):
        with replace_file(str(path)) as file:
            file.write(b"new" * 100_000)
            raise error
    assert path.read_bytes() == b"old"
    assert beside(path) == ["f"]


def test_where_writing_fails_at_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"old")

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        with replace_file(str(path)) as file:
            file.write(b"new")
    assert path.read_bytes() == b"old" and beside(path) == ["f"]


def test_siblings_of_the_dead_are_removed_and_of_the_living_kept(tmp_path: Path) -> None:
    path = tmp_path / "f"
    for number in (0, 1, 5):
        (tmp_path / f".f.{number}.tmp").write_bytes(b"left by somebody who was killed")
    with replace_file(str(path)) as one:
        with replace_file(str(path)) as other:
            assert one.fileno() != other.fileno()
            other.write(b"other")
        assert path.read_bytes() == b"other"
        one.write(b"one")
    assert path.read_bytes() == b"one"
    assert beside(path) == ["f"]


def test_a_sibling_that_is_taken_for_a_dead_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "f"
    lock, calls = atomic.lock, []

    def slow(descriptor: int) -> bool | None:
        calls.append(descriptor)
        if len(calls) == 1:
            os.unlink(tmp_path / ".f.0.tmp")  # another builder, between our open and our lock
        return lock(descriptor)

    monkeypatch.setattr(atomic, "lock", slow)
    with replace_file(str(path)) as file:
        file.write(b"new")
    assert len(calls) == 2 and path.read_bytes() == b"new" and beside(path) == ["f"]


def test_without_locks_it_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(atomic, "fcntl", None)
    path = tmp_path / "f"
    (tmp_path / ".f.0.tmp").write_bytes(b"perhaps somebody's")
    with replace_file(str(path)) as file:
        file.write(b"new")
    assert path.read_bytes() == b"new" and beside(path) == [".f.0.tmp", "f"]


LITTER = ".tfrecord-0123456789abcdef.tmp"


@pytest.mark.parametrize("locks", [True, False])
def test_folders_of_the_dead_are_removed_and_of_the_living_kept(
    locks: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not locks:
        monkeypatch.setattr(atomic, "fcntl", None)
    for name in (LITTER, ".tfrecord-mine.tmp"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "0").write_bytes(b"left by somebody who was killed")
    with folder_beside(str(tmp_path)) as one, folder_beside(str(tmp_path)) as other:
        assert one != other and os.path.isdir(one) and os.path.isdir(other)
        assert (tmp_path / LITTER).exists() is not locks
        Path(one, "0").write_bytes(b"new")
    left = [".tfrecord-mine.tmp"] if locks else [LITTER, ".tfrecord-mine.tmp"]
    assert sorted(os.listdir(tmp_path)) == left


@pytest.mark.parametrize("step", ["open", "lock"])
def test_a_folder_that_is_taken_for_a_dead_one(
    step: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process removes it before it is opened, or before it is locked."""
    module, name = (os, "open") if step == "open" else (atomic, "lock")
    real, calls = getattr(module, name), []

    def slow(*args: object) -> object:
        calls.append(args)
        if len(calls) == 1:
            for folder in tmp_path.iterdir():
                folder.rmdir()
        return real(*args)

    monkeypatch.setattr(module, name, slow)
    with folder_beside(str(tmp_path)) as folder:
        monkeypatch.undo()
        assert os.listdir(tmp_path) == [os.path.basename(folder)]
    assert len(calls) == 2 and not list(tmp_path.iterdir())


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real" / "f")
    with replace_file(str(tmp_path / "link")) as file:
        file.write(b"new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real" / "f").read_bytes() == b"new"


def test_places_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(IsADirectoryError, match="folder"):
        with replace_file(str(tmp_path)):
            pass
    with pytest.raises(FileNotFoundError) as caught:
        with replace_file(str(tmp_path / "absent" / "f")):
            pass
    assert caught.value.filename == str(tmp_path / "absent" / "f")


def test_names_too_long(tmp_path: Path) -> None:
    path = str(tmp_path / ("n" * 256))
    for make in (lambda: replace_file(path).__enter__(), lambda: Outputs().open(path)):
        with pytest.raises(OSError, match="too long") as caught:
            make()
        assert caught.value.filename == path and caught.value.filename2 is None
    with replace_file(str(tmp_path / ("n" * 255))) as file:
        assert max(map(len, os.listdir(tmp_path))) <= 143
        file.write(b"new")
    assert list(map(len, os.listdir(tmp_path))) == [255]


def test_errors_of_renaming_name_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "f"

    def refuse(source: str, target: str) -> None:
        raise PermissionError(1, "Operation not permitted", source, None, target)

    monkeypatch.setattr(os, "replace", refuse)
    for count in (0, 1, 2):  # files written with `Outputs`
        with pytest.raises(PermissionError, match="cannot be written") as caught:
            if count:
                with Outputs() as outputs:
                    for number in range(count):
                        outputs.open(f"{path}{number or ''}")
            else:
                with replace_file(str(path)):
                    pass
        assert caught.value.filename == str(path) and caught.value.filename2 is None
        assert not list(tmp_path.iterdir())


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_may_not_be_written(tmp_path: Path) -> None:
    tmp_path.chmod(0o555)
    try:
        with pytest.raises(PermissionError, match="cannot be written"):
            with replace_file(str(tmp_path / "f")):
                pass
    finally:
        tmp_path.chmod(0o755)


@pytest.mark.parametrize("step", ["open", "lock", "fsync", "replace"])
def test_an_interrupt_at_any_step_leaves_nothing(
    step: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The step is done, and before its result is known the interrupt comes."""
    path = tmp_path / "f"
    path.write_bytes(b"old")
    module, name = {"open": (os, "open"), "lock": (atomic, "lock")}.get(step, (os, step))
    real = getattr(module, name)
    armed = True
    descriptors = set(os.listdir("/dev/fd")) if os.path.isdir("/dev/fd") else set()

    def interrupted(*args: object) -> object:
        nonlocal armed
        result = real(*args)
        if armed:
            armed = False
            if step == "open":
                os.close(result)  # nobody gets to know this one
            raise KeyboardInterrupt
        return result

    monkeypatch.setattr(module, name, interrupted)
    with pytest.raises(KeyboardInterrupt):
        with replace_file(str(path)) as file:
            file.write(b"new")
    monkeypatch.undo()
    assert path.read_bytes() == (b"new" if step == "replace" else b"old")
    assert beside(path) == ["f"]
    assert not descriptors or len(os.listdir("/dev/fd")) == len(descriptors)


def test_after_the_replacement_the_name_of_the_sibling_is_another_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "f"
    real = os.replace

    def replaced(source: str, target: str) -> None:
        real(source, target)
        Path(source).write_bytes(b"of another process")
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", replaced)
    with pytest.raises(KeyboardInterrupt):
        with replace_file(str(path)) as file:
            file.write(b"new")
    assert path.read_bytes() == b"new"
    assert (tmp_path / ".f.0.tmp").read_bytes() == b"of another process"
