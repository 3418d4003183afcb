"""The `tf.train.Example` message classes, without TensorFlow and without generated code.

The classes are made from a description below, in a descriptor pool of their own and under the package name
`tfrecord`, so nothing here meets what TensorFlow registers, in either import order. The bytes are the same:
exchange messages with `SerializeToString()` and `FromString()`. Field numbers and kinds are those of
TensorFlow's `example.proto` and `feature.proto`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

__all__ = [
    "BytesList",
    "Example",
    "Feature",
    "FeatureList",
    "FeatureLists",
    "Features",
    "FloatList",
    "Int64List",
    "SequenceExample",
]

_PACKAGE = "tfrecord"
_Field = descriptor_pb2.FieldDescriptorProto

# Message -> fields in order of their numbers, which count from 1.
_LISTS = {"BytesList": _Field.TYPE_BYTES, "FloatList": _Field.TYPE_FLOAT, "Int64List": _Field.TYPE_INT64}
_ONEOF = {"bytes_list": "BytesList", "float_list": "FloatList", "int64_list": "Int64List"}
_MAPS = {"Features": ("feature", "Feature"), "FeatureLists": ("feature_list", "FeatureList")}
_MESSAGES = {
    "Example": {"features": "Features"},
    "SequenceExample": {"context": "Features", "feature_lists": "FeatureLists"},
}


def _file() -> descriptor_pb2.FileDescriptorProto:
    file = descriptor_pb2.FileDescriptorProto(
        name="tfrecord/example.proto", package=_PACKAGE, syntax="proto3"
    )
    for name, kind in _LISTS.items():
        file.message_type.add(name=name).field.add(
            name="value", number=1, label=_Field.LABEL_REPEATED, type=kind
        )
    feature = file.message_type.add(name="Feature")
    feature.oneof_decl.add(name="kind")
    for number, (name, target) in enumerate(_ONEOF.items(), 1):
        _message_field(feature, name, number, target).oneof_index = 0
    for name, (field_name, target) in _MAPS.items():
        _map_message(file.message_type.add(name=name), field_name, target)
    _message_field(file.message_type.add(name="FeatureList"), "feature", 1, "Feature", _Field.LABEL_REPEATED)
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for number, (field_name, target) in enumerate(fields.items(), 1):
            _message_field(message, field_name, number, target)
    return file


def _message_field(
    message: Any, name: str, number: int, target: str, label: Any = _Field.LABEL_OPTIONAL
) -> Any:
    return message.field.add(
        name=name, number=number, label=label, type=_Field.TYPE_MESSAGE, type_name=f".{_PACKAGE}.{target}"
    )


def _map_message(message: Any, name: str, target: str) -> None:
    """A map field is a repeated message of key and value, marked as a map's entry."""
    entry_name = "".join(part.capitalize() for part in name.split("_")) + "Entry"
    entry = message.nested_type.add(name=entry_name)
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, label=_Field.LABEL_OPTIONAL, type=_Field.TYPE_STRING)
    _message_field(entry, "value", 2, target)
    _message_field(message, name, 1, f"{message.name}.{entry_name}", _Field.LABEL_REPEATED)


def _message_classes(file: descriptor_pb2.FileDescriptorProto, names: Iterable[str]) -> dict[str, Any]:
    """The classes of some messages of a file, in a descriptor pool of their own."""
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    found: dict[str, Any] = {}
    for name in names:
        descriptor = pool.FindMessageTypeByName(f"{file.package}.{name}")
        if hasattr(message_factory, "GetMessageClass"):
            found[name] = message_factory.GetMessageClass(descriptor)
        else:  # protobuf before 4.22
            factory: Any = message_factory.MessageFactory(pool)
            found[name] = factory.GetPrototype(descriptor)
    return found


_made = _message_classes(_file(), __all__)
for _name, _class in _made.items():
    # Pickle finds a class by these two names.
    _class.__module__ = __name__
    _class.__qualname__ = _name
BytesList = _made["BytesList"]
FloatList = _made["FloatList"]
Int64List = _made["Int64List"]
Feature = _made["Feature"]
Features = _made["Features"]
FeatureList = _made["FeatureList"]
FeatureLists = _made["FeatureLists"]
Example = _made["Example"]
SequenceExample = _made["SequenceExample"]
DESCRIPTOR = Example.DESCRIPTOR.file
