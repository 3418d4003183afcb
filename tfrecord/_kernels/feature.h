/* From a Feature's bytes to a slot, and from slots to values.
 *
 * A slot says where a feature's values are. The forms that real writers produce are recognized by a few comparisons
 * (feature_plain); everything else becomes a list of parts that a complete walk by protobuf's rules reads
 * (feature_walk). Parts are the Feature submessages of one map entry: as their concatenation they are merged.
 */
#ifndef TFRECORD_FEATURE_H
#define TFRECORD_FEATURE_H

#include <stdlib.h>

#include "varints.h"
#include "wire.h"

enum {
    SLOT_ABSENT = 0,
    SLOT_NO_KIND = 1,
    SLOT_VALUE = 2, /* one number: its bits are in `at` */
    SLOT_RUN = 3,   /* one packed run of numbers, or an empty list */
    SLOT_ONE = 4,   /* one byte string */
    SLOT_LIST = 5,  /* byte strings, each after its tag and length, checked */
    SLOT_PARTS = 6  /* anything else, checked: `at` is the first of `length` parts */
};

typedef struct {
    uint64_t at; /* an address, a value, or an index of parts */
    uint32_t length;
    uint8_t shape;
    uint8_t kind;
} feature_slot;

typedef struct {
    wire_slice *items;
    size_t count, capacity;
} feature_parts;

WIRE_INLINE const uint8_t *slot_data(const feature_slot *slot) { return (const uint8_t *)(uintptr_t)slot->at; }

WIRE_INLINE uint64_t slot_address(const uint8_t *data) { return (uint64_t)(uintptr_t)data; }

/* Where values go. The pointers are null while counting. `limit` is the room for values: the bytes may have changed
 * since they were counted. */
typedef struct {
    int64_t count, limit;
    uint32_t *floats;
    int64_t *ints;
    int64_t *offsets, *lengths; /* of byte strings, offsets from `base` */
    const uint8_t *base;
    int level;
} feature_sink;

static int parts_add(feature_parts *parts, wire_slice slice) {
    if (parts->count == parts->capacity) {
        size_t capacity = parts->capacity ? 2 * parts->capacity : 16;
        wire_slice *items = (wire_slice *)realloc(parts->items, capacity * sizeof *items);
        if (!items) return WIRE_NO_MEMORY;
        parts->items = items;
        parts->capacity = capacity;
    }
    parts->items[parts->count++] = slice;
    return WIRE_OK;
}

WIRE_INLINE int sink_bytes(feature_sink *sink, const uint8_t *data, size_t length) {
    if (sink->offsets) {
        if (WIRE_UNLIKELY(sink->count >= sink->limit)) return WIRE_CHANGED;
        sink->offsets[sink->count] = (int64_t)(data - sink->base);
        sink->lengths[sink->count] = (int64_t)length;
    }
    sink->count++;
    return WIRE_OK;
}

WIRE_INLINE int sink_floats(feature_sink *sink, const uint8_t *data, size_t length) {
    int64_t count = (int64_t)(length / 4);
    if (sink->floats && length) {
        if (WIRE_UNLIKELY(count > sink->limit - sink->count)) return WIRE_CHANGED;
        memcpy(sink->floats + sink->count, data, length);
    }
    sink->count += count;
    return WIRE_OK;
}

/* A packed run of varints. Reading the values checks that none has more than 10 bytes; counting does not. */
static int sink_ints(feature_sink *sink, const uint8_t *data, size_t length) {
    if (!length) return WIRE_OK;
    if (data[length - 1] >= 128) return WIRE_TRUNCATED;
    if (sink->ints) {
        int64_t *to = sink->ints + sink->count;
        int status = varints_decode(data, length, &to, sink->ints + sink->limit, sink->level);
        sink->count = to - sink->ints;
        return status;
    }
    sink->count += varints_count(data, length, sink->level);
    return WIRE_OK;
}

/* All values of one BytesList, FloatList or Int64List, which sits `depth` messages deep. */
static int list_walk(wire_slice list, int kind, int depth, feature_sink *sink) {
    wire_cursor cursor = {list.data, list.data + list.length};
    while (cursor.at < cursor.end) {
        wire_field field;
        int status = wire_next(&cursor, depth, &field);
        if (status) return status;
        if (field.number != 1) continue;
        if (kind == KIND_BYTES && field.type == TYPE_BYTES) {
            status = sink_bytes(sink, field.content.data, field.content.length);
        } else if (kind == KIND_FLOAT && field.type == TYPE_FIXED32) {
            status = sink_floats(sink, field.content.data, 4);
        } else if (kind == KIND_FLOAT && field.type == TYPE_BYTES) {
            if (field.content.length % 4) return WIRE_BAD_FLOATS;
            status = sink_floats(sink, field.content.data, field.content.length);
        } else if (kind == KIND_INT64 && (field.type == TYPE_VARINT || field.type == TYPE_BYTES)) {
            if (!sink->ints) status = varints_check(field.content.data, field.content.length);
            if (!status) status = sink_ints(sink, field.content.data, field.content.length);
        }
        if (status) return status;
    }
    return WIRE_OK;
}

/* A whole Feature of any form: its kind, or, of the kind that it was before, the values of the last run of members of
 * that kind into `sink`. Members that a later kind replaces are checked all the same. */
WIRE_COLD int feature_walk(const wire_slice *parts, size_t count, int depth, int *kind, feature_sink *sink) {
    size_t member = 0, first = 0;
    int before = *kind;
    *kind = KIND_UNKNOWN;
    for (int pass = 0; pass < (sink ? 2 : 1); pass++, member = 0) {
        if (pass && *kind != before) return WIRE_CHANGED; /* the sink has room for the kind that was counted */
        for (size_t i = 0; i < count; i++) {
            wire_cursor cursor = {parts[i].data, parts[i].data + parts[i].length};
            while (cursor.at < cursor.end) {
                feature_sink counted = {0};
                wire_field field;
                int status = wire_next(&cursor, depth, &field);
                if (status) return status;
                if (field.type != TYPE_BYTES || field.number > 3) continue;
                if (!pass) {
                    if ((int)field.number != *kind) first = member;
                    *kind = (int)field.number;
                    if ((status = list_walk(field.content, *kind, depth + 1, &counted))) return status;
                } else if (member >= first) {
                    if ((status = list_walk(field.content, *kind, depth + 1, sink))) return status;
                }
                member++;
            }
        }
    }
    return WIRE_OK;
}

/* One varint of exactly these 1 to 10 bytes. */
WIRE_INLINE int plain_varint(const uint8_t *data, size_t length, uint64_t *value) {
    uint64_t result = data[0];
    if (WIRE_LIKELY(length == 1)) {
        *value = result;
        return result < 128;
    }
    result &= 127;
    if (WIRE_UNLIKELY(data[0] < 128 || data[length - 1] >= 128)) return 0;
    for (size_t i = 1; i + 1 < length; i++) {
        if (data[i] < 128) return 0;
        result |= (uint64_t)(data[i] & 127) << (7 * i);
    }
    *value = result | (uint64_t)data[length - 1] << (7 * (length - 1));
    return 1;
}

WIRE_INLINE int plain_bytes(wire_cursor cursor, feature_slot *slot) {
    wire_slice value;
    const uint8_t *start = cursor.at;
    slot->kind = KIND_BYTES;
    if (*cursor.at++ != 0x0a || wire_take_slice(&cursor, &value)) return 0;
    if (WIRE_LIKELY(cursor.at == cursor.end)) {
        slot->at = slot_address(value.data);
        slot->length = (uint32_t)value.length;
        slot->shape = SLOT_ONE;
        return 1;
    }
    slot->at = slot_address(start);
    slot->length = (uint32_t)(cursor.end - start);
    slot->shape = SLOT_LIST;
    do {
        if (*cursor.at++ != 0x0a || wire_take_slice(&cursor, &value)) return 0;
    } while (cursor.at < cursor.end);
    return 1;
}

WIRE_INLINE int plain_numbers(wire_cursor cursor, int kind, feature_slot *slot) {
    wire_slice run;
    uint64_t value;
    uint8_t tag = *cursor.at++;
    slot->kind = (uint8_t)kind;
    if (WIRE_LIKELY(tag == 0x0a)) {
        if (wire_take_slice(&cursor, &run) || cursor.at != cursor.end) return 0;
    } else {
        if (tag != (kind == KIND_FLOAT ? 0x0d : 0x08) || cursor.at == cursor.end) return 0;
        run.data = cursor.at;
        run.length = wire_left(&cursor);
        if (kind == KIND_FLOAT ? run.length != 4 : run.length > 10) return 0;
    }
    slot->shape = SLOT_RUN;
    slot->at = slot_address(run.data);
    slot->length = (uint32_t)run.length;
    if (kind == KIND_FLOAT) {
        if (run.length == 4) {
            uint32_t bits;
            memcpy(&bits, run.data, 4);
            slot->at = bits;
            slot->shape = SLOT_VALUE;
        }
        return run.length % 4 == 0;
    }
    if (run.length - 1 < 10 && plain_varint(run.data, run.length, &value)) {
        slot->at = value;
        slot->shape = SLOT_VALUE;
    }
    return tag == 0x0a || slot->shape == SLOT_VALUE;
}

/* A Feature of the shape that writers make: one member, that is one run, or byte strings and nothing else.
 * 0 where it is not, and nothing is said about it. A packed run of ints is not yet checked. */
WIRE_INLINE int feature_plain(wire_slice feature, feature_slot *slot) {
    wire_cursor cursor = {feature.data, feature.data + feature.length};
    wire_slice list;
    uint8_t tag;
    if (!feature.length) {
        slot->shape = SLOT_NO_KIND;
        slot->kind = KIND_UNKNOWN;
        slot->length = 0;
        return 1;
    }
    tag = *cursor.at++;
    if (wire_take_slice(&cursor, &list) || cursor.at != cursor.end) return 0;
    cursor.at = list.data;
    if (!list.length) {
        if (tag != 0x0a && tag != 0x12 && tag != 0x1a) return 0;
        slot->kind = tag >> 3;
        slot->shape = tag == 0x0a ? SLOT_LIST : SLOT_RUN;
        slot->at = slot_address(list.data);
        slot->length = 0;
        return 1;
    }
    if (tag == 0x1a) return plain_numbers(cursor, KIND_INT64, slot);
    if (tag == 0x12) return plain_numbers(cursor, KIND_FLOAT, slot);
    return tag == 0x0a && plain_bytes(cursor, slot);
}

/* A Feature that is the concatenation of `count` parts, the last ones of `parts`; these are dropped again where the
 * slot does not need them. */
static int feature_read(feature_parts *parts, size_t count, int depth, feature_slot *slot) {
    size_t start = parts->count - count;
    wire_slice none = {(const uint8_t *)"", 0};
    int kind = KIND_UNKNOWN, status;
    if (count < 2 && feature_plain(count ? parts->items[start] : none, slot)) {
        parts->count = start;
        return WIRE_OK;
    }
    if (count > 0xffffffffu) return WIRE_TOO_MANY;
    status = feature_walk(parts->items + start, count, depth, &kind, NULL);
    slot->kind = (uint8_t)kind;
    slot->shape = kind ? SLOT_PARTS : SLOT_NO_KIND;
    slot->at = start;
    slot->length = (uint32_t)count;
    return status;
}

/* Finishes the checks of a slot whose values are never read. */
static int slot_check(const feature_slot *slot) {
    if (slot->shape == SLOT_RUN && slot->kind == KIND_INT64) return varints_check(slot_data(slot), slot->length);
    return WIRE_OK;
}

/* The values of a slot into a sink (of its kind), or their number where the sink has no room. */
static int slot_values(const feature_slot *slot, const feature_parts *parts, int depth, feature_sink *sink) {
    int kind = slot->kind;
    wire_cursor cursor;
    wire_slice value;
    switch (slot->shape) {
    case SLOT_VALUE:
        if ((sink->floats || sink->ints) && sink->count >= sink->limit) return WIRE_CHANGED;
        if (sink->floats) sink->floats[sink->count] = (uint32_t)slot->at;
        if (sink->ints) sink->ints[sink->count] = (int64_t)slot->at;
        sink->count++;
        return WIRE_OK;
    case SLOT_RUN:
        if (slot->kind == KIND_INT64) return sink_ints(sink, slot_data(slot), slot->length);
        return sink_floats(sink, slot_data(slot), slot->length);
    case SLOT_ONE:
        return sink_bytes(sink, slot_data(slot), slot->length);
    case SLOT_LIST:
        cursor.at = slot_data(slot);
        cursor.end = cursor.at + slot->length;
        while (cursor.at < cursor.end) {
            int status;
            cursor.at++;
            if ((status = wire_take_slice(&cursor, &value))) return status;
            if ((status = sink_bytes(sink, value.data, value.length))) return status;
        }
        return WIRE_OK;
    case SLOT_PARTS:
        return feature_walk(parts->items + slot->at, slot->length, depth, &kind, sink);
    default:
        return WIRE_OK;
    }
}

#endif
