"""Output files that appear whole, all together, or not at all."""

from __future__ import annotations

import errno
import os
import stat
import sys
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryFile
from types import TracebackType
from typing import BinaryIO, Protocol, TypeVar

from indexer.atomic import check_name, folder_beside, sync_folder, unwritable
from indexer.commits import commit, settle
from indexer.files import is_url, local_path
from indexer.names import index_names
from indexer.stores import Url, open_store
from indexer.stores.upload import Upload

STREAM = "-"
_PIECE = 1 << 20
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class _Closable(Protocol):
    def close(self) -> object: ...


Closing = TypeVar("Closing", bound=_Closable)


def same_file(a: str, b: str) -> bool:
    """Whether two paths lead to the same existing file."""
    try:
        return os.path.samefile(a, b)
    except OSError:
        return False


def is_special(path: str) -> bool:
    """Whether the path is written to directly, not replaced: standard output, a pipe, a device."""
    if path == STREAM:
        return True
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return False
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


class Outputs:
    """A set of output files: written beside their final names, renamed on a clean exit, removed on any other.

    Used as a context manager. `open` gives a file to write to; nothing appears under the final names until
    the block ends without an exception. Then every file is flushed to disk and renamed. If a rename fails,
    those already done are undone, and the files that they replaced are restored. If the process is killed
    between two renames, the next process that uses the folder does the others (see `commits`). Whatever else
    a killed process left is removed by the next one that writes into the same folder. The old index of a file
    that is replaced is removed. Outputs behind URLs are uploaded at the end, too.

    Raises:
        FileExistsError: an output is one of `inputs`.
        IsADirectoryError: an output is a folder.
    """

    def __init__(self, inputs: Iterable[str] = ()) -> None:
        self._inputs = [local_path(path) or path for path in inputs if path != STREAM]
        self._stack = ExitStack()
        self._temporary = ExitStack()
        self._folders: dict[str, str] = {}  # folder of an output -> the temporary folder inside it
        self._moves: list[tuple[str, str]] = []
        self._uploads: list[tuple[BinaryIO, str]] = []
        self._last = ""

    def __enter__(self) -> Outputs:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        self._name(error)
        try:
            self._stack.close()
            if kind is None:
                if not sys.stdout.closed:
                    sys.stdout.flush()
                self._commit()
        except OSError as failure:
            self._name(failure)
            raise
        finally:
            self._temporary.close()

    def _name(self, error: BaseException | None) -> None:
        """Name the output in an error such as a full disk."""
        if isinstance(error, OSError) and error.filename is None and error.errno in _FULL and self._last:
            error.filename = self._last

    def check(self, path: str) -> None:
        """Refuse a path that must not be written, before any work is done."""
        if is_special(path):
            return
        if is_url(path):
            if path in self._inputs:
                raise FileExistsError(f"{path} is also an input and must not change; choose another name")
            if path.endswith("/"):
                raise IsADirectoryError(f"{path} is a folder; give a file name")
            return
        if not path:
            raise IsADirectoryError("the output's path is empty")
        if os.path.isdir(path) or not os.path.basename(path):
            raise IsADirectoryError(f"{path} is a folder; give a file name")
        for source in self._inputs:
            if same_file(source, path) or os.path.abspath(source) == os.path.abspath(path):
                raise FileExistsError(f"{path} is also an input and must not change; choose another name")
        if any(os.path.realpath(path) == final for _, final in self._moves):
            raise FileExistsError(f"{path} is written twice")
        if not os.path.isdir(os.path.dirname(os.path.abspath(path))):
            raise FileNotFoundError(f"the folder of {path} does not exist")
        check_name(path)

    def open(self, path: str) -> BinaryIO:
        """A binary file whose content becomes `path`; `-` is standard output."""
        self.check(path)
        self._last = "standard output" if path == STREAM else path
        file: BinaryIO
        if path == STREAM:
            file = sys.stdout.buffer
        elif is_url(path):
            spool: BinaryIO = self._temporary.enter_context(TemporaryFile())
            self._uploads.append((spool, path))
            file = self.keep(open(os.dup(spool.fileno()), "r+b"))  # its writer closes it; the bytes stay
        elif is_special(path):
            file = self.keep(open(path, "wb"))
        else:
            file = self.keep(open(self._beside(os.path.realpath(path)), "xb"))
        return file

    def _beside(self, target: str) -> str:
        """The name of a new file that becomes `target` at the end."""
        place = os.path.dirname(target)
        if place not in self._folders:
            settle(place)  # first, so that files it still needs are not removed as leftovers
            self._folders[place] = self._temporary.enter_context(folder_beside(place))
        temporary = os.path.join(self._folders[place], str(len(self._moves)))
        self._moves.append((temporary, target))
        return temporary

    def keep(self, resource: Closing) -> Closing:
        """Close this too when the block ends, however it ends; the last one kept is closed first."""
        self._stack.callback(resource.close)
        return resource

    def close_kept(self) -> None:
        """Close what was kept so far, so that the number of open outputs stays small."""
        self._stack.close()

    def _commit(self) -> None:
        _upload(self._uploads)
        for temporary, _ in self._moves:
            _sync(temporary)
        if len(self._moves) == 1:
            ((temporary, final),) = self._moves
            replaced = os.path.lexists(final)
            try:
                os.replace(temporary, final)
            except OSError as error:
                raise unwritable(error, final) from error
            for index in index_names(final) if replaced else ():
                Path(index).unlink(missing_ok=True)
            sync_folder(os.path.dirname(final))
        elif self._moves:
            commit(self._moves)


def _upload(outputs: list[tuple[BinaryIO, str]]) -> None:
    """Make the objects; where one fails, those already made are deleted. Their old indexes go."""
    done: list[str] = []
    try:
        for file, url in outputs:
            file.seek(0)
            upload = Upload(url)
            try:
                while piece := file.read(_PIECE):
                    upload.write(piece)
                upload.close()
            except BaseException:
                upload.abort()
                raise
            done.append(url)
    except BaseException:
        for url in done:
            _delete(Url(url))
        raise
    for url in done:
        _delete(Url(url) + ".tfindex")


def _delete(url: Url) -> None:
    store, key = open_store(url)
    store.delete(key)


def _sync(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
