# cython: language_level=3, boundscheck=False, wraparound=False, autotestdict=False, auto_pickle=False, binding=True
"""Kernel of the writer: dicts and columns to the wire bytes of Examples, framed.

It imports none of our Python. `RecordEncoder` writes what needs no rules (exact Python scalars, flat lists of them,
contiguous int64 and float32 arrays) and hands everything else to the functions that it was made with; what they give
back is one of those again. `RowEncoder` gets arrays, and touches no object a value.
"""

cimport cython
from cpython.buffer cimport (
    PyBUF_C_CONTIGUOUS,
    PyBUF_FORMAT,
    PyBUF_SIMPLE,
    PyBUF_WRITABLE,
    PyBuffer_Release,
    PyObject_GetBuffer,
)
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.float cimport PyFloat_AS_DOUBLE, PyFloat_AsDouble, PyFloat_CheckExact
from cpython.list cimport PyList_CheckExact
from cpython.long cimport PyLong_AsLongLongAndOverflow, PyLong_CheckExact
from cpython.mem cimport PyMem_Calloc, PyMem_Free, PyMem_Malloc, PyMem_Realloc
from cpython.ref cimport PyObject
from cpython.tuple cimport PyTuple_CheckExact, PyTuple_GET_ITEM, PyTuple_GET_SIZE
from libc.math cimport isinf
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy, memmove, strcmp

cdef extern from "Python.h":
    const char *PyUnicode_AsUTF8AndSize(object, Py_ssize_t *) except NULL
    bint PyUnicode_Check(object)
    bint PyUnicode_CheckExact(object)
    bint PyBool_Check(object)
    Py_ssize_t PySequence_Fast_GET_SIZE(object)
    PyObject *PySequence_Fast_GET_ITEM(object, Py_ssize_t)  # borrowed

cdef extern from "encode.h" nogil:
    enum: FRAME_HEADER, FRAME_OVERHEAD, KIND_BYTES, KIND_FLOAT, KIND_INT64, TAG_1, TAG_2
    enum: ROWS_OK, ROWS_BAD_SPAN, ROWS_BAD_BYTES, ROWS_TOO_LARGE, ROWS_CHANGED
    ctypedef uint32_t (*frames_extend_fn)(uint32_t, const uint8_t *, size_t) noexcept nogil
    ctypedef struct frames_path:
        frames_extend_fn extend
    const frames_path frames_paths[]
    void crc_prepare() noexcept
    int crc_best() noexcept
    unsigned varint_size(uint64_t) noexcept
    uint64_t field_size(uint64_t) noexcept
    uint64_t packed_size(uint64_t) noexcept
    uint64_t ints_size(const int64_t *, uint64_t) noexcept
    uint8_t *put_varint(uint8_t *, uint64_t) noexcept
    uint8_t *put_field(uint8_t *, uint8_t, uint64_t) noexcept
    uint8_t *put_ints(uint8_t *, const uint8_t *, const int64_t *, uint64_t) noexcept
    uint8_t *put_floats(uint8_t *, const float *, uint64_t) noexcept
    void put_frame_header(uint8_t *, uint64_t, frames_extend_fn) noexcept
    void put_frame_footer(uint8_t *, uint64_t, frames_extend_fn) noexcept
    ctypedef struct column_t:
        const uint8_t *key
        uint64_t key_size
        int kind
        const uint8_t *present
        const int64_t *steps
        uint64_t num_spans
        const int64_t *splits
        uint64_t width
        uint64_t num_values
        const int64_t *ints
        const float *floats
        const int64_t *offsets
        const int64_t *lengths
        const int32_t *ids
        const uint8_t *const *buffers
        const uint64_t *buffer_sizes
        uint64_t num_buffers
    ctypedef struct rows_t:
        const column_t *columns
        uint64_t num_context
        int64_t num_sequences
        uint64_t num_rows
        uint64_t *sections
        uint64_t limit
    int measure_rows(const rows_t *, uint64_t *, uint64_t *, uint64_t *) noexcept
    int fill_rows(const rows_t *, uint64_t, uint64_t, uint64_t, uint8_t *, uint64_t) noexcept

crc_prepare()
cdef frames_extend_fn CRC = frames_paths[crc_best()].extend
cdef object CHANGED = "another thread changed the values while they were written"


def frame(payload):
    """A contiguous buffer as a complete frame."""
    cdef Py_buffer view
    cdef bytes out
    cdef uint8_t *p
    cdef uint64_t size
    PyObject_GetBuffer(payload, &view, PyBUF_SIMPLE)
    try:
        size = view.len
        out = PyBytes_FromStringAndSize(NULL, size + FRAME_OVERHEAD)
        p = <uint8_t *>PyBytes_AS_STRING(out)
        with nogil:
            put_frame_header(p, size, CRC)
            memcpy(p + FRAME_HEADER, view.buf, size)
            put_frame_footer(p + FRAME_HEADER, size, CRC)
    finally:
        PyBuffer_Release(&view)
    return out


# Room before the first entry: the frame's header, and the tag and length of Features.
cdef enum:
    LEAD = 12 + 6
    STACK_VALUES = 64

cdef struct Out:
    uint8_t *data
    uint64_t size
    uint64_t capacity


cdef int grow(Out *out, uint64_t more) except -1:
    """Room for `more` bytes after `size`."""
    cdef uint64_t capacity
    cdef uint8_t *data
    if more <= out.capacity - out.size:
        return 0
    capacity = max(out.capacity + (out.capacity >> 1), out.size + more)
    data = <uint8_t *>PyMem_Realloc(out.data, capacity)
    if data == NULL:
        raise MemoryError()
    out.data = data
    out.capacity = capacity
    return 0


@cython.final
cdef class RecordEncoder:
    """Dicts to frames or payloads.

    `types` maps exact type names to kinds. `check_key(key)`, `split_spec(key, spec, steps) -> (value, kind)`,
    `to_values(key, value, kind, step) -> list of bytes | array` and `to_steps(key, value, kind) -> sequence` hold the
    rules; `too_large(key, size)` raises. `array` is the type of arrays, `ints` and `floats` are scalar types whose
    `__index__` and `__float__` are exact.
    """

    cdef dict types
    cdef object check_key, split_spec, to_values, to_steps, too_large, array
    cdef frozenset ints, floats
    cdef uint64_t hint

    def __init__(self, dict types, check_key, split_spec, to_values, to_steps, too_large, array, frozenset ints,
                 frozenset floats):
        self.types = types
        self.check_key = check_key
        self.split_spec = split_spec
        self.to_values = to_values
        self.to_steps = to_steps
        self.too_large = too_large
        self.array = array
        self.ints = ints
        self.floats = floats
        self.hint = 256

    def encode(self, dict datum, dict sequence, uint64_t limit, bint framed):
        """The payload of one record, or its whole frame."""
        cdef Out out
        cdef uint64_t content, start, size
        out.size = LEAD
        out.capacity = LEAD + self.hint
        out.data = <uint8_t *>PyMem_Malloc(out.capacity)
        if out.data == NULL:
            raise MemoryError()
        try:
            for key, spec in datum.items():
                self.put_entry(&out, key, spec, False, limit)
            content = out.size - LEAD
            start = LEAD - 1 - varint_size(content)
            put_field(out.data + start, TAG_1, content)
            if sequence is not None:
                self.put_lists(&out, sequence, limit)
            size = out.size - start
            if size > limit:
                self.too_large(None, size)
            self.hint = 2 * size if size < (1 << 15) else (1 << 16)
            if not framed:
                return PyBytes_FromStringAndSize(<char *>out.data + start, size)
            grow(&out, FRAME_OVERHEAD - FRAME_HEADER)
            put_frame_header(out.data + start - FRAME_HEADER, size, CRC)
            put_frame_footer(out.data + start, size, CRC)
            return PyBytes_FromStringAndSize(<char *>out.data + start - FRAME_HEADER, size + FRAME_OVERHEAD)
        finally:
            PyMem_Free(out.data)

    cdef int put_lists(self, Out *out, dict sequence, uint64_t limit) except -1:
        cdef uint64_t at = out.size, content
        cdef unsigned head
        grow(out, 6)
        out.size += 6
        for key, spec in sequence.items():
            self.put_entry(out, key, spec, True, limit)
        content = out.size - at - 6
        head = 1 + varint_size(content)
        put_field(out.data + at, TAG_2, content)
        memmove(out.data + at + head, out.data + at + 6, content)
        out.size = at + head + content
        return 0

    cdef int put_entry(self, Out *out, object key, object spec, bint steps, uint64_t limit) except -1:
        """One map entry: a name and its Feature or FeatureList."""
        cdef const char *name = NULL
        cdef Py_ssize_t name_size = 0
        cdef object value = None, kind = None
        if PyUnicode_Check(key):
            try:
                name = PyUnicode_AsUTF8AndSize(key, &name_size)
            except UnicodeEncodeError:
                name = NULL
        if name == NULL:
            self.check_key(key)
            raise RuntimeError("a feature's name was rejected without a reason")
        if PyTuple_CheckExact(spec) and PyTuple_GET_SIZE(spec) == 2:
            value = <object>PyTuple_GET_ITEM(spec, 0)
            name_of_type = <object>PyTuple_GET_ITEM(spec, 1)
            if PyUnicode_CheckExact(name_of_type):
                kind = self.types.get(name_of_type)
        if kind is None:
            value, kind = self.split_spec(key, spec, steps)
            if not kind and not steps:  # a value without a kind means that the record lacks the feature
                return 0
        if steps:
            return self.put_steps(out, key, name, name_size, value, kind, limit)
        return self.put_value(out, key, name, name_size, value, kind, None, limit)

    cdef int put_steps(self, Out *out, object key, const char *name, uint64_t name_size, object value, int kind,
                       uint64_t limit) except -1:
        cdef uint64_t at = out.size, content, entry, head, lead
        cdef uint8_t *p
        cdef object steps = value
        if not PyList_CheckExact(value) and not PyTuple_CheckExact(value):
            steps = self.to_steps(key, value, kind)
        lead = 6 + field_size(name_size) + 6
        grow(out, lead)
        out.size += lead
        for i, step in enumerate(steps):
            if not kind:
                grow(out, 2)
                out.size = put_field(out.data + out.size, TAG_1, 0) - out.data
                continue
            self.put_value(out, key, NULL, 0, step, kind, i, limit)
        content = out.size - at - lead
        entry = field_size(name_size) + field_size(content)
        head = field_size(entry) - content
        p = put_field(put_field(out.data + at, TAG_1, entry), TAG_1, name_size)
        memcpy(p, name, name_size)
        put_field(p + name_size, TAG_2, content)
        memmove(out.data + at + head, out.data + at + lead, content)
        out.size = at + head + content
        return 0

    cdef int put_value(self, Out *out, object key, const char *name, uint64_t name_size, object value, int kind,
                       object step, uint64_t limit) except -1:
        if not self.put_plain(out, key, name, name_size, value, kind, limit):
            value = self.to_values(key, value, kind, step)
            if not self.put_plain(out, key, name, name_size, value, kind, limit):
                raise RuntimeError("values in canonical form were not accepted")
        return 0

    cdef int begin(self, Out *out, object key, const char *name, uint64_t name_size, int kind, uint64_t size,
                   uint64_t limit) except -1:
        """Everything before the content of a list of `size` bytes, and room for it.

        With `name` the Feature is the value of a map entry, without it is a step.
        """
        cdef uint64_t feature = field_size(size), entry
        cdef uint8_t *p
        entry = field_size(feature) if name == NULL else field_size(field_size(name_size) + field_size(feature))
        if size > limit or out.size + entry > limit + LEAD:
            self.too_large(key, out.size + entry - LEAD)
        grow(out, entry)
        p = out.data + out.size
        if name == NULL:
            p = put_field(p, TAG_1, feature)
        else:
            p = put_field(put_field(p, TAG_1, field_size(name_size) + field_size(feature)), TAG_1, name_size)
            memcpy(p, name, name_size)
            p = put_field(p + name_size, TAG_2, feature)
        p = put_field(p, <uint8_t>(kind << 3 | 2), size)
        out.size = p - out.data
        return 0

    cdef int put_plain(self, Out *out, object key, const char *name, uint64_t name_size, object value, int kind,
                       uint64_t limit) except -1:
        """Write a value that needs no rules; if it needs some, return 0 and write nothing."""
        cdef bint many = PyList_CheckExact(value) or PyTuple_CheckExact(value)
        if kind == KIND_BYTES:
            return self.put_strings(out, key, name, name_size, value, many, limit)
        if type(value) is self.array:
            return self.put_array(out, key, name, name_size, value, kind, limit)
        if kind == KIND_INT64:
            return self.put_python_ints(out, key, name, name_size, value, many, limit)
        return self.put_python_floats(out, key, name, name_size, value, many, limit)

    cdef int put_strings(self, Out *out, object key, const char *name, uint64_t name_size, object value, bint many,
                         uint64_t limit) except -1:
        cdef Py_ssize_t i, count = PySequence_Fast_GET_SIZE(value) if many else 1
        cdef const char *data = NULL
        cdef Py_ssize_t length = 0
        cdef uint64_t total = 0
        cdef uint8_t *p
        cdef uint8_t *end
        for i in range(count):
            if not string_of(item_of(value, i) if many else value, &data, &length):
                return 0
            total += field_size(length)
        self.begin(out, key, name, name_size, KIND_BYTES, total, limit)
        p = out.data + out.size
        end = p + total
        for i in range(count):
            item = item_of(value, i) if many else value
            if not string_of(item, &data, &length) or field_size(length) > <uint64_t>(end - p):
                raise RuntimeError(CHANGED)
            p = put_field(p, TAG_1, length)
            memcpy(p, data, length)
            p += length
        if p != end:
            raise RuntimeError(CHANGED)
        out.size += total
        return 1

    cdef int put_python_ints(self, Out *out, object key, const char *name, uint64_t name_size, object value, bint many,
                             uint64_t limit) except -1:
        cdef int64_t few[STACK_VALUES]
        cdef int64_t *numbers = few
        cdef Py_ssize_t i, count = PySequence_Fast_GET_SIZE(value) if many else 1
        if count > STACK_VALUES:
            numbers = <int64_t *>PyMem_Malloc(8 * count)
            if numbers == NULL:
                raise MemoryError()
        try:
            for i in range(count):
                if not self.int_of(item_of(value, i) if many else value, numbers + i):
                    return 0
            self.put_numbers(out, key, name, name_size, KIND_INT64, numbers, count, limit)
        finally:
            if numbers != few:
                PyMem_Free(numbers)
        return 1

    cdef int put_python_floats(self, Out *out, object key, const char *name, uint64_t name_size, object value,
                               bint many, uint64_t limit) except -1:
        cdef float few[STACK_VALUES]
        cdef float *numbers = few
        cdef Py_ssize_t i, count = PySequence_Fast_GET_SIZE(value) if many else 1
        if count > STACK_VALUES:
            numbers = <float *>PyMem_Malloc(4 * count)
            if numbers == NULL:
                raise MemoryError()
        try:
            for i in range(count):
                if not self.float_of(item_of(value, i) if many else value, numbers + i):
                    return 0
            self.put_numbers(out, key, name, name_size, KIND_FLOAT, numbers, count, limit)
        finally:
            if numbers != few:
                PyMem_Free(numbers)
        return 1

    cdef int put_numbers(self, Out *out, object key, const char *name, uint64_t name_size, int kind,
                         const void *values, uint64_t count, uint64_t limit) except -1:
        cdef uint64_t packed = 4 * count if kind == KIND_FLOAT else ints_size(<const int64_t *>values, count)
        cdef uint8_t *p
        cdef uint8_t *end
        self.begin(out, key, name, name_size, kind, packed_size(packed), limit)
        if packed == 0:
            return 0
        p = put_field(out.data + out.size, TAG_1, packed)
        end = p + packed
        if kind == KIND_FLOAT:
            p = put_floats(p, <const float *>values, count)
        else:
            p = put_ints(p, end, <const int64_t *>values, count)
        if p != end:
            raise RuntimeError(CHANGED)
        out.size = end - out.data
        return 0

    cdef int put_array(self, Out *out, object key, const char *name, uint64_t name_size, object value, int kind,
                       uint64_t limit) except -1:
        cdef Py_buffer view
        cdef bint fits
        try:
            PyObject_GetBuffer(value, &view, PyBUF_C_CONTIGUOUS | PyBUF_FORMAT)
        except (ValueError, BufferError):
            return 0  # strided, or of a dtype that has no buffer
        try:
            if kind == KIND_FLOAT:
                fits = view.itemsize == 4 and strcmp(view.format, b"f") == 0
            else:
                fits = view.itemsize == 8 and (strcmp(view.format, b"l") == 0 or strcmp(view.format, b"q") == 0)
            if fits:
                self.put_numbers(out, key, name, name_size, kind, view.buf, view.len // view.itemsize, limit)
        finally:
            PyBuffer_Release(&view)
        return fits

    cdef int int_of(self, object item, int64_t *number) except -1:
        cdef int overflow = 0
        if PyBool_Check(item):
            number[0] = item is True
            return 1
        if not PyLong_CheckExact(item):
            if type(item) not in self.ints:
                return 0
            item = item.__index__()
        number[0] = PyLong_AsLongLongAndOverflow(item, &overflow)
        return overflow == 0

    cdef int float_of(self, object item, float *number) except -1:
        cdef double wide
        if PyFloat_CheckExact(item):
            wide = PyFloat_AS_DOUBLE(item)
        elif PyLong_CheckExact(item) or PyBool_Check(item) or type(item) in self.floats:
            try:
                wide = PyFloat_AsDouble(item)
            except OverflowError:
                return 0
        else:
            return 0
        number[0] = <float>wide
        return not (isinf(number[0]) and not isinf(wide))


cdef inline object item_of(object values, Py_ssize_t i):
    """An item of a list or tuple; a list may have become shorter since its length was read."""
    if i >= PySequence_Fast_GET_SIZE(values):
        raise RuntimeError(CHANGED)
    return <object>PySequence_Fast_GET_ITEM(values, i)


cdef int string_of(object item, const char **data, Py_ssize_t *length) except -1:
    if PyBytes_CheckExact(item):
        data[0] = PyBytes_AS_STRING(item)
        length[0] = PyBytes_GET_SIZE(item)
        return 1
    if PyUnicode_CheckExact(item):
        try:
            data[0] = PyUnicode_AsUTF8AndSize(item, length)
        except UnicodeEncodeError:
            return 0
        return 1
    return 0


@cython.final
cdef class RowEncoder:
    """Rows of columns to frames.

    A column is a tuple `(key, kind, present, steps, splits, width, values, offsets, lengths, ids, buffers)`: `key`
    UTF-8 bytes, `present` uint8 a row or None, `steps` int64 (rows + 1) or None, `splits` int64 (spans + 1) or None
    with `width` values a span, `values` int64 or float32, or None with `offsets`, `lengths` (int64), `ids` (int32 or
    None) of byte strings in `buffers`. Kind 0, with no values, is a column of Features without a kind. The first
    `num_context` columns are the context's where `sequence` is true.
    """

    cdef rows_t rows
    cdef column_t *columns
    cdef list views
    cdef list tables

    def __cinit__(self, list columns, Py_ssize_t num_rows, Py_ssize_t num_context, bint sequence, uint64_t limit):
        cdef Py_ssize_t i
        self.views = []
        self.tables = []
        self.rows.num_rows = num_rows
        self.rows.num_context = num_context
        self.rows.num_sequences = len(columns) - num_context if sequence else -1
        self.rows.limit = limit
        if num_rows < 0 or not 0 <= num_context <= len(columns) or (not sequence and num_context != len(columns)):
            raise ValueError("the counts of rows and columns do not match")
        self.columns = <column_t *>PyMem_Calloc(max(len(columns), 1), sizeof(column_t))
        self.rows.sections = <uint64_t *>PyMem_Calloc(max(2 * num_rows, 1), sizeof(uint64_t))
        if self.columns == NULL or self.rows.sections == NULL:
            raise MemoryError()
        self.rows.columns = self.columns
        for i in range(len(columns)):
            self.take(self.columns + i, columns[i])

    def __dealloc__(self):
        PyMem_Free(self.columns)
        PyMem_Free(self.rows.sections)

    cdef int take(self, column_t *c, object column) except -1:
        """Check what a column promises, and keep its arrays."""
        key, kind, present, steps, splits, width, values, offsets, lengths, ids, buffers = column
        cdef uint64_t rows = self.rows.num_rows
        c.key = bytes_of(self, key, &c.key_size)
        c.kind = kind
        if present is not None:
            c.present = array_of(self, present, 1, rows)
        c.num_spans = rows
        if steps is not None:
            c.steps = <const int64_t *>array_of(self, steps, 8, rows + 1)
            c.num_spans = max(c.steps[rows], 0)
        if kind == KIND_BYTES:
            c.num_values = len(offsets)
            c.offsets = <const int64_t *>array_of(self, offsets, 8, c.num_values)
            c.lengths = <const int64_t *>array_of(self, lengths, 8, c.num_values)
            if ids is not None:
                c.ids = <const int32_t *>array_of(self, ids, 4, c.num_values)
            self.take_buffers(c, buffers)
        else:
            c.num_values = len(values)
            if kind == KIND_INT64:
                c.ints = <const int64_t *>array_of(self, values, 8, c.num_values)
            elif kind == KIND_FLOAT:
                c.floats = <const float *>array_of(self, values, 4, c.num_values)
            elif kind != 0 or c.num_values:
                raise ValueError("no such kind: %r" % (kind,))
        if splits is not None:
            c.splits = <const int64_t *>array_of(self, splits, 8, c.num_spans + 1)
        else:
            c.width = width
            if c.num_spans and c.width > c.num_values // c.num_spans:
                raise ValueError("the column %r has too few values" % (key,))
        return 0

    cdef int take_buffers(self, column_t *c, tuple buffers) except -1:
        cdef uint64_t size, count = len(buffers)
        cdef bytearray places = bytearray((sizeof(uint64_t) + sizeof(void *)) * count)
        cdef uint64_t *sizes = <uint64_t *><char *>places
        cdef const uint8_t **data = <const uint8_t **>(sizes + count)
        self.tables.append(places)
        for i in range(count):
            data[i] = bytes_of(self, buffers[i], &size)
            sizes[i] = size
        c.num_buffers = count
        c.buffers = data
        c.buffer_sizes = sizes
        return 0

    def measure(self, payloads):
        """Fill in the size of each payload; (status, row, column) of the first row that cannot be, status 0 else.

        Status: 1 invalid row splits, 2 a byte string outside its buffer, 3 a payload beyond the limit.
        """
        cdef uint64_t row = 0, column = 0
        cdef Py_buffer view
        cdef int status
        PyObject_GetBuffer(payloads, &view, PyBUF_C_CONTIGUOUS | PyBUF_WRITABLE)
        try:
            if view.itemsize != 8 or <uint64_t>view.len != 8 * self.rows.num_rows:
                raise ValueError("one size of 8 bytes per row is needed")
            with nogil:
                status = measure_rows(&self.rows, <uint64_t *>view.buf, &row, &column)
        finally:
            PyBuffer_Release(&view)
        return status, row, column

    def frames(self, uint64_t start, uint64_t stop, uint64_t step, uint64_t size):
        """Frames of the rows start, start + step, ... below stop, which are `size` bytes together.

        Call this only after `measure` has accepted all rows.
        """
        cdef bytes out
        cdef uint8_t *p
        cdef int status
        if step == 0 or stop > self.rows.num_rows:
            raise IndexError("no such rows")
        out = PyBytes_FromStringAndSize(NULL, size)
        p = <uint8_t *>PyBytes_AS_STRING(out)
        with nogil:
            status = fill_rows(&self.rows, start, stop, step, p, size)
        if status != ROWS_OK:
            raise RuntimeError("another thread changed the columns while they were written")
        return out


cdef const uint8_t *bytes_of(RowEncoder owner, object data, uint64_t *size) except? NULL:
    """Address and size of a flat buffer, which `owner` keeps from now on."""
    cdef object held = memoryview(data)
    cdef Py_buffer view
    owner.views.append(held)
    PyObject_GetBuffer(held, &view, PyBUF_SIMPLE)
    cdef const uint8_t *address = <const uint8_t *>view.buf
    size[0] = view.len
    # The memoryview keeps the buffer alive.
    PyBuffer_Release(&view)
    return address


cdef const uint8_t *array_of(RowEncoder owner, object values, uint64_t itemsize, uint64_t count) except? NULL:
    """Address of an array of exactly `count` items."""
    cdef uint64_t size = 0
    cdef const uint8_t *address = bytes_of(owner, values, &size)
    if count > (<uint64_t>-1) // 16 or size != count * itemsize:
        raise ValueError("an array of %d bytes does not hold %d items of %d bytes" % (size, count, itemsize))
    return address
