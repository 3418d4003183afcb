/* Read-only maps of files, which keep no descriptor. */
#ifndef INDEXER_FILEMAP_H
#define INDEXER_FILEMAP_H

#include <errno.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static const uint8_t filemap_nothing[1] = {0};

static const uint8_t *filemap_open(int fd, uint64_t size) {
    if (size == 0) return filemap_nothing;
    if (size > (uint64_t)SIZE_MAX / 2) {
        errno = ENOMEM;
        return NULL;
    }
    void *base = mmap(NULL, (size_t)size, PROT_READ, MAP_SHARED, fd, 0);
    return base == MAP_FAILED ? NULL : (const uint8_t *)base;
}

static void filemap_close(const uint8_t *base, uint64_t size) {
    if (base != NULL && size != 0) munmap((void *)base, (size_t)size);
}

/* Pages that hold [offset, offset + length), which must lie inside the map. */
static int filemap_advise(const uint8_t *base, uint64_t offset, uint64_t length, int advice) {
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t from = ((uintptr_t)base + offset) & ~(page - 1);
    uintptr_t to = (uintptr_t)base + offset + length;
    return length == 0 ? 0 : madvise((void *)from, to - from, advice);
}

/* Current size of an open file; -1 if unknown. */
static int64_t filemap_size(int fd) {
    struct stat st;
    return fstat(fd, &st) == 0 ? (int64_t)st.st_size : -1;
}

#endif
