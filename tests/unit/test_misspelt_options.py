"""Every public function, constructor and method with options answers a misspelt one with a suggestion."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Iterator
from typing import Any

import pytest

MODULES = [
    *("tfrecord", "tfrecord.columns", "tfrecord.features", "tfrecord.writer", "tfrecord.tools"),
    *("tfrecord.flight", "tfrecord.ray", "tfrecord.tfds", "tfrecord.torch"),
]
# Results and plans, which users do not make; `where` takes names of columns; `write` is called per record.
LEFT_OUT = {
    *("BytesColumn", "Column", "ColumnBatch", "RecordIndex", "RecordIndex.replace", "Schema", "SplitInfo"),
    *("SubSplit", "TensorRagged.to", "compile_features", "one_of", "Ragged.mask", "TensorRagged.mask"),
    *("TFRecordReader.where", "RemoteReader.where", "StepsReader.where", "TFDSReader.where"),
    *("TFRecordWriter.write", "ShardedTFRecordWriter.write"),
}
_INSIDE = ("decode", "num_units", "order", "payloads", "plan", "produce", "repeat")
LEFT_OUT |= {f"{kind}.{name}" for kind in ("TFRecordDataset", "MultiTFRecordDataset") for name in _INSIDE}


def public(module: Any) -> Iterator[tuple[str, Callable[..., Any]]]:
    for name in module.__all__:
        found = getattr(module, name)
        if inspect.isfunction(found):
            yield name, found
        elif inspect.isclass(found) and not issubclass(found, BaseException):
            if inspect.isfunction(found.__init__):
                yield name, found
            for method in sorted(dir(found)):
                own = getattr(found, method)
                if not method.startswith("_") and (inspect.isfunction(own) or inspect.ismethod(own)):
                    yield f"{name}.{method}", own


def options(called: Callable[..., Any]) -> list[str]:
    """The names that have defaults, of one letter or more."""
    parameters = inspect.signature(called).parameters.values()
    return [one.name for one in parameters if one.default is not one.empty and len(one.name) > 3]


def cases() -> Iterator[Any]:
    for module in MODULES:
        try:
            found = importlib.import_module(module)
        except ImportError:
            continue  # it needs a package that is not installed
        for name, called in public(found):
            ours = (called.__module__ or "").startswith(("tfrecord", "indexer"))
            if ours and name not in LEFT_OUT and options(called):
                yield pytest.param(name, called, id=f"{module}.{name}")


@pytest.mark.parametrize(("name", "called"), list(cases()))
def test_a_misspelt_option_is_answered(name: str, called: Callable[..., Any]) -> None:
    option = options(called)[-1]
    parameters = inspect.signature(called).parameters.values()
    needed = [one for one in parameters if one.default is one.empty and one.kind <= one.POSITIONAL_OR_KEYWORD]
    misspelt = option[:-2] + option[-1] + option[-2] if option[-1] != option[-2] else option[:-1]
    with pytest.raises(TypeError) as caught:
        called(*(None for _ in needed), **{misspelt: None})
    text = str(caught.value)
    assert f"{name.rpartition('.')[2]}() got an unexpected keyword argument '{misspelt}'" in text
    assert "did you mean" in text and f"'{option}'" in text


def test_the_object_that_was_called_is_blamed(tmp_path: Any) -> None:
    import tfrecord

    path = tmp_path / "a.tfrecord"
    tfrecord.write(path, {"x": [1]})
    reader = tfrecord.TFRecordReader(path)
    with pytest.raises(TypeError, match=r"^TFRecordReader.to_arrow\(\) .*'colums'; did you mean 'columns'"):
        reader.to_arrow(colums=["x"])  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"^ColumnBatch.to_pandas\(\) .*'txt'; did you mean 'text'"):
        reader[:].to_pandas(txt=True)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"^RaggedFeature\(\) .*'rawe'; did you mean 'raw'"):
        tfrecord.RaggedFeature("int", rawe=True)  # type: ignore[call-arg]


def test_other_names_are_answered_too(tmp_path: Any) -> None:
    for package in ("pyarrow", "torch"):
        pytest.importorskip(package)
    import tfrecord

    path = tmp_path / "a.tfrecord"
    tfrecord.write(path, {"label": [1, 2], "text": [["a"], ["b"]]}, index=True)
    reader = tfrecord.TFRecordReader(path)
    batch = reader[:]
    for error, call, near in (
        (AttributeError, lambda: tfrecord.TFRecordReder, "TFRecordReader"),
        (KeyError, lambda: batch["lable"], "label"),
        (KeyError, lambda: batch.select(["txet"]), "text"),
        (KeyError, lambda: reader.schema["lable"], "label"),
        (KeyError, lambda: reader.to_arrow(text=["txet"]), "text"),
        (ValueError, lambda: batch.to_torch(ragged="nestde"), "nested"),
        (ValueError, lambda: tfrecord.TFRecordReader(path, compression_type="gizp"), "gzip"),  # type: ignore[call-overload]
        (OSError, lambda: tfrecord.TFRecordReader(path, index="biuld"), "build"),
        (OSError, lambda: tfrecord.TFRecordReader([path] * 2, index="atuo"), "auto"),
        (ValueError, lambda: tfrecord.TFRecordReader(path, on_error="skpi"), "skip"),  # type: ignore[call-overload]
        (ValueError, lambda: tfrecord.write(path, {"x": ([1], "flaot")}), "float"),
        (ValueError, lambda: tfrecord.write(path, {"x": [1]}, present={"xs": [True]}), "x"),
    ):
        with pytest.raises(error) as caught:
            call()
        assert f"did you mean {near!r}" in str(caught.value), caught.value
    assert "label" in reader.schema and "lable" not in reader.schema


def test_misspelt_values_of_datasets(tmp_path: Any) -> None:
    pytest.importorskip("torch")
    import tfrecord
    import tfrecord.torch as torch

    path = tmp_path / "a.tfrecord"
    tfrecord.write(path, {"label": [1, 2], "text": [["a"], ["b"]]})
    for options, near in (
        ({"split": "exat"}, "exact"),
        ({"shuffle": "blokc"}, "block"),
        ({"ragged": "raged"}, "ragged"),
    ):
        with pytest.raises(ValueError, match=f"did you mean '{near}'"):
            torch.TFRecordDataset(path, batch_size=2, **options)
    batch = next(iter(torch.TFRecordDataset(path, batch_size=2)))
    with pytest.raises(KeyError, match="no column 'lable'; did you mean 'label'"):
        batch["lable"]
    assert batch.get("lable") is None
