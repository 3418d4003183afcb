/* Memory blocks that are reused: for the arrays of batches, and for scratch space.
 *
 * Consecutive batches need the same sizes. Memory returned to the system comes back page by page, each cleared first,
 * which can take longer than decoding a batch. So a few free blocks are kept, at most BLOCKS_MOST_BYTES in total. The
 * process's other memory is unaffected. Blocks of 2 MiB and more use huge pages if the system has them.
 *
 * Scratch space of some kilobytes comes from malloc and is kept, too: a malloc of 1 kB or more makes glibc merge all the
 * small pieces that were freed before, among them those of NumPy's arrays, which are then cut again.
 */
#ifndef TFRECORD_BLOCKS_H
#define TFRECORD_BLOCKS_H

#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>

#define BLOCKS_LEAST ((size_t)1 << 15)
#ifdef __has_feature
#define BLOCKS_CHECKED __has_feature(address_sanitizer)
#elif defined(__SANITIZE_ADDRESS__)
#define BLOCKS_CHECKED 1
#else
#define BLOCKS_CHECKED 0
#endif
/* Smaller ones are left to malloc; under a sanitizer all are, so that each has its exact size. */
#define SCRATCH_LEAST ((size_t)(BLOCKS_CHECKED ? BLOCKS_LEAST : 1 << 10))
#define SCRATCH_CLASSES 6               /* powers of two */
#define SCRATCH_MOST 8                  /* that are kept of each */
#define BLOCKS_HUGE ((size_t)1 << 21)
#define BLOCKS_MOST 256
#define BLOCKS_MOST_BYTES ((size_t)256 << 20)

/* Columns of one batch are written a row at a time, so they must not all begin at the same offset in a page: they would
 * share one cache set. */
#define BLOCKS_LINE ((size_t)64)
#define BLOCKS_PLACES ((size_t)61)

/* The header before each block, in its own cache line. */
typedef union {
    struct {
        size_t capacity; /* total size, including what is before this header; of scratch space the size after it, or 0 */
        void *start;
    } of;
    uint8_t line[BLOCKS_LINE];
} block_head;

static struct {
    pthread_mutex_t lock;
    block_head *free[BLOCKS_MOST]; /* the most recently returned block is last */
    size_t count, bytes, turn;
    block_head *scratch[SCRATCH_CLASSES][SCRATCH_MOST];
    size_t scratch_count[SCRATCH_CLASSES];
} blocks = {PTHREAD_MUTEX_INITIALIZER, {0}, 0, 0, 0, {{0}}, {0}};

static void blocks_lock(void) { pthread_mutex_lock(&blocks.lock); }

static void blocks_unlock(void) { pthread_mutex_unlock(&blocks.lock); }

/* Call once, before the first block is taken: a fork waits until no thread is at work here, so that the child finds
 * the lock free and the lists whole. Threads that scan records take blocks without the GIL. 0, or an error number. */
static inline int blocks_start(void) { return pthread_atfork(blocks_lock, blocks_unlock, blocks_unlock); }

/* Sizes in steps of an eighth, so that batches of nearly the same size share blocks. */
static size_t block_capacity(size_t size) {
    size_t step = BLOCKS_LEAST / 8;
    while (step < size / 16) step *= 2;
    if (size >= BLOCKS_HUGE && step < BLOCKS_HUGE) step = BLOCKS_HUGE;
    return (size + step - 1) / step * step;
}

static void block_release(block_head *head) {
    if (head->of.capacity < BLOCKS_HUGE) free(head->of.start);
    else munmap(head->of.start, head->of.capacity);
}

static void *block_map(size_t capacity) {
    uint8_t *whole = (uint8_t *)mmap(NULL, capacity + BLOCKS_HUGE, PROT_READ | PROT_WRITE,
                                     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    size_t before;
    if (whole == MAP_FAILED) return NULL;
    before = (BLOCKS_HUGE - (uintptr_t)whole % BLOCKS_HUGE) % BLOCKS_HUGE;
    if (before) munmap(whole, before);
    if (before < BLOCKS_HUGE) munmap(whole + before + capacity, BLOCKS_HUGE - before);
#ifdef MADV_HUGEPAGE
    madvise(whole + before, capacity, MADV_HUGEPAGE);
#endif
    return whole + before;
}

static void *scratch_take(size_t size) {
    block_head *head = NULL;
    size_t class = 0, capacity = SCRATCH_LEAST;
    if (size >= SCRATCH_LEAST) {
        for (; capacity < size; capacity *= 2) class++;
        pthread_mutex_lock(&blocks.lock);
        if (blocks.scratch_count[class]) head = blocks.scratch[class][--blocks.scratch_count[class]];
        pthread_mutex_unlock(&blocks.lock);
        if (head) return head + 1;
        size = capacity;
    } else {
        capacity = 0;
    }
    head = (block_head *)malloc(size + sizeof *head);
    if (!head) return NULL;
    head->of.capacity = capacity;
    return head + 1;
}

static void scratch_give(block_head *head) {
    size_t class = 0;
    if (head->of.capacity) {
        while (SCRATCH_LEAST << class < head->of.capacity) class++;
        pthread_mutex_lock(&blocks.lock);
        if (blocks.scratch_count[class] < SCRATCH_MOST) {
            blocks.scratch[class][blocks.scratch_count[class]++] = head;
            head = NULL;
        }
        pthread_mutex_unlock(&blocks.lock);
    }
    free(head);
}

/* Like malloc: at least this many bytes, or NULL. */
static void *block_take(size_t size) {
    block_head *head = NULL;
    size_t capacity, turn;
    uint8_t *start;
    if (size > SIZE_MAX / 4) return NULL;
    if (size <= BLOCKS_LEAST) return scratch_take(size);
    capacity = block_capacity(size + BLOCKS_LINE * BLOCKS_PLACES);
    pthread_mutex_lock(&blocks.lock);
    for (size_t i = blocks.count; i-- && !head;) {
        if (blocks.free[i]->of.capacity != capacity) continue;
        head = blocks.free[i];
        blocks.bytes -= capacity;
        blocks.count--;
        for (; i < blocks.count; i++) blocks.free[i] = blocks.free[i + 1];
        break;
    }
    turn = blocks.turn++;
    pthread_mutex_unlock(&blocks.lock);
    if (head) return head + 1;
    start = (uint8_t *)(capacity >= BLOCKS_HUGE ? block_map(capacity) : malloc(capacity));
    if (!start) return NULL;
    head = (block_head *)((uintptr_t)(start + BLOCKS_LINE - 1) / BLOCKS_LINE * BLOCKS_LINE) + turn * 7 % (BLOCKS_PLACES - 2);
    head->of.capacity = capacity;
    head->of.start = start;
    return head + 1;
}

/* Returns memory from `block_take`; NULL does nothing. If there are too many free blocks, the oldest is freed. */
static void block_give(void *memory) {
    block_head *head, *old[BLOCKS_MOST];
    size_t count = 0;
    if (!memory) return;
    head = (block_head *)memory - 1;
    if (head->of.capacity <= BLOCKS_LEAST) {
        scratch_give(head);
        return;
    }
    if (head->of.capacity > BLOCKS_MOST_BYTES / 2) {
        block_release(head);
        return;
    }
    pthread_mutex_lock(&blocks.lock);
    while (count < blocks.count &&
           (blocks.count - count == BLOCKS_MOST || blocks.bytes + head->of.capacity > BLOCKS_MOST_BYTES)) {
        old[count] = blocks.free[count];
        blocks.bytes -= old[count++]->of.capacity;
    }
    blocks.count -= count;
    for (size_t i = 0; count && i < blocks.count; i++) blocks.free[i] = blocks.free[i + count];
    blocks.free[blocks.count++] = head;
    blocks.bytes += head->of.capacity;
    pthread_mutex_unlock(&blocks.lock);
    while (count) block_release(old[--count]);
}

#endif
