/* From slots to columns: kinds and counts are checked, then values go into arrays of the right size.
 *
 * A ragged column is counted first (column_count) and filled when its array is there (column_fill). It may have room for
 * one value per slot from the start: as long as each slot has just one, values are put there while they are counted. A
 * dense column has its array from the start (column_dense).
 */
#ifndef TFRECORD_COLUMN_H
#define TFRECORD_COLUMN_H

#include "repeat.h"

typedef struct {
    int status;
    int64_t slot; /* the first bad slot */
    int64_t first, second;
} column_fault;

typedef struct {
    uint8_t *present; /* one per slot */
    int64_t *splits;  /* ragged: values until the end of each slot, from `total` on */
    int64_t total;
    int kind; /* the requested one, or else the first one found */
    int level;
    int64_t done;      /* slots that were counted or decoded; of a direct column, rows that were no repeats */
    feature_sink sink; /* dense: the whole column; ragged: room for one value per slot, or nowhere */
    int filled;        /* ragged: that room was enough */
    int32_t *buffers;  /* of byte strings: which buffer */
} column_output;

static int fault_at(column_fault *fault, int status, int64_t slot, int64_t first, int64_t second) {
    fault->status = status;
    fault->slot = slot;
    fault->first = first;
    fault->second = second;
    return status;
}

/* Whether the kind of a slot matches; a column of any kind takes the first kind found. */
WIRE_INLINE int column_kind(
    const scan_column *column, int64_t slot, column_output *out, column_fault *fault) {
    int kind = column->slots[slot].kind;
    if (WIRE_LIKELY(kind == out->kind)) return WIRE_OK;
    if (out->kind == KIND_UNKNOWN) {
        out->kind = kind;
        return WIRE_OK;
    }
    return fault_at(fault, column->kind ? WIRE_KIND_MISMATCH : WIRE_KIND_CONFLICT, slot, out->kind, kind);
}

/* The values of the next slot before `end` will be needed soon. */
WIRE_INLINE void column_ahead(const scan_column *column, int64_t i, int64_t end) {
    const feature_slot *next = &column->slots[i + 1 < end ? i + 1 : i];
    if (next->shape != SLOT_RUN || next->length < 256) return;
    for (uint32_t at = 0; at < 1024 && at < next->length; at += 64) __builtin_prefetch(slot_data(next) + at);
}

/* Nothing more is put into a ragged column while it is counted. */
WIRE_INLINE void column_no_room(feature_sink *sink) {
    sink->ints = sink->offsets = NULL;
    sink->floats = NULL;
}

static int column_count(const scan_table *table, const scan_column *column, const scan_record *records, int64_t end,
                        column_output *out, column_fault *fault) {
    int depth = table->is_lists ? 4 : 3;
    int64_t total = out->total;
    feature_sink *sink = &out->sink;
    for (int64_t i = out->done; i < end; i++) {
        const feature_slot *slot = &column->slots[i];
        int has = slot->shape > SLOT_NO_KIND;
        out->present[i] = (uint8_t)has;
        if (WIRE_LIKELY(has)) {
            int status = column_kind(column, i, out, fault);
            if (status) return status;
            if (WIRE_LIKELY(slot->shape == SLOT_VALUE)) {
                if (sink->ints) sink->ints[total] = (int64_t)slot->at;
                else if (sink->floats) sink->floats[total] = (uint32_t)slot->at;
                total++;
            } else if (WIRE_LIKELY(slot->shape == SLOT_ONE)) {
                if (sink->offsets) {
                    sink->offsets[total] = (int64_t)(slot_data(slot) - records[i].base);
                    sink->lengths[total] = (int64_t)slot->length;
                    if (out->buffers) out->buffers[total] = records[i].buffer;
                }
                total++;
            } else {
                feature_sink counted = {0};
                counted.level = out->level;
                column_no_room(sink);
                if (slot->kind == KIND_INT64) column_ahead(column, i, end);
                status = slot_values(slot, &table->parts, depth, &counted);
                if (status) return fault_at(fault, status, i, 0, 0);
                total += counted.count;
            }
        } else {
            column_no_room(sink);
        }
        out->splits[i] = total;
    }
    out->total = total;
    out->done = end;
    return WIRE_OK;
}

/* Write the values of all slots, exactly `out->total`, into the sink of `out`. */
static int column_fill(const scan_table *table, const scan_column *column, const scan_record *records,
                       column_output *out, column_fault *fault) {
    int depth = table->is_lists ? 4 : 3;
    feature_sink sink = out->sink;
    int64_t row = 0;
    for (int64_t i = 0; i < column->num_slots; i++) {
        const feature_slot *slot = &column->slots[i];
        int64_t before = sink.count;
        int status;
        if (slot->shape <= SLOT_NO_KIND) continue;
        if (slot->shape == SLOT_VALUE && sink.count < sink.limit && !sink.offsets) {
            if (sink.floats) sink.floats[sink.count++] = (uint32_t)slot->at;
            else sink.ints[sink.count++] = (int64_t)slot->at;
            continue;
        }
        column_ahead(column, i, column->num_slots);
        if (sink.offsets) {
            if (!table->is_lists) row = i;
            else while (i >= column->steps[row + 1]) row++;
            sink.base = records[row].base;
        }
        if (WIRE_LIKELY(slot->shape == SLOT_ONE)) status = sink_bytes(&sink, slot_data(slot), slot->length);
        else status = slot_values(slot, &table->parts, depth, &sink);
        if (status) return fault_at(fault, status, i, 0, 0);
        if (out->buffers)
            for (int64_t k = before; k < sink.count; k++) out->buffers[k] = records[row].buffer;
    }
    if (sink.count != sink.limit) return fault_at(fault, WIRE_CHANGED, 0, 0, 0);
    return WIRE_OK;
}

/* One row of a dense column that is not a single value of the requested kind. */
static int dense_row(const scan_table *table, const scan_column *column, const scan_record *record, int64_t i,
                     column_output *out, column_fault *fault) {
    const feature_slot *slot = &column->slots[i];
    int depth = table->is_lists ? 4 : 3;
    int64_t count = column->count;
    feature_sink sink = out->sink, counted = {0};
    int status;
    sink.count = i * count;
    /* A run may write beyond its row, over later rows, but not over rows that are already written. */
    sink.limit = (column->direct ? i + 1 : column->num_slots) * count;
    sink.base = record->base;
    out->present[i] = slot->shape > SLOT_NO_KIND;
    if (out->present[i] && (status = column_kind(column, i, out, fault))) return status;
    if (slot->shape == SLOT_RUN && slot->length && !slot_values(slot, &table->parts, depth, &sink) &&
        sink.count == (i + 1) * count)
        return WIRE_OK;
    counted.level = out->level;
    if ((status = slot_values(slot, &table->parts, depth, &counted))) return fault_at(fault, status, i, 0, 0);
    sink.count = i * count;
    if (!counted.count && (count || !out->present[i])) {
        if (!column->fallback) /* 0 absent, 1 empty, 2 without a kind */
            return fault_at(fault, WIRE_MISSING, i, slot->shape == SLOT_NO_KIND ? 2 : out->present[i], 0);
        if (sink.floats && count) memcpy(sink.floats + sink.count, column->fallback, 4 * (size_t)count);
        if (sink.ints && count) memcpy(sink.ints + sink.count, column->fallback, 8 * (size_t)count);
        return WIRE_OK;
    }
    if (counted.count != count) return fault_at(fault, WIRE_WRONG_COUNT, i, count, counted.count);
    if ((status = slot_values(slot, &table->parts, depth, &sink))) return fault_at(fault, status, i, 0, 0);
    if (sink.count != (i + 1) * count) return fault_at(fault, WIRE_CHANGED, i, 0, 0);
    if (out->buffers)
        for (int64_t k = i * count; k < sink.count; k++) out->buffers[k] = record->buffer;
    return WIRE_OK;
}

static int column_dense(const scan_table *table, const scan_column *column, const scan_record *records, int64_t end,
                        column_output *out, column_fault *fault) {
    int64_t row = 0, count = column->direct ? table->num_unlike : end;
    for (int64_t k = out->done; k < count; k++) {
        int64_t i = column->direct ? table->unlike[k] : k; /* repeats are already in their rows */
        const feature_slot *slot = &column->slots[i];
        int status;
        if (WIRE_LIKELY(slot->shape == SLOT_VALUE && column->count == 1 && slot->kind == out->kind)) {
            out->present[i] = 1;
            if (out->kind == KIND_FLOAT) out->sink.floats[i] = (uint32_t)slot->at;
            else out->sink.ints[i] = (int64_t)slot->at;
            continue;
        }
        if (!table->is_lists) row = i;
        else while (i >= column->steps[row + 1]) row++;
        if (WIRE_LIKELY(slot->shape == SLOT_ONE && column->count == 1 && out->kind == KIND_BYTES)) {
            out->present[i] = 1;
            out->sink.offsets[i] = (int64_t)(slot_data(slot) - records[row].base);
            out->sink.lengths[i] = (int64_t)slot->length;
            if (out->buffers) out->buffers[i] = records[row].buffer;
            continue;
        }
        column_ahead(column, i, end);
        status = dense_row(table, column, &records[row], i, out, fault);
        if (status) return status;
    }
    out->done = count;
    return WIRE_OK;
}

/* The record of a slot. */
static int64_t column_row(const scan_table *table, const scan_column *column, int64_t slot) {
    int64_t row = 0;
    if (!table->is_lists) return slot;
    while (row + 1 < table->rows && slot >= column->steps[row + 1]) row++;
    return row;
}

#endif
