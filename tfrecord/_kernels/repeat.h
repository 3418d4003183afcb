/* Records that repeat the form of the one before: the same keys in the same order, each with a plain value.
 *
 * Such a record needs no lookups, and a column with one number per row gets its value without a slot. A record that is
 * not a repeat is read normally, and the next one is compared with it.
 */
#ifndef TFRECORD_REPEAT_H
#define TFRECORD_REPEAT_H

#include "message_scan.h"

/* After this many consecutive records that were not repeats, stop trying in this batch. */
#define REPEAT_MISSES 8
/* How much of a record is prefetched. */
#define REPEAT_AHEAD 1536

/* Learns the entries of the record just read. Every column must occur in it exactly once. */
static void repeat_learn(scan_table *table, uint64_t row) {
    uint32_t covered = 0;
    if (table->unlike) table->unlike[table->num_unlike++] = (int64_t)row;
    table->num_repeated = 0;
    if (table->misses == REPEAT_MISSES || table->place > table->num_guesses) return;
    table->misses++;
    for (uint32_t i = 0; i < table->place; i++) {
        scan_guess *guess = &table->guesses[i];
        scan_column *column;
        if (guess->column < 0) continue;
        column = &table->columns[guess->column];
        if (column->repeats == row + 1) return;
        column->repeats = row + 1;
        guess->slots = column->slots;
        guess->direct = column->direct;
        guess->wanted = (uint8_t)column->kind;
        covered++;
    }
    if (covered == table->num_columns) table->num_repeated = table->place;
}

/* Prefetch the header of a Python object that will be read soon. */
WIRE_INLINE void prefetch_object(const void *object) { __builtin_prefetch(object); }

/* The record that is read some time from now, all of a short one: payloads at random places are in no cache, or only in
 * the large one if their checksums were computed before. */
WIRE_INLINE void record_ahead(const scan_record *record) {
    int64_t reach = record->length < REPEAT_AHEAD ? record->length : REPEAT_AHEAD;
    for (int64_t at = 0; at < reach; at += 64) __builtin_prefetch(record->data + at);
}

/* Writes a value to its row. */
WIRE_INLINE int repeat_put(const scan_guess *guess, uint64_t row, const feature_slot *value) {
    if (!guess->direct) guess->slots[row] = *value;
    else if (value->kind != guess->wanted || value->shape != SLOT_VALUE) return 0;
    else if (value->kind == KIND_FLOAT) ((uint32_t *)guess->direct)[row] = (uint32_t)value->at;
    else ((int64_t *)guess->direct)[row] = (int64_t)value->at;
    return 1;
}

/* Whether the record is a repeat; if so, its row is complete. If not, the row will be overwritten. */
static int repeat_read(scan_table *table, const scan_record *record, uint64_t row) {
    wire_cursor cursor = {record->data, record->data + record->length};
    const scan_guess *guess = table->guesses, *stop = guess + table->num_repeated;
    wire_slice map, value;
    int level = table->level;
    if (guess == stop || record->length < 2) return 0;
    if (*cursor.at++ != 0x0a || wire_take_slice(&cursor, &map) || cursor.at != cursor.end) return 0;
    for (cursor.at = map.data; guess < stop; guess++) {
        const uint8_t *at = cursor.at;
        size_t left = wire_left(&cursor);
        feature_slot slot;
        if (WIRE_LIKELY(guess->size && guess->size <= left)) {
            size_t whole = (size_t)wire_byte(at + 1) + 2;
            cursor.at = at + whole;
            if (guess->column < 0) {
                if (WIRE_LIKELY(entry_fits(guess, at, whole, left))) continue;
            } else if (WIRE_LIKELY(entry_quick(guess, at, whole, left, level, &slot))) {
                if (WIRE_UNLIKELY(!repeat_put(guess, row, &slot))) return 0;
                continue;
            }
        }
        cursor.at = at + entry_value(guess, at, left, &value);
        if (cursor.at == at) return 0;
        if (guess->column >= 0 && !(feature_plain(value, &slot) && repeat_put(guess, row, &slot))) return 0;
    }
    if (cursor.at != cursor.end) return 0;
    table->misses = 0;
    return 1;
}

#endif
