/* Frames of one buffer, checked by the CRC path that the caller chooses. */
#ifndef INDEXER_FRAMING_H
#define INDEXER_FRAMING_H

#include "crc32c.h"

enum { FRAME_HEADER = 12, FRAME_OVERHEAD = 16 };
enum { VERIFY_LENGTHS = 1, VERIFY_ALL = 2 };
enum {
    FRAME_OK = 0,
    FRAME_CUT_HEADER = 1,
    FRAME_CUT = 2,
    FRAME_BAD_LENGTH = 3,
    FRAME_BAD_PAYLOAD = 4,
    FRAME_MISMATCH = 5
};

#define FRAMES(name) frames_##name##_table
#define FRAMES_TARGET
#define FRAMES_CRC(crc, p, n) crc_extend_table(crc, p, n)
#define FRAMES_CRC_WORD(p) crc_extend_table(0, p, 8)
#include "frames.h"

#if defined(CRC_X86)
#define FRAMES(name) frames_##name##_hardware
#define FRAMES_TARGET CRC_SSE
#define FRAMES_CRC(crc, p, n) crc_extend_sse(crc, p, n)
#define FRAMES_CRC_WORD(p) crc_word_sse(p)
#include "frames.h"

#define FRAMES(name) frames_##name##_folded
#define FRAMES_TARGET CRC_FOLD
#define FRAMES_CRC(crc, p, n) crc_extend_fold(crc, p, n)
#define FRAMES_CRC_WORD(p) crc_word_sse(p)
#include "frames.h"

#define FRAMES(name) frames_##name##_wide
#define FRAMES_TARGET CRC_AVX
#define FRAMES_CRC(crc, p, n) crc_extend_avx(crc, p, n)
#define FRAMES_CRC_WORD(p) crc_word_sse(p)
#include "frames.h"
#elif defined(CRC_ARM)
#define FRAMES(name) frames_##name##_hardware
#define FRAMES_TARGET CRC_ARMV8
#define FRAMES_CRC(crc, p, n) crc_extend_arm(crc, p, n)
#define FRAMES_CRC_WORD(p) crc_extend_arm(0, p, 8)
#include "frames.h"
#endif

typedef uint32_t (*frames_extend_fn)(uint32_t, const uint8_t *, size_t);
typedef int (*frames_scan_fn)(const uint8_t *, uint64_t, uint64_t, uint64_t, int, int, uint64_t *, uint64_t *,
                              uint64_t *, uint64_t, uint64_t *, uint64_t *);
typedef int (*frames_check_one_fn)(const uint8_t *, uint64_t, uint64_t, uint64_t, int);
typedef int (*frames_check_fn)(const uint8_t *, uint64_t, const uint64_t *, const uint64_t *, uint64_t, int,
                               uint64_t *);

typedef struct {
    const char *name;
    frames_extend_fn extend;
    frames_scan_fn scan;
    frames_check_one_fn check_one;
    frames_check_fn check;
} frames_path;

#define FRAMES_PATH(name) \
    { #name, frames_extend_##name, frames_scan_##name, frames_check_one_##name, frames_check_##name }

static const frames_path frames_paths[] = {
    FRAMES_PATH(table),
#if defined(CRC_X86) || defined(CRC_ARM)
    FRAMES_PATH(hardware),
#endif
#if defined(CRC_X86)
    FRAMES_PATH(folded),
    FRAMES_PATH(wide),
#endif
};

#endif
