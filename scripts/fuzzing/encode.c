/* Fuzzes the encoder of columns without an interpreter, with arrays of any content, including invalid splits and offsets.
 * Exactly as many bytes as measured must be written, and the frames must be valid. */
#include <stdio.h>
#include <stdlib.h>

#include "../../tfrecord/_kernels/encode.h"

#define REQUIRE(what) \
    do { \
        if (!(what)) { \
            fprintf(stderr, "%s:%d: %s does not hold\n", __FILE__, __LINE__, #what); \
            abort(); \
        } \
    } while (0)

typedef struct {
    const uint8_t *at, *end;
} input;

static uint8_t next(input *in) { return in->at < in->end ? *in->at++ : 0; }

/* An array of `count` numbers, each from one byte of the input, or from the next eight if that byte is 255. */
static int64_t *numbers(input *in, size_t count) {
    int64_t *array = (int64_t *)malloc(count ? 8 * count : 1);
    REQUIRE(array);
    for (size_t i = 0; i < count; i++) {
        array[i] = next(in);
        if (array[i] == 254) array[i] = -1;
        if (array[i] != 255) continue;
        for (int k = 0; k < 8; k++) array[i] = (int64_t)((uint64_t)array[i] << 8 | next(in));
    }
    return array;
}

/* Splits that increase, except for a step of 255. */
static int64_t *splits(input *in, size_t count) {
    int64_t *array = (int64_t *)malloc(8 * count), total = 0;
    REQUIRE(array);
    for (size_t i = 0; i < count; i++) {
        uint8_t step = next(in);
        array[i] = total;
        total = step == 255 ? total - 3 : total + step % 5;
    }
    return array;
}

typedef struct {
    void *memory[8];
    size_t count;
    uint64_t buffer_size;
    const uint8_t *buffer;
} held;

static void *hold(held *owner, void *memory) { return owner->memory[owner->count++] = memory; }

static void fill_column(column_t *c, held *owner, input *in, uint64_t rows, int lists) {
    uint8_t mode = next(in);
    c->kind = 1 + mode % 3;
    c->key = (const uint8_t *)"a key of one hundred and twenty-eight bytes, so that its length takes two bytes, as "
                              "does that of the entry around it, and of the values in it";
    c->key_size = mode & 4 ? 128 : mode >> 5;
    c->num_spans = rows;
    if (mode & 8) {
        uint8_t *present = (uint8_t *)hold(owner, malloc(rows ? rows : 1));
        REQUIRE(present);
        for (uint64_t i = 0; i < rows; i++) present[i] = next(in) & 1;
        c->present = present;
    }
    if (lists) {
        c->steps = (int64_t *)hold(owner, splits(in, rows + 1));
        c->num_spans = c->steps[rows] < 0 ? 0 : (uint64_t)c->steps[rows];
    }
    c->num_values = next(in) % 32;
    if (mode & 16) c->splits = (int64_t *)hold(owner, splits(in, c->num_spans + 1));
    else c->width = c->num_spans ? c->num_values / c->num_spans : 0;
    if (c->kind == KIND_INT64) c->ints = (int64_t *)hold(owner, numbers(in, c->num_values));
    if (c->kind == KIND_FLOAT) {
        float *floats = (float *)hold(owner, malloc(c->num_values ? 4 * c->num_values : 1));
        REQUIRE(floats);
        for (uint64_t i = 0; i < c->num_values; i++) floats[i] = next(in);
        c->floats = floats;
    }
    if (c->kind != KIND_BYTES) return;
    c->offsets = (int64_t *)hold(owner, numbers(in, c->num_values));
    c->lengths = (int64_t *)hold(owner, numbers(in, c->num_values));
    owner->buffer_size = next(in);
    owner->buffer = (const uint8_t *)hold(owner, calloc(owner->buffer_size + 1, 1));
    REQUIRE(owner->buffer);
    c->buffers = &owner->buffer;
    c->buffer_sizes = &owner->buffer_size;
    c->num_buffers = 1;
}

int LLVMFuzzerInitialize(int *argc, char ***argv) {
    (void)argc;
    (void)argv;
    crc_prepare();
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    column_t columns[4] = {{0}};
    held owners[4] = {{{0}, 0, 0, 0}};
    uint64_t sections[2 * 8], payloads[8], row, place, total = 0;
    rows_t rows = {columns, 0, -1, 0, sections, 1 << 20};
    input in = {data, data + size};
    uint64_t count;
    int status;
    uint8_t mode = next(&in);
    rows.num_rows = mode % 8;
    count = mode >> 3 & 3;
    rows.num_context = count;
    if (mode & 32) {
        rows.num_context = count / 2;
        rows.num_sequences = (int64_t)(count - rows.num_context);
    }
    if (mode & 64) rows.limit = next(&in);
    memset(sections, 0, sizeof sections);
    for (uint64_t i = 0; i < count; i++) fill_column(&columns[i], &owners[i], &in, rows.num_rows, i >= rows.num_context);
    status = measure_rows(&rows, payloads, &row, &place);
    if (!status) {
        uint8_t *out, *at;
        for (row = 0; row < rows.num_rows; row++) {
            REQUIRE(payloads[row] <= rows.limit);
            total += payloads[row] + FRAME_OVERHEAD;
        }
        out = at = (uint8_t *)malloc(total ? total : 1);
        REQUIRE(out && fill_rows(&rows, 0, rows.num_rows, 1, out, total) == ROWS_OK);
        for (row = 0; row < rows.num_rows; row++) {
            REQUIRE(!frames_paths[0].check_one(out, total, (uint64_t)(at - out), payloads[row], VERIFY_ALL));
            at += payloads[row] + FRAME_OVERHEAD;
        }
        if (total) REQUIRE(fill_rows(&rows, 0, rows.num_rows, 1, out, total - 1) == ROWS_CHANGED);
        free(out);
    } else {
        REQUIRE(status <= ROWS_TOO_LARGE && row < rows.num_rows && place <= count);
    }
    for (uint64_t i = 0; i < 4; i++)
        while (owners[i].count) free(owners[i].memory[--owners[i].count]);
    return 0;
}
