"""Any release of librdkafka, through its C interface.

The library comes out of the wheels of confluent-kafka, which are made for one Python each; the
library in them is not. Its path is the first argument; all further ones are `property=value`, set
for producers and consumers alike.
"""

from __future__ import annotations

import ctypes
import sys
import time
from ctypes import (
    CFUNCTYPE,
    POINTER,
    Structure,
    Union,
    byref,
    c_char,
    c_char_p,
    c_int,
    c_int32,
    c_int64,
    c_size_t,
    c_ssize_t,
    c_void_p,
    sizeof,
)
from typing import TYPE_CHECKING, Any

from tests.clients.python.program import DEADLINE_S, Words, answer_commands, partitions, start
from tests.clients.records import Record

if TYPE_CHECKING:
    from collections.abc import Iterator

# From rdkafka.h.
PRODUCER, CONSUMER = 0, 1
PARTITION_EOF = -191
COPY = 2
TOPIC, PARTITION, VALUE, KEY, FLAGS, TIMESTAMP, HEADER = 1, 3, 4, 5, 7, 8, 9

POLL_MS = 100


class Memory(Structure):
    _fields_ = (("data", c_char_p), ("size", c_size_t))


class Header(Structure):
    _fields_ = (("name", c_char_p), ("data", c_char_p), ("size", c_ssize_t))


class Content(Union):
    _fields_ = (
        ("text", c_char_p),
        ("int32", c_int32),
        ("int64", c_int64),
        ("memory", Memory),
        ("header", Header),
        ("padding", c_char * 64),
    )


class Part(Structure):
    """`rd_kafka_vu_t`: one property of a message to be produced."""

    _fields_ = (("kind", c_int), ("content", Content))


class Message(Structure):
    """`rd_kafka_message_t`."""

    _fields_ = (
        ("error", c_int),
        ("topic", c_void_p),
        ("partition", c_int32),
        ("value", c_void_p),
        ("value_size", c_size_t),
        ("key", c_void_p),
        ("key_size", c_size_t),
        ("offset", c_int64),
        ("own", c_void_p),
    )


class TopicPartition(Structure):
    """The beginning of `rd_kafka_topic_partition_t`."""

    _fields_ = (("topic", c_char_p), ("partition", c_int32), ("offset", c_int64))


Delivered = CFUNCTYPE(None, c_void_p, POINTER(Message), c_void_p)

#: Function -> what it returns, where that is not an int.
RETURNED = {
    "conf_new": c_void_p,
    "new": c_void_p,
    "err2str": c_char_p,
    "produceva": c_void_p,
    "error_string": c_char_p,
    "topic_partition_list_new": c_void_p,
    "topic_partition_list_add": POINTER(TopicPartition),
    "consumer_poll": POINTER(Message),
    "message_timestamp": c_int64,
    "version_str": c_char_p,
}

library: Any = ctypes.CDLL(sys.argv[1])
PROPERTIES = dict(argument.split("=", 1) for argument in sys.argv[2:])


def call(name: str, *arguments: Any) -> Any:
    function = getattr(library, f"rd_kafka_{name}")
    function.restype = RETURNED.get(name, c_int)
    return function(*arguments)


def new_client(kind: int, properties: dict[str, str], delivered: Any = None) -> c_void_p:
    conf = c_void_p(call("conf_new"))
    reason = ctypes.create_string_buffer(512)
    for key, value in {**properties, **PROPERTIES}.items():
        failed = call("conf_set", conf, key.encode(), value.encode(), reason, c_size_t(512))
        assert not failed, reason.value.decode()
    if delivered is not None:
        call("conf_set_dr_msg_cb", conf, delivered)
    place = call("new", kind, conf, reason, c_size_t(512))
    assert place, reason.value.decode()
    return c_void_p(place)


def check(error: int) -> None:
    assert not error, call("err2str", error).decode()


def produce(words: Words, records: list[Record]) -> None:
    failed: list[str] = []

    def note(_client: int, message: Any, _opaque: int) -> None:
        if message.contents.error:
            failed.append(call("err2str", message.contents.error).decode())

    delivered = Delivered(note)
    properties = {
        "bootstrap.servers": words["bootstrap"],
        "acks": "all",
        "compression.codec": words["codec"],
        "linger.ms": "5",
        "max.in.flight.requests.per.connection": "1",
        "message.timeout.ms": str(int(DEADLINE_S * 1_000)),
    }
    client = new_client(PRODUCER, properties, delivered)
    try:
        for record in records:
            _produce(client, words["topic"], record)
            call("poll", client, 0)
        check(call("flush", client, int(DEADLINE_S * 1_000)))
        assert not failed, failed[:3]
    finally:
        call("destroy", client)


def _produce(client: c_void_p, topic: str, record: Record) -> None:
    parts = [
        Part(TOPIC, Content(text=topic.encode())),
        Part(PARTITION, Content(int32=record.partition)),
        Part(FLAGS, Content(int32=COPY)),
        Part(TIMESTAMP, Content(int64=record.timestamp_ms)),
        Part(VALUE, Content(memory=Memory(record.value, len(record.value or b"")))),
        Part(KEY, Content(memory=Memory(record.key, len(record.key or b"")))),
    ]
    for name, data in record.headers:
        size = -1 if data is None else len(data)
        parts.append(Part(HEADER, Content(header=Header(name.encode(), data, size))))
    array = (Part * len(parts))(*parts)
    error = call("produceva", client, array, c_size_t(len(parts)))
    assert not error, call("error_string", c_void_p(error)).decode()


def consume(words: Words) -> Iterator[tuple[int, Record]]:
    properties = {
        "bootstrap.servers": words["bootstrap"],
        # librdkafka asks for a group id even when no group is joined.
        "group.id": "not-used",
        "enable.auto.commit": "false",
        "auto.offset.reset": "error",
        "enable.partition.eof": "true",
        "check.crcs": "true",
    }
    client = new_client(CONSUMER, properties)
    unfinished = set(partitions(words))
    assigned = c_void_p(call("topic_partition_list_new", len(unfinished)))
    for partition in unfinished:
        topic = words["topic"].encode()
        added = call("topic_partition_list_add", assigned, topic, c_int32(partition))
        added.contents.offset = start(words)
    try:
        check(call("assign", client, assigned))
        deadline = time.monotonic() + DEADLINE_S
        while unfinished:
            assert time.monotonic() < deadline, f"no end of {unfinished}"
            found = call("consumer_poll", client, POLL_MS)
            if not found:
                continue
            message = found.contents
            error, partition, offset = message.error, message.partition, message.offset
            record = None if error else _record(found)
            # Before anything is raised: to destroy a client waits for its last message.
            call("message_destroy", found)
            if record is not None:
                yield offset, record
            elif error == PARTITION_EOF:
                unfinished.discard(partition)
            else:
                check(error)
    finally:
        call("consumer_close", client)
        call("topic_partition_list_destroy", assigned)
        call("destroy", client)


def _record(found: Any) -> Record:
    message, kind = found.contents, c_int()
    timestamp_ms = call("message_timestamp", found, byref(kind))
    return Record(
        message.partition,
        # Of kind 0, "not available", in format 0; every other client shows that as -1.
        timestamp_ms if kind.value else -1,
        _bytes(message.key, message.key_size),
        _bytes(message.value, message.value_size),
        tuple(_headers(found)),
    )


def _headers(found: Any) -> Iterator[tuple[str, bytes | None]]:
    headers = c_void_p()
    if call("message_headers", found, byref(headers)):
        return
    name, data, size = c_char_p(), c_void_p(), c_size_t()
    number = 0
    while not call(
        "header_get_all", headers, c_size_t(number), byref(name), byref(data), byref(size)
    ):
        assert name.value is not None
        yield name.value.decode(), _bytes(data.value, size.value)
        number += 1


def _bytes(place: int | None, size: int) -> bytes | None:
    return None if place is None else ctypes.string_at(place, size)


if __name__ == "__main__":
    assert sizeof(Part) == 72
    answer_commands(produce, consume)
