# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
# cython: autotestdict=False, binding=True, auto_pickle=False
"""Kernel: tf.Example wire bytes to columns, and to dicts of single records.

The loops are in the C headers, without the GIL. A failure is a tuple (status, row, key, two numbers), which
`tfrecord.parse` turns into an exception. Exceptions raised here mean that the caller broke the contract.
"""

import math
import os

import numpy

from cpython.buffer cimport (
    PyBUF_SIMPLE,
    PyBUF_WRITABLE,
    PyBuffer_FillInfo,
    PyBuffer_Release,
    PyObject_CheckBuffer,
    PyObject_GetBuffer,
)
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.dict cimport PyDict_Next
from cpython.ref cimport PyObject
from libc.stdint cimport uintptr_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy, memset

SIMD_LEVELS = {"portable": 0, "avx2": 1, "avx512": 2}
cdef int _BEST_LEVEL = varints_best_level()
BEST_LEVEL = _BEST_LEVEL

try:
    from numpy._core._multiarray_umath import _ARRAY_API
except ImportError:  # NumPy 1
    from numpy.core._multiarray_umath import _ARRAY_API
ndarray_start(_ARRAY_API)
if blocks_start():
    raise MemoryError

cdef object _empty = numpy.empty
cdef object _ndarray = numpy.ndarray
cdef object _FLOAT = numpy.dtype("<f4")
cdef object _INT64 = numpy.dtype("int64")
cdef object _INT32 = numpy.dtype("int32")
cdef object _BOOL = numpy.dtype("bool")
cdef object _UINT8 = numpy.dtype("uint8")
cdef object _OBJECT = numpy.dtype(object)
cdef uint64_t _SEED = int.from_bytes(os.urandom(8), "little")
cdef uint8_t _NOTHING = 0
cdef Py_ssize_t _ONE = 1
# Arrays of at least this many bytes use reused memory blocks.
cdef int64_t _LARGE = 1 << 15

cdef enum:
    _MOST_DIMS = 64

# Columns times records that a batch may have beyond one for each byte of it: what sparse keys may cost.
cdef uint64_t _MOST_CELLS = 1 << 24
# The same for records that are decoded together to dicts.
cdef uint64_t _RECORD_CELLS = 1 << 18
# Bytes that are worth a thread, and how many of them a record counts for beside its own.
cdef uint64_t _CHUNK_WORK = 1 << 19
cdef uint64_t _RECORD_WORK = 16
cdef int64_t _MOST_THREADS = 256


cdef int _simd_level(int wanted) except -1:
    if wanted > _BEST_LEVEL:
        raise ValueError(f"this processor has SIMD level {_BEST_LEVEL}, not {wanted}")
    return _BEST_LEVEL if wanted < 0 else wanted


cdef class _Memory:
    """The memory of one large array: a block that is reused when the array is gone."""

    cdef void *address
    cdef Py_ssize_t size

    def __cinit__(self, Py_ssize_t size):
        self.size = size
        self.address = block_take(size)
        if self.address == NULL:
            raise MemoryError

    def __dealloc__(self):
        block_give(self.address)

    def __getbuffer__(self, Py_buffer *view, int flags):
        PyBuffer_FillInfo(view, self, self.address, self.size, 0, flags)


cdef object _array(int64_t rows, int itemsize, object dtype, tuple shape=()):
    """A new array of shape (rows, *shape)."""
    cdef Py_ssize_t sizes[_MOST_DIMS]
    cdef int dims = 1
    sizes[0] = rows
    for length in shape:
        if dims == _MOST_DIMS:
            return _empty((rows, *shape), dtype)  # which raises NumPy's error
        sizes[dims] = length
        dims += 1
    return _new_array(dims, sizes, itemsize, dtype)


cdef object _new_array(int dims, const Py_ssize_t *sizes, int itemsize, object dtype):
    cdef int64_t size = itemsize
    cdef int i
    cdef _Memory memory
    for i in range(dims):
        size *= sizes[i]
    if size < _LARGE:
        return ndarray_new(_ndarray, dtype, dims, sizes, NULL, NULL)
    memory = _Memory(size)
    return ndarray_new(_ndarray, dtype, dims, sizes, memory.address, <PyObject *> memory)


cdef inline void *_pointer(object array) noexcept:
    """The address of an array that was made here."""
    return ndarray_data(array)


cdef void *_address(object array, int flags=PyBUF_SIMPLE) except NULL:
    """The address of an array that the caller keeps."""
    cdef Py_buffer view
    PyObject_GetBuffer(array, &view, flags)
    cdef void *address = view.buf
    PyBuffer_Release(&view)
    return address if address != NULL else <void *> &_NOTHING


cdef bint _is_whole(object array, tuple shape) except -1:
    """Whether the C functions of NumPy made what they were asked for."""
    return (
        type(array) is _ndarray and array.shape == shape and array.dtype == _INT64
        and array.flags.carray and _address(array) == _pointer(array)
    )


if not _is_whole(_array(2, 8, _INT64, (3,)), (2, 3)) or not _is_whole(_array(_LARGE, 8, _INT64), (_LARGE,)):
    raise ImportError("the kernel does not support the C functions of this version of NumPy")


cdef object _contiguous(object array, Py_ssize_t count, object dtype):
    array = numpy.ascontiguousarray(array, dtype)
    if array.shape != (count,):
        raise ValueError(f"an array of {count} is needed, not of shape {array.shape}")
    return array


include "decode_payloads.pxi"


cdef inline void _whole(const Py_buffer *view, scan_record *record) noexcept:
    """A buffer that holds one record."""
    record.base = record.data = <const uint8_t *> view.buf if view.buf != NULL else &_NOTHING
    record.length = view.len
    record.buffer = 0


cdef class _Chunks:
    """Consecutive parts of a batch, each decoded by one thread at a time."""

    cdef decode_chunk *items
    cdef Py_ssize_t count
    # The status of each record, if bad ones are left out.
    cdef object statuses

    def __dealloc__(self):
        cdef Py_ssize_t i
        for i in range(self.count):
            chunk_free(&self.items[i])
        free(self.items)

    cdef int64_t rows(self) noexcept:
        """The number of records that are not left out."""
        cdef int64_t rows = 0
        cdef Py_ssize_t i
        for i in range(self.count):
            rows += self.items[i].count
        return rows

    cdef void run(self, int steps) noexcept:
        cdef _ChunkSteps work
        work.chunks, work.steps = self.items, steps
        with nogil:
            pool_run(_run_chunk, &work, self.count)


cdef struct _ChunkSteps:
    decode_chunk *chunks
    int steps


cdef void _run_chunk(void *work, int64_t index) noexcept nogil:
    chunk_run(&(<_ChunkSteps *> work).chunks[index], (<_ChunkSteps *> work).steps)


cdef object _key_text(const scan_column *column):
    return PyUnicode_DecodeUTF8(<const char *> column.key, column.key_length, NULL)


cdef class _Assembly


cdef class Decoder:
    """Decodes records to the columns that it was made for; see the stub. It holds no state of a batch, so threads may
    share it."""

    cdef scan_table tables[2]
    cdef int num_tables, level
    cdef list kept
    cdef tuple names, list_names
    # The requested keys, without values; and the same if batches come as a dict.
    cdef dict keys, plain

    def __init__(self, columns, lists=False, int simd=-1, bint plain=False):
        if self.kept is not None:
            raise TypeError("a Decoder can be initialized only once")
        self.level = _simd_level(simd)
        self.kept = []
        self.num_tables = 1 if lists is False else 2
        self.names = self.request(&self.tables[0], columns)
        self.list_names = self.request(&self.tables[1], None if lists is False else lists)
        self.tables[1].is_lists = 1
        self.keys = dict.fromkeys([name for name, _ in self.names])
        if plain:
            if lists is not False or not columns or not all(kind > KIND_BYTES and shape is not None
                                                            for _, kind, shape, _ in columns):
                raise ValueError("only dense columns of numbers are plain")
            self.plain = self.keys

    def __dealloc__(self):
        table_free(&self.tables[0])
        table_free(&self.tables[1])

    cdef tuple request(self, scan_table *table, object columns):
        cdef uint32_t num_buckets = 8
        cdef Py_ssize_t i
        cdef scan_column *column
        table.seed = _SEED
        table.discover = columns is None
        if columns is None or not columns:
            return ()
        table.columns = <scan_column *> block_take(len(columns) * sizeof(scan_column))
        if table.columns == NULL:
            raise MemoryError
        memset(table.columns, 0, len(columns) * sizeof(scan_column))
        for i, (key, kind, shape, fallback) in enumerate(columns):
            encoded = key.encode()
            count = -1 if shape is None else math.prod(shape)
            self.kept += [encoded, fallback]
            column = &table.columns[i]
            column.key = <const uint8_t *> PyBytes_AS_STRING(encoded)
            column.key_length = len(encoded)
            column.kind = kind
            column.count = count
            if fallback is not None:
                if count > 0 and len(fallback) != count * (4 if kind == KIND_FLOAT else 8):
                    raise ValueError(f"the default of {key!r} has {len(fallback)} bytes")
                column.fallback = <const void *> PyBytes_AS_STRING(fallback)
        table.num_columns = table.capacity = len(columns)
        while num_buckets < 3 * len(columns):
            num_buckets *= 2
        if table_rehash(table, num_buckets):
            raise MemoryError
        return tuple([(item[0], item[2]) for item in columns])

    cdef int copy_tables(self, scan_table *tables, int64_t rows, uint64_t most_cells, uint32_t max_guesses) except -1:
        """Tables for some records: own columns, the shared hash."""
        cdef int t
        cdef size_t size
        for t in range(self.num_tables):
            tables[t] = self.tables[t]
            tables[t].owns_buckets = 0
            tables[t].level = self.level
            tables[t].columns = NULL
            tables[t].rows = rows
            tables[t].most_cells = most_cells
            tables[t].max_guesses = max_guesses
            if self.tables[t].num_columns:
                size = self.tables[t].num_columns * sizeof(scan_column)
                tables[t].columns = <scan_column *> block_take(size)
                if tables[t].columns == NULL:
                    tables[t].num_columns = 0
                    raise MemoryError
                memcpy(tables[t].columns, self.tables[t].columns, size)
            if table_prepare(&tables[t]):
                raise MemoryError
        return 0

    def decode(self, tuple buffers not None, offsets, lengths, buffer_ids, int num_threads=1, list bad=None):
        cdef _Payloads payloads = _Payloads(buffers, offsets, lengths, buffer_ids)
        cdef _Chunks chunks = self.split(payloads, num_threads, bad is not None)
        cdef _Assembly assembly = _Assembly(self, chunks, offsets is None or buffer_ids is not None)
        cdef bint is_planned = self.num_tables == 1 and not self.tables[0].discover
        if is_planned:
            assembly.allocate()
        chunks.run(CHUNK_SCAN | CHUNK_COUNT if is_planned else CHUNK_SCAN)
        failure = self.failure(chunks)
        # The limit of cells is one of all records together, and rows that are left out make the others move: one thread
        # does these.
        if chunks.count > 1 and (
            failure is not None or chunks.rows() != payloads.count or not self.join_keys(chunks, payloads)
        ):
            return self.decode(buffers, offsets, lengths, buffer_ids, 1, bad)
        if failure is None and not is_planned:
            assembly.allocate()
            chunks.run(CHUNK_COUNT)
            failure = self.failure(chunks)
        if failure is None:
            failure = assembly.settle_kinds()
        if failure is None and assembly.allocate_values():
            chunks.run(CHUNK_FILL)
            failure = self.failure(chunks)
        if failure is not None:
            return failure, None, None
        if bad is not None:
            bad += [(row, int(chunks.statuses[row])) for row in numpy.flatnonzero(chunks.statuses).tolist()]
        return None, assembly.results(0), assembly.results(1) if self.num_tables == 2 else None

    cdef _Chunks split(self, _Payloads payloads, int num_threads, bint leave_out):
        """Parts of about the same number of bytes, none of them too small for a thread."""
        cdef uint64_t work = payloads.num_bytes + _RECORD_WORK * <uint64_t> payloads.count, done = 0
        cdef int64_t parts = max(1, min(num_threads, <int64_t> (work // _CHUNK_WORK), payloads.count, _MOST_THREADS))
        cdef int64_t part, i = 0
        cdef uint8_t *statuses = NULL
        cdef decode_chunk *chunk
        cdef _Chunks chunks = _Chunks.__new__(_Chunks)
        chunks.items = <decode_chunk *> calloc(parts, sizeof(decode_chunk))
        if chunks.items == NULL:
            raise MemoryError
        if leave_out:
            chunks.statuses = numpy.zeros(payloads.count, _UINT8)
            statuses = <uint8_t *> _pointer(chunks.statuses)
        for part in range(parts):
            chunk = &chunks.items[part]
            chunk.num_tables = self.num_tables
            chunk.first = i
            chunk.records = payloads.records + i
            chunk.bad = statuses + i if leave_out else NULL
            if part + 1 == parts:
                i = payloads.count
            while i < payloads.count and done < work // parts * (part + 1):
                done += <uint64_t> payloads.records[i].length + _RECORD_WORK
                i += 1
            chunk.count = i - chunk.first
            chunks.count += 1
            self.copy_tables(chunk.tables, chunk.count, _MOST_CELLS + payloads.num_bytes,
                             SCAN_MAX_GUESSES if chunk.count > 1 else 0)
        return chunks

    cdef object failure(self, _Chunks chunks):
        """The failure of the first chunk that failed."""
        cdef decode_chunk *chunk
        cdef scan_column *column
        cdef Py_ssize_t i
        for i in range(chunks.count):
            if chunks.items[i].fault.status == WIRE_NO_MEMORY:
                raise MemoryError
        for i in range(chunks.count):
            chunk = &chunks.items[i]
            if chunk.fault.status:
                key, row, step = None, chunk.first + chunk.fault_row, -1
                if chunk.fault_column >= 0:
                    column = &chunk.tables[chunk.fault_table].columns[chunk.fault_column]
                    key = _key_text(column)
                    if chunk.fault_table:
                        step = chunk.fault.slot - column.steps[chunk.fault_row]
                    if chunks.statuses is not None:
                        row = int(numpy.flatnonzero(chunks.statuses == 0)[row])
                return chunk.fault.status, row, key, chunk.fault.first, chunk.fault.second, step
        return None

    cdef int join_keys(self, _Chunks chunks, _Payloads payloads) except -1:
        """Let every chunk have the columns that any of them discovered, in the order of the records; 0 where
        they are too many."""
        cdef scan_table *table
        cdef scan_column *sorted_columns
        cdef int32_t found
        cdef const uint8_t *text
        cdef int t
        cdef Py_ssize_t i, c
        for t in range(self.num_tables):
            if not self.tables[t].discover:
                continue
            order = {}
            for c in range(chunks.count):
                table = &chunks.items[c].tables[t]
                for i in range(table.num_columns):
                    order.setdefault(table.columns[i].key[:table.columns[i].key_length], len(order))
            if <uint64_t> len(order) * <uint64_t> payloads.count > _MOST_CELLS + payloads.num_bytes:
                return 0
            if not order:
                continue
            for c in range(chunks.count):
                table = &chunks.items[c].tables[t]
                table.most_cells = <uint64_t> -1
                places = {}
                for i in range(table.num_columns):
                    places[table.columns[i].key[:table.columns[i].key_length]] = i
                for key in order:
                    if key not in places:
                        text = <const uint8_t *> PyBytes_AS_STRING(key)
                        if table_discover(table, text, len(key), table.rows, &found):
                            raise MemoryError
                        places[key] = found
                sorted_columns = <scan_column *> block_take(table.capacity * sizeof(scan_column))
                if sorted_columns == NULL:
                    raise MemoryError
                for i, key in enumerate(order):
                    sorted_columns[i] = table.columns[<Py_ssize_t> places[key]]
                block_give(table.columns)
                table.columns = sorted_columns
        return 1

    def record(self, payload):
        cdef scan_record record
        cdef Py_buffer view
        cdef scan_table tables[2]
        cdef int seen, status
        memset(tables, 0, sizeof(tables))
        PyObject_GetBuffer(payload, &view, PyBUF_SIMPLE)
        try:
            _whole(&view, &record)
            self.copy_tables(tables, 1, <uint64_t> -1, 0)
            status = record_read(&tables[0], &tables[1] if self.num_tables == 2 else NULL, &record, 0, &seen)
            if status == WIRE_NO_MEMORY:
                raise MemoryError
            if status:
                return (status, 0, None, 0, 0, -1), {}, {}
            return _record(self, tables)
        finally:
            table_free(&tables[0])
            table_free(&tables[1])
            PyBuffer_Release(&view)

    def records(self, tuple payloads not None, tuple shapes=None):
        cdef _Payloads held
        cdef scan_table tables[1]
        if self.num_tables == 2:
            return []
        if shapes is not None and len(shapes) != self.tables[0].num_columns:
            raise ValueError("one shape for each column is needed")
        held = _Payloads(payloads, None, None, None)
        memset(tables, 0, sizeof(tables))
        try:
            self.copy_tables(tables, held.count, _RECORD_CELLS + held.num_bytes, SCAN_MAX_GUESSES)
            return _records(self, &tables[0], held, shapes)
        finally:
            table_free(&tables[0])


include "decode_records.pxi"


include "decode_assembly.pxi"


def same_items(dict request not None, tuple items not None):
    cdef Py_ssize_t at = 0, i = 0, count = len(items)
    cdef PyObject *key
    cdef PyObject *value
    if 2 * len(request) != count:
        return False
    while PyDict_Next(request, &at, &key, &value):
        if i >= count or key != PyTuple_GET_ITEM(items, i) or value != PyTuple_GET_ITEM(items, i + 1):
            return False
        i += 2
    return True


def lengths_of(tuple buffers not None):
    cdef Py_ssize_t count = len(buffers), i
    cdef Py_buffer view
    lengths = _empty(count, _INT64)
    cdef int64_t *sizes = <int64_t *> _pointer(lengths)
    for i in range(count):
        buffer = buffers[i]
        if PyBytes_CheckExact(buffer):
            sizes[i] = PyBytes_GET_SIZE(buffer)
            continue
        if not PyObject_CheckBuffer(buffer):
            return i
        try:
            PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
        except BufferError:
            return i
        sizes[i] = view.len
        PyBuffer_Release(&view)
    return lengths


def gather(tuple buffers not None, offsets, lengths, buffer_ids, out):
    cdef _Payloads payloads = _Payloads(buffers, offsets, lengths, buffer_ids)
    cdef uint8_t *to = <uint8_t *> _address(out, PyBUF_WRITABLE)
    cdef int64_t left = memoryview(out).nbytes
    cdef scan_record *record
    cdef Py_ssize_t i
    with nogil:
        for i in range(payloads.count):
            record = &payloads.records[i]
            left -= record.length
            if left < 0:
                break
            memcpy(to, record.data, record.length)
            to += record.length
    if left:
        raise ValueError("the byte strings do not fill the output exactly")


def empty(tuple shape):
    return _array(shape[0], 1, _UINT8, shape[1:])


def decode_varints(data, int simd=-1):
    cdef int level = _simd_level(simd)
    cdef bytes held = bytes(data)
    cdef const uint8_t *run = <const uint8_t *> PyBytes_AS_STRING(held)
    cdef size_t length = PyBytes_GET_SIZE(held)
    cdef int status
    if not length:
        return _empty(0, _INT64)
    if run[length - 1] >= 128:
        return WIRE_TRUNCATED
    cdef int64_t count = varints_count(run, length, level)
    values = _empty(count, _INT64)
    cdef int64_t *out = <int64_t *> _pointer(values)
    cdef int64_t *room = out + count
    with nogil:
        status = varints_decode(run, length, &out, room, level)
    if not status and out != room:
        status = WIRE_CHANGED
    return status if status else values


cdef int _discover(scan_table *tables, int64_t rows, uint64_t most_cells) except -1:
    """Tables of features and of feature lists that accept every key."""
    cdef int t
    memset(tables, 0, 2 * sizeof(scan_table))
    for t in range(2):
        tables[t].discover = 1
        tables[t].is_lists = t
        tables[t].rows = rows
        tables[t].seed = _SEED
        tables[t].most_cells = most_cells
        tables[t].max_guesses = SCAN_MAX_GUESSES if rows > 1 else 0
        if table_prepare(&tables[t]):
            raise MemoryError
    return 0


def record_class(payload):
    cdef scan_record record
    cdef Py_buffer view
    cdef int found
    PyObject_GetBuffer(payload, &view, PyBUF_SIMPLE)
    try:
        _whole(&view, &record)
        with nogil:
            found = record_class_of(&record)
    finally:
        PyBuffer_Release(&view)
    if found < 0:
        raise MemoryError
    return found


def survey(buffer, offsets, lengths):
    cdef _Payloads payloads = _Payloads((buffer,), offsets, lengths, None)
    cdef scan_table tables[2]
    cdef schema_state state
    cdef schema_entry entry
    cdef Py_ssize_t t, i
    cdef int status = 0
    memset(&state, 0, sizeof(state))
    result = ({}, {})
    try:
        _discover(tables, payloads.count, _MOST_CELLS + payloads.num_bytes)
        with nogil:
            schema_scan(&tables[0], &tables[1], payloads.records, payloads.count, &state)
        for t in range(2):
            for i in range(tables[t].num_columns):
                memset(&entry, 0, sizeof(entry))
                with nogil:
                    status = schema_column(&tables[t], &tables[t].columns[i], state.count, _BEST_LEVEL, &entry)
                if status:
                    break
                result[t][_key_text(&tables[t].columns[i])] = (
                    entry.kinds, entry.present, entry.least, entry.most, entry.least_values, entry.most_values
                )
    finally:
        table_free(&tables[0])
        table_free(&tables[1])
    if state.status == WIRE_NO_MEMORY:
        raise MemoryError
    status = status or state.status
    return status, state.count, bool(state.seen & SEEN_LISTS), result[0], result[1]


def check_records(tuple buffers not None, offsets, lengths, buffer_ids=None):
    cdef _Payloads payloads = _Payloads(buffers, offsets, lengths, buffer_ids)
    cdef int status
    statuses = _empty(payloads.count, _UINT8)
    cdef uint8_t *out = <uint8_t *> _pointer(statuses)
    with nogil:
        status = records_check(payloads.records, payloads.count, out)
    if status:
        raise MemoryError
    return statuses
