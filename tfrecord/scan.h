/* The structural pass: records to slots, one for each column and record.
 *
 * Entries of the expected shape are told by a few comparisons of whole words. Entries that nobody asked for are passed
 * over by their length. An entry of an unusual shape goes to a complete walk, never to an error.
 */
#ifndef TFRECORD_SCAN_H
#define TFRECORD_SCAN_H

#include "table.h"

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

/* The value of a map entry: the last `count` parts. What it replaces is checked first, as its values are never taken. */
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
        table->found++;
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

/* An entry of any shape: the last key counts, all values are merged, other fields are ignored. */
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

/* What a quick entry has between key and value: 12 F K L 0a P, with a kind's tag K and lengths F = P + 4, L = P + 2. */
#define QUICK_VALUE(kind_tag) (0x0a02000412u | (uint64_t)(kind_tag) << 16)
#define QUICK_LENGTHS 0x01000100u
#define QUICK_KEY 16

/* The 7-bit groups of 8 bytes pulled together, without BMI2. */
WIRE_INLINE uint64_t quick_varint(uint64_t word) {
    word &= 0x7f7f7f7f7f7f7f7fu;
    word = (word & 0x007f007f007f007fu) | (word & 0x7f007f007f007f00u) >> 1;
    word = (word & 0x00003fff00003fffu) | (word & 0x3fff00003fff0000u) >> 2;
    return (word & 0x0fffffffu) | (word & 0x0fffffff00000000u) >> 4;
}

/* An entry of the expected key with one value of at most 8 bytes, or a short byte string, whose lengths all take one
 * byte: told by three comparisons, whatever the value's length. Gives its length, or 0 where it is anything else. The
 * caller has made sure of as many bytes as the guess needs, not all of which belong to the entry. */
WIRE_INLINE size_t entry_quick(scan_table *table, const uint8_t *at, size_t left, uint64_t row) {
    const scan_guess *guess = &table->guesses[table->place];
    size_t key_length = guess->key_length;
    const uint8_t *value = at + 4 + key_length;
    uint64_t head = load64(value), word, bits;
    size_t length = head >> 40 & 0xff;
    size_t whole = key_length + length + 10;
    scan_column *column;
    feature_slot *slot;
    uint64_t first = load64(at + 4);
    if (key_length < 8) first &= ((uint64_t)1 << 8 * key_length) - 1;
    if (load32(at) != (0x000a000au | (uint32_t)key_length << 24 | (uint32_t)(whole - 2) << 8)) return 0;
    if (first != guess->first || (key_length > 8 && load64(at + key_length - 4) != guess->last)) return 0;
    if ((head & 0xffffffffffu) != guess->quick + length * QUICK_LENGTHS) return 0;
    if (whole > left || whole > 127) return 0;
    column = &table->columns[guess->column];
    if (column->seen == row + 1) return 0;
    slot = &column->slots[row];
    slot->kind = (uint8_t)(head >> 19 & 31);
    if (slot->kind == KIND_BYTES) {
        slot->at = slot_address(value + 6);
        slot->length = (uint32_t)length;
        slot->shape = SLOT_ONE;
    } else {
        if (length - 1 >= 8) return 0;
        word = load64(value + 6);
        if (slot->kind == KIND_FLOAT) {
            if (length != 4) return 0;
            slot->at = word & 0xffffffffu;
        } else {
            word &= ~(uint64_t)0 >> 8 * (8 - length);
            bits = 0x8080808080808080u & (((uint64_t)1 << 8 * (length - 1)) - 1);
            if ((word & 0x8080808080808080u) != bits) return 0;
            slot->at = quick_varint(word);
        }
        slot->shape = SLOT_VALUE;
    }
    column->seen = row + 1;
    table->found++;
    table->place++;
    return whole;
}

/* An expected entry that nobody asked for: a key and a value and nothing else, with lengths of one byte. Gives its
 * length, or 0 where it is anything else. The caller has made sure of as many bytes as the guess needs. */
WIRE_INLINE size_t entry_skip(scan_table *table, const scan_guess *guess, const uint8_t *at, size_t left) {
    uint64_t differs = (load64(at) ^ guess->skip[0]) & guess->mask[0];
    size_t length = at[1];
    differs |= (load64(at + 8) ^ guess->skip[1]) & guess->mask[1];
    differs |= (load64(at + 16) ^ guess->skip[2]) & guess->mask[2];
    differs |= length ^ (at[5 + guess->key_length] + guess->key_length + 4);
    if (differs || length > 127 || length + 2 > left) return 0;
    table->place++;
    return length + 2;
}

/* Let the next record's entry at this place be tried the quick way, where it may be of that shape. */
WIRE_INLINE void entry_hint(scan_table *table, int32_t index, wire_slice value) {
    uint32_t place = table->place - 1;
    scan_guess *guess;
    if (place >= table->num_guesses) return;
    guess = &table->guesses[place];
    if (guess->key_length > QUICK_KEY) return;
    if (index < 0) {
        uint8_t head[24] = {0x0a, 0, 0x0a, (uint8_t)guess->key_length};
        uint8_t mask[24] = {0xff, 0, 0xff, 0xff};
        memcpy(head + 4, guess->key, guess->key_length);
        memset(mask + 4, 0xff, guess->key_length + 1);
        head[4 + guess->key_length] = 0x12;
        memcpy(guess->skip, head, sizeof head);
        memcpy(guess->mask, mask, sizeof mask);
        guess->need = sizeof head;
    } else if (!table->is_lists && value.length >= 5) {
        uint8_t tag = value.data[0];
        if (tag != 0x0a && tag != 0x12 && tag != 0x1a) return;
        guess->quick = QUICK_VALUE(tag);
        guess->need = guess->key_length + (tag == 0x0a ? 12 : 18);
    }
}

/* An entry as writers make it, a key and a value and nothing else; others are walked. */
WIRE_INLINE int entry_read(scan_table *table, wire_slice entry, uint64_t row) {
    const uint8_t *data = entry.data;
    if (WIRE_LIKELY(entry.length >= 4 && data[0] == 0x0a && data[1] < 128)) {
        size_t key_length = data[1];
        if (WIRE_LIKELY(key_length + 4 <= entry.length && data[2 + key_length] == 0x12)) {
            wire_cursor cursor = {data + 3 + key_length, data + entry.length};
            wire_slice value;
            if (WIRE_LIKELY(!wire_take_slice(&cursor, &value) && cursor.at == cursor.end)) {
                scan_column *column;
                int32_t index;
                int status = table_find(table, data + 2, key_length, row, &index);
                entry_hint(table, index, value);
                if (status || index < 0) return status;
                column = &table->columns[index];
                if (WIRE_LIKELY(!table->is_lists && column->seen != row + 1)) {
                    column->seen = row + 1;
                    table->found++;
                    if (WIRE_LIKELY(feature_plain(value, &column->slots[row]))) return WIRE_OK;
                    status = parts_add(&table->parts, value);
                    return status ? status : feature_read(&table->parts, 1, 3, &column->slots[row]);
                }
                status = parts_add(&table->parts, value);
                return status ? status : entry_put(table, index, row, 1);
            }
        }
    }
    return entry_walk(table, entry, row);
}

static int map_read(scan_table *table, wire_slice map, uint64_t row) {
    wire_cursor cursor = {map.data, map.data + map.length};
    while (cursor.at < cursor.end) {
        wire_slice entry;
        int status;
        if (table->place < table->num_guesses) {
            const scan_guess *guess = &table->guesses[table->place];
            size_t whole = 0;
            if (table->readable - cursor.at < guess->need) whole = 0;
            else if (guess->skip[0]) whole = entry_skip(table, guess, cursor.at, wire_left(&cursor));
            else if (guess->quick) whole = entry_quick(table, cursor.at, wire_left(&cursor), row);
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
    for (int i = 0; i < 2 && tables[i]; i++) {
        tables[i]->place = tables[i]->found = 0;
        tables[i]->readable = record->readable;
    }
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
