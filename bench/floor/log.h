/* What the floor keeps of a partition: one file that only grows, and where each batch lies. */
#ifndef BENCH_LOG_H
#define BENCH_LOG_H

#include <fcntl.h>
#include <limits.h>
#include <sys/uio.h>
#include <unistd.h>

#include "crc32c.h"
#include "wire.h"

enum { MAX_TOPICS = 256, MAX_PARTITIONS = 16, QUEUED = 256 };
enum { CORRUPT_MESSAGE = 2, UNKNOWN_TOPIC_OR_PARTITION = 3, BATCH_HEADER = 61 };

struct placed {
    int64_t base_offset, position;
};

struct stretch {
    int64_t position, size;
};

struct partition {
    int fd, unsynced;
    int64_t next_offset, size;
    struct placed *batches;
    size_t count, room;
    struct iovec queued[QUEUED];
    int queued_count;
};

struct topic {
    char name[256];
    size_t name_size;
    struct partition partitions[MAX_PARTITIONS];
};

static struct topic *topics[MAX_TOPICS];
static int topic_count, topics_made, partition_count = 1;
static const char *data_folder;

static struct topic *topic_named(struct span name, int create) {
    for (int i = 0; i < topic_count; i++)
        if (topics[i]->name_size == name.size && !memcmp(topics[i]->name, name.at, name.size))
            return topics[i];
    if (!create || topic_count == MAX_TOPICS || name.size >= sizeof topics[0]->name)
        return NULL;
    struct topic *topic = sized(NULL, sizeof *topic);
    memset(topic, 0, sizeof *topic);
    memcpy(topic->name, name.at, topic->name_size = name.size);
    for (int i = 0; i < partition_count; i++) {
        char path[PATH_MAX];
        snprintf(path, sizeof path, "%s/%d-%d.log", data_folder, topics_made, i);
        topic->partitions[i].fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_APPEND, 0644);
        if (topic->partitions[i].fd < 0)
            die(path);
    }
    topics_made++;
    return topics[topic_count++] = topic;
}

static struct partition *partition_of(struct span name, int32_t index) {
    struct topic *topic = topic_named(name, 0);
    return topic && index >= 0 && index < partition_count ? &topic->partitions[index] : NULL;
}

static int delete_topic(struct span name) {
    struct topic *topic = topic_named(name, 0);
    if (!topic)
        return 0;
    for (int i = 0; i < partition_count; i++) {
        if (ftruncate(topic->partitions[i].fd, 0))
            die("ftruncate");
        close(topic->partitions[i].fd);
        free(topic->partitions[i].batches);
    }
    for (int i = 0; i < topic_count; i++)
        if (topics[i] == topic)
            topics[i] = topics[--topic_count];
    free(topic);
    return 1;
}

static void write_queued(struct partition *log) {
    struct iovec *at = log->queued;
    int count = log->queued_count;
    while (count) {
        ssize_t written = writev(log->fd, at, count);
        if (written < 0)
            die("writev");
        for (; count && (size_t)written >= at->iov_len; at++, count--)
            written -= (ssize_t)at->iov_len;
        if (count) {
            at->iov_base = (uint8_t *)at->iov_base + written;
            at->iov_len -= (size_t)written;
        }
    }
    log->queued_count = 0;
}

/* Checks one batch, gives it its offset in place and queues its bytes, which must stay until
 * `write_queued`. Returns an error code. */
static int16_t append(struct partition *log, struct span batch, int64_t *base_offset) {
    struct reader in = {batch.at, batch.at + batch.size, 0};
    if (batch.size < BATCH_HEADER)
        return CORRUPT_MESSAGE;
    take(&in, 8);
    if ((size_t)read_32(&in) + 12 != batch.size || batch.at[16] != 2)
        return CORRUPT_MESSAGE;
    in.at = batch.at + 17;
    uint32_t crc = (uint32_t)read_32(&in);
    if (crc != crc32c(batch.at + 21, batch.size - 21))
        return CORRUPT_MESSAGE;
    in.at = batch.at + 23;
    int32_t last_offset_delta = read_32(&in);
    uint64_t big = htobe64((uint64_t)log->next_offset);
    memcpy(batch.at, &big, 8);
    memset(batch.at + 12, 0, 4);
    if (log->queued_count == QUEUED)
        write_queued(log);
    log->queued[log->queued_count++] = (struct iovec){batch.at, batch.size};
    if (log->count == log->room)
        log->batches = sized(log->batches, sizeof *log->batches * (log->room = 2 * log->room + 64));
    log->batches[log->count++] = (struct placed){log->next_offset, log->size};
    *base_offset = log->next_offset;
    log->next_offset += last_offset_delta + 1;
    log->size += (int64_t)batch.size;
    return 0;
}

/* Whole batches from the one that holds `offset`, at most `limit` bytes but at least one. */
static struct stretch slice_from(struct partition *log, int64_t offset, int64_t limit) {
    size_t low = 0, high = log->count;
    if (offset >= log->next_offset)
        return (struct stretch){0, 0};
    while (high - low > 1) {
        size_t middle = (low + high) / 2;
        if (log->batches[middle].base_offset <= offset)
            low = middle;
        else
            high = middle;
    }
    int64_t start = log->batches[low].position, end = log->size;
    if (end - start > limit) {
        size_t first = low + 1;
        low = first, high = log->count;
        while (high - low > 1) {
            size_t middle = (low + high) / 2;
            if (log->batches[middle].position - start <= limit)
                low = middle;
            else
                high = middle;
        }
        if (low < log->count)
            end = log->batches[low].position;
    }
    return (struct stretch){start, end - start};
}

#endif
