/* The least that a broker must do for a record, in plain C: the floor beside our figures.
 *
 *     floor DATA_DIR [PARTITIONS [PORT]]       prints "listening on 127.0.0.1:PORT"
 *
 * One thread, one epoll loop. Produce: receive, check the batch's CRC-32C, patch its offset in
 * the receive buffer, one writev per partition for all that one read brought, answer. With acks=all
 * one fdatasync per partition comes before all answers of a turn of the loop. Fetch: a header and whole batches by sendfile (small ones by pread).
 * It speaks just enough for librdkafka: ApiVersions 0-3, Metadata 4, ListOffsets 2, Produce 9,
 * Fetch 12, DeleteTopics 1. Topics appear when asked for; nothing survives a restart.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <time.h>

#include "answers.h"

enum { FIRST_ROOM = 128 << 10, MAX_FRAME = 100 << 20, SMALL_SLICE = 32 << 10, SLICES = 64 };

/* A piece of a file to be sent once `before` bytes of the answers have gone. */
struct slice {
    int fd;
    int64_t position, size;
    size_t before;
};

struct connection {
    int fd, closed, blocked, parked, unsynced;
    int64_t deadline_ms;
    uint8_t *in;
    size_t start, end, room;
    struct writer out;
    size_t sent;
    struct slice slices[SLICES];
    int slice_count, slices_sent;
    struct connection *next;
};

static struct connection *connections;
static struct partition *touched[MAX_TOPICS];
static int touched_count, appended, epoll_fd;

static int64_t now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static void write_touched(void) {
    for (int i = 0; i < touched_count; i++)
        write_queued(touched[i]);
    touched_count = 0;
}

/* Returns the acks of the request. */
static int16_t answer_produce(struct reader *in, struct writer *out) {
    read_compact(in);
    int16_t acks = read_16(in);
    read_32(in);
    uint32_t count = read_uvarint(in);
    write_uvarint(out, count);
    for (; count > 1 && !in->bad; count--) {
        struct span name = read_compact(in);
        write_compact(out, name);
        uint32_t indexes = read_uvarint(in);
        write_uvarint(out, indexes);
        for (; indexes > 1 && !in->bad; indexes--) {
            int32_t index = read_32(in);
            struct span batch = read_compact(in);
            read_tags(in);
            struct partition *log = partition_of(name, index);
            int64_t base_offset = -1;
            int16_t code = log ? append(log, batch, &base_offset) : UNKNOWN_TOPIC_OR_PARTITION;
            if (log && (!touched_count || touched[touched_count - 1] != log)) {
                if (touched_count == MAX_TOPICS)
                    write_touched();
                touched[touched_count++] = log;
            }
            if (log && acks == -1)
                log->unsynced = 1;
            write_32(out, index);
            write_16(out, code);
            write_64(out, base_offset);
            write_64(out, -1);
            write_64(out, 0);
            write_8(out, 1);
            write_8(out, 0);
            write_8(out, 0);
        }
        read_tags(in);
        write_8(out, 0);
    }
    write_32(out, 0);
    write_8(out, 0);
    appended = 1;
    return acks;
}

static void add_slice(struct connection *peer, struct partition *log, struct stretch found) {
    struct writer *out = &peer->out;
    if (found.size > SMALL_SLICE && peer->slice_count < SLICES) {
        peer->slices[peer->slice_count++] =
            (struct slice){log->fd, found.position, found.size, out->size};
        return;
    }
    if (pread(log->fd, put(out, (size_t)found.size), (size_t)found.size, found.position)
        != found.size)
        die("pread");
}

/* Returns the bytes of records in the answer. `*wait_ms` is what the client would wait. */
static int64_t answer_fetch(struct connection *peer, struct reader *in, int32_t *wait_ms) {
    struct writer *out = &peer->out;
    read_32(in);
    *wait_ms = read_32(in);
    read_32(in);
    int64_t left = read_32(in), total = 0;
    read_8(in);
    read_64(in);
    write_32(out, 0);
    write_16(out, 0);
    write_32(out, 0);
    uint32_t count = read_uvarint(in);
    write_uvarint(out, count);
    for (; count > 1 && !in->bad; count--) {
        struct span name = read_compact(in);
        write_compact(out, name);
        uint32_t indexes = read_uvarint(in);
        write_uvarint(out, indexes);
        for (; indexes > 1 && !in->bad; indexes--) {
            int32_t index = read_32(in);
            read_32(in);
            int64_t offset = read_64(in);
            read_32(in);
            read_64(in);
            int64_t limit = read_32(in);
            read_tags(in);
            struct partition *log = partition_of(name, index);
            struct stretch found = {0, 0};
            if (log && (left > 0 || !total))
                found = slice_from(log, offset, limit < left ? limit : left);
            write_32(out, index);
            write_16(out, log ? 0 : UNKNOWN_TOPIC_OR_PARTITION);
            write_64(out, log ? log->next_offset : -1);
            write_64(out, log ? log->next_offset : -1);
            write_64(out, 0);
            write_8(out, 0);
            write_32(out, -1);
            write_uvarint(out, (uint32_t)found.size + 1);
            if (found.size)
                add_slice(peer, log, found);
            write_8(out, 0);
            left -= found.size;
            total += found.size;
        }
        read_tags(in);
        write_8(out, 0);
    }
    write_8(out, 0);
    return total;
}

/* Returns 0 if the frame must wait for more data; its answer is then taken back. */
static int answer(struct connection *peer, uint8_t *frame, size_t size) {
    struct reader in = {frame, frame + size, 0};
    struct writer *out = &peer->out;
    size_t start = out->size;
    int slices = peer->slice_count, keep = 1;
    int16_t key = read_16(&in), version = read_16(&in);
    write_32(out, 0);
    write_32(out, read_32(&in));
    read_string(&in);
    if (key == API_VERSIONS) {
        answer_api_versions(out, version);
    } else if (key == METADATA && version == 4) {
        answer_metadata(&in, out);
    } else if (key == LIST_OFFSETS && version == 2) {
        answer_list_offsets(&in, out);
    } else if (key == DELETE_TOPICS && version == 1) {
        write_touched();
        answer_delete_topics(&in, out);
    } else if (key == PRODUCE && version == 9) {
        read_tags(&in);
        write_8(out, 0);
        int16_t acks = answer_produce(&in, out);
        if (!acks)
            out->size = start;
        if (acks == -1)
            peer->unsynced = 1;
    } else if (key == FETCH && version == 12) {
        int32_t wait_ms;
        read_tags(&in);
        write_8(out, 0);
        write_touched();
        if (!answer_fetch(peer, &in, &wait_ms)) {
            if (!peer->parked)
                peer->deadline_ms = now_ms() + wait_ms;
            keep = now_ms() >= peer->deadline_ms;
            peer->parked = !keep;
        } else {
            peer->parked = 0;
        }
    } else {
        fprintf(stderr, "the floor does not speak key %d version %d\n", key, version);
        in.bad = 1;
    }
    if (in.bad)
        peer->closed = 1;
    if (!keep || in.bad) {
        out->size = start;
        peer->slice_count = slices;
    }
    if (out->size > start) {
        size_t length = out->size - start - 4;
        for (int i = slices; i < peer->slice_count; i++)
            length += (size_t)peer->slices[i].size;
        uint32_t big = htobe32((uint32_t)length);
        memcpy(out->bytes + start, &big, 4);
    }
    return keep;
}

static void watch(struct connection *peer, int operation) {
    struct epoll_event event = {.events = peer->blocked ? EPOLLOUT : EPOLLIN, .data.ptr = peer};
    if (peer->parked && !peer->blocked)
        event.events = EPOLLRDHUP;
    if (epoll_ctl(epoll_fd, operation, peer->fd, &event))
        die("epoll_ctl");
}

/* Sends what is queued, in order. Leaves `blocked` set when the socket takes no more. */
static void pump(struct connection *peer) {
    int was_blocked = peer->blocked;
    peer->blocked = 0;
    for (;;) {
        struct slice *slice = NULL;
        size_t until = peer->out.size;
        ssize_t sent;
        if (peer->slices_sent < peer->slice_count) {
            slice = &peer->slices[peer->slices_sent];
            until = slice->before;
        }
        if (peer->sent < until) {
            sent = send(peer->fd, peer->out.bytes + peer->sent, until - peer->sent,
                        MSG_NOSIGNAL | (slice ? MSG_MORE : 0));
            if (sent > 0)
                peer->sent += (size_t)sent;
        } else if (slice) {
            off_t position = slice->position;
            sent = sendfile(peer->fd, slice->fd, &position, (size_t)slice->size);
            if (sent > 0) {
                slice->position += sent;
                if (!(slice->size -= sent))
                    peer->slices_sent++;
            }
        } else {
            peer->sent = peer->out.size = 0;
            peer->slice_count = peer->slices_sent = 0;
            break;
        }
        if (sent < 0 && errno == EAGAIN) {
            peer->blocked = 1;
            break;
        }
        if (sent <= 0) {
            peer->closed = 1;
            break;
        }
    }
    if (peer->blocked != was_blocked && !peer->closed)
        watch(peer, EPOLL_CTL_MOD);
}

/* Every whole frame in the buffer, then one write per partition, then the answers. */
static void serve(struct connection *peer) {
    int was_parked = peer->parked;
    size_t need = 0;
    while (!peer->closed && !peer->blocked && peer->end - peer->start >= 4) {
        uint32_t size;
        memcpy(&size, peer->in + peer->start, 4);
        size = be32toh(size);
        if (size < 8 || size > MAX_FRAME) {
            peer->closed = 1;
            return;
        }
        if (peer->end - peer->start < size + 4) {
            need = size + 4;
            break;
        }
        if (!answer(peer, peer->in + peer->start + 4, size))
            break;
        peer->start += size + 4;
    }
    write_touched();
    if (!peer->unsynced)
        pump(peer);
    if (peer->start == peer->end)
        peer->start = peer->end = 0;
    if (need > peer->room)
        peer->in = sized(peer->in, peer->room = need);
    if (peer->start && (need > peer->room - peer->start || peer->end == peer->room)) {
        memmove(peer->in, peer->in + peer->start, peer->end - peer->start);
        peer->end -= peer->start;
        peer->start = 0;
    }
    if (peer->parked != was_parked && !peer->closed && !peer->blocked)
        watch(peer, EPOLL_CTL_MOD);
}

static void receive(struct connection *peer) {
    ssize_t got = recv(peer->fd, peer->in + peer->end, peer->room - peer->end, 0);
    if (got > 0) {
        peer->end += (size_t)got;
        serve(peer);
    } else if (got == 0 || errno != EAGAIN) {
        peer->closed = 1;
    }
}

static void accept_all(int listener) {
    int fd, on = 1;
    while ((fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK)) >= 0) {
        struct connection *peer = sized(NULL, sizeof *peer);
        memset(peer, 0, sizeof *peer);
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        peer->fd = fd;
        peer->in = sized(NULL, peer->room = FIRST_ROOM);
        peer->next = connections;
        connections = peer;
        watch(peer, EPOLL_CTL_ADD);
    }
}

static void wake_parked(void) {
    int64_t now = now_ms();
    for (struct connection *peer = connections; peer; peer = peer->next)
        if (peer->parked && !peer->closed && (appended || now >= peer->deadline_ms))
            serve(peer);
    appended = 0;
}

/* Everything that this turn wrote for acks=all, and then the answers that waited for it. */
static void sync_all(void) {
    int waiting = 0;
    for (struct connection *peer = connections; peer; peer = peer->next)
        waiting |= peer->unsynced;
    for (int i = 0; waiting && i < topic_count * partition_count; i++) {
        struct partition *log = &topics[i / partition_count]->partitions[i % partition_count];
        if (log->unsynced && fdatasync(log->fd))
            die("fdatasync");
        log->unsynced = 0;
    }
    for (struct connection *peer = connections; waiting && peer; peer = peer->next)
        if (peer->unsynced) {
            peer->unsynced = 0;
            if (!peer->closed)
                pump(peer);
        }
}

static void drop_closed(void) {
    for (struct connection **link = &connections; *link;) {
        struct connection *peer = *link;
        if (!peer->closed) {
            link = &peer->next;
            continue;
        }
        *link = peer->next;
        close(peer->fd);
        free(peer->in);
        free(peer->out.bytes);
        free(peer);
    }
}

static int next_wait_ms(void) {
    int64_t wait = -1, now = now_ms();
    for (struct connection *peer = connections; peer; peer = peer->next)
        if (peer->parked && (wait < 0 || peer->deadline_ms - now < wait))
            wait = peer->deadline_ms > now ? peer->deadline_ms - now : 0;
    return (int)wait;
}

static int listening(void) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    socklen_t size = sizeof address;
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    int on = 1;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (listener < 0 || bind(listener, (struct sockaddr *)&address, size) || listen(listener, 512)
        || getsockname(listener, (struct sockaddr *)&address, &size))
        die("listen");
    port = ntohs(address.sin_port);
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = NULL};
    if (epoll_ctl(epoll_fd, EPOLL_CTL_ADD, listener, &event))
        die("epoll_ctl");
    return listener;
}

int main(int count, char **arguments) {
    if (count < 2) {
        fprintf(stderr, "usage: floor DATA_DIR [PARTITIONS [PORT]]\n");
        return 2;
    }
    data_folder = arguments[1];
    if (count > 2)
        partition_count = atoi(arguments[2]);
    if (partition_count < 1 || partition_count > MAX_PARTITIONS) {
        fprintf(stderr, "PARTITIONS is 1 to %d\n", MAX_PARTITIONS);
        return 2;
    }
    if (count > 3)
        port = atoi(arguments[3]);
    signal(SIGPIPE, SIG_IGN);
    crc32c_setup();
    epoll_fd = epoll_create1(0);
    int listener = listening();
    printf("listening on 127.0.0.1:%d\n", port);
    fflush(stdout);
    for (;;) {
        struct epoll_event events[128];
        int ready = epoll_wait(epoll_fd, events, 128, next_wait_ms());
        for (int i = 0; i < ready; i++) {
            struct connection *peer = events[i].data.ptr;
            if (!peer)
                accept_all(listener);
            else if (events[i].events & (EPOLLERR | EPOLLHUP | EPOLLRDHUP))
                peer->closed = 1;
            else if (!peer->blocked)
                receive(peer);
            else {
                pump(peer);
                if (!peer->blocked)
                    serve(peer);
            }
        }
        wake_parked();
        sync_all();
        drop_closed();
    }
}
