/* The protobuf wire format through a bounded cursor: every read is checked against what remains.
 *
 * The bytes belong to the caller, and may change at any time: another thread writes to a bytearray, another process to
 * a mapped file. So a length is read once, into a variable (`wire_byte`), and checked there; nothing that was checked
 * is read again and trusted.
 *
 * Functions return WIRE_OK or a status; nothing is ever read at or after `end`. Lengths are unsigned and compared with
 * the bytes left, never added to a position first. The rules are those of upb, except twice: map entries with unknown
 * fields are kept, and field number 0 is an error inside groups too.
 */
#ifndef TFRECORD_WIRE_H
#define TFRECORD_WIRE_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "codes.h"

#if defined(__GNUC__) || defined(__clang__)
#define WIRE_INLINE static inline __attribute__((always_inline))
#define WIRE_COLD static __attribute__((noinline, cold))
#define WIRE_LIKELY(x) __builtin_expect(!!(x), 1)
#define WIRE_UNLIKELY(x) __builtin_expect(!!(x), 0)
#else
#define WIRE_INLINE static inline
#define WIRE_COLD static
#define WIRE_LIKELY(x) (x)
#define WIRE_UNLIKELY(x) (x)
#endif

enum { TYPE_VARINT = 0, TYPE_FIXED64 = 1, TYPE_BYTES = 2, TYPE_GROUP = 3, TYPE_END = 4, TYPE_FIXED32 = 5 };

/* Messages and groups together, as protobuf counts. */
#define WIRE_MAX_DEPTH 100

typedef struct {
    const uint8_t *at;
    const uint8_t *end;
} wire_cursor;

typedef struct {
    const uint8_t *data;
    size_t length;
} wire_slice;

typedef struct {
    uint32_t number;
    uint32_t type;
    wire_slice content; /* for a varint, its bytes; for TYPE_BYTES, the bytes that its length covers */
} wire_field;

/* One byte, read exactly once: the compiler must not load it again after a check. */
WIRE_INLINE uint8_t wire_byte(const uint8_t *at) { return *(const volatile uint8_t *)at; }

WIRE_INLINE size_t wire_left(const wire_cursor *cursor) { return (size_t)(cursor->end - cursor->at); }

/* A varint of at most `most` bytes. Bits above 64 in byte 10 are dropped. */
WIRE_INLINE int wire_varint(wire_cursor *cursor, unsigned most, uint64_t *value) {
    const uint8_t *at = cursor->at;
    size_t left = wire_left(cursor);
    uint64_t result = 0;
    for (unsigned i = 0; i < most; i++) {
        if (WIRE_UNLIKELY(i >= left)) return WIRE_TRUNCATED;
        uint64_t byte = wire_byte(at + i);
        result |= (byte & 127) << (7 * i);
        if (byte < 128) {
            cursor->at = at + i + 1;
            *value = result;
            return WIRE_OK;
        }
    }
    return WIRE_VARINT_TOO_LONG;
}

/* A length, and that many bytes after it. */
WIRE_INLINE int wire_take_slice(wire_cursor *cursor, wire_slice *slice) {
    uint64_t length = cursor->at < cursor->end ? wire_byte(cursor->at) : 128;
    if (WIRE_LIKELY(length < 128)) {
        cursor->at++;
    } else {
        int status = wire_varint(cursor, 5, &length);
        if (status) return status == WIRE_VARINT_TOO_LONG ? WIRE_LENGTH_TOO_LARGE : status;
        if (length > 0x7fffffffu) return WIRE_LENGTH_TOO_LARGE;
    }
    if (WIRE_UNLIKELY(length > wire_left(cursor))) return WIRE_TRUNCATED;
    slice->data = cursor->at;
    slice->length = (size_t)length;
    cursor->at += length;
    return WIRE_OK;
}

WIRE_INLINE int wire_take_fixed(wire_cursor *cursor, size_t size, wire_slice *slice) {
    if (wire_left(cursor) < size) return WIRE_TRUNCATED;
    slice->data = cursor->at;
    slice->length = size;
    cursor->at += size;
    return WIRE_OK;
}

WIRE_INLINE int wire_tag(wire_cursor *cursor, uint32_t *number, uint32_t *type) {
    uint64_t tag;
    int status = wire_varint(cursor, 5, &tag);
    if (status) return status == WIRE_VARINT_TOO_LONG ? WIRE_BAD_TAG : status;
    if (tag > 0xffffffffu || tag < 8) return WIRE_BAD_TAG;
    *number = (uint32_t)(tag >> 3);
    *type = (uint32_t)(tag & 7);
    return WIRE_OK;
}

/* The content of a field that is not a group. */
static int wire_content(wire_cursor *cursor, uint32_t type, wire_slice *content) {
    uint64_t ignored;
    int status;
    switch (type) {
    case TYPE_VARINT:
        content->data = cursor->at;
        status = wire_varint(cursor, 10, &ignored);
        content->length = (size_t)(cursor->at - content->data);
        return status;
    case TYPE_FIXED64:
        return wire_take_fixed(cursor, 8, content);
    case TYPE_FIXED32:
        return wire_take_fixed(cursor, 4, content);
    case TYPE_BYTES:
        return wire_take_slice(cursor, content);
    default:
        return WIRE_BAD_TYPE;
    }
}

/* Skip a group whose start has been read; it is nested `depth` deep, itself included. */
WIRE_COLD int wire_skip_group(wire_cursor *cursor, uint32_t number, int depth) {
    uint32_t opened[WIRE_MAX_DEPTH + 1];
    int count = 0;
    if (depth > WIRE_MAX_DEPTH) return WIRE_TOO_DEEP;
    opened[count++] = number;
    while (count) {
        uint32_t type;
        wire_slice content;
        int status;
        if (cursor->at == cursor->end) return WIRE_BAD_GROUP;
        status = wire_tag(cursor, &number, &type);
        if (status) return status;
        if (type == TYPE_GROUP) {
            if (depth + count > WIRE_MAX_DEPTH) return WIRE_TOO_DEEP;
            opened[count++] = number;
        } else if (type == TYPE_END) {
            if (opened[--count] != number) return WIRE_BAD_GROUP;
        } else {
            status = wire_content(cursor, type, &content);
            if (status) return status;
        }
    }
    return WIRE_OK;
}

/* The next field of a message nested `depth` deep; a group is skipped and its content is empty. */
static int wire_next(wire_cursor *cursor, int depth, wire_field *field) {
    int status = wire_tag(cursor, &field->number, &field->type);
    if (status) return status;
    if (field->type == TYPE_GROUP) {
        field->content.data = cursor->at;
        field->content.length = 0;
        return wire_skip_group(cursor, field->number, depth + 1);
    }
    if (field->type == TYPE_END) return WIRE_BAD_GROUP;
    return wire_content(cursor, field->type, &field->content);
}

/* UTF-8 without surrogates, overlong forms, or anything above U+10FFFF. */
static int wire_valid_utf8(const uint8_t *text, size_t length) {
    size_t i = 0;
    while (i < length) {
        uint8_t lead = text[i++];
        uint8_t low = 0x80, high = 0xbf;
        size_t more;
        if (lead < 0x80) continue;
        if (lead < 0xc2 || lead > 0xf4) return 0;
        more = lead < 0xe0 ? 1 : lead < 0xf0 ? 2 : 3;
        if (more > length - i) return 0;
        if (lead == 0xe0) low = 0xa0;
        if (lead == 0xed) high = 0x9f;
        if (lead == 0xf0) low = 0x90;
        if (lead == 0xf4) high = 0x8f;
        if (text[i] < low || text[i] > high) return 0;
        for (size_t k = 1; k < more; k++)
            if ((text[i + k] & 0xc0) != 0x80) return 0;
        i += more;
    }
    return 1;
}

#endif
