# cython: language_level=3, boundscheck=False, wraparound=False, autotestdict=False, binding=True
"""The bottom kernel: turns the frames of a buffer into offsets and lengths; CRC-32C; maps of files.

It takes buffers, arrays and integers, and returns counts, a status and a position. It imports none of our Python.
`path` chooses how the CRC is computed: an index into `PATHS`, -1 for the best of this machine.
"""

from cpython.buffer cimport (
    PyBUF_SIMPLE,
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


def scan(buffer, uint64_t start, uint64_t limit, uint64_t[::1] offsets, uint64_t[::1] lengths, int verify,
         bint final, uint64_t[::1] checksums=None, *, int path=-1):
    """Fill the arrays with the frames that begin at `start`; (count, end, status)."""
    cdef const frames_path *way = _choose(path)
    cdef Py_buffer view
    cdef uint64_t count = 0, end = start, capacity = <uint64_t>offsets.shape[0]
    cdef int status = 0
    cdef uint64_t *stored = NULL
    if lengths.shape[0] != offsets.shape[0] or (checksums is not None and checksums.shape[0] != offsets.shape[0]):
        raise ValueError("offsets and lengths differ in size")
    if checksums is not None and capacity > 0:
        stored = &checksums[0]
    PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
    try:
        if start > <uint64_t>view.len:
            raise ValueError("start is beyond the end of the buffer")
        limit = min(limit, <uint64_t>view.len)
        if capacity > 0 and start < limit:
            with nogil:
                status = way.scan(<const uint8_t *>view.buf, view.len, start, limit, verify, final, &offsets[0],
                                  &lengths[0], stored, capacity, &count, &end)
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


def check_frames(buffer, const uint64_t[::1] offsets, const uint64_t[::1] lengths, int verify, *, int path=-1):
    """(position, status) of the first frame that is not what the arrays say; status 0 if all are."""
    cdef const frames_path *way = _choose(path)
    cdef Py_buffer view
    cdef uint64_t place = 0, count = <uint64_t>offsets.shape[0]
    cdef int status = 0
    if lengths.shape[0] != offsets.shape[0]:
        raise ValueError("offsets and lengths differ in size")
    PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
    try:
        if count > 0:
            with nogil:
                status = way.check(<const uint8_t *>view.buf, view.len, &offsets[0], &lengths[0], count, verify,
                                   &place)
    finally:
        PyBuffer_Release(&view)
    return place, status


def slices(buffer, const uint64_t[::1] offsets, const uint64_t[::1] lengths, uint64_t shift=0):
    """Read-only memoryviews of `lengths[i]` bytes at `offsets[i] + shift`; each keeps `buffer` alive."""
    cdef object whole = memoryview(buffer).toreadonly()
    cdef uint64_t size = <uint64_t>whole.nbytes, at
    cdef Py_ssize_t i, count = offsets.shape[0]
    cdef list found = [None] * count
    if lengths.shape[0] != count:
        raise ValueError("offsets and lengths differ in size")
    for i in range(count):
        at = offsets[i] + shift
        if at < shift or at > size or lengths[i] > size - at:
            raise IndexError("slice %d is outside the buffer" % i)
        found[i] = whole[<Py_ssize_t>at:<Py_ssize_t>(at + lengths[i])]
    return found


def footers(buffer, const uint64_t[::1] offsets, const uint64_t[::1] lengths):
    """The stored payload checksums of the frames at `offsets`, 4 bytes each, in order."""
    cdef Py_buffer view
    cdef Py_ssize_t i, count = offsets.shape[0]
    cdef uint64_t at, size
    cdef bytearray out
    cdef uint8_t *to
    cdef Py_ssize_t bad = -1
    if lengths.shape[0] != count:
        raise ValueError("offsets and lengths differ in size")
    if count == 0:
        return b""
    out = bytearray(4 * count)
    to = out
    PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
    try:
        size = <uint64_t>view.len
        with nogil:
            for i in range(count):
                if size < 16 or offsets[i] > size - 16 or lengths[i] > size - 16 - offsets[i]:
                    bad = i
                    break
                at = offsets[i] + 12 + lengths[i]
                memcpy(to + 4 * i, <const uint8_t *>view.buf + at, 4)
    finally:
        PyBuffer_Release(&view)
    if bad >= 0:
        raise IndexError("frame %d is outside the buffer" % bad)
    return bytes(out)


def parse_text(data, uint64_t[::1] offsets, uint64_t[::1] sizes):
    """Fill the arrays from lines of "offset size"; (count, 0), or (0, number from 1 of the first invalid line)."""
    cdef Py_buffer view
    cdef uint64_t count = 0, line = 0
    if offsets.shape[0] != sizes.shape[0] or offsets.shape[0] == 0:
        raise ValueError("offsets and sizes must have the same size, not 0")
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        with nogil:
            line = text_parse(<const uint8_t *>view.buf, view.len, &offsets[0], &sizes[0], offsets.shape[0], &count)
    finally:
        PyBuffer_Release(&view)
    if line:
        return 0, line
    return count, 0


def format_text(const uint64_t[::1] offsets, const uint64_t[::1] sizes):
    """Lines of "offset size" as bytes."""
    cdef Py_ssize_t count = offsets.shape[0]
    cdef bytearray out
    cdef uint8_t *start
    cdef uint64_t used
    if sizes.shape[0] != count:
        raise ValueError("offsets and sizes differ in size")
    if count == 0:
        return b""
    out = bytearray(count * TEXT_LINE_MAX)
    start = out
    with nogil:
        used = text_format(&offsets[0], &sizes[0], count, start)
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
