/* A load that is never the bottleneck: sends frames made beforehand, counts what comes back.
 *
 *     blast -p PORT -f FILE [options]        prints one line of JSON
 *       -p PORT    of a server on 127.0.0.1
 *       -f FILE    whole request frames one after the other, each with its length prefix; sent in
 *                  turn, on every connection, with correlation ids of our own
 *       -c COUNT   connections (1)
 *       -w COUNT   window: frames sent and not answered, on each connection (1)
 *       -n COUNT   stop after so many answers instead of after a time
 *       -t S, -u S seconds to measure (1), seconds to run before that (0)
 *       -e BYTES   position of an int16 error code in an answer, after the length; it must be 0.
 *                  Several, as 12,20,8: of the answers to frames that belong together, each with
 *                  its own, one after the other; a latency is that of all of them
 *       -x CODE    an answer with this error code is none: its frame is sent again, at once
 *       -P PID     whose CPU time is read, at the very edges of the measured time
 *       -r RATE    open loop: RATE frames a second at fixed times, whatever the server does. An
 *                  answer's latency counts from the time when its frame *should* have been sent
 *       -s         closed loop that sleeps until answers come; a latency counts from the sending
 *       -d         frames are dealt out: each connection sends its own share of the file again and
 *                  again; with -n it sends it once, and COUNT is the number of frames
 *
 * A frame goes by a send of its own, as real clients do it. Answers must come in the order of the
 * requests. Of an answer only the first bytes are looked at; the kernel drops the rest unread.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum { WAKES_EARLY_NS = 50000 };
enum { PATCHED = 12, LOOKED_AT = 512, RECEIVED = 256 << 10, OPEN_WINDOW = 1 << 16 };
enum { POSITIONS_MAX = 8 };
enum { LATENCIES_KEPT = 1 << 24, LOOKS_AT_CLOCK_NS = 1000000 };

struct frame {
    uint8_t *bytes;
    size_t size;
};

struct connection {
    int fd, writable_watched, done;
    size_t next_frame, sent_of_frame, first_frame, end_frame;
    uint8_t head[PATCHED];
    uint32_t sent, answered; /* frames begun, and answers that are whole */
    uint8_t seen[LOOKED_AT];
    size_t seen_size, left;
    int step, again;         /* the frame's place among those that belong together; sent before */
    int64_t *due;            /* from when the latency of each frame in flight counts */
    uint32_t scheduled;      /* open loop: frames that are due or were */
};

static struct frame *frames;
static size_t frame_count;
static int port, connection_count = 1, window = 1, pid, epoll_fd, sleeps, dealt;
static int error_positions[POSITIONS_MAX], steps, again_for;
static double seconds = 1, warm_up, rate;
static long wanted = -1, answers, errors, retries;
static int64_t bytes_sent, bytes_received;
static uint32_t *latencies_us;
static size_t latency_count, latency_room;
static uint8_t scratch[RECEIVED];

static void die(const char *what) {
    perror(what);
    exit(1);
}

static void wrong(const char *what) {
    fprintf(stderr, "blast: %s\n", what);
    exit(1);
}

static int64_t now_ns(clockid_t clock) {
    struct timespec now;
    if (clock_gettime(clock, &now))
        die("clock_gettime");
    return now.tv_sec * 1000000000LL + now.tv_nsec;
}

/* The kernel's clock of all threads of another process, living and ended. */
static int64_t cpu_ns(void) {
    clockid_t clock;
    if (!pid)
        return 0;
    if (clock_getcpuclockid(pid, &clock))
        wrong("no such process");
    return now_ns(clock);
}

static void load(const char *path) {
    FILE *file = fopen(path, "rb");
    struct stat found;
    if (!file || fstat(fileno(file), &found))
        die(path);
    uint8_t *bytes = malloc((size_t)found.st_size + 1);
    if (!bytes || fread(bytes, 1, (size_t)found.st_size, file) != (size_t)found.st_size)
        die(path);
    fclose(file);
    for (size_t at = 0; at + PATCHED <= (size_t)found.st_size;) {
        uint32_t size;
        memcpy(&size, bytes + at, 4);
        if (!(frame_count & (frame_count - 1)))
            frames = realloc(frames, (frame_count ? 2 * frame_count : 1) * sizeof *frames);
        frames[frame_count++] = (struct frame){bytes + at, ntohl(size) + 4};
        at += ntohl(size) + 4;
        if (at > (size_t)found.st_size)
            wrong("the file ends inside a frame");
    }
    if (!frame_count)
        wrong("the file has no frames");
}

static void watch(struct connection *peer, int operation, int writable) {
    struct epoll_event event = {.events = EPOLLIN | (writable ? EPOLLOUT : 0), .data.ptr = peer};
    if (epoll_ctl(epoll_fd, operation, peer->fd, &event))
        die("epoll_ctl");
    peer->writable_watched = writable;
}

static int may_send(struct connection *peer) {
    if (peer->sent_of_frame)
        return 1;
    if (peer->done)
        return 0;
    if (rate > 0)
        return peer->sent != peer->scheduled;
    return (int)(peer->sent - peer->answered) < window;
}

/* Sends frames while the window and the socket allow it. */
static void fill(struct connection *peer) {
    while (may_send(peer)) {
        struct frame *frame = &frames[peer->next_frame];
        if (!peer->sent_of_frame) {
            uint32_t big = htonl(peer->sent);
            memcpy(peer->head, frame->bytes, PATCHED);
            memcpy(peer->head + 8, &big, 4);
            if (sleeps && peer->step == 0 && !peer->again)
                peer->due[steps > 1 ? 0 : peer->sent % OPEN_WINDOW] = now_ns(CLOCK_MONOTONIC);
        }
        size_t done = peer->sent_of_frame, head = done < PATCHED ? PATCHED - done : 0;
        struct iovec pieces[2] = {
            {peer->head + PATCHED - head, head},
            {frame->bytes + done + head, frame->size - done - head},
        };
        struct msghdr message = {.msg_iov = pieces, .msg_iovlen = 2};
        ssize_t sent = sendmsg(peer->fd, &message, MSG_NOSIGNAL);
        if (sent < 0 && errno == EAGAIN) {
            if (!peer->writable_watched)
                watch(peer, EPOLL_CTL_MOD, 1);
            return;
        }
        if (sent <= 0)
            die("send");
        bytes_sent += sent;
        peer->sent_of_frame += (size_t)sent;
        if (peer->sent_of_frame == frame->size) {
            peer->sent_of_frame = 0;
            peer->sent++;
            if (++peer->next_frame == peer->end_frame) {
                peer->next_frame = peer->first_frame;
                peer->done = dealt && wanted >= 0;
            }
        }
    }
    if (peer->writable_watched)
        watch(peer, EPOLL_CTL_MOD, 0);
}

static void check(struct connection *peer) {
    uint32_t correlation;
    memcpy(&correlation, peer->seen + 4, 4);
    if (ntohl(correlation) != peer->answered)
        wrong("an answer came out of order");
    int code = 0;
    if (steps) {
        size_t at = (size_t)error_positions[peer->step] + 4;
        if (at + 2 > peer->seen_size)
            wrong("an answer is too short for an error code");
        code = (int16_t)(peer->seen[at] << 8 | peer->seen[at + 1]);
    }
    peer->again = code && code == again_for;
    if (peer->again) {
        peer->next_frame = (peer->next_frame > peer->first_frame ? peer->next_frame
                                                                 : peer->end_frame) - 1;
        peer->done = 0;
        peer->answered++;
        retries++;
        return;
    }
    if (code && !errors++)
        fprintf(stderr, "blast: error code %d in answer %d of those that belong together\n", code,
                peer->step);
    if (steps > 1)
        peer->step = (peer->step + 1) % steps;
    if (peer->due && peer->step == 0) {
        int64_t due = peer->due[steps > 1 ? 0 : peer->answered % OPEN_WINDOW];
        int64_t took = now_ns(CLOCK_MONOTONIC) - due;
        if (latency_count < latency_room)
            latencies_us[latency_count++] = (uint32_t)(took / 1000);
    }
    peer->answered++;
    answers++;
}

/* `left` is what is still to come of the answer whose first bytes are in `seen`. */
static void parse(struct connection *peer, uint8_t *at, size_t size) {
    while (size) {
        if (peer->seen_size < 4) {
            peer->seen[peer->seen_size++] = *at++;
            size--;
            if (peer->seen_size == 4) {
                uint32_t length;
                memcpy(&length, peer->seen, 4);
                peer->left = ntohl(length);
            }
            continue;
        }
        size_t step = size < peer->left ? size : peer->left;
        size_t keep = LOOKED_AT - peer->seen_size < step ? LOOKED_AT - peer->seen_size : step;
        memcpy(peer->seen + peer->seen_size, at, keep);
        peer->seen_size += keep;
        peer->left -= step;
        at += step;
        size -= step;
        if (!peer->left) {
            check(peer);
            peer->seen_size = 0;
        }
    }
}

static void receive(struct connection *peer) {
    int drop = peer->seen_size == LOOKED_AT && peer->left > RECEIVED;
    ssize_t got = recv(peer->fd, drop ? NULL : scratch, drop ? peer->left - 1 : sizeof scratch,
                       drop ? MSG_TRUNC : 0);
    if (got < 0 && errno == EAGAIN)
        return;
    if (got < 0)
        die("recv");
    if (got == 0)
        wrong("the server closed the connection");
    bytes_received += got;
    if (drop)
        peer->left -= (size_t)got;
    else
        parse(peer, scratch, (size_t)got);
}

/* Where the frames of a connection begin. Those that belong together are not parted. */
static size_t share(int number) {
    size_t together = steps > 1 ? (size_t)steps : 1;
    return (size_t)number * (frame_count / together) / (size_t)connection_count * together;
}

static struct connection *connected(void) {
    struct connection *peers = calloc((size_t)connection_count, sizeof *peers);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    int on = 1;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    epoll_fd = epoll_create1(0);
    for (int i = 0; i < connection_count; i++) {
        int fd = socket(AF_INET, SOCK_STREAM, 0);
        if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof address))
            die("connect");
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        peers[i].fd = fd;
        peers[i].next_frame = share(i);
        peers[i].end_frame = frame_count;
        if (dealt) {
            peers[i].first_frame = peers[i].next_frame;
            peers[i].end_frame = share(i + 1);
        }
        if (rate > 0 || sleeps)
            peers[i].due = calloc(OPEN_WINDOW, sizeof *peers[i].due);
        if (fcntl(fd, F_SETFL, O_NONBLOCK))
            die("fcntl");
        watch(&peers[i], EPOLL_CTL_ADD, 0);
    }
    return peers;
}

/* Waits so long for something to happen. A closed loop does not wait but spins, unless it was told
 * to: a load that sleeps has the server pay for waking it, the more the slower the server is. */
static void turn(int64_t wait_ns) {
    struct epoll_event events[128];
    struct timespec wait = {wait_ns / 1000000000, wait_ns % 1000000000};
    int ready = epoll_pwait2(epoll_fd, events, 128, &wait, NULL);
    for (int i = 0; i < ready; i++) {
        struct connection *peer = events[i].data.ptr;
        if (events[i].events & ~(uint32_t)EPOLLOUT)
            receive(peer);
        fill(peer);
    }
}

struct edge {
    int64_t time_ns, cpu_ns, sent, received;
    long answers;
};

static struct edge edge(void) {
    return (struct edge){now_ns(CLOCK_MONOTONIC), cpu_ns(), bytes_sent, bytes_received, answers};
}

/* Closed loop: keeps every window full until the time or the count is reached, then waits for the
 * answers that are still owed, so that the next load finds an idle server. */
static void saturate(struct connection *peers, struct edge *first, struct edge *last) {
    int64_t start = now_ns(CLOCK_MONOTONIC), warm = start + (int64_t)(warm_up * 1e9);
    int64_t end = warm + (int64_t)(seconds * 1e9);
    int measuring = warm_up == 0;
    if (sleeps)
        latencies_us = calloc(latency_room = LATENCIES_KEPT, sizeof *latencies_us);
    *first = edge();
    for (int i = 0; i < connection_count; i++)
        fill(&peers[i]);
    for (;;) {
        turn(sleeps ? LOOKS_AT_CLOCK_NS : 0);
        int64_t now = now_ns(CLOCK_MONOTONIC);
        if (!measuring && now >= warm) {
            measuring = 1;
            latency_count = 0;
            *first = edge();
        }
        if (wanted >= 0 ? answers >= wanted : now >= end && answers > first->answers)
            break;
        if (now > end + 60 * 1000000000LL)
            wrong("the answers wanted did not come in time");
    }
    *last = edge();
    window = 0;
    for (int i = 0; i < connection_count; i++)
        while (peers[i].sent_of_frame || peers[i].sent != peers[i].answered) {
            turn(1000000);
            if (now_ns(CLOCK_MONOTONIC) > last->time_ns + 10 * 1000000000LL)
                wrong("answers are missing ten seconds after the last frame");
        }
}

/* Open loop: sends at fixed times and notes how long each answer took from there. It sleeps, because
 * a core that is kept busy delays the kernel threads that write to the disk; but not to the very
 * last, because waking up takes its time. */
static void keep_time(struct connection *peers, struct edge *first, struct edge *last) {
    int64_t start = now_ns(CLOCK_MONOTONIC) + 1000000, patience = 0;
    long total = (long)((warm_up + seconds) * rate), begun = (long)(warm_up * rate), next = 0;
    latency_room = (size_t)total;
    latencies_us = calloc(latency_room + 1, sizeof *latencies_us);
    *first = edge();
    while (answers < total) {
        int64_t now = now_ns(CLOCK_MONOTONIC);
        while (next < total && start + (int64_t)((double)next * 1e9 / rate) <= now) {
            struct connection *peer = &peers[next % connection_count];
            if (peer->scheduled - peer->answered == OPEN_WINDOW)
                wrong("too many frames in flight for this rate");
            peer->due[peer->scheduled++ % OPEN_WINDOW] =
                start + (int64_t)((double)next * 1e9 / rate);
            if (next++ == begun)
                *first = edge();
            fill(peer);
        }
        int64_t due = next < total ? start + (int64_t)((double)next * 1e9 / rate) : now + 1000000;
        turn(due - now > WAKES_EARLY_NS ? due - now - WAKES_EARLY_NS : 0);
        if (next == total && !patience)
            patience = now + 10 * 1000000000LL;
        if (patience && now > patience)
            wrong("answers are missing ten seconds after the last frame");
    }
    *last = edge();
    size_t drop = begun < (long)latency_count ? (size_t)begun : 0;
    latencies_us += drop;
    latency_count -= drop;
}

static int by_size(const void *a, const void *b) {
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return x < y ? -1 : x > y;
}

static uint32_t quantile(double share) {
    size_t at = (size_t)((double)latency_count * share);
    return latency_count ? latencies_us[at < latency_count ? at : latency_count - 1] : 0;
}

static void positions(char *text) {
    for (char *one = strtok(text, ","); one; one = strtok(NULL, ",")) {
        if (steps == POSITIONS_MAX)
            wrong("too many positions of error codes");
        error_positions[steps] = atoi(one);
        if (error_positions[steps++] + 6 > LOOKED_AT)
            wrong("the error code lies too far into the answer");
    }
}

int main(int count, char **arguments) {
    const char *path = NULL;
    struct edge first, last;
    for (int option; (option = getopt(count, arguments, "p:f:c:w:n:t:u:e:x:P:r:sd")) != -1;)
        switch (option) {
        case 'p': port = atoi(optarg); break;
        case 'f': path = optarg; break;
        case 'c': connection_count = atoi(optarg); break;
        case 'w': window = atoi(optarg); break;
        case 'n': wanted = atol(optarg); break;
        case 't': seconds = atof(optarg); break;
        case 'u': warm_up = atof(optarg); break;
        case 'e': positions(optarg); break;
        case 'x': again_for = atoi(optarg); break;
        case 'P': pid = atoi(optarg); break;
        case 'r': rate = atof(optarg); break;
        case 's': sleeps = 1; break;
        case 'd': dealt = 1; break;
        default: return 2;
        }
    if (sleeps && (rate > 0 || window > OPEN_WINDOW))
        wrong("-s goes with a closed loop and a window of at most 65536");
    if (!path || !port || connection_count < 1 || window < 1)
        wrong("-p PORT and -f FILE are needed; -c and -w are at least 1");
    if ((steps > 1 || again_for) && (window > 1 || rate > 0))
        wrong("frames that belong together, and -x, go with a closed loop and a window of 1");
    load(path);
    if (frame_count % (size_t)(steps > 1 ? steps : 1))
        wrong("frames that belong together are missing at the end");
    if (dealt && frame_count / (size_t)(steps > 1 ? steps : 1) < (size_t)connection_count)
        wrong("-d needs a frame for every connection");
    if (dealt && wanted >= 0)
        wanted = (long)frame_count;
    struct connection *peers = connected();
    if (rate > 0)
        keep_time(peers, &first, &last);
    else
        saturate(peers, &first, &last);
    qsort(latencies_us, latency_count, sizeof *latencies_us, by_size);
    printf("{\"seconds\": %.6f, \"cpu_s\": %.6f, \"answers\": %ld, \"errors\": %ld, "
           "\"retries\": %ld, \"bytes_sent\": %lld, \"bytes_received\": %lld, "
           "\"p50_us\": %u, \"p99_us\": %u, \"max_us\": %u}\n",
           (double)(last.time_ns - first.time_ns) / 1e9, (double)(last.cpu_ns - first.cpu_ns) / 1e9,
           last.answers - first.answers, errors, retries, (long long)(last.sent - first.sent),
           (long long)(last.received - first.received), quantile(0.5), quantile(0.99),
           quantile(1));
    return 0;
}
