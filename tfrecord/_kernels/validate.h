/* Checks whether a record is a valid Example or SequenceExample, without decoding it.
 *
 * Every field is checked in wire order. Entries are expected to equal those of the record before except for their
 * values; such an entry is recognized by a few word comparisons. All others are walked.
 */
#ifndef TFRECORD_CHECK_H
#define TFRECORD_CHECK_H

#include "key_table.h"

/* An entry `0a E 0a K key 12 F kind L 0a P values`, all lengths below 128, as it was met at a place. What differs from
 * one record to the next is P, and with it E, F and L. The head is what is before the values: its first 8 bytes, its
 * last 8, and from byte 8 on as many words as are needed between them. */
#define CHECK_WORDS 8
#define CHECK_MOST_HEAD (8 * CHECK_WORDS)

typedef struct {
    uint64_t head[CHECK_WORDS];
    uint64_t lengths[CHECK_WORDS]; /* 1 in the bytes of E, F, L and P */
    uint64_t last;                 /* 0x80 if the last byte must end a varint */
    uint32_t num_words, head_length;
    uint32_t whole; /* bytes of the entry */
    uint8_t kind;
} check_guess;

/* Longer than any entry, so that no entry matches. */
#define CHECK_NOTHING 0xffffffffu

typedef struct {
    check_guess *guesses; /* after the last one comes one that expects nothing */
    uint32_t num_guesses, place;
} check_state;

WIRE_INLINE size_t head_place(size_t word, uint32_t head_length) {
    return word == 1 ? head_length - 8 : word ? 8 * word - 8 : 0;
}

/* Whether the expected entry is at this place, but for values that are `more` bytes longer. It is then valid whatever
 * they are: floats and byte strings of these lengths, or at most 10 bytes of varints the last of which ends. */
WIRE_INLINE int guess_holds(const check_guess *guess, const uint8_t *at, size_t left, uint64_t more) {
    size_t whole = guess->whole + (size_t)more;
    uint64_t differs;
    if (whole > left) return 0;
    differs = at[whole - 1] & guess->last;
    for (size_t i = 0; i < 2 || i < guess->num_words; i++)
        differs |= load64(at + head_place(i, guess->head_length)) ^ (guess->head[i] + more * guess->lengths[i]);
    return !differs;
}

WIRE_INLINE int guess_allows(const check_guess *guess, uint32_t length) {
    if (guess->head_length + length > 129) return 0;
    if (guess->kind == KIND_INT64) return length <= 10;
    return guess->kind == KIND_BYTES || length % 4 == 0;
}

/* Whether the expected entry is at this place, with values of another length, which are then expected next. */
WIRE_INLINE int guess_moves(check_guess *guess, const uint8_t *at, size_t left) {
    uint32_t length;
    uint64_t more;
    if (guess->whole == CHECK_NOTHING || left < guess->head_length) return 0;
    length = at[guess->head_length - 1];
    more = (uint64_t)guess->head_length + length - guess->whole;
    if (!guess_allows(guess, length) || !guess_holds(guess, at, left, more)) return 0;
    for (uint32_t i = 0; i < guess->num_words; i++) guess->head[i] += more * guess->lengths[i];
    guess->whole += (uint32_t)more;
    return 1;
}

/* Expect this valid entry at the same place of the next record. */
static void guess_learn(check_guess *guess, const uint8_t *at, size_t whole) {
    uint8_t head[CHECK_MOST_HEAD] = {0}, lengths[CHECK_MOST_HEAD] = {0};
    const uint8_t *value;
    uint32_t key_length, length;
    guess->whole = CHECK_NOTHING;
    /* Use the copy, because a mapped file may change at any time. */
    memcpy(head, at, whole < CHECK_MOST_HEAD ? whole : CHECK_MOST_HEAD);
    key_length = head[3];
    if (whole > 129 || whole < key_length + 10 || key_length + 10 > CHECK_MOST_HEAD) return;
    length = (uint32_t)whole - key_length - 10;
    value = head + 4 + key_length;
    if (head[0] != 0x0a || head[1] != whole - 2 || head[2] != 0x0a) return;
    if (value[0] != 0x12 || value[1] != length + 4 || value[3] != length + 2) return;
    if (value[4] != 0x0a || value[5] != length) return;
    if (value[2] != 0x0a && value[2] != 0x12 && value[2] != 0x1a) return;
    guess->kind = value[2] >> 3;
    guess->last = guess->kind == KIND_INT64 ? 0x80 : 0;
    guess->head_length = key_length + 10;
    guess->num_words = 2 + (guess->head_length - 9) / 8;
    if (!guess_allows(guess, length)) return;
    lengths[1] = lengths[key_length + 5] = lengths[key_length + 7] = lengths[key_length + 9] = 1;
    for (uint32_t i = 0; i < guess->num_words; i++) {
        guess->head[i] = load64(head + head_place(i, guess->head_length));
        guess->lengths[i] = load64(lengths + head_place(i, guess->head_length));
    }
    guess->whole = (uint32_t)whole;
}

/* `wire_next`, with a fast path for a bytes field 1. */
WIRE_INLINE int check_next(wire_cursor *cursor, int depth, wire_field *field) {
    if (WIRE_UNLIKELY(*cursor->at != 0x0a)) return wire_next(cursor, depth, field);
    cursor->at++;
    field->number = 1;
    field->type = TYPE_BYTES;
    return wire_take_slice(cursor, &field->content);
}

/* A Feature nested `depth` messages deep. */
static int feature_check(wire_slice feature, int depth) {
    feature_slot slot;
    int kind = KIND_UNKNOWN;
    if (WIRE_LIKELY(feature_plain(feature, &slot))) return slot_check(&slot);
    return feature_walk(&feature, 1, depth, &kind, NULL);
}

/* The value of a map entry: a Feature, or a FeatureList. */
static int value_check(wire_slice value, int is_list) {
    wire_cursor cursor = {value.data, value.data + value.length};
    if (!is_list) return feature_check(value, 3);
    while (cursor.at < cursor.end) {
        wire_field field;
        int status = check_next(&cursor, 3, &field);
        if (status) return status;
        if (field.number != 1 || field.type != TYPE_BYTES) continue;
        if ((status = feature_check(field.content, 4))) return status;
    }
    return WIRE_OK;
}

/* An entry of any form. */
WIRE_COLD int entry_check_all(wire_slice entry, int is_list) {
    wire_field field;
    int valid = 1, status;
    for (int values = 0; values < 2; values++) {
        wire_cursor cursor = {entry.data, entry.data + entry.length};
        while (cursor.at < cursor.end) {
            if ((status = wire_next(&cursor, 2, &field))) return status;
            if (field.type != TYPE_BYTES) continue;
            if (!values && field.number == 1) valid = valid && wire_valid_utf8(field.content.data, field.content.length);
            if (values && field.number == 2 && (status = value_check(field.content, is_list))) return status;
        }
        if (!valid) return WIRE_BAD_UTF8;
    }
    return WIRE_OK;
}

/* An entry in the form that writers produce; others are walked. */
static int entry_check(wire_slice entry, int is_list) {
    wire_slice key, value;
    if (WIRE_UNLIKELY(!entry_plain(entry, &key, &value))) return entry_check_all(entry, is_list);
    return wire_valid_utf8(key.data, key.length) ? value_check(value, is_list) : WIRE_BAD_UTF8;
}

static int map_check(check_state *state, wire_slice map, int is_list) {
    wire_cursor cursor = {map.data, map.data + map.length};
    check_guess *guess = state->guesses + state->place;
    while (cursor.at < cursor.end) {
        const uint8_t *start = cursor.at;
        wire_field field;
        int status;
        if (!is_list) {
            while (guess_holds(guess, cursor.at, wire_left(&cursor), 0)) cursor.at += guess++->whole;
            start = cursor.at;
            if (start == cursor.end) break;
            if (WIRE_LIKELY(guess_moves(guess, start, wire_left(&cursor)))) {
                cursor.at += guess++->whole;
                continue;
            }
        }
        if ((status = check_next(&cursor, 1, &field))) return status;
        if (field.number != 1 || field.type != TYPE_BYTES) continue;
        if ((status = entry_check(field.content, is_list))) return status;
        if (is_list || guess == state->guesses + SCAN_MAX_GUESSES) continue;
        if (guess == state->guesses + state->num_guesses) guess[1].whole = CHECK_NOTHING, state->num_guesses++;
        guess_learn(guess++, start, (size_t)(cursor.at - start));
    }
    state->place = (uint32_t)(guess - state->guesses);
    return WIRE_OK;
}

/* WIRE_OK, or the status of the first invalid bytes. */
static int record_check(check_state *state, const scan_record *record) {
    wire_cursor cursor = {record->data, record->data + record->length};
    state->place = 0;
    while (cursor.at < cursor.end) {
        wire_field field;
        int status = check_next(&cursor, 0, &field);
        if (status) return status;
        if (field.type != TYPE_BYTES || field.number > 2) continue;
        if ((status = map_check(state, field.content, field.number == 2))) return status;
    }
    return WIRE_OK;
}

/* A status for each record; WIRE_NO_MEMORY or WIRE_OK. */
static int records_check(const scan_record *records, int64_t count, uint8_t *statuses) {
    check_state state = {0};
    state.guesses = (check_guess *)malloc((SCAN_MAX_GUESSES + 1) * sizeof *state.guesses);
    if (!state.guesses) return WIRE_NO_MEMORY;
    state.guesses[0].whole = CHECK_NOTHING;
    for (int64_t i = 0; i < count; i++) statuses[i] = (uint8_t)record_check(&state, &records[i]);
    free(state.guesses);
    return WIRE_OK;
}

#endif
