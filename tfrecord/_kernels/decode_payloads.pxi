# The places of a batch's payloads: included by decode.pyx.

cdef class _Payloads:
    """The places of the payloads; holds the buffers as long as it lives."""

    cdef scan_record *records
    cdef Py_ssize_t count
    cdef uint64_t num_bytes
    cdef Py_buffer *views
    cdef Py_ssize_t num_views

    def __cinit__(self, tuple buffers, object offsets, object lengths, object buffer_ids):
        cdef Py_ssize_t num_buffers = len(buffers), i
        if offsets is None:
            self.hold_all(buffers)
            return
        cdef Py_ssize_t count = len(offsets)
        offsets = _contiguous(offsets, count, _INT64)
        lengths = _contiguous(lengths, count, _INT64)
        cdef const int64_t *starts = <const int64_t *> _address(offsets)
        cdef const int64_t *sizes = <const int64_t *> _address(lengths)
        cdef const int32_t *ids = NULL
        if buffer_ids is not None:
            buffer_ids = _contiguous(buffer_ids, count, _INT32)
            ids = <const int32_t *> _address(buffer_ids)
        cdef scan_record *held = <scan_record *> malloc((num_buffers + 1) * sizeof(scan_record))
        self.records = <scan_record *> block_take(count * sizeof(scan_record))
        if held == NULL or self.records == NULL:
            free(held)
            raise MemoryError
        try:
            for i in range(num_buffers):
                self.hold(buffers[i], &held[i], num_buffers)
        except BaseException:
            free(held)
            raise
        cdef Py_ssize_t bad = -1
        with nogil:
            for i in range(count):
                if not place_record(&self.records[i], held, num_buffers, starts[i], sizes[i], ids[i] if ids else 0):
                    bad = i
                    break
                self.num_bytes += <uint64_t> self.records[i].length
        free(held)
        if bad >= 0:
            raise ValueError(f"payload {bad} lies outside its buffer")
        self.count = count

    cdef int hold_all(self, tuple buffers) except -1:
        """Every buffer is a payload."""
        cdef Py_ssize_t num_buffers = len(buffers), i
        cdef scan_record *record
        cdef PyObject *item
        self.records = <scan_record *> block_take(num_buffers * sizeof(scan_record))
        if self.records == NULL:
            raise MemoryError
        for i in range(num_buffers):
            record = &self.records[i]
            item = PyTuple_GET_ITEM(buffers, i)
            if i + 8 < num_buffers:
                prefetch_object(PyTuple_GET_ITEM(buffers, i + 8))
            if PyBytes_CheckExact(<object> item):
                record.data = <const uint8_t *> PyBytes_AS_STRING(<object> item)
                record.length = PyBytes_GET_SIZE(<object> item)
            else:
                self.hold(<object> item, record, num_buffers)
            record.base = record.data
            record.buffer = <int32_t> i
            self.num_bytes += <uint64_t> record.length
        self.count = num_buffers
        return 0

    cdef int hold(self, object buffer, scan_record *held, Py_ssize_t most) except -1:
        cdef Py_buffer *view
        if PyBytes_CheckExact(buffer):
            held.data = <const uint8_t *> PyBytes_AS_STRING(buffer)
            held.length = PyBytes_GET_SIZE(buffer)
            return 0
        if self.views == NULL:
            self.views = <Py_buffer *> block_take(most * sizeof(Py_buffer))
            if self.views == NULL:
                raise MemoryError
        view = &self.views[self.num_views]
        PyObject_GetBuffer(buffer, view, PyBUF_SIMPLE)
        self.num_views += 1
        held.data = <const uint8_t *> view.buf if view.buf != NULL else &_NOTHING
        held.length = view.len
        return 0

    def __dealloc__(self):
        cdef Py_ssize_t i
        for i in range(self.num_views):
            PyBuffer_Release(&self.views[i])
        block_give(self.views)
        block_give(self.records)


cdef inline bint place_record(scan_record *record, const scan_record *held, Py_ssize_t num_buffers, int64_t start,
                              int64_t size, int32_t buffer) noexcept nogil:
    if buffer < 0 or buffer >= num_buffers:
        return False
    if start < 0 or size < 0 or size > held[buffer].length or start > held[buffer].length - size:
        return False
    record.data = held[buffer].data + start
    record.length = size
    record.base = held[buffer].data
    record.buffer = buffer
    return True
