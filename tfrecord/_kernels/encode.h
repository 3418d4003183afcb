/* Wire bytes of tf.train.Feature lists, and of whole rows of columns as frames.
 *
 * Sizes are computed first, then as many bytes are written: each writer gets the end of its room and returns NULL
 * if the values no longer fit (another thread changed the array), so nothing is ever written beyond it. */
#ifndef TFRECORD_ENCODE_H
#define TFRECORD_ENCODE_H

#include "../../indexer/_kernel/framing.h"
#include "codes.h"

enum { ROWS_OK = 0, ROWS_BAD_SPAN = 1, ROWS_BAD_BYTES = 2, ROWS_TOO_LARGE = 3, ROWS_CHANGED = 4 };
enum { TAG_1 = 0x0a, TAG_2 = 0x12 };

static inline unsigned varint_size(uint64_t v) {
#if defined(__GNUC__)
    return (unsigned)((63 - __builtin_clzll(v | 1)) * 9 + 73) / 64;
#else
    unsigned n = 1;
    while (v >>= 7) n++;
    return n;
#endif
}

static inline uint8_t *put_varint(uint8_t *p, uint64_t v) {
    while (v >= 0x80) {
        *p++ = (uint8_t)(v | 0x80);
        v >>= 7;
    }
    *p++ = (uint8_t)v;
    return p;
}

/* A length-delimited field: its size, and its tag and length. */
static inline uint64_t field_size(uint64_t content) { return 1 + varint_size(content) + content; }

static inline uint8_t *put_field(uint8_t *p, uint8_t tag, uint64_t content) {
    *p++ = tag;
    return put_varint(p, content);
}

static inline void put_le(uint8_t *p, uint64_t v, int bytes) {
    for (int i = 0; i < bytes; i++) p[i] = (uint8_t)(v >> 8 * i);
}

static inline void put_le32(uint8_t *p, uint32_t v) {
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    memcpy(p, &v, 4);
#else
    put_le(p, v, 4);
#endif
}

/* ---- lists of numbers -------------------------------------------------------------------------------- */

/* Whether eight values take one byte each, as labels and flags do. */
static inline int all_short(const int64_t *v) {
    return ((uint64_t)(v[0] | v[1] | v[2] | v[3] | v[4] | v[5] | v[6] | v[7])) < 0x80;
}

static inline uint64_t ints_size(const int64_t *values, uint64_t count) {
    uint64_t size = 0, i = 0;
    for (; i + 8 <= count; i += 8) {
        if (all_short(values + i)) {
            size += 8;
        } else {
            for (unsigned k = 0; k < 8; k++) size += varint_size((uint64_t)values[i + k]);
        }
    }
    for (; i < count; i++) size += varint_size((uint64_t)values[i]);
    return size;
}

/* The same if at least 10 bytes of room remain, which short values may use: no branch on their length. */
static inline uint8_t *put_varint_roomy(uint8_t *p, uint64_t v) {
    if (v >> 28) return put_varint(p, v);
    unsigned size = varint_size(v);
    uint32_t w = (uint32_t)v;
    w = (w & 0x7f) | (w & 0x3f80) << 1 | (w & 0x1fc000) << 2 | (w & 0xfe00000) << 3;
    put_le32(p, w | (0x80808080u & ((1u << 8 * (size - 1)) - 1)));
    return p + size;
}

static inline uint8_t *put_ints(uint8_t *p, const uint8_t *end, const int64_t *values, uint64_t count) {
    uint64_t i = 0;
    for (; i + 8 <= count && end - p >= 80; i += 8) {
        int64_t v[8];
        memcpy(v, values + i, sizeof v);
        if (all_short(v)) {
            for (unsigned k = 0; k < 8; k++) p[k] = (uint8_t)v[k];
            p += 8;
        } else {
            for (unsigned k = 0; k < 8; k++) p = put_varint_roomy(p, (uint64_t)v[k]);
        }
    }
    for (; i < count; i++) {
        uint64_t v = (uint64_t)values[i];
        if (end - p >= 10) {
            p = put_varint_roomy(p, v);
        } else {
            if (end - p < (ptrdiff_t)varint_size(v)) return NULL;
            p = put_varint(p, v);
        }
    }
    return p;
}

static inline uint8_t *put_floats(uint8_t *p, const float *values, uint64_t count) {
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    if (count) memcpy(p, values, 4 * count);
#else
    for (uint64_t i = 0; i < count; i++) {
        uint32_t bits;
        memcpy(&bits, values + i, 4);
        put_le(p + 4 * i, bits, 4);
    }
#endif
    return p + 4 * count;
}

/* The content of FloatList or Int64List whose packed values take `packed` bytes. */
static inline uint64_t packed_size(uint64_t packed) { return packed ? field_size(packed) : 0; }

/* ---- frames ------------------------------------------------------------------------------------------ */

static inline void put_frame_header(uint8_t *p, uint64_t size, frames_extend_fn crc) {
    put_le(p, size, 8);
    put_le(p + 8, crc_mask(crc(0, p, 8)), FRAME_HEADER - 8);
}

static inline void put_frame_footer(uint8_t *payload, uint64_t size, frames_extend_fn crc) {
    put_le(payload + size, crc_mask(crc(0, payload, (size_t)size)), FRAME_OVERHEAD - FRAME_HEADER);
}

/* ---- columns ----------------------------------------------------------------------------------------- */

typedef struct {
    const uint8_t *key;
    uint64_t key_size;
    int kind;
    const uint8_t *present; /* NULL: every row has it */
    const int64_t *steps;   /* row to its first span, rows + 1 entries; NULL: row i is span i (no sequence) */
    uint64_t num_spans;
    const int64_t *splits; /* span to its first value, num_spans + 1 entries; NULL: `width` values each */
    uint64_t width;
    uint64_t num_values;
    const int64_t *ints;
    const float *floats;
    const int64_t *offsets, *lengths; /* of byte strings */
    const int32_t *ids;               /* which buffer each lies in; NULL: all in the first */
    const uint8_t *const *buffers;
    const uint64_t *buffer_sizes;
    uint64_t num_buffers;
} column_t;

/* Pairs from..to may be changed by another thread, so they are checked each time they are read. */
static inline int take_span(const int64_t *splits, uint64_t width, uint64_t i, uint64_t limit, uint64_t *from,
                            uint64_t *to) {
    if (splits) {
        int64_t a = splits[i], b = splits[i + 1];
        if (a < 0 || b < a || (uint64_t)b > limit) return ROWS_BAD_SPAN;
        *from = (uint64_t)a;
        *to = (uint64_t)b;
    } else {
        *from = i * width;
        *to = *from + width;
        if (*to > limit) return ROWS_BAD_SPAN;
    }
    return ROWS_OK;
}

static inline int take_bytes(const column_t *c, uint64_t i, const uint8_t **data, uint64_t *size) {
    int64_t id = c->ids ? c->ids[i] : 0, offset = c->offsets[i], length = c->lengths[i];
    if (id < 0 || (uint64_t)id >= c->num_buffers || offset < 0 || length < 0) return ROWS_BAD_BYTES;
    uint64_t room = c->buffer_sizes[id];
    if ((uint64_t)offset > room || (uint64_t)length > room - (uint64_t)offset) return ROWS_BAD_BYTES;
    *data = c->buffers[id] + offset;
    *size = (uint64_t)length;
    return ROWS_OK;
}

/* Bytes of the list message of values from..to. */
static inline int list_size(const column_t *c, uint64_t from, uint64_t to, uint64_t limit, uint64_t *size) {
    if (to - from > limit) return ROWS_TOO_LARGE;
    if (c->kind == KIND_INT64) {
        *size = packed_size(ints_size(c->ints + from, to - from));
    } else if (c->kind == KIND_FLOAT) {
        *size = packed_size(4 * (to - from));
    } else if (!c->kind) {
        *size = 0;
    } else {
        uint64_t total = 0;
        for (uint64_t i = from; i < to; i++) {
            const uint8_t *data;
            uint64_t length;
            int status = take_bytes(c, i, &data, &length);
            if (status) return status;
            total += field_size(length);
            if (total > limit) return ROWS_TOO_LARGE;
        }
        *size = total;
    }
    return ROWS_OK;
}

/* Bytes of a Feature whose list takes `size` bytes; one without a kind (0) is empty. */
static inline uint64_t feature_size(const column_t *c, uint64_t size) { return c->kind ? field_size(size) : 0; }

/* A Feature whose list takes `size` bytes, inside a field with tag `tag`. */
static inline int put_feature(uint8_t **at, const uint8_t *end, uint8_t tag, const column_t *c, uint64_t from, uint64_t to,
                              uint64_t size) {
    uint64_t feature = feature_size(c, size);
    if ((uint64_t)(end - *at) < field_size(feature)) return ROWS_CHANGED;
    uint8_t *p = put_field(*at, tag, feature);
    if (!c->kind) {
        *at = p;
        return ROWS_OK;
    }
    p = put_field(p, (uint8_t)(c->kind << 3 | 2), size);
    const uint8_t *stop = p + size;
    if (c->kind == KIND_BYTES) {
        for (uint64_t i = from; i < to; i++) {
            const uint8_t *data;
            uint64_t length;
            if (take_bytes(c, i, &data, &length)) return ROWS_CHANGED;
            if ((uint64_t)(stop - p) < field_size(length)) return ROWS_CHANGED;
            p = put_field(p, TAG_1, length);
            if (length) memcpy(p, data, length);
            p += length;
        }
    } else if (to > from) {
        uint64_t packed = c->kind == KIND_FLOAT ? 4 * (to - from) : 0;
        if (c->kind == KIND_INT64) { /* the length of the run follows from the size of the field around it */
            unsigned n = 1;
            while (varint_size(size - 1 - n) != n) n++;
            packed = size - 1 - n;
        }
        p = put_field(p, TAG_1, packed);
        if (c->kind == KIND_FLOAT)
            p = put_floats(p, c->floats + from, to - from);
        else
            p = put_ints(p, stop, c->ints + from, to - from);
    }
    *at = p;
    return p == stop ? ROWS_OK : ROWS_CHANGED;
}

/* Bytes of the value of a row's map entry: a Feature or a FeatureList. `first` gets the list of a Feature. */
static inline int value_size(const column_t *c, uint64_t row, uint64_t limit, uint64_t *from, uint64_t *to,
                             uint64_t *first, uint64_t *size) {
    if (!c->steps) {
        int status = take_span(c->splits, c->width, row, c->num_values, from, to);
        if (!status) status = list_size(c, *from, *to, limit, first);
        *size = feature_size(c, *first);
        return status;
    }
    uint64_t total = 0;
    int status = take_span(c->steps, 0, row, c->num_spans, from, to);
    for (uint64_t step = *from; !status && step < *to; step++) {
        uint64_t a, b, list = 0;
        status = take_span(c->splits, c->width, step, c->num_values, &a, &b);
        if (!status) status = list_size(c, a, b, limit, &list);
        total += field_size(feature_size(c, list));
        if (!status && total > limit) status = ROWS_TOO_LARGE;
    }
    *size = total;
    return status;
}

/* Bytes of the map entries of a row; `place` is the column where it ends. */
static int entries_size(const column_t *columns, uint64_t count, uint64_t row, uint64_t limit, uint64_t *size,
                        uint64_t *place) {
    uint64_t total = 0;
    for (*place = 0; *place < count; ++*place) {
        const column_t *c = columns + *place;
        uint64_t from = 0, to = 0, first = 0, value = 0;
        if (c->present && !c->present[row]) continue;
        int status = value_size(c, row, limit, &from, &to, &first, &value);
        if (status) return status;
        total += field_size(field_size(c->key_size) + field_size(value));
        if (total > limit) return ROWS_TOO_LARGE;
    }
    *size = total;
    return ROWS_OK;
}

static int put_entries(uint8_t **at, const uint8_t *end, const column_t *columns, uint64_t count, uint64_t row,
                       uint64_t limit) {
    uint8_t *p = *at;
    for (const column_t *c = columns; c < columns + count; c++) {
        uint64_t from = 0, to = 0, first = 0, value = 0;
        if (c->present && !c->present[row]) continue;
        if (value_size(c, row, limit, &from, &to, &first, &value)) return ROWS_CHANGED;
        uint64_t entry = field_size(c->key_size) + field_size(value);
        if ((uint64_t)(end - p) < field_size(entry)) return ROWS_CHANGED;
        p = put_field(put_field(p, TAG_1, entry), TAG_1, c->key_size);
        if (c->key_size) memcpy(p, c->key, c->key_size);
        p += c->key_size;
        if (!c->steps) {
            int status = put_feature(&p, end, TAG_2, c, from, to, first);
            if (status) return status;
            continue;
        }
        p = put_field(p, TAG_2, value);
        for (uint64_t step = from; step < to; step++) {
            uint64_t a, b, list = 0;
            if (take_span(c->splits, c->width, step, c->num_values, &a, &b) || list_size(c, a, b, limit, &list))
                return ROWS_CHANGED;
            int status = put_feature(&p, end, TAG_1, c, a, b, list);
            if (status) return status;
        }
    }
    *at = p;
    return p == end ? ROWS_OK : ROWS_CHANGED;
}

/* Rows of Examples (num_sequences < 0) or SequenceExamples. `sections` holds, a row, the size of the entries of its
 * Features and of its FeatureLists. */
typedef struct {
    const column_t *columns; /* the context's, then the sequences' */
    uint64_t num_context;
    int64_t num_sequences;
    uint64_t num_rows;
    uint64_t *sections;
    uint64_t limit;
} rows_t;

static inline uint64_t payload_size(const rows_t *rows, uint64_t row) {
    uint64_t size = field_size(rows->sections[2 * row]);
    return rows->num_sequences < 0 ? size : size + field_size(rows->sections[2 * row + 1]);
}

static int measure_rows(const rows_t *rows, uint64_t *payloads, uint64_t *row, uint64_t *place) {
    for (*row = 0; *row < rows->num_rows; ++*row) {
        uint64_t *section = rows->sections + 2 * *row;
        int status = entries_size(rows->columns, rows->num_context, *row, rows->limit, section, place);
        if (status) return status;
        if (rows->num_sequences >= 0) {
            status = entries_size(rows->columns + rows->num_context, (uint64_t)rows->num_sequences, *row, rows->limit,
                                  section + 1, place);
            *place += rows->num_context;
            if (status) return status;
        }
        payloads[*row] = payload_size(rows, *row);
        if (payloads[*row] > rows->limit) return ROWS_TOO_LARGE;
    }
    return ROWS_OK;
}

/* Frames of the rows start, start + step, ... below stop, into exactly `room` bytes. */
static int fill_rows(const rows_t *rows, uint64_t start, uint64_t stop, uint64_t step, uint8_t *p, uint64_t room) {
    frames_extend_fn crc = frames_paths[crc_best()].extend;
    for (uint64_t row = start; row < stop; row += step) {
        const uint64_t *section = rows->sections + 2 * row;
        uint64_t size = payload_size(rows, row);
        if (room < FRAME_OVERHEAD || size > room - FRAME_OVERHEAD) return ROWS_CHANGED;
        put_frame_header(p, size, crc);
        uint8_t *payload = p + FRAME_HEADER, *at = put_field(payload, TAG_1, section[0]);
        int status = put_entries(&at, at + section[0], rows->columns, rows->num_context, row, rows->limit);
        if (!status && rows->num_sequences >= 0) {
            at = put_field(at, TAG_2, section[1]);
            status = put_entries(&at, at + section[1], rows->columns + rows->num_context,
                                 (uint64_t)rows->num_sequences, row, rows->limit);
        }
        if (status) return status;
        put_frame_footer(payload, size, crc);
        p += size + FRAME_OVERHEAD;
        room -= size + FRAME_OVERHEAD;
    }
    return room ? ROWS_CHANGED : ROWS_OK;
}

#endif
