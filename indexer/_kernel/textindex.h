/* Lines of "offset size", read and written. */
#ifndef INDEXER_TEXTINDEX_H
#define INDEXER_TEXTINDEX_H

#include <stdint.h>
#include <string.h>

/* Reads a decimal number at *at; returns 0 if there is none or it does not fit 64 bits. */
static int text_number(const uint8_t *data, uint64_t size, uint64_t *at, uint64_t *value) {
    uint64_t i = *at, v = 0;
    while (i < size && data[i] >= '0' && data[i] <= '9') {
        uint64_t digit = (uint64_t)(data[i] - '0');
        if (v > (UINT64_MAX - digit) / 10) return 0;
        v = v * 10 + digit;
        i++;
    }
    if (i == *at) return 0;
    *at = i;
    *value = v;
    return 1;
}

static uint64_t text_blanks(const uint8_t *data, uint64_t size, uint64_t at) {
    while (at < size && (data[at] == ' ' || data[at] == '\t')) at++;
    return at;
}

/* Fills the arrays with the two numbers of each line, except blank ones. Returns 0, or the number (from 1) of the first
 * line that is not valid. */
static uint64_t text_parse(const uint8_t *data, uint64_t size, uint64_t *offsets, uint64_t *sizes, uint64_t capacity,
                           uint64_t *count) {
    uint64_t at = 0, line = 1, found = 0;
    for (; at < size; line++) {
        at = text_blanks(data, size, at);
        if (at < size && data[at] != '\n' && data[at] != '\r') {
            uint64_t gap;
            if (found == capacity || !text_number(data, size, &at, &offsets[found])) return line;
            gap = text_blanks(data, size, at);
            if (gap == at) return line;
            at = gap;
            if (!text_number(data, size, &at, &sizes[found])) return line;
            at = text_blanks(data, size, at);
            found++;
        }
        if (at < size && data[at] == '\r') at++;
        if (at < size && data[at++] != '\n') return line;
    }
    *count = found;
    return 0;
}

static uint8_t *text_digits(uint8_t *out, uint64_t value) {
    uint8_t digits[20];
    int n = 0;
    do digits[n++] = (uint8_t)('0' + value % 10);
    while (value /= 10);
    while (n) *out++ = digits[--n];
    return out;
}

enum { TEXT_LINE_MAX = 42 };

/* Write `count` lines to `out`, which has TEXT_LINE_MAX bytes for each; returns the bytes written. */
static uint64_t text_format(const uint64_t *offsets, const uint64_t *sizes, uint64_t count, uint8_t *out) {
    uint8_t *at = out;
    for (uint64_t i = 0; i < count; i++) {
        at = text_digits(at, offsets[i]);
        *at++ = ' ';
        at = text_digits(at, sizes[i]);
        *at++ = '\n';
    }
    return (uint64_t)(at - out);
}

#endif
