/* CRC-32C (Castagnoli): in hardware if the processor has it (checked at run time), else by tables.
 *
 * Every path takes and returns the finished value (as zlib.crc32 does), so that parts can be chained.
 * Polynomials are bit-reflected: the lowest bit of a word is its highest power of x.
 *
 * Products without carry: for reflected 32-bit a and b the 63-bit product, read as a reflected 64-bit word, is
 * a*b*x; and crc32q(0, v) is v*x^32 mod P. So crc32q(0, clmul(a, x^(n-33))) = a*x^n: it moves a CRC over n bits. */
#ifndef INDEXER_CRC32C_H
#define INDEXER_CRC32C_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if (defined(__x86_64__)) && (defined(__GNUC__) || defined(__clang__))
#define CRC_X86 1
#include <immintrin.h>
#elif defined(__aarch64__) && (defined(__GNUC__) || defined(__clang__)) && (defined(__linux__) || defined(__APPLE__))
#define CRC_ARM 1
#include <arm_acle.h>
#if defined(__linux__)
#include <sys/auxv.h>
#endif
#endif

#ifndef CRC_AHEAD
#define CRC_AHEAD 8192 /* prefetch this far ahead, beyond the page that the hardware prefetches */
#endif
#ifndef CRC_AVX_LEAST
#define CRC_AVX_LEAST 320
#endif
#define CRC_FOLD_LEAST 1024 /* from this length on by 256-bit products; at least 512 */
#define CRC_POLYNOMIAL 0x82f63b78u
#define CRC_LANE_WORDS 1024 /* the most 8-byte words of a lane before the three lanes are merged */

static uint32_t crc_tables[8][256];
static uint64_t crc_lane_shift[2 * CRC_LANE_WORDS + 1]; /* [w] moves a CRC over w words */

static inline uint64_t load_le64(const uint8_t *p) {
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    uint64_t v;
    memcpy(&v, p, 8);
    return v;
#else
    uint64_t v = 0;
    for (int i = 7; i >= 0; i--) v = v << 8 | p[i];
    return v;
#endif
}

static inline uint32_t load_le32(const uint8_t *p) {
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static inline uint32_t crc_mask(uint32_t crc) { return (crc >> 15 | crc << 17) + 0xa282ead8u; }

/* x^n mod P */
static uint32_t crc_power(unsigned n) {
    uint32_t v = 0x80000000u;
    while (n--) v = v >> 1 ^ (v & 1 ? CRC_POLYNOMIAL : 0);
    return v;
}

/* ---- tables: eight bytes per step ------------------------------------------------------------------------ */

static uint32_t crc_extend_table(uint32_t crc, const uint8_t *p, size_t n) {
    crc = ~crc;
    while (n >= 8) {
        uint64_t v = load_le64(p) ^ crc;
        crc = crc_tables[7][v & 255] ^ crc_tables[6][v >> 8 & 255] ^ crc_tables[5][v >> 16 & 255] ^
              crc_tables[4][v >> 24 & 255] ^ crc_tables[3][v >> 32 & 255] ^ crc_tables[2][v >> 40 & 255] ^
              crc_tables[1][v >> 48 & 255] ^ crc_tables[0][v >> 56];
        p += 8;
        n -= 8;
    }
    while (n--) crc = crc >> 8 ^ crc_tables[0][(crc ^ *p++) & 255];
    return ~crc;
}

/* ---- x86: crc32q in three lanes; long runs by wide carry-less products ----------------------------------- */

#if defined(CRC_X86)
#define CRC_SSE __attribute__((target("sse4.2,pclmul")))
#define CRC_INLINE static inline __attribute__((always_inline))
#define CRC_AVX __attribute__((target("sse4.2,pclmul,avx512f,avx512bw,avx512vl,vpclmulqdq")))

/* Fewer than eight bytes. */
static inline CRC_SSE uint64_t crc_bytes_sse(uint64_t crc, const uint8_t *p, size_t n) {
    if (n & 4) {
        crc = _mm_crc32_u32((uint32_t)crc, load_le32(p));
        p += 4;
    }
    if (n & 2) {
        crc = _mm_crc32_u16((uint32_t)crc, (uint16_t)(p[0] | p[1] << 8));
        p += 2;
    }
    return n & 1 ? _mm_crc32_u8((uint32_t)crc, *p) : crc;
}

/* Whole words, then the odd bytes without a branch, because lengths vary and each branch would be mispredicted. Leading
 * zeros do not change a CRC that starts from zero, so the odd bytes go to the high end of one more word. If the state
 * is longer than the odd bytes, its rest is not shifted in yet and is added to the result. */
CRC_INLINE CRC_SSE uint64_t crc_tail_sse(uint64_t crc, const uint8_t *p, size_t n) {
    if (n < 8) return crc_bytes_sse(crc, p, n);
    for (const uint8_t *end = p + (n & ~(size_t)7); p != end; p += 8) crc = _mm_crc32_u64(crc, load_le64(p));
    unsigned odd = 8 * (unsigned)(n & 7), half = (64 - odd) / 2;
    uint64_t last = load_le64(p + (n & 7) - 8) >> half >> half ^ crc;
    return _mm_crc32_u64(0, last << half << half) ^ crc >> odd;
}

/* a*shift + b, each to be reduced by one crc32q(0, ..) */
static inline CRC_SSE uint64_t crc_product_sse(uint64_t crc, uint64_t shift) {
    return (uint64_t)_mm_cvtsi128_si64(
        _mm_clmulepi64_si128(_mm_cvtsi64_si128((long long)crc), _mm_cvtsi64_si128((long long)shift), 0));
}

/* Raw state in, raw state out (no inversion). */
CRC_INLINE CRC_SSE uint64_t crc_run_sse(uint64_t crc, const uint8_t *p, size_t n) {
    while (n >= 96) {
        size_t words = n / 24 < CRC_LANE_WORDS ? n / 24 : CRC_LANE_WORDS;
        const uint8_t *p1 = p + 8 * words, *p2 = p + 16 * words;
        uint64_t c1 = 0, c2 = 0;
        for (size_t i = 0; i < words; i++) {
            crc = _mm_crc32_u64(crc, load_le64(p + 8 * i));
            c1 = _mm_crc32_u64(c1, load_le64(p1 + 8 * i));
            c2 = _mm_crc32_u64(c2, load_le64(p2 + 8 * i));
        }
        crc = c2 ^ _mm_crc32_u64(0, crc_product_sse(crc, crc_lane_shift[2 * words]) ^
                                        crc_product_sse(c1, crc_lane_shift[words]));
        p += 24 * words;
        n -= 24 * words;
    }
    return crc_tail_sse(crc, p, n);
}

CRC_INLINE CRC_SSE uint32_t crc_extend_sse(uint32_t crc, const uint8_t *p, size_t n) {
    return ~(uint32_t)crc_run_sse((uint32_t)~crc, p, n);
}

CRC_INLINE CRC_SSE uint32_t crc_word_sse(const uint8_t *p) {
    return ~(uint32_t)_mm_crc32_u64(0xffffffffu, load_le64(p));
}

/* Constants that fold a 128-bit lane over `bits`: x^(bits+63) for its first word, x^(bits-1) for its second. */
static uint64_t crc_fold[4][2];     /* over 2048, 1536, 1024, 512 bits */
static uint64_t crc_fold_lanes[8];  /* the four lanes of one register into its last */

static inline CRC_AVX __m512i crc_fold_avx(__m512i a, __m512i k, __m512i b) {
    return _mm512_ternarylogic_epi64(_mm512_clmulepi64_epi128(a, k, 0x00), _mm512_clmulepi64_epi128(a, k, 0x11), b,
                                     0x96);
}

static inline CRC_AVX __m512i crc_constant_avx(const uint64_t *pair) {
    return _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)pair));
}

#define CRC_FOLD __attribute__((target("sse4.2,pclmul,avx2,vpclmulqdq")))

static inline CRC_FOLD __m256i crc_fold_256(__m256i a, const uint64_t *pair, __m256i b) {
    __m256i k = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)pair));
    a = _mm256_xor_si256(_mm256_clmulepi64_epi128(a, k, 0x00), _mm256_clmulepi64_epi128(a, k, 0x11));
    return _mm256_xor_si256(a, b);
}

/* At least CRC_FOLD_LEAST bytes, in blocks of eight registers; for processors without 512-bit ones. */
static __attribute__((noinline)) CRC_FOLD uint64_t crc_run_fold(uint64_t crc, const uint8_t *p, size_t n) {
    __m256i r[8];
    for (int i = 0; i < 8; i++) r[i] = _mm256_loadu_si256((const __m256i *)(p + 32 * i));
    r[0] = _mm256_xor_si256(r[0], _mm256_zextsi128_si256(_mm_cvtsi32_si128((int)(uint32_t)crc)));
    for (p += 256, n -= 256; n >= 256; p += 256, n -= 256) {
        for (int line = 0; line < 256; line += 64) __builtin_prefetch((const void *)((uintptr_t)p + CRC_AHEAD + line));
        for (int i = 0; i < 8; i++)
            r[i] = crc_fold_256(r[i], crc_fold[0], _mm256_loadu_si256((const __m256i *)(p + 32 * i)));
    }
    for (int i = 0; i < 4; i++) r[i + 4] = crc_fold_256(r[i], crc_fold[2], r[i + 4]);
    for (int i = 4; i < 6; i++) r[i + 2] = crc_fold_256(r[i], crc_fold[3], r[i + 2]);
    r[7] = crc_fold_256(r[6], crc_fold_lanes + 2, r[7]);
    r[6] = crc_fold_256(r[7], crc_fold_lanes + 4, _mm256_permute2x128_si256(r[7], r[7], 1)); /* the low half only */
    crc = _mm_crc32_u64(0, (uint64_t)_mm256_extract_epi64(r[6], 0));
    return crc_run_sse(_mm_crc32_u64(crc, (uint64_t)_mm256_extract_epi64(r[6], 1)), p, n);
}

CRC_INLINE CRC_FOLD uint32_t crc_extend_fold(uint32_t crc, const uint8_t *p, size_t n) {
    crc = ~crc;
    return ~(uint32_t)(n >= CRC_FOLD_LEAST ? crc_run_fold(crc, p, n) : crc_run_sse(crc, p, n));
}

/* Moves the bytes of a 32-bit number to any four consecutive places, in one register or across two. */
static const uint8_t crc_ramp[192] = {
#define Z 128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128
    Z, Z, Z, Z, 0, 1, 2, 3, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128, Z, Z, Z, Z, Z, Z, Z
#undef Z
};

/* At least CRC_AVX_LEAST bytes. The first block is the short one, so that no odd bytes are left at the end. It gets
 * leading zeros, which do not change a CRC that starts from zero. The caller's state is added to the first four
 * bytes. */
static __attribute__((noinline)) CRC_AVX uint64_t crc_run_avx(uint64_t crc, const uint8_t *p, size_t n) {
    size_t odd = (n - 1) % 64 + 1, blocks = (n - odd) / 64;
    __m512i state = _mm512_set1_epi32((int)crc);
    __m512i a = _mm512_maskz_loadu_epi8(~(__mmask64)0 << (64 - odd), (const void *)((uintptr_t)p + odd - 64));
    a = _mm512_xor_si512(a, _mm512_shuffle_epi8(state, _mm512_loadu_si512(crc_ramp + odd)));
    p += odd;
    __m512i b = _mm512_shuffle_epi8(state, _mm512_loadu_si512(crc_ramp + 64 + odd));
    b = _mm512_xor_si512(b, _mm512_loadu_si512(p));
    __m512i c = _mm512_loadu_si512(p + 64), d = _mm512_loadu_si512(p + 128);
    __m512i k = crc_constant_avx(crc_fold[0]);
    for (p += 192, blocks -= 3; blocks >= 4; p += 256, blocks -= 4) {
        for (int line = 0; line < 256; line += 64) __builtin_prefetch((const void *)((uintptr_t)p + CRC_AHEAD + line));
        a = crc_fold_avx(a, k, _mm512_loadu_si512(p));
        b = crc_fold_avx(b, k, _mm512_loadu_si512(p + 64));
        c = crc_fold_avx(c, k, _mm512_loadu_si512(p + 128));
        d = crc_fold_avx(d, k, _mm512_loadu_si512(p + 192));
    }
    d = crc_fold_avx(a, crc_constant_avx(crc_fold[1]), d);
    d = crc_fold_avx(b, crc_constant_avx(crc_fold[2]), d);
    k = crc_constant_avx(crc_fold[3]);
    d = crc_fold_avx(c, k, d);
    for (; blocks; p += 64, blocks--) d = crc_fold_avx(d, k, _mm512_loadu_si512(p));
    __m128i last = _mm512_extracti32x4_epi32(d, 3);
    __m512i folded = crc_fold_avx(d, _mm512_loadu_si512(crc_fold_lanes), _mm512_setzero_si512());
    __m256i half = _mm256_xor_si256(_mm512_castsi512_si256(folded), _mm512_extracti64x4_epi64(folded, 1));
    last = _mm_xor_si128(last, _mm_xor_si128(_mm256_castsi256_si128(half), _mm256_extracti32x4_epi32(half, 1)));
    crc = _mm_crc32_u64(0, (uint64_t)_mm_cvtsi128_si64(last));
    return _mm_crc32_u64(crc, (uint64_t)_mm_extract_epi64(last, 1));
}

CRC_INLINE CRC_AVX uint32_t crc_extend_avx(uint32_t crc, const uint8_t *p, size_t n) {
    crc = ~crc;
    return ~(uint32_t)(n >= CRC_AVX_LEAST ? crc_run_avx(crc, p, n) : crc_run_sse(crc, p, n));
}
#endif

/* ---- ARMv8: crc32cx in three lanes ----------------------------------------------------------------------- */

#if defined(CRC_ARM)
#if defined(__clang__)
#define CRC_ARMV8 __attribute__((target("crc")))
#define CRC_ARM_WORD __builtin_arm_crc32cd /* clang's arm_acle.h hides these unless they are the default */
#define CRC_ARM_BYTE __builtin_arm_crc32cb
#else
#define CRC_ARMV8 __attribute__((target("+crc")))
#define CRC_ARM_WORD __crc32cd
#define CRC_ARM_BYTE __crc32cb
#endif
static uint32_t crc_arm_shift[2]; /* x^n for one lane and two lanes of CRC_LANE_WORDS words */

static inline uint32_t crc_multiply(uint32_t a, uint32_t b) {
    uint32_t product = 0;
    for (uint32_t bit = 0x80000000u; bit; bit >>= 1) {
        if (a & bit) product ^= b;
        b = b >> 1 ^ (b & 1 ? CRC_POLYNOMIAL : 0);
    }
    return product;
}

static inline CRC_ARMV8 uint32_t crc_extend_arm(uint32_t crc, const uint8_t *p, size_t n) {
    crc = ~crc;
    while (n >= 24 * CRC_LANE_WORDS) {
        uint32_t c1 = 0, c2 = 0;
        for (size_t i = 0; i < 8 * CRC_LANE_WORDS; i += 8) {
            crc = CRC_ARM_WORD(crc, load_le64(p + i));
            c1 = CRC_ARM_WORD(c1, load_le64(p + 8 * CRC_LANE_WORDS + i));
            c2 = CRC_ARM_WORD(c2, load_le64(p + 16 * CRC_LANE_WORDS + i));
        }
        crc = crc_multiply(crc, crc_arm_shift[1]) ^ crc_multiply(c1, crc_arm_shift[0]) ^ c2;
        p += 24 * CRC_LANE_WORDS;
        n -= 24 * CRC_LANE_WORDS;
    }
    for (; n >= 8; p += 8, n -= 8) crc = CRC_ARM_WORD(crc, load_le64(p));
    while (n--) crc = CRC_ARM_BYTE(crc, *p++);
    return ~crc;
}
#endif

/* ---- choice ---------------------------------------------------------------------------------------------- */

enum { CRC_TABLE = 0, CRC_HARDWARE = 1, CRC_FOLDED = 2, CRC_WIDE = 3 };

static void crc_prepare(void) {
    for (unsigned i = 0; i < 256; i++) {
        uint32_t v = i;
        for (int bit = 0; bit < 8; bit++) v = v >> 1 ^ (v & 1 ? CRC_POLYNOMIAL : 0);
        crc_tables[0][i] = v;
    }
    for (unsigned i = 0; i < 256; i++)
        for (int t = 1; t < 8; t++)
            crc_tables[t][i] = crc_tables[t - 1][i] >> 8 ^ crc_tables[0][crc_tables[t - 1][i] & 255];
    for (unsigned w = 1; w <= 2 * CRC_LANE_WORDS; w++)
        crc_lane_shift[w] = w == 1 ? crc_power(31) : 0;
    for (unsigned w = 2; w <= 2 * CRC_LANE_WORDS; w++) {
        uint32_t v = (uint32_t)crc_lane_shift[w - 1];
        for (int bit = 0; bit < 64; bit++) v = v >> 1 ^ (v & 1 ? CRC_POLYNOMIAL : 0);
        crc_lane_shift[w] = v;
    }
#if defined(CRC_X86)
    for (unsigned i = 0; i < 4; i++) {
        unsigned bits = 2048 - 512 * i;
        crc_fold[i][0] = (uint64_t)crc_power(bits + 63) << 32;
        crc_fold[i][1] = (uint64_t)crc_power(bits - 1) << 32;
    }
    for (unsigned lane = 0; lane < 3; lane++) {
        unsigned bits = 384 - 128 * lane;
        crc_fold_lanes[2 * lane] = (uint64_t)crc_power(bits + 63) << 32;
        crc_fold_lanes[2 * lane + 1] = (uint64_t)crc_power(bits - 1) << 32;
    }
#elif defined(CRC_ARM)
    crc_arm_shift[0] = crc_power(64 * CRC_LANE_WORDS);
    crc_arm_shift[1] = crc_power(128 * CRC_LANE_WORDS);
#endif
}

/* The best path on this processor. */
static int crc_best(void) {
#if defined(CRC_X86)
    __builtin_cpu_init();
    if (!__builtin_cpu_supports("sse4.2") || !__builtin_cpu_supports("pclmul")) return CRC_TABLE;
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("vpclmulqdq")) return CRC_HARDWARE;
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl")
               ? CRC_WIDE
               : CRC_FOLDED;
#elif defined(CRC_ARM) && defined(__linux__)
    return getauxval(AT_HWCAP) & (1 << 7) ? CRC_HARDWARE : CRC_TABLE; /* HWCAP_CRC32 */
#elif defined(CRC_ARM)
    return CRC_HARDWARE; /* every 64-bit Apple machine has it */
#else
    return CRC_TABLE;
#endif
}

#endif
