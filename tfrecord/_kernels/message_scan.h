/* The structural pass: records to slots, one for each column and record.
 *
 * Entries of the expected form are recognized by a few word comparisons. Entries that were not requested are skipped by
 * their length. An entry of an unusual form gets a complete walk, never an error.
 */
#ifndef TFRECORD_SCAN_H
#define TFRECORD_SCAN_H

#include "key_table.h"

static int steps_read(scan_table *table, scan_column *column, wire_slice list) {
    wire_cursor cursor = {list.data, list.data + list.length};
    while (cursor.at < cursor.end) {
        feature_slot *slot;
        wire_slice step;
        int status;
        if (*cursor.at == 0x0a) {
            cursor.at++;
            if ((status = wire_take_slice(&cursor, &step))) return status;
        } else {
            wire_field field;
            if ((status = wire_next(&cursor, 3, &field))) return status;
            if (field.number != 1 || field.type != TYPE_BYTES) continue;
            step = field.content;
        }
        if (column->num_slots == column->capacity) {
            int64_t capacity = column->capacity ? 2 * column->capacity : 256;
            slot = (feature_slot *)realloc(column->slots, (size_t)capacity * sizeof *slot);
            if (!slot) return WIRE_NO_MEMORY;
            column->slots = slot;
            column->capacity = capacity;
        }
        slot = &column->slots[column->num_slots];
        if (!feature_plain(step, slot)) {
            if ((status = parts_add(&table->parts, step))) return status;
            if ((status = feature_read(&table->parts, 1, 4, slot))) return status;
        }
        column->num_slots++;
    }
    return WIRE_OK;
}

/* The value of a map entry: the last `count` parts. What it replaces is checked first, as its values are never read. */
static int entry_put(scan_table *table, int32_t index, uint64_t row, size_t count) {
    scan_column *column = &table->columns[index];
    int64_t first = table->is_lists ? column->steps[row] : (int64_t)row;
    size_t start = table->parts.count - count;
    int status = WIRE_OK;
    if (column->seen == row + 1) {
        int64_t last = table->is_lists ? column->num_slots : first + 1;
        for (int64_t i = first; i < last && !status; i++) status = slot_check(&column->slots[i]);
        if (status) return status;
    } else {
        column->turn = table->found++;
        column->seen = row + 1;
    }
    if (!table->is_lists) return feature_read(&table->parts, count, 3, &column->slots[row]);
    column->num_slots = first;
    column->listed[row] = 1;
    for (size_t i = 0; i < count; i++) {
        wire_slice part = table->parts.items[start + i];
        if ((status = steps_read(table, column, part))) return status;
    }
    if (table->parts.count == start + count) table->parts.count = start;
    return WIRE_OK;
}

/* An entry of any form: the last key counts, all values are merged, other fields are ignored. */
WIRE_COLD int entry_walk(scan_table *table, wire_slice entry, uint64_t row) {
    wire_cursor cursor = {entry.data, entry.data + entry.length};
    wire_slice key = {entry.data, 0};
    size_t count = 0;
    int valid = 1, status;
    int32_t index;
    while (cursor.at < cursor.end) {
        wire_field field;
        if ((status = wire_next(&cursor, 2, &field))) return status;
        if (field.type != TYPE_BYTES) continue;
        if (field.number == 1) {
            key = field.content;
            valid = valid && wire_valid_utf8(key.data, key.length);
        } else if (field.number == 2) {
            if ((status = parts_add(&table->parts, field.content))) return status;
            count++;
        }
    }
    if ((status = table_find(table, key.data, key.length, row, &index))) return status;
    if (index >= 0) return valid ? entry_put(table, index, row, count) : WIRE_BAD_UTF8;
    table->parts.count -= count;
    return WIRE_OK;
}

/* A quick entry is 0a F 0a K key 12 V tag L 0a P value, with lengths of one byte: of the entry, the key, the feature,
 * its list and its packed run (or byte string). One to skip is 0a F 0a K key 12 V feature. For one key, all lengths but
 * K grow with that of the value: by these, in the last 8 bytes before it. */
#define QUICK_LENGTHS 0x0100010001000000u
#define SKIP_LENGTHS 0x0100000000000000u
#define QUICK_KEY 64

/* The 7-bit groups of 8 bytes pulled together. */
WIRE_INLINE uint64_t quick_varint(uint64_t word, int level) {
#if VARINTS_X86
    if (WIRE_LIKELY(level > SIMD_PORTABLE)) { /* inline assembly, so that this need not be compiled twice */
        __asm__("pext %2, %1, %0" : "=r"(word) : "r"(word), "r"((uint64_t)0x7f7f7f7f7f7f7f7fu));
        return word;
    }
#endif
    (void)level;
    word &= 0x7f7f7f7f7f7f7f7fu;
    word = (word & 0x007f007f007f007fu) | (word & 0x7f007f007f007f00u) >> 1;
    word = (word & 0x00003fff00003fffu) | (word & 0x3fff00003fff0000u) >> 2;
    return (word & 0x0fffffffu) | (word & 0x0fffffff00000000u) >> 4;
}

/* A varint of exactly `length` bytes, before which there are 8 that can be read: nothing behind it is. */
WIRE_INLINE int quick_int(const uint8_t *data, size_t length, int level, uint64_t *value) {
    const uint64_t more = 0x8080808080808080u;
    if (WIRE_LIKELY(length - 1 < 8)) {
        uint64_t word = load64(data + length - 8) >> 8 * (8 - length);
        *value = quick_varint(word, level);
        return (word & more) == (more & (((uint64_t)1 << 8 * (length - 1)) - 1));
    }
    return length - 1 < 10 && plain_varint(data, length, value);
}

/* Whether what comes before the value is as expected. The length of the whole, from which that of the value follows, is
 * read first and alone, so that the processor goes on to the next entry before all this is compared. */
WIRE_INLINE int entry_fits(const scan_guess *guess, const uint8_t *at, size_t whole, size_t left) {
    size_t size = guess->size, length = whole - size;
    uint64_t differs = (load64(at) ^ guess->head) & ~(uint64_t)0xff00;
    differs |= load64(at + size - 8) ^ (guess->tail + length * guess->lengths);
    if (WIRE_UNLIKELY(size > 16)) {
        differs |= load64(at + 8) ^ guess->middle;
        if (size > 24) differs |= (uint64_t)(memcmp(at + 16, guess->key + 12, size - 24) != 0);
    }
    return !differs && whole < 130 && length < 128 && whole <= left;
}

/* Whether this is the expected entry, with one number or a short byte string. `left` is not less than guess->size; the
 * entry is `whole` = at[1] + 2 bytes long. */
WIRE_INLINE int entry_quick(
    const scan_guess *guess, const uint8_t *at, size_t whole, size_t left, int level, feature_slot *found) {
    const uint8_t *value = at + guess->size;
    size_t length = whole - guess->size;
    if (!entry_fits(guess, at, whole, left)) return 0;
    found->kind = guess->kind;
    found->length = (uint32_t)length;
    if (guess->kind == KIND_BYTES) {
        found->shape = SLOT_ONE;
        found->at = slot_address(value);
        return 1;
    }
    found->shape = SLOT_VALUE;
    if (guess->kind == KIND_INT64) return quick_int(value, length, level, &found->at);
    if (WIRE_UNLIKELY(length != 4)) return 0;
    found->at = load32(value);
    return 1;
}

/* An entry with the expected key and any length, in the form that writers produce. */
static size_t entry_value(const scan_guess *guess, const uint8_t *at, size_t left, wire_slice *value) {
    wire_cursor cursor = {at, at + left};
    wire_slice entry, key;
    if (!left || *cursor.at++ != 0x0a || wire_take_slice(&cursor, &entry)) return 0;
    if (!entry_plain(entry, &key, value)) return 0;
    if (key.length != guess->key_length || memcmp(key.data, guess->key, key.length)) return 0;
    return (size_t)(cursor.at - at);
}

/* The entry at the cursor, if it is as expected and its key was not met in this record. */
WIRE_INLINE size_t entry_expected(scan_table *table, wire_cursor *cursor, uint64_t row) {
    const scan_guess *guess = &table->guesses[table->place];
    const uint8_t *at = cursor->at;
    size_t whole, left = wire_left(cursor);
    if (!guess->size || left < guess->size) return 0;
    whole = (size_t)wire_byte(at + 1) + 2;
    if (guess->column < 0) { /* not requested */
        if (!entry_fits(guess, at, whole, left)) return 0;
    } else {
        scan_column *column = &table->columns[guess->column];
        if (column->seen == row + 1) return 0;
        if (!entry_quick(guess, at, whole, left, table->level, &column->slots[row])) return 0;
        column->seen = row + 1;
        column->turn = table->found++;
    }
    table->place++;
    return whole;
}

/* Prepare the quick check for the next record's entry at this place, if the entry allows it. */
WIRE_INLINE void entry_hint(scan_table *table, int32_t index, wire_slice value) {
    uint8_t bytes[QUICK_KEY + 10] = {0x0a, 0, 0x0a};
    uint32_t place = table->place - 1;
    scan_guess *guess;
    size_t length;
    if (place >= table->num_guesses) return;
    guess = &table->guesses[place];
    length = guess->key_length;
    if (length > QUICK_KEY) return;
    bytes[3] = (uint8_t)length;
    memcpy(bytes + 4, guess->key, length);
    bytes[4 + length] = 0x12;
    guess->size = (uint32_t)length + 6;
    guess->lengths = SKIP_LENGTHS;
    if (index >= 0) {
        uint8_t tag = value.length ? value.data[0] : 0;
        if (table->is_lists || (tag != 0x0a && tag != 0x12 && tag != 0x1a)) {
            guess->size = 0;
            return;
        }
        bytes[5 + length] = 4;
        bytes[6 + length] = tag;
        bytes[7 + length] = 2;
        bytes[8 + length] = 0x0a;
        guess->size += 4;
        guess->kind = tag >> 3;
        guess->lengths = QUICK_LENGTHS;
    }
    if (guess->size < 8) { /* too short for the comparison */
        guess->size = 0;
        return;
    }
    bytes[1] = (uint8_t)(guess->size - 2);
    if (guess->size < 10) guess->lengths |= (uint64_t)1 << 8 * (9 - guess->size); /* F is in the last 8 bytes, too */
    guess->head = load64(bytes);
    guess->middle = load64(bytes + 8);
    guess->tail = load64(bytes + guess->size - 8);
}

/* An entry in the form that writers produce; others are walked. */
WIRE_INLINE int entry_read(scan_table *table, wire_slice entry, uint64_t row) {
    wire_slice key, value;
    scan_column *column;
    int32_t index;
    int status;
    if (WIRE_UNLIKELY(!entry_plain(entry, &key, &value))) return entry_walk(table, entry, row);
    status = table_find(table, key.data, key.length, row, &index);
    entry_hint(table, index, value);
    if (status || index < 0) return status;
    column = &table->columns[index];
    if (WIRE_LIKELY(!table->is_lists && column->seen != row + 1)) {
        column->seen = row + 1;
        column->turn = table->found++;
        if (WIRE_LIKELY(feature_plain(value, &column->slots[row]))) return WIRE_OK;
        status = parts_add(&table->parts, value);
        return status ? status : feature_read(&table->parts, 1, 3, &column->slots[row]);
    }
    status = parts_add(&table->parts, value);
    return status ? status : entry_put(table, index, row, 1);
}

static int map_read(scan_table *table, wire_slice map, uint64_t row) {
    wire_cursor cursor = {map.data, map.data + map.length};
    while (cursor.at < cursor.end) {
        wire_slice entry;
        int status;
        if (table->place < table->num_guesses) {
            size_t whole = entry_expected(table, &cursor, row);
            if (WIRE_LIKELY(whole)) {
                cursor.at += whole;
                continue;
            }
        }
        if (WIRE_LIKELY(*cursor.at == 0x0a)) {
            cursor.at++;
            status = wire_take_slice(&cursor, &entry);
        } else {
            wire_field field;
            status = wire_next(&cursor, 1, &field);
            if (!status && (field.number != 1 || field.type != TYPE_BYTES)) continue;
            entry = field.content;
        }
        if (!status) status = entry_read(table, entry, row);
        if (status) return status;
    }
    return WIRE_OK;
}

/* What the fields 1 and 2 of a record were, as bits. */
enum { SEEN_FEATURES = 1, SEEN_LISTS = 2 };

/* One record into row `row` of both tables (`lists` is null for an Example). */
static int record_read(
    scan_table *features, scan_table *lists, const scan_record *record, uint64_t row, int *seen) {
    wire_cursor cursor = {record->data, record->data + record->length};
    scan_table *tables[2] = {features, lists};
    *seen = 0;
    for (int i = 0; i < 2 && tables[i]; i++) tables[i]->place = tables[i]->found = 0;
    while (cursor.at < cursor.end) {
        wire_field field = {1, TYPE_BYTES, {0}};
        int status;
        if (WIRE_LIKELY(*cursor.at == 0x0a)) {
            cursor.at++;
            status = wire_take_slice(&cursor, &field.content);
        } else {
            status = wire_next(&cursor, 0, &field);
        }
        if (status) return status;
        if (field.type != TYPE_BYTES || field.number > 2) continue;
        *seen |= (int)field.number;
        if (!tables[field.number - 1]) continue;
        status = map_read(tables[field.number - 1], field.content, row);
        if (status) return status;
    }
    for (uint32_t i = 0; features->found < features->num_columns && i < features->num_columns; i++)
        if (features->columns[i].seen != row + 1) features->columns[i].slots[row].shape = SLOT_ABSENT;
    for (uint32_t i = 0; lists && i < lists->num_columns; i++)
        lists->columns[i].steps[row + 1] = lists->columns[i].num_slots;
    return WIRE_OK;
}

#endif
