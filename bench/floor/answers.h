/* The answers that carry no records: what librdkafka asks before it produces or fetches. */
#ifndef BENCH_ANSWERS_H
#define BENCH_ANSWERS_H

#include "log.h"

enum { PRODUCE = 0, FETCH = 1, LIST_OFFSETS = 2, METADATA = 3, API_VERSIONS = 18 };
enum { DELETE_TOPICS = 20 };

static const struct {
    int16_t key, last_version;
} apis[] = {{PRODUCE, 9}, {FETCH, 12}, {LIST_OFFSETS, 2}, {METADATA, 4},
          {API_VERSIONS, 3}, {DELETE_TOPICS, 1}};

static int port;

static void answer_api_versions(struct writer *out, int16_t version) {
    int count = sizeof apis / sizeof *apis;
    write_16(out, version > 3 ? 35 : 0);
    if (version == 3)
        write_uvarint(out, (uint32_t)count + 1);
    else
        write_32(out, count);
    for (int i = 0; i < count; i++) {
        write_16(out, apis[i].key);
        write_16(out, 0);
        write_16(out, apis[i].last_version);
        if (version == 3)
            write_8(out, 0);
    }
    if (version >= 1 && version <= 3)
        write_32(out, 0);
    if (version == 3)
        write_8(out, 0);
}

static void answer_metadata(struct reader *in, struct writer *out) {
    struct span host = {(uint8_t *)"127.0.0.1", 9};
    int32_t count = read_32(in);
    write_32(out, 0);
    write_32(out, 1);
    write_32(out, 1);
    write_string(out, host);
    write_32(out, port);
    write_16(out, -1);
    write_16(out, -1);
    write_32(out, 1);
    write_32(out, count < 0 ? 0 : count);
    for (; count > 0 && !in->bad; count--) {
        struct span name = read_string(in);
        int known = topic_named(name, 1) != NULL;
        write_16(out, known ? 0 : UNKNOWN_TOPIC_OR_PARTITION);
        write_string(out, name);
        write_8(out, 0);
        write_32(out, known ? partition_count : 0);
        for (int i = 0; known && i < partition_count; i++) {
            write_16(out, 0);
            write_32(out, i);
            write_32(out, 1);
            for (int list = 0; list < 2; list++) {
                write_32(out, 1);
                write_32(out, 1);
            }
        }
    }
}

static void answer_list_offsets(struct reader *in, struct writer *out) {
    read_32(in);
    read_8(in);
    write_32(out, 0);
    int32_t count = read_32(in);
    write_32(out, count);
    for (; count > 0 && !in->bad; count--) {
        struct span name = read_string(in);
        write_string(out, name);
        int32_t indexes = read_32(in);
        write_32(out, indexes);
        for (; indexes > 0 && !in->bad; indexes--) {
            int32_t index = read_32(in);
            int64_t timestamp = read_64(in);
            struct partition *log = partition_of(name, index);
            write_32(out, index);
            write_16(out, log ? 0 : UNKNOWN_TOPIC_OR_PARTITION);
            write_64(out, -1);
            write_64(out, log && timestamp == -1 ? log->next_offset : 0);
        }
    }
}

static void answer_delete_topics(struct reader *in, struct writer *out) {
    int32_t count = read_32(in);
    write_32(out, 0);
    write_32(out, count);
    for (; count > 0 && !in->bad; count--) {
        struct span name = read_string(in);
        write_string(out, name);
        write_16(out, delete_topic(name) ? 0 : UNKNOWN_TOPIC_OR_PARTITION);
    }
}

#endif
