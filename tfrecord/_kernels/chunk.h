/* Some consecutive records of a batch, decoded by one thread: from their bytes to slots, from slots to columns. */
#ifndef TFRECORD_CHUNK_H
#define TFRECORD_CHUNK_H

#include "column.h"

/* The steps for a chunk, as bits. The first two alternate if both are asked for. */
enum { CHUNK_SCAN = 1, CHUNK_COUNT = 2, CHUNK_FILL = 4 };

typedef struct {
    scan_table tables[2];
    int num_tables;
    column_output *outputs[2];
    scan_record *records;
    int64_t first, count;
    int64_t scanned, rows; /* records so far, and those of them that were not left out */
    uint8_t *bad; /* a status for each record if invalid records are left out; else null */
    /* The first failure: status 0 for none. */
    column_fault fault;
    int fault_table;
    int64_t fault_column, fault_row;
} decode_chunk;

/* Undo the traces of an invalid record. It added the columns from `known` on. */
WIRE_COLD void table_undo(scan_table *table, uint32_t known, uint64_t row) {
    uint32_t discovered = table->num_columns - known;
    for (uint32_t i = 0; i < known; i++) {
        scan_column *column = &table->columns[i];
        if (column->seen == row + 1) column->seen = 0;
        if (!table->is_lists) continue;
        column->num_slots = column->steps[row];
        column->listed[row] = 0;
    }
    table->num_repeated = table->num_guesses = 0;
    if (!discovered) return;
    for (uint32_t i = known; i < table->num_columns; i++) column_free(&table->columns[i], table->is_lists);
    table->num_columns = known;
    memset(table->buckets, 0, table->num_buckets * sizeof *table->buckets);
    for (uint32_t i = 0; i < known; i++) table_insert(table, i);
}

/* Leaves out an invalid record, if requested. `row` is the row that it would have had. */
WIRE_COLD int chunk_leave_out(decode_chunk *chunk, int64_t place, const uint32_t *known, uint64_t row, int status) {
    if (!chunk->bad || status == WIRE_NO_MEMORY || status == WIRE_TOO_MANY) return 0;
    chunk->bad[place] = (uint8_t)status;
    for (int t = 0; t < chunk->num_tables; t++) table_undo(&chunk->tables[t], known[t], row);
    return 1;
}

/* Records of about this many bytes are scanned, then decoded while they and their slots are in a near cache. */
#ifndef CHUNK_NEAR
#define CHUNK_NEAR ((int64_t)512 << 10)
#endif

/* Scans the next records, of `most` bytes or a bit more. */
static void chunk_scan(decode_chunk *chunk, int64_t most) {
    scan_table *features = &chunk->tables[0];
    scan_table *lists = chunk->num_tables == 2 ? &chunk->tables[1] : NULL;
    int64_t row = chunk->rows, i = chunk->scanned;
    for (; i < chunk->count && most > 0; i++) {
        const scan_record *record = &chunk->records[i];
        uint32_t known[2] = {features->num_columns, lists ? lists->num_columns : 0};
        int seen, status;
        most -= record->length;
        if (i + 2 < chunk->count) record_ahead(record + 2);
        if (chunk->bad) chunk->records[row] = *record;
        if (lists || !repeat_read(features, record, (uint64_t)row)) {
            status = record_read(features, lists, record, (uint64_t)row, &seen);
            if (WIRE_UNLIKELY(status)) {
                if (chunk_leave_out(chunk, i, known, (uint64_t)row, status)) continue;
                chunk->fault.status = status;
                chunk->fault_row = i;
                chunk->fault_column = -1;
                return;
            }
            if (!lists) repeat_learn(features, (uint64_t)row);
        }
        row++;
    }
    chunk->scanned = i;
    chunk->rows = row;
    if (i < chunk->count || row == i) return;
    chunk->count = row;
    features->rows = row;
    for (uint32_t i = 0; i < features->num_columns; i++) features->columns[i].num_slots = row;
    if (lists) lists->rows = row;
}

static void chunk_keep_fault(decode_chunk *chunk, int table, int64_t column, int64_t row, const column_fault *fault) {
    if (chunk->fault.status && row >= chunk->fault_row) return;
    chunk->fault = *fault;
    chunk->fault_table = table;
    chunk->fault_column = column;
    chunk->fault_row = row;
}

/* Counts ragged columns and decodes dense ones, as far as records were scanned, or (`fill`) fills the ragged ones. */
static void chunk_take(decode_chunk *chunk, int fill) {
    for (int t = 0; t < chunk->num_tables; t++) {
        scan_table *table = &chunk->tables[t];
        for (uint32_t i = 0; i < table->num_columns; i++) {
            scan_column *column = &table->columns[i];
            column_output *out = &chunk->outputs[t][i];
            column_fault fault = {0};
            int64_t end = table->is_lists ? column->num_slots : chunk->rows;
            int status;
            if (fill) status = column->count >= 0 || out->filled ? 0 : column_fill(table, column, chunk->records, out, &fault);
            else if (column->count >= 0) status = column_dense(table, column, chunk->records, end, out, &fault);
            else status = column_count(table, column, chunk->records, end, out, &fault);
            if (status) chunk_keep_fault(chunk, t, i, column_row(table, column, fault.slot), &fault);
        }
    }
}

static void chunk_run(decode_chunk *chunk, int steps) {
    int64_t most = steps & CHUNK_COUNT ? CHUNK_NEAR : INT64_MAX;
    do {
        if (steps & CHUNK_SCAN) chunk_scan(chunk, most);
        if (steps & CHUNK_COUNT && !chunk->fault.status) chunk_take(chunk, 0);
    } while (steps & CHUNK_SCAN && chunk->scanned < chunk->count && !chunk->fault.status);
    if (steps & CHUNK_FILL && !chunk->fault.status) chunk_take(chunk, 1);
}

static void chunk_free(decode_chunk *chunk) {
    for (int t = 0; t < 2; t++) {
        table_free(&chunk->tables[t]);
        block_give(chunk->outputs[t]);
    }
}

#endif
