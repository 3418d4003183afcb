"""Stores through obstore: s3, gs, az, http and https."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, BinaryIO
from urllib.parse import urlsplit

from indexer.errors import RemoteError
from indexer.options import near_matches
from indexer.stores.options import StoreOptions
from indexer.stores.ranges import Changed, ObjectInfo, Passing, Store
from indexer.stores.settings import web_headers

__all__ = ["SCHEMES", "ObstoreStore", "usable"]

SCHEMES = ("s3", "s3a", "gs", "az", "azure", "abfs", "abfss", "adl", "http", "https")
# Status codes for which a retry would not help; object_store gives them only as text.
_FINAL = re.compile(r"status code: (4(?!08|29)\d\d|501)")
# Where object_store looks for credentials last, on cloud machines.
_CREDENTIALS_FROM = ("169.254.169.254", "metadata.google.internal")
# What errors suggest; obstore knows more.
_USUAL_OPTIONS = {
    "s3": ("endpoint", "region", "access_key_id", "secret_access_key", "skip_signature"),
    "gs": ("service_account_path", "service_account_key", "skip_signature"),
    "az": ("account_name", "account_key", "sas_key", "skip_signature"),
}
_first_used_by: list[int] = []


def _names_of(scheme: str, settings: Mapping[str, Any]) -> str:
    """The end of a message about an option that the store does not have."""
    known = _USUAL_OPTIONS.get(scheme, ())
    near = {hint for name in settings if name not in known and (hint := near_matches(name, known))}
    return "".join(sorted(near)) + (f" (obstore's names: {', '.join(known)}, ...)" if known else "")


def usable() -> bool:
    """Whether obstore works in this process: it is installed, and no fork has lost its threads."""
    try:
        import obstore  # noqa: F401
    except ImportError:
        return False
    return not _first_used_by or _first_used_by[0] == os.getpid()


class ObstoreStore(Store):
    """One bucket, container or host, through object_store. Its own retries are off: `Store` retries."""

    def __init__(self, root: str, options: StoreOptions) -> None:
        super().__init__(root, options)
        from obstore.exceptions import BaseError
        from obstore.store import from_url

        _first_used_by[:] = _first_used_by or [os.getpid()]
        settings = options.settings()
        timeout = options.request_timeout
        client: Any = {
            "timeout": timedelta(seconds=timeout),
            "pool_idle_timeout": timedelta(seconds=20),
            "connect_timeout": timedelta(seconds=min(timeout, 10)),
        }
        scheme = urlsplit(root).scheme
        if scheme == "http" or _has_http_endpoint(settings):
            client["allow_http"] = True
        if scheme in ("http", "https"):
            settings = {"headers": web_headers(scheme, settings)}
        if headers := settings.pop("headers", None):
            client["default_headers"] = dict(headers)
        try:
            self._store: Any = from_url(
                root, client_options=client, retry_config={"max_retries": 0}, **settings
            )
        except (BaseError, TypeError, ValueError) as error:
            text = options.redact(str(error).partition("\n")[0])
            raise TypeError(
                f"storage_options do not fit {scheme} URLs: {text}{_names_of(scheme, settings)}"
            ) from None

    def _get(self, key: str, start: int, end: int, etag: str | None) -> Any:
        import obstore

        wanted: Any = {"range": (start, end)}
        if etag is not None:
            wanted["if_match"] = etag
        size, parts = 0, []
        with _Translated(self, key):
            # One part, unless the body is longer than it should be: then it is not read to its end.
            for part in obstore.get(self._store, key, options=wanted).stream(min_chunk_size=end - start):
                size += len(part)
                parts.append(part)
                if size > end - start:
                    break
        if size != end - start:
            raise Passing(f"received {size} bytes instead of {end - start}")
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _stat(self, key: str) -> ObjectInfo:
        import obstore

        with _Translated(self, key):
            return _info(obstore.head(self._store, key))

    def _list(self, folder: str) -> list[ObjectInfo]:
        return [_info(meta) for meta in self._listing(folder)["objects"]]

    def _folders(self, folder: str) -> list[str]:
        return [prefix.rstrip("/").rpartition("/")[2] for prefix in self._listing(folder)["common_prefixes"]]

    def _listing(self, folder: str) -> Any:
        import obstore

        with _Translated(self, folder):
            return obstore.list_with_delimiter(self._store, folder.rstrip("/") or None)

    def _put(self, key: str, data: Any, if_match: str | None, if_absent: bool) -> str | None:
        import obstore

        mode: Any = {"e_tag": if_match} if if_match is not None else "create" if if_absent else "overwrite"
        with _Translated(self, key):
            return obstore.put(self._store, key, data, mode=mode, use_multipart=False)["e_tag"]

    def delete(self, key: str) -> None:
        import obstore

        with _Translated(self, key):
            try:
                obstore.delete(self._store, key)
            except FileNotFoundError:
                pass

    def _upload(self, key: str, file: BinaryIO) -> None:
        import obstore

        file.seek(0)
        with _Translated(self, key):
            obstore.put(self._store, key, file, chunk_size=8 << 20, max_concurrency=4)


def _has_http_endpoint(settings: Mapping[str, Any]) -> bool:
    """Whether the settings or the environment name a server of plain HTTP."""
    named = {
        name: value for name, value in os.environ.items() if name.startswith(("AWS_", "AZURE_", "GOOGLE_"))
    }
    return any(
        "endpoint" in name.lower() and str(value).startswith("http://")
        for name, value in {**named, **settings}.items()
    )


class _Translated:
    """Translate the errors of obstore to ours."""

    def __init__(self, store: Store, key: str) -> None:
        self._store, self._key = store, key

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        from obstore import exceptions

        url = self._store.url(self._key)
        if isinstance(error, FileNotFoundError):
            raise FileNotFoundError(errno.ENOENT, "no such object", url) from None
        if isinstance(error, NotImplementedError):
            raise RemoteError(url, "this kind of store cannot be written to with conditions") from None
        if not isinstance(error, exceptions.BaseError):
            return
        text = self._store.options.redact(str(error).partition("\n")[0])
        if isinstance(error, exceptions.NotSupportedError) and "Range request" in text:
            text = "the server does not answer range requests (Python's own http.server does not)"
        if any(place in text for place in _CREDENTIALS_FROM):
            text = (
                "no credentials were found: set those of the store in the environment (such as "
                "AWS_ACCESS_KEY_ID) or give storage_options; for public data skip_signature=true"
            )
        if isinstance(error, exceptions.PreconditionError):
            raise Changed(text) from None
        if isinstance(error, exceptions.AlreadyExistsError):
            raise FileExistsError(errno.EEXIST, "the object already exists", url) from None
        if isinstance(error, (exceptions.PermissionDeniedError, exceptions.UnauthenticatedError)):
            raise PermissionError(errno.EACCES, f"the store refuses access: {text}", url) from None
        final = _FINAL.search(str(error))
        if final is not None and final[1] == "404":  # of a list
            raise FileNotFoundError(errno.ENOENT, "there is no such bucket", url) from None
        if isinstance(error, exceptions.InvalidPathError) or final is not None:
            raise RemoteError(url, text) from None
        raise Passing(text) from None


def _info(meta: Any) -> ObjectInfo:
    changed: datetime = meta["last_modified"]
    return ObjectInfo(meta["path"], meta["size"], meta["e_tag"], int(changed.timestamp() * 10**9))
