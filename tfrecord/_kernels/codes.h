/* Kinds and statuses, the same as in codes.py. */
#ifndef TFRECORD_CODES_H
#define TFRECORD_CODES_H

/* The field numbers of tf.train.Feature. */
enum { KIND_UNKNOWN = 0, KIND_BYTES = 1, KIND_FLOAT = 2, KIND_INT64 = 3 };

enum {
    WIRE_OK = 0,
    WIRE_TRUNCATED = 1,
    WIRE_BAD_TAG = 2,
    WIRE_BAD_TYPE = 3,
    WIRE_BAD_GROUP = 4,
    WIRE_TOO_DEEP = 5,
    WIRE_VARINT_TOO_LONG = 6,
    WIRE_LENGTH_TOO_LARGE = 7,
    WIRE_BAD_UTF8 = 8,
    WIRE_BAD_FLOATS = 9,
    WIRE_TOO_MANY = 10,
    WIRE_CHANGED = 11,
    WIRE_KIND_MISMATCH = 20,
    WIRE_MISSING = 21,
    WIRE_WRONG_COUNT = 22,
    WIRE_KIND_CONFLICT = 23,
    WIRE_NO_MEMORY = 99
};

#endif
