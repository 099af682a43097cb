/* The loops of loops.py, key_loops.py, starts.py, entry_rows.py, record_rows.py, consistency.py,
 * logdata/commit_runs.py and the broker's offset_blocks.py in C, byte for byte; transcode.py,
 * compact.py and the last six themselves choose between the two.
 *
 * Layouts and rules are in loops.py and record.py and are not repeated here. Whatever is wrong with
 * the input, a function returns None, and the caller asks the twin in Python, which has the error
 * texts. So an error costs time but can never be another error than without this module.
 *
 * Input is hostile. Every read is checked against the end of the buffer and every length is widened
 * to 64 bits before it is added to. The buffer may also change while we read it, because the GIL is
 * released: a field is read once, and the room for output is checked before every write.
 */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define ENTRY_OVERHEAD 12
#define MAGIC_POSITION 16
#define CHECKED_POSITION 16
#define SMALLEST(magic) ((magic) ? 34 : 26)
#define KEY_POSITION(magic) ((magic) ? 26 : 18)
#define MIN_RECORD_SIZE 7
#define MIN_BATCH_SIZE 61
#define TIMESTAMP_TYPE_BIT 8
#define CODEC_POSITION 22
#define BASE_TIMESTAMP_POSITION 27
#define MAX_TIMESTAMP_POSITION 35
#define COUNT_POSITION 57
#define NO_TIMESTAMP (-1)
#define OFFSET_LIMIT (INT64_C(1) << 62)
#define NAMELESS_KEY 10
#define NAMELESS_VALUE 24
#define DATA_LIMIT ((INT64_C(1) << 31) - 64)

#ifdef __GNUC__
#define ALWAYS_INLINE inline __attribute__((always_inline))
#else
#define ALWAYS_INLINE inline
#endif

/* ---------------------------------------------------------------- numbers */

static uint32_t get32(const uint8_t *p) {
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

static int64_t get_size(const uint8_t *p) { return (int32_t)get32(p); }

static int64_t get64(const uint8_t *p) {
    return (int64_t)((uint64_t)get32(p) << 32 | get32(p + 4));
}

static void put32(uint8_t *p, uint32_t n) {
    p[0] = (uint8_t)(n >> 24), p[1] = (uint8_t)(n >> 16), p[2] = (uint8_t)(n >> 8), p[3] = (uint8_t)n;
}

static void put64(uint8_t *p, int64_t n) {
    put32(p, (uint32_t)((uint64_t)n >> 32)), put32(p + 4, (uint32_t)n);
}

/* Java's sums wrap; those of signed numbers in C are undefined. */
static int64_t add64(int64_t a, int64_t b) { return (int64_t)((uint64_t)a + (uint64_t)b); }
static int64_t subtract64(int64_t a, int64_t b) { return (int64_t)((uint64_t)a - (uint64_t)b); }

/* Eight bytes a step. zlib would do for the one, but needs its headers wherever this is built. */
static uint32_t crc32_table[8][256], crc32c_table[8][256];

static void make_crc_table(uint32_t table[8][256], uint32_t polynomial) {
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t c = i;
        for (int bit = 0; bit < 8; bit++) c = c & 1 ? c >> 1 ^ polynomial : c >> 1;
        table[0][i] = c;
    }
    for (int n = 1; n < 8; n++)
        for (int i = 0; i < 256; i++) {
            uint32_t c = table[n - 1][i];
            table[n][i] = c >> 8 ^ table[0][c & 0xFF];
        }
}

static uint32_t get32_little(const uint8_t *p) {
    return (uint32_t)p[3] << 24 | (uint32_t)p[2] << 16 | (uint32_t)p[1] << 8 | p[0];
}

static uint32_t crc_of(uint32_t table[8][256], const uint8_t *p, int64_t size) {
    uint32_t c = 0xFFFFFFFFu;
    for (; size >= 8; size -= 8, p += 8) {
        uint32_t a = c ^ get32_little(p), b = get32_little(p + 4);
        c = table[7][a & 0xFF] ^ table[6][a >> 8 & 0xFF] ^ table[5][a >> 16 & 0xFF] ^
            table[4][a >> 24] ^ table[3][b & 0xFF] ^ table[2][b >> 8 & 0xFF] ^
            table[1][b >> 16 & 0xFF] ^ table[0][b >> 24];
    }
    for (; size > 0; size--, p++) c = c >> 8 ^ table[0][(c ^ *p) & 0xFF];
    return ~c;
}

static uint32_t crc32_of(const uint8_t *p, int64_t size) { return crc_of(crc32_table, p, size); }
static uint32_t crc32c_of(const uint8_t *p, int64_t size) { return crc_of(crc32c_table, p, size); }

/* ---------------------------------------------------------------- varints */

typedef struct {
    const uint8_t *p, *end;
} Reader;

static bool read_bits(Reader *in, int max_bytes, uint64_t *bits) {
    uint64_t found = 0;
    for (int i = 0; i < max_bytes; i++) {
        if (in->p == in->end) return false;
        uint8_t byte = *in->p++;
        found |= (uint64_t)(byte & 0x7F) << (7 * i);
        if (byte < 0x80) {
            *bits = found;
            return true;
        }
    }
    return false;
}

static int64_t signed32(uint32_t bits) { return (int32_t)(bits >> 1 ^ (0u - (bits & 1))); }

static bool read_varint(Reader *in, int64_t *number) {
    uint64_t bits;
    if (!read_bits(in, 5, &bits)) return false;
    *number = signed32((uint32_t)bits);
    return true;
}

static bool read_varlong(Reader *in, int64_t *number) {
    uint64_t bits;
    if (!read_bits(in, 10, &bits)) return false;
    *number = (int64_t)(bits >> 1 ^ (UINT64_C(0) - (bits & 1)));
    return true;
}

static uint64_t zigzag(int64_t number) {
    return (uint64_t)number << 1 ^ (number < 0 ? ~UINT64_C(0) : 0);
}

static int64_t varint_size(int64_t number) {
    int64_t size = 1;
    for (uint64_t bits = zigzag(number); bits > 0x7F; bits >>= 7) size++;
    return size;
}

static uint8_t *write_varint(uint8_t *out, int64_t number) {
    uint64_t bits = zigzag(number);
    for (; bits > 0x7F; bits >>= 7) *out++ = (uint8_t)(bits | 0x80);
    *out++ = (uint8_t)bits;
    return out;
}

/* ---------------------------------------------------------------- one record, one message */

/* A field of bytes; null when its size is negative. */
typedef struct {
    const uint8_t *data;
    int64_t size;
} Field;

typedef struct {
    int64_t timestamp_delta, offset_delta, header_count;
    Field key, value;
} Record;

static bool read_field(Reader *in, Field *field) {
    if (!read_varint(in, &field->size)) return false;
    field->data = in->p;
    if (field->size > in->end - in->p) return false;
    if (field->size > 0) in->p += field->size;
    return true;
}

static bool read_any_record(Reader *in, Record *record, int64_t most_headers) {
    int64_t size;
    Field field;
    if (!read_varint(in, &size) || size < 1 || size > in->end - in->p) return false;
    Reader body = {in->p + 1, in->p + size};
    in->p += size;
    if (!read_varlong(&body, &record->timestamp_delta)) return false;
    if (!read_varint(&body, &record->offset_delta)) return false;
    if (!read_field(&body, &record->key) || !read_field(&body, &record->value)) return false;
    if (!read_varint(&body, &record->header_count)) return false;
    if (record->header_count < 0 || record->header_count > body.end - body.p) return false;
    if (record->header_count > most_headers) return false;
    for (int64_t i = 0; i < record->header_count; i++) {
        if (!read_field(&body, &field) || field.size < 0) return false;
        if (!read_field(&body, &field)) return false;
    }
    return body.p == body.end;
}

/* The bits of a number of at most three bytes, which must be there. TOO_LONG is among them if a
   fourth one follows. */
#define TOO_LONG (UINT32_C(1) << 21)

static inline uint32_t short_bits(const uint8_t **p) {
    uint32_t bits = *(*p)++;
    if (bits < 0x80) return bits;
    bits = (bits & 0x7F) | (uint32_t)*(*p)++ << 7;
    if (bits < 0x4000) return bits;
    return (bits & 0x3FFF) | (uint32_t)*(*p)++ << 14;
}

/* Leaves `p` where it cannot be passed over; `seen` gathers the bits. */
static inline bool read_short_field(const uint8_t **p, const uint8_t *end, uint32_t *seen,
                                    Field *field) {
    if (end - *p < 4) return false;
    uint32_t bits = short_bits(p);
    *seen |= bits;
    field->data = *p;
    field->size = signed32(bits);
    if (bits & 1) return true;
    if (field->size > end - *p) return false;
    *p += field->size;
    return true;
}

/* Nearly all records have no longer numbers than that and do not end with the buffer. They are read
   with few checks, three times as fast. False leaves the record to read_any_record. */
static ALWAYS_INLINE bool read_short_record(Reader *in, Record *record, int64_t most_headers) {
    const uint8_t *p = in->p, *end = in->end;
    if (end - p < 16) return false;
    uint32_t bits, seen = short_bits(&p);
    if (seen & 1 || (int64_t)(seen >> 1) > end - p) return false;
    const uint8_t *stop = p + (seen >> 1);
    p++;
    seen |= bits = short_bits(&p);
    record->timestamp_delta = signed32(bits);
    seen |= bits = short_bits(&p);
    record->offset_delta = signed32(bits);
    if (!read_short_field(&p, end, &seen, &record->key)) return false;
    if (!read_short_field(&p, end, &seen, &record->value) || end - p < 3) return false;
    seen |= bits = short_bits(&p);
    record->header_count = signed32(bits);
    if (seen & TOO_LONG || record->header_count < 0) return false;
    if (record->header_count > most_headers) return false;
    for (int64_t i = 0; i < record->header_count; i++) {
        Field field;
        if (p >= stop || !read_short_field(&p, end, &seen, &field) || field.size < 0) return false;
        if (!read_short_field(&p, end, &seen, &field)) return false;
    }
    if (seen & TOO_LONG || p != stop) return false;
    in->p = stop;
    return true;
}

/* A record with more headers is as one that is wrong. What the first of the two reads can stay in
   registers, because the second has copies. */
static ALWAYS_INLINE bool read_record_of(Reader *in, Record *record, int64_t most_headers) {
    if (read_short_record(in, record, most_headers)) return true;
    Reader rest = *in;
    Record any;
    if (!read_any_record(&rest, &any, most_headers)) return false;
    in->p = rest.p;
    *record = any;
    return true;
}

static ALWAYS_INLINE bool read_record(Reader *in, Record *record) {
    return read_record_of(in, record, INT64_MAX);
}

typedef struct {
    int64_t offset, timestamp, size;
    uint32_t crc;
    uint8_t attributes;
    Field key, value;
} Message;

typedef enum { MESSAGE, END, WRONG } Found;

/* The entry at p, if it is whole. Its magic is not looked at. */
static Found find_entry(const uint8_t *p, int64_t left, int magic, int64_t *size) {
    if (left < ENTRY_OVERHEAD) return END;
    *size = get_size(p + 8) + ENTRY_OVERHEAD;
    if (*size < SMALLEST(0)) return WRONG;
    if (*size > left) return END;
    return *size < SMALLEST(magic) ? WRONG : MESSAGE;
}

static Found read_message(const uint8_t *p, int64_t left, int magic, Message *message) {
    Found found = find_entry(p, left, magic, &message->size);
    if (found != MESSAGE) return found;
    const uint8_t *end = p + message->size;
    message->offset = get64(p);
    message->crc = get32(p + 12);
    message->attributes = p[17];
    message->timestamp = magic ? get64(p + 18) : NO_TIMESTAMP;
    p += KEY_POSITION(magic);
    for (Field *field = &message->key;; field = &message->value) {
        if (end - p < 4) return WRONG;
        field->size = get_size(p);
        field->data = p += 4;
        if (field->size > end - p) return WRONG;
        if (field->size > 0) p += field->size;
        if (field == &message->value) return MESSAGE;
    }
}

/* As read_message, for an entry that may have another magic than it should. Even then it is the
   end of the run and not an error if it is cut and its length is one that its magic allows. */
static Found read_message_of_set(const uint8_t *p, int64_t left, int magic, Message *message) {
    if (left <= MAGIC_POSITION || p[MAGIC_POSITION] == magic)
        return read_message(p, left, magic, message);
    int found = p[MAGIC_POSITION];
    int64_t size = get_size(p + 8) + ENTRY_OVERHEAD;
    if (found > 2 || size < (found == 2 ? MIN_BATCH_SIZE : SMALLEST(0))) return WRONG;
    return size > left ? END : WRONG;
}

static uint8_t *write_field(uint8_t *out, const Field *field) {
    if (field->size < 0) {
        put32(out, 0xFFFFFFFFu);
        return out + 4;
    }
    put32(out, (uint32_t)field->size);
    memcpy(out + 4, field->data, (size_t)field->size);
    return out + 4 + field->size;
}

static int64_t bytes_of(const Field *field) { return field->size > 0 ? field->size : 0; }

/* A message at `out`, and the position after it; NULL when it does not fit before `limit`. */
static uint8_t *write_message(uint8_t *out, const uint8_t *limit, int magic, int64_t offset,
                              int attributes, int64_t timestamp, const Field *key,
                              const Field *value) {
    int64_t size = SMALLEST(magic) + bytes_of(key) + bytes_of(value);
    if (size > limit - out || size - ENTRY_OVERHEAD > INT32_MAX) return NULL;
    put64(out, offset);
    put32(out + 8, (uint32_t)(size - ENTRY_OVERHEAD));
    out[16] = (uint8_t)magic;
    out[17] = (uint8_t)attributes;
    if (magic) put64(out + 18, timestamp);
    write_field(write_field(out + KEY_POSITION(magic), key), value);
    put32(out + 12, crc32_of(out + CHECKED_POSITION, size - CHECKED_POSITION));
    return out + size;
}

/* ---------------------------------------------------------------- arguments and results */

/* A bound beyond 64 bits is the same as the last number in them, but only on its own side. */
static int upper_bound(PyObject *object, void *result) {
    int overflow;
    int64_t number = PyLong_AsLongLongAndOverflow(object, &overflow);
    if ((number == -1 && PyErr_Occurred()) || overflow < 0) return 0;
    *(int64_t *)result = overflow ? INT64_MAX : number;
    return 1;
}

static int lower_bound(PyObject *object, void *result) {
    int overflow;
    int64_t number = PyLong_AsLongLongAndOverflow(object, &overflow);
    if ((number == -1 && PyErr_Occurred()) || overflow > 0) return 0;
    *(int64_t *)result = overflow ? INT64_MIN : number;
    return 1;
}

static int any_number(PyObject *object, void *result) {
    int64_t number = PyLong_AsLongLong(object);
    if (number == -1 && PyErr_Occurred()) return 0;
    *(int64_t *)result = number;
    return 1;
}

static int plain_magic(PyObject *object, void *result) {
    long number = PyLong_AsLong(object);
    if (number != 0 && number != 1) return 0;
    *(int *)result = (int)number;
    return 1;
}

typedef struct {
    bool given;
    int64_t ms;
} AppendTime;

static int append_time(PyObject *object, void *result) {
    AppendTime *time = result;
    time->given = object != Py_None;
    return time->given ? any_number(object, &time->ms) : 1;
}

static int near_zero(PyObject *object, void *result) {
    int64_t number;
    if (!any_number(object, &number) || number < -OFFSET_LIMIT || number > OFFSET_LIMIT) return 0;
    *(int64_t *)result = number;
    return 1;
}

static PyObject *bytes_for_output(int64_t most) {
    return most > PY_SSIZE_T_MAX ? NULL : PyBytes_FromStringAndSize(NULL, (Py_ssize_t)most);
}

/* Also for arguments we cannot take: the twin knows better, or raises the error. */
static PyObject *gives_up(Py_buffer *buffer) {
    if (buffer->obj != NULL) PyBuffer_Release(buffer);
    PyErr_Clear();
    Py_RETURN_NONE;
}

/* ---------------------------------------------------------------- scans */

static PyObject *scan_messages(PyObject *self, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"data", "magic", "max_entry_bytes", "oldest_ms", "newest_ms", NULL};
    Py_buffer data = {0};
    int magic;
    int64_t max_entry_bytes, oldest_ms, newest_ms;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "y*O&$O&O&O&", names, &data, plain_magic, &magic,
                                     upper_bound, &max_entry_bytes, lower_bound, &oldest_ms,
                                     upper_bound, &newest_ms))
        return gives_up(&data);

    const uint8_t *start = data.buf;
    int64_t position = 0, index = 0, last_offset = -1, max_timestamp = NO_TIMESTAMP;
    int64_t max_index = -1, null_key_index = -1, bad_time_index = -1;
    unsigned codecs = 0, attributes = 0;
    bool contiguous = true;
    Found found;
    Py_BEGIN_ALLOW_THREADS
    for (;; index++) {
        const uint8_t *p = start + position;
        Message message;
        found = read_message_of_set(p, data.len - position, magic, &message);
        if (found != MESSAGE) break;
        if (message.size > max_entry_bytes ||
            crc32_of(p + CHECKED_POSITION, message.size - CHECKED_POSITION) != message.crc) {
            found = WRONG;
            break;
        }
        if (message.key.size < 0 && null_key_index < 0) null_key_index = index;
        if (message.offset != index) contiguous = false;
        last_offset = message.offset;
        codecs |= 1u << (message.attributes & 7);
        attributes |= message.attributes;
        if (message.timestamp > max_timestamp) max_timestamp = message.timestamp, max_index = index;
        if (message.timestamp != NO_TIMESTAMP && bad_time_index < 0 &&
            (message.timestamp < oldest_ms || message.timestamp > newest_ms))
            bad_time_index = index;
        position += message.size;
    }
    Py_END_ALLOW_THREADS
    if (found == WRONG) return gives_up(&data);
    PyBuffer_Release(&data);
    return Py_BuildValue("(LLINNLLLLL)", (long long)index, (long long)position, codecs,
                         PyBool_FromLong(attributes & TIMESTAMP_TYPE_BIT),
                         PyBool_FromLong(contiguous), (long long)last_offset,
                         (long long)max_timestamp, (long long)max_index, (long long)null_key_index,
                         (long long)bad_time_index);
}

static PyObject *scan_records(PyObject *self, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"data", "count", "base_timestamp", "oldest_ms", "newest_ms", NULL};
    Py_buffer data = {0};
    int64_t count, base_timestamp, oldest_ms, newest_ms;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "y*O&O&$O&O&", names, &data, any_number, &count, any_number,
                                     &base_timestamp, lower_bound, &oldest_ms, upper_bound,
                                     &newest_ms))
        return gives_up(&data);

    int64_t max_timestamp = NO_TIMESTAMP, null_key_index = -1, bad_time_index = -1;
    bool contiguous = true, has_headers = false;
    bool good = count <= data.len / MIN_RECORD_SIZE;
    Py_BEGIN_ALLOW_THREADS
    Reader in = {data.buf, (const uint8_t *)data.buf + data.len};
    for (int64_t index = 0; good && index < count; index++) {
        Record record;
        if (!(good = read_record(&in, &record))) break;
        int64_t timestamp = add64(base_timestamp, record.timestamp_delta);
        if (record.offset_delta != index) contiguous = false;
        if (timestamp > max_timestamp) max_timestamp = timestamp;
        if (timestamp != NO_TIMESTAMP && bad_time_index < 0 &&
            (timestamp < oldest_ms || timestamp > newest_ms))
            bad_time_index = index;
        if (record.key.size < 0 && null_key_index < 0) null_key_index = index;
        if (record.header_count) has_headers = true;
    }
    good = good && in.p == in.end;
    Py_END_ALLOW_THREADS
    if (!good) return gives_up(&data);
    PyBuffer_Release(&data);
    return Py_BuildValue("(NLLLN)", PyBool_FromLong(contiguous), (long long)max_timestamp,
                         (long long)null_key_index, (long long)bad_time_index,
                         PyBool_FromLong(has_headers));
}

/* How many records nothing is wrong with before the first that something is wrong with, and where
   that begins. */
static PyObject *sound_records(PyObject *self, PyObject *args) {
    Py_buffer data = {0};
    int64_t count, index = 0;
    if (!PyArg_ParseTuple(args, "y*O&", &data, any_number, &count)) return gives_up(&data);
    Reader in = {data.buf, (const uint8_t *)data.buf + data.len};
    Py_BEGIN_ALLOW_THREADS
    for (Record record; index < count && read_record(&in, &record);) index++;
    Py_END_ALLOW_THREADS
    long long position = in.p - (const uint8_t *)data.buf;
    PyBuffer_Release(&data);
    return Py_BuildValue("(LL)", (long long)index, position);
}

/* ---------------------------------------------------------------- conversions */

static PyObject *messages_from_records(PyObject *self, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"data",  "count",          "base_offset", "base_timestamp",
                            "magic", "append_time_ms", "min_offset",  NULL};
    Py_buffer data = {0};
    int64_t count, base_offset, base_timestamp, min_offset, kept = 0;
    int magic;
    AppendTime append;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "y*O&$O&O&O&O&O&", names, &data, any_number, &count,
                                     near_zero, &base_offset, any_number, &base_timestamp, plain_magic,
                                     &magic, append_time, &append, lower_bound, &min_offset))
        return gives_up(&data);
    if (data.len > DATA_LIMIT || count > data.len / MIN_RECORD_SIZE) return gives_up(&data);

    /* No record grows by more than this, and each has its seven bytes in the input. */
    int64_t most = data.len + (count > 0 ? count : 0) * (SMALLEST(magic) - MIN_RECORD_SIZE);
    PyObject *result = bytes_for_output(most);
    if (result == NULL) return gives_up(&data);
    uint8_t *start = (uint8_t *)PyBytes_AS_STRING(result), *out = start;
    bool good = true;
    Py_BEGIN_ALLOW_THREADS
    Reader in = {data.buf, (const uint8_t *)data.buf + data.len};
    int attributes = append.given ? TIMESTAMP_TYPE_BIT : 0;
    for (int64_t index = 0; index < count; index++) {
        Record record;
        if (!(good = read_record(&in, &record))) break;
        int64_t offset = base_offset + record.offset_delta;
        if (offset < min_offset) continue;
        int64_t timestamp =
            append.given ? append.ms : add64(base_timestamp, record.timestamp_delta);
        out = write_message(out, start + most, magic, offset, magic ? attributes : 0, timestamp,
                            &record.key, &record.value);
        if (!(good = out != NULL)) break;
        kept++;
    }
    good = good && in.p == in.end;
    Py_END_ALLOW_THREADS
    if (!good) {
        Py_DECREF(result);
        return gives_up(&data);
    }
    PyBuffer_Release(&data);
    if (_PyBytes_Resize(&result, out - start) < 0) return NULL;
    return Py_BuildValue("(NL)", result, (long long)kept);
}

static PyObject *messages_from_messages(PyObject *self, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"data",     "source_magic",   "magic",      "offset",
                            "renumber", "append_time_ms", "min_offset", NULL};
    Py_buffer data = {0};
    int64_t offset, min_offset, kept = 0;
    int source_magic, magic, renumber;
    AppendTime append;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "y*$O&O&O&pO&O&", names, &data, plain_magic,
                                     &source_magic, plain_magic, &magic, near_zero, &offset,
                                     &renumber, append_time, &append, lower_bound, &min_offset))
        return gives_up(&data);
    if (data.len > DATA_LIMIT) return gives_up(&data);

    int64_t most = data.len;
    if (magic > source_magic) most += data.len / SMALLEST(0) * (SMALLEST(1) - SMALLEST(0));
    PyObject *result = bytes_for_output(most);
    if (result == NULL) return gives_up(&data);
    uint8_t *start = (uint8_t *)PyBytes_AS_STRING(result), *out = start;
    Found found;
    Py_BEGIN_ALLOW_THREADS
    int64_t position = 0;
    int attributes = magic && append.given ? TIMESTAMP_TYPE_BIT : 0;
    for (int64_t index = 0;; index++) {
        Message message;
        found = read_message((const uint8_t *)data.buf + position, data.len - position,
                             source_magic, &message);
        if (found != MESSAGE) break;
        position += message.size;
        int64_t placed = add64(offset, renumber ? index : message.offset);
        if (placed < min_offset) continue;
        out = write_message(out, start + most, magic, placed, attributes,
                            append.given ? append.ms : message.timestamp, &message.key,
                            &message.value);
        if (out == NULL) {
            found = WRONG;
            break;
        }
        kept++;
    }
    Py_END_ALLOW_THREADS
    if (found == WRONG) {
        Py_DECREF(result);
        return gives_up(&data);
    }
    PyBuffer_Release(&data);
    if (_PyBytes_Resize(&result, out - start) < 0) return NULL;
    return Py_BuildValue("(NL)", result, (long long)kept);
}

static uint8_t *write_nullable(uint8_t *out, const Field *field) {
    out = write_varint(out, field->size < 0 ? -1 : field->size);
    if (field->size > 0) memcpy(out, field->data, (size_t)field->size);
    return out + bytes_of(field);
}

static PyObject *records_from_messages(PyObject *self, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"data", "position", "magic", "max_bytes", NULL};
    Py_buffer data = {0};
    int64_t position, max_bytes, count = 0;
    int64_t base_timestamp = NO_TIMESTAMP, max_timestamp = NO_TIMESTAMP;
    int magic;
    Message message = {0};
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "y*O&$O&O&", names, &data, any_number, &position,
                                     plain_magic, &magic, upper_bound, &max_bytes))
        return gives_up(&data);
    if (position < 0 || position > data.len) return gives_up(&data);

    const uint8_t *from = data.buf;
    Found found = read_message(from + position, data.len - position, magic, &message);
    if (found == WRONG) return gives_up(&data);
    /* A record is never larger than its message was. A set is taken in pieces of max_bytes, and
       each piece should cost no more than itself. */
    int64_t most = data.len - position;
    if (max_bytes < 0) max_bytes = 0;
    if (max_bytes < most - message.size) most = max_bytes + message.size;
    PyObject *result = bytes_for_output(most);
    if (result == NULL) return gives_up(&data);
    uint8_t *start = (uint8_t *)PyBytes_AS_STRING(result), *out = start;
    Py_BEGIN_ALLOW_THREADS
    for (; (found = read_message(from + position, data.len - position, magic, &message)) == MESSAGE;
         count++) {
        if (count == 0) base_timestamp = message.timestamp;
        int64_t delta = subtract64(message.timestamp, base_timestamp);
        int64_t key = bytes_of(&message.key), value = bytes_of(&message.value);
        int64_t length = 2 + varint_size(delta) + varint_size(count) +
                         varint_size(message.key.size < 0 ? -1 : key) + key +
                         varint_size(message.value.size < 0 ? -1 : value) + value;
        int64_t size = varint_size(length) + length;
        if (count && size > max_bytes - (out - start)) {
            found = END;
            break;
        }
        if (size > most - (out - start)) {
            found = WRONG;
            break;
        }
        out = write_varint(out, length);
        *out++ = 0;
        out = write_varint(write_varint(out, delta), count);
        out = write_nullable(write_nullable(out, &message.key), &message.value);
        *out++ = 0;
        if (message.timestamp > max_timestamp) max_timestamp = message.timestamp;
        position += message.size;
    }
    Py_END_ALLOW_THREADS
    if (found == WRONG) {
        Py_DECREF(result);
        return gives_up(&data);
    }
    PyBuffer_Release(&data);
    if (_PyBytes_Resize(&result, out - start) < 0) return NULL;
    return Py_BuildValue("(NLLLL)", result, (long long)count, (long long)base_timestamp,
                         (long long)max_timestamp, (long long)position);
}

/* ---------------------------------------------------------------- offsets */

static PyObject *place_messages(PyObject *self, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"view", "base_offset", NULL};
    Py_buffer view = {0};
    int64_t base_offset;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "w*O&", names, &view, near_zero, &base_offset))
        return gives_up(&view);
    if (view.len > DATA_LIMIT) return gives_up(&view);
    uint8_t *start = view.buf;
    int64_t position = 0, size = 0, count = 0;
    Found found;
    Py_BEGIN_ALLOW_THREADS
    for (; (found = find_entry(start + position, view.len - position, 0, &size)) == MESSAGE; count++) {
        put64(start + position, base_offset + count);
        position += size;
    }
    Py_END_ALLOW_THREADS
    if (found == WRONG) return gives_up(&view);
    PyBuffer_Release(&view);
    return PyLong_FromLongLong(count);
}

static PyObject *skip_messages(PyObject *self, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"data", "min_offset", NULL};
    Py_buffer data = {0};
    int64_t min_offset;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "y*O&", names, &data, lower_bound, &min_offset))
        return gives_up(&data);
    const uint8_t *start = data.buf;
    int64_t position = 0, size = 0;
    Found found;
    Py_BEGIN_ALLOW_THREADS
    while ((found = find_entry(start + position, data.len - position, 0, &size)) == MESSAGE &&
           get64(start + position) < min_offset)
        position += size;
    if (found == END) position = data.len;
    Py_END_ALLOW_THREADS
    if (found == WRONG) return gives_up(&data);
    PyBuffer_Release(&data);
    return PyLong_FromLongLong(position);
}

/* ---------------------------------------------------------------- keys, for compaction */

#define DIGEST_SIZE 16
#define SLOT_SIZE 24

static uint64_t get64_little(const uint8_t *p) {
    return (uint64_t)get32_little(p + 4) << 32 | get32_little(p);
}

static void put64_little(uint8_t *p, uint64_t n) {
    for (int i = 0; i < 8; i++) p[i] = (uint8_t)(n >> 8 * i);
}

static const uint64_t blake_start[8] = {
    UINT64_C(0x6a09e667f3bcc908), UINT64_C(0xbb67ae8584caa73b), UINT64_C(0x3c6ef372fe94f82b),
    UINT64_C(0xa54ff53a5f1d36f1), UINT64_C(0x510e527fade682d1), UINT64_C(0x9b05688c2b3e6c1f),
    UINT64_C(0x1f83d9abfb41bd6b), UINT64_C(0x5be0cd19137e2179)};

static const uint8_t blake_order[12][16] = {
    {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15},
    {14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3},
    {11, 8, 12, 0, 5, 2, 15, 13, 10, 14, 3, 6, 7, 1, 9, 4},
    {7, 9, 3, 1, 13, 12, 11, 14, 2, 6, 5, 10, 4, 0, 15, 8},
    {9, 0, 5, 7, 2, 4, 10, 15, 14, 1, 11, 12, 6, 8, 3, 13},
    {2, 12, 6, 10, 0, 11, 8, 3, 4, 13, 7, 5, 15, 14, 1, 9},
    {12, 5, 1, 15, 14, 13, 4, 10, 0, 7, 6, 3, 9, 2, 8, 11},
    {13, 11, 7, 14, 12, 1, 3, 9, 5, 0, 15, 4, 8, 6, 2, 10},
    {6, 15, 14, 9, 11, 3, 0, 8, 12, 2, 13, 7, 1, 4, 10, 5},
    {10, 2, 8, 4, 7, 6, 1, 5, 15, 11, 9, 14, 3, 12, 13, 0},
    {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15},
    {14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3}};

static uint64_t turned(uint64_t n, int bits) { return n >> bits | n << (64 - bits); }

/* A macro, so that the words stay in registers: that is twice as quick. */
#define MIX(a, b, c, d, x, y)                                    \
    (a += b + m[at[x]], d = turned(d ^ a, 32), c += d,           \
     b = turned(b ^ c, 24), a += b + m[at[y]],                   \
     d = turned(d ^ a, 16), c += d, b = turned(b ^ c, 63))

static void blake_block(uint64_t *h, const uint8_t *block, uint64_t total, bool last) {
    uint64_t m[16];
    for (int i = 0; i < 16; i++) m[i] = get64_little(block + 8 * i);
    uint64_t a0 = h[0], a1 = h[1], a2 = h[2], a3 = h[3], b0 = h[4], b1 = h[5], b2 = h[6], b3 = h[7];
    uint64_t c0 = blake_start[0], c1 = blake_start[1], c2 = blake_start[2], c3 = blake_start[3];
    uint64_t d0 = blake_start[4] ^ total, d1 = blake_start[5];
    uint64_t d2 = last ? ~blake_start[6] : blake_start[6], d3 = blake_start[7];
    for (int round = 0; round < 12; round++) {
        const uint8_t *at = blake_order[round];
        MIX(a0, b0, c0, d0, 0, 1);
        MIX(a1, b1, c1, d1, 2, 3);
        MIX(a2, b2, c2, d2, 4, 5);
        MIX(a3, b3, c3, d3, 6, 7);
        MIX(a0, b1, c2, d3, 8, 9);
        MIX(a1, b2, c3, d0, 10, 11);
        MIX(a2, b3, c0, d1, 12, 13);
        MIX(a3, b0, c1, d2, 14, 15);
    }
    h[0] ^= a0 ^ c0, h[1] ^= a1 ^ c1, h[2] ^= a2 ^ c2, h[3] ^= a3 ^ c3;
    h[4] ^= b0 ^ d0, h[5] ^= b1 ^ d1, h[6] ^= b2 ^ d2, h[7] ^= b3 ^ d3;
}

/* BLAKE2b of RFC 7693 with 16 bytes of output and no key, as in hashlib. */
static void digest_of(const uint8_t *data, int64_t size, uint8_t *out) {
    uint64_t h[8];
    uint8_t block[128] = {0};
    memcpy(h, blake_start, sizeof h);
    h[0] ^= 0x01010000 ^ DIGEST_SIZE;
    int64_t done = 0;
    for (; size - done > 128; done += 128)
        blake_block(h, data + done, (uint64_t)done + 128, false);
    if (size > done) memcpy(block, data + done, (size_t)(size - done));
    blake_block(h, block, (uint64_t)size, true);
    put64_little(out, h[0]), put64_little(out + 8, h[1]);
}

#define TOMBSTONE 1
#define KEYLESS 2

/* Four columns, one row for each record; the first has the end of the last one as well. */
typedef struct {
    PyObject *starts, *digests, *offsets, *flags;
    int32_t *start;
    uint8_t *digest, *flag;
    int64_t *offset;
} Columns;

static bool make_columns(Columns *to, int64_t rows) {
    to->starts = bytes_for_output((rows + 1) * 4);
    to->digests = bytes_for_output(rows * DIGEST_SIZE);
    to->offsets = bytes_for_output(rows * 8);
    to->flags = bytes_for_output(rows);
    if (!to->starts || !to->digests || !to->offsets || !to->flags) {
        Py_XDECREF(to->starts), Py_XDECREF(to->digests);
        Py_XDECREF(to->offsets), Py_XDECREF(to->flags);
        return false;
    }
    to->start = (int32_t *)PyBytes_AS_STRING(to->starts);
    to->digest = (uint8_t *)PyBytes_AS_STRING(to->digests);
    to->offset = (int64_t *)PyBytes_AS_STRING(to->offsets);
    to->flag = (uint8_t *)PyBytes_AS_STRING(to->flags);
    return true;
}

static void add_row(Columns *to, int64_t row, int64_t start, int64_t offset, const uint8_t *key,
                    int64_t key_size, bool tombstone) {
    to->start[row] = (int32_t)start;
    to->offset[row] = offset;
    to->flag[row] = (uint8_t)((tombstone ? TOMBSTONE : 0) | (key_size < 0 ? KEYLESS : 0));
    if (key_size < 0)
        memset(to->digest + row * DIGEST_SIZE, 0, DIGEST_SIZE);
    else
        digest_of(key, key_size, to->digest + row * DIGEST_SIZE);
}

static PyObject *columns_of(Columns *from, int64_t rows) {
    if (_PyBytes_Resize(&from->starts, (Py_ssize_t)(rows + 1) * 4) < 0 ||
        _PyBytes_Resize(&from->digests, (Py_ssize_t)rows * DIGEST_SIZE) < 0 ||
        _PyBytes_Resize(&from->offsets, (Py_ssize_t)rows * 8) < 0 ||
        _PyBytes_Resize(&from->flags, (Py_ssize_t)rows) < 0) {
        Py_XDECREF(from->starts), Py_XDECREF(from->digests);
        Py_XDECREF(from->offsets), Py_XDECREF(from->flags);
        return NULL;
    }
    return Py_BuildValue("(NNNN)", from->starts, from->digests, from->offsets, from->flags);
}

static PyObject *keys_of_records(PyObject *self, PyObject *args) {
    Py_buffer data = {0};
    int64_t count, base_offset, size = 0, delta = 0;
    Columns to;
    if (!PyArg_ParseTuple(args, "y*O&O&", &data, any_number, &count, near_zero, &base_offset))
        return gives_up(&data);
    if (data.len > DATA_LIMIT || count < 0 || count > data.len / MIN_RECORD_SIZE)
        return gives_up(&data);
    if (!make_columns(&to, count)) return gives_up(&data);
    const uint8_t *start = data.buf;
    bool good = true;
    Py_BEGIN_ALLOW_THREADS
    Reader in = {start, start + data.len};
    for (int64_t row = 0; row < count && good; row++) {
        const uint8_t *record = in.p;
        good = read_varint(&in, &size) && size >= 1 && size <= in.end - in.p;
        if (!good) break;
        const uint8_t *end = in.p + size;
        Field key, value;
        in.p++;
        while (in.p < in.end && *in.p > 0x7F) in.p++;
        good = in.p++ < in.end && read_varint(&in, &delta) && read_field(&in, &key) &&
               read_field(&in, &value) && in.p < end;
        if (good)
            add_row(&to, row, record - start, base_offset + delta, key.data, key.size,
                    value.size < 0);
        in.p = end;
    }
    good = good && in.p == in.end;
    Py_END_ALLOW_THREADS
    to.start[count] = (int32_t)data.len;
    PyObject *result = good ? columns_of(&to, count) : NULL;
    if (!good) {
        Py_DECREF(to.starts), Py_DECREF(to.digests), Py_DECREF(to.offsets), Py_DECREF(to.flags);
        return gives_up(&data);
    }
    PyBuffer_Release(&data);
    return result;
}

static PyObject *keys_of_messages(PyObject *self, PyObject *args) {
    Py_buffer data = {0};
    int64_t position, rows = 0;
    int magic;
    Columns to;
    if (!PyArg_ParseTuple(args, "y*O&O&", &data, any_number, &position, plain_magic, &magic))
        return gives_up(&data);
    if (data.len > DATA_LIMIT || position < 0 || position > data.len) return gives_up(&data);
    const uint8_t *start = data.buf;
    /* Room for as many rows as there are messages, which one look at their lengths tells. */
    int64_t most = 0, size = 0;
    for (int64_t at = position; find_entry(start + at, data.len - at, magic, &size) == MESSAGE;
         at += size)
        most++;
    if (!make_columns(&to, most)) return gives_up(&data);
    Py_BEGIN_ALLOW_THREADS
    for (; rows < most; rows++) {
        const uint8_t *p = start + position;
        Message message;
        if (read_message(p, data.len - position, magic, &message) != MESSAGE) break;
        if (p[MAGIC_POSITION] != magic || message.attributes & 7) break;
        if (crc32_of(p + CHECKED_POSITION, message.size - CHECKED_POSITION) != message.crc) break;
        add_row(&to, rows, position, message.offset, message.key.data, message.key.size,
                message.value.size < 0);
        position += message.size;
    }
    Py_END_ALLOW_THREADS
    to.start[rows] = (int32_t)position;
    PyBuffer_Release(&data);
    return columns_of(&to, rows);
}

/* The slot of a digest in a table of whole slots, or a free one; NULL if there is neither. */
static uint8_t *slot_of(PyObject *table, const uint8_t *digest) {
    static const uint8_t nothing[DIGEST_SIZE];
    uint8_t *slots = (uint8_t *)PyByteArray_AS_STRING(table);
    uint64_t count = (uint64_t)PyByteArray_GET_SIZE(table) / SLOT_SIZE;
    if (count < 2) return NULL;
    uint64_t number = get64_little(digest), at = number % count;
    uint64_t step = 1 + (number >> 32) % (count - 1);
    for (uint64_t looks = 0; looks < count; looks++) {
        uint8_t *slot = slots + at * SLOT_SIZE;
        if (!memcmp(slot, digest, DIGEST_SIZE) || !memcmp(slot, nothing, DIGEST_SIZE)) return slot;
        at = (at + step) % count;
    }
    return NULL;
}

static bool is_nothing(const uint8_t *digest) {
    for (int i = 0; i < DIGEST_SIZE; i++)
        if (digest[i]) return false;
    return true;
}

/* The table that a digest belongs to; NULL for what is no list of tables. */
static PyObject *table_of(PyObject *tables, const uint8_t *digest, Py_ssize_t *index) {
    Py_ssize_t count = PyList_GET_SIZE(tables);
    *index = count ? digest[0] % count : 0;
    PyObject *table = count ? PyList_GET_ITEM(tables, *index) : NULL;
    return table && PyByteArray_CheckExact(table) ? table : NULL;
}

static PyObject *enter_keys(PyObject *self, PyObject *args) {
    Py_buffer digests = {0}, offsets = {0}, rooms = {0};
    Py_ssize_t row, index;
    int64_t low, high;
    PyObject *tables;
    bool good = true;
    if (!PyArg_ParseTuple(args, "y*y*nO&O&O!w*", &digests, &offsets, &row, any_number, &low,
                          any_number, &high, &PyList_Type, &tables, &rooms)) {
        if (digests.obj) PyBuffer_Release(&digests);
        if (offsets.obj) PyBuffer_Release(&offsets);
        return gives_up(&rooms);
    }
    Py_ssize_t rows = digests.len / DIGEST_SIZE;
    int64_t *room = rooms.buf;
    if (row < 0 || rows > offsets.len / 8 || PyList_GET_SIZE(tables) > rooms.len / 8) good = false;
    for (; good && row < rows; row++) {
        const uint8_t *digest = (const uint8_t *)digests.buf + row * DIGEST_SIZE;
        int64_t offset;
        memcpy(&offset, (const uint8_t *)offsets.buf + row * 8, 8);
        if (offset < low || offset >= high || is_nothing(digest)) continue;
        PyObject *table = table_of(tables, digest, &index);
        uint8_t *slot = table ? slot_of(table, digest) : NULL;
        if (slot == NULL) {
            good = false;
            break;
        }
        if (is_nothing(slot)) {
            if (room[index] <= 0) break;
            room[index]--;
            memcpy(slot, digest, DIGEST_SIZE);
        }
        memcpy(slot + DIGEST_SIZE, &offset, 8);
    }
    PyBuffer_Release(&digests);
    PyBuffer_Release(&offsets);
    if (!good) return gives_up(&rooms);
    PyBuffer_Release(&rooms);
    return PyLong_FromSsize_t(row);
}

static PyObject *newest_offsets(PyObject *self, PyObject *args) {
    Py_buffer digests = {0};
    Py_ssize_t index;
    PyObject *tables;
    if (!PyArg_ParseTuple(args, "y*O!", &digests, &PyList_Type, &tables)) return gives_up(&digests);
    Py_ssize_t rows = digests.len / DIGEST_SIZE;
    PyObject *result = bytes_for_output(rows * 8);
    if (result == NULL) return gives_up(&digests);
    char *out = PyBytes_AS_STRING(result);
    for (Py_ssize_t row = 0; row < rows; row++) {
        const uint8_t *digest = (const uint8_t *)digests.buf + row * DIGEST_SIZE;
        PyObject *table = table_of(tables, digest, &index);
        uint8_t *slot = table && !is_nothing(digest) ? slot_of(table, digest) : NULL;
        int64_t offset = -1;
        if (slot && !is_nothing(slot)) memcpy(&offset, slot + DIGEST_SIZE, 8);
        memcpy(out + row * 8, &offset, 8);
    }
    PyBuffer_Release(&digests);
    return result;
}

/* ---------------------------------------------------------------- batches of a log of state */

/* The batch at `p` if it is whole and intact, not compressed, of no transaction and no marker; else
 * 0. Its records begin at MIN_BATCH_SIZE. */
static int64_t plain_batch_size(const uint8_t *p, int64_t left) {
    if (left < MIN_BATCH_SIZE || p[MAGIC_POSITION] != 2) return 0;
    int64_t size = get_size(p + 8) + ENTRY_OVERHEAD;
    if (size <= MIN_BATCH_SIZE || size > left) return 0;
    if (p[21] || p[22] & ~TIMESTAMP_TYPE_BIT) return 0;
    return crc32c_of(p + 21, size - 21) == get32(p + 17) ? size : 0;
}

static int64_t record_count(const uint8_t *batch) { return get_size(batch + 57); }

static PyObject *bytes_or_none(const Field *field) {
    if (field->size < 0) Py_RETURN_NONE;
    return PyBytes_FromStringAndSize((const char *)field->data, (Py_ssize_t)field->size);
}

/* The headers of a record that has been read, which ends at `end`. */
static PyObject *headers_of(const Record *record, const uint8_t *end) {
    Reader in = {record->value.data + bytes_of(&record->value), end};
    int64_t count;
    Field name, content;
    PyObject *headers = PyTuple_New((Py_ssize_t)record->header_count);
    if (!headers || !read_varint(&in, &count)) return headers;
    for (int64_t i = 0; i < count && read_field(&in, &name) && read_field(&in, &content); i++) {
        PyObject *text = PyUnicode_DecodeUTF8((const char *)name.data, (Py_ssize_t)name.size,
                                              "surrogateescape");
        PyObject *header = Py_BuildValue("(NN)", text, bytes_or_none(&content));
        if (header == NULL) {
            Py_DECREF(headers);
            return NULL;
        }
        PyTuple_SET_ITEM(headers, (Py_ssize_t)i, header);
    }
    return headers;
}

static PyObject *sole_records(PyObject *self, PyObject *args) {
    PyObject *data, *rows;
    int64_t position, last = -1, size;
    if (!PyArg_ParseTuple(args, "O!O&", &PyBytes_Type, &data, any_number, &position)) return NULL;
    int64_t total = PyBytes_GET_SIZE(data);
    if (position < 0 || position > total) Py_RETURN_NONE;
    if ((rows = PyList_New(0)) == NULL) return NULL;
    const uint8_t *start = (const uint8_t *)PyBytes_AS_STRING(data);
    while ((size = plain_batch_size(start + position, total - position)) > 0) {
        const uint8_t *p = start + position;
        Reader in = {p + MIN_BATCH_SIZE, p + size};
        Record record;
        if (record_count(p) != 1 || !read_record(&in, &record) || in.p != in.end) break;
        PyObject *row = Py_BuildValue("(LNNN)", (long long)get64(p), bytes_or_none(&record.key),
                                      bytes_or_none(&record.value), headers_of(&record, in.end));
        bool good = row && PyList_Append(rows, row) == 0;
        Py_XDECREF(row);
        if (!good) {
            Py_DECREF(rows);
            return NULL;
        }
        last = position;
        position += size;
    }
    return Py_BuildValue("(LLN)", (long long)position, (long long)last, rows);
}

static PyObject *record_rows(PyObject *self, PyObject *args) {
    PyObject *data;
    Py_buffer nothing = {0};
    int64_t count, base_offset, base_timestamp;
    AppendTime append;
    if (!PyArg_ParseTuple(args, "O!O&O&O&O&", &PyBytes_Type, &data, any_number, &count, near_zero,
                          &base_offset, any_number, &base_timestamp, append_time, &append))
        return gives_up(&nothing);
    const uint8_t *start = (const uint8_t *)PyBytes_AS_STRING(data);
    Reader in = {start, start + PyBytes_GET_SIZE(data)};
    PyObject *rows = PyList_New(0);
    if (rows == NULL) return NULL;
    for (int64_t index = 0; index < count; index++) {
        Record record;
        if (!read_record(&in, &record)) break;
        int64_t timestamp =
            append.given ? append.ms : add64(base_timestamp, record.timestamp_delta);
        PyObject *row = Py_BuildValue("(LLNNN)", (long long)(base_offset + record.offset_delta),
                                      (long long)timestamp, bytes_or_none(&record.key),
                                      bytes_or_none(&record.value), headers_of(&record, in.p));
        bool good = row && PyList_Append(rows, row) == 0;
        Py_XDECREF(row);
        if (!good) {
            Py_DECREF(rows);
            return NULL;
        }
    }
    if (PyList_GET_SIZE(rows) == count && in.p == in.end) return rows;
    Py_DECREF(rows);
    Py_RETURN_NONE;
}

#define MARKER_ATTRIBUTES 0x30

/* Bytes, or None for null. */
static int field_or_null(PyObject *object, void *result) {
    Field *field = result;
    *field = (Field){NULL, -1};
    if (object == Py_None) return 1;
    if (!PyBytes_Check(object)) return 0;
    *field = (Field){(const uint8_t *)PyBytes_AS_STRING(object), PyBytes_GET_SIZE(object)};
    return 1;
}

static int64_t field_size(const Field *field) {
    return varint_size(field->size) + bytes_of(field);
}

static uint8_t *write_sized(uint8_t *out, const Field *field) {
    out = write_varint(out, field->size);
    if (field->size > 0) memcpy(out, field->data, (size_t)field->size);
    return out + bytes_of(field);
}

static PyObject *sole_batch(PyObject *self, PyObject *args) {
    int64_t timestamp, producer_id = -1;
    short producer_epoch = -1;
    int is_marker = 0;
    Field key, value, name, content;
    PyObject *headers = NULL;
    if (!PyArg_ParseTuple(args, "O&O&O&|O!O&hp", any_number, &timestamp, field_or_null, &key,
                          field_or_null, &value, &PyTuple_Type, &headers, any_number, &producer_id,
                          &producer_epoch, &is_marker))
        return gives_up(&(Py_buffer){0});
    Py_ssize_t count = headers ? PyTuple_GET_SIZE(headers) : 0;
    int64_t body = 3 + field_size(&key) + field_size(&value) + varint_size(count);
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *header = PyTuple_GET_ITEM(headers, i);
        if (!PyTuple_Check(header) || PyTuple_GET_SIZE(header) != 2 ||
            !field_or_null(PyTuple_GET_ITEM(header, 0), &name) || name.size < 0 ||
            !field_or_null(PyTuple_GET_ITEM(header, 1), &content))
            Py_RETURN_NONE;
        body += field_size(&name) + field_size(&content);
    }
    int64_t size = MIN_BATCH_SIZE + varint_size(body) + body;
    if (size > DATA_LIMIT) Py_RETURN_NONE;
    PyObject *batch = PyByteArray_FromStringAndSize(NULL, (Py_ssize_t)size);
    if (batch == NULL) return NULL;
    uint8_t *p = (uint8_t *)PyByteArray_AS_STRING(batch);
    memset(p, 0, MIN_BATCH_SIZE);
    put32(p + 8, (uint32_t)(size - ENTRY_OVERHEAD));
    put32(p + 12, UINT32_MAX);
    p[MAGIC_POSITION] = 2;
    p[CODEC_POSITION] = is_marker ? MARKER_ATTRIBUTES : 0;
    put64(p + BASE_TIMESTAMP_POSITION, timestamp);
    put64(p + MAX_TIMESTAMP_POSITION, timestamp);
    put64(p + 43, producer_id);
    p[51] = (uint8_t)((uint16_t)producer_epoch >> 8);
    p[52] = (uint8_t)producer_epoch;
    put32(p + 53, UINT32_MAX);
    put32(p + COUNT_POSITION, 1);
    uint8_t *out = write_varint(p + MIN_BATCH_SIZE, body);
    memset(out, 0, 3);
    out = write_sized(write_sized(out + 3, &key), &value);
    out = write_varint(out, count);
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *header = PyTuple_GET_ITEM(headers, i);
        field_or_null(PyTuple_GET_ITEM(header, 0), &name);
        field_or_null(PyTuple_GET_ITEM(header, 1), &content);
        out = write_sized(write_sized(out, &name), &content);
    }
    put32(p + 17, crc32c_of(p + 21, size - 21));
    return batch;
}

/* ---------------------------------------------------------------- offset commits */

typedef struct {
    const uint8_t *data;
    int64_t size;
} Name;

/* One ordinary record. At `value` are offset, leader epoch, metadata and commit timestamp. */
typedef struct {
    Name group, topic, metadata;
    const uint8_t *partition, *value, *next;
} Commit;

/* A varint of one byte or two that is not negative. */
static bool short_varint(Reader *in, int64_t *number) {
    uint64_t bits;
    if (!read_bits(in, 2, &bits) || bits & 1) return false;
    *number = (int64_t)(bits >> 1);
    return true;
}

static bool short_name(Reader *in, Name *name) {
    if (in->end - in->p < 2) return false;
    name->size = (int64_t)in->p[0] << 8 | in->p[1];
    name->data = in->p += 2;
    if (name->size > 0x7FFF || name->size > in->end - in->p) return false;
    in->p += name->size;
    return true;
}

static bool read_commit(const uint8_t *p, const uint8_t *end, Commit *to) {
    Reader in = {p, end};
    int64_t size, key_size, value_size;
    uint64_t delta;
    if (!short_varint(&in, &size) || size < 2 || size > end - in.p) return false;
    in.end = to->next = in.p + size;
    if (in.p[0] || in.p[1]) return false;
    in.p += 2;
    if (!read_bits(&in, 2, &delta) || !short_varint(&in, &key_size)) return false;
    if (key_size < NAMELESS_KEY || key_size > in.end - in.p) return false;
    Reader key = {in.p + 2, in.p + key_size - 4};
    if (in.p[0] || in.p[1] != 1) return false;
    if (!short_name(&key, &to->group) || !short_name(&key, &to->topic) || key.p != key.end)
        return false;
    to->partition = key.end;
    in.p += key_size;
    if (!short_varint(&in, &value_size) || value_size < NAMELESS_VALUE) return false;
    if (value_size != in.end - in.p - 1 || in.p[0] || in.p[1] != 3) return false;
    to->value = in.p + 2;
    to->metadata.data = to->value + 14;
    to->metadata.size = (int64_t)to->value[12] << 8 | to->value[13];
    return to->metadata.size == value_size - NAMELESS_VALUE && !(to->partition[0] & 0x80) &&
           !in.end[-1];
}

/* The batch at `p` if it is plain and of ordinary records only; else 0. */
static int64_t ordinary_size(const uint8_t *p, int64_t left) {
    Commit commit;
    int64_t size = plain_batch_size(p, left), count = size ? record_count(p) : 0;
    const uint8_t *at = p + MIN_BATCH_SIZE, *end = p + size;
    for (; at < end && count > 0; at = commit.next, count--)
        if (!read_commit(at, end, &commit)) return 0;
    return size && at == end && !count ? size : 0;
}

static bool same_name(const Name *a, const Name *b) {
    return a->size == b->size && !memcmp(a->data, b->data, (size_t)a->size);
}

static PyObject *text_of(const Name *name) {
    return PyUnicode_DecodeUTF8((const char *)name->data, (Py_ssize_t)name->size, "surrogateescape");
}

static PyObject *number_of(const Commit *commit, int column) {
    switch (column) {
        case 0: return PyLong_FromLong((int32_t)get32(commit->partition));
        case 1: return PyLong_FromLongLong(get64(commit->value));
        case 2: return PyLong_FromLong((int32_t)get32(commit->value + 8));
        default: return PyLong_FromLongLong(get64(commit->value + 14 + commit->metadata.size));
    }
}

/* A column of `count` commits that lie one behind the other; of a single one the number itself. */
static PyObject *column_of(const uint8_t *p, const uint8_t *end, int64_t count, int column) {
    Commit commit;
    if (count == 1) return read_commit(p, end, &commit) ? number_of(&commit, column) : NULL;
    PyObject *list = PyList_New((Py_ssize_t)count);
    for (int64_t i = 0; list && i < count; i++, p = commit.next) {
        PyObject *number = read_commit(p, end, &commit) ? number_of(&commit, column) : NULL;
        if (number)
            PyList_SET_ITEM(list, (Py_ssize_t)i, number);
        else
            Py_CLEAR(list);
    }
    return list;
}

/* The names seen last, as they were made. Both are ours to give back. */
typedef struct {
    Name group, topic;
    PyObject *group_text, *topic_text;
} Seen;

static bool see(Name *seen, PyObject **text, const Name *name) {
    if (*text && same_name(seen, name)) return true;
    Py_XDECREF(*text);
    *seen = *name;
    return (*text = text_of(name)) != NULL;
}

/* Adds the rows of a batch that is known to be ordinary; -1 with an error, else its records. */
static int64_t add_commits(PyObject *rows, const uint8_t *p, const uint8_t *end, Seen *seen) {
    int64_t records = 0;
    Commit first, other;
    while (p < end && read_commit(p, end, &first)) {
        int64_t count = 1;
        const uint8_t *next = first.next;
        for (; next < end && read_commit(next, end, &other); next = other.next, count++)
            if (first.metadata.size || other.metadata.size ||
                !same_name(&first.group, &other.group) || !same_name(&first.topic, &other.topic))
                break;
        if (!see(&seen->group, &seen->group_text, &first.group) ||
            !see(&seen->topic, &seen->topic_text, &first.topic))
            return -1;
        PyObject *row = PyTuple_New(7), *metadata = row ? text_of(&first.metadata) : NULL;
        if (row == NULL) return -1;
        PyTuple_SET_ITEM(row, 0, Py_NewRef(seen->group_text));
        PyTuple_SET_ITEM(row, 1, Py_NewRef(seen->topic_text));
        PyTuple_SET_ITEM(row, 6, metadata);
        bool good = metadata != NULL;
        for (int column = 0; column < 4; column++) {
            PyObject *numbers = column_of(p, end, count, column);
            PyTuple_SET_ITEM(row, 2 + column, numbers);
            good = good && numbers != NULL;
        }
        good = good && PyList_Append(rows, row) == 0;
        Py_DECREF(row);
        if (!good) return -1;
        records += count;
        p = next;
    }
    return records;
}

static PyObject *ordinary_commits(PyObject *self, PyObject *args) {
    PyObject *data, *rows;
    int64_t position, last = -1, records = 0, size;
    if (!PyArg_ParseTuple(args, "O!O&", &PyBytes_Type, &data, any_number, &position)) return NULL;
    int64_t total = PyBytes_GET_SIZE(data);
    if (position < 0 || position > total) Py_RETURN_NONE;
    if ((rows = PyList_New(0)) == NULL) return NULL;
    const uint8_t *start = (const uint8_t *)PyBytes_AS_STRING(data);
    Seen seen = {0};
    while ((size = ordinary_size(start + position, total - position)) > 0) {
        const uint8_t *p = start + position;
        int64_t added = add_commits(rows, p + MIN_BATCH_SIZE, p + size, &seen);
        if (added < 0) {
            Py_CLEAR(rows);
            break;
        }
        records += added;
        last = position;
        position += size;
    }
    Py_XDECREF(seen.group_text), Py_XDECREF(seen.topic_text);
    if (rows == NULL) return NULL;
    return Py_BuildValue("(LLLN)", (long long)position, (long long)last, (long long)records, rows);
}

/* ---------------------------------------------------------------- groups of a snapshot */

/* A record of offset_buckets.py: entries, size of the name, name, entries of 24 bytes that begin
 * with a key. All of it is little-endian. */
#define GROUP_NAME 2
#define GROUP_ENTRY 24
#define GROUP_ENTRIES_MAX 32
#define GROUP_PAGE 4096
#define ADDRESS_BITS 24
#define GROUP_PAGES_MAX ((1 << ADDRESS_BITS) / GROUP_PAGE)
#define TOPICS_MAX 64

/* The size of the record at `start`; 0 if there is none. */
static Py_ssize_t group_size(const uint8_t *data, Py_ssize_t size, Py_ssize_t start) {
    if (size - start < GROUP_NAME || !data[start] || data[start] > GROUP_ENTRIES_MAX) return 0;
    Py_ssize_t needed = GROUP_NAME + data[start + 1] + GROUP_ENTRY * (Py_ssize_t)data[start];
    return needed <= size - start ? needed : 0;
}

static PyObject *groups_in(PyObject *self, PyObject *args) {
    PyObject *starts, *data, *topics = NULL;
    if (!PyArg_ParseTuple(args, "O!O!", &PyBytes_Type, &starts, &PyBytes_Type, &data)) return NULL;
    const uint8_t *p = (const uint8_t *)PyBytes_AS_STRING(data);
    Py_ssize_t size = PyBytes_GET_SIZE(data), count = PyBytes_GET_SIZE(starts) / 2;
    uint64_t found[TOPICS_MAX];
    int topic_count = 0;
    long long entries = 0;
    if (!count || PyBytes_GET_SIZE(starts) % 2) Py_RETURN_NONE;
    PyObject *hashes = PyBytes_FromStringAndSize(NULL, count * 8);
    if (hashes == NULL) return NULL;
    for (Py_ssize_t i = 0; i < count; i++) {
        uint16_t start;
        memcpy(&start, PyBytes_AS_STRING(starts) + 2 * i, 2);
        Py_ssize_t needed = group_size(p, size, start);
        if (!needed) goto unknown;
        Name name = {p + start + GROUP_NAME, p[start + 1]};
        PyObject *text = text_of(&name);
        Py_hash_t hash = text ? PyObject_Hash(text) : -1;
        Py_XDECREF(text);
        if (hash == -1) goto failed;
        uint64_t bits = (uint64_t)(int64_t)hash;
        memcpy(PyBytes_AS_STRING(hashes) + 8 * i, &bits, 8);
        const uint8_t *end = p + start + needed;
        for (const uint8_t *at = name.data + name.size; at < end; at += GROUP_ENTRY, entries++) {
            uint64_t key = get64_little(at);
            uint64_t topic = (key >> 32) + ((key >> 31) & 1);
            int known = topic_count - 1;
            while (known >= 0 && found[known] != topic) known--;
            if (known >= 0) continue;
            if (topic_count == TOPICS_MAX) goto unknown;
            found[topic_count++] = topic;
        }
    }
    if ((topics = PyList_New(topic_count)) == NULL) goto failed;
    for (int i = 0; i < topic_count; i++) {
        PyObject *number = PyLong_FromUnsignedLongLong(found[i]);
        if (number == NULL) goto failed;
        PyList_SET_ITEM(topics, i, number);
    }
    return Py_BuildValue("(NNL)", hashes, topics, entries);
unknown:
    Py_DECREF(hashes);
    Py_RETURN_NONE;
failed:
    Py_XDECREF(topics);
    Py_DECREF(hashes);
    return NULL;
}

typedef struct {
    uint64_t hash;
    const uint8_t *record;
    uint32_t size, number;
} Group;

static int by_tag(const void *left, const void *right) {
    const Group *a = left, *b = right;
    uint64_t one = a->hash >> ADDRESS_BITS, other = b->hash >> ADDRESS_BITS;
    if (one != other) return one < other ? -1 : 1;
    return a->number < b->number ? -1 : a->number > b->number;
}

/* How many addresses there are in (hashes, addresses, data), ...; -1 if they are none. */
static Py_ssize_t group_count(PyObject *blocks) {
    Py_ssize_t count = 0;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(blocks); i++) {
        PyObject *block = PyTuple_GET_ITEM(blocks, i);
        if (!PyTuple_Check(block) || PyTuple_GET_SIZE(block) != 3) return -1;
        for (int k = 0; k < 3; k++)
            if (!PyBytes_Check(PyTuple_GET_ITEM(block, k))) return -1;
        count += PyBytes_GET_SIZE(PyTuple_GET_ITEM(block, 1)) / 2;
    }
    return count;
}

/* The groups of all blocks; their number, or -1 if something is not as it should be. */
static Py_ssize_t take_groups(PyObject *blocks, Group *groups, Py_ssize_t room, uint64_t *total) {
    Py_ssize_t count = 0;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(blocks); i++) {
        PyObject *block = PyTuple_GET_ITEM(blocks, i), *hashes = PyTuple_GET_ITEM(block, 0);
        PyObject *starts = PyTuple_GET_ITEM(block, 1), *data = PyTuple_GET_ITEM(block, 2);
        const uint8_t *p = (const uint8_t *)PyBytes_AS_STRING(data);
        Py_ssize_t here = PyBytes_GET_SIZE(starts) / 2;
        if (PyBytes_GET_SIZE(hashes) != here * 8 || here > room - count) return -1;
        for (Py_ssize_t k = 0; k < here; k++, count++) {
            uint16_t start;
            memcpy(&start, PyBytes_AS_STRING(starts) + 2 * k, 2);
            Py_ssize_t size = group_size(p, PyBytes_GET_SIZE(data), start);
            if (!size || size > GROUP_PAGE) return -1;
            Group *group = groups + count;
            memcpy(&group->hash, PyBytes_AS_STRING(hashes) + 8 * k, 8);
            group->record = p + start, group->size = (uint32_t)size;
            group->number = (uint32_t)count;
            *total += (uint64_t)size;
        }
    }
    return count;
}

/* (slots, pages, used bytes of the last page) of a bucket with these groups. */
static PyObject *bucket_of(const Group *groups, Py_ssize_t count) {
    PyObject *slots = PyBytes_FromStringAndSize(NULL, count * 8), *pages = PyList_New(0);
    char *page = NULL;
    uint64_t base = 0, used = GROUP_PAGE;
    bool good = slots && pages;
    for (Py_ssize_t i = 0; good && i < count; i++) {
        if (used + groups[i].size > GROUP_PAGE) {
            PyObject *next = PyByteArray_FromStringAndSize(NULL, GROUP_PAGE);
            good = next && PyList_Append(pages, next) == 0;
            Py_XDECREF(next);
            if (!good) break;
            /* No address has more bits; the twin says so. */
            if (!(good = PyList_GET_SIZE(pages) <= GROUP_PAGES_MAX)) break;
            page = PyByteArray_AS_STRING(next);
            memset(page, 0, GROUP_PAGE);
            base = (uint64_t)(PyList_GET_SIZE(pages) - 1) * GROUP_PAGE, used = 0;
        }
        uint64_t slot = groups[i].hash >> ADDRESS_BITS << ADDRESS_BITS | (base + used);
        memcpy(PyBytes_AS_STRING(slots) + 8 * i, &slot, 8);
        memcpy(page + used, groups[i].record, groups[i].size);
        used += groups[i].size;
    }
    if (good) return Py_BuildValue("(NNL)", slots, pages, (long long)used);
    Py_XDECREF(slots), Py_XDECREF(pages);
    return NULL;
}

static PyObject *place_groups(PyObject *self, PyObject *args) {
    PyObject *list, *placed = NULL;
    int64_t filled;
    uint64_t total = 0;
    if (!PyArg_ParseTuple(args, "O!O&", &PyList_Type, &list, any_number, &filled)) return NULL;
    PyObject *blocks = PyList_AsTuple(list);
    if (blocks == NULL) return NULL;
    Py_ssize_t room = group_count(blocks);
    Group *groups = NULL;
    if (room >= 0 && room <= INT32_MAX && filled > 0)
        groups = PyMem_RawMalloc((size_t)room * sizeof(Group) + 1);
    if (groups == NULL) {
        Py_DECREF(blocks);
        Py_RETURN_NONE;
    }
    Py_ssize_t count = take_groups(blocks, groups, room, &total);
    if (count >= 0) {
        /* Nobody changes bytes, and `blocks` holds them: others may run meanwhile. */
        Py_BEGIN_ALLOW_THREADS
        qsort(groups, (size_t)count, sizeof(Group), by_tag);
        Py_END_ALLOW_THREADS
        int depth = 0;
        for (uint64_t rest = total / (uint64_t)filled; rest; rest >>= 1) depth++;
        placed = depth < 32 ? PyList_New((Py_ssize_t)1 << depth) : NULL;
        Py_ssize_t at = 0;
        for (Py_ssize_t i = 0; placed && i < PyList_GET_SIZE(placed); i++) {
            Py_ssize_t start = at;
            while (at < count && (!depth || groups[at].hash >> (64 - depth) == (uint64_t)i)) at++;
            PyObject *bucket = bucket_of(groups + start, at - start);
            if (bucket == NULL)
                Py_CLEAR(placed);
            else
                PyList_SET_ITEM(placed, i, bucket);
        }
    }
    PyMem_RawFree(groups);
    Py_DECREF(blocks);
    if (placed == NULL && !PyErr_Occurred()) Py_RETURN_NONE;
    return placed;
}

/* ---------------------------------------------------------------- where records begin */

#define SPAN_SIZE 12

/* The numbers of a span: where it begins, where it ends, how many records it claims. */
static bool read_span(const uint8_t *p, int64_t total, int32_t span[3]) {
    memcpy(span, p, SPAN_SIZE);
    if (span[0] < 0 || span[0] > span[1] || span[1] > total) return false;
    return (int64_t)span[2] * MIN_RECORD_SIZE <= (int64_t)span[1] - span[0];
}

static PyObject *record_starts(PyObject *self, PyObject *args) {
    Py_buffer data = {0};
    PyObject *spans, *result = NULL;
    int64_t records = 0;
    int32_t span[3];
    if (!PyArg_ParseTuple(args, "y*S", &data, &spans)) return gives_up(&data);
    const uint8_t *from = data.buf, *bounds = (const uint8_t *)PyBytes_AS_STRING(spans);
    int64_t size = PyBytes_GET_SIZE(spans);
    bool good = data.len <= INT32_MAX && size % SPAN_SIZE == 0;
    for (int64_t at = 0; good && at < size; at += SPAN_SIZE) {
        good = read_span(bounds + at, data.len, span);
        if (span[2] > 0) records += span[2];
    }
    if (!good || (result = bytes_for_output(records * 4)) == NULL) return gives_up(&data);
    char *out = PyBytes_AS_STRING(result);
    Py_BEGIN_ALLOW_THREADS
    for (int64_t at = 0; good && at < size; at += SPAN_SIZE) {
        read_span(bounds + at, data.len, span);
        Reader in = {from + span[0], from + span[1]};
        for (int32_t index = 0; good && index < span[2]; index++, out += 4) {
            int32_t start = (int32_t)(in.p - from);
            int64_t length;
            memcpy(out, &start, 4);
            good = read_varint(&in, &length) && length >= 0 && length <= in.end - in.p;
            if (good) in.p += length;
        }
        good = good && in.p == in.end;
    }
    Py_END_ALLOW_THREADS
    if (good) {
        PyBuffer_Release(&data);
        return result;
    }
    Py_DECREF(result);
    return gives_up(&data);
}

/* ---------------------------------------------------------------- entry_rows.py */

#define ENTRY_ROW 5
#define LAST_OFFSET_DELTA_POSITION 23

static int64_t nearest_sum(int64_t base, int64_t delta) {
    if (delta > 0 && base > INT64_MAX - delta) return INT64_MAX;
    if (delta < 0 && base < INT64_MIN - delta) return INT64_MIN;
    return base + delta;
}

/* The entry at `p`; false if it is not whole, or cannot be one. */
static bool read_entry_row(const uint8_t *start, const uint8_t *p, int64_t left,
                           int64_t row[ENTRY_ROW]) {
    if (left <= MAGIC_POSITION) return false;
    int64_t size = get_size(p + 8) + ENTRY_OVERHEAD;
    int magic = p[MAGIC_POSITION];
    if (magic > 2 || size < (magic == 2 ? MIN_BATCH_SIZE : SMALLEST(0)) || size > left)
        return false;
    row[0] = p - start, row[1] = size, row[2] = magic;
    row[3] = row[4] = get64(p);
    if (magic == 2) row[4] = nearest_sum(row[3], get_size(p + LAST_OFFSET_DELTA_POSITION));
    return true;
}

static PyObject *entry_rows(PyObject *self, PyObject *args) {
    Py_buffer data = {0};
    PyObject *result;
    if (!PyArg_ParseTuple(args, "y*", &data)) return gives_up(&data);
    const uint8_t *start = data.buf;
    int64_t count = 0, made = 0, row[ENTRY_ROW];
    Py_BEGIN_ALLOW_THREADS
    for (int64_t at = 0; read_entry_row(start, start + at, data.len - at, row); at += row[1])
        count++;
    Py_END_ALLOW_THREADS
    if ((result = bytes_for_output(count * (int64_t)sizeof row)) == NULL) return gives_up(&data);
    char *out = PyBytes_AS_STRING(result);
    Py_BEGIN_ALLOW_THREADS
    for (int64_t at = 0; made < count; at += row[1], made++) {
        if (!read_entry_row(start, start + at, data.len - at, row)) break;
        memcpy(out + made * (int64_t)sizeof row, row, sizeof row);
    }
    Py_END_ALLOW_THREADS
    if (made == count) {
        PyBuffer_Release(&data);
        return result;
    }
    Py_DECREF(result);
    return gives_up(&data);
}

/* ---------------------------------------------------------------- consistency.py */

#define GZIP_MOST 1032
#define SNAPPY_MOST 32
#define SNAPPY_ELEMENTS 32
#define LZ4_MOST 255
#define ZSTD_BLOCK (INT64_C(1) << 17)
#define ZSTD_WINDOW (INT64_C(1) << 27)
#define LONGEST_SPAN_MS 3600000
#define MOST_STEPS 131072

static bool match_records(const uint8_t *start, int64_t size) {
    int64_t count = get_size(start + COUNT_POSITION), max_timestamp = NO_TIMESTAMP;
    int64_t base_timestamp = get64(start + BASE_TIMESTAMP_POSITION);
    Reader in = {start + MIN_BATCH_SIZE, start + size};
    int64_t headers_left = MOST_STEPS - count;
    for (int64_t index = 0; index < count; index++) {
        Record record;
        if (!read_record_of(&in, &record, headers_left) || record.offset_delta != index)
            return false;
        headers_left -= record.header_count;
        int64_t timestamp = add64(base_timestamp, record.timestamp_delta);
        if (timestamp > max_timestamp) max_timestamp = timestamp;
    }
    return in.p == in.end && max_timestamp == get64(start + MAX_TIMESTAMP_POSITION);
}

/* Of each codec: how many bytes the payload expands to at most; -1 if it is no stream of it. */

static int64_t gzip_room(const uint8_t *p, int64_t size) {
    if (size < 20 || p[0] != 0x1F || p[1] != 0x8B || p[2] != 8 || p[3] & 0xE0) return -1;
    int64_t stated = get32_little(p + size - 4);
    return stated > size * GZIP_MOST ? -1 : stated;
}

static int64_t snappy_block_room(const uint8_t *p, int64_t size) {
    Reader in = {p, p + size};
    uint64_t stated, made = 0;
    if (!read_bits(&in, 5, &stated) || stated > (uint64_t)size * SNAPPY_MOST) return -1;
    for (int i = 0; i < SNAPPY_ELEMENTS && in.p < in.end; i++) {
        unsigned tag = *in.p++, kind = tag & 3;
        uint64_t length = tag >> 2, number = 0;
        int width = kind == 0 ? (length < 60 ? 0 : (int)length - 59) : kind == 3 ? 4 : (int)kind;
        if (width > in.end - in.p) return -1;
        for (int at = 0; at < width; at++) number |= (uint64_t)*in.p++ << (8 * at);
        if (kind == 1) {
            number |= (uint64_t)(tag >> 5) << 8;
            length = (length & 7) + 3;
        } else if (kind == 0 && width) {
            length = number;
        }
        length++;
        if (kind == 0) {
            if (length > (uint64_t)(in.end - in.p)) return -1;
            in.p += length;
        } else if (number == 0 || number > made) {
            return -1;
        }
        made += length;
        if (made > stated) return -1;
    }
    return in.p == in.end && made != stated ? -1 : (int64_t)stated;
}

static int64_t snappy_room(const uint8_t *p, int64_t size) {
    static const uint8_t magic[8] = {0x82, 'S', 'N', 'A', 'P', 'P', 'Y', 0};
    const uint8_t *end = p + size;
    int64_t room = 0, steps = 0;
    if (size < 8 || memcmp(p, magic, 8)) return snappy_block_room(p, size);
    while (end - p >= 4) {
        if (++steps > MOST_STEPS) return -1;
        if (end - p >= 8 && !memcmp(p, magic, 8)) {
            if (end - p < 16) return -1;
            p += 16;
            continue;
        }
        int64_t length = get_size(p), more;
        p += 4;
        if (length <= 0 || length > end - p) return -1;
        if ((more = snappy_block_room(p, length)) < 0) return -1;
        room += more;
        p += length;
    }
    return room;
}

static int64_t lz4_room(const uint8_t *p, int64_t size) {
    const uint8_t *end = p + size;
    if (size < 7 || get32_little(p) != 0x184D2204 || (p[4] & 0xC3) != 0x40 || !(p[4] & 0x20) ||
        p[5] & 0x8F || p[5] < 0x40)
        return -1;
    bool block_sums = p[4] & 0x10, sized = p[4] & 8;
    int64_t tail = p[4] & 4 ? 4 : 0, largest = INT64_C(1) << (8 + 2 * (p[5] >> 4)), room = 0;
    uint64_t stated = 0;
    if (sized && size < 15) return -1;
    if (sized) stated = get64_little(p + 6);
    p += sized ? 15 : 7;
    for (int64_t steps = 1;; steps++) {
        if (end - p < 4 || steps > MOST_STEPS) return -1;
        uint32_t word = get32_little(p);
        int64_t length = word & 0x7FFFFFFF, whole = length + (block_sums ? 4 : 0);
        p += 4;
        if (word == 0) break;
        if (length > largest || whole > end - p) return -1;
        p += whole;
        if (word >> 31 == 0) length = length * LZ4_MOST < largest ? length * LZ4_MOST : largest;
        room += length;
    }
    if (end - p != tail || stated > (uint64_t)room) return -1;
    return sized ? (int64_t)stated : room;
}

static int64_t zstd_room(const uint8_t *p, int64_t size) {
    static const int dictionary_widths[] = {0, 1, 2, 4}, size_widths[] = {0, 2, 4, 8};
    const uint8_t *end = p + size;
    int64_t room = 0, steps = 0;
    while (p < end) {
        if (end - p < 5 || ++steps > MOST_STEPS) return -1;
        uint32_t magic = get32_little(p);
        if ((magic & 0xFFFFFFF0u) == 0x184D2A50u) {
            if (end - p < 8 || get32_little(p + 4) > end - p - 8) return -1;
            p += 8 + (int64_t)get32_little(p + 4);
            continue;
        }
        int flags = p[4], single = flags & 0x20;
        int width = flags >> 6 || !single ? size_widths[flags >> 6] : 1;
        int fields = (single ? 0 : 1) + dictionary_widths[flags & 3] + width;
        if (magic != 0xFD2FB528u || end - p < 5 + fields) return -1;
        uint64_t window = (UINT64_C(1) << (10 + (p[5] >> 3))) / 8 * (8 + (p[5] & 7)), stated = 0;
        p += 5 + fields;
        for (int at = 1; at <= width; at++) stated = stated << 8 | p[-at];
        if (width == 2) stated += 256;
        if ((single ? stated : window) > ZSTD_WINDOW) return -1;
        uint64_t blocks = 0;
        for (bool last = false; !last;) {
            if (end - p < 3 || ++steps > MOST_STEPS) return -1;
            uint32_t word = p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16, kind = word >> 1 & 3;
            last = word & 1;
            int64_t length = kind == 1 ? 1 : word >> 3;
            p += 3;
            if (length > end - p) return -1;
            p += length;
            blocks += kind < 2 ? word >> 3 : ZSTD_BLOCK;
        }
        if (flags & 4 && end - p < 4) return -1;
        if (flags & 4) p += 4;
        room += (int64_t)(width && stated < blocks ? stated : blocks);
    }
    return room;
}

static bool match_frames(const uint8_t *start, int64_t size) {
    const uint8_t *payload = start + MIN_BATCH_SIZE;
    int64_t room = -1, count = get_size(start + COUNT_POSITION);
    int64_t base_timestamp = get64(start + BASE_TIMESTAMP_POSITION);
    int64_t max_timestamp = get64(start + MAX_TIMESTAMP_POSITION);
    if (max_timestamp < base_timestamp ||
        (uint64_t)max_timestamp - (uint64_t)base_timestamp > (count == 1 ? 0 : LONGEST_SPAN_MS))
        return false;
    size -= MIN_BATCH_SIZE;
    switch (start[CODEC_POSITION] & 7) {
    case 1: room = gzip_room(payload, size); break;
    case 2: room = snappy_room(payload, size); break;
    case 3: room = lz4_room(payload, size); break;
    case 4: room = zstd_room(payload, size); break;
    }
    return room >= 0 && count * MIN_RECORD_SIZE <= room;
}

/* The interpreter stays locked, for MOST_STEPS at most. */
static PyObject *is_consistent(PyObject *self, PyObject *batch) {
    Py_buffer data;
    if (PyObject_GetBuffer(batch, &data, PyBUF_SIMPLE) < 0) return NULL;
    const uint8_t *start = data.buf;
    bool good = data.len >= MIN_BATCH_SIZE;
    if (good) good = (start[CODEC_POSITION] & 7 ? match_frames : match_records)(start, data.len);
    PyBuffer_Release(&data);
    return PyBool_FromLong(good);
}

/* ---------------------------------------------------------------- the module */

#define METHOD(function) \
    {#function, (PyCFunction)(void (*)(void))(function), METH_VARARGS | METH_KEYWORDS, NULL}

static PyMethodDef methods[] = {
    METHOD(scan_messages),
    METHOD(scan_records),
    {"sound_records", sound_records, METH_VARARGS, NULL},
    METHOD(messages_from_records),
    METHOD(messages_from_messages),
    METHOD(records_from_messages),
    METHOD(place_messages),
    METHOD(skip_messages),
    {"keys_of_records", keys_of_records, METH_VARARGS, NULL},
    {"keys_of_messages", keys_of_messages, METH_VARARGS, NULL},
    {"enter_keys", enter_keys, METH_VARARGS, NULL},
    {"newest_offsets", newest_offsets, METH_VARARGS, NULL},
    {"sole_records", sole_records, METH_VARARGS, NULL},
    {"record_rows", record_rows, METH_VARARGS, NULL},
    {"sole_batch", sole_batch, METH_VARARGS, NULL},
    {"ordinary_commits", ordinary_commits, METH_VARARGS, NULL},
    {"groups_in", groups_in, METH_VARARGS, NULL},
    {"place_groups", place_groups, METH_VARARGS, NULL},
    {"record_starts", record_starts, METH_VARARGS, NULL},
    {"entry_rows", entry_rows, METH_VARARGS, NULL},
    {"is_consistent", is_consistent, METH_O, NULL},
    {NULL, NULL, 0, NULL},
};

static int prepare(PyObject *module) {
    make_crc_table(crc32_table, 0xEDB88320u);
    make_crc_table(crc32c_table, 0x82F63B78u);
    return 0;
}

static PyModuleDef_Slot slots[] = {{Py_mod_exec, prepare}, {0, NULL}};

static struct PyModuleDef definition = {
    .m_base = PyModuleDef_HEAD_INIT,
    .m_name = "_loops",
    .m_doc = "The loops of protocol.records.loops in C. None means: ask there.",
    .m_size = 0,
    .m_methods = methods,
    .m_slots = slots,
};

PyMODINIT_FUNC PyInit__loops(void) { return PyModuleDef_Init(&definition); }
