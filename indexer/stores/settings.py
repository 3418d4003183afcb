"""The settings of object_store under the names that fsspec's packages have for them."""

from __future__ import annotations

import inspect
from typing import Any

__all__ = ["for_fsspec", "web_headers"]

_S3 = {
    "access_key_id": "key",
    "secret_access_key": "secret",
    "session_token": "token",
    "endpoint_url": "endpoint_url",
    "endpoint": "endpoint_url",
    "skip_signature": "anon",
    "request_payer": "requester_pays",
    "region": "region",
    "default_region": "region",
}
_GOOGLE = {
    "service_account": "token",
    "service_account_path": "token",
    "application_credentials": "token",
    "base_url": "endpoint_url",
    "skip_signature": "anon",
}
_AZURE = {
    "access_key": "account_key",
    "sas_key": "sas_token",
    "authority_id": "tenant_id",
    "skip_signature": "anon",
}
# By scheme: the names, and the prefixes that object_store allows before them.
_NAMES: dict[str, tuple[dict[str, str], tuple[str, ...]]] = {
    scheme: (_S3, ("aws_",)) for scheme in ("s3", "s3a")
}
_NAMES["gs"] = _GOOGLE, ("google_",)
_NAMES |= {
    scheme: (_AZURE, ("azure_storage_", "azure_")) for scheme in ("az", "azure", "abfs", "abfss", "adl")
}
# fsspec's packages do these by themselves, or need them only to write.
_NOT_NEEDED = {
    "allow_http",
    "bucket",
    "checksum_algorithm",
    "conditional_put",
    "copy_if_not_exists",
    "disable_bulk_delete",
    "disable_tagging",
    "unsigned_payload",
    "virtual_hosted_style_request",
}
_FLAGS = ("anon", "requester_pays")


def web_headers(scheme: str, settings: dict[str, Any]) -> dict[str, str]:
    """The headers among the settings of an http store; TypeError for any other setting."""
    for name in settings:
        if name != "headers":
            raise TypeError(f"storage_options: {name!r} is not an option of {scheme} URLs; 'headers' is")
    return dict(settings.get("headers") or {})


def for_fsspec(root: str, settings: dict[str, Any], timeout: float) -> dict[str, Any]:
    """object_store settings under their names in the scheme's fsspec package, with the timeout in seconds.

    The package's own names are kept. TypeError for names that neither knows; schemes that object_store does
    not know take any.
    """
    scheme = root.partition("://")[0]
    if scheme in ("http", "https"):
        from aiohttp import ClientTimeout

        client = {"headers": web_headers(scheme, settings), "timeout": ClientTimeout(total=timeout)}
        return {"client_kwargs": client}
    if scheme not in _NAMES:
        return settings
    found = _renamed(scheme, settings)
    if scheme in ("s3", "s3a"):
        region = found.pop("region", None)
        if region:
            found["client_kwargs"] = {**found.get("client_kwargs", {}), "region_name": region}
        waits = {"connect_timeout": timeout, "read_timeout": timeout, "retries": {"max_attempts": 0}}
        found["config_kwargs"] = {**waits, **found.get("config_kwargs", {})}
    elif scheme == "gs" and found.pop("anon", False):
        found["token"] = "anon"
    return found


def _renamed(scheme: str, settings: dict[str, Any]) -> dict[str, Any]:
    from fsspec import get_filesystem_class

    names, prefixes = _NAMES[scheme]
    own = inspect.signature(get_filesystem_class(scheme).__init__).parameters
    found = {}
    for name, value in settings.items():
        short = name.lower()
        for prefix in prefixes:
            short = short.removeprefix(prefix)
        target = names.get(short, short)
        if name in own:
            target = name
        elif short in _NOT_NEEDED:
            continue
        elif target not in own and target not in names.values():
            raise TypeError(
                f"storage_options: fsspec, which serves {scheme} URLs here, does not know {name!r}"
            )
        found[target] = _as_bool(value) if target in _FLAGS else value
    return found


def _as_bool(value: Any) -> bool:
    """A flag that may be text, as from the command line."""
    return value.lower() in ("true", "1", "yes", "on", "requester") if isinstance(value, str) else bool(value)
