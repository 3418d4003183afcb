"""Declarations of the C headers for the kernel."""

from cpython.ref cimport PyObject
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t

cdef extern from "Python.h":
    PyObject *PyTuple_GET_ITEM(object, Py_ssize_t)  # borrowed
    object PyUnicode_DecodeUTF8(const char *text, Py_ssize_t size, const char *errors)

cdef extern from "ndarray.h":
    int ndarray_start(object capsule) except -1
    void *ndarray_data(object array)
    object ndarray_new(object kind, object dtype, int dims, const Py_ssize_t *shape, void *data, PyObject *owner)

cdef extern from "blocks.h" nogil:
    int blocks_start()
    void *block_take(size_t size)
    void block_give(void *memory)

cdef extern from "survey.h" nogil:
    enum:
        WIRE_TRUNCATED, WIRE_TOO_MANY, WIRE_CHANGED, WIRE_KIND_MISMATCH, WIRE_KIND_CONFLICT, WIRE_MISSING, WIRE_WRONG_COUNT,
        WIRE_NO_MEMORY
        KIND_UNKNOWN, KIND_BYTES, KIND_FLOAT, KIND_INT64
        SLOT_ABSENT, SLOT_NO_KIND, SLOT_VALUE, SLOT_ONE
        SCAN_MAX_GUESSES, SEEN_LISTS

    ctypedef struct feature_slot:
        uint64_t at
        uint32_t length
        uint8_t shape
        uint8_t kind

    ctypedef struct feature_parts:
        pass

    ctypedef struct feature_sink:
        int64_t count, limit
        uint32_t *floats
        int64_t *ints
        int64_t *offsets
        int64_t *lengths
        const uint8_t *base
        int level

    ctypedef struct scan_record:
        const uint8_t *data
        int64_t length
        const uint8_t *base
        int32_t buffer

    ctypedef struct scan_column:
        const uint8_t *key
        uint32_t key_length
        int32_t kind
        int64_t count
        const void *fallback
        void *direct
        feature_slot *slots
        int64_t num_slots
        int64_t *steps
        uint8_t *listed
        uint64_t seen
        uint32_t turn

    ctypedef struct scan_guess:
        int32_t column

    ctypedef struct scan_table:
        scan_column *columns
        uint32_t num_columns, capacity
        int32_t *buckets
        uint32_t num_buckets
        uint64_t seed
        int discover, is_lists, level, owns_buckets
        int64_t rows
        uint64_t most_cells
        scan_guess *guesses
        uint32_t max_guesses, found, num_repeated
        feature_parts parts

    ctypedef struct column_fault:
        int status
        int64_t slot, first, second

    ctypedef struct column_output:
        uint8_t *present
        int64_t *splits
        int64_t total
        int kind, level
        feature_sink sink
        int filled
        int32_t *buffers

    ctypedef struct decode_chunk:
        scan_table tables[2]
        int num_tables
        column_output *outputs[2]
        scan_record *records
        int64_t first, count, rows
        uint8_t *bad
        column_fault fault
        int fault_table
        int64_t fault_column, fault_row

    enum:
        CHUNK_SCAN, CHUNK_COUNT, CHUNK_FILL

    void chunk_run(decode_chunk *chunk, int steps)
    void chunk_free(decode_chunk *chunk)

    int varints_best_level()
    int64_t varints_count(const uint8_t *data, size_t length, int level)
    int varints_decode(const uint8_t *data, size_t length, int64_t **out, int64_t *room, int level)
    int slot_values(const feature_slot *slot, const feature_parts *parts, int depth, feature_sink *sink)
    int table_prepare(scan_table *table)
    int table_rehash(scan_table *table, uint32_t num_buckets)
    int table_discover(scan_table *table, const uint8_t *key, size_t length, uint64_t row, int32_t *found)
    void table_free(scan_table *table)
    void prefetch_object(const void *object)
    int repeat_read(scan_table *table, const scan_record *record, uint64_t row)
    void repeat_learn(scan_table *table, uint64_t row)
    int record_read(scan_table *features, scan_table *lists, const scan_record *record, uint64_t row, int *seen)
    int64_t column_row(const scan_table *table, const scan_column *column, int64_t slot)

    ctypedef struct schema_entry:
        int64_t present, least, most, least_values, most_values
        uint32_t kinds

    ctypedef struct schema_state:
        int64_t count
        int seen, status

    void schema_scan(scan_table *features, scan_table *lists, const scan_record *records, int64_t count,
                     schema_state *state)
    int schema_column(const scan_table *table, const scan_column *column, int64_t rows, int level, schema_entry *entry)

cdef extern from "pool.h" nogil:
    void pool_run(void (*task)(void *context, int64_t index) noexcept nogil, void *context, int64_t count)

cdef extern from "classify.h" nogil:
    int record_class_of "record_class" (const scan_record *record)

cdef extern from "validate.h" nogil:
    int records_check(const scan_record *records, int64_t count, uint8_t *statuses)
