"""TensorFlow's side: ``tf.data.TFRecordDataset`` and ``tf.io.parse_example``."""

from __future__ import annotations

import os
from typing import Any

import tensorflow as tf  # type: ignore[import-not-found, import-untyped, unused-ignore]

from benchlib.common import Run, Spec, Task, batches_of, read_payloads, scratch

_DTYPE = {"bytes": tf.string, "float": tf.float32, "int": tf.int64}


def version() -> str:
    """TensorFlow's version."""
    return str(tf.__version__)


def _features(spec: Spec) -> dict[str, Any]:
    form = spec.get("form", "fixed")
    wanted = spec.get("columns")
    out = {}
    for name, kind, length in spec["features"]:
        if wanted is not None and name not in wanted:
            continue
        if form == "fixed":
            out[name] = tf.io.FixedLenFeature([] if length == 1 else [length], _DTYPE[kind])
        elif form == "varlen":
            out[name] = tf.io.VarLenFeature(_DTYPE[kind])
        else:
            out[name] = tf.io.RaggedFeature(_DTYPE[kind])
    return out


def decode(spec: Spec) -> Run:
    """``tf.io.parse_example`` in a ``tf.function``, on batches that are already tensors."""
    features = _features(spec)
    batches = [tf.constant(batch) for batch in batches_of(spec)]
    parse = tf.function(
        lambda serialized: tf.io.parse_example(serialized, features),
        input_signature=[tf.TensorSpec([None], tf.string)],
    )
    records = sum(int(batch.shape[0]) for batch in batches)

    def run() -> int:
        for batch in batches:
            parse(batch)
        return records

    return run


def decode_one(spec: Spec) -> Run:
    """``tf.io.parse_single_example`` in a ``tf.function``, one record per call."""
    features = _features(spec)
    records = [tf.constant(record) for record in read_payloads(spec["path"], spec["limit"])]
    parse = tf.function(
        lambda serialized: tf.io.parse_single_example(serialized, features),
        input_signature=[tf.TensorSpec([], tf.string)],
    )

    def run() -> int:
        for record in records:
            parse(record)
        return len(records)

    return run


def _options(spec: Spec) -> Any:
    options = tf.data.Options()
    options.autotune.enabled = spec.get("autotune", True)
    if spec.get("one_thread"):
        options.threading.private_threadpool_size = 1
    return options


def _count(dataset: Any) -> Run:
    def run() -> int:
        total = 0
        for batch in dataset:
            first = next(iter(batch.values())) if isinstance(batch, dict) else batch
            total += int(first.shape[0])
        return total

    return run


def raw(spec: Spec) -> Run:
    """``TFRecordDataset(...).batch(n)`` with or without autotuning (and prefetch)."""
    dataset = tf.data.TFRecordDataset(spec["path"]).batch(spec["batch"])
    if spec.get("prefetch"):
        dataset = dataset.prefetch(tf.data.AUTOTUNE)
    return _count(dataset.with_options(_options(spec)))


def raw_one(spec: Spec) -> Run:
    """``TFRecordDataset`` record by record."""
    dataset = tf.data.TFRecordDataset(spec["path"]).take(spec["limit"]).with_options(_options(spec))
    return lambda: sum(1 for _ in dataset)


def read(spec: Spec) -> Run:
    """``TFRecordDataset(...)[.shuffle(n)].batch(n).map(parse_example)``."""
    features = _features(spec)
    dataset = tf.data.TFRecordDataset(spec["path"])
    if spec.get("shuffle"):
        dataset = dataset.shuffle(spec["shuffle"])
    dataset = dataset.batch(spec["batch"])
    parallel = tf.data.AUTOTUNE if spec.get("parallel") else None
    dataset = dataset.map(lambda serialized: tf.io.parse_example(serialized, features), parallel)
    if spec.get("parallel"):
        dataset = dataset.prefetch(tf.data.AUTOTUNE)
    return _count(dataset.with_options(_options(spec)))


def service(spec: Spec) -> Run:
    """``read``, by a tf.data service with one worker on this host."""
    features = _features(spec)
    dispatcher = tf.data.experimental.service.DispatchServer()
    worker = tf.data.experimental.service.WorkerServer(
        tf.data.experimental.service.WorkerConfig(dispatcher_address=dispatcher.target.partition("://")[2])
    )
    dataset = tf.data.TFRecordDataset(spec["path"]).batch(spec["batch"])
    dataset = dataset.map(lambda serialized: tf.io.parse_example(serialized, features), tf.data.AUTOTUNE)
    dataset = dataset.prefetch(tf.data.AUTOTUNE)
    count = _count(
        dataset.apply(tf.data.experimental.service.distribute("parallel_epochs", dispatcher.target))
    )
    servers = dispatcher, worker  # they end when nothing holds them
    return lambda: count() if servers else 0


def images(spec: Spec) -> Run:
    """``TFRecordDataset``, ``decode_jpeg`` record by record in ``spec["threads"]`` calls, then batches."""
    features = _features(spec)

    def decoded(serialized: Any) -> dict[str, Any]:
        record = tf.io.parse_single_example(serialized, features)
        image = tf.io.decode_jpeg(record["image"], channels=3)
        return {"image": tf.ensure_shape(image, (spec["side"], spec["side"], 3)), "label": record["label"]}

    calls = spec["threads"] if spec["threads"] > 1 else None
    dataset = tf.data.TFRecordDataset(spec["path"]).map(decoded, calls).batch(spec["batch"])
    if calls:
        dataset = dataset.prefetch(tf.data.AUTOTUNE)
    return _count(dataset.with_options(_options(spec)))


def write(spec: Spec) -> Run:
    """``tf.train.Example`` messages from dicts of values, through ``tf.io.TFRecordWriter``."""
    parsed = [tf.train.Example.FromString(r) for r in read_payloads(spec["path"], spec["limit"])]
    data = [
        {
            key: (value.WhichOneof("kind"), list(getattr(value, value.WhichOneof("kind")).value))
            for key, value in example.features.feature.items()
        }
        for example in parsed
    ]
    lists = {
        "bytes_list": tf.train.BytesList,
        "float_list": tf.train.FloatList,
        "int64_list": tf.train.Int64List,
    }

    def run() -> int:
        with scratch(spec) as folder:
            with tf.io.TFRecordWriter(os.path.join(folder, "out.tfrecord")) as writer:
                for datum in data:
                    feature = {
                        key: tf.train.Feature(**{kind: lists[kind](value=value)})
                        for key, (kind, value) in datum.items()
                    }
                    example = tf.train.Example(features=tf.train.Features(feature=feature))
                    writer.write(example.SerializeToString())
        return len(data)

    return run


TASKS: dict[str, Task] = {
    "decode": decode,
    "decode_one": decode_one,
    "raw": raw,
    "raw_one": raw_one,
    "read": read,
    "images": images,
    "service": service,
    "write": write,
}
