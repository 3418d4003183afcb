/* Fuzzes the decoding kernels without an interpreter: Examples, and with -DLISTS SequenceExamples.
 *
 * Inputs are those of `check_messages` in scripts/fuzz.py: the first byte says what is asked for, the second where the
 * rest is cut into two records. Each batch is decoded at the level of the input and at the portable one, as the kernel
 * does it; both must agree with each other, with the records decoded one by one, and with the check that decodes nothing.
 */
#include <stdio.h>
#include <stdlib.h>

#define SCAN_MAX_GUESSES 16
#define CHUNK_NEAR 100 /* so that a few short records are several parts */
#include "../../tfrecord/_kernels/classify.h"
#include "../../tfrecord/_kernels/survey.h"
#include "../../tfrecord/_kernels/validate.h"

#define MOST_ROWS 6
#define REQUIRE(what) \
    do { \
        if (!(what)) { \
            fprintf(stderr, "%s:%d: %s does not hold\n", __FILE__, __LINE__, #what); \
            abort(); \
        } \
    } while (0)

typedef struct {
    const char *key;
    int kind;
    int64_t count;
    const void *fallback;
} request;

static const uint64_t nothing = 0;
static const request SOME[] = {{"a", 3, -1, NULL}, {"b", 2, 1, &nothing}, {"cc", 0, -1, NULL}, {"", 1, -1, NULL}};
static const request MORE[] = {{"a", 3, 2, NULL}, {"key_of_more_than_sixteen_bytes", 1, 1, NULL}};

static void *allocate(size_t size) {
    void *memory = malloc(size ? size : 1);
    REQUIRE(memory);
    return memory;
}

static void prepare(scan_table *table, const request *columns, uint32_t count, int64_t rows, int level, int is_lists) {
    memset(table, 0, sizeof *table);
    table->seed = 7;
    table->level = level;
    table->rows = rows;
    table->is_lists = is_lists;
    table->discover = !columns;
    table->most_cells = 1 << 20;
    table->max_guesses = rows > 1 ? SCAN_MAX_GUESSES : 0;
    if (count) {
        table->columns = (scan_column *)block_take(count * sizeof *table->columns);
        REQUIRE(table->columns);
        memset(table->columns, 0, count * sizeof *table->columns);
        table->num_columns = table->capacity = count;
        for (uint32_t i = 0; i < count; i++) {
            scan_column *column = &table->columns[i];
            column->key = (const uint8_t *)columns[i].key;
            column->key_length = (uint32_t)strlen(columns[i].key);
            column->kind = columns[i].kind;
            column->count = columns[i].count;
            column->fallback = columns[i].fallback;
        }
        REQUIRE(!table_rehash(table, 16));
    }
    REQUIRE(!table_prepare(table));
}

static void **held; /* the values of the columns of a chunk, also those that no column points to any more */
static size_t num_held;
static int with_room; /* whether ragged columns have room for one value per slot, as they do in the kernel */

static void *allocate_held(size_t size) {
    held = (void **)realloc(held, (num_held + 1) * sizeof *held);
    REQUIRE(held);
    return held[num_held++] = allocate(size);
}

static void make_values(column_output *out, int kind, size_t count) {
    if (kind == KIND_FLOAT) out->sink.floats = (uint32_t *)allocate_held(4 * count);
    if (kind == KIND_INT64) out->sink.ints = (int64_t *)allocate_held(8 * count);
    if (kind == KIND_BYTES) {
        out->sink.offsets = (int64_t *)allocate_held(8 * count);
        out->sink.lengths = (int64_t *)allocate_held(8 * count);
        out->buffers = (int32_t *)allocate_held(4 * count);
    }
}

/* Memory for a column, of exactly the right size, so that the sanitizer detects any access beyond it. */
static void make_room(decode_chunk *chunk, int t, uint32_t i) {
    scan_column *column = &chunk->tables[t].columns[i];
    column_output *out = &chunk->outputs[t][i];
    size_t slots = (size_t)column->num_slots;
    int kind = column->kind;
    out->present = (uint8_t *)allocate(slots);
    out->kind = kind;
    out->level = out->sink.level = chunk->tables[t].level;
    if (column->count < 0) {
        out->splits = (int64_t *)allocate(8 * slots);
        if (!kind && chunk->rows && slots && column->slots[0].shape > SLOT_NO_KIND) kind = column->slots[0].kind;
        if (with_room && !(t && kind == KIND_BYTES)) make_values(out, kind, slots);
        return;
    }
    make_values(out, kind, slots * (size_t)column->count);
    if (column->count == 1 && chunk->num_tables == 1 && column->kind != KIND_BYTES) {
        column->direct = column->kind == KIND_FLOAT ? (void *)out->sink.floats : (void *)out->sink.ints;
        memset(out->present, 1, slots);
    }
}

static void make_room_for_values(const scan_column *column, column_output *out) {
    out->filled = out->sink.floats || out->sink.ints || out->sink.offsets;
    if (out->filled) REQUIRE(out->total == column->num_slots);
    else make_values(out, out->kind, (size_t)out->total);
    out->sink.limit = out->total;
}

static void release(decode_chunk *chunk) {
    for (int t = 0; t < chunk->num_tables; t++) {
        for (uint32_t i = 0; chunk->outputs[t] && i < chunk->tables[t].num_columns; i++) {
            free(chunk->outputs[t][i].present);
            free(chunk->outputs[t][i].splits);
        }
    }
    while (num_held) free(held[--num_held]);
    chunk_free(chunk);
}

/* A hash of the columns: equal for equal columns. `records` are all those of the batch. */
static uint64_t digest_of(const decode_chunk *chunk, const scan_record *records) {
    uint64_t digest = 7;
    for (int t = 0; t < chunk->num_tables; t++) {
        for (uint32_t i = 0; i < chunk->tables[t].num_columns; i++) {
            const scan_column *column = &chunk->tables[t].columns[i];
            const column_output *out = &chunk->outputs[t][i];
            size_t slots = (size_t)column->num_slots;
            size_t values = column->count < 0 ? (size_t)out->total : slots * (size_t)column->count;
            digest = scan_hash(out->present, slots, digest);
            if (out->splits) digest = scan_hash((const uint8_t *)out->splits, 8 * slots, digest);
            if (out->sink.floats) digest = scan_hash((const uint8_t *)out->sink.floats, 4 * values, digest);
            if (out->sink.ints) digest = scan_hash((const uint8_t *)out->sink.ints, 8 * values, digest);
            for (size_t k = 0; out->sink.offsets && k < values; k++) {
                const scan_record *record = &records[out->buffers[k]];
                REQUIRE(out->sink.offsets[k] >= 0 && out->sink.lengths[k] >= 0);
                REQUIRE(out->sink.offsets[k] + out->sink.lengths[k] <= record->length);
                digest = scan_hash(record->data + out->sink.offsets[k], (size_t)out->sink.lengths[k], digest);
            }
        }
    }
    return digest;
}

/* Decodes the records; returns the status of the first failure, else 0. `bad` as in decode_chunk. */
static int decode(const request *columns, uint32_t count, scan_record *records, int64_t rows, int level, uint8_t *bad,
                  int64_t *good, uint64_t *digest) {
    decode_chunk chunk = {0};
    scan_record all[MOST_ROWS]; /* the chunk moves its own records if bad ones are left out */
    int planned = 0, status;
    memcpy(all, records, (size_t)rows * sizeof *all);
    chunk.num_tables = 1;
    chunk.records = records;
    chunk.count = rows;
    chunk.bad = bad;
    prepare(&chunk.tables[0], columns, count, rows, level, 0);
#ifdef LISTS
    chunk.num_tables = 2;
    prepare(&chunk.tables[1], columns, count, rows, level, 1);
#endif
    for (;;) {
        if (planned || chunk.num_tables == 2 || !columns) chunk_run(&chunk, CHUNK_SCAN);
        if (chunk.fault.status) break;
        for (int t = 0; t < chunk.num_tables; t++) {
            size_t size = chunk.tables[t].num_columns * sizeof(column_output);
            chunk.outputs[t] = (column_output *)block_take(size);
            REQUIRE(chunk.outputs[t]);
            memset(chunk.outputs[t], 0, size);
            for (uint32_t i = 0; i < chunk.tables[t].num_columns; i++) make_room(&chunk, t, i);
        }
        chunk_run(&chunk, chunk.num_tables == 1 && columns ? CHUNK_SCAN | CHUNK_COUNT : CHUNK_COUNT);
        if (chunk.fault.status) break;
        for (int t = 0; t < chunk.num_tables; t++)
            for (uint32_t i = 0; i < chunk.tables[t].num_columns; i++)
                if (chunk.tables[t].columns[i].count < 0)
                    make_room_for_values(&chunk.tables[t].columns[i], &chunk.outputs[t][i]);
        chunk_run(&chunk, CHUNK_FILL);
        break;
    }
    status = chunk.fault.status;
    REQUIRE(status != WIRE_CHANGED && status != WIRE_NO_MEMORY);
    *good = chunk.count;
    if (!status) *digest = digest_of(&chunk, all);
    release(&chunk);
    return status;
}

static int classify(const scan_record *record) {
    int found = record_class(record);
    REQUIRE(found >= RECORD_INVALID && found <= RECORD_FOREIGN);
    return found;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    scan_record records[MOST_ROWS], copies[MOST_ROWS];
    static const int order[2][MOST_ROWS] = {{0, 1, 0, 0, 0, 0}, {0, 1, 1, 1, 0, 0}};
    uint8_t statuses[MOST_ROWS], bad[MOST_ROWS] = {0}, *halves[2];
    uint64_t digests[3] = {0};
    int64_t good = 0, rows, valid = 0;
    size_t cut, lengths[2];
    int level, found, again;
    const request *columns = NULL;
    uint32_t count = 0;
    if (size < 2) return 0;
    cut = data[1] * (size - 2) / 255;
    lengths[0] = cut;
    lengths[1] = size - 2 - cut;
    for (int i = 0; i < 2; i++) {
        halves[i] = (uint8_t *)allocate(lengths[i]);
        memcpy(halves[i], data + 2 + (i ? cut : 0), lengths[i]);
    }
    if ((data[0] & 3) == 1) columns = SOME, count = 4;
    if ((data[0] & 3) == 2) columns = MORE, count = 2;
    if ((data[0] & 3) == 3) columns = SOME, count = 1;
    level = data[0] >> 2 & 3;
    if (level > varints_best_level()) level = varints_best_level();
    rows = data[0] & 16 ? 6 : 2;
    for (int64_t i = 0; i < rows; i++) {
        int half = order[data[0] & 16 ? 1 : 0][i];
        records[i].data = records[i].base = halves[half];
        records[i].length = (int64_t)lengths[half];
        records[i].buffer = (int32_t)i;
    }
    memcpy(copies, records, sizeof records);
    REQUIRE(!records_check(records, rows, statuses));
    if (data[0] & 64) REQUIRE(!classify(&records[1]) || !statuses[1]);
    with_room = 1;
    found = decode(columns, count, records, rows, level, NULL, &good, &digests[0]);
    with_room = 0;
    if (level) {
        again = decode(columns, count, records, rows, 0, NULL, &good, &digests[1]);
        REQUIRE(found == again && digests[0] == digests[1]);
    }
    for (int64_t i = 0; i < rows; i++) {
        valid += !statuses[i];
        REQUIRE(statuses[i] == statuses[i > 3 || !i ? 0 : rows > 2 ? 1 : i]);
    }
    if (valid == rows) REQUIRE(!found || found > WIRE_TOO_MANY);
    if (!found && !(data[0] & 32)) goto done;
    again = decode(columns, count, copies, rows, level, bad, &good, &digests[2]);
    for (int64_t i = 0; i < rows; i++) {
        REQUIRE(!bad[i] || statuses[i]);
        if (!again) good += bad[i] != 0;
    }
    if (!again) REQUIRE(good == rows);
    if (!found) REQUIRE(!again && digests[0] == digests[2]);
done:
    free(halves[0]);
    free(halves[1]);
    return 0;
}
