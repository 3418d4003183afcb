/* The frame loops, for one way to compute the CRC. Included several times by framing.h with these defined:
 * FRAMES(name)         the name of a function in this way
 * FRAMES_TARGET        its function attribute
 * FRAMES_CRC(c, p, n)  the CRC of n bytes
 * FRAMES_CRC_WORD(p)   the CRC of eight bytes
 *
 * Every length is unsigned and compared with what remains before anything is read. */

FRAMES_TARGET static uint32_t FRAMES(extend)(uint32_t crc, const uint8_t *p, size_t n) {
    return FRAMES_CRC(crc, p, n);
}

/* Frames from `start` on, until one is invalid, `capacity` are found, or `limit` is reached. `checksums`: the stored
 * ones of the payloads are wanted too, unless it is NULL; those that were checked are not read again. */
FRAMES_TARGET static int FRAMES(scan)(const uint8_t *data, uint64_t size, uint64_t start, uint64_t limit, int verify,
                                      int final, uint64_t *offsets, uint64_t *lengths, uint64_t *checksums,
                                      uint64_t capacity, uint64_t *count, uint64_t *end) {
    uint64_t at = start, found = 0;
    int status = FRAME_OK;
    while (found < capacity && at < limit) {
        const uint8_t *frame = data + at;
        uint64_t left = size - at;
        if (left < FRAME_HEADER) {
            status = final ? FRAME_CUT_HEADER : FRAME_OK;
            break;
        }
        uint64_t length = load_le64(frame);
        if (verify >= VERIFY_LENGTHS && crc_mask(FRAMES_CRC_WORD(frame)) != load_le32(frame + 8)) {
            status = FRAME_BAD_LENGTH;
            break;
        }
        if (left < FRAME_OVERHEAD || length > left - FRAME_OVERHEAD) {
            status = final ? FRAME_CUT : FRAME_OK;
            break;
        }
        if (verify >= VERIFY_ALL || checksums) {
            uint32_t stored = load_le32(frame + FRAME_HEADER + length);
            if (verify >= VERIFY_ALL && crc_mask(FRAMES_CRC(0, frame + FRAME_HEADER, (size_t)length)) != stored) {
                status = FRAME_BAD_PAYLOAD;
                break;
            }
            if (checksums) checksums[found] = stored;
        }
#if defined(__GNUC__)
        /* A header scan of short records waits for memory at each one, and is slower than reading everything. */
        if (verify < VERIFY_ALL && length < 4096)
            for (uint64_t line = 0; line < length + FRAME_OVERHEAD; line += 64)
                __builtin_prefetch((const void *)((uintptr_t)frame + 8192 + line));
#endif
        offsets[found] = at;
        lengths[found++] = length;
        at += FRAME_OVERHEAD + length;
    }
    *count = found;
    *end = at;
    return status;
}

FRAMES_TARGET static int FRAMES(check_one)(const uint8_t *data, uint64_t size, uint64_t at, uint64_t length,
                                           int verify) {
    if (at > size || size - at < FRAME_OVERHEAD || length > size - at - FRAME_OVERHEAD) return FRAME_MISMATCH;
    const uint8_t *frame = data + at;
    if (verify >= VERIFY_LENGTHS && crc_mask(FRAMES_CRC_WORD(frame)) != load_le32(frame + 8))
        return FRAME_BAD_LENGTH;
    if (load_le64(frame) != length) return FRAME_MISMATCH;
    if (verify >= VERIFY_ALL && crc_mask(FRAMES_CRC(0, frame + FRAME_HEADER, (size_t)length)) !=
                                    load_le32(frame + FRAME_HEADER + length))
        return FRAME_BAD_PAYLOAD;
    return FRAME_OK;
}

/* The first of `count` frames that does not match the arrays; `count` if all match. */
FRAMES_TARGET static int FRAMES(check)(const uint8_t *data, uint64_t size, const uint64_t *offsets,
                                       const uint64_t *lengths, uint64_t count, int verify, uint64_t *place) {
    int status = FRAME_OK;
    uint64_t i = 0;
    for (; i < count; i++) {
#if defined(__GNUC__)
        /* Random positions miss the caches: prefetch a later frame (a short one whole) while this one is checked. */
        if (i + 8 < count && offsets[i + 8] < size) {
            const uint8_t *coming = data + offsets[i + 8];
            uint64_t left = size - offsets[i + 8];
            uint64_t reach = verify < VERIFY_ALL || lengths[i + 8] > 1536 ? FRAME_HEADER : lengths[i + 8];
            for (uint64_t line = 0; line <= reach && line < left; line += 64) __builtin_prefetch(coming + line);
        }
#endif
        status = FRAMES(check_one)(data, size, offsets[i], lengths[i], verify);
        if (status != FRAME_OK) break;
    }
    *place = i;
    return status;
}

#undef FRAMES
#undef FRAMES_TARGET
#undef FRAMES_CRC
#undef FRAMES_CRC_WORD
