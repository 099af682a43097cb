/* CRC-32C as fast as one core goes: three lanes of the SSE4.2 instruction, or a plain table.
 *
 * The instruction takes 8 bytes and has a latency of three cycles, so three independent lanes
 * keep it busy. Their registers are joined by "what N zero bytes do to a register", which is
 * linear and therefore a table of 4 x 256 words, made once by feeding zero bytes.
 */
#ifndef BENCH_CRC32C_H
#define BENCH_CRC32C_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__SSE4_2__) && defined(__x86_64__)
#include <nmmintrin.h>

enum { LONG_LANE = 4096, SHORT_LANE = 256 };

static uint32_t after_long[4][256], after_short[4][256];

static uint64_t crc32c_lane(uint64_t crc, const uint8_t *at, size_t size) {
    uint64_t word;
    for (; size >= 8; at += 8, size -= 8) {
        memcpy(&word, at, 8);
        crc = _mm_crc32_u64(crc, word);
    }
    for (; size; at++, size--)
        crc = _mm_crc32_u8((uint32_t)crc, *at);
    return crc;
}

static void crc32c_after_zeros(uint32_t table[4][256], size_t count) {
    uint32_t of_bit[32];
    for (int bit = 0; bit < 32; bit++) {
        uint64_t crc = 1u << bit;
        for (size_t i = 0; i < count; i += 8)
            crc = _mm_crc32_u64(crc, 0);
        of_bit[bit] = (uint32_t)crc;
    }
    for (int byte = 0; byte < 4; byte++)
        for (int value = 0; value < 256; value++) {
            uint32_t sum = 0;
            for (int bit = 0; bit < 8; bit++)
                if (value >> bit & 1)
                    sum ^= of_bit[8 * byte + bit];
            table[byte][value] = sum;
        }
}

static void crc32c_setup(void) {
    crc32c_after_zeros(after_long, LONG_LANE);
    crc32c_after_zeros(after_short, SHORT_LANE);
}

static uint32_t crc32c_moved(uint32_t table[4][256], uint32_t crc) {
    return table[0][crc & 255] ^ table[1][crc >> 8 & 255] ^ table[2][crc >> 16 & 255]
           ^ table[3][crc >> 24];
}

static const uint8_t *crc32c_lanes(uint64_t *crc, const uint8_t *at, size_t *size, size_t lane,
                                   uint32_t table[4][256]) {
    while (*size >= 3 * lane) {
        uint64_t a = *crc, b = 0, c = 0, x, y, z;
        for (size_t i = 0; i < lane; i += 8) {
            memcpy(&x, at + i, 8);
            memcpy(&y, at + lane + i, 8);
            memcpy(&z, at + 2 * lane + i, 8);
            a = _mm_crc32_u64(a, x);
            b = _mm_crc32_u64(b, y);
            c = _mm_crc32_u64(c, z);
        }
        *crc = crc32c_moved(table, crc32c_moved(table, (uint32_t)a) ^ (uint32_t)b) ^ (uint32_t)c;
        at += 3 * lane;
        *size -= 3 * lane;
    }
    return at;
}

static uint32_t crc32c(const uint8_t *at, size_t size) {
    uint64_t crc = 0xffffffffu;
    at = crc32c_lanes(&crc, at, &size, LONG_LANE, after_long);
    at = crc32c_lanes(&crc, at, &size, SHORT_LANE, after_short);
    return ~(uint32_t)crc32c_lane(crc, at, size);
}

#else

static uint32_t crc32c_table[256];

static void crc32c_setup(void) {
    for (uint32_t value = 0; value < 256; value++) {
        uint32_t crc = value;
        for (int bit = 0; bit < 8; bit++)
            crc = crc & 1 ? crc >> 1 ^ 0x82f63b78u : crc >> 1;
        crc32c_table[value] = crc;
    }
}

static uint32_t crc32c(const uint8_t *at, size_t size) {
    uint32_t crc = 0xffffffffu;
    for (; size; at++, size--)
        crc = crc32c_table[(crc ^ *at) & 255] ^ crc >> 8;
    return ~crc;
}

#endif
#endif
