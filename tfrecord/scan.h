/* The structural pass: records to slots, one for each column and record.
 *
 * Keys are expected in the order of the record before; what differs is looked up by hash. Entries that nobody asked for
 * are passed over by their length. An entry of an unusual shape goes to a complete walk, never to an error.
 */
#ifndef TFRECORD_SCAN_H
#define TFRECORD_SCAN_H

#include "feature.h"

#define SCAN_MAX_GUESSES 4096

typedef struct {
    const uint8_t *data;
    int64_t length;
    const uint8_t *base; /* start of the buffer that it lies in */
    const uint8_t *readable; /* end of that buffer */
    int32_t buffer;
} scan_record;

typedef struct {
    const uint8_t *key;
    uint32_t key_length;
    int32_t kind;        /* asked for; KIND_UNKNOWN where any will do */
    int64_t count;       /* values a row of a dense column, else -1 */
    const void *fallback; /* a dense row of defaults, or null */
    feature_slot *slots; /* one a record; of a feature list one a step */
    int64_t num_slots, capacity;
    int64_t *steps;      /* feature lists: slots before each record, rows + 1 of them */
    uint8_t *listed;     /* feature lists: whether each record has it */
    uint64_t seen;       /* 1 + the last record that has it */
} scan_column;

/* The entry expected at a place. Where `quick` is set, key and value were short: see entry_quick. Where `skip` is set,
 * nobody asked for it: see entry_skip. */
typedef struct {
    const uint8_t *key;
    uint32_t key_length;
    int32_t column;
    uint64_t first, last; /* the first 8 bytes of the key (zeros behind a shorter one) and, from 8 on, the last 8 */
    uint64_t quick;       /* the 5 bytes behind the key, for a value of no bytes */
    uint64_t skip[3];     /* the bytes from the entry's tag to the value's length; the two lengths are not compared */
    uint64_t mask[3];
} scan_guess;

/* The columns of one map: features, or feature lists. */
typedef struct {
    scan_column *columns;
    uint32_t num_columns, capacity;
    int32_t *buckets; /* 1 + column, 0 where empty */
    uint32_t num_buckets; /* a power of two */
    uint64_t seed;
    int discover, is_lists;
    int owns_buckets;
    int64_t rows;
    uint64_t most_cells;
    scan_guess *guesses;
    uint32_t num_guesses, max_guesses, place;
    uint32_t found;
    const uint8_t *readable;
    feature_parts parts;
} scan_table;

WIRE_INLINE uint64_t load64(const uint8_t *data) {
    uint64_t word;
    memcpy(&word, data, 8);
    return word;
}

WIRE_INLINE uint32_t load32(const uint8_t *data) {
    uint32_t word;
    memcpy(&word, data, 4);
    return word;
}

WIRE_INLINE uint64_t scan_mix(uint64_t a, uint64_t b) {
    __extension__ typedef unsigned __int128 wide;
    wide product = (wide)a * b;
    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

WIRE_INLINE uint64_t scan_hash(const uint8_t *key, size_t length, uint64_t seed) {
    uint64_t a = 0, b = 0;
    while (length > 16) {
        seed = scan_mix(load64(key) ^ 0xa0761d6478bd642fu, load64(key + 8) ^ seed);
        key += 16;
        length -= 16;
    }
    if (length >= 8) {
        a = load64(key);
        b = load64(key + length - 8);
    } else if (length >= 4) {
        a = load32(key);
        b = load32(key + length - 4);
    } else if (length) {
        a = (uint64_t)key[0] | (uint64_t)key[length >> 1] << 8 | (uint64_t)key[length - 1] << 16;
    }
    return scan_mix(a ^ 0xe7037ed1a0b428dbu ^ length, b ^ seed);
}

WIRE_INLINE int scan_same(const uint8_t *a, const uint8_t *b, size_t length) {
    if (length > 16) return memcmp(a, b, length) == 0;
    if (length >= 8)
        return ((load64(a) ^ load64(b)) | (load64(a + length - 8) ^ load64(b + length - 8))) == 0;
    if (length >= 4)
        return ((load32(a) ^ load32(b)) | (load32(a + length - 4) ^ load32(b + length - 4))) == 0;
    for (size_t i = 0; i < length; i++)
        if (a[i] != b[i]) return 0;
    return 1;
}

static void table_insert(scan_table *table, uint32_t column) {
    const scan_column *entry = &table->columns[column];
    uint64_t bucket = scan_hash(entry->key, entry->key_length, table->seed);
    while (table->buckets[bucket &= table->num_buckets - 1]) bucket++;
    table->buckets[bucket] = (int32_t)column + 1;
}

static int table_rehash(scan_table *table, uint32_t num_buckets) {
    int32_t *buckets = (int32_t *)calloc(num_buckets, sizeof *buckets);
    if (!buckets) return WIRE_NO_MEMORY;
    if (table->owns_buckets) free(table->buckets);
    table->buckets = buckets;
    table->num_buckets = num_buckets;
    table->owns_buckets = 1;
    for (uint32_t i = 0; i < table->num_columns; i++) table_insert(table, i);
    return WIRE_OK;
}

/* A column for a key that was not met before; the records until now do not have it. */
WIRE_COLD int table_discover(scan_table *table, const uint8_t *key, size_t length, uint64_t row, int32_t *found) {
    scan_column *column;
    if (!wire_valid_utf8(key, length)) return WIRE_BAD_UTF8;
    if (((uint64_t)table->num_columns + 1) * (uint64_t)table->rows > table->most_cells) return WIRE_TOO_MANY;
    if (table->num_columns == table->capacity) {
        uint32_t capacity = table->capacity ? 2 * table->capacity : 64;
        scan_column *columns = (scan_column *)realloc(table->columns, capacity * sizeof *columns);
        if (!columns) return WIRE_NO_MEMORY;
        table->columns = columns;
        table->capacity = capacity;
        if (table_rehash(table, 4 * capacity)) return WIRE_NO_MEMORY;
    }
    column = &table->columns[table->num_columns];
    memset(column, 0, sizeof *column);
    column->key = key;
    column->key_length = (uint32_t)length;
    column->count = -1;
    if (table->is_lists) {
        column->steps = (int64_t *)calloc((size_t)table->rows + 1, sizeof *column->steps);
        column->listed = (uint8_t *)calloc((size_t)table->rows + 1, 1);
    } else {
        column->slots = (feature_slot *)malloc((size_t)table->rows * sizeof *column->slots);
        column->num_slots = column->capacity = table->rows;
        if (column->slots)
            for (uint64_t i = 0; i < row; i++) column->slots[i].shape = SLOT_ABSENT;
    }
    if (table->is_lists ? !column->steps || !column->listed : !column->slots) {
        free(column->steps);
        free(column->listed);
        return WIRE_NO_MEMORY;
    }
    *found = (int32_t)table->num_columns++;
    table_insert(table, (uint32_t)*found);
    return WIRE_OK;
}

/* The column of a key, -1 where nobody asked for it. */
WIRE_INLINE int table_find(scan_table *table, const uint8_t *key, size_t length, uint64_t row, int32_t *found) {
    uint32_t place = table->place++;
    uint64_t bucket;
    int status = WIRE_OK;
    if (WIRE_LIKELY(place < table->num_guesses)) {
        const scan_guess *guess = &table->guesses[place];
        if (WIRE_LIKELY(guess->key_length == length && scan_same(guess->key, key, length))) {
            *found = guess->column;
            return WIRE_OK;
        }
        if (place + 1 < table->num_guesses && guess[1].key_length == length && scan_same(guess[1].key, key, length)) {
            table->place = place + 2;
            *found = guess[1].column;
            return WIRE_OK;
        }
    }
    *found = -1;
    if (table->num_buckets) {
        bucket = scan_hash(key, length, table->seed);
        for (; table->buckets[bucket &= table->num_buckets - 1]; bucket++) {
            int32_t index = table->buckets[bucket] - 1;
            const scan_column *column = &table->columns[index];
            if (column->key_length == length && scan_same(column->key, key, length)) {
                *found = index;
                break;
            }
        }
    }
    if (*found < 0 && table->discover) status = table_discover(table, key, length, row, found);
    if (place < table->max_guesses && !status) {
        scan_guess guess = {key, (uint32_t)length, *found, 0, 0, 0, {0}, {0}};
        memcpy(&guess.first, key, length < 8 ? length : 8);
        if (length >= 8) guess.last = load64(key + length - 8);
        table->guesses[place] = guess;
        if (place == table->num_guesses) table->num_guesses++;
    }
    return status;
}

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
#define QUICK_READ 34
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
 * caller has made sure of QUICK_READ bytes, not all of which belong to the entry. */
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
 * length, or 0 where it is anything else. The caller has made sure of QUICK_READ bytes. */
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
    } else if (!table->is_lists && value.length >= 5) {
        uint8_t tag = value.data[0];
        if (tag == 0x0a || tag == 0x12 || tag == 0x1a) guess->quick = QUICK_VALUE(tag);
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
        if (table->place < table->num_guesses && table->readable - cursor.at >= QUICK_READ) {
            const scan_guess *guess = &table->guesses[table->place];
            size_t whole = 0;
            if (guess->skip[0]) whole = entry_skip(table, guess, cursor.at, wire_left(&cursor));
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

/* Room for the slots of the columns that were asked for. */
static int table_prepare(scan_table *table) {
    size_t rows = (size_t)table->rows, count = table->num_columns;
    size_t stride = rows + 5; /* no power of two, so that the columns of a row do not share a cache set */
    scan_column *columns = table->columns;
    table->guesses = (scan_guess *)malloc(table->max_guesses * sizeof *table->guesses + 1);
    if (!table->guesses) return WIRE_NO_MEMORY;
    if (!count) return WIRE_OK;
    if (table->is_lists) {
        columns[0].steps = (int64_t *)calloc(count * (rows + 1), sizeof *columns->steps);
        columns[0].listed = (uint8_t *)calloc(count * (rows + 1), 1);
        if (!columns[0].steps || !columns[0].listed) return WIRE_NO_MEMORY;
        for (size_t i = 1; i < count; i++) {
            columns[i].steps = columns[0].steps + i * (rows + 1);
            columns[i].listed = columns[0].listed + i * (rows + 1);
        }
        return WIRE_OK;
    }
    columns[0].slots = (feature_slot *)malloc(count * stride * sizeof *columns->slots);
    if (!columns[0].slots) return WIRE_NO_MEMORY;
    for (size_t i = 0; i < count; i++) {
        columns[i].slots = columns[0].slots + i * stride;
        columns[i].num_slots = columns[i].capacity = (int64_t)rows;
    }
    return WIRE_OK;
}

static void table_free(scan_table *table) {
    for (uint32_t i = 0; i < table->num_columns; i++) {
        /* What was asked for shares one block of slots, or of steps. */
        if (table->discover || table->is_lists || !i) free(table->columns[i].slots);
        if (table->discover || !i) free(table->columns[i].steps);
        if (table->discover || !i) free(table->columns[i].listed);
    }
    free(table->columns);
    free(table->guesses);
    free(table->parts.items);
    if (table->owns_buckets) free(table->buckets);
    memset(table, 0, sizeof *table);
}

#endif
