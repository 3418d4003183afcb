/* Statistics of a file's features: which kinds, in how many records, how many values. Values are not decoded. */
#ifndef TFRECORD_SCHEMA_H
#define TFRECORD_SCHEMA_H

#include "chunk.h"

typedef struct {
    int64_t present;
    int64_t least, most;               /* values per record; for a feature list, steps */
    int64_t least_values, most_values; /* for a feature list, values per step */
    uint32_t kinds;                    /* bits 1 << kind */
} schema_entry;

typedef struct {
    int64_t count;
    int seen;   /* SEEN_FEATURES, SEEN_LISTS: in any record */
    int status; /* why the record at `count` is not a valid message */
} schema_state;

/* Reads records into discovering tables; stops at an invalid message. */
static void schema_scan(scan_table *features, scan_table *lists, const scan_record *records, int64_t count,
                        schema_state *state) {
    for (int64_t row = 0; row < count; row++) {
        int seen;
        state->status = record_read(features, lists, &records[row], (uint64_t)row, &seen);
        if (state->status) return;
        state->seen |= seen;
        state->count++;
    }
}

WIRE_INLINE void schema_range(int64_t value, int64_t *least, int64_t *most) {
    if (value < *least) *least = value;
    if (value > *most) *most = value;
}

/* One column over the first `rows` records. */
static int schema_column(const scan_table *table, const scan_column *column, int64_t rows, int level,
                         schema_entry *entry) {
    int64_t slots = table->is_lists ? column->steps[rows] : rows;
    entry->least = entry->least_values = INT64_MAX;
    entry->most = entry->most_values = -1;
    for (int64_t i = 0; i < slots; i++) {
        const feature_slot *slot = &column->slots[i];
        feature_sink counted = {0};
        int status;
        if (slot->shape <= SLOT_NO_KIND) {
            if (table->is_lists) schema_range(0, &entry->least_values, &entry->most_values);
            continue;
        }
        counted.level = level;
        if (slot->shape == SLOT_VALUE || slot->shape == SLOT_ONE) counted.count = 1;
        else if ((status = slot_check(slot)) || (status = slot_values(slot, &table->parts, table->is_lists ? 4 : 3, &counted)))
            return status;
        entry->kinds |= 1u << slot->kind;
        if (table->is_lists) {
            schema_range(counted.count, &entry->least_values, &entry->most_values);
        } else {
            entry->present++;
            schema_range(counted.count, &entry->least, &entry->most);
        }
    }
    for (int64_t row = 0; table->is_lists && row < rows; row++) {
        if (!column->listed[row]) continue;
        entry->present++;
        schema_range(column->steps[row + 1] - column->steps[row], &entry->least, &entry->most);
    }
    return WIRE_OK;
}

#endif
