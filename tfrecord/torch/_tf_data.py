"""What to use here in place of the methods of a `tf.data.Dataset`."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

__all__ = ["TFDataHints"]

_TRANSFORM = "give the dataset transform=, a function of each record or batch"
_BATCH = "give the dataset batch_size="
_PLAIN_LOOP = "iterate the dataset itself; tfrecord.TFRecordReader gives NumPy arrays"
_MIX = "use MultiTFRecordDataset.from_datasets"
_INSTEAD = {
    "map": f"{_TRANSFORM}; DataLoader workers call it in parallel",
    "apply": _TRANSFORM,
    "flat_map": f"{_TRANSFORM}, and iterate over what it returns",
    "batch": f"{_BATCH} (and drop_last=)",
    "padded_batch": f"{_BATCH} and ragged='pad' (and pad_value=, max_length=)",
    "ragged_batch": _BATCH,
    "unbatch": "leave out batch_size=",
    "rebatch": _BATCH,
    "bucket_by_sequence_length": "use bucket_by_length(key, boundaries, batch_sizes)",
    "group_by_window": "use bucket_by_length(key, boundaries, batch_sizes)",
    "shuffle": "give the dataset shuffle=True (and seed=); it needs no buffer",
    "interleave": "give all files as one path, list, glob or folder; " + _MIX + " for weights",
    "zip": "give the records of both as features of one file",
    "concatenate": "give a list of paths",
    "cache": "it is not needed: the system keeps files in memory; for URLs give the dataset cache='auto'",
    "prefetch": "give the dataset prefetch=, or use DataLoader workers",
    "shard": "give the dataset rank= and world_size=, or nothing under torch.distributed",
    "as_numpy_iterator": _PLAIN_LOOP,
    "make_one_shot_iterator": _PLAIN_LOOP,
    "get_single_element": "use next(iter(dataset))",
    "enumerate": "use enumerate(dataset)",
    "cardinality": "use len(dataset)",
    "element_spec": "look at dataset.reader.schema",
    "reduce": "use a loop",
    "take_while": "break out of the loop",
    "ignore_errors": "give the dataset on_error='skip'",
    "with_options": "all options are arguments of the dataset",
    "options": "all options are arguments of the dataset",
    "list_files": "give the dataset a glob or a folder",
    "sample_from_datasets": _MIX,
    "choose_from_datasets": _MIX,
    "from_tensor_slices": "use tfrecord.write(path, columns) to write a file of them",
}


class TFDataHints:
    """A dataset that answers the names of `tf.data` methods with what does the same here."""

    if not TYPE_CHECKING:  # type checkers know that there are no such names

        def __getattr__(self, name: str) -> NoReturn:
            # Without a look at the object: copies and pickles ask for attributes before there are any.
            text = f"{type(self).__name__!r} object has no attribute {name!r}"
            if name in _INSTEAD:
                text += f"; here, {_INSTEAD[name]}"
            raise AttributeError(text, name=name, obj=self)
