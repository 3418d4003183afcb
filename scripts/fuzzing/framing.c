/* Fuzzes framing, checksums and the text index without an interpreter: every way to compute a checksum must agree with
 * the tables. Inputs are those of `check_framing` in scripts/fuzz.py: the first byte says how to scan, and whether the
 * rest is used as frames or describes payloads to put into frames. */
#include <stdio.h>
#include <stdlib.h>

#include "../../indexer/_kernel/framing.h"
#include "../../indexer/_kernel/textindex.h"

#define MOST 64
#define REQUIRE(what) \
    do { \
        if (!(what)) { \
            fprintf(stderr, "%s:%d: %s does not hold\n", __FILE__, __LINE__, #what); \
            abort(); \
        } \
    } while (0)

static void put_le(uint8_t *to, uint64_t value, int bytes) {
    for (int i = 0; i < bytes; i++) to[i] = (uint8_t)(value >> 8 * i);
}

/* Frames of the payloads that the input describes, as far as they fit. */
static size_t make_frames(const uint8_t *data, size_t size, uint8_t *made, size_t room) {
    size_t used = 0;
    for (size_t at = 0; at < size;) {
        uint8_t length = data[at++];
        if (length >= 64) {
            if (used) made[length * 7919u % used] ^= length;
            continue;
        }
        if (length > size - at) length = (uint8_t)(size - at);
        if (room - used < (size_t)length + FRAME_OVERHEAD) break;
        put_le(made + used, length, 8);
        put_le(made + used + 8, crc_mask(frames_paths[0].extend(0, made + used, 8)), 4);
        memcpy(made + used + FRAME_HEADER, data + at, length);
        put_le(made + used + FRAME_HEADER + length, crc_mask(frames_paths[0].extend(0, data + at, length)), 4);
        used += length + FRAME_OVERHEAD;
        at += length;
    }
    return used;
}

static void check_text(const uint8_t *data, size_t size) {
    uint64_t offsets[16], sizes[16], again[16], count = 0, recount = 0;
    uint8_t text[16 * TEXT_LINE_MAX];
    if (text_parse(data, size, offsets, sizes, 16, &count)) return;
    REQUIRE(count <= 16);
    size = text_format(offsets, sizes, count, text);
    REQUIRE(!text_parse(text, size, again, sizes, 16, &recount) && recount == count);
    REQUIRE(!memcmp(offsets, again, count * sizeof *offsets));
}

int LLVMFuzzerInitialize(int *argc, char ***argv) {
    (void)argc;
    (void)argv;
    crc_prepare();
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    uint8_t made[1024], *frames, mode;
    uint64_t offsets[2][MOST], lengths[2][MOST], checksums[2][MOST], count[2], end[2], place[2];
    size_t length;
    int status[2], best, verify;
    if (!size) return 0;
    mode = data[0];
    check_text(data + 1, size - 1);
    length = mode & 1 ? make_frames(data + 1, size - 1, made, sizeof made) : size - 1;
    frames = (uint8_t *)malloc(length ? length : 1);
    REQUIRE(frames);
    memcpy(frames, mode & 1 ? made : data + 1, length);
    verify = (mode >> 1) % 3;
    best = crc_best();
    for (int path = 0, way = 0; path <= best; path++, way = 1) {
        const frames_path *paths = &frames_paths[path];
        uint64_t capacity = mode & 32 ? 2 : MOST;
        REQUIRE(paths->extend(mode, frames, length) == frames_paths[0].extend(mode, frames, length));
        status[way] = paths->scan(frames, length, 0, length, verify, mode & 16, offsets[way], lengths[way],
                                  checksums[way], capacity, &count[way], &end[way]);
        REQUIRE(count[way] <= capacity && end[way] <= length);
        for (uint64_t i = 0; i < count[way]; i++)
            REQUIRE(checksums[way][i] == load_le32(frames + offsets[way][i] + FRAME_HEADER + lengths[way][i]));
        for (uint64_t i = 0; mode & 128 && i < count[way]; i++) lengths[way][i] += mode & 64 ? 1 : ~(uint64_t)0 << 40;
        place[way] = 0;
        status[way] |= paths->check(frames, length, offsets[way], lengths[way], count[way], verify, &place[way]) << 8;
        if (!(mode & 128)) REQUIRE(place[way] == count[way] && status[way] < 256);
        if (!way) continue;
        REQUIRE(status[0] == status[1] && count[0] == count[1] && end[0] == end[1] && place[0] == place[1]);
        REQUIRE(!memcmp(offsets[0], offsets[1], count[0] * sizeof **offsets));
        REQUIRE(!memcmp(lengths[0], lengths[1], count[0] * sizeof **lengths));
    }
    free(frames);
    return 0;
}
