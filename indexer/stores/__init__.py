"""Bytes that are not local files: object stores and web servers, and a cache of what was read."""

from __future__ import annotations

import os
from collections import deque
from urllib.parse import unquote

from indexer.stores import objects, urls
from indexer.stores.options import StoreOptions, Url, as_bytes, clean_url
from indexer.stores.pieces import PendingRanges
from indexer.stores.ranges import ObjectInfo, Store

__all__ = [
    "ObjectInfo",
    "PendingRanges",
    "Store",
    "StoreOptions",
    "Url",
    "as_bytes",
    "clean_url",
    "open_store",
    "split_url",
]

# The most recently used stores, each with its process and root; they keep connections open.
_stores: deque[tuple[tuple[int, str], Store]] = deque(maxlen=16)


def split_url(url: str) -> tuple[str, str, str]:
    """The root of a URL's store, the key in it, and what follows the key.

    ``s3://bucket/a/b`` -> ``("s3://bucket", "a/b", "")``. Chains of fsspec keep their other links in the root
    (``simplecache::s3://bucket/a``), or behind the key (``zip://a::s3://bucket/b.zip``). The key of an http
    URL is unquoted: the store quotes it again.
    """
    first, mark, rest = url.partition("::")
    if mark and "://" in first:
        scheme, _, key = first.partition("://")
        return f"{scheme}:/", key, mark + rest
    head, mark, last = url.rpartition("::")
    scheme, _, rest = last.partition("://")
    host, _, key = rest.partition("/")
    if scheme in ("http", "https"):
        path, query, values = key.partition("?")
        key = unquote(path) + query + values
    return f"{head}{mark}{scheme}://{host}", key, ""


def open_store(url: str) -> tuple[Store, str]:
    """The store of a URL, and the key of what the URL names in it.

    One store per root and options serves the whole process; a forked child opens its own. obstore serves the
    schemes that it knows, fsspec the others. fsspec serves all of them if obstore cannot be used: because it
    is not installed, or in a process that was forked after its parent had used it.

    Raises:
        ImportError: the package that the scheme needs is missing; it names the pip command.
        TypeError: the store does not have one of the options.
    """
    known = url if isinstance(url, Url) else Url(url)
    root, key, tail = split_url(known.full)
    scheme = root.partition("://")[0]
    signed = scheme in ("http", "https") and "?" in key
    place = (os.getpid(), root + tail + "?" * signed)
    for found, store in list(_stores):
        if found == place and store.options == known.options:
            return store, key
    if scheme in objects.SCHEMES and not signed and objects.usable():
        store = objects.ObstoreStore(root, known.options)
    else:
        store = urls.FsspecStore(root, known.options, tail)
    _stores.append((place, store))
    return store, key
