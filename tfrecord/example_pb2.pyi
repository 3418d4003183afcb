from collections.abc import Iterable
from typing import Any, Literal

from google.protobuf.descriptor import FileDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.internal.containers import (
    MessageMap,
    RepeatedCompositeFieldContainer,
    RepeatedScalarFieldContainer,
)
from google.protobuf.message import Message

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

DESCRIPTOR: FileDescriptor

class BytesList(Message):
    value: RepeatedScalarFieldContainer[bytes]
    def __init__(self, *, value: Iterable[bytes] = ...) -> None: ...

class FloatList(Message):
    value: RepeatedScalarFieldContainer[float]
    def __init__(self, *, value: Iterable[float] = ...) -> None: ...

class Int64List(Message):
    value: RepeatedScalarFieldContainer[int]
    def __init__(self, *, value: Iterable[int] = ...) -> None: ...

class Feature(Message):
    @property
    def bytes_list(self) -> BytesList: ...
    @property
    def float_list(self) -> FloatList: ...
    @property
    def int64_list(self) -> Int64List: ...
    def __init__(
        self,
        *,
        bytes_list: BytesList | None = ...,
        float_list: FloatList | None = ...,
        int64_list: Int64List | None = ...,
    ) -> None: ...
    def WhichOneof(
        self, oneof_group: Literal["kind", b"kind"]
    ) -> Literal["bytes_list", "float_list", "int64_list"] | None: ...

class Features(Message):
    @property
    def feature(self) -> MessageMap[str, Feature]: ...
    def __init__(self, *, feature: dict[str, Feature] = ...) -> None: ...

class FeatureList(Message):
    @property
    def feature(self) -> RepeatedCompositeFieldContainer[Feature]: ...
    def __init__(self, *, feature: Iterable[Feature] = ...) -> None: ...

class FeatureLists(Message):
    @property
    def feature_list(self) -> MessageMap[str, FeatureList]: ...
    def __init__(self, *, feature_list: dict[str, FeatureList] = ...) -> None: ...

class Example(Message):
    @property
    def features(self) -> Features: ...
    def __init__(self, *, features: Features | None = ...) -> None: ...

class SequenceExample(Message):
    @property
    def context(self) -> Features: ...
    @property
    def feature_lists(self) -> FeatureLists: ...
    def __init__(
        self, *, context: Features | None = ..., feature_lists: FeatureLists | None = ...
    ) -> None: ...

def _message_classes(file: FileDescriptorProto, names: Iterable[str]) -> dict[str, Any]: ...
