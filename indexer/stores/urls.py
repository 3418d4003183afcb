"""Stores through fsspec: for schemes that obstore does not know, and for all if obstore cannot be used."""

from __future__ import annotations

import errno
import os
import shutil
from datetime import datetime
from typing import Any, BinaryIO

from indexer.errors import RemoteError
from indexer.options import near_matches
from indexer.stores.options import StoreOptions
from indexer.stores.ranges import Changed, ObjectInfo, Passing, Store
from indexer.stores.settings import for_fsspec

__all__ = ["FsspecStore"]

_COPY = 8 << 20
_CODES: dict[type[OSError], int] = {
    FileNotFoundError: errno.ENOENT,
    PermissionError: errno.EACCES,
    IsADirectoryError: errno.EISDIR,
}


class FsspecStore(Store):
    """One bucket or host through fsspec, with its own instance: a cached one may be another process's."""

    def __init__(self, root: str, options: StoreOptions, tail: str = "") -> None:
        super().__init__(root, options, tail)
        try:
            from fsspec import available_protocols
            from fsspec.core import url_to_fs
        except ImportError as error:
            text = f"reading {root} needs fsspec: pip install 'tfrecord[remote]'"
            raise ImportError(text, name="fsspec") from error
        try:
            settings = for_fsspec(root, options.settings(), options.request_timeout)
            self._filesystem, self._base = url_to_fs(
                f"{root}/{tail}" if tail else root, skip_instance_cache=True, **settings
            )
        except ValueError as error:
            if "Protocol not known" not in str(error):
                raise
            scheme = root.partition("://")[0]
            hint = near_matches(scheme, available_protocols())
            if scheme.partition("+")[0] == "grpc":
                hint = "; tfrecord.connect and the datasets read from a reader server"
            raise ValueError(f"no installed package reads {scheme}:// URLs{hint}") from None
        if hasattr(self._filesystem, "retries"):
            self._filesystem.retries = 1  # `Store` retries

    def _path(self, key: str) -> str:
        return f"{self._base.rstrip('/')}/{key}" if self._base else key

    def _get(self, key: str, start: int, end: int, etag: str | None) -> Any:
        scheme = self.root.partition("://")[0]
        if scheme in ("http", "https"):
            data = self._call(key, lambda: self._get_by_http(key, start, end, etag))
        elif scheme in ("s3", "s3a"):
            data = self._call(key, lambda: self._get_from_s3(key, start, end, etag))
        else:
            data = self._call(key, lambda: self._filesystem.cat_file(self._path(key), start=start, end=end))
        if len(data) != end - start:
            raise Passing(f"received {len(data)} bytes instead of {end - start}")
        return data

    def _get_by_http(self, key: str, start: int, end: int, etag: str | None) -> bytes:
        from fsspec.asyn import sync

        url = self._path(key)
        headers = {"Range": f"bytes={start}-{end - 1}", "Accept-Encoding": "identity"}
        if etag is not None:
            headers["If-Match"] = etag

        async def get() -> bytes:
            session = await self._filesystem.set_session()
            async with session.get(self._filesystem.encode_url(url), headers=headers) as answer:
                if answer.status == 404:
                    raise FileNotFoundError(url)
                answer.raise_for_status()
                given, coding = (answer.headers.get(f"Content-{name}") for name in ("Range", "Encoding"))
                if not _is_range(given, start, end) or coding not in (None, "identity"):
                    raise Passing(f"received range {given} ({coding}) instead of {start} to {end}")
                data: bytes = await answer.content.readexactly(end - start)
                if await answer.content.read(1):
                    raise Passing(f"received more than {end - start} bytes")
                return data

        data: bytes = sync(self._filesystem.loop, get)
        return data

    def _get_from_s3(self, key: str, start: int, end: int, etag: str | None) -> bytes:
        from fsspec.asyn import sync

        bucket, name, _ = self._filesystem.split_path(self._path(key))
        asked = {"Bucket": bucket, "Key": name, "Range": f"bytes={start}-{end - 1}"}
        if etag is not None:
            asked["IfMatch"] = etag

        async def get() -> bytes:
            answer = await self._filesystem._call_s3("get_object", **asked)
            body, given, size = answer["Body"], answer.get("ContentRange"), answer["ContentLength"]
            try:
                if not _is_range(given, start, end) or size != end - start:
                    raise Passing(f"received {size} bytes, range {given}, instead of {start} to {end}")
                data: bytes = await body.read()
                return data
            finally:
                body.close()

        data: bytes = sync(self._filesystem.loop, get)
        return data

    def _stat(self, key: str) -> ObjectInfo:
        entry = self._call(key, lambda: self._filesystem.info(self._path(key)))
        if entry.get("type") == "directory":
            raise IsADirectoryError(errno.EISDIR, "a folder, not a data file", self.url(key))
        return self._info(entry)

    def _list(self, folder: str) -> list[ObjectInfo]:
        return [self._info(entry) for entry in self._listing(folder) if entry["type"] == "file"]

    def _folders(self, folder: str) -> list[str]:
        found = [entry["name"] for entry in self._listing(folder) if entry["type"] == "directory"]
        return [name.rstrip("/").rpartition("/")[2] for name in found]

    def _listing(self, folder: str) -> list[dict[str, Any]]:
        self._filesystem.invalidate_cache()
        path = self._path(folder).rstrip("/")
        try:
            found: list[dict[str, Any]] = self._call(folder, lambda: self._filesystem.ls(path, detail=True))
        except FileNotFoundError:
            return []
        return found

    def _put(self, key: str, data: Any, if_match: str | None, if_absent: bool) -> str | None:
        if if_absent and self._call(key, lambda: self._filesystem.exists(self._path(key))):
            raise FileExistsError(errno.EEXIST, "the object already exists", self.url(key))
        if if_match is not None and self._stat(key).etag != if_match:
            raise Changed
        self._call(key, lambda: self._filesystem.pipe_file(self._path(key), bytes(data)))
        return self._stat(key).etag

    def delete(self, key: str) -> None:
        try:
            self._call(key, lambda: self._filesystem.rm_file(self._path(key)))
        except FileNotFoundError:
            pass

    def _upload(self, key: str, file: BinaryIO) -> None:
        file.seek(0)
        with self._call(key, lambda: self._filesystem.open(self._path(key), "wb")) as target:
            self._call(key, lambda: shutil.copyfileobj(file, target, _COPY))

    def _call(self, key: str, call: Any) -> Any:
        """``call()``, with its errors translated to ours. Libraries differ in what they raise for lost
        connections."""
        try:
            return call()
        except (FileNotFoundError, PermissionError, IsADirectoryError) as error:
            code = _CODES[type(error)]
            raise type(error)(code, os.strerror(code), self.url(key)) from None
        except (ImportError, Passing):
            raise
        except Exception as error:
            text = self.options.redact(f"{type(error).__name__}: {error}")
            if isinstance(error, RuntimeError) and "fork" in str(error):
                raise RemoteError(self.url(key), f"{text}. {FORK_HINT}") from None
            status = _status(error)
            if status == 412:
                raise Changed(text) from None
            if 400 <= status < 500 and status not in (408, 429):
                raise RemoteError(self.url(key), text) from None
            raise Passing(text) from None

    def _info(self, entry: dict[str, Any]) -> ObjectInfo:
        size = entry.get("size")
        path = str(entry["name"])
        key = path[len(self._base.rstrip("/")) + 1 :] if self._base else path
        if size is None:
            raise RemoteError(
                self.url(key), "the store does not report its size, so it cannot be read by ranges"
            )
        changed = entry.get("LastModified") or entry.get("mtime") or entry.get("last_modified")
        mtime_ns = int(changed.timestamp() * 10**9) if isinstance(changed, datetime) else None
        return ObjectInfo(key, int(size), entry.get("ETag") or entry.get("etag"), mtime_ns)


FORK_HINT = (
    "This process was forked after its parent had read URLs. Start workers with "
    'multiprocessing_context="forkserver", or install the fsspec package of this scheme'
)


def _is_range(given: str | None, start: int, end: int) -> bool:
    """Whether an answer's Content-Range is of the bytes that were asked for."""
    return given is not None and given.startswith(f"bytes {start}-{end - 1}/")


def _status(error: Exception) -> int:
    """The HTTP status behind an error of aiohttp, or of botocore (which s3fs raises as an OSError's cause);
    0 if there is none."""
    status = getattr(error, "status", None)
    answer = getattr(error.__cause__ or error, "response", None)
    if status is None and isinstance(answer, dict):
        status = answer.get("ResponseMetadata", {}).get("HTTPStatusCode")
    return status if isinstance(status, int) else 0
