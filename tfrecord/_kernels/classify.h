/* Classifies one payload as evidence of its file's record type: does it look like an Example or a SequenceExample?
 *
 * Many other messages parse as one, because unknown fields are allowed and a key may be any UTF-8 text. So this looks
 * for features as writers produce them, and for things that no writer of Examples produces.
 */
#ifndef TFRECORD_CLASSIFY_H
#define TFRECORD_CLASSIFY_H

#include "validate.h"

/* The same numbers as in `codes.py`. */
enum {
    RECORD_INVALID = 0,       /* does not parse */
    RECORD_EXAMPLE = 1,       /* has a clean feature */
    RECORD_SEQUENCE = 2,      /* has a clean feature or step, and a feature list */
    RECORD_NEUTRAL = 3,       /* has neither clean features nor anything strange */
    RECORD_NEUTRAL_LISTS = 4, /* the same, with a feature list */
    RECORD_FOREIGN = 5        /* parses, but has only unknown fields or strange keys */
};

typedef struct {
    int clean, lists, strange;
} record_signs;

/* The list of values of one kind. */
static int list_signs(wire_slice list, uint32_t kind, int depth, record_signs *signs) {
    wire_cursor cursor = {list.data, list.data + list.length};
    while (cursor.at < cursor.end) {
        wire_field field;
        int status = wire_next(&cursor, depth, &field);
        if (status) return status;
        if (field.number == 1 && field.type == TYPE_BYTES) continue;
        if (field.number == 1 && kind == KIND_FLOAT && field.type == TYPE_FIXED32) continue;
        if (field.number == 1 && kind == KIND_INT64 && field.type == TYPE_VARINT) continue;
        signs->strange = 1;
    }
    return WIRE_OK;
}

static int feature_signs(wire_slice feature, int depth, int *has_kind, record_signs *signs) {
    wire_cursor cursor = {feature.data, feature.data + feature.length};
    while (cursor.at < cursor.end) {
        wire_field field;
        int status = wire_next(&cursor, depth, &field);
        if (status) return status;
        if (field.type == TYPE_BYTES && field.number <= 3) {
            *has_kind = 1;
            status = list_signs(field.content, field.number, depth + 1, signs);
            if (status) return status;
        } else {
            signs->strange = 1;
        }
    }
    return WIRE_OK;
}

/* The value of an entry: a Feature, or the steps of a FeatureList. */
static int value_signs(wire_slice value, int is_list, int *has_kind, record_signs *signs) {
    wire_cursor cursor = {value.data, value.data + value.length};
    if (!is_list) return feature_signs(value, 3, has_kind, signs);
    while (cursor.at < cursor.end) {
        wire_field field;
        int status = wire_next(&cursor, 3, &field);
        if (status) return status;
        if (field.type == TYPE_BYTES && field.number == 1) {
            status = feature_signs(field.content, 4, has_kind, signs);
            if (status) return status;
        } else {
            signs->strange = 1;
        }
    }
    return WIRE_OK;
}

static int entry_signs(wire_slice entry, int is_list, record_signs *signs) {
    wire_cursor cursor = {entry.data, entry.data + entry.length};
    int has_kind = 0, good_key = 1;
    while (cursor.at < cursor.end) {
        wire_field field;
        int status = wire_next(&cursor, 2, &field);
        if (status) return status;
        if (field.type == TYPE_BYTES && field.number == 1) {
            good_key = 1;
            for (size_t i = 0; i < field.content.length; i++)
                if (field.content.data[i] < 0x20) good_key = 0;
        } else if (field.type == TYPE_BYTES && field.number == 2) {
            status = value_signs(field.content, is_list, &has_kind, signs);
            if (status) return status;
        } else {
            signs->strange = 1;
        }
    }
    if (!good_key) signs->strange = 1;
    if (is_list) signs->lists = 1;
    if (good_key && has_kind) signs->clean = 1;
    return WIRE_OK;
}

static int map_signs(wire_slice map, int is_list, record_signs *signs) {
    wire_cursor cursor = {map.data, map.data + map.length};
    while (cursor.at < cursor.end) {
        wire_field field;
        int status = wire_next(&cursor, 1, &field);
        if (status) return status;
        if (field.type == TYPE_BYTES && field.number == 1) {
            status = entry_signs(field.content, is_list, signs);
            if (status) return status;
        } else {
            signs->strange = 1;
        }
    }
    return WIRE_OK;
}

static int record_signs_read(const scan_record *record, record_signs *signs) {
    wire_cursor cursor = {record->data, record->data + record->length};
    while (cursor.at < cursor.end) {
        wire_field field;
        int status = wire_next(&cursor, 0, &field);
        if (status) return status;
        if (field.type == TYPE_BYTES && field.number <= 2) {
            status = map_signs(field.content, field.number == 2, signs);
            if (status) return status;
        } else {
            signs->strange = 1;
        }
    }
    return WIRE_OK;
}

/* A class of the enum above, or -1 if out of memory. */
static int record_class(const scan_record *record) {
    record_signs signs = {0, 0, 0};
    uint8_t status;
    if (records_check(record, 1, &status)) return -1;
    /* Another process may change the bytes in between, so this pass checks bounds again. */
    if (status || record_signs_read(record, &signs)) return RECORD_INVALID;
    if (signs.clean) return signs.lists ? RECORD_SEQUENCE : RECORD_EXAMPLE;
    if (signs.strange) return RECORD_FOREIGN;
    return signs.lists ? RECORD_NEUTRAL_LISTS : RECORD_NEUTRAL;
}

#endif
