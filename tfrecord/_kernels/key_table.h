/* The columns of a map, and which of them a key means.
 *
 * Keys are expected in the order of the record before; other keys are looked up by hash. A discovering table makes a
 * column of every new key.
 */
#ifndef TFRECORD_TABLE_H
#define TFRECORD_TABLE_H

#include "blocks.h"
#include "feature.h"

#ifndef SCAN_MAX_GUESSES
#define SCAN_MAX_GUESSES 4096
#endif

typedef struct {
    const uint8_t *data;
    int64_t length;
    const uint8_t *base; /* start of the buffer that it lies in */
    int32_t buffer;
} scan_record;

typedef struct {
    const uint8_t *key;  /* memory of ours */
    uint32_t key_length;
    int32_t kind;        /* the requested kind; KIND_UNKNOWN if any is accepted */
    int64_t count;       /* values per row of a dense column, else -1 */
    const void *fallback; /* a dense row of defaults, or null */
    void *direct;        /* for one number per row: the array, to which repeats (repeat.h) write; or null */
    feature_slot *slots; /* one per record; for a feature list, one per step */
    int64_t num_slots, capacity;
    int64_t *steps;      /* feature lists: slots before each record, rows + 1 of them */
    uint8_t *listed;     /* feature lists: whether each record has it */
    uint64_t seen;       /* 1 + the last record that has it */
    uint32_t turn;       /* columns found before it in that record */
    uint64_t repeats;    /* 1 + the last record that others were compared with */
} scan_column;

/* The entry expected at a place. Where `size` is set, it may be a quick one, or where nobody asked for it, one to skip:
 * see entry_fits. */
typedef struct {
    const uint8_t *key;
    uint32_t key_length;
    int32_t column;
    uint32_t size;  /* bytes before the value, or before the feature that is skipped */
    uint8_t kind;   /* of the value */
    uint8_t wanted; /* the kind of the column; this and the next two are set when whole records are compared */
    feature_slot *slots;
    void *direct;
    uint64_t head, middle, tail; /* words of these bytes: the first, the second of more than 16, the last 8 */
    uint64_t lengths;            /* 1 in the bytes of the tail that grow with the value */
} scan_guess;

/* The columns of one map: features, or feature lists. */
typedef struct {
    scan_column *columns;
    uint32_t num_columns, capacity;
    int32_t *buckets; /* 1 + column, 0 where empty */
    uint32_t num_buckets; /* a power of two */
    uint64_t seed;
    int discover, is_lists, level;
    int owns_buckets;
    int64_t rows;
    uint64_t most_cells;
    scan_guess *guesses;
    uint32_t num_guesses, max_guesses, place;
    uint32_t found;
    uint32_t num_repeated; /* guesses that a whole record is compared with, see repeat.h */
    uint32_t misses;       /* consecutive records that were not repeats */
    int64_t *unlike;       /* the rows of records that were not repeats */
    int64_t num_unlike;
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

/* The column of a key among those that there are, or -1. */
WIRE_INLINE int32_t table_lookup(const scan_table *table, const uint8_t *key, size_t length) {
    uint64_t bucket;
    if (!table->num_buckets) return -1;
    bucket = scan_hash(key, length, table->seed);
    for (; table->buckets[bucket &= table->num_buckets - 1]; bucket++) {
        int32_t index = table->buckets[bucket] - 1;
        const scan_column *column = &table->columns[index];
        if (column->key_length == length && scan_same(column->key, key, length)) return index;
    }
    return -1;
}

/* A column for a key that we allocated; the column takes ownership. The records so far do not have it. */
static int table_add(scan_table *table, uint8_t *key, size_t length, uint64_t row, int32_t *found) {
    scan_column *column;
    if (!wire_valid_utf8(key, length)) return WIRE_BAD_UTF8;
    if (((uint64_t)table->num_columns + 1) * (uint64_t)table->rows > table->most_cells) return WIRE_TOO_MANY;
    if (table->num_columns == table->capacity) {
        uint32_t capacity = table->capacity ? 2 * table->capacity : 64;
        scan_column *columns = (scan_column *)block_take(capacity * sizeof *columns);
        if (!columns) return WIRE_NO_MEMORY;
        if (table->num_columns) memcpy(columns, table->columns, table->num_columns * sizeof *columns);
        block_give(table->columns);
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
        column->slots = (feature_slot *)block_take((size_t)table->rows * sizeof *column->slots);
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

/* A column for a key that was not met before. The copy of the key is what is checked and looked up: what the caller's
 * memory holds by now may be another key, even one that has a column. */
WIRE_COLD int table_discover(scan_table *table, const uint8_t *key, size_t length, uint64_t row, int32_t *found) {
    int status = WIRE_OK;
    uint8_t *copy = (uint8_t *)malloc(length + 1);
    if (!copy) return WIRE_NO_MEMORY;
    memcpy(copy, key, length);
    *found = table_lookup(table, copy, length);
    if (*found < 0 && !(status = table_add(table, copy, length, row, found))) return WIRE_OK;
    free(copy);
    return status;
}

/* The column of a key, or -1 if it was not requested. */
WIRE_INLINE int table_find(scan_table *table, const uint8_t *key, size_t length, uint64_t row, int32_t *found) {
    uint32_t place = table->place++;
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
    *found = table_lookup(table, key, length);
    if (*found < 0 && table->discover) status = table_discover(table, key, length, row, found);
    if (place < table->max_guesses && !status) {
        scan_guess guess = {key, (uint32_t)length, *found, 0, 0, 0, NULL, NULL, 0, 0, 0, 0};
        table->guesses[place] = guess;
        if (place == table->num_guesses) table->num_guesses++;
    }
    return status;
}

/* Whether an entry has the form that writers produce: a short key, a value, and nothing else. */
WIRE_INLINE int entry_plain(wire_slice entry, wire_slice *key, wire_slice *value) {
    const uint8_t *data = entry.data;
    wire_cursor cursor;
    if (WIRE_UNLIKELY(entry.length < 4 || data[0] != 0x0a)) return 0;
    key->data = data + 2;
    key->length = wire_byte(data + 1);
    if (WIRE_UNLIKELY(key->length >= 128 || key->length + 4 > entry.length || data[2 + key->length] != 0x12)) return 0;
    cursor.at = data + 3 + key->length;
    cursor.end = data + entry.length;
    return WIRE_LIKELY(!wire_take_slice(&cursor, value) && cursor.at == cursor.end);
}

/* Room for the slots of the requested columns. */
static int table_prepare(scan_table *table) {
    size_t rows = (size_t)table->rows, count = table->num_columns;
    size_t stride = rows + 5; /* not a power of two, so that the columns of a row do not share a cache set */
    scan_column *columns = table->columns;
    table->guesses = (scan_guess *)block_take(table->max_guesses * sizeof *table->guesses);
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
    columns[0].slots = (feature_slot *)block_take(count * stride * sizeof *columns->slots);
    table->unlike = (int64_t *)block_take(rows * sizeof *table->unlike);
    if (!columns[0].slots || !table->unlike) return WIRE_NO_MEMORY;
    for (size_t i = 0; i < count; i++) {
        columns[i].slots = columns[0].slots + i * stride;
        columns[i].num_slots = columns[i].capacity = (int64_t)rows;
    }
    return WIRE_OK;
}

/* What a discovered column owns. */
static void column_free(scan_column *column, int is_lists) {
    if (is_lists) free(column->slots);
    else block_give(column->slots);
    free(column->steps);
    free(column->listed);
    free((void *)column->key);
}

static void table_free(scan_table *table) {
    for (uint32_t i = 0; i < table->num_columns; i++) {
        scan_column *column = &table->columns[i];
        if (table->discover) {
            column_free(column, table->is_lists);
            continue;
        }
        /* What was asked for shares one block of slots, or of steps; its keys are the Decoder's. */
        if (table->is_lists) free(column->slots);
        else if (!i) block_give(column->slots);
        if (!i) free(column->steps);
        if (!i) free(column->listed);
    }
    block_give(table->columns);
    block_give(table->guesses);
    block_give(table->unlike);
    free(table->parts.items);
    if (table->owns_buckets) free(table->buckets);
    memset(table, 0, sizeof *table);
}

#endif
