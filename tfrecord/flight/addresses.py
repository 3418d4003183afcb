"""Addresses of servers, and the files through which a server and its user's clients share a token."""

from __future__ import annotations

import hashlib
import ipaddress
import os
import re
import secrets
import stat
import tempfile
from contextlib import suppress
from typing import NamedTuple
from urllib.parse import parse_qsl, unquote

from indexer.stores import clean_url

__all__ = [
    "SCHEMES",
    "Address",
    "is_loopback",
    "is_service_url",
    "new_token_file",
    "own_token_path",
    "read_token",
    "remove_own_token",
]

SCHEMES = ("grpc", "grpc+tcp", "grpc+tls", "grpc+unix")


def is_service_url(path: object) -> bool:
    """Whether a path names a data set of a server."""
    return isinstance(path, str) and path.partition("://")[0] in SCHEMES and "://" in path


class Address(NamedTuple):
    """Where a data set is served. ``host`` and ``port`` are empty and 0 for a socket in the file system,
    whose path is ``socket``."""

    scheme: str
    host: str
    port: int
    socket: str
    name: str

    @classmethod
    def of(cls, url: str) -> Address:
        """Raises ValueError for a URL of another form."""
        shown = clean_url(url)
        scheme, _, rest = url.partition("://")
        rest, _, query = rest.partition("?")
        if scheme not in SCHEMES:
            raise ValueError(f"{shown!r} is not a URL of a server: it begins with {', '.join(SCHEMES)}")
        if scheme == "grpc+unix":
            options = dict(parse_qsl(query, keep_blank_values=True))
            if set(options) != {"name"} or not rest.startswith("/"):
                raise ValueError(f"{shown!r}: write grpc+unix:///path/of/the.socket?name=NAME")
            return cls(scheme, "", 0, unquote(rest), options["name"])
        match = re.fullmatch(r"(\[[0-9a-fA-F:.%]+\]|[^/:@\s]+):(\d{1,5})/([^/\s]+)/?", rest)
        if match is None or query or not 0 < int(match[2]) < 65536:
            raise ValueError(f"{shown!r}: write {scheme}://HOST:PORT/NAME")
        return cls(scheme, match[1], int(match[2]), "", unquote(match[3]))

    @property
    def location(self) -> str:
        """What pyarrow connects to."""
        return f"grpc+unix://{self.socket}" if self.socket else f"{self.scheme}://{self.host}:{self.port}"

    @property
    def is_local(self) -> bool:
        """Whether the server is surely on this host."""
        return bool(self.socket) or is_loopback(self.host)

    @property
    def url(self) -> str:
        """The URL again."""
        return f"{self.location}?name={self.name}" if self.socket else f"{self.location}/{self.name}"


def is_loopback(host: str) -> bool:
    """Whether nothing but this host is reached by that name."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def own_token_path(port: int, socket: str) -> str:
    """The file in which a server of this user keeps the token that it made."""
    place = hashlib.sha256(os.path.abspath(socket).encode()).hexdigest()[:16] if socket else str(port)
    base = os.environ.get("XDG_RUNTIME_DIR")
    if base and os.path.isdir(base):
        folder = os.path.join(base, "tfrecord")
    else:
        user = os.getuid() if hasattr(os, "getuid") else "user"
        folder = os.path.join(tempfile.gettempdir(), f"tfrecord-{user}")
    return os.path.join(folder, f"{place}.token")


def new_token_file(path: str, *, own: bool) -> str:
    """Make a token and keep it in a new file that nobody else can read.

    ``own``: the file belongs to this server alone, so one that is there already is replaced, and its folder
    is made. Raises PermissionError for a folder that is not this user's alone, FileExistsError.
    """
    token = secrets.token_urlsafe(32)
    if own:
        folder = os.path.dirname(path)
        os.makedirs(folder, mode=0o700, exist_ok=True)
        _check_folder(folder)
        with suppress(FileNotFoundError):
            os.unlink(path)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(token + "\n")
    return token


def _check_folder(folder: str) -> None:
    """Another user must not choose what this user takes for a token."""
    found = os.lstat(folder)
    if not stat.S_ISDIR(found.st_mode) or _is_foreign(found) or found.st_mode & 0o077:
        raise PermissionError(f"{folder}: this folder for tokens must belong to this user alone (mode 0700)")


def read_token(path: str, *, own: bool = False) -> str:
    """The token in a file; ``own``: in one that a server made for the clients of its user.

    Raises:
        FileNotFoundError: there is no such file.
        PermissionError: others can read the file, or it belongs to another user.
        ValueError: it holds no token.
    """
    if own:
        _check_folder(os.path.dirname(path))
    flags = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | (getattr(os, "O_NOFOLLOW", 0) if own else 0)
    descriptor = os.open(path, flags)
    with os.fdopen(descriptor, encoding="ascii", errors="replace") as file:
        found = os.fstat(file.fileno())
        if found.st_mode & 0o077 or (_is_foreign(found) and found.st_uid != 0):
            raise PermissionError(
                f"{path}: a token's file must be readable by its user alone: chmod 600 {path}"
            )
        token = file.read(4096).strip()
    if not re.fullmatch(r"[\x21-\x7e]{16,512}", token):
        raise ValueError(f"{path}: a token is one line of 16 to 512 printable characters")
    return token


def remove_own_token(path: str, token: str) -> None:
    """Remove the file of a server's own token, unless another server has replaced it."""
    try:
        if read_token(path, own=True) == token:
            os.unlink(path)
    except (OSError, ValueError):
        pass


def _is_foreign(found: os.stat_result) -> bool:
    return hasattr(os, "getuid") and found.st_uid != os.getuid()
