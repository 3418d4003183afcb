"""Parsed messages to Python values: `process_feature` and `extract_feature_dict` of tfrecord 1.x.

Readers do not use these functions (they decode wire bytes). They are for messages that are already parsed, by
the classes of this library or of TensorFlow.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from indexer.errors import DecodeError, FeatureKindError, MissingFeatureError
from indexer.options import suggests_options
from tfrecord._dtypes import check_cast, resolve_dtype

__all__ = ["extract_feature_dict", "process_feature"]

_DTYPES: dict[str, npt.DTypeLike] = {"float_list": np.float32, "int64_list": np.int64, "bytes_list": object}


@suggests_options
def process_feature(
    feature: Any,
    typename: str | None = None,
    typename_mapping: Mapping[str, str] | None = None,
    key: str = "",
) -> Any:
    """The values of one `Feature` message.

    One byte string is `bytes`; several (or none) are an object array of exact bytes; numbers are int64 or
    float32 arrays (n,). A feature without a type gives an empty array of the declared type, or None if none
    is declared. `typename` is a name in `typename_mapping` (name to `"bytes_list"`, `"float_list"` or
    `"int64_list"`) or one that `features.resolve_dtype` knows; surrounding blanks are ignored.

    Raises:
        ValueError: the type name is unknown. The message names `key`, as do the others.
        FeatureKindError: the feature has another type (a TypeError).
        DecodeError: a number does not fit the declared dtype (a ValueError).
    """
    wanted, dtype = (None, None) if typename is None else _wanted(typename, typename_mapping or {}, key)
    stored = feature.WhichOneof("kind")
    if stored is None:
        return None if wanted is None else np.empty(0, dtype or _DTYPES[wanted])
    if wanted is not None and stored != wanted:
        raise FeatureKindError(f"holds a {stored}, not the {wanted} of type {typename!r}", key=key)
    values = getattr(feature, stored).value
    if stored == "bytes_list":
        if len(values) == 1:
            return values[0]
        array = np.empty(len(values), object)
        array[:] = values
        return array
    array = np.array(values, np.dtype(_DTYPES[stored]))
    if dtype is None:
        return array
    cast, bad = check_cast(array, dtype)
    if bad >= 0:
        raise DecodeError(f"the value {array[bad]} does not fit {dtype}", key=key)
    return cast


def _wanted(typename: str, mapping: Mapping[str, str], key: str) -> tuple[str, str | None]:
    """The name of the list and the dtype (None: as stored) that a type name stands for."""
    name = typename.strip() if isinstance(typename, str) else typename
    if name in mapping:
        return mapping[name], None
    try:
        kind, dtype = resolve_dtype(name)
    except ValueError as error:
        raise ValueError(f"feature {key!r}: {error}") from None
    return f"{kind}_list", dtype


@suggests_options
def extract_feature_dict(
    features: Any,
    description: Mapping[str, str | None] | Iterable[str] | None = None,
    typename_mapping: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """The values of a `Features` message, or of a `FeatureLists` message (a list, one value per step).

    `description` names the keys: a list or tuple, or a mapping from key to type name or None; None or an
    empty one means all.

    Raises:
        MissingFeatureError: a key is absent (a KeyError).
        TypeError: `features` is neither kind of message.

    Other errors are those of `process_feature`.
    """
    name = getattr(getattr(features, "DESCRIPTOR", None), "name", None)
    if name == "FeatureLists":
        found = features.feature_list
    elif name == "Features":
        found = features.feature
    else:
        raise TypeError(f"features must be a Features or FeatureLists message, not {type(features).__name__}")
    if isinstance(description, str):
        raise TypeError("description must be a list of names or a mapping from name to type, not a str")
    wanted = dict(description) if isinstance(description, Mapping) else dict.fromkeys(description or ())
    result: dict[str, Any] = {}
    for key, typename in (wanted or dict.fromkeys(found)).items():
        if key not in found:
            raise MissingFeatureError(f"is missing; the record has {sorted(found)}", key=key)
        if name == "Features":
            result[key] = process_feature(found[key], typename, typename_mapping, key)
            continue
        steps = found[key].feature
        result[key] = [process_feature(step, typename, typename_mapping, key) for step in steps]
    return result
