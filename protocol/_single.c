/* The hot halves of connection.py and single_produce.py in C, byte for byte: a whole Produce request
 * of one batch to one partition is read in one call, and its answer written in one.
 *
 * Layouts and rules are in those two and are not repeated here. Whatever is not of this shape, or is
 * wrong, gives None, and the caller reads it as every other request, which has the error texts.
 *
 * Input is hostile: every length is compared with what is left of the frame before it is used.
 */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define PRODUCE_KEY 0
#define FIRST_VERSION 3
#define LOG_START_SINCE 5
#define RECORD_ERRORS_SINCE 8
#define FLEXIBLE_SINCE 9
#define TOPIC_IDS_SINCE 13
#define LAST_VERSION 13
#define TOPIC_ID_SIZE 16
#define SHORT_NAME_MAX 127 /* the compact length of a longer one takes two bytes */
#define VARINT_SHIFT_MAX 28
#define ANSWER_FIXED_MAX 96 /* bytes of an answer besides the topic */

/* ---------------------------------------------------------------- numbers */

static uint16_t get16(const uint8_t *p) { return (uint16_t)(p[0] << 8 | p[1]); }

static uint32_t get32(const uint8_t *p) {
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

static uint8_t *put16(uint8_t *p, uint16_t n) {
    *p++ = (uint8_t)(n >> 8), *p++ = (uint8_t)n;
    return p;
}

static uint8_t *put32(uint8_t *p, uint32_t n) {
    return put16(put16(p, (uint16_t)(n >> 16)), (uint16_t)n);
}

static uint8_t *put64(uint8_t *p, uint64_t n) {
    return put32(put32(p, (uint32_t)(n >> 32)), (uint32_t)n);
}

/* ---------------------------------------------------------------- reading */

/* A body as it was found: sizes in bytes, positions from the start of the buffer. */
struct body {
    const uint8_t *transactional_id; /* NULL for none */
    Py_ssize_t transactional_id_size;
    int16_t acks;
    int32_t index;
    const uint8_t *topic;
    Py_ssize_t topic_size;
    const uint8_t *records;
    const uint8_t *records_end;
};

/* v3 to v8. The rest of the frame is the records, to the last byte. */
static bool read_plain(const uint8_t *p, const uint8_t *end, struct body *found) {
    if (end - p < 26) return false;
    int16_t id_size = (int16_t)get16(p);
    p += 2;
    if (id_size != -1) {
        if (id_size < 0 || end - p < id_size + 24) return false;
        found->transactional_id = p, found->transactional_id_size = id_size;
        p += id_size;
    }
    if (get32(p + 6) != 1) return false;
    found->acks = (int16_t)get16(p);
    int16_t name_size = (int16_t)get16(p + 10);
    p += 12;
    if (name_size < 0 || end - p < name_size + 12) return false;
    found->topic = p, found->topic_size = name_size;
    p += name_size;
    int32_t size = (int32_t)get32(p + 8);
    if (get32(p) != 1 || size < 0 || end - (p + 12) != size) return false;
    found->index = (int32_t)get32(p + 4);
    found->records = p + 12, found->records_end = end;
    return true;
}

/* From v9 on: after the records come three sections of tags, which must be empty. */
static bool read_flexible(const uint8_t *p, const uint8_t *end, bool by_id, struct body *found) {
    if (end - p < 8 + TOPIC_ID_SIZE || p[0] > SHORT_NAME_MAX) return false;
    int id_size = *p++ - 1;
    if (id_size >= 0) {
        if (end - p < id_size + 7 + TOPIC_ID_SIZE) return false;
        found->transactional_id = p, found->transactional_id_size = id_size;
        p += id_size;
    }
    if (p[6] != 2) return false;
    found->acks = (int16_t)get16(p);
    p += 7;
    if (by_id) {
        found->topic_size = TOPIC_ID_SIZE;
    } else {
        if (p[0] == 0 || p[0] > SHORT_NAME_MAX) return false;
        found->topic_size = *p++ - 1;
    }
    if (end - p < found->topic_size + 6) return false;
    found->topic = p;
    p += found->topic_size;
    if (p[0] != 2) return false;
    found->index = (int32_t)get32(p + 1);
    p += 5;
    uint64_t size = 0;
    for (int shift = 0;; shift += 7) {
        if (p == end || shift > VARINT_SHIFT_MAX) return false;
        size |= (uint64_t)(*p & 127) << shift;
        if (*p++ < 128) break;
    }
    if (size == 0 || (uint64_t)(end - p) != size - 1 + 3) return false;
    found->records = p, found->records_end = end - 3;
    return end[-3] == 0 && end[-2] == 0 && end[-1] == 0;
}

/* read_request(buffer, start, end, largest frame) -> the fields of the request, or None */
static PyObject *read_request(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    if (count != 4) {
        PyErr_SetString(PyExc_TypeError, "read_request takes a buffer and three numbers");
        return NULL;
    }
    Py_ssize_t start = PyLong_AsSsize_t(args[1]), stop = PyLong_AsSsize_t(args[2]);
    Py_ssize_t largest = PyLong_AsSsize_t(args[3]);
    if (PyErr_Occurred()) return NULL;
    if (!PyByteArray_Check(args[0])) {
        PyErr_SetString(PyExc_TypeError, "read_request takes a bytearray");
        return NULL;
    }
    if (start < 0 || stop < start || stop > PyByteArray_GET_SIZE(args[0])) {
        PyErr_SetString(PyExc_ValueError, "the frame is outside of the buffer");
        return NULL;
    }
    const uint8_t *base = (const uint8_t *)PyByteArray_AS_STRING(args[0]);
    const uint8_t *p = base + start, *end = base + stop;
    /* Length, key, version, correlation id, length of the client id. */
    if (end - p < 14) Py_RETURN_NONE;
    int32_t size = (int32_t)get32(p);
    if (size < 10 || size > largest || end - p - 4 < size) Py_RETURN_NONE;
    end = p + 4 + size;
    int key = get16(p + 4), version = get16(p + 6);
    if (key != PRODUCE_KEY || version < FIRST_VERSION || version > LAST_VERSION) Py_RETURN_NONE;
    int32_t correlation_id = (int32_t)get32(p + 8);
    int16_t id_size = (int16_t)get16(p + 12);
    p += 14;
    if (id_size < 0 || end - p < id_size) Py_RETURN_NONE;
    const uint8_t *client_id = p;
    p += id_size;
    struct body found = {0};
    if (version < FLEXIBLE_SINCE) {
        if (!read_plain(p, end, &found)) Py_RETURN_NONE;
    } else {
        if (p == end || *p++ != 0) Py_RETURN_NONE; /* tags of the header */
        if (!read_flexible(p, end, version >= TOPIC_IDS_SINCE, &found)) Py_RETURN_NONE;
    }
    PyObject *transactional_id = Py_None;
    if (found.transactional_id) {
        transactional_id = PyUnicode_DecodeUTF8((const char *)found.transactional_id,
                                                found.transactional_id_size, "surrogateescape");
        if (!transactional_id) return NULL;
    } else {
        Py_INCREF(transactional_id);
    }
    return Py_BuildValue("nIiy#hy#innN", (Py_ssize_t)(end - base), (unsigned)(key << 16 | version),
                         correlation_id, client_id, (Py_ssize_t)id_size, found.acks, found.topic,
                         found.topic_size, found.index, (Py_ssize_t)(found.records - base),
                         (Py_ssize_t)(found.records_end - base), transactional_id);
}

/* ---------------------------------------------------------------- writing */

static uint8_t *put_partition(uint8_t *p, int version, int32_t index, int16_t error_code,
                              int64_t base_offset, int64_t append_time_ms, int64_t log_start) {
    p = put32(p, (uint32_t)index);
    p = put16(p, (uint16_t)error_code);
    p = put64(p, (uint64_t)base_offset);
    p = put64(p, (uint64_t)append_time_ms);
    return version >= LOG_START_SINCE ? put64(p, (uint64_t)log_start) : p;
}

/* write_answer(out, version, correlation id, topic, index, error code, base offset, append time in
 * ms, log start): appends the whole answer, with its length and header, to a bytearray */
static PyObject *write_answer(PyObject *self, PyObject *args) {
    PyObject *out;
    int version, correlation_id, index;
    short error_code;
    long long base_offset, append_time_ms, log_start;
    const uint8_t *topic;
    Py_ssize_t topic_size;
    if (!PyArg_ParseTuple(args, "O!iiy#ihLLL", &PyByteArray_Type, &out, &version, &correlation_id,
                          &topic, &topic_size, &index, &error_code, &base_offset, &append_time_ms,
                          &log_start))
        return NULL;
    bool flexible = version >= FLEXIBLE_SINCE;
    if (version < FIRST_VERSION || version > LAST_VERSION ||
        topic_size > (flexible ? SHORT_NAME_MAX - 1 : INT16_MAX) ||
        (version >= TOPIC_IDS_SINCE && topic_size != TOPIC_ID_SIZE)) {
        PyErr_SetString(PyExc_ValueError, "no answer of this shape");
        return NULL;
    }
    Py_ssize_t before = PyByteArray_GET_SIZE(out);
    if (PyByteArray_Resize(out, before + topic_size + ANSWER_FIXED_MAX) < 0) return NULL;
    uint8_t *start = (uint8_t *)PyByteArray_AS_STRING(out) + before;
    uint8_t *p = put32(start + 4, (uint32_t)correlation_id);
    if (flexible) {
        *p++ = 0; /* tags of the header */
        *p++ = 2;
        if (version < TOPIC_IDS_SINCE) *p++ = (uint8_t)(topic_size + 1);
        memcpy(p, topic, (size_t)topic_size);
        p += topic_size;
        *p++ = 2;
        p = put_partition(p, version, index, error_code, base_offset, append_time_ms, log_start);
        memset(p, 0, 9); /* no errors of records, no message, tags, throttle time, tags */
        *p = 1;
        p += 9;
    } else {
        p = put32(p, 1);
        p = put16(p, (uint16_t)topic_size);
        memcpy(p, topic, (size_t)topic_size);
        p = put32(p + topic_size, 1);
        p = put_partition(p, version, index, error_code, base_offset, append_time_ms, log_start);
        if (version >= RECORD_ERRORS_SINCE) p = put16(put32(p, 0), 0xFFFF);
        p = put32(p, 0); /* throttle time */
    }
    Py_ssize_t size = p - start;
    put32(start, (uint32_t)(size - 4));
    if (PyByteArray_Resize(out, before + size) < 0) return NULL;
    Py_RETURN_NONE;
}

/* ---------------------------------------------------------------- the module */

static PyMethodDef methods[] = {
    {"read_request", (PyCFunction)(void (*)(void))read_request, METH_FASTCALL, NULL},
    {"write_answer", write_answer, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyModuleDef_Slot slots[] = {{0, NULL}};

static struct PyModuleDef definition = {
    .m_base = PyModuleDef_HEAD_INIT,
    .m_name = "_single",
    .m_doc = "Produce requests of one batch in C. None means: read it as any other.",
    .m_size = 0,
    .m_methods = methods,
    .m_slots = slots,
};

PyMODINIT_FUNC PyInit__single(void) { return PyModuleDef_Init(&definition); }
