/* Kafka's primitive types, read with bounds and written to a buffer that grows. */
#ifndef BENCH_WIRE_H
#define BENCH_WIRE_H

#include <endian.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void die(const char *what) {
    perror(what);
    exit(1);
}

static void *sized(void *old, size_t size) {
    void *memory = realloc(old, size);
    if (!memory)
        die("realloc");
    return memory;
}

/* A read past the end gives zeros and sets `bad`. */
struct reader {
    uint8_t *at, *end;
    int bad;
};

static uint8_t *take(struct reader *in, size_t size) {
    static uint8_t zeros[16];
    if ((size_t)(in->end - in->at) < size) {
        in->bad = 1;
        in->at = in->end;
        return zeros;
    }
    in->at += size;
    return in->at - size;
}

static int8_t read_8(struct reader *in) { return (int8_t)*take(in, 1); }

static int16_t read_16(struct reader *in) {
    uint16_t value;
    memcpy(&value, take(in, 2), 2);
    return (int16_t)be16toh(value);
}

static int32_t read_32(struct reader *in) {
    uint32_t value;
    memcpy(&value, take(in, 4), 4);
    return (int32_t)be32toh(value);
}

static int64_t read_64(struct reader *in) {
    uint64_t value;
    memcpy(&value, take(in, 8), 8);
    return (int64_t)be64toh(value);
}

static uint32_t read_uvarint(struct reader *in) {
    uint32_t value = 0;
    for (int shift = 0; shift < 35; shift += 7) {
        uint8_t byte = *take(in, 1);
        value |= (uint32_t)(byte & 127) << shift;
        if (byte < 128)
            return value;
    }
    in->bad = 1;
    return 0;
}

struct span {
    uint8_t *at;
    size_t size;
};

/* `size` is what the wire says, so a read past the end is caught before any use. */
static struct span read_span(struct reader *in, size_t size) {
    struct span found = {take(in, size), size};
    if (in->bad)
        found.size = 0;
    return found;
}

static struct span read_string(struct reader *in) {
    int16_t size = read_16(in);
    return read_span(in, size > 0 ? (size_t)size : 0);
}

static struct span read_compact(struct reader *in) {
    uint32_t size = read_uvarint(in);
    return read_span(in, size ? size - 1 : 0);
}

static void read_tags(struct reader *in) {
    for (uint32_t count = read_uvarint(in); count && !in->bad; count--) {
        read_uvarint(in);
        take(in, read_uvarint(in));
    }
}

struct writer {
    uint8_t *bytes;
    size_t size, room;
};

static uint8_t *put(struct writer *out, size_t size) {
    if (out->size + size > out->room)
        out->bytes = sized(out->bytes, out->room = (out->size + size) * 2);
    out->size += size;
    return out->bytes + out->size - size;
}

static void write_8(struct writer *out, int8_t value) { *put(out, 1) = (uint8_t)value; }

static void write_16(struct writer *out, int16_t value) {
    uint16_t big = htobe16((uint16_t)value);
    memcpy(put(out, 2), &big, 2);
}

static void write_32(struct writer *out, int32_t value) {
    uint32_t big = htobe32((uint32_t)value);
    memcpy(put(out, 4), &big, 4);
}

static void write_64(struct writer *out, int64_t value) {
    uint64_t big = htobe64((uint64_t)value);
    memcpy(put(out, 8), &big, 8);
}

static void write_uvarint(struct writer *out, uint32_t value) {
    for (; value > 127; value >>= 7)
        write_8(out, (int8_t)(value | 128));
    write_8(out, (int8_t)value);
}

static void write_string(struct writer *out, struct span text) {
    write_16(out, (int16_t)text.size);
    memcpy(put(out, text.size), text.at, text.size);
}

static void write_compact(struct writer *out, struct span text) {
    write_uvarint(out, (uint32_t)text.size + 1);
    memcpy(put(out, text.size), text.at, text.size);
}

#endif
