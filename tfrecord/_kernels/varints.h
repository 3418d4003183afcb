/* Packed varints, many at a time.
 *
 * The high bits of 64 bytes show where values end. If each byte is a value, the bytes are widened directly; else the
 * bytes of each value are loaded as one word and its 7-bit groups are joined (BMI2 pext). The widest version that the
 * processor supports is chosen at run time; the portable one gives the same results and is tested as well.
 */
#ifndef TFRECORD_VARINTS_H
#define TFRECORD_VARINTS_H

#include "wire.h"

#if (defined(__x86_64__)) && (defined(__GNUC__) || defined(__clang__))
#define VARINTS_X86 1
#include <immintrin.h>
#else
#define VARINTS_X86 0
#endif

enum { SIMD_PORTABLE = 0, SIMD_AVX2 = 1, SIMD_AVX512 = 2 };

/* The best level of this processor. On AMD before Zen 3, pext is microcode and slower than the portable version. */
static int varints_best_level(void) {
#if VARINTS_X86
    __builtin_cpu_init();
    if (!__builtin_cpu_supports("bmi") || !__builtin_cpu_supports("bmi2")) return SIMD_PORTABLE;
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("popcnt")) return SIMD_PORTABLE;
    if (__builtin_cpu_is("znver1") || __builtin_cpu_is("znver2")) return SIMD_PORTABLE;
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw")) return SIMD_AVX512;
    return SIMD_AVX2;
#else
    return SIMD_PORTABLE;
#endif
}

/* The number of values in a run (its terminator bytes). */
static int64_t varints_count_portable(const uint8_t *data, size_t length) {
    int64_t count = 0;
    size_t i = 0;
    for (; i + 8 <= length; i += 8) {
        uint64_t word;
        memcpy(&word, data + i, 8);
        word = (~word >> 7) & 0x0101010101010101u;
        count += (int64_t)((word * 0x0101010101010101u) >> 56);
    }
    for (; i < length; i++) count += data[i] < 128;
    return count;
}

/* Values until one starts at or after `stop`; a value must end before `end`. `*out` advances, up to `room`. */
WIRE_INLINE int varints_some(
    const uint8_t **data, const uint8_t *stop, const uint8_t *end, int64_t **out, int64_t *room) {
    wire_cursor cursor = {*data, end};
    int64_t *to = *out;
    while (cursor.at < stop) {
        uint64_t value = *cursor.at;
        if (WIRE_UNLIKELY(to >= room)) return WIRE_CHANGED;
        if (value < 128) {
            cursor.at++;
        } else {
            int status = wire_varint(&cursor, 10, &value);
            if (status) return status;
        }
        *to++ = (int64_t)value;
    }
    *data = cursor.at;
    *out = to;
    return WIRE_OK;
}

#if VARINTS_X86

#define VARINTS_256 "avx2,bmi,bmi2,popcnt"
#define VARINTS_PAYLOAD 0x7f7f7f7f7f7f7f7fu

/* The next value of a block, whose first byte is at data[start]: its bytes as one word, cut behind the last, their 7-bit
 * groups pulled together. Behind the last value of the block it makes something up, within VARINTS_READ bytes. */
#define VARINTS_NEXT(data, ends, start, out)                                                                 \
    do {                                                                                                     \
        uint64_t last = _tzcnt_u64(ends);                                                                    \
        uint64_t word;                                                                                       \
        memcpy(&word, (data) + (start), 8);                                                                  \
        word = _bzhi_u64(word, (unsigned)(8 * (last + 1 - (start))));                                        \
        *(out)++ = (int64_t)_pext_u64(word, VARINTS_PAYLOAD);                                                \
        (start) = last + 1;                                                                                  \
        (ends) = _blsr_u64(ends);                                                                            \
    } while (0)

/* A block is 64 bytes. Values are taken 8 at a time, the number of blocks of 8 being easier to predict than that of
 * values; what is made up behind the last one is written over by the next block, and there must be room for it. */
#define VARINTS_READ 80
#define VARINTS_AHEAD 1024
#define VARINTS_ROOM 72

/* Whether there are 8 consecutive continuation bytes, so that a value may have more than 8 bytes. */
WIRE_INLINE int varints_has_long(uint64_t ends) {
    uint64_t runs = ~ends;
    runs &= runs >> 1;
    runs &= runs >> 2;
    runs &= runs >> 4;
    return runs != 0;
}

/* The loop of both widths; long values and the tail are read one by one. */
#define VARINTS_DECODE_BODY(WIDEN, ENDS)                                                                     \
    const uint8_t *end = data + length;                                                                      \
    int64_t *to = *out;                                                                                      \
    int status = WIRE_OK;                                                                                    \
    while (end - data >= VARINTS_READ && room - to >= VARINTS_ROOM) {                                        \
        uint64_t ends = ENDS(data);                                                                          \
        __builtin_prefetch(data + VARINTS_AHEAD);                                                            \
        if (ends == ~(uint64_t)0) {                                                                          \
            WIDEN(data, to);                                                                                 \
            data += 64;                                                                                      \
            to += 64;                                                                                        \
        } else if (WIRE_UNLIKELY(varints_has_long(ends))) {                                                  \
            if ((status = varints_some(&data, data + 32, end, &to, room))) break;                            \
        } else {                                                                                             \
            int64_t *next = to + _mm_popcnt_u64(ends);                                                       \
            const uint8_t *behind = data + 64 - __builtin_clzll(ends);                                            \
            uint64_t start = 0;                                                                              \
            while (to < next) {                                                                              \
                for (int i = 0; i < 8; i++) VARINTS_NEXT(data, ends, start, to);                             \
            }                                                                                                \
            to = next;                                                                                       \
            data = behind;                                                                                   \
        }                                                                                                    \
    }                                                                                                        \
    *out = to;                                                                                               \
    return status ? status : varints_some(&data, end, end, out, room);

__attribute__((target(VARINTS_256))) WIRE_INLINE uint64_t varints_ends_avx2(const uint8_t *data) {
    uint32_t low = (uint32_t)_mm256_movemask_epi8(_mm256_loadu_si256((const __m256i *)data));
    uint32_t high = (uint32_t)_mm256_movemask_epi8(_mm256_loadu_si256((const __m256i *)(data + 32)));
    return ~((uint64_t)high << 32 | low);
}

__attribute__((target(VARINTS_256))) WIRE_INLINE void varints_widen_avx2(const uint8_t *data, int64_t *out) {
    for (int i = 0; i < 64; i += 4) {
        int32_t four;
        memcpy(&four, data + i, 4);
        _mm256_storeu_si256((__m256i *)(out + i), _mm256_cvtepu8_epi64(_mm_cvtsi32_si128(four)));
    }
}

__attribute__((target(VARINTS_256))) static int varints_decode_avx2(
    const uint8_t *data, size_t length, int64_t **out, int64_t *room) {
    VARINTS_DECODE_BODY(varints_widen_avx2, varints_ends_avx2)
}

#define VARINTS_512 "avx512f,avx512bw," VARINTS_256

__attribute__((target(VARINTS_512))) WIRE_INLINE uint64_t varints_ends_avx512(const uint8_t *data) {
    return ~(uint64_t)_mm512_movepi8_mask(_mm512_loadu_si512(data));
}

__attribute__((target(VARINTS_512))) WIRE_INLINE void varints_widen_avx512(const uint8_t *data, int64_t *out) {
    for (int i = 0; i < 64; i += 8)
        _mm512_storeu_si512(out + i, _mm512_cvtepu8_epi64(_mm_loadl_epi64((const __m128i *)(data + i))));
}

__attribute__((target(VARINTS_512))) static int varints_decode_avx512(
    const uint8_t *data, size_t length, int64_t **out, int64_t *room) {
    VARINTS_DECODE_BODY(varints_widen_avx512, varints_ends_avx512)
}

__attribute__((target("avx2,popcnt"))) static int64_t varints_count_avx2(const uint8_t *data, size_t length) {
    int64_t continued = 0;
    size_t i = 0;
    for (; i + 32 <= length; i += 32)
        continued += __builtin_popcount(
            (uint32_t)_mm256_movemask_epi8(_mm256_loadu_si256((const __m256i *)(data + i))));
    return (int64_t)i - continued + varints_count_portable(data + i, length - i);
}

#endif /* VARINTS_X86 */

static int64_t varints_count(const uint8_t *data, size_t length, int level) {
#if VARINTS_X86
    if (level >= SIMD_AVX2 && length >= 32) return varints_count_avx2(data, length);
#endif
    (void)level;
    return varints_count_portable(data, length);
}

/* Whether a run whose values are not read is valid: none has more than 10 bytes, and the last one ends. */
static int varints_check(const uint8_t *data, size_t length) {
    size_t i = 0;
    if (!length) return WIRE_OK;
#if VARINTS_X86
    /* Ten bytes in a row lie within one of these blocks, each of which begins 9 bytes before the end of the last. */
    for (; i + 64 <= length; i += 55) {
        uint64_t more = 0;
        for (int k = 0; k < 4; k++) {
            __m128i bytes = _mm_loadu_si128((const __m128i *)(data + i + 16 * k));
            more |= (uint64_t)(uint32_t)_mm_movemask_epi8(bytes) << 16 * k;
        }
        more &= more >> 1;
        more &= more >> 2;
        if (WIRE_UNLIKELY(more & more >> 4 & more >> 6)) return WIRE_VARINT_TOO_LONG;
    }
#endif
    for (size_t continued = 0; i < length; i++) {
        continued = data[i] < 128 ? 0 : continued + 1;
        if (continued == 10) return WIRE_VARINT_TOO_LONG;
    }
    return data[length - 1] < 128 ? WIRE_OK : WIRE_TRUNCATED;
}

/* Values of a run that ends at a terminator. `*out` advances, but never beyond `room`, even if the bytes have changed
 * since they were counted. WIRE_VARINT_TOO_LONG for a value of more than 10 bytes. */
static int varints_decode(const uint8_t *data, size_t length, int64_t **out, int64_t *room, int level) {
#if VARINTS_X86
    if (length >= VARINTS_READ) {
        if (level >= SIMD_AVX512) return varints_decode_avx512(data, length, out, room);
        if (level >= SIMD_AVX2) return varints_decode_avx2(data, length, out, room);
    }
#endif
    (void)level;
    return varints_some(&data, data + length, data + length, out, room);
}

#endif
