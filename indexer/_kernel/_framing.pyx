# cython: language_level=3, boundscheck=False, wraparound=False, autotestdict=False, binding=True
"""The bottom kernel: turns the frames of a buffer into offsets and lengths; CRC-32C; maps of files.

It takes buffers, arrays and integers, and returns counts, a status and a position. It imports none of our Python.
`path` chooses how the CRC is computed: an index into `PATHS`, -1 for the best of this machine.
"""

cimport cython
from cpython.buffer cimport (
    PyBUF_C_CONTIGUOUS,
    PyBUF_FORMAT,
    PyBUF_SIMPLE,
    PyBUF_WRITABLE,
    PyBuffer_FillInfo,
    PyBuffer_Release,
    PyObject_GetBuffer,
)
from cpython.exc cimport PyErr_SetFromErrno
from libc.errno cimport ENOMEM
from libc.string cimport memcpy
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t


cdef extern from "framing.h" nogil:
    ctypedef uint32_t (*frames_extend_fn)(uint32_t, const uint8_t *, size_t) noexcept nogil
    ctypedef int (*frames_scan_fn)(const uint8_t *, uint64_t, uint64_t, uint64_t, int, int, uint64_t *, uint64_t *,
                                   uint64_t *, uint64_t, uint64_t *, uint64_t *) noexcept nogil
    ctypedef int (*frames_check_one_fn)(const uint8_t *, uint64_t, uint64_t, uint64_t, int) noexcept nogil
    ctypedef int (*frames_check_fn)(const uint8_t *, uint64_t, const uint64_t *, const uint64_t *, uint64_t, int,
                                    uint64_t *) noexcept nogil
    ctypedef struct frames_path:
        const char *name
        frames_extend_fn extend
        frames_scan_fn scan
        frames_check_one_fn check_one
        frames_check_fn check
    const frames_path frames_paths[]
    void crc_prepare() noexcept
    int crc_best() noexcept

cdef extern from "textindex.h" nogil:
    int TEXT_LINE_MAX
    uint64_t text_parse(const uint8_t *, uint64_t, uint64_t *, uint64_t *, uint64_t, uint64_t *) noexcept
    uint64_t text_format(const uint64_t *, const uint64_t *, uint64_t, uint8_t *) noexcept

cdef extern from "filemap.h" nogil:
    int MADV_WILLNEED, MADV_DONTNEED
    const uint8_t *filemap_open(int, uint64_t) noexcept
    void filemap_close(const uint8_t *, uint64_t) noexcept
    int filemap_advise(const uint8_t *, uint64_t, uint64_t, int) noexcept
    int64_t filemap_size(int) noexcept

crc_prepare()
cdef int BEST = crc_best()
PATHS = tuple([frames_paths[i].name.decode() for i in range(BEST + 1)])
_ADVICE = {
    "willneed": MADV_WILLNEED,
    "dontneed": MADV_DONTNEED,
}
# Below this many bytes releasing the GIL costs more than the work.
cdef Py_ssize_t SMALL = 4096


@cython.final
@cython.internal
@cython.auto_pickle(False)
cdef class _Numbers:
    """The memory of a contiguous array of uint64. With typed memoryviews the kernel would be twice as large."""

    cdef Py_buffer view
    cdef uint64_t *at
    cdef uint64_t count

    def __cinit__(self, array, bint writable=False):
        PyObject_GetBuffer(array, &self.view, PyBUF_C_CONTIGUOUS | PyBUF_FORMAT | (PyBUF_WRITABLE if writable else 0))
        if (
            self.view.ndim != 1 or self.view.itemsize != 8 or self.view.format == NULL
            or self.view.format[0] not in (c"L", c"Q")
        ):
            raise ValueError("an array of uint64 is needed")
        self.at = <uint64_t *>self.view.buf
        self.count = <uint64_t>self.view.shape[0]

    def __dealloc__(self):
        PyBuffer_Release(&self.view)


cdef int _pair(_Numbers first, _Numbers second) except -1:
    if first.count != second.count:
        raise ValueError("offsets and lengths differ in size")
    return 0


cdef const frames_path *_choose(int path) except NULL:
    if path < -1 or path > BEST:
        raise ValueError("no such CRC path on this machine: %d" % path)
    return &frames_paths[BEST if path == -1 else path]


def crc32c(data, uint32_t value=0, *, int path=-1):
    """CRC-32C of a contiguous buffer, continued from `value`."""
    cdef const frames_path *way = _choose(path)
    cdef Py_buffer view
    cdef uint32_t crc
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        if view.len < SMALL:
            crc = way.extend(value, <const uint8_t *>view.buf, view.len)
        else:
            with nogil:
                crc = way.extend(value, <const uint8_t *>view.buf, view.len)
    finally:
        PyBuffer_Release(&view)
    return crc


def scan(buffer, uint64_t start, uint64_t limit, offsets, lengths, int verify,
         bint final, checksums=None, *, int path=-1):
    """Fill the arrays with the frames that begin at `start`; (count, end, status)."""
    cdef const frames_path *way = _choose(path)
    cdef Py_buffer view
    cdef _Numbers starts = _Numbers(offsets, True), sizes = _Numbers(lengths, True), stored = None
    cdef uint64_t count = 0, end = start
    cdef uint64_t *to = NULL
    cdef int status = 0
    _pair(starts, sizes)
    if checksums is not None:
        stored = _Numbers(checksums, True)
        _pair(starts, stored)
        to = stored.at
    PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
    try:
        if start > <uint64_t>view.len:
            raise ValueError("start is beyond the end of the buffer")
        limit = min(limit, <uint64_t>view.len)
        if starts.count > 0 and start < limit:
            with nogil:
                status = way.scan(<const uint8_t *>view.buf, view.len, start, limit, verify, final, starts.at, sizes.at,
                                  to, starts.count, &count, &end)
    finally:
        PyBuffer_Release(&view)
    return count, end, status


def check_frame(buffer, uint64_t offset, uint64_t length, int verify, *, int path=-1):
    """Status of the frame at `offset`, whose payload should have `length` bytes."""
    cdef const frames_path *way = _choose(path)
    cdef Py_buffer view
    cdef int status
    PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
    try:
        if length < <uint64_t>SMALL:
            status = way.check_one(<const uint8_t *>view.buf, view.len, offset, length, verify)
        else:
            with nogil:
                status = way.check_one(<const uint8_t *>view.buf, view.len, offset, length, verify)
    finally:
        PyBuffer_Release(&view)
    return status


def check_frames(buffer, offsets, lengths, int verify, *, int path=-1):
    """(position, status) of the first frame that is not what the arrays say; status 0 if all are."""
    cdef const frames_path *way = _choose(path)
    cdef Py_buffer view
    cdef _Numbers starts = _Numbers(offsets), sizes = _Numbers(lengths)
    cdef uint64_t place = 0
    cdef int status = 0
    _pair(starts, sizes)
    PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
    try:
        with nogil:
            status = way.check(<const uint8_t *>view.buf, view.len, starts.at, sizes.at, starts.count, verify, &place)
    finally:
        PyBuffer_Release(&view)
    return place, status


def slices(buffer, offsets, lengths, uint64_t shift=0):
    """Read-only memoryviews of `lengths[i]` bytes at `offsets[i] + shift`; each keeps `buffer` alive."""
    cdef object whole = memoryview(buffer).toreadonly()
    cdef _Numbers starts = _Numbers(offsets), sizes = _Numbers(lengths)
    cdef uint64_t size = <uint64_t>whole.nbytes, at
    cdef Py_ssize_t i
    cdef list found = [None] * <Py_ssize_t>starts.count
    _pair(starts, sizes)
    for i in range(<Py_ssize_t>starts.count):
        at = starts.at[i] + shift
        if at < shift or at > size or sizes.at[i] > size - at:
            raise IndexError("slice %d is outside the buffer" % i)
        found[i] = whole[<Py_ssize_t>at:<Py_ssize_t>(at + sizes.at[i])]
    return found


def footers(buffer, offsets, lengths):
    """The stored payload checksums of the frames at `offsets`, 4 bytes each, in order."""
    cdef Py_buffer view
    cdef _Numbers starts = _Numbers(offsets), sizes = _Numbers(lengths)
    cdef uint64_t at, size
    cdef bytearray out = bytearray(4 * starts.count)
    cdef uint8_t *to = out
    cdef Py_ssize_t i, bad = -1
    _pair(starts, sizes)
    PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
    try:
        size = <uint64_t>view.len
        with nogil:
            for i in range(<Py_ssize_t>starts.count):
                at = starts.at[i]
                if size < 16 or at > size - 16 or sizes.at[i] > size - 16 - at:
                    bad = i
                    break
                at += 12 + sizes.at[i]
                memcpy(to + 4 * i, <const uint8_t *>view.buf + at, 4)
    finally:
        PyBuffer_Release(&view)
    if bad >= 0:
        raise IndexError("frame %d is outside the buffer" % bad)
    return bytes(out)


def parse_text(data, offsets, sizes):
    """Fill the arrays from lines of "offset size"; (count, 0), or (0, number from 1 of the first invalid line)."""
    cdef Py_buffer view
    cdef _Numbers starts = _Numbers(offsets, True), lengths = _Numbers(sizes, True)
    cdef uint64_t count = 0, line = 0
    _pair(starts, lengths)
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        with nogil:
            line = text_parse(<const uint8_t *>view.buf, view.len, starts.at, lengths.at, starts.count, &count)
    finally:
        PyBuffer_Release(&view)
    if line:
        return 0, line
    return count, 0


def format_text(offsets, sizes):
    """Lines of "offset size" as bytes."""
    cdef _Numbers starts = _Numbers(offsets), lengths = _Numbers(sizes)
    cdef bytearray out = bytearray(starts.count * TEXT_LINE_MAX)
    cdef uint8_t *to = out
    cdef uint64_t used
    _pair(starts, lengths)
    with nogil:
        used = text_format(starts.at, lengths.at, starts.count, to)
    return out[:used]


# Live maps of this process, and the most that are allowed. The system allows about 65,530; a process that
# reaches that can no longer allocate memory.
cdef Py_ssize_t live_maps = 0
MOST_MAPS = 16384


def file_size(int descriptor):
    """Current size of an open file; -1 if unknown."""
    cdef int64_t size
    with nogil:
        size = filemap_size(descriptor)
    return size


cdef class FileMap:
    """A file mapped for reading through the buffer protocol; it keeps no descriptor.

    The map lives as long as this object or any view of it. OSError if too many are alive.
    """

    cdef const uint8_t *_base
    cdef readonly uint64_t size

    def __cinit__(self, int fd, uint64_t size):
        global live_maps
        if live_maps >= MOST_MAPS:
            raise OSError(ENOMEM, "too many mapped files")
        self.size = size
        self._base = filemap_open(fd, size)
        if self._base == NULL:
            PyErr_SetFromErrno(OSError)
        live_maps += 1

    def __dealloc__(self):
        global live_maps
        if self._base != NULL:
            live_maps -= 1
        filemap_close(self._base, self.size)

    def __getbuffer__(self, Py_buffer *view, int flags):
        PyBuffer_FillInfo(view, self, <void *>self._base, <Py_ssize_t>self.size, 1, flags)

    def __reduce__(self):
        raise TypeError("a map of a file cannot be pickled")

    def __len__(self):
        return self.size

    def advise(self, uint64_t offset, uint64_t length, str advice):
        """madvise(2) for a range; False if the system refuses, which does no harm."""
        cdef int code = _ADVICE[advice], result
        if offset > self.size or length > self.size - offset:
            raise IndexError("range is outside the map")
        with nogil:
            result = filemap_advise(self._base, offset, length, code)
        return result == 0
