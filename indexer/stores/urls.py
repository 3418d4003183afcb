"""Stores through fsspec: for schemes that obstore does not know, and for all if obstore cannot be used."""

from __future__ import annotations

import errno
import os
import shutil
from datetime import datetime
from typing import Any, BinaryIO

from indexer.errors import RemoteError
from indexer.stores.options import StoreOptions
from indexer.stores.ranges import Changed, ObjectInfo, Passing, Store

__all__ = ["FsspecStore"]

_COPY = 8 << 20
_CODES: dict[type[OSError], int] = {
    FileNotFoundError: errno.ENOENT,
    PermissionError: errno.EACCES,
    IsADirectoryError: errno.EISDIR,
}
# The settings of object_store by name, and their names in s3fs, gcsfs and adlfs.
_S3 = {
    "access_key_id": "key",
    "aws_access_key_id": "key",
    "secret_access_key": "secret",
    "aws_secret_access_key": "secret",
    "session_token": "token",
    "aws_session_token": "token",
    "endpoint": "endpoint_url",
    "aws_endpoint": "endpoint_url",
    "skip_signature": "anon",
    "aws_skip_signature": "anon",
}
_AZURE = {"account_name": "account_name", "account_key": "account_key", "sas_token": "sas_token"}


class FsspecStore(Store):
    """One bucket or host through fsspec. It has its own instance: a cached one may be of another process."""

    def __init__(self, root: str, options: StoreOptions, tail: str = "") -> None:
        super().__init__(root, options, tail)
        try:
            from fsspec.core import url_to_fs
        except ImportError as error:
            text = f"reading {root} needs fsspec: pip install 'tfrecord[remote]'"
            raise ImportError(text, name="fsspec") from error
        settings = _translated(root, options.settings(), options.request_timeout)
        self._filesystem, self._base = url_to_fs(
            f"{root}/{tail}" if tail else root, skip_instance_cache=True, **settings
        )

    def _path(self, key: str) -> str:
        return f"{self._base.rstrip('/')}/{key}" if self._base else key

    def _get(self, key: str, start: int, end: int, etag: str | None) -> Any:
        more: dict[str, Any] = {"start": start, "end": end}
        if etag is not None and self.root.startswith("http"):
            more["headers"] = {"If-Match": etag}
        data = self._call(key, lambda: self._filesystem.cat_file(self._path(key), **more))
        if len(data) != end - start:
            raise Passing(f"received {len(data)} bytes instead of {end - start}")
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
        except ImportError:
            raise
        except (OSError, TimeoutError) as error:
            raise Passing(self.options.redact(f"{type(error).__name__}: {error}")) from None
        except Exception as error:
            text = self.options.redact(f"{type(error).__name__}: {error}")
            if "fork" in str(error):
                raise RemoteError(self.url(key), f"{text}. {FORK_HINT}") from None
            status = getattr(error, "status", 0)
            if status == 412:
                raise Changed(text) from None
            if status and 400 <= status < 500 and status not in (408, 429):
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


def _translated(root: str, settings: dict[str, Any], timeout: float) -> dict[str, Any]:
    """object_store settings under their names in the scheme's fsspec package; other names are kept."""
    scheme = root.partition("://")[0]
    if scheme in ("s3", "s3a"):
        found = {_S3.get(name.lower(), name): value for name, value in settings.items()}
        region = found.pop("region", found.pop("aws_region", None))
        for name in ("allow_http", "virtual_hosted_style_request"):
            found.pop(name, None)
        if region:
            found["client_kwargs"] = {**found.get("client_kwargs", {}), "region_name": region}
        waits = {"connect_timeout": timeout, "read_timeout": timeout, "retries": {"max_attempts": 0}}
        found["config_kwargs"] = {**waits, **found.get("config_kwargs", {})}
        return found
    if scheme in ("az", "azure", "abfs", "abfss", "adl"):
        return {_AZURE.get(name.lower(), name): value for name, value in settings.items()}
    if scheme in ("http", "https"):
        from aiohttp import ClientTimeout

        client = {"headers": dict(settings.get("headers", {})), "timeout": ClientTimeout(total=timeout)}
        return {"client_kwargs": client}
    return settings
